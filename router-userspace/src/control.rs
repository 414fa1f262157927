//! The API on the control socket: versioned HTTP and JSON, `/v1/…`.

use std::net::IpAddr;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use anyhow::Context;
use axum::Json;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use nix::unistd::Group;
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};
use utoipa::IntoParams;

use crate::agent::Basis;
use crate::audit::Who;
use crate::dns;
use crate::events;
use crate::explain::{Explanation, Question};
use crate::map::{MappedAddress, map_address};
use crate::metrics::{Format, Scrape};
use crate::reload::{Standing, Wanted};
use crate::settings;
use crate::trace::Hub;

mod change;
mod door;
mod drain;
mod follow;
mod generations;
mod openapi;
mod page;
mod peer;
mod refusal;
mod report;
mod serve;
mod stall;
mod trace;
mod upgrade;

pub use change::{Change, ChangeReport, Clear, OverrideReport, OverridesReport};
pub use door::{Door, ListenerReport};
pub use drain::{Drain, DrainReport, DrainsReport, clock};
pub use generations::{Apply, GenerationReport, GenerationsReport, LoadReport, PlanWanted, Rollback};
pub use peer::{Groups, Peer};
pub use refusal::{ErrorDetail, ErrorReport, Kind};
pub use report::{
    DnstapReport, EndpointReport, FastPathReport, FeedReport, FillReport, InterfaceReport, LeaseReport,
    MapReport, ProbesReport, ProfileReport, ReloadCounts, ReloadReport, StatusReport, TraceReport,
};
pub(crate) use report::{ago, counts_beside};
pub use serve::{serve_tcp, serve_unix};
pub use trace::{TraceLine, TraceQuery, Traced};
pub use upgrade::UpgradeReport;

use refusal::Refusal;

/// What the API asks of the agent's loop; each carries the way back.
pub enum Request {
    /// The whole status.
    Status(oneshot::Sender<StatusReport>),
    /// What metrics are rendered from.
    Metrics(oneshot::Sender<Scrape>),
    /// The stream of events.
    Events(oneshot::Sender<Arc<events::Stream>>),
    /// An explanation.
    Explain(Question, oneshot::Sender<Explanation>),
    /// Those who read queries along.
    Readers(oneshot::Sender<Arc<Hub>>),
    /// What the userspace server answers from.
    Service(oneshot::Sender<Arc<dns::Service>>),
    /// Put a configuration in place of what runs; answered when it serves, or with every mistake.
    Load(Who, Wanted, oneshot::Sender<Result<LoadReport, String>>),
    /// Where the agent stands, to make a plan beside its loop.
    Standing(oneshot::Sender<(Standing, Basis)>),
    /// The overrides.
    Overrides(oneshot::Sender<OverridesReport>),
    /// What is being drained.
    Drains(oneshot::Sender<DrainsReport>),
    /// Hand everything to a new agent, of the program as it is on disk now; answered when that serves, or with why not.
    Upgrade(Who, oneshot::Sender<Result<UpgradeReport, String>>),
    /// Others of them; answered when the fast path shows it, or with why not.
    Change(Who, Change, oneshot::Sender<Result<ChangeReport, String>>),
}

/// Query string of `/v1/explain`.
#[derive(Deserialize, Debug, IntoParams)]
#[into_params(parameter_in = Query)]
struct ExplainQuery {
    /// The name asked for.
    name: String,
    /// The type asked for: A, AAAA, CNAME, MX, TYPE65, …
    #[serde(rename = "type", default = "default_type")]
    rtype: String,
    /// Source address of the query.
    #[param(value_type = String)]
    client: IpAddr,
    /// EDNS Client Subnet of the query, as 203.0.113.0/24.
    ecs: Option<String>,
}

/// Query string of `/v1/map`.
#[derive(Deserialize, Debug, IntoParams)]
#[into_params(parameter_in = Query)]
struct MapQuery {
    /// Address of a client.
    #[param(value_type = String)]
    address: IpAddr,
}

fn default_type() -> String {
    String::from("A")
}

type Requests = State<mpsc::Sender<Request>>;

/// What the control socket offers, over a way to the agent's loop: to look for those who may connect, changes for
/// root and the admin group. To be served by [`serve_unix`] with the same groups.
pub fn routes(requests: mpsc::Sender<Request>, groups: Groups) -> Router {
    looks(requests.clone())
        .merge(generations::routes(requests.clone(), groups.admin.clone()))
        .merge(upgrade::routes(requests.clone(), groups.admin.clone()))
        .merge(change::routes(requests.clone(), groups.admin.clone()))
        .merge(trace::routes(requests, groups.admin.clone()))
        .layer(from_fn_with_state(groups, peer::admit_looking))
        .layer(from_fn(refusal::in_json))
}

/// What `server.http` offers: whoever reaches that address may look, and change nothing.
pub fn read_only(requests: mpsc::Sender<Request>) -> Router {
    looks(requests).layer(from_fn(refusal::in_json))
}

