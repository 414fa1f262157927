//! `xroute doctor`.

use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use clap::Args;
use nix::unistd::{Gid, Group};

use super::exit::Exit;
use super::{AgentAddress, DEFAULT_CONFIG, Format, client};
use crate::doctor::agent::{Agent, Answer};
use crate::doctor::gather::{Scope, examine, files};
use crate::settings;

/// Arguments of `xroute doctor`.
#[derive(Args, Debug)]
pub struct Doctor {
    /// Interfaces to look at, separated by commas [default: those of the configuration, else all that are up]
    #[arg(long, value_name = "IF", value_delimiter = ',', num_args = 1..)]
    interface: Vec<String>,
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    config: PathBuf,
    /// Where an agent pins its program [default: as the agent chooses]
    #[arg(long, value_name = "DIR")]
    pin_dir: Option<PathBuf>,
    #[command(flatten)]
    agent: AgentAddress,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Doctor {
    /// Examines and prints; failed when there is a finding of that kind.
    pub fn execute(self) -> anyhow::Result<Exit> {
        let files = files(&self.config);
        let configured = files.config.as_ref().map(|config| config.server.control.clone());
        let socket = match self.agent.path(None)? {
            default if default == settings::Server::default().control => configured.unwrap_or(default),
            given => given,
        };
        let answer = ask(&socket);
        let agent = Agent { socket, answer, version: env!("CARGO_PKG_VERSION").to_owned() };
        let scope = Scope { interfaces: self.interface, config: self.config, pin_dir: self.pin_dir };
        let report = examine(&scope, &files, agent);
        super::print_as(self.format, &report)?;
        Ok(if report.failures == 0 { Exit::Done } else { Exit::Failed })
    }
}

/// Asks the agent for its status.
fn ask(socket: &Path) -> Answer {
    match UnixStream::connect(socket) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Answer::NoSocket,
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Answer::NobodyListens,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Answer::Forbidden(group_of(socket));
        }
        Err(error) => return Answer::Failed(error.to_string()),
        Ok(_) => {}
    }
    match client::get(socket, "/v1/status", &[]) {
        Ok(status) => Answer::Status(Box::new(status)),
        Err(error) => Answer::Failed(format!("{error:#}")),
    }
}

/// The group that may use a socket; root's has no members by custom.
fn group_of(socket: &Path) -> Option<String> {
    let group = Gid::from_raw(std::fs::metadata(socket).ok()?.gid());
    (group.as_raw() != 0).then(|| Group::from_gid(group).ok().flatten().map(|group| group.name))?
}
