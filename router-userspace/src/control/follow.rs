//! `GET /v1/events`: the stream of events as lines of JSON, for as long as somebody listens.
//!
//! The first line is a [`Notice::Hello`]; an empty line now and then shows that the stream lives.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::{Bytes, Frame};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use utoipa::IntoParams;

use super::refusal::Refusal;
use super::{ErrorReport, Request, Requests, ask};
use crate::events::{Notice, READERS, Reader, Told};

/// Type of the stream.
pub const CONTENT_TYPE: &str = "application/x-ndjson";
/// How often a silent stream shows that it lives.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// How long a client may take nothing before its connection is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Portions that wait for a slow client; what comes then stays in the ring, and is missed when it is
/// overwritten there.
const PORTIONS: usize = 4;

/// Query string of `/v1/events`.
#[derive(Deserialize, Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    /// Only what comes after this sequence number; 0: all that is kept. Without it, from now on.
    since: Option<u64>,
    /// The run that `since` is of; when it is another than this one, all that is kept.
    run: Option<u64>,
}

/// Events, a line of JSON each, for as long as the client listens; the first line is a `Notice`.
#[utoipa::path(
    get, path = "/v1/events", tag = "look", params(EventsQuery),
    responses(
        (status = 200, description = "the events", content_type = "application/x-ndjson", body = Told),
        (status = "default", description = "failed", body = ErrorReport),
    ),
)]
pub(super) async fn events(
    State(requests): Requests,
    Query(EventsQuery { since, run }): Query<EventsQuery>,
) -> Result<Response, Refusal> {
    let stream = ask(&requests, Request::Events).await?;
    let since = since.map(|since| if run.is_none_or(|run| run == stream.run()) { since } else { 0 });
    let Some(reader) = stream.reader(since) else {
        let why = format!("{READERS} read the events already, and more may not");
        return Err(Refusal(StatusCode::SERVICE_UNAVAILABLE, why));
    };
    let (portions, lines) = mpsc::channel(PORTIONS);
    tokio::spawn(feed(reader, portions));
    Ok(([(header::CONTENT_TYPE, CONTENT_TYPE)], Body::new(Lines(lines))).into_response())
}

/// Hands on what is read until the client has gone.
async fn feed(mut reader: Reader, portions: mpsc::Sender<Bytes>) {
    let stream = reader.stream();
    let hello = Notice::Hello {
        run: stream.run(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        oldest: stream.oldest(),
        newest: stream.newest(),
    };
    let mut octets = Vec::new();
    add(&mut octets, &hello);
    loop {
        let portion = Bytes::from(std::mem::take(&mut octets));
        if portions.send_timeout(portion, PATIENCE).await.is_err() {
            return;
        }
        tokio::select! {
            read = reader.read() => {
                if read.missed > 0 {
                    add(&mut octets, &Notice::Missed { count: read.missed });
                }
                for told in &read.told {
                    add(&mut octets, &**told);
                }
            }
            () = tokio::time::sleep(SIGN_OF_LIFE) => octets.push(b'\n'),
            () = portions.closed() => return,
        }
    }
}

/// Adds a line.
fn add(octets: &mut Vec<u8>, value: &impl Serialize) {
    let before = octets.len();
    if serde_json::to_writer(&mut *octets, value).is_ok() {
        octets.push(b'\n');
    } else {
        // Cannot be: nothing in there has a key that is no text.
        octets.truncate(before);
    }
}

/// What is handed on, as a body.
struct Lines(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Lines {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|portion| portion.map(|portion| Ok(Frame::data(portion))))
    }
}
