//! `xroute plan`, `xroute apply`, `xroute generations`, `xroute rollback`: another configuration in place of what runs.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;

use super::exit::Exit;
use super::{AgentAddress, Format, client};
use crate::config::{self, Config};
use crate::control::{
    Apply as ApplyWanted, GenerationsReport, LoadReport, PlanWanted, Rollback as RollbackWanted,
};
use crate::plan::{PlanReport, of_files};

/// How to reach the agent, and how to print.
#[derive(Args, Debug)]
struct Common {
    #[command(flatten)]
    agent: AgentAddress,
    /// Configuration file that names the control socket
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Common {
    fn socket(&self) -> anyhow::Result<PathBuf> {
        self.agent.path(self.config.as_deref())
    }
}

/// Arguments of `xroute plan`.
#[derive(Args, Debug)]
pub struct Plan {
    /// The file that would take the place of what runs [default: the agent's own file, as it is now]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Compare with this file instead of with what runs; no agent is asked
    #[arg(long, value_name = "FILE", requires = "file", conflicts_with = "generation")]
    against: Option<PathBuf>,
    /// A kept generation instead of a file
    #[arg(long, value_name = "N", conflicts_with = "file")]
    generation: Option<u64>,
    /// Leave nothing out of long lists
    #[arg(long)]
    all: bool,
    /// Exit with status 6 when something would change, 0 when nothing would
    #[arg(long)]
    exit_code: bool,
    #[command(flatten)]
    common: Common,
}

impl Plan {
    /// Prints what would change, and changes nothing.
    pub fn execute(self) -> anyhow::Result<Exit> {
        let report: PlanReport = match (&self.file, &self.against) {
            (Some(file), Some(against)) => of_files(load(against)?, load(file)?, (against, file)),
            _ => {
                let file = self.file.as_deref().map(absolute).transpose()?;
                let wanted = PlanWanted { file, generation: self.generation };
                client::post(&self.common.socket()?, "/v1/plan", &wanted)?
            }
        };
        warn(self.common.format, &report.warnings);
        match self.common.format {
            Format::Json => super::print(&(serde_json::to_string_pretty(&report)? + "\n"))?,
            Format::Text => super::print(&report.text(self.all))?,
        }
        let changes = self.exit_code && !report.empty;
        Ok(if changes { Exit::Changes } else { Exit::Done })
    }
}

/// In JSON they are in the result.
fn warn(format: Format, warnings: &[String]) {
    if format == Format::Text {
        warnings.iter().for_each(|warning| eprintln!("{warning}"));
    }
}

fn load(file: &Path) -> anyhow::Result<Config> {
    match config::load(file) {
        Ok(config) => Ok(config),
        Err(errors) => bail!("{} is not valid\n{errors}", file.display()),
    }
}

/// The agent has another working directory.
fn absolute(file: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(file).with_context(|| format!("{}", file.display()))
}

/// Arguments of `xroute apply`.
#[derive(Args, Debug)]
pub struct Apply {
    /// The file that takes the place of what runs [default: the agent's own file]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Also when the limits of what runs forbid it
    #[arg(long)]
    force: bool,
    /// Why, for those who look at it later
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    common: Common,
}

impl Apply {
    /// Puts the file into service, and returns when the fast path answers from it.
    pub fn execute(self) -> anyhow::Result<()> {
        let file = self.file.as_deref().map(absolute).transpose()?;
        let wanted = ApplyWanted { file, force: self.force, reason: self.reason };
        loaded(client::post(&self.common.socket()?, "/v1/apply", &wanted)?, self.common.format)
    }
}

fn loaded(report: LoadReport, format: Format) -> anyhow::Result<()> {
    warn(format, &report.reload.warnings);
    super::print_as(format, &report)
}

/// Arguments of `xroute generations`.
#[derive(Args, Debug)]
pub struct Generations {
    #[command(flatten)]
    common: Common,
}

impl Generations {
    /// Lists what is kept, newest first.
    pub fn execute(self) -> anyhow::Result<()> {
        let report: GenerationsReport = client::get(&self.common.socket()?, "/v1/generations", &[])?;
        super::print_as(self.common.format, &report)
    }
}

/// Arguments of `xroute rollback`.
#[derive(Args, Debug)]
pub struct Rollback {
    /// Number of a kept generation [default: the one before that which runs]
    #[arg(value_name = "N")]
    generation: Option<u64>,
    /// Why, for those who look at it later
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    common: Common,
}

impl Rollback {
    /// Returns to an earlier generation, and returns when the fast path answers from it.
    pub fn execute(self) -> anyhow::Result<()> {
        let wanted = RollbackWanted { generation: self.generation, reason: self.reason };
        loaded(client::post(&self.common.socket()?, "/v1/rollback", &wanted)?, self.common.format)
    }
}
