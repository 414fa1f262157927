//! The HTTP exchange of a probe, over a connection that is already there.

use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::header::{ACCEPT, CONNECTION, HOST, HeaderName, HeaderValue, USER_AGENT};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use router_common::health::{ProbeFault, Stage};
use router_common::model::{HttpProbe, ProbeMethod};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::fault::Failed;
use super::prober::BODY_LIMIT;
use super::transcript::Transcript;

/// Most octets of a response head. hyper's own bound is far beyond what a health check answers.
const HEAD_LIMIT: usize = 64 * 1024;

/// Time in which a connection may end in good order after the response (TLS close_notify). Not part of the latency.
const FAREWELL: Duration = Duration::from_millis(20);

/// Headers that a monitor may not set, because they would contradict how the probe speaks.
const OURS: [&str; 4] = ["connection", "content-length", "transfer-encoding", "upgrade"];

/// The request of a target: origin-form, `Host`, `User-Agent`, `Accept`, the target's headers (which win),
/// and `Connection: close`.
pub(super) fn request(target: &HttpProbe, user_agent: &str) -> Result<Request<Empty<Bytes>>, Failed> {
    let unsendable = |what: String| Failed::new(ProbeFault::Unsendable, what);
    if !target.path.starts_with('/') {
        return Err(unsendable(format!("path {:?} does not begin with /", target.path)));
    }
    let path = PathAndQuery::try_from(target.path.as_str())
        .map_err(|error| unsendable(format!("path {:?}: {error}", target.path)))?;
    let mut request = Request::new(Empty::new());
    *request.method_mut() = match target.method {
        ProbeMethod::Head => Method::HEAD,
        ProbeMethod::Get => Method::GET,
    };
    *request.uri_mut() = Uri::from(path);
    let headers = request.headers_mut();
    let value = |name: &str, value: &str| {
        HeaderValue::try_from(value)
            .map_err(|_| unsendable(format!("{name} {value:?} is not a header value")))
    };
    headers.insert(HOST, value("host", &host_header(&target.host))?);
    let user_agent = target.user_agent.as_deref().unwrap_or(user_agent);
    headers.insert(USER_AGENT, value("user agent", user_agent)?);
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    let mut own = Vec::with_capacity(target.headers.len());
    for (name, text) in &target.headers {
        let header = HeaderName::try_from(name.as_str())
            .map_err(|_| unsendable(format!("{name:?} is not a header name")))?;
        if OURS.contains(&header.as_str()) {
            return Err(unsendable(format!("header {name:?} cannot be set on a probe")));
        }
        own.push((header, value(name, text)?));
    }
    for (header, _) in &own {
        headers.remove(header);
    }
    for (header, value) in own {
        headers.append(header, value);
    }
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(request)
}

/// The `Host` header: as configured, an IPv6 address in brackets (RFC 3986 §3.2.2), without a final dot.
fn host_header(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Ok(IpAddr::V6(address)) => format!("[{address}]"),
        _ => host.strip_suffix('.').unwrap_or(host).to_owned(),
    }
}

/// The name that the certificate must be for, and that SNI carries unless it is an IP address (RFC 6066 §3):
/// the target's `host` without a port and a final dot.
pub(super) fn server_name(target: &HttpProbe) -> Result<ServerName<'static>, Failed> {
    let host = target.host.as_str();
    let bare = if host.parse::<IpAddr>().is_ok() {
        host
    } else if let Some((inside, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        inside
    } else {
        host.split_once(':').map_or(host, |(name, _port)| name)
    };
    let bare = bare.strip_suffix('.').unwrap_or(bare);
    ServerName::try_from(bare.to_owned())
        .map_err(|_| Failed::new(ProbeFault::Unsendable, format!("host {host:?} is not a server name")))
}

/// A request to be sent once.
pub(super) struct Exchange {
    pub(super) request: Request<Empty<Bytes>>,
    /// Start of the probe, for the transcript's times.
    pub(super) begun: Instant,
    pub(super) recording: Option<Recording>,
}

/// A whole response.
pub(super) struct Answered {
    pub(super) code: u16,
    pub(super) finished: Instant,
}

impl Exchange {
    /// Sends the request and reads the response to its last octet, or to [`BODY_LIMIT`]. Connection and
    /// request live in this future and die with it: nothing is left behind on any way out.
    pub(super) async fn run<S>(self, stream: S, transcript: &mut Transcript) -> Result<Answered, Failed>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        transcript.stage = Stage::Response;
        let io = TokioIo::new(Tap { stream, recording: self.recording });
        let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
            .title_case_headers(true)
            .max_buf_size(HEAD_LIMIT)
            .handshake(io)
            .await
            .map_err(|error| Failed::from_chain(&error, ProbeFault::Protocol))?;
        let mut connection = pin!(connection);
        let begun = self.begun;
        let request = self.request;
        let exchange = async {
            let mut response = sender.send_request(request).await?;
            let code = response.status().as_u16();
            transcript.timings.answered = Some(begun.elapsed());
            transcript.stage = Stage::Body;
            while let Some(frame) = response.body_mut().frame().await {
                if let Some(octets) = frame?.data_ref() {
                    transcript.body += octets.len() as u64;
                }
                if transcript.body >= BODY_LIMIT {
                    transcript.body_cut = true;
                    break;
                }
            }
            let finished = Instant::now();
            transcript.timings.finished = Some(finished - begun);
            Ok::<_, hyper::Error>((Answered { code, finished }, transcript.body_cut))
        };
        let mut exchange = pin!(exchange);
        let (ended, connection_open) = tokio::select! {
            biased;
            ended = &mut exchange => (ended, true),
            // The connection is at its end; what it brought is still to be read, or its error is.
            over = &mut connection => match exchange.await {
                Err(error) if error.is_canceled() => match over {
                    Err(why) => (Err(why), false),
                    Ok(()) => (Err(error), false),
                },
                ended => (ended, false),
            },
        };
        let (answered, cut) = ended.map_err(|error| Failed::from_chain(&error, ProbeFault::Closed))?;
        if connection_open && !cut {
            let _ = tokio::time::timeout(FAREWELL, connection).await;
        }
        Ok(answered)
    }
}

/// What went over a connection, shared with the [`Tap`] that notes it.
#[derive(Clone, Default)]
pub(super) struct Recording(Arc<Mutex<(Vec<u8>, Vec<u8>)>>);

impl Recording {
    /// Sent and got.
    pub(super) fn take(&self) -> (Vec<u8>, Vec<u8>) {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn note(&self, octets: &[u8], which: impl FnOnce(&mut (Vec<u8>, Vec<u8>)) -> &mut Vec<u8>) {
        let mut both = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let noted = which(&mut both);
        let room = Transcript::MOST.saturating_sub(noted.len()).min(octets.len());
        noted.extend_from_slice(&octets[..room]);
    }
}

/// A stream that notes what goes over it, when asked to.
struct Tap<S> {
    stream: S,
    recording: Option<Recording>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Tap<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let (Some(recording), Some(octets)) = (&self.recording, buf.filled().get(before..)) {
            recording.note(octets, |(_, got)| got);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tap<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        if let (Some(recording), Poll::Ready(Ok(written))) = (&self.recording, &polled) {
            recording.note(buf.get(..*written).unwrap_or(buf), |(sent, _)| sent);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
