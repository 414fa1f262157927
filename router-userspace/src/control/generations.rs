//! Plans, other configurations and kept generations over the control socket.
//!
//! Who may change something may have the agent's own file loaded, and return to what ran before. Another file is for
//! root and the user that the agent runs as: the agent reads it with its own rights, and what it says can be a
//! program to run.

use std::fmt;
use std::path::PathBuf;

use axum::body::Bytes;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use tokio::sync::{Semaphore, mpsc};
use utoipa::ToSchema;

use super::peer::{Peer, admit};
use super::report::ago;
use super::serve::whole_body;
use super::{ErrorReport, Refusal, ReloadReport, Request, Requests, ask};
use crate::audit;
use crate::clock::unix_now;
use crate::plan::PlanReport;
use crate::reload::{self, Source, Standing, Wanted};

type Sender = mpsc::Sender<Request>;

/// Body of `POST /v1/plan`: the agent's own file, another one, or a kept generation.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PlanWanted {
    /// Another file than the agent's own.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub file: Option<PathBuf>,
    /// A kept generation.
    #[serde(default)]
    pub generation: Option<u64>,
}

/// Body of `POST /v1/apply`, and, without a file, of `POST /v1/reload`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Apply {
    /// Another file than the agent's own.
    #[serde(default)]
    #[schema(value_type = Option<String>)]
    pub file: Option<PathBuf>,
    /// Also when the limits forbid it.
    #[serde(default)]
    pub force: bool,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
}

/// Body of `POST /v1/rollback`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    /// To which; none: to the one before that which runs.
    #[serde(default)]
    pub generation: Option<u64>,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
}

/// What a configuration in place of another did.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LoadReport {
    /// What it changed.
    pub plan: PlanReport,
    /// What serves now.
    pub reload: ReloadReport,
}

impl fmt::Display for LoadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.plan, self.reload)
    }
}

/// A kept generation.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct GenerationReport {
    /// Its number.
    pub number: u64,
    /// Whether it runs.
    pub runs: bool,
    /// When it came into service (RFC 3339).
    pub at: String,
    /// Seconds since then.
    pub age_seconds: u64,
    /// Who wanted it.
    pub who: String,
    /// `start`, `reload`, `apply` or `rollback`.
    pub what: String,
    /// Why.
    pub reason: Option<String>,
    /// Its configuration file.
    pub config: String,
    /// What it changed when it came, in short.
    pub summary: Option<String>,
    /// Zones in it.
    pub zones: usize,
    /// Profiles in it.
    pub profiles: usize,
    /// Owner names in it.
    pub names: usize,
    /// Endpoints in it.
    pub endpoints: usize,
    /// Why it cannot be returned to.
    pub damaged: Option<String>,
}

impl fmt::Display for GenerationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mark = if self.runs { '*' } else { ' ' };
        if let Some(why) = &self.damaged {
            return write!(f, "{mark} {:>6}  damaged: {why}", self.number);
        }
        write!(
            f,
            "{mark} {:>6}  {}  {} ago  {} by {}: {} profiles, {} names, {} endpoints",
            self.number,
            self.at,
            ago(self.age_seconds),
            self.what,
            self.who,
            self.profiles,
            self.names,
            self.endpoints
        )?;
        if let Some(summary) = &self.summary {
            write!(f, "; {summary}")?;
        }
        match &self.reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

/// `GET /v1/generations`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct GenerationsReport {
    /// Newest first.
    pub generations: Vec<GenerationReport>,
}

impl fmt::Display for GenerationsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.generations.is_empty() {
            return writeln!(f, "no generation is kept");
        }
        self.generations.iter().try_for_each(|report| writeln!(f, "{report}"))
    }
}

/// What those who may change something find on the socket.
pub(super) fn routes(requests: mpsc::Sender<Request>, admin_group: Option<String>) -> Router {
    Router::new()
        .route("/v1/reload", post(reload))
        .route("/v1/plan", post(plan))
        .route("/v1/apply", post(apply))
        .route("/v1/rollback", post(rollback))
        // `whole_body` has its own limit, and reads for those only whom `admit` lets through.
        .route_layer(DefaultBodyLimit::disable())
        .route_layer(from_fn(whole_body))
        .route_layer(from_fn_with_state(admin_group, admit))
        .with_state(requests)
}

