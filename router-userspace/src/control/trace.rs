//! `/v1/trace`: sampled queries as they come, one JSON object a line. What clients ask for is nobody's business
//! but theirs and the operator's, so this is for those who may change things, and not offered on `server.http`.

use std::convert::Infallible;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Frame;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, interval_at};
use utoipa::{IntoParams, ToSchema};

use super::peer::named;
use super::{ErrorReport, Peer, Refusal, Request, ask};
use crate::dns::{Shown, Transport, show_reply, type_name};
use crate::trace::{Event, Filter, Path, Subscription, Tally, Wanted};

/// How often the reader is told how much it missed; it is also how soon one that has gone is noticed.
const BEAT: Duration = Duration::from_secs(1);
/// Queries per second unless asked otherwise.
const PER_SECOND: u32 = 1000;
/// And at most.
const MOST_PER_SECOND: u32 = 100_000;
/// Events in one piece of the response, at most.
const BATCH: u64 = 128;

/// Query string of `/v1/trace`.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct TraceQuery {
    /// Pattern of names.
    pub name: Option<String>,
    /// Address or prefix.
    pub client: Option<String>,
    /// Record type.
    #[serde(rename = "type")]
    pub rtype: Option<String>,
    /// Pattern of outcomes.
    pub outcome: Option<String>,
    /// One of the paths.
    pub path: Option<Path>,
    /// Every how-manieth.
    pub sample: Option<u32>,
    /// Most per second.
    pub per_second: Option<u32>,
    /// End after so many.
    pub count: Option<u64>,
    /// End after so long.
    pub milliseconds: Option<u64>,
    /// Whether the messages themselves are wanted.
    #[serde(default)]
    pub octets: bool,
}

/// One line of the response.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TraceLine {
    /// A query.
    Query(Box<Traced>),
    /// What was handed out and missed so far; also the last line.
    Tally(Tally),
}

/// A query as it is shown.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Traced {
    /// When, in UTC (RFC 3339).
    pub time: String,
    /// Who saw it.
    pub path: Path,
    /// The interface that it came in on, of the fast path.
    pub interface: Option<String>,
    /// Where from.
    #[schema(value_type = String)]
    pub client: SocketAddr,
    /// Where to.
    #[schema(value_type = String)]
    pub server: SocketAddr,
    /// `udp` or `tcp`.
    pub transport: String,
    /// The client subnet.
    pub subnet: Option<String>,
    /// QNAME.
    pub name: Option<String>,
    /// QTYPE.
    #[serde(rename = "type")]
    pub rtype: Option<String>,
    /// What became of it.
    pub outcome: String,
    /// RCODE of the reply.
    pub rcode: Option<String>,
    /// Answer section: type and data.
    pub answers: Vec<String>,
    /// Smallest TTL of it, seconds.
    pub ttl: Option<u32>,
    /// The query, in base 64, when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_octets: Option<String>,
    /// The reply likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_octets: Option<String>,
}

impl Traced {
    fn of(event: &Event, octets: bool) -> Self {
        let shown = event.reply.as_deref().and_then(show_reply);
        let text = |octets: &[u8]| STANDARD.encode(octets);
        let at = i64::try_from(event.at.as_secs()).ok();
        let at = at.and_then(|at| jiff::Timestamp::new(at, event.at.subsec_nanos() as i32).ok());
        Self {
            time: format!("{:.9}", at.unwrap_or_default()),
            path: event.path,
            interface: event.interface.as_deref().map(str::to_owned),
            client: event.client,
            server: event.server,
            transport: String::from(match event.transport {
                Transport::Udp => "udp",
                Transport::Tcp => "tcp",
            }),
            subnet: event.asked.subnet.map(|(address, len)| format!("{address}/{len}")),
            name: event.asked.name.as_ref().map(ToString::to_string),
            rtype: event.asked.rtype.map(type_name),
            outcome: event.outcome.name().to_owned(),
            ttl: shown.as_ref().filter(|shown| !shown.answers.is_empty()).map(|shown| shown.ttl),
            rcode: shown.as_ref().map(|Shown { rcode, .. }| rcode.clone()),
            answers: shown.map(|shown| shown.answers).unwrap_or_default(),
            query_octets: octets.then(|| text(&event.query)),
            reply_octets: event.reply.as_deref().filter(|_| octets).map(text),
        }
    }
}

impl fmt::Display for Traced {
    /// One line: when, path, client, question, outcome, answer.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Microseconds are enough for people.
        let time = self.time.get(..26).unwrap_or(&self.time);
        write!(f, "{time}Z {} {}", self.path, self.client)?;
        if self.transport == "tcp" {
            f.write_str(" tcp")?;
        }
        if let Some(subnet) = &self.subnet {
            write!(f, " ecs {subnet}")?;
        }
        let or_dash = |word: &Option<String>| word.clone().unwrap_or_else(|| String::from("-"));
        write!(f, " {} {} {}", or_dash(&self.name), or_dash(&self.rtype), self.outcome)?;
        if let Some(rcode) = &self.rcode {
            write!(f, " {rcode}")?;
        }
        for (i, answer) in self.answers.iter().enumerate() {
            write!(f, "{}{answer}", if i == 0 { " " } else { ", " })?;
        }
        if let Some(ttl) = self.ttl {
            write!(f, " ttl {ttl}")?;
        }
        Ok(())
    }
}

