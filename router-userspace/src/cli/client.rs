//! The commands' side of the control socket.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use reqwest::Method;
use serde::de::DeserializeOwned;
use tokio::signal::unix::{SignalKind, signal};

use super::AgentAddress;
use crate::{config, settings};

/// How long the agent may take to say what it knows.
const LOOK: Duration = Duration::from_secs(10);
/// How long it may take to load a configuration: a large geo database takes a while on a small machine.
const CHANGE: Duration = Duration::from_secs(600);

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
    Connection::new(socket)?.get(resource, query)
}

/// Has the agent behind `socket` do something, waits until it is done, and decodes what it says.
pub fn post<T: DeserializeOwned>(
    socket: &Path,
    resource: &str,
    body: &impl serde::Serialize,
) -> anyhow::Result<T> {
    let body = serde_json::to_vec(body).context("a request as JSON")?;
    Connection::new(socket)?.ask(Method::POST, resource, &[], Some(body), CHANGE)
}

/// How [`Connection::read_lines`] ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The agent said everything, or is gone.
    Closed,
    /// Nobody wants more.
    Enough,
}

/// A way to an agent, for several questions.
pub struct Connection {
    socket: PathBuf,
    runtime: tokio::runtime::Runtime,
    client: reqwest::Client,
}

impl Connection {
    /// Prepares it; nothing is sent.
    pub fn new(socket: &Path) -> anyhow::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let client = reqwest::Client::builder()
            .unix_socket(socket)
            .build()
            .context("cannot prepare a client of the control socket")?;
        Ok(Self { socket: socket.to_path_buf(), runtime, client })
    }

    /// Asks for a resource and decodes it.
    pub fn get<T: DeserializeOwned>(&self, resource: &str, query: &[(&str, String)]) -> anyhow::Result<T> {
        self.ask(Method::GET, resource, query, None, LOOK)
    }

    /// Asks for a resource that comes line by line, until it ends, `each` has enough of it, or the process is
    /// interrupted.
    pub fn read_lines(
        &self,
        resource: &str,
        query: &impl serde::Serialize,
        each: &mut dyn FnMut(&str) -> anyhow::Result<ControlFlow<()>>,
    ) -> anyhow::Result<End> {
        let mut url = reqwest::Url::parse("http://xroute")?.join(resource)?;
        if let serde_json::Value::Object(fields) = serde_json::to_value(query)? {
            let mut pairs = url.query_pairs_mut();
            for (key, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
                pairs.append_pair(key, value.as_str().unwrap_or(&value.to_string()));
            }
        }
        self.runtime.block_on(async {
            let mut terminate = signal(SignalKind::terminate())?;
            let mut response = self.client.get(url).send().await.with_context(|| self.unreachable())?;
            let status = response.status();
            if !status.is_success() {
                bail!("{}", response.text().await.unwrap_or_else(|_| status.to_string()).trim());
            }
            let mut held = Vec::new();
            loop {
                let chunk = tokio::select! {
                    chunk = response.chunk() => chunk,
                    _ = tokio::signal::ctrl_c() => return Ok(End::Enough),
                    _ = terminate.recv() => return Ok(End::Enough),
                };
                // An agent that is killed closes in the middle.
                let Ok(Some(chunk)) = chunk else { return Ok(End::Closed) };
                held.extend_from_slice(&chunk);
                while let Some(end) = held.iter().position(|&octet| octet == b'\n') {
                    let line: Vec<u8> = held.drain(..=end).collect();
                    if each(String::from_utf8_lossy(&line).trim_end())?.is_break() {
                        return Ok(End::Enough);
                    }
                }
            }
        })
    }

    fn unreachable(&self) -> String {
        format!(
            "cannot reach the agent at {} (is `xroute run` running? --socket PATH?)",
            self.socket.display()
        )
    }

    fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        resource: &str,
        query: &[(&str, String)],
        body: Option<Vec<u8>>,
        timeout: Duration,
    ) -> anyhow::Result<T> {
        let mut url = reqwest::Url::parse("http://xroute")?.join(resource)?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.runtime.block_on(async {
            let mut request = self.client.request(method, url).timeout(timeout);
            if let Some(body) = body {
                request = request.header(reqwest::header::CONTENT_TYPE, "application/json").body(body);
            }
            let response = request.send().await.with_context(|| self.unreachable())?;
            let status = response.status();
            if !status.is_success() {
                bail!("{}", response.text().await.unwrap_or_else(|_| status.to_string()).trim());
            }
            response.json().await.context("the agent's reply is not what this version expects")
        })
    }
}