/// What everybody finds who may connect.
pub(super) fn read_only(requests: mpsc::Sender<Request>) -> Router {
    Router::new().route("/v1/generations", get(list)).with_state(requests)
}

async fn standing(requests: &Sender) -> Result<(Standing, crate::agent::Basis), Refusal> {
    ask(requests, Request::Standing).await
}

/// Beside the agent's loop: files are read.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    let failed =
        |_| Refusal(StatusCode::INTERNAL_SERVER_ERROR, String::from("that failed, please report it"));
    tokio::task::spawn_blocking(work).await.map_err(failed)
}

/// Configurations that served last, and are kept.
#[utoipa::path(
    get, path = "/v1/generations", operation_id = "list_generations", tag = "look",
    responses(
        (status = 200, description = "newest first", body = GenerationsReport),
        (status = "default", description = "failed", body = ErrorReport),
    ),
)]
async fn list(State(requests): Requests) -> Result<Json<GenerationsReport>, Refusal> {
    let (standing, _) = standing(&requests).await?;
    aside(move || Json(GenerationsReport { generations: reports(&standing) })).await
}

fn reports(standing: &Standing) -> Vec<GenerationReport> {
    let now = unix_now();
    let report = |entry: crate::generations::Entry| {
        let runs = standing.runs == Some(entry.number);
        match entry.record {
            Err(why) => {
                GenerationReport { number: entry.number, runs, damaged: Some(why), ..Default::default() }
            }
            Ok(record) => GenerationReport {
                number: entry.number,
                runs,
                at: audit::written(record.since()),
                age_seconds: now.saturating_sub(record.since()).as_secs(),
                who: record.who.user,
                what: record.what,
                reason: record.reason,
                config: record.config.display().to_string(),
                summary: record.summary,
                zones: record.zones,
                profiles: record.profiles,
                names: record.names,
                endpoints: record.endpoints,
                damaged: None,
            },
        }
    };
    standing.store.list().into_iter().map(report).collect()
}

/// The agent's own file when that is what `file` is; another one for those who may name one.
async fn source(file: Option<PathBuf>, peer: &Peer, requests: &Sender) -> Result<Source, Refusal> {
    let Some(file) = file else { return Ok(Source::Own) };
    let (standing, _) = standing(requests).await?;
    let path = file.clone();
    let own = aside(move || {
        let whole = |path: &PathBuf| std::fs::canonicalize(path).ok();
        path == standing.own || whole(&path).is_some_and(|path| Some(path) == whole(&standing.own))
    })
    .await?;
    if own {
        return Ok(Source::Own);
    }
    if !peer.is_agent_or_root() {
        let why = "another file than the agent's own is for root: the agent reads it with its own rights";
        return Err(Refusal(StatusCode::FORBIDDEN, String::from(why)));
    }
    if !file.is_absolute() {
        let why = format!("{}: a path from the root is wanted", file.display());
        return Err(Refusal(StatusCode::UNPROCESSABLE_ENTITY, why));
    }
    Ok(Source::File(file))
}

/// What another configuration would change, and for which clients. Changes nothing.
#[utoipa::path(
    post, path = "/v1/plan", tag = "change", request_body = PlanWanted,
    responses(
        (status = 200, description = "what would change", body = PlanReport),
        (status = 403, description = "not for this user", body = ErrorReport),
        (status = 422, description = "it has mistakes, or is none", body = ErrorReport),
        (status = "default", description = "failed", body = ErrorReport),
    ),
)]
async fn plan(
    State(requests): Requests,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Json(PlanWanted { file, generation }): Json<PlanWanted>,
) -> Result<Json<PlanReport>, Refusal> {
    /// Each takes a processor and the memory of a whole generation.
    static ONE: Semaphore = Semaphore::const_new(1);
    let source = match generation {
        Some(_) if file.is_some() => {
            let why = String::from("a file or a generation is wanted, not both");
            return Err(Refusal(StatusCode::UNPROCESSABLE_ENTITY, why));
        }
        Some(_) => Source::Generation(generation),
        None => source(file, &peer, &requests).await?,
    };
    let _one = ONE.acquire().await;
    let (standing, basis) = standing(&requests).await?;
    let plan = aside(move || reload::plan(&source, &standing, &basis)).await?;
    plan.map(Json).map_err(|why| Refusal(StatusCode::UNPROCESSABLE_ENTITY, why))
}

