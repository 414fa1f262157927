//! The API on the control socket: versioned HTTP and JSON, `/v1/…`.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::Context;
use axum::Json;
use axum::Router;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use nix::unistd::Group;
use serde::Deserialize;
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot};

use crate::audit::Who;
use crate::dns;
use crate::events;
use crate::explain::{Explanation, Question};
use crate::map::{MappedAddress, map_address};
use crate::metrics::{Format, Scrape};
use crate::settings;

mod change;
mod follow;
mod peer;
mod report;

pub use change::{Change, ChangeReport, Clear, OverrideReport, OverridesReport};
pub use peer::Peer;
pub use report::{
    EndpointReport, FastPathReport, FeedReport, FillReport, InterfaceReport, LeaseReport, MapReport,
    ProbesReport, ProfileReport, ReloadCounts, ReloadReport, StatusReport,
};
pub(crate) use report::{ago, counts_beside};

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
    /// What the userspace server answers from.
    Service(oneshot::Sender<Arc<dns::Service>>),
    /// Load the configuration anew; answered when it serves, or with every mistake.
    Reload(Who, oneshot::Sender<Result<ReloadReport, String>>),
    /// The overrides.
    Overrides(oneshot::Sender<OverridesReport>),
    /// Others of them; answered when the fast path shows it, or with why not.
    Change(Who, Change, oneshot::Sender<Result<ChangeReport, String>>),
}

/// Query string of `/v1/explain`.
#[derive(Deserialize, Debug)]
struct ExplainQuery {
    name: String,
    #[serde(rename = "type", default = "default_type")]
    rtype: String,
    client: IpAddr,
    ecs: Option<String>,
}

/// Query string of `/v1/map`.
#[derive(Deserialize, Debug)]
struct MapQuery {
    address: IpAddr,
}

fn default_type() -> String {
    String::from("A")
}

/// A failure as the API tells it: status and one line of text.
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, self.1 + "\n").into_response()
    }
}

type Requests = State<mpsc::Sender<Request>>;

/// What the control socket offers, over a way to the agent's loop. Changes are for root and `admin_group`. To be
/// served with [`Peer`] as connect info.
pub fn routes(requests: mpsc::Sender<Request>, admin_group: Option<String>) -> Router {
    read_only(requests.clone()).merge(change::routes(requests, admin_group))
}

/// What `server.http` offers: whoever reaches that address may look, and change nothing.
pub fn read_only(requests: mpsc::Sender<Request>) -> Router {
    Router::new()
        .route("/v1/status", get(status))
        .route("/v1/explain", get(explain))
        .route("/v1/map", get(map))
        .route("/v1/events", get(follow::events))
        .route("/metrics", get(metrics))
        .with_state(requests.clone())
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

async fn status(State(requests): Requests) -> Result<Json<StatusReport>, Refusal> {
    ask(&requests, Request::Status).await.map(Json)
}

async fn metrics(State(requests): Requests, headers: HeaderMap) -> Result<Response, Refusal> {
    let scrape = ask(&requests, Request::Metrics).await?;
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let format = Format::accepted(accepted.unwrap_or_default());
    Ok(([(header::CONTENT_TYPE, format.content_type())], scrape.render(format)).into_response())
}

async fn explain(
    State(requests): Requests,
    Query(query): Query<ExplainQuery>,
) -> Result<Json<Explanation>, Refusal> {
    let question = Question::parse(&query.name, &query.rtype, query.client, query.ecs.as_deref())
        .map_err(|error| Refusal(StatusCode::BAD_REQUEST, format!("{error:#}")))?;
    ask(&requests, |reply| Request::Explain(question, reply)).await.map(Json)
}

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
                "another agent is listening on {} (end it first, or set server.control)",
                path.display()
            );
        }
        std::fs::remove_file(path).with_context(|| format!("cannot remove the old {}", path.display()))?;
    }
    let listener =
        UnixListener::bind(path).with_context(|| format!("cannot listen on {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))
        .with_context(|| format!("cannot set the permissions of {}", path.display()))?;
    if let Some(name) = settings.control_group.as_ref().or(settings.admin_group.as_ref()) {
        let group = Group::from_name(name)
            .with_context(|| format!("cannot look for the group {name}"))?
            .with_context(|| {
                format!("there is no group {name} (server.control_group, server.admin_group)")
            })?;
        std::os::unix::fs::chown(path, None, Some(group.gid.as_raw()))
            .with_context(|| format!("cannot give {} to the group {name}", path.display()))?;
    }
    Ok(listener)
}
