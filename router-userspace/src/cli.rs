//! The command line: one file per command.
//!
//! Every command ends through [`exit`], which has the exit statuses.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::Serialize;

mod change;
mod check;
mod client;
mod complete;
mod doctor;
mod drain;
pub mod exit;
mod explain;
mod man;
mod map;
mod plan;
mod probe;
mod reload;
mod run;
mod status;
mod stream;
mod top;
mod trace;
mod upgrade;
mod watch;

/// Where the configuration is when no path is given.
pub const DEFAULT_CONFIG: &str = "/etc/xroute/xroute.toml";

/// A DNS traffic manager that answers in the NIC driver.
#[derive(Parser, Debug)]
#[command(name = "xroute", version, about = "A DNS traffic manager that answers in the NIC driver", long_about = None, arg_required_else_help = true,
    after_help = exit::table())]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Run the agent: attach the XDP program, probe endpoints, answer DNS.
    Run(run::Run),
    /// Check a configuration: every error and warning, with file, line and column.
    Check(check::Check),
    /// Say what a query would be answered with, and why.
    Explain(explain::Explain),
    /// Load the configuration anew; done when the fast path answers from it.
    Reload(reload::Reload),
    /// Say what another configuration would change: names, endpoints, and which clients' answers.
    Plan(plan::Plan),
    /// Put a configuration into service, unless the limits forbid it; done when the fast path answers from it.
    Apply(plan::Apply),
    /// List the configurations that served last, and are kept.
    Generations(plan::Generations),
    /// Return to one of them; done when the fast path answers from it.
    Rollback(plan::Rollback),
    /// Say what is known of a client's address, and what profiles make of it.
    Map(map::Map),
    /// Probe an endpoint now, and print exactly what is sent and got.
    Probe(probe::Probe),
    /// Take endpoints out of service and put them back, set weights and dials, while the agent runs.
    Endpoint(change::Endpoint),
    /// Take endpoints out of the answers, and say when nobody has them in a cache any more.
    Drain(drain::Drain),
    /// Take whole profiles out of service and put them back, while the agent runs.
    Profile(change::Profile),
    /// Show such changes, and take them away.
    Override(change::Override),
    /// Look at this machine: what keeps xroute from answering, or from answering fast, and what to do.
    Doctor(doctor::Doctor),
    /// Start the agent's program anew (another version of it, say) and hand everything over; no query is lost.
    Upgrade(upgrade::Upgrade),
    /// Show profiles, endpoints, their health, and what the paths did.
    Status(status::Status),
    /// Show rates, outcomes, endpoints and events live, in a terminal.
    Top(top::Top),
    /// Print events as they happen: verdicts, statuses, changes, reloads, tables.
    Watch(watch::Watch),
    /// Print queries as they are answered: who asked what, and what they got.
    Trace(trace::Trace),
    /// Print completions for a shell.
    Completions(complete::Completions),
    /// Write manual pages, one for each command.
    Man(man::Man),
}

/// How a result is printed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Which running agent a command talks to.
#[derive(Args, Debug, Clone)]
pub struct AgentAddress {
    /// Control socket of the agent [default: /run/xroute/control.sock]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

/// Writes a result to standard output. A reader that has seen enough (`| head`) is no failure.
fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints a result in the wanted format.
fn print_as<T: fmt::Display + Serialize>(format: Format, result: &T) -> anyhow::Result<()> {
    match format {
        Format::Json => print(&(serde_json::to_string_pretty(result)? + "\n")),
        Format::Text => print(&result.to_string()),
    }
}

/// Parses the arguments, runs the command and turns its result into an exit status.
pub fn main() -> ExitCode {
    let json = exit::wants_json(std::env::args_os());
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return exit::misused(&error, json),
    };
    let result = match cli.command {
        Command::Run(run) => run.execute(),
        Command::Check(check) => return ended(check.execute(), json),
        Command::Explain(explain) => explain.execute(),
        Command::Reload(reload) => reload.execute(),
        Command::Plan(plan) => return ended(plan.execute(), json),
        Command::Apply(apply) => apply.execute(),
        Command::Generations(generations) => generations.execute(),
        Command::Rollback(rollback) => rollback.execute(),
        Command::Map(map) => map.execute(),
        Command::Probe(probe) => return ended(probe.execute(), json),
        Command::Doctor(doctor) => return ended(doctor.execute(), json),
        Command::Endpoint(endpoint) => endpoint.execute(),
        Command::Drain(drain) => drain.execute(),
        Command::Profile(profile) => profile.execute(),
        Command::Override(overrides) => overrides.execute(),
        Command::Upgrade(upgrade) => upgrade.execute(),
        Command::Status(status) => status.execute(),
        Command::Top(top) => top.execute(),
        Command::Watch(watch) => watch.execute(),
        Command::Trace(trace) => trace.execute(),
        Command::Completions(completions) => completions.execute(),
        Command::Man(man) => man.execute(),
    };
    ended(result.map(|()| exit::Exit::Done), json)
}

fn ended(result: anyhow::Result<exit::Exit>, json: bool) -> ExitCode {
    match result {
        Ok(exit) => exit.into(),
        Err(error) => exit::failed(&error, json),
    }
}
