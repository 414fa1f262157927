//! Changes by an operator over the control socket: overrides.

use std::fmt;

use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::peer::{Peer, admit};
use super::report::ago;
use super::serve::whole_body;
use super::{ErrorReport, Refusal, Request, Requests, ask};
use crate::overrides::{Changed, Override, Wanted};

/// What is asked of the overrides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// These as well.
    Add(Wanted),
    /// These endpoints out of the answers, counted down to when they can be stopped.
    Drain {
        /// Which; the setting is the status `disabled`.
        wanted: Wanted,
        /// Whatever it does to clients.
        force: bool,
    },
    /// Not those whose target fits one of these patterns.
    Clear(Vec<String>),
}

/// Body of `POST /v1/overrides/clear`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Clear {
    /// Patterns as in [`Wanted`].
    pub targets: Vec<String>,
}

/// What a change did, once the fast path shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ChangeReport {
    /// Serial number of the generation that shows it.
    pub generation: u64,
    /// Settings that are others now.
    pub changed: Vec<Changed>,
    /// Overrides in force now.
    pub overrides: usize,
    /// What it took.
    pub milliseconds: u64,
}

impl fmt::Display for ChangeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for changed in &self.changed {
            writeln!(f, "{}: {} -> {}", changed.target, changed.before, changed.after)?;
        }
        if self.changed.is_empty() {
            writeln!(f, "it was so already; the override holds over reloads")?;
        }
        writeln!(f, "generation {} serves it, after {} ms", self.generation, self.milliseconds)
    }
}

/// One override as it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct OverrideReport {
    /// The override.
    #[serde(flatten)]
    pub held: Override,
    /// Seconds since it was made.
    pub age_seconds: u64,
    /// Seconds until it ends by itself.
    pub left_seconds: Option<u64>,
    /// Whether it has nothing to work on: the configuration does not have its target.
    pub rests: bool,
}

impl fmt::Display for OverrideReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}, by {} {} ago",
            self.held.target,
            if self.held.drain { String::from("draining") } else { self.held.setting.to_string() },
            self.held.by,
            ago(self.age_seconds)
        )?;
        if let Some(left) = self.left_seconds {
            write!(f, ", ends in {}", ago(left))?;
        }
        if let Some(reason) = &self.held.reason {
            write!(f, " ({reason})")?;
        }
        if self.rests {
            f.write_str("; rests, the configuration has nothing by that name or it has no such setting")?;
        }
        Ok(())
    }
}

/// `GET /v1/overrides`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct OverridesReport {
    /// Oldest first.
    pub overrides: Vec<OverrideReport>,
}

impl fmt::Display for OverridesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.overrides.is_empty() {
            return writeln!(f, "no overrides: everything is as the configuration says");
        }
        self.overrides.iter().try_for_each(|report| writeln!(f, "{report}"))
    }
}

/// What those who may change something find on the socket.
pub(super) fn routes(requests: mpsc::Sender<Request>, admin_group: Option<String>) -> Router {
    Router::new()
        .route("/v1/overrides", post(add))
        .route("/v1/overrides/clear", post(clear))
        .merge(super::drain::routes())
        // `whole_body` has its own limit, and reads for those only whom `admit` lets through.
        .route_layer(DefaultBodyLimit::disable())
        .route_layer(from_fn(whole_body))
        .route_layer(from_fn_with_state(admin_group, admit))
        .with_state(requests)
}

/// What everybody finds who may connect.
pub(super) fn read_only(requests: mpsc::Sender<Request>) -> Router {
    Router::new().route("/v1/overrides", get(list)).merge(super::drain::read_only()).with_state(requests)
}

/// What operators changed by hand.
#[utoipa::path(
    get, path = "/v1/overrides", operation_id = "list_overrides", tag = "look",
    responses(
        (status = 200, description = "oldest first", body = OverridesReport),
        (status = "default", description = "failed", body = ErrorReport),
    ),
)]
async fn list(State(requests): Requests) -> Result<Json<OverridesReport>, Refusal> {
    ask(&requests, Request::Overrides).await.map(Json)
}

/// Sets something by hand. The reply comes when the fast path shows it.
#[utoipa::path(
    post, path = "/v1/overrides", operation_id = "add_overrides", tag = "change", request_body = Wanted,
    responses(
        (status = 200, description = "the fast path shows it", body = ChangeReport),
        (status = 403, description = "not for this user", body = ErrorReport),
        (status = 422, description = "it cannot be done; nothing is changed", body = ErrorReport),
        (status = "default", description = "failed", body = ErrorReport),
    ),
)]
async fn add(
    State(requests): Requests,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Json(wanted): Json<Wanted>,
) -> Result<Json<ChangeReport>, Refusal> {
    change(&requests, &peer, Change::Add(wanted)).await
}

/// Takes away what was set by hand. The reply comes when the fast path shows it.
#[utoipa::path(
    post, path = "/v1/overrides/clear", operation_id = "clear_overrides", tag = "change", request_body = Clear,
    responses(
        (status = 200, description = "the fast path shows it", body = ChangeReport),
        (status = 403, description = "not for this user", body = ErrorReport),
        (status = 422, description = "it cannot be done; nothing is changed", body = ErrorReport),
        (status = "default", description = "failed", body = ErrorReport),
    ),
)]
async fn clear(
    State(requests): Requests,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Json(Clear { targets }): Json<Clear>,
) -> Result<Json<ChangeReport>, Refusal> {
    change(&requests, &peer, Change::Clear(targets)).await
}

pub(super) async fn change(
    requests: &mpsc::Sender<Request>,
    peer: &Peer,
    change: Change,
) -> Result<Json<ChangeReport>, Refusal> {
    let changed = ask(requests, |reply| Request::Change(peer.who(), change, reply)).await?;
    changed.map(Json).map_err(|why| Refusal(StatusCode::UNPROCESSABLE_ENTITY, why))
}
