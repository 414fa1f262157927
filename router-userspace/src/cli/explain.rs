//! `xroute explain`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;

use super::{AgentAddress, Format, client};
use crate::agent::Agent;
use crate::config;
use crate::explain::{Explanation, Question, explain, stand_in};

/// Arguments of `xroute explain`.
#[derive(Args, Debug)]
pub struct Explain {
    /// The name asked for
    name: String,
    /// The type asked for: A, AAAA, CNAME, MX, TYPE65, …
    #[arg(value_name = "TYPE", default_value = "A")]
    rtype: String,
    /// Source address of the query
    #[arg(long, value_name = "ADDR")]
    client: IpAddr,
    /// EDNS Client Subnet of the query, as 203.0.113.0/24
    #[arg(long, value_name = "PREFIX")]
    ecs: Option<String>,
    /// Work offline on this file instead of asking the running agent
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A JSON file that stands in for the monitors: {"www/eu1": "degraded"}
    #[arg(long, value_name = "FILE", requires = "config")]
    state: Option<PathBuf>,
    #[command(flatten)]
    agent: AgentAddress,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

impl Explain {
    /// Explains and prints.
    pub fn execute(self) -> anyhow::Result<()> {
        // Offline and live refuse the same mistakes, before any agent is asked.
        let question = Question::parse(&self.name, &self.rtype, self.client, self.ecs.as_deref())?;
        let explanation = match &self.config {
            Some(file) => offline(file, self.state.as_deref(), &question)?,
            None => {
                let mut query = vec![
                    ("name", self.name.clone()),
                    ("type", self.rtype.clone()),
                    ("client", self.client.to_string()),
                ];
                query.extend(self.ecs.iter().map(|ecs| ("ecs", ecs.clone())));
                client::get(&self.agent.path(None)?, "/v1/explain", &query)?
            }
        };
        super::print_as(self.format, &explanation)
    }
}

fn offline(file: &Path, state: Option<&Path>, question: &Question) -> anyhow::Result<Explanation> {
    let loaded = match config::load(file) {
        Ok(loaded) => loaded,
        Err(errors) => bail!("{errors}"),
    };
    let words: BTreeMap<String, String> = match state {
        None => BTreeMap::new(),
        Some(path) => {
            let text =
                std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
            serde_json::from_str(&text).with_context(|| {
                format!("{}: not a JSON object of \"profile/endpoint\": \"state\"", path.display())
            })?
        }
    };
    let words = words.iter().map(|(path, word)| (path.as_str(), word.as_str()));
    let health = stand_in(&loaded.model, words)
        .with_context(|| state.map(|path| path.display().to_string()).unwrap_or_default())?;
    let agent = Agent::new(loaded, health)?;
    Ok(explain(&agent.service(), agent.compiled(), question))
}
