//! `cargo xtask bench`: one program of the tests' crate for each measurement, optimised.

use std::fs;

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::{setup, shell};

/// What can be measured.
#[derive(Clone, Copy, ValueEnum)]
pub enum Bench {
    /// From a configuration of 100,000 names to tables in the kernel, and from a verdict to the last word
    /// written.
    Compile,
    /// 20,000 targets every 10 s for a minute: rate, lateness, CPU, memory.
    Probe,
}

/// Builds the measurement, and the agent, and runs it.
pub fn run(what: Bench) -> Result<()> {
    let name = match what {
        Bench::Compile => "compile",
        Bench::Probe => "probe",
    };
    let agent = setup::build(true)?;
    let program = format!("bench-{name}");
    let mut cargo = shell::cargo();
    cargo.args(["build", "--locked", "--release", "--package", "router-tests", "--bin", &program]);
    shell::run(cargo.env(setup::TOOLS, setup::directory()?))?;
    let target = setup::target()?;
    let folder = target.join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let figures = folder.join(format!("{name}.json"));
    let program = target.join("release").join(program);
    // Only the data path needs to be root.
    let mut command = match what {
        Bench::Compile => shell::privileged(&program),
        Bench::Probe => shell::command(&program),
    };
    let measured = shell::run(command.arg(&figures).env("XROUTE_BIN", agent));
    println!("figures: {}", figures.display());
    measured
}
