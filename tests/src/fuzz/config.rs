//! A configuration of any text.

use router_common::compile::compile;
use router_userspace::config::{Config, parse};

use super::{SERVICE, frontage, parts};
use crate::subject;

/// Where its lines are said to stand.
const FILE: &str = "xroute.toml";
/// Larger configurations are compiled by `cargo xtask bench compile`.
const PROFILES: usize = 50;

/// Reads the octets as a configuration, with what stands after `#FILE name` marks as the files it names.
///
/// # Panics
/// When a mistake has no place, or what was accepted cannot be made into tables.
pub fn config(octets: &[u8]) {
    let (main, mut files) = parts::split(octets);
    let Ok(main) = String::from_utf8(main) else { return };
    match parse(&main, FILE, &files) {
        Ok(config) => compiles(&config),
        Err(errors) => {
            assert!(!errors.faults().is_empty(), "refused without a reason");
            files.insert(FILE.to_owned(), main.into_bytes());
            for fault in errors.faults() {
                let lines = files
                    .get(&*fault.file)
                    .map(|octets| octets.iter().filter(|&&octet| octet == b'\n').count() + 1);
                // What is about a whole file (it is no database, say) has no line.
                let is_text = fault.file.ends_with(".toml");
                assert!(fault.line >= usize::from(is_text), "{fault}: no line");
                assert!(lines.is_some_and(|lines| fault.line <= lines), "{fault}: of {lines:?} lines");
                assert!(!fault.message.is_empty(), "{fault}: says nothing");
            }
        }
    }
}

fn compiles(config: &Config) {
    for warning in &config.warnings {
        assert!(!warning.message.is_empty(), "{warning}: says nothing");
    }
    if config.model.profiles().len() > PROFILES {
        return;
    }
    let snapshot = subject::snapshot(config, &Default::default()).expect("every endpoint is up");
    let mut tried = 0u64;
    let seeds = || {
        tried += 1;
        [tried, !tried]
    };
    // That it is too large for the tables is a mistake that is told; a panic is not.
    let _ = compile(&snapshot, &frontage(&SERVICE), seeds, 1);
}
