//! The API described as OpenAPI 3.1, for programs: made from the types and handlers that serve it.

use std::sync::LazyLock;

use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use utoipa::OpenApi;

use super::{ErrorReport, change, drain, follow, generations, page, trace, upgrade};

/// Every route that [`super::routes`] offers. A route that is missing here fails a test.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "xroute",
        description = "What the agent knows and does, on its control socket. At `server.http` there is what \
                       is tagged `look`. Every failure has the body `ErrorReport`.",
        version = env!("CARGO_PKG_VERSION"),
        license(name = "MIT OR Apache-2.0"),
    ),
    tags(
        (name = "look", description = "For whoever may connect, also at `server.http`"),
        (name = "change", description = "For root and `server.admin_group`, on the control socket only"),
        (name = "trace", description = "What clients ask: for root and `server.admin_group`, on the control socket only"),
    ),
    paths(
        page::page,
        document,
        super::status,
        super::explain,
        super::map,
        super::metrics,
        follow::events,
        change::list,
        generations::list,
        generations::reload,
        generations::plan,
        generations::apply,
        generations::rollback,
        change::add,
        change::clear,
        drain::list,
        drain::begin,
        upgrade::upgrade,
        trace::trace,
    ),
)]
pub(super) struct Document;

/// This document.
#[utoipa::path(
    get, path = "/v1/openapi.json", tag = "look",
    responses(
        (status = 200, description = "OpenAPI 3.1", body = Object, content_type = "application/json"),
        (status = "default", description = "failed", body = ErrorReport),
    ),
)]
pub(super) async fn document() -> Response {
    static TEXT: LazyLock<String> =
        LazyLock::new(|| serde_json::to_string(&Document::openapi()).unwrap_or_default());
    ([(CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}

#[cfg(test)]
mod tests;
