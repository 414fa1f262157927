//! `xroute upgrade`.

use std::path::PathBuf;

use clap::Args;

use super::{AgentAddress, Format, client};
use crate::control::UpgradeReport;

/// Arguments of `xroute upgrade`.
#[derive(Args, Debug)]
pub struct Upgrade {
    #[command(flatten)]
    agent: AgentAddress,
    /// Configuration file that names the control socket; the new agent loads the file that the old one was started with
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Upgrade {
    /// Has the agent start its program anew and hand everything over, and returns when the new one serves. When that
    /// cannot, the old one goes on, and this says why.
    pub fn execute(self) -> anyhow::Result<()> {
        let socket = self.agent.path(self.config.as_deref())?;
        let report: UpgradeReport = client::post(&socket, "/v1/upgrade", &())?;
        super::print_as(self.format, &report)
    }
}
