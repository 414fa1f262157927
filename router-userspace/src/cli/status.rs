//! `xroute status`.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;

use super::{AgentAddress, Format, client};
use crate::control::StatusReport;

/// Arguments of `xroute status`.
#[derive(Args, Debug)]
pub struct Status {
    /// Show only this profile
    profile: Option<String>,
    #[command(flatten)]
    agent: AgentAddress,
    /// Configuration file that names the control socket
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Status {
    /// Fetches and prints.
    pub fn execute(self) -> anyhow::Result<()> {
        let socket = self.agent.path(self.config.as_deref())?;
        let mut report: StatusReport = client::get(&socket, "/v1/status", &[])?;
        if let Some(wanted) = &self.profile {
            report.profiles.retain(|profile| profile.name == *wanted);
            if report.profiles.is_empty() {
                bail!("no profile {wanted:?}");
            }
        }
        super::print_as(self.format, &report)
    }
}
