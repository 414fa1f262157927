//! `cargo xtask bench`: figures beside their goals. Each subject is one optimised program of the tests' crate, which
//! writes JSON and Markdown to `target/bench`; here they are built, run and put together into one report.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::{setup, shell};

mod machine;
mod report;

/// Something that is measured, by the program `bench-NAME` of the tests' crate, which is started as
/// `bench-NAME FILE.json [--quick]`.
#[derive(Clone, Copy)]
pub struct Subject {
    name: &'static str,
    /// For the help.
    what: &'static str,
    /// Whether it is measured when no subject is named. All of these together take less than 15 minutes, with
    /// `--quick` less than 2.
    whole: bool,
    needs: &'static [Need],
}

/// What a measurement needs.
#[derive(Clone, Copy)]
enum Need {
    /// Maps and programs of the kernel, or network namespaces.
    Root,
    /// The agent, optimised, which the program finds by `XROUTE_BIN`.
    Agent,
    /// A country table of the real world; the program makes one up where it cannot be had.
    CountryTable,
    /// A program, and Debian's package that has it. Its service is not started.
    Program(&'static str, &'static str),
    /// The same, but what is measured with it is left out where it cannot be had.
    Optional(&'static str, &'static str),
}

use Need::{Agent, CountryTable, Optional, Program, Root};

const KNOT: Need = Optional("knotd", "knot");
const NSD: Need = Optional("nsd", "nsd");
const GDNSD: Need = Optional("gdnsd", "gdnsd");
/// The backend needs the server.
const POWERDNS: Need = Optional("pdns_server", "pdns-backend-geoip");
const BIND: Need = Optional("named", "bind9");

/// Every subject, in the order of the report.
#[rustfmt::skip] // one line each
const SUBJECTS: &[Subject] = &[
    Subject { name: "prog", whole: true, what: "One query in the XDP program, over an empty one: by case and by size of the tables", needs: &[Root, CountryTable] },
    Subject { name: "flood", whole: true, what: "Answers a second over veth, to a reflector's", needs: &[Root, CountryTable] },
    Subject { name: "peers", whole: true, what: "The same questions to other DNS servers, one core each; latency", needs: &[Root, Agent, CountryTable, Program("dnsperf", "dnsperf"), Program("ethtool", "ethtool"), KNOT, NSD, GDNSD, POWERDNS, BIND] },
    Subject { name: "userspace", whole: true, what: "The server without XDP beside other DNS servers, one core each", needs: &[Root, Agent, CountryTable, Program("ethtool", "ethtool"), KNOT, NSD, GDNSD, POWERDNS, BIND] },
    Subject { name: "compile", whole: false, what: "From 100,000 names over a country table to maps, and from a verdict to the last word written", needs: &[Root, CountryTable] },
    Subject { name: "probe", whole: false, what: "20,000 targets every 10 s for a minute: rate, lateness, CPU, memory", needs: &[Agent] },
];

/// Reads a subject's name from the command line.
pub fn subjects() -> impl TypedValueParser<Value = Subject> {
    let names = SUBJECTS.iter().map(|subject| PossibleValue::new(subject.name).help(subject.what));
    PossibleValuesParser::new(names).try_map(|name| {
        SUBJECTS.iter().find(|subject| subject.name == name).copied().ok_or("no such subject")
    })
}

/// Builds, measures, and puts a report together. Without a subject, everything that belongs to the whole.
pub fn run(chosen: &[Subject], quick: bool) -> Result<()> {
    setup::ensure(setup::Need::Build)?;
    let chosen: Vec<Subject> = match chosen {
        [] => SUBJECTS.iter().filter(|subject| subject.whole).copied().collect(),
        _ => chosen.to_vec(),
    };
    let folder = setup::target()?.join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    // All of the building first: it would be measured along.
    let ready: Vec<Result<Command>> = chosen.iter().map(Subject::prepare).collect();
    let mut whole = report::Whole::new(&folder, quick, machine::facts());
    whole.print_machine();
    for (subject, ready) in chosen.iter().zip(ready) {
        println!("\n== {}: {}", subject.name, subject.what);
        let load = machine::load();
        let done = ready.and_then(|command| subject.measure(command, &folder, quick));
        whole.add(subject.name, &load, done)?;
    }
    whole.write()
}

impl Subject {
    /// Builds the program and has what it needs.
    fn prepare(&self) -> Result<Command> {
        let program = format!("bench-{}", self.name);
        shell::run(
            shell::cargo()
                .args(["build", "--release", "--locked", "--package", "router-tests", "--bin", &program])
                .env(setup::TOOLS, setup::directory()?),
        )?;
        let program = setup::target()?.join("release").join(program);
        let root = self.needs.iter().any(|need| matches!(need, Need::Root));
        let mut command = if root { shell::privileged(&program) } else { shell::command(&program) };
        for need in self.needs {
            match need {
                Need::Root => {}
                Need::Agent => {
                    command.env("XROUTE_BIN", setup::build(true)?);
                }
                Need::CountryTable => {
                    let missing = !Path::new("/usr/share/tor/geoip").exists();
                    if missing && let Err(error) = setup::install_package("tor-geoipdb") {
                        eprintln!("no tor-geoipdb ({error:#}): a table of its size is made up");
                    }
                }
                Need::Program(name, package) => {
                    install(name, package).with_context(|| format!("{name} is needed to measure with"))?;
                }
                Need::Optional(name, package) => {
                    if let Err(error) = install(name, package) {
                        eprintln!("no {name} ({error:#}): what is measured with it is left out");
                    }
                }
            }
        }
        Ok(command)
    }

    /// Runs the program; its figures are in the file also when it failed for a goal that was missed.
    fn measure(&self, mut command: Command, folder: &Path, quick: bool) -> Result<()> {
        let figures = self.figures(folder);
        for old in [figures.clone(), figures.with_extension("md")] {
            match fs::remove_file(&old) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    bail!("cannot remove {}: {error}", old.display())
                }
                _ => {}
            }
        }
        command.arg(&figures);
        if quick {
            command.arg("--quick");
        }
        shell::run(&mut command)
    }

    fn figures(&self, folder: &Path) -> PathBuf {
        folder.join(self.name).with_extension("json")
    }
}

fn install(program: &str, package: &str) -> Result<()> {
    if shell::find(program).is_none() {
        setup::install_package(package)?;
    }
    Ok(())
}