fn looks(requests: mpsc::Sender<Request>) -> Router {
    Router::new()
        .route("/", get(page::page))
        .route("/v1/openapi.json", get(openapi::document))
        .route("/v1/status", get(status))
        .route("/v1/explain", get(explain))
        .route("/v1/map", get(map))
        .route("/v1/events", get(follow::events))
        .route("/metrics", get(metrics))
        .with_state(requests.clone())
        .merge(generations::read_only(requests.clone()))
        .merge(change::read_only(requests))
}

async fn ask<T>(
    requests: &mpsc::Sender<Request>,
    request: impl FnOnce(oneshot::Sender<T>) -> Request,
) -> Result<T, Refusal> {
    let gone = || Refusal(StatusCode::SERVICE_UNAVAILABLE, String::from("the agent is shutting down"));
    let (reply, answer) = oneshot::channel();
    requests.send(request(reply)).await.map_err(|_| gone())?;
    answer.await.map_err(|_| gone())
}

/// Everything that the agent knows of itself.
#[utoipa::path(
    get, path = "/v1/status", tag = "look",
    responses(
        (status = 200, description = "the status", body = StatusReport),
        (status = "default", description = "failed", body = ErrorReport),
    ),
)]
async fn status(State(requests): Requests) -> Result<Json<StatusReport>, Refusal> {
    ask(&requests, Request::Status).await.map(Json)
}

/// Figures for Prometheus: OpenMetrics for those who accept it, else text.
#[utoipa::path(
    get, path = "/metrics", tag = "look",
    responses(
        (status = 200, description = "the figures", content(
            (String = "text/plain; version=0.0.4; charset=utf-8"),
            (String = "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        )),
        (status = "default", description = "failed", body = ErrorReport),
    ),
)]
async fn metrics(State(requests): Requests, headers: HeaderMap) -> Result<Response, Refusal> {
    let scrape = ask(&requests, Request::Metrics).await?;
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::accepted(accepted.unwrap_or_default());
    Ok(([(header::CONTENT_TYPE, format.content_type())], scrape.render(format)).into_response())
}

/// What a query is answered with, and why.
#[utoipa::path(
    get, path = "/v1/explain", tag = "look", params(ExplainQuery),
    responses(
        (status = 200, description = "the explanation", body = Explanation),
        (status = "default", description = "failed", body = ErrorReport),
    ),
)]
async fn explain(
    State(requests): Requests,
    Query(query): Query<ExplainQuery>,
) -> Result<Json<Explanation>, Refusal> {
    let question = Question::parse(&query.name, &query.rtype, query.client, query.ecs.as_deref())
        .map_err(|error| Refusal(StatusCode::BAD_REQUEST, format!("{error:#}")))?;
    ask(&requests, |reply| Request::Explain(question, reply)).await.map(Json)
}

/// What is known of a client's address, and what profiles make of it.
#[utoipa::path(
    get, path = "/v1/map", tag = "look", params(MapQuery),
    responses(
        (status = 200, description = "what is known", body = MappedAddress),
        (status = "default", description = "failed", body = ErrorReport),
    ),
)]
async fn map(
    State(requests): Requests,
    Query(query): Query<MapQuery>,
) -> Result<Json<MappedAddress>, Refusal> {
    let service = ask(&requests, Request::Service).await?;
    // Beside the agent's loop: it takes a decision for each profile.
    let mapped = tokio::task::spawn_blocking(move || map_address(&service.snapshot, query.address)).await;
    let failed = |_| Refusal(StatusCode::INTERNAL_SERVER_ERROR, String::from("the look-up failed"));
    mapped.map(Json).map_err(failed)
}

/// Opens the control socket; a socket file whose agent is gone is replaced, a live one is refused.
/// Its mode is 0660, its group `control_group`, else `admin_group`.
pub fn bind(settings: &settings::Server) -> anyhow::Result<UnixListener> {
    use std::os::unix::fs::PermissionsExt;

    let path = settings.control.as_path();
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    if path.exists() {
        if std::os::unix::net::UnixStream::connect(path).is_ok() {
            anyhow::bail!(
                "another agent is listening on {} (end it first, have it replaced by `xroute upgrade`, or set server.control)",
                path.display()
            );
        }
        std::fs::remove_file(path).with_context(|| format!("cannot remove the old {}", path.display()))?;
    }
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))?;
    listener.set_nonblocking(true).context("cannot set up the control socket")?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))
        .with_context(|| format!("cannot set the permissions of {}", path.display()))?;
    if let Some(name) = settings.control_group.as_ref().or(settings.admin_group.as_ref()) {
        let group = Group::from_name(name)
            .with_context(|| format!("cannot look for the group {name}"))?
            .with_context(|| {
                format!("there is no group {name} (server.control_group, server.admin_group)")
            })?;
        std::os::unix::fs::chown(path, None, Some(group.gid.as_raw()))
            .with_context(|| {
                format!(
                    "cannot give {} to the group {name} (CAP_CHOWN, or membership in it: SupplementaryGroups={name} \
                     in a systemd unit)",
                    path.display()
                )
            })?;
    }
    Ok(listener)
}
