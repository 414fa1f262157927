//! `xroute endpoint`, `xroute profile`, `xroute override`: changes while the agent runs.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::exit::{Exit, Failure};
use super::{AgentAddress, Format, client};
use crate::control::{ChangeReport, Clear, OverridesReport};
use crate::overrides::{Setting, State, Wanted};

/// Arguments of `xroute endpoint`.
#[derive(Args, Debug)]
pub struct Endpoint {
    #[command(subcommand)]
    action: EndpointAction,
}

#[derive(Subcommand, Debug)]
enum EndpointAction {
    /// Put endpoints into service, also such as the configuration disables
    Enable(Targets),
    /// Take endpoints out of the answers
    Disable(Targets),
    /// Take endpoints out of the answers; they keep their place (regions, subnets)
    Stop(Targets),
    /// Set the weight of endpoints, 1 to 1000
    Weight {
        /// The weight
        #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
        weight: u16,
        #[command(flatten)]
        targets: Targets,
    },
    /// Set the traffic dial of endpoints, 0 to 100 percent
    Dial {
        /// Percent
        #[arg(value_parser = clap::value_parser!(u8).range(0..=100))]
        dial: u8,
        #[command(flatten)]
        targets: Targets,
    },
}

/// Arguments of `xroute profile`.
#[derive(Args, Debug)]
pub struct Profile {
    #[command(subcommand)]
    action: ProfileAction,
}

#[derive(Subcommand, Debug)]
enum ProfileAction {
    /// Put profiles into service, also such as the configuration disables
    Enable(Targets),
    /// Take profiles out of service: their names do not exist any more
    Disable(Targets),
}

/// What a change is on.
#[derive(Args, Debug)]
struct Targets {
    /// PROFILE/ENDPOINT, or PROFILE; `*` and `?` stand for characters of a name
    #[arg(value_name = "GLOB", required = true)]
    globs: Vec<String>,
    /// End by itself after this time: 90s, 30m, 2h
    #[arg(long = "for", value_name = "TIME", value_parser = time)]
    lasts: Option<Duration>,
    /// Why, for those who look at it later
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `xroute override`.
#[derive(Args, Debug)]
pub struct Override {
    #[command(subcommand)]
    action: OverrideAction,
}

#[derive(Subcommand, Debug)]
enum OverrideAction {
    /// Show what operators changed, and when it ends
    List(Common),
    /// Go back to what the configuration says
    Clear {
        /// PROFILE, and so all its endpoints, or PROFILE/ENDPOINT; `*` and `?` stand for characters of a name
        #[arg(value_name = "GLOB", required_unless_present = "all")]
        globs: Vec<String>,
        /// All of them
        #[arg(long, conflicts_with = "globs")]
        all: bool,
        #[command(flatten)]
        common: Common,
    },
}

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

impl Endpoint {
    /// Changes endpoints, and returns when the fast path shows it.
    pub fn execute(self) -> anyhow::Result<()> {
        match self.action {
            EndpointAction::Enable(targets) => targets.set(Setting::Status(State::Enabled), true),
            EndpointAction::Disable(targets) => targets.set(Setting::Status(State::Disabled), true),
            EndpointAction::Stop(targets) => targets.set(Setting::Status(State::Stopped), true),
            EndpointAction::Weight { weight, targets } => targets.set(Setting::Weight(weight), true),
            EndpointAction::Dial { dial, targets } => targets.set(Setting::Dial(dial), true),
        }
    }
}

impl Profile {
    /// Changes profiles, and returns when the fast path shows it.
    pub fn execute(self) -> anyhow::Result<()> {
        match self.action {
            ProfileAction::Enable(targets) => targets.set(Setting::Status(State::Enabled), false),
            ProfileAction::Disable(targets) => targets.set(Setting::Status(State::Disabled), false),
        }
    }
}

impl Targets {
    fn set(self, setting: Setting, endpoints: bool) -> anyhow::Result<()> {
        if let Some(odd) = self.globs.iter().find(|glob| glob.contains('/') != endpoints) {
            let wanted = if endpoints { "PROFILE/ENDPOINT" } else { "PROFILE" };
            let example = if endpoints { "www/eu*" } else { "www" };
            let why = format!("{odd:?}: {wanted} is wanted, e.g. {example:?}");
            return Err(Failure::new(Exit::Usage, why).into());
        }
        let wanted = Wanted {
            targets: self.globs,
            setting,
            seconds: self.lasts.map(|lasts| lasts.as_secs()),
            reason: self.reason,
        };
        let socket = self.common.agent.path(self.common.config.as_deref())?;
        let report: ChangeReport = client::post(&socket, "/v1/overrides", &wanted)?;
        super::print_as(self.common.format, &report)
    }
}

impl Override {
    /// Lists overrides, or takes some away and returns when the fast path shows it.
    pub fn execute(self) -> anyhow::Result<()> {
        match self.action {
            OverrideAction::List(common) => {
                let socket = common.agent.path(common.config.as_deref())?;
                let report: OverridesReport = client::get(&socket, "/v1/overrides", &[])?;
                super::print_as(common.format, &report)
            }
            OverrideAction::Clear { globs, all, common } => {
                let socket = common.agent.path(common.config.as_deref())?;
                let targets = if all { vec![String::from("*")] } else { globs };
                let report: ChangeReport = client::post(&socket, "/v1/overrides/clear", &Clear { targets })?;
                super::print_as(common.format, &report)
            }
        }
    }
}

/// A time as the configuration writes it, of whole seconds.
pub(super) fn time(written: &str) -> Result<Duration, String> {
    crate::config::duration_of(written)
        .filter(|time| time.as_secs() >= 1 && time.subsec_millis() == 0)
        .ok_or_else(|| String::from("a time of at least a second is wanted, e.g. 90s, 30m or 2h"))
}
