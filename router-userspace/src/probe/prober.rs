//! One probe: resolve, connect, secure, ask, read to the last octet; or run a program, or look into a file;
//! within its time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use router_common::health::{Observation, Outcome, ProbeFault, Stage};
use router_common::model::{Connection, HttpProbe, ProbeTarget, Trust};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::connect::connect;
use super::fault::Failed;
use super::http::{self, Recording};
use super::planner::Limits;
use super::program::Programs;
use super::resolve::{Resolver, Unresolved};
use super::state_file::StateFiles;
use super::tls::{Roots, Tls};
use super::transcript::{TlsSession, Transcript};

/// `User-Agent` unless a monitor has its own.
pub const USER_AGENT: &str = concat!("xroute/", env!("CARGO_PKG_VERSION"), " health-probe");

/// Most octets of a body that are read, 1 MiB. A longer response counts by its status like any other, with the
/// latency to this octet; the rest is left unread.
pub const BODY_LIMIT: u64 = 1 << 20;

/// What all probes of an agent have in common.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `User-Agent` unless a monitor has its own.
    pub user_agent: String,
    /// Whom verified HTTPS probes trust.
    pub roots: Roots,
}

impl Default for Settings {
    fn default() -> Self {
        Self { user_agent: USER_AGENT.to_owned(), roots: Roots::System }
    }
}

/// Runs probes. Holds what is worth sharing between them, and no connection.
pub struct Prober {
    user_agent: String,
    tls: Tls,
    resolver: Resolver,
    programs: Programs,
    state_files: StateFiles,
}

impl Prober {
    /// A prober with these settings.
    pub fn new(settings: Settings) -> Self {
        Self {
            user_agent: settings.user_agent,
            tls: Tls::new(settings.roots),
            resolver: Resolver::new(),
            programs: Programs::new(Limits::default().programs),
            state_files: StateFiles::default(),
        }
    }

    /// Most programs at one time.
    pub(super) fn set_programs(&self, most: usize) {
        self.programs.set_most(most);
    }

