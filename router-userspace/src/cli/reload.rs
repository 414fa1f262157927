//! `xroute reload`.

use std::path::PathBuf;

use clap::Args;

use super::{AgentAddress, Format, client};
use crate::control::{Apply, ReloadReport};

/// Arguments of `xroute reload`.
#[derive(Args, Debug)]
pub struct Reload {
    /// Also when the limits of what runs forbid it
    #[arg(long)]
    force: bool,
    /// Why, for those who look at it later
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    agent: AgentAddress,
    /// Configuration file that names the control socket; the agent loads the file it was started with
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Reload {
    /// Has the agent load its configuration anew, and returns when the fast path answers from it.
    pub fn execute(self) -> anyhow::Result<()> {
        let socket = self.agent.path(self.config.as_deref())?;
        let wanted = Apply { file: None, force: self.force, reason: self.reason };
        let report: ReloadReport = client::post(&socket, "/v1/reload", &wanted)?;
        if self.format == Format::Text {
            for warning in &report.warnings {
                eprintln!("{warning}");
            }
        }
        super::print_as(self.format, &report)
    }
}
