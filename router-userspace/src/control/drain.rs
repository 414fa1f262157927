//! `/v1/drains`: endpoints on their way out of service.

use std::fmt;
use std::time::Duration;

use axum::extract::{ConnectInfo, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::change::change;
use super::peer::Peer;
use super::report::ago;
use super::{Change, ChangeReport, ErrorReport, Refusal, Request, Requests, ask};
use crate::overrides::{Setting, State as Admin, Wanted};

/// Body of `POST /v1/drains`: endpoints to be taken out of the answers.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// Patterns of `PROFILE/ENDPOINT`.
    pub targets: Vec<String>,
    /// Seconds until it ends by itself.
    #[serde(default)]
    pub seconds: Option<u64>,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// Also when clients would be left without an answer, or with what is down.
    #[serde(default)]
    pub force: bool,
}

/// One endpoint that is being drained. Times are in milliseconds since the Unix epoch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct DrainReport {
    /// `PROFILE/ENDPOINT`.
    pub target: String,
    /// Who began it.
    pub by: String,
    /// Why.
    pub reason: Option<String>,
    /// Seconds until it ends by itself, and the endpoint is answered with again.
    pub ends_seconds: Option<u64>,
    /// When it was out of the answers.
    pub out_at: u64,
    /// When it was answered with last, by either path.
    pub last_answer: Option<u64>,
    /// Answers so far, of both paths.
    pub answers: u64,
    /// From then on no answer with it is valid any more: the server can be stopped.
    pub safe_at: u64,
    /// Milliseconds until then, 0 when it has come.
    pub left: u64,
    /// Whether it is answered with all the same; then the time counts from the last answer.
    pub still_answered: bool,
    /// What else is to be known before the server is stopped.
    pub notes: Vec<String>,
}

impl DrainReport {
    /// Whether the server can be stopped.
    pub fn is_safe(&self) -> bool {
        self.left == 0 && !self.still_answered
    }

    /// How far it is, in a few words.
    pub fn progress(&self) -> String {
        let at = clock(self.safe_at);
        match self.left {
            0 => format!("safe to stop since {at}"),
            // What is left of a second is one, so that nobody is early.
            left => format!("safe to stop at {at} (in {})", ago(left.div_ceil(1000))),
        }
    }
}

impl fmt::Display for DrainReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.target, self.progress())?;
        match self.last_answer {
            Some(last) => write!(f, "; last answered with at {}", clock(last))?,
            None => write!(f, "; never answered with")?,
        }
        write!(f, ", draining since {} by {}", clock(self.out_at), self.by)?;
        if let Some(left) = self.ends_seconds {
            write!(f, ", ends in {}", ago(left))?;
        }
        if let Some(reason) = &self.reason {
            write!(f, " ({reason})")?;
        }
        writeln!(f)?;
        if self.still_answered {
            writeln!(
                f,
                "  it is STILL answered with, {} answers so far: the time counts from the last one",
                self.answers
            )?;
        }
        self.notes.iter().try_for_each(|note| writeln!(f, "  {note}"))
    }
}

/// `GET /v1/drains`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DrainsReport {
    /// Oldest first.
    pub drains: Vec<DrainReport>,
}

impl fmt::Display for DrainsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.drains.is_empty() {
            return writeln!(f, "nothing is being drained");
        }
        self.drains.iter().try_for_each(|drain| drain.fmt(f))
    }
}

/// Time of day of a moment in milliseconds since the epoch, in UTC, and the date when it is another than today's.
pub fn clock(milliseconds: u64) -> String {
    let at = Duration::from_millis(milliseconds);
    let written = crate::audit::written(at);
    let today = crate::audit::written(crate::clock::unix_now());
    match (written.split_once('T'), today.split_once('T')) {
        (Some((day, time)), Some((today, _))) if day == today => {
            format!("{} UTC", time.trim_end_matches('Z'))
        }
        _ => written,
    }
}

/// What those who may change something find on the socket.
pub(super) fn routes() -> Router<mpsc::Sender<Request>> {
    Router::new().route("/v1/drains", post(begin))
}

/// What everybody finds who may connect.
pub(super) fn read_only() -> Router<mpsc::Sender<Request>> {
    Router::new().route("/v1/drains", get(list))
}

/// What is being drained, and how far it is.
#[utoipa::path(
    get, path = "/v1/drains", operation_id = "list_drains", tag = "look",
    responses(
        (status = 200, description = "oldest first", body = DrainsReport),
        (status = "default", description = "failed", body = ErrorReport),
    ),
)]
pub(super) async fn list(State(requests): Requests) -> Result<Json<DrainsReport>, Refusal> {
    ask(&requests, Request::Drains).await.map(Json)
}

/// Takes endpoints out of the answers. The reply comes when the fast path shows it; `GET` says when their servers can be
/// stopped.
#[utoipa::path(
    post, path = "/v1/drains", operation_id = "drain", tag = "change", request_body = Drain,
    responses(
        (status = 200, description = "the fast path shows it", body = ChangeReport),
        (status = 403, description = "not for this user", body = ErrorReport),
        (status = 422, description = "it cannot be done, or clients would notice; nothing is changed", body = ErrorReport),
        (status = "default", description = "failed", body = ErrorReport),
    ),
)]
pub(super) async fn begin(
    State(requests): Requests,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Json(drain): Json<Drain>,
) -> Result<Json<ChangeReport>, Refusal> {
    let Drain { targets, seconds, reason, force } = drain;
    let wanted = Wanted { targets, setting: Setting::Status(Admin::Disabled), seconds, reason };
    change(&requests, &peer, Change::Drain { wanted, force }).await
}
