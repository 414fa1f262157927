//! The commands' side of the control socket.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::de::DeserializeOwned;

use super::AgentAddress;
use crate::{config, settings};

impl AgentAddress {
    /// The socket: given, or of the configuration, or the default one.
    pub fn path(&self, config: Option<&Path>) -> anyhow::Result<PathBuf> {
        if let Some(socket) = &self.socket {
            return Ok(socket.clone());
        }
        match config {
            Some(file) => match config::load(file) {
                Ok(loaded) => Ok(loaded.server.control),
                Err(errors) => bail!("{errors}"),
            },
            None => Ok(settings::Server::default().control),
        }
    }
}

/// Asks the agent behind `socket` for a resource and decodes it.
pub fn get<T: DeserializeOwned>(
    socket: &Path,
    resource: &str,
    query: &[(&str, String)],
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = reqwest::Client::builder()
            .unix_socket(socket)
            .timeout(std::time::Duration::from_secs(10))
            .build()
            .context("cannot prepare a client of the control socket")?;
        let mut url = reqwest::Url::parse("http://xroute")?.join(resource)?;
        url.query_pairs_mut().extend_pairs(query);
        let response = client.get(url).send().await.with_context(|| {
            format!(
                "cannot reach the agent at {} (is `xroute run` running? --socket PATH?)",
                socket.display()
            )
        })?;
        let status = response.status();
        if !status.is_success() {
            bail!("{}", response.text().await.unwrap_or_else(|_| status.to_string()).trim());
        }
        response.json().await.context("the agent's reply is not what this version expects")
    })
}
