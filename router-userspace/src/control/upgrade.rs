//! `POST /v1/upgrade`: the agent hands everything to a new one.

use std::fmt;

use axum::extract::{ConnectInfo, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::peer::{Peer, admit};
use super::{ErrorReport, Refusal, Request, Requests, ask};

/// What an upgrade did, once the new agent serves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct UpgradeReport {
    /// Process of the agent that ends.
    pub old_pid: u32,
    /// Its version.
    pub old_version: String,
    /// Process of the agent that serves.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// What it took, from starting the new one until it served.
    pub milliseconds: u64,
    /// How long of that no change of health could reach answers.
    pub frozen_milliseconds: u64,
}

impl fmt::Display for UpgradeReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { old_pid, old_version, pid, version, milliseconds, frozen_milliseconds } = self;
        writeln!(
            f,
            "xroute {version}, pid {pid}, serves instead of {old_version}, pid {old_pid}; it took {milliseconds} ms, \
             {frozen_milliseconds} ms of them without changes of health"
        )
    }
}

/// For those who may change something.
pub(super) fn routes(requests: mpsc::Sender<Request>, admin_group: Option<String>) -> Router {
    Router::new()
        .route("/v1/upgrade", post(upgrade))
        .route_layer(axum::middleware::from_fn_with_state(admin_group, admit))
        .with_state(requests)
}

/// Starts the agent's program anew and hands everything over. The reply comes when the new one serves.
#[utoipa::path(
    post, path = "/v1/upgrade", tag = "change",
    responses(
        (status = 200, description = "the new agent serves", body = UpgradeReport),
        (status = 403, description = "not for this user", body = ErrorReport),
        (status = 422, description = "the new agent cannot serve; the old one goes on", body = ErrorReport),
        (status = "default", description = "failed", body = ErrorReport),
    ),
)]
async fn upgrade(
    State(requests): Requests,
    ConnectInfo(peer): ConnectInfo<Peer>,
) -> Result<Json<UpgradeReport>, Refusal> {
    let upgraded = ask(&requests, |reply| Request::Upgrade(peer.who(), reply)).await?;
    upgraded.map(Json).map_err(|why| Refusal(StatusCode::UNPROCESSABLE_ENTITY, why))
}
