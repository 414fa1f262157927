//! `xroute map`.

use std::io::{BufRead, IsTerminal, Write};
use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use router_common::view::HealthView;

use super::client::Connection;
use super::{AgentAddress, Format, exit};
use crate::agent::Agent;
use crate::config;
use crate::explain::stand_in;
use crate::map::{MappedAddress, map_address};

/// Arguments of `xroute map`.
#[derive(Args, Debug)]
pub struct Map {
    /// Addresses of clients; without any, they are read from standard input, one a line
    #[arg(value_name = "ADDR")]
    addresses: Vec<IpAddr>,
    /// Work offline on this file instead of asking the running agent; every endpoint counts as online
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    agent: AgentAddress,
    /// How to print: JSON is one list, or one object a line when addresses are read from standard input
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// Who knows.
enum Source {
    Agent(Connection),
    File(Box<Agent>),
}

impl Map {
    /// Looks up and prints.
    pub fn execute(self) -> anyhow::Result<()> {
        let source = match &self.config {
            Some(file) => match config::load(file) {
                Ok(loaded) => {
                    let health: HealthView = stand_in(&loaded.model, [])?;
                    Source::File(Box::new(Agent::new(loaded, health)?))
                }
                Err(errors) => bail!("{errors}"),
            },
            None => Source::Agent(Connection::new(&self.agent.path(None)?)?),
        };
        if self.addresses.is_empty() {
            return prompt(&source, self.format);
        }
        let found: anyhow::Result<Vec<MappedAddress>> =
            self.addresses.iter().map(|&address| source.map(address)).collect();
        let found = found?;
        match self.format {
            Format::Json => super::print(&(serde_json::to_string_pretty(&found)? + "\n")),
            Format::Text => {
                let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
                super::print(&texts.join("\n"))
            }
        }
    }
}

impl Source {
    fn map(&self, address: IpAddr) -> anyhow::Result<MappedAddress> {
        match self {
            Self::Agent(connection) => connection.get("/v1/map", &[("address", address.to_string())]),
            Self::File(agent) => Ok(map_address(agent.snapshot(), address)),
        }
    }
}

/// Answers line by line. A line that is no address is told and does not end it, but it is a failure.
fn prompt(source: &Source, format: Format) -> anyhow::Result<()> {
    let interactive = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let ask = || -> anyhow::Result<()> {
        if interactive {
            super::print("map> ")?;
            std::io::stdout().flush()?;
        }
        Ok(())
    };
    let mut wrong = 0;
    ask()?;
    for line in std::io::stdin().lock().lines() {
        let line = line.context("cannot read standard input")?;
        match line.trim() {
            "" => {}
            text => match text.parse() {
                Ok(address) => {
                    let mapped = source.map(address)?;
                    super::print(&match format {
                        Format::Json => serde_json::to_string(&mapped)? + "\n",
                        Format::Text => mapped.to_string(),
                    })?;
                }
                Err(_) => {
                    wrong += 1;
                    let why = format!("{text:?} is not an address (allowed: 203.0.113.7, 2001:db8::1)");
                    exit::complain(&why, format == Format::Json);
                }
            },
        }
        ask()?;
    }
    if wrong > 0 && !interactive {
        bail!("{wrong} lines were no addresses");
    }
    Ok(())
}