/// What those find on the control socket who may read queries along.
pub(super) fn routes(requests: mpsc::Sender<Request>, admin_group: Option<String>) -> Router {
    Router::new().route("/v1/trace", get(trace)).with_state(Readers { requests, admin_group })
}

/// What the route works with.
#[derive(Clone)]
struct Readers {
    requests: mpsc::Sender<Request>,
    admin_group: Option<String>,
}

/// Sampled queries as they come, one `TraceLine` a line.
#[utoipa::path(
    get, path = "/v1/trace", tag = "trace", params(TraceQuery),
    responses(
        (status = 200, description = "a tally, then queries, with a tally each second and at the end", body = TraceLine, content_type = "application/x-ndjson"),
        (status = 403, description = "not for this user", body = ErrorReport),
        (status = 409, description = "three read already", body = ErrorReport),
        (status = "default", description = "failed", body = ErrorReport),
    ),
)]
async fn trace(
    State(Readers { requests, admin_group }): State<Readers>,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Query(query): Query<TraceQuery>,
) -> Result<Response, Refusal> {
    if !peer.may_change() {
        let also = match admin_group {
            Some(group) => format!("root and members of the group {group}"),
            None => String::from("root (server.admin_group names a group that may as well)"),
        };
        let who = named(&peer).await;
        return Err(Refusal(StatusCode::FORBIDDEN, format!("what clients ask is for {also}, not for {who}")));
    }
    let bad = |why| Refusal(StatusCode::BAD_REQUEST, why);
    let filter = Filter::parse(
        query.name.as_deref(),
        query.client.as_deref(),
        query.rtype.as_deref(),
        query.outcome.as_deref(),
        query.path,
    )
    .map_err(bad)?;
    let sample = query.sample.unwrap_or(1);
    let per_second = query.per_second.unwrap_or(PER_SECOND);
    if sample == 0 || !(1..=MOST_PER_SECOND).contains(&per_second) {
        let why = format!("sample is at least 1, per_second 1 to {MOST_PER_SECOND}");
        return Err(bad(why));
    }
    let hub = ask(&requests, Request::Readers).await?;
    let subscription = hub.subscribe(&Wanted { filter, sample, per_second }).map_err(|_| {
        Refusal(StatusCode::CONFLICT, String::from("three traces run already; end one of them"))
    })?;
    let now = Instant::now();
    let lines = Lines {
        subscription,
        left: query.count.unwrap_or(u64::MAX),
        end: query.milliseconds.map(|time| Box::pin(tokio::time::sleep(Duration::from_millis(time)))),
        beat: interval_at(now + BEAT, BEAT),
        octets: query.octets,
        begun: false,
        over: false,
    };
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::new(lines)).into_response())
}

/// The response.
struct Lines {
    subscription: Subscription,
    /// Queries until the end.
    left: u64,
    end: Option<Pin<Box<tokio::time::Sleep>>>,
    beat: Interval,
    octets: bool,
    begun: bool,
    over: bool,
}

impl Lines {
    fn tally(&self) -> Bytes {
        line(&TraceLine::Tally(self.subscription.tally())).into()
    }

    fn last(&mut self, mut lines: Vec<u8>) -> Bytes {
        self.over = true;
        lines.extend_from_slice(&self.tally());
        lines.into()
    }
}

fn line(line: &TraceLine) -> Vec<u8> {
    // Strings and numbers are always JSON.
    let mut octets = serde_json::to_vec(line).unwrap_or_default();
    octets.push(b'\n');
    octets
}

impl hyper::body::Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = |octets: Bytes| Poll::Ready(Some(Ok(Frame::data(octets))));
        if self.over {
            return Poll::Ready(None);
        }
        if !self.begun {
            // So that the reader knows that its rule is in force.
            self.begun = true;
            return piece(self.tally());
        }
        let mut lines = Vec::new();
        for _ in 0..BATCH.min(self.left) {
            let Poll::Ready(Some(event)) = self.subscription.events.poll_recv(context) else { break };
            lines.extend_from_slice(&line(&TraceLine::Query(Box::new(Traced::of(&event, self.octets)))));
            self.left = self.left.saturating_sub(1);
        }
        let timeout = self.end.as_mut().is_some_and(|end| end.as_mut().poll(context).is_ready());
        if self.left == 0 || timeout {
            let last = self.last(lines);
            return piece(last);
        }
        if !lines.is_empty() {
            return piece(lines.into());
        }
        ready!(self.beat.poll_tick(context));
        piece(self.tally())
    }
}
