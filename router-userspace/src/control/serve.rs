//! Serves the API on a listener, within limits that no client gets past.
//!
//! What a client can take is bounded: connections ([`Door`]), the octets of a head, the time for it, the octets and
//! the time of a body ([`whole_body`]), and the time for which it does not take its reply. The agent's loop is asked only
//! when a request is whole, and never waits for a client: it leaves its answer in a channel.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::LengthLimitError;
use hyper::body::{Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};

use super::Refusal;
use super::door::{Busy, Door, Key, Place, Reason};
use super::peer::{Groups, Peer};
use super::stall::Impatient;

/// How long a request's head may take, from when the connection is ready for it. So long may it be idle, too.
const HEAD: Duration = Duration::from_secs(10);
/// How long a body may take.
const BODY: Duration = Duration::from_secs(10);
/// How long a client may take nothing of its reply.
const STALL: Duration = Duration::from_secs(10);
/// Most octets of a head, and of what is read ahead.
const MAX_HEAD: usize = 16 * 1024;
/// Most header fields.
const MAX_FIELDS: usize = 64;
/// Most octets of a body.
const MAX_BODY: usize = 4 * 1024 * 1024;
/// How long it waits when there is no descriptor for another connection.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// What a connection gets for which there is no room.
const FULL: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\ncontent-length: 77\r\n\
connection: close\r\n\r\n{\"error\":{\"kind\":\"too_many\",\"message\":\"too many connections of this client\"}}";

/// Serves the control socket for ever. Handlers find out by [`ConnectInfo`] of [`Peer`] who asks.
pub async fn serve_unix(listener: UnixListener, routes: Router, groups: Groups, door: Arc<Door>) {
    let groups = Arc::new(groups);
    loop {
        let Some((stream, _)) = accepted(listener.accept().await, &door).await else { continue };
        let key = Key::User(stream.peer_cred().ok().map(|peer| peer.uid()));
        let Some(place) = door.enter(key) else {
            // Told as far as it goes without waiting.
            let _ = stream.try_write(FULL);
            continue;
        };
        let (routes, groups) = (routes.clone(), Arc::clone(&groups));
        start(place, |place| async move {
            // Who is in a group may be a question to a directory service, which takes its time.
            let asked = tokio::task::spawn_blocking(move || {
                let peer = Peer::of(&stream, &groups);
                (stream, peer)
            });
            let Ok((stream, peer)) = asked.await else { return };
            connection(stream, routes, Some(peer), place).await;
        });
    }
}

/// Serves an address for ever, to whoever reaches it.
pub async fn serve_tcp(listener: TcpListener, routes: Router, door: Arc<Door>) {
    loop {
        let accepted: Option<(_, SocketAddr)> = accepted(listener.accept().await, &door).await;
        let Some((stream, from)) = accepted else { continue };
        let Some(place) = door.enter(Key::from(from.ip())) else {
            let _ = stream.try_write(FULL);
            continue;
        };
        // Replies are written whole; a socket that cannot do it is only slower.
        let _ = stream.set_nodelay(true);
        let routes = routes.clone();
        start(place, |place| connection(stream, routes, None, place));
    }
}

async fn accepted<C>(accepted: io::Result<C>, door: &Door) -> Option<C> {
    match accepted {
        Ok(connection) => Some(connection),
        Err(error) => {
            let gone = matches!(
                error.kind(),
                io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::Interrupted
            );
            if !gone {
                door.count(Reason::NotAccepted);
                // Without a descriptor the same connection is there again at once.
                tokio::time::sleep(EXHAUSTED).await;
            }
            None
        }
    }
}

fn start<F>(place: Place, connection: impl FnOnce(Place) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let guest = place.guest();
    guest.is_task(tokio::spawn(connection(place)).abort_handle());
}

/// One connection, until it ends or breaks a limit.
async fn connection<S>(stream: S, routes: Router, peer: Option<Peer>, place: Place)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let routes = TowerToHyperService::new(routes);
    let asked = AtomicBool::new(false);
    let service = service_fn(|request: hyper::Request<Incoming>| {
        asked.store(true, Ordering::Relaxed);
        let busy = place.request();
        let mut request = request.map(Body::new);
        if let Some(peer) = peer {
            request.extensions_mut().insert(ConnectInfo(peer));
        }
        let answered = routes.call(request);
        let door = Arc::clone(place.door());
        async move {
            let response = match answered.await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            match response.status() {
                StatusCode::FORBIDDEN => door.count(Reason::NotPermitted),
                StatusCode::REQUEST_TIMEOUT => door.count(Reason::SlowBody),
                StatusCode::PAYLOAD_TOO_LARGE => door.count(Reason::TooLarge),
                _ => {}
            }
            Ok::<_, Infallible>(response.map(|body| Reply { body, _busy: busy }))
        }
    });
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD).max_headers(MAX_FIELDS).max_buf_size(MAX_HEAD);
    let stream = TokioIo::new(Impatient::new(stream, STALL));
    if let Err(error) = http.serve_connection(stream, service).await
        && let Some(reason) = why(&error)
        // That a client keeps its connection for later is no offence.
        && !(reason == Reason::Idle && asked.load(Ordering::Relaxed))
    {
        place.door().count(reason);
    }
}

/// What a connection broke; `None` when it only ended.
fn why(error: &hyper::Error) -> Option<Reason> {
    if error.is_parse_too_large() {
        return Some(Reason::TooLarge);
    }
    if error.is_parse() {
        return Some(Reason::Malformed);
    }
    if error.is_timeout() {
        return Some(Reason::Idle);
    }
    let stalled = std::error::Error::source(error)
        .and_then(|source| source.downcast_ref::<io::Error>())
        .is_some_and(|source| source.kind() == io::ErrorKind::TimedOut);
    stalled.then_some(Reason::Stalled)
}

/// The body of a reply; the connection is busy until it is out.
struct Reply {
    body: Body,
    _busy: Busy,
}

impl hyper::body::Body for Reply {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Hands a request on when its body is there as a whole.
pub(super) async fn whole_body(request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    match tokio::time::timeout(BODY, to_bytes(body, MAX_BODY)).await {
        Ok(Ok(octets)) => next.run(Request::from_parts(head, Body::from(octets))).await,
        Ok(Err(error)) if is_too_long(&error) => Refusal(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body has more octets than are taken (allowed: {MAX_BODY})"),
        )
        .into_response(),
        Ok(Err(error)) => {
            Refusal(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}")).into_response()
        }
        Err(_) => {
            Refusal(StatusCode::REQUEST_TIMEOUT, format!("the body did not come within {} s", BODY.as_secs()))
                .into_response()
        }
    }
}

fn is_too_long(error: &axum::Error) -> bool {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reply_without_room_is_whole() {
        let text = String::from_utf8(FULL.to_vec()).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
        let length = format!("content-length: {}", body.len());
        assert!(head.lines().any(|line| line == length), "{length} is not in {head}");
        let told: super::super::ErrorReport = serde_json::from_str(body).expect("JSON");
        assert_eq!(told.error.kind, super::super::Kind::TooMany);
    }
}
