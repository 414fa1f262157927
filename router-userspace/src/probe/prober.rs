//! One probe: resolve, connect, secure, ask, read to the last octet; within its time.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use router_common::health::{Observation, Outcome, ProbeFault, Stage};
use router_common::model::{ProbeProtocol, ProbeTarget};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::fault::Failed;
use super::http::{self, Recording};
use super::resolve::{Resolver, Unresolved};
use super::tls::{Roots, Tls};
use super::transcript::{TlsSession, Transcript};

/// `User-Agent` unless a monitor's headers name another.
pub const USER_AGENT: &str = concat!("xroute/", env!("CARGO_PKG_VERSION"), " health-probe");

/// Most octets of a body that are read, 1 MiB. A longer response counts by its status like any other, with the
/// latency to this octet; the rest is left unread.
pub const BODY_LIMIT: u64 = 1 << 20;

/// What all probes of an agent have in common.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `User-Agent` unless a monitor's headers name another.
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
}

impl Prober {
    /// A prober with these settings.
    pub fn new(settings: Settings) -> Self {
        Self { user_agent: settings.user_agent, tls: Tls::new(settings.roots), resolver: Resolver::new() }
    }

    /// Reads what these targets will need (the certificate authorities), so that no probe waits for it.
    pub(super) fn prepare<'a>(&self, mut targets: impl Iterator<Item = &'a ProbeTarget>) {
        if targets.any(|target| target.protocol == ProbeProtocol::Https && target.verify) {
            // A fault in them is reported by every probe that needs them.
            let _ = self.tls.config(true);
        }
    }

    /// Probes once, over a connection of its own that is gone when this returns. The timeout bounds
    /// everything from resolving the name to the last octet. Dropping the future ends the probe.
    pub async fn probe(&self, target: &ProbeTarget, timeout: Duration) -> Observation {
        self.run(target, timeout, &mut Transcript::default(), None).await
    }

    /// As [`probe`](Self::probe), and tells what was sent and got.
    pub async fn probe_recorded(&self, target: &ProbeTarget, timeout: Duration) -> (Observation, Transcript) {
        let mut transcript = Transcript { wanted: true, ..Transcript::default() };
        let recording = Recording::default();
        let observation = self.run(target, timeout, &mut transcript, Some(recording.clone())).await;
        (transcript.sent, transcript.got) = recording.take();
        (observation, transcript)
    }

    async fn run(
        &self,
        target: &ProbeTarget,
        timeout: Duration,
        transcript: &mut Transcript,
        recording: Option<Recording>,
    ) -> Observation {
        let ended = {
            let attempt = self.attempt(target, Instant::now(), timeout, transcript, recording);
            tokio::time::timeout(timeout, attempt).await
        };
        let failed = match ended {
            Ok(Ok(observation)) => return observation,
            Ok(Err(failed)) => failed,
            Err(_) => {
                let fault = ProbeFault::Timeout(transcript.stage);
                Failed::new(fault, format!("{fault}, after {timeout:?}"))
            }
        };
        transcript.error = Some(failed.said);
        Observation { outcome: Outcome::Fault(failed.fault), latency: None }
    }

    async fn attempt(
        &self,
        target: &ProbeTarget,
        begun: Instant,
        timeout: Duration,
        transcript: &mut Transcript,
        recording: Option<Recording>,
    ) -> Result<Observation, Failed> {
        // What cannot be sent is found before anybody is bothered.
        let request = match target.protocol {
            ProbeProtocol::Tcp => None,
            ProbeProtocol::Http | ProbeProtocol::Https => Some(http::request(target, &self.user_agent)?),
        };
        transcript.stage = Stage::Resolve;
        let addresses =
            self.resolver.addresses(&target.destination, target.port).await.map_err(|e| match e {
                Unresolved::No(said) => Failed::new(ProbeFault::Resolve, said),
                Unresolved::Local(said) => Failed::new(ProbeFault::Local, said),
            })?;
        transcript.timings.resolved = Some(begun.elapsed());
        transcript.stage = Stage::Connect;
        let (stream, started) = connect(&addresses, begun + timeout, transcript).await?;
        transcript.timings.connected = Some(begun.elapsed());
        let Some(request) = request else {
            let latency = started.elapsed();
            transcript.timings.finished = Some(begun.elapsed());
            return Ok(Observation { outcome: Outcome::Connected, latency: Some(latency) });
        };
        let exchange = http::Exchange { request, begun, recording };
        let status = match target.protocol {
            ProbeProtocol::Https => {
                transcript.stage = Stage::Tls;
                let stream = self.secure(target, stream, begun, transcript).await?;
                exchange.run(stream, transcript).await?
            }
            ProbeProtocol::Http | ProbeProtocol::Tcp => exchange.run(stream, transcript).await?,
        };
        Ok(Observation { outcome: Outcome::Status(status.code), latency: Some(status.finished - started) })
    }

    async fn secure(
        &self,
        target: &ProbeTarget,
        stream: TcpStream,
        begun: Instant,
        transcript: &mut Transcript,
    ) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Failed> {
        let config = self
            .tls
            .config(target.verify)
            .map_err(|error| Failed::new(ProbeFault::Local, error.to_string()))?;
        // The request shall not wait for the acknowledgement of the handshake's last message.
        let _ = stream.set_nodelay(true);
        let name = http::server_name(target)?;
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
            verified: target.verify,
            version: session.protocol_version().map_or(String::new(), |v| format!("{v:?}")),
            cipher: session.negotiated_cipher_suite().map_or(String::new(), |c| format!("{:?}", c.suite())),
        });
        transcript.timings.secured = Some(begun.elapsed());
        Ok(stream)
    }
}

/// Connects to the first address that lets us, each given an even share of the time that is left. Also
/// returns when that connection was begun.
async fn connect(
    addresses: &[SocketAddr],
    deadline: Instant,
    transcript: &mut Transcript,
) -> Result<(TcpStream, Instant), Failed> {
    let mut failed = Failed::new(ProbeFault::Resolve, "no address");
    for (i, &address) in addresses.iter().enumerate() {
        transcript.tried.push(address);
        let started = Instant::now();
        let left = (addresses.len() - i) as u32;
        let share = deadline.saturating_duration_since(started) / left;
        match tokio::time::timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                if transcript.wanted {
                    transcript.local = stream.local_addr().ok();
                }
                return Ok((stream, started));
            }
            Ok(Err(error)) => failed = Failed::from_chain(&error, ProbeFault::Unreachable),
            Err(_) => {
                let fault = ProbeFault::Timeout(Stage::Connect);
                failed = Failed::new(fault, format!("{fault} to {address}, after {share:?}"));
            }
        }
    }
    Err(failed)
}

/// Probes once with a prober of its own, for people: what was seen, and exactly what was sent and got.
pub async fn probe_once(target: &ProbeTarget, timeout: Duration) -> (Observation, Transcript) {
    Prober::new(Settings::default()).probe_recorded(target, timeout).await
}

/// Whether a target's request can be written as configured; the message says what cannot.
pub fn sendable(target: &ProbeTarget) -> Result<(), String> {
    let checked = match target.protocol {
        ProbeProtocol::Tcp => Ok(()),
        ProbeProtocol::Http => http::request(target, USER_AGENT).map(drop),
        ProbeProtocol::Https => http::request(target, USER_AGENT).and(http::server_name(target).map(drop)),
    };
    checked.map_err(|failed| failed.said)
}

/// Shared by all probes of an engine.
pub(super) type SharedProber = Arc<Prober>;