    /// Reads what these targets will need (the certificate authorities), so that no probe waits for it.
    pub(super) fn prepare<'a>(&self, targets: impl Iterator<Item = &'a ProbeTarget>) {
        for target in targets {
            if let ProbeTarget::Http(HttpProbe { tls: Some(trust), .. }) = target {
                // A fault in them is reported by every probe that needs them.
                let _ = self.tls.config(trust);
            }
        }
    }

    /// Probes once, over a connection of its own that is gone when this returns. The timeout bounds
    /// everything from resolving the name to the last octet. Dropping the future ends the probe.
    pub async fn probe(&self, target: &ProbeTarget, timeout: Duration) -> Observation {
        self.run(target, timeout, &mut Transcript::default(), None).await.0
    }

    /// As [`probe`](Self::probe), with the words of whoever reported a failure.
    pub(super) async fn probe_with_words(
        &self,
        target: &ProbeTarget,
        timeout: Duration,
    ) -> (Observation, Option<String>) {
        self.run(target, timeout, &mut Transcript::default(), None).await
    }

    /// As [`probe`](Self::probe), and tells what was sent and got.
    pub async fn probe_recorded(&self, target: &ProbeTarget, timeout: Duration) -> (Observation, Transcript) {
        let mut transcript = Transcript { wanted: true, ..Transcript::default() };
        let recording = Recording::default();
        let (observation, said) = self.run(target, timeout, &mut transcript, Some(recording.clone())).await;
        transcript.error = said;
        if let ProbeTarget::Http(_) = target {
            (transcript.sent, transcript.got) = recording.take();
        }
        (observation, transcript)
    }

    async fn run(
        &self,
        target: &ProbeTarget,
        timeout: Duration,
        transcript: &mut Transcript,
        recording: Option<Recording>,
    ) -> (Observation, Option<String>) {
        if let ProbeTarget::Exec(program) = target {
            return self.programs.run(program, timeout, transcript).await;
        }
        let ended = {
            let begun = Instant::now();
            let attempt = async {
                match target {
                    ProbeTarget::Http(probe) => self.http(probe, begun, timeout, transcript, recording).await,
                    ProbeTarget::Tcp(connection) => self.tcp(connection, begun, timeout, transcript).await,
                    ProbeTarget::File(file) => self.state_files.look_up(file, transcript).await,
                    ProbeTarget::Exec(_) => Err(Failed::new(ProbeFault::Blind, "a program is no request")),
                }
            };
            tokio::time::timeout(timeout, attempt).await
        };
        let failed = match ended {
            Ok(Ok(observation)) => return (observation, None),
            Ok(Err(failed)) => failed,
            Err(_) if matches!(target, ProbeTarget::File(_)) => {
                Failed::new(ProbeFault::Blind, format!("the file was not read within {timeout:?}"))
            }
            Err(_) => {
                let fault = ProbeFault::Timeout(transcript.stage);
                Failed::new(fault, format!("{fault}, after {timeout:?}"))
            }
        };
        (Observation { outcome: Outcome::Fault(failed.fault), latency: None }, Some(failed.said))
    }

    async fn tcp(
        &self,
        connection: &Connection,
        begun: Instant,
        timeout: Duration,
        transcript: &mut Transcript,
    ) -> Result<Observation, Failed> {
        let (_, started) = self.open(connection, begun, timeout, transcript).await?;
        let latency = started.elapsed();
        transcript.timings.finished = Some(begun.elapsed());
        Ok(Observation { outcome: Outcome::Connected, latency: Some(latency) })
    }

    async fn http(
        &self,
        probe: &HttpProbe,
        begun: Instant,
        timeout: Duration,
        transcript: &mut Transcript,
        recording: Option<Recording>,
    ) -> Result<Observation, Failed> {
        // What cannot be sent is found before anybody is bothered.
        let request = http::request(probe, &self.user_agent)?;
        let (stream, started) = self.open(&probe.connection, begun, timeout, transcript).await?;
        let exchange = http::Exchange { request, begun, recording };
        let status = match &probe.tls {
            Some(trust) => {
                transcript.stage = Stage::Tls;
                let stream = self.secure(probe, trust, stream, begun, transcript).await?;
                exchange.run(stream, transcript).await?
            }
            None => exchange.run(stream, transcript).await?,
        };
        Ok(Observation { outcome: Outcome::Status(status.code), latency: Some(status.finished - started) })
    }

    /// Resolves and connects; also returns when the connection was begun.
    async fn open(
        &self,
        connection: &Connection,
        begun: Instant,
        timeout: Duration,
        transcript: &mut Transcript,
    ) -> Result<(TcpStream, Instant), Failed> {
        transcript.stage = Stage::Resolve;
        let addresses =
            self.resolver.addresses(&connection.destination, connection.port).await.map_err(|e| match e {
                Unresolved::No(said) => Failed::new(ProbeFault::Resolve, said),
                Unresolved::Local(said) => Failed::new(ProbeFault::Local, said),
            })?;
        transcript.timings.resolved = Some(begun.elapsed());
        transcript.stage = Stage::Connect;
        let opened = connect(&addresses, &connection.source, begun + timeout, transcript).await?;
        transcript.timings.connected = Some(begun.elapsed());
        Ok(opened)
    }

    async fn secure(
        &self,
        probe: &HttpProbe,
        trust: &Trust,
        stream: TcpStream,
        begun: Instant,
        transcript: &mut Transcript,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Failed> {
        let config =
            self.tls.config(trust).map_err(|error| Failed::new(ProbeFault::Local, error.to_string()))?;
        // The request shall not wait for the acknowledgement of the handshake's last message.
        let _ = stream.set_nodelay(true);
        let name = http::server_name(probe)?;
        let sni = match &name {
            rustls::pki_types::ServerName::DnsName(name) => Some(name.as_ref().to_owned()),
            _ => None,
        };
        let stream = TlsConnector::from(config).connect(name, stream).await.map_err(|error| {
            Failed::from_chain(&error, ProbeFault::Tls(router_common::health::TlsFault::Protocol))
        })?;
        let (_, session) = stream.get_ref();
        transcript.tls = Some(TlsSession {
            sni,
            verified: *trust != Trust::Anybody,
            version: session.protocol_version().map_or(String::new(), |v| format!("{v:?}")),
            cipher: session.negotiated_cipher_suite().map_or(String::new(), |c| format!("{:?}", c.suite())),
        });
        transcript.timings.secured = Some(begun.elapsed());
        Ok(stream)
    }
}

/// Probes once with a prober of its own, for people: what was seen, and exactly what was sent and got.
pub async fn probe_once(target: &ProbeTarget, timeout: Duration) -> (Observation, Transcript) {
    Prober::new(Settings::default()).probe_recorded(target, timeout).await
}

/// Whether a target's request can be written as configured; the message says what cannot.
pub fn sendable(target: &ProbeTarget) -> Result<(), String> {
    let ProbeTarget::Http(probe) = target else { return Ok(()) };
    let mut checked = http::request(probe, USER_AGENT).map(drop);
    if probe.tls.is_some() {
        checked = checked.and(http::server_name(probe).map(drop));
    }
    checked.map_err(|failed| failed.said)
}

/// Shared by all probes of an engine.
pub(super) type SharedProber = Arc<Prober>;