async fn load(
    requests: &Sender,
    peer: &Peer,
    source: Source,
    force: bool,
    reason: Option<String>,
) -> Result<LoadReport, Refusal> {
    let wanted = Wanted { source, force, reason };
    let loaded = ask(requests, |reply| Request::Load(peer.who(), wanted, reply)).await?;
    loaded.map_err(|why| Refusal(StatusCode::UNPROCESSABLE_ENTITY, why))
}

/// Loads the agent's own configuration anew; the body may be left out. The reply comes when the fast path answers from it.
#[utoipa::path(
    post, path = "/v1/reload", tag = "change", request_body = Option<Apply>,
    responses(
        (status = 200, description = "the fast path answers from it", body = ReloadReport),
        (status = 403, description = "not for this user", body = ErrorReport),
        (status = 422, description = "it has mistakes, or limits forbid it; what runs goes on", body = ErrorReport),
        (status = "default", description = "failed", body = ErrorReport),
    ),
)]
async fn reload(
    State(requests): Requests,
    ConnectInfo(peer): ConnectInfo<Peer>,
    body: Bytes,
) -> Result<Json<ReloadReport>, Refusal> {
    let bad = |why: String| Refusal(StatusCode::UNPROCESSABLE_ENTITY, why);
    let wanted: Option<Apply> = match body.is_empty() {
        true => None,
        false => {
            let bad = |why| Refusal(StatusCode::BAD_REQUEST, format!("the request: {why}"));
            serde_json::from_slice(&body).map_err(bad)?
        }
    };
    let Apply { file, force, reason } = wanted.unwrap_or_default();
    if file.is_some() {
        return Err(bad(String::from("a reload is of the agent's own file; POST /v1/apply takes another")));
    }
    Ok(Json(load(&requests, &peer, Source::Own, force, reason).await?.reload))
}

/// Puts a configuration into service. The reply comes when the fast path answers from it.
#[utoipa::path(
    post, path = "/v1/apply", tag = "change", request_body = Apply,
    responses(
        (status = 200, description = "the fast path answers from it", body = LoadReport),
        (status = 403, description = "not for this user", body = ErrorReport),
        (status = 422, description = "it has mistakes, or limits forbid it; what runs goes on", body = ErrorReport),
        (status = "default", description = "failed", body = ErrorReport),
    ),
)]
async fn apply(
    State(requests): Requests,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Json(Apply { file, force, reason }): Json<Apply>,
) -> Result<Json<LoadReport>, Refusal> {
    let source = source(file, &peer, &requests).await?;
    load(&requests, &peer, source, force, reason).await.map(Json)
}

/// Returns to a kept configuration. The reply comes when the fast path answers from it.
#[utoipa::path(
    post, path = "/v1/rollback", tag = "change", request_body = Rollback,
    responses(
        (status = 200, description = "the fast path answers from it", body = LoadReport),
        (status = 403, description = "not for this user", body = ErrorReport),
        (status = 422, description = "it is not kept, or damaged; what runs goes on", body = ErrorReport),
        (status = "default", description = "failed", body = ErrorReport),
    ),
)]
async fn rollback(
    State(requests): Requests,
    ConnectInfo(peer): ConnectInfo<Peer>,
    Json(Rollback { generation, reason }): Json<Rollback>,
) -> Result<Json<LoadReport>, Refusal> {
    load(&requests, &peer, Source::Generation(generation), false, reason).await.map(Json)
}
