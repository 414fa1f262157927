//! `xroute drain`: takes endpoints out of the answers, and says when nobody has them in a cache any more.

use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::bail;
use clap::Args;
use serde::Serialize;

use super::exit::{Exit, Failure};
use super::{AgentAddress, Format, change, client};
use crate::control::{ChangeReport, Drain as Wanted, DrainReport, DrainsReport};
use crate::overrides;

/// How often the agent is asked how far it is.
const LOOK: Duration = Duration::from_millis(500);

/// Arguments of `xroute drain`.
#[derive(Args, Debug)]
pub struct Drain {
    /// PROFILE/ENDPOINT to take out of service; `*` and `?` stand for characters of a name. Without any: show what is being drained
    #[arg(value_name = "GLOB")]
    globs: Vec<String>,
    /// Show what is being drained
    #[arg(long, conflicts_with_all = ["globs", "wait", "lasts", "reason", "force"])]
    list: bool,
    /// Wait until the servers can be stopped; exit status 0 says that they can
    #[arg(long, requires = "globs")]
    wait: bool,
    /// Wait no longer than this: 90s, 10m; the endpoints stay out of the answers
    #[arg(long, value_name = "TIME", value_parser = change::time, requires = "wait")]
    timeout: Option<Duration>,
    /// End by itself after this time, and answer with them again: 90s, 30m, 2h
    #[arg(long = "for", id = "lasts", value_name = "TIME", value_parser = change::time, requires = "globs")]
    lasts: Option<Duration>,
    /// Why, for those who look at it later
    #[arg(long, value_name = "TEXT", requires = "globs")]
    reason: Option<String>,
    /// Also when clients would be left without an answer, or with what is down
    #[arg(long, requires = "globs")]
    force: bool,
    #[command(flatten)]
    agent: AgentAddress,
    /// Configuration file that names the control socket
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What was done, and how far it is.
#[derive(Serialize)]
struct Drained {
    #[serde(flatten)]
    change: ChangeReport,
    #[serde(flatten)]
    drains: DrainsReport,
}

impl Drain {
    /// Takes endpoints out of service, and returns when the fast path shows it, or when they can be stopped.
    pub fn execute(self) -> anyhow::Result<()> {
        let socket = self.agent.path(self.config.as_deref())?;
        if self.list || self.globs.is_empty() {
            return super::print_as(self.format, &self.running(&socket)?);
        }
        if let Some(odd) = self.globs.iter().find(|glob| !glob.contains('/')) {
            let message = format!("{odd:?}: PROFILE/ENDPOINT is wanted, e.g. \"www/eu*\"");
            return Err(Failure::new(Exit::Usage, message).into());
        }
        let wanted = Wanted {
            targets: self.globs.clone(),
            seconds: self.lasts.map(|lasts| lasts.as_secs()),
            reason: self.reason.clone(),
            force: self.force,
        };
        let began = Instant::now();
        let change: ChangeReport = client::post(&socket, "/v1/drains", &wanted)?;
        let mut drains = self.running(&socket)?;
        if self.format == Format::Text {
            super::print(&format!("{change}{drains}"))?;
        }
        if self.wait {
            drains = self.wait(&socket, began)?;
        }
        match self.format {
            Format::Json => {
                super::print(&(serde_json::to_string_pretty(&Drained { change, drains })? + "\n"))
            }
            Format::Text => Ok(()),
        }
    }

    /// How far those are that are named; all when none is.
    fn running(&self, socket: &Path) -> anyhow::Result<DrainsReport> {
        let mut report: DrainsReport = client::get(socket, "/v1/drains", &[])?;
        let named =
            |drain: &DrainReport| self.globs.iter().any(|glob| overrides::covers(glob, &drain.target));
        if !self.globs.is_empty() {
            report.drains.retain(named);
        }
        Ok(report)
    }

    /// Until all of them can be stopped. An agent that is away, since it is started anew, is waited for.
    fn wait(&self, socket: &Path, began: Instant) -> anyhow::Result<DrainsReport> {
        let shows = self.format == Format::Text && std::io::stdout().is_terminal();
        let over = || self.timeout.is_some_and(|timeout| began.elapsed() >= timeout);
        loop {
            let report = match self.running(socket) {
                Ok(report) => report,
                Err(error) if over() => return Err(error),
                Err(_) => {
                    std::thread::sleep(LOOK);
                    continue;
                }
            };
            if report.drains.is_empty() {
                bail!("it is not drained any more: somebody put it back, or its time (--for) is over");
            }
            let waits = report.drains.iter().filter(|drain| !drain.is_safe()).max_by_key(|drain| drain.left);
            let Some(last) = waits else {
                if self.format == Format::Text {
                    let clear = if shows { "\r\x1b[K" } else { "" };
                    let lines: String =
                        report.drains.iter().map(|each| format!("{}: safe to stop\n", each.target)).collect();
                    super::print(&format!("{clear}{lines}"))?;
                }
                return Ok(report);
            };
            if over() {
                bail!(
                    "it takes longer than {} s: {}",
                    self.timeout.unwrap_or_default().as_secs(),
                    last.to_string().trim_end()
                );
            }
            if shows {
                super::print(&format!("\r\x1b[K{}: {}", last.target, last.progress()))?;
                std::io::stdout().flush()?;
            }
            let left = Duration::from_millis(last.left.max(20));
            std::thread::sleep(left.min(LOOK));
        }
    }
}
