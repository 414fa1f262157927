//! `cargo xtask bench`: figures beside their goals, for people and as JSON in `target/bench`. One program of
//! the tests' crate for each measurement, optimised.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Subcommand;

use crate::{setup, shell};

/// What is measured.
#[derive(Subcommand)]
pub enum Subject {
    /// From a configuration of 100,000 names over a country table to words in the kernel's maps, and from a
    /// verdict to the last word written.
    Compile,
    /// 20,000 targets every 10 s for a minute: rate, lateness, CPU, memory.
    Probe,
    /// dnsperf against the userspace server, NSD and Knot with the same zone, one core each.
    Userspace,
}

/// A country table of the real world; the benchmark makes one up where it cannot be had.
const COUNTRY_TABLE: (&str, &str) = ("/usr/share/tor/geoip", "tor-geoipdb");

/// What the userspace server is measured with and compared with: program and Debian package.
const SERVERS: &[(&str, &str)] = &[("dnsperf", "dnsperf"), ("nsd", "nsd"), ("knotd", "knot")];

/// Builds the measurement, and what it measures, and runs it.
pub fn run(subject: &Subject) -> Result<()> {
    setup::ensure(setup::Need::Build)?;
    let name = match subject {
        Subject::Compile => "compile",
        Subject::Probe => "probe",
        Subject::Userspace => "userspace",
    };
    let program = format!("bench-{name}");
    shell::run(
        shell::cargo()
            .args(["build", "--release", "--locked", "--package", "router-tests", "--bin", &program])
            .env(setup::TOOLS, setup::directory()?),
    )?;
    let target = setup::target()?;
    let folder = target.join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let figures = folder.join(format!("{name}.json"));
    let program = target.join("release").join(program);
    let mut command = match subject {
        Subject::Compile => {
            let (file, package) = COUNTRY_TABLE;
            if !Path::new(file).exists()
                && let Err(error) = setup::install_package(package)
            {
                eprintln!("no {package} ({error:#}): a table of its size is made up");
            }
            // The maps of the kernel need root.
            shell::privileged(&program)
        }
        Subject::Userspace => {
            for (program, package) in SERVERS {
                if shell::find(program).is_none() {
                    setup::install_package(package)
                        .with_context(|| format!("{program} is needed to compare with"))?;
                }
            }
            let agent = setup::build(true)?;
            let mut command = shell::command(&program);
            command.env("XROUTE_BIN", agent);
            command
        }
        Subject::Probe => {
            let agent = setup::build(true)?;
            let mut command = shell::command(&program);
            command.env("XROUTE_BIN", agent);
            command
        }
    };
    let done = shell::run(command.arg(&figures));
    eprintln!("Figures: {}", figures.display());
    done
}
