//! The commands' side of the control socket.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;

use super::AgentAddress;
use super::exit::{Exit, Failure};
use crate::control::{ErrorReport, Kind};
use crate::{config, settings};

mod lines;

pub use lines::End;

/// How long the agent may take to say what it knows.
const LOOK: Duration = Duration::from_secs(10);
/// How long it may take to load a configuration: a large geo database takes a while on a small machine.
const CHANGE: Duration = Duration::from_secs(600);
/// How often it is asked when the agent breaks off.
const TRIES: u32 = 5;
/// Time between them.
const PAUSE: Duration = Duration::from_millis(150);
/// How long room is waited for, when others press in; and how often a place in the socket's queue is looked for.
const QUEUE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(10));

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
            let began = Instant::now();
            let mut tries = if method == Method::GET { TRIES } else { 1 };
            let response = loop {
                let mut request = self.client.request(method.clone(), url.clone()).timeout(timeout);
                if let Some(body) = &body {
                    request =
                        request.header(reqwest::header::CONTENT_TYPE, "application/json").body(body.clone());
                }
                match request.send().await {
                    // Nothing was sent: the system does not let a connect wait that must not block.
                    Err(error) if is_queue_full(&error) && began.elapsed() < QUEUE.0 => {
                        tokio::time::sleep(QUEUE.1).await;
                        continue;
                    }
                    // Turned away before anything was begun.
                    Ok(response)
                        if response.status() == StatusCode::TOO_MANY_REQUESTS
                            && began.elapsed() < QUEUE.0 => {}
                    // To look a second time changes nothing.
                    Err(error) if !error.is_connect() && !error.is_timeout() && tries > 1 => {}
                    Ok(response) => break response,
                    Err(error) => return Err(self.unsent(error, timeout)),
                }
                tries = tries.saturating_sub(1).max(1);
                tokio::time::sleep(PAUSE).await;
            };
            let status = response.status();
            if !status.is_success() {
                let text = response.text().await.unwrap_or_else(|_| status.to_string());
                return Err(refused(status, &text).into());
            }
            let octets = response.bytes().await.map_err(|error| self.unsent(error, timeout))?;
            serde_json::from_slice(&octets).context("the agent's reply is not what this version expects")
        })
    }

    fn unsent(&self, error: reqwest::Error, timeout: Duration) -> anyhow::Error {
        unsent(&self.socket, &error, timeout).into()
    }
}

/// Why there is no reply.
pub(super) fn unsent(socket: &Path, error: &reqwest::Error, timeout: Duration) -> Failure {
    let socket = socket.display();
    let denied = causes(error).any(|cause| cause.kind() == std::io::ErrorKind::PermissionDenied);
    let (exit, what) = if error.is_connect() && denied {
        let what = format!(
            "cannot reach the agent at {socket}: this user may not (permission denied); the socket is for root and \
                 the group of `server.control_group`"
        );
        return Failure::new(Exit::NotPermitted, what);
    } else if is_queue_full(error) {
        let what = format!("the agent at {socket} has no room: too many others want to connect");
        return Failure::told(Exit::Failed, Kind::TooMany.word(), what);
    } else if error.is_connect() {
        let hint = "is `xroute run` running? --socket PATH?";
        (Exit::Unreachable, format!("cannot reach the agent at {socket} ({hint})"))
    } else if error.is_timeout() {
        let seconds = timeout.as_secs();
        (Exit::Unanswered, format!("the agent at {socket} did not reply within {seconds} s"))
    } else {
        (Exit::Unanswered, format!("the agent at {socket} broke off"))
    };
    let why = causes(error).last().map_or_else(String::new, |cause| format!(": {cause}"));
    Failure::new(exit, what + &why)
}

/// Whether as many connections wait for the agent as may.
fn is_queue_full(error: &reqwest::Error) -> bool {
    error.is_connect() && causes(error).any(|cause| cause.kind() == std::io::ErrorKind::WouldBlock)
}

/// What the system said.
fn causes(error: &reqwest::Error) -> impl Iterator<Item = &std::io::Error> {
    let mut next = error.source();
    std::iter::from_fn(move || {
        let cause = next?;
        next = cause.source();
        Some(cause)
    })
    .filter_map(|cause| cause.downcast_ref())
}

/// What the API said.
pub(super) fn refused(status: StatusCode, text: &str) -> Failure {
    let exit = match status {
        StatusCode::FORBIDDEN => Exit::NotPermitted,
        StatusCode::SERVICE_UNAVAILABLE => Exit::Unanswered,
        _ => Exit::Failed,
    };
    match serde_json::from_str::<ErrorReport>(text) {
        Ok(ErrorReport { error }) => Failure::told(exit, error.kind.word(), error.message),
        Err(_) => Failure::new(exit, format!("the agent says {status}: {}", text.trim())),
    }
}
