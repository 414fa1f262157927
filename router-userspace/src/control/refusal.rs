//! How the API says no: status code, and one JSON object of the same form for every failure.

use axum::Json;
use axum::body::to_bytes;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most octets of a failure's text that are told.
const MAX_TEXT: usize = 1 << 20;

/// What a failure is, for programs. The words are stable; new ones may come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A parameter or the body cannot be understood.
    BadRequest,
    /// The client is none of those who may do this.
    NotPermitted,
    /// There is no such path.
    NotFound,
    /// The path is there, but not for this method.
    WrongMethod,
    /// The client did not send its request in time.
    TooSlow,
    /// The request has more octets than are taken.
    TooLarge,
    /// It was understood, and what it asks for cannot be done; nothing was changed.
    Refused,
    /// The client has too many connections; nothing was begun.
    TooMany,
    /// The agent is ending: what was asked for may have been done.
    Unavailable,
    /// A fault of the agent.
    Internal,
}

impl From<StatusCode> for Kind {
    fn from(status: StatusCode) -> Self {
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Self::NotPermitted,
            StatusCode::NOT_FOUND => Self::NotFound,
            StatusCode::METHOD_NOT_ALLOWED => Self::WrongMethod,
            StatusCode::REQUEST_TIMEOUT => Self::TooSlow,
            StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::URI_TOO_LONG
            | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => Self::TooLarge,
            StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY => Self::Refused,
            StatusCode::TOO_MANY_REQUESTS => Self::TooMany,
            StatusCode::SERVICE_UNAVAILABLE => Self::Unavailable,
            status if status.is_client_error() => Self::BadRequest,
            _ => Self::Internal,
        }
    }
}

impl Kind {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Self::BadRequest => "bad_request",
            Self::NotPermitted => "not_permitted",
            Self::NotFound => "not_found",
            Self::WrongMethod => "wrong_method",
            Self::TooSlow => "too_slow",
            Self::TooLarge => "too_large",
            Self::Refused => "refused",
            Self::TooMany => "too_many",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }
}

/// Body of every reply with a status of 400 and above.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorReport {
    /// What went wrong.
    pub error: ErrorDetail,
}

/// What went wrong.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorDetail {
    /// For programs.
    pub kind: Kind,
    /// For people; may have several lines.
    pub message: String,
}

/// A failure as the API tells it: status and text.
#[derive(Debug)]
pub(super) struct Refusal(pub(super) StatusCode, pub(super) String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(status, message) = self;
        (status, Json(ErrorReport { error: ErrorDetail { kind: status.into(), message } })).into_response()
    }
}

/// Puts failures into that form which come from elsewhere: from extractors, and from paths that nobody serves.
pub(super) async fn in_json(request: Request, next: Next) -> Response {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let status = response.status();
    let is_failure = status.is_client_error() || status.is_server_error();
    let json = HeaderValue::from_static("application/json");
    if !is_failure || response.headers().get(CONTENT_TYPE) == Some(&json) {
        return response;
    }
    let text = to_bytes(response.into_body(), MAX_TEXT).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    let message = match status {
        StatusCode::NOT_FOUND if text.is_empty() => {
            format!("there is nothing at {path} (/v1/openapi.json has all there is)")
        }
        // Which ones it is for, the header Allow says.
        StatusCode::METHOD_NOT_ALLOWED => format!("{path} is not for {method}"),
        _ if text.is_empty() => status.to_string(),
        _ => text,
    };
    // A body that is JSON and not what is wanted is as little understood as one that is no JSON.
    let status = if status == StatusCode::UNPROCESSABLE_ENTITY { StatusCode::BAD_REQUEST } else { status };
    Refusal(status, message).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_goes_over_the_wire() {
        for kind in [
            Kind::BadRequest,
            Kind::NotPermitted,
            Kind::NotFound,
            Kind::WrongMethod,
            Kind::TooSlow,
            Kind::TooLarge,
            Kind::Refused,
            Kind::TooMany,
            Kind::Unavailable,
            Kind::Internal,
        ] {
            assert_eq!(serde_json::to_value(kind).expect("JSON"), kind.word());
        }
    }

    #[test]
    fn every_status_has_a_kind_that_fits() {
        assert_eq!(Kind::from(StatusCode::UNSUPPORTED_MEDIA_TYPE), Kind::BadRequest);
        assert_eq!(Kind::from(StatusCode::UNPROCESSABLE_ENTITY), Kind::Refused);
        assert_eq!(Kind::from(StatusCode::FORBIDDEN), Kind::NotPermitted);
        assert_eq!(Kind::from(StatusCode::BAD_GATEWAY), Kind::Internal);
    }
}
