//! `cargo xtask bench`: figures beside their goals, for people and as JSON in `target/bench`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Subcommand;

use crate::{setup, shell};

/// What is measured.
#[derive(Subcommand)]
pub enum Subject {
    /// From a configuration of 100,000 names over a country table to words in the kernel's maps.
    Compile,
}

/// A country table of the real world; the benchmark makes one up where it cannot be had.
const COUNTRY_TABLE: (&str, &str) = ("/usr/share/tor/geoip", "tor-geoipdb");

/// Builds the benchmark optimised and runs it, as root where maps are written.
pub fn run(subject: &Subject) -> Result<()> {
    setup::ensure(setup::Need::Build)?;
    let name = match subject {
        Subject::Compile => {
            let (file, package) = COUNTRY_TABLE;
            if !Path::new(file).exists()
                && let Err(error) = setup::install_package(package)
            {
                eprintln!("no {package} ({error:#}): a table of its size is made up");
            }
            "compile"
        }
    };
    let program = format!("bench-{name}");
    shell::run(
        shell::cargo()
            .args(["build", "--release", "--locked", "--package", "router-tests", "--bin", &program])
            .env(setup::TOOLS, setup::directory()?),
    )?;
    let target = setup::target()?;
    let figures = target.join("bench").join(format!("{name}.json"));
    fs::create_dir_all(target.join("bench")).context("cannot make a directory for the figures")?;
    let done = shell::run(shell::privileged(target.join("release").join(&program)).arg(&figures));
    eprintln!("Figures: {}", figures.display());
    done
}
