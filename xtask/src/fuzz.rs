//! `cargo xtask fuzz`: builds the targets of `fuzz/` and runs them on the kept corpus and beyond.
//!
//! They are ordinary targets of cargo-fuzz, but nothing is to be installed for this: what cargo-fuzz would
//! set is set here. Every flag is a stable compiler's; only the sanitizers need a nightly, and there is
//! little for them to find in safe code (`cargo fuzz run TARGET` has them).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, bail};

use crate::{setup, shell};

/// Most memory of one target, MiB.
const MEMORY: u32 = 2048;
/// Most seconds for one input.
const TIMEOUT: u32 = 10;
/// Longest input that is made, octets.
const LONGEST: u32 = 4096;

/// Builds all targets, and runs this one, or each, for so many seconds.
pub fn run(target: Option<&str>, seconds: u64) -> Result<()> {
    setup::ensure(setup::Need::Build)?;
    if shell::find("c++").is_none() {
        setup::install_package("build-essential")?;
    }
    let names = names()?;
    let chosen: Vec<&str> = match target {
        None => names.iter().map(String::as_str).collect(),
        Some(name) if names.iter().any(|known| known == name) => vec![name],
        Some(name) => bail!("no target {name:?} (allowed: {})", names.join(", ")),
    };
    build()?;
    let (next, told) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(name) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match fuzz(name, seconds) {
                        Ok(line) => println!("{name}: {line}"),
                        Err(error) => {
                            told.lock()
                                .unwrap_or_else(PoisonError::into_inner)
                                .push(format!("{name}: {error:#}"));
                        }
                    }
                }
            });
        }
    });
    let told = told.into_inner().unwrap_or_else(PoisonError::into_inner);
    if !told.is_empty() {
        bail!("{} of {} targets failed\n{}", told.len(), chosen.len(), told.join("\n"));
    }
    Ok(())
}

/// The names of the targets: those of their files.
fn names() -> Result<Vec<String>> {
    let folder = shell::root().join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        names.extend(name.strip_suffix(".rs").map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

fn cargo(arguments: &[&str]) -> Result<Command> {
    let mut cargo = shell::cargo();
    cargo.args(arguments).args(["--manifest-path", "fuzz/Cargo.toml"]).env(setup::TOOLS, setup::directory()?);
    Ok(cargo)
}

/// Builds into the directory of the other builds: what is below our own crates is there already.
fn build() -> Result<()> {
    lock()?;
    let target = setup::target()?;
    let wrapper = shell::root().join("fuzz/rustc.sh");
    let mut cargo = cargo(&["build", "--locked", "--bins"])?;
    shell::run(cargo.arg("--target-dir").arg(target).env("RUSTC_WRAPPER", wrapper))
}

/// `fuzz/Cargo.lock` holds the versions of `Cargo.lock`; it is made anew from it when a dependency was added.
fn lock() -> Result<()> {
    let metadata = |how: &[&str]| -> Result<()> {
        shell::output(cargo(&["metadata", "--format-version", "1", "--quiet"])?.args(how)).map(drop)
    };
    if metadata(&["--locked"]).is_ok() {
        return Ok(());
    }
    if std::env::var_os("CI").is_some() {
        bail!("fuzz/Cargo.lock lacks a dependency: run `cargo xtask fuzz`, and commit it");
    }
    let root = shell::root();
    fs::copy(root.join("Cargo.lock"), root.join("fuzz/Cargo.lock"))
        .context("cannot write fuzz/Cargo.lock")?;
    metadata(&[])
}

/// Runs one target; what it came to.
fn fuzz(name: &str, seconds: u64) -> Result<String> {
    let root = shell::root();
    let found = setup::target()?.join("fuzz").join(name);
    let artifacts = root.join("fuzz/artifacts").join(name);
    for folder in [&found, &artifacts] {
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let log = found.with_extension("log");
    let output = fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(binary(name)?);
    command
        .arg(format!("-max_total_time={seconds}"))
        .args([
            format!("-timeout={TIMEOUT}"),
            format!("-rss_limit_mb={MEMORY}"),
            format!("-max_len={LONGEST}"),
        ])
        .arg(format!("-dict={}", root.join("fuzz/dictionaries").join(name).with_extension("dict").display()))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg("-print_final_stats=1")
        // New inputs go into the first; both are run first.
        .arg(&found)
        .arg(root.join("fuzz/corpus").join(name))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(output);
    let status = command.status().with_context(|| format!("cannot start {name}"))?;
    let text = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
    if !status.success() {
        bail!("{status}; all of it is in {}\n{}", log.display(), last_words(&text));
    }
    summary(&text).with_context(|| format!("it ran nothing: {}", log.display()))
}

fn binary(name: &str) -> Result<PathBuf> {
    Ok(setup::target()?.join("debug").join(Path::new(name)))
}

/// What libFuzzer printed since the fault: from the panic on.
fn last_words(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let panic = lines.iter().position(|line| line.contains("panicked at") || line.contains("ERROR:"));
    let from = panic.unwrap_or_else(|| lines.len().saturating_sub(20));
    lines.iter().skip(from).take(40).copied().collect::<Vec<_>>().join("\n")
}

/// Runs and coverage, from the last line that libFuzzer prints of each.
fn summary(text: &str) -> Option<String> {
    let runs = text.lines().rev().find_map(|line| line.strip_prefix("Done "))?;
    let state = text.lines().rev().find(|line| line.contains(" cov: "))?;
    let state = state.split_once(" cov: ").map(|(_, rest)| rest.split(" exec/s").next().unwrap_or(rest))?;
    Some(format!("{runs}, coverage {}", state.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "INFO: Seed: 1\n#2\tINITED cov: 10 ft: 11 corp: 1/1b exec/s: 0 rss: 30Mb\n\
        #300\tDONE   cov: 12 ft: 20 corp: 2/5b lim: 4 exec/s: 150 rss: 30Mb\nDone 300 runs in 2 second(s)\n";

    #[test]
    fn what_libfuzzer_prints_is_read() {
        let told = summary(LOG).unwrap();
        assert_eq!(told, "300 runs in 2 second(s), coverage 12 ft: 20 corp: 2/5b lim: 4");
        assert_eq!(summary("INFO: Seed: 1\n"), None);
        let words = last_words("a\nthread 'x' panicked at y\nz\n");
        assert_eq!(words, "thread 'x' panicked at y\nz");
    }

    #[test]
    fn each_target_has_a_corpus_and_a_dictionary() {
        let names = names().unwrap();
        assert!(names.contains(&"message".to_owned()));
        for name in names {
            let root = shell::root().join("fuzz");
            assert!(fs::read_dir(root.join("corpus").join(&name)).unwrap().count() > 0, "{name}");
            assert!(root.join("dictionaries").join(&name).with_extension("dict").is_file(), "{name}");
        }
    }
}
