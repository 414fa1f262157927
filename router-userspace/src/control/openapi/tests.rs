use std::collections::BTreeSet;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::header::{ALLOW, CONTENT_TYPE};
use axum::http::{Method, Request, StatusCode};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use super::super::{ErrorReport, Groups, Kind, Peer, read_only, routes};
use super::Document;

fn described() -> Value {
    serde_json::to_value(<Document as utoipa::OpenApi>::openapi()).expect("JSON")
}

/// The paths that a router knows; only its debug output tells them.
fn paths(router: &Router) -> BTreeSet<String> {
    let text = format!("{router:?}");
    let paths = text.split("RouteId(").filter_map(|part| part.split_once("): \"")?.1.split('"').next());
    paths.filter(|path| !path.contains("__private__axum")).map(str::to_owned).collect()
}

/// Sends a request as this user. The agent behind is gone, so what reaches it is unavailable.
async fn call(router: &Router, method: &str, path: &str, body: &str) -> axum::response::Response {
    let (ours, _theirs) = UnixStream::pair().expect("a pair");
    let mut request = Request::builder()
        .method(Method::from_bytes(method.as_bytes()).expect("a method"))
        .uri(path)
        .header(CONTENT_TYPE, "application/json")
        .body(Body::from(body.to_owned()))
        .expect("a request");
    request.extensions_mut().insert(ConnectInfo(Peer::of(&ours, &Groups::default())));
    TowerToHyperService::new(router.clone()).call(request).await.expect("no error is possible")
}

fn routers() -> [Router; 2] {
    let requests = || mpsc::channel(1).0;
    [routes(requests(), Groups::default()), read_only(requests())]
}

/// `METHOD PATH` of everything that a router answers.
async fn served(router: &Router) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for path in paths(router) {
        let response = call(router, "NONE", &path, "").await;
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED, "{path}");
        let allowed = response.headers()[ALLOW].to_str().expect("text").to_owned();
        // HEAD comes with GET.
        all.extend(allowed.split(',').filter(|word| *word != "HEAD").map(|word| format!("{word} {path}")));
    }
    all
}

/// The same of the document, with the tags.
fn documented(document: &Value) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let tag = operation["tags"][0].as_str().expect("a tag").to_owned();
            all.push((format!("{} {path}", method.to_uppercase()), tag));
        }
    }
    all
}

#[tokio::test]
async fn the_document_has_every_route_and_no_other() {
    let document = described();
    let [control, http] = routers();
    let all: BTreeSet<String> = documented(&document).into_iter().map(|(route, _)| route).collect();
    assert!(all.len() >= 10, "{all:?}");
    assert_eq!(served(&control).await, all, "left: served on the control socket, right: documented");
    let look: BTreeSet<String> =
        documented(&document).into_iter().filter(|(_, tag)| tag == "look").map(|(route, _)| route).collect();
    assert_eq!(served(&http).await, look, "left: served at http, right: documented for it");
}

#[tokio::test]
async fn every_documented_operation_is_there() {
    let [control, _] = routers();
    for (route, _) in documented(&described()) {
        let (method, path) = route.split_once(' ').expect("a method and a path");
        let response = call(&control, method, path, "{}").await;
        let status = response.status();
        assert!(
            ![StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED].contains(&status),
            "{route}: {status}"
        );
    }
}

#[tokio::test]
async fn failures_have_one_form() {
    let [control, http] = routers();
    let cases = [
        ("GET", "/nothing", "", StatusCode::NOT_FOUND, Kind::NotFound, "/nothing"),
        ("DELETE", "/v1/status", "", StatusCode::METHOD_NOT_ALLOWED, Kind::WrongMethod, "not for DELETE"),
        ("GET", "/v1/status", "", StatusCode::SERVICE_UNAVAILABLE, Kind::Unavailable, "shutting down"),
        ("GET", "/v1/explain?name=a", "", StatusCode::BAD_REQUEST, Kind::BadRequest, "client"),
        (
            "GET",
            "/v1/explain?name=a..b&client=::1",
            "",
            StatusCode::BAD_REQUEST,
            Kind::BadRequest,
            "empty label",
        ),
        ("GET", "/v1/map?address=home", "", StatusCode::BAD_REQUEST, Kind::BadRequest, "address"),
        ("POST", "/v1/overrides", "{", StatusCode::BAD_REQUEST, Kind::BadRequest, "EOF"),
        ("POST", "/v1/overrides/clear", "{\"all\": 1}", StatusCode::BAD_REQUEST, Kind::BadRequest, "all"),
    ];
    for (method, path, body, status, kind, words) in cases {
        let response = call(&control, method, path, body).await;
        assert_eq!(response.status(), status, "{method} {path}");
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json", "{method} {path}");
        let octets = to_bytes(response.into_body(), 65_536).await.expect("a body");
        let told: ErrorReport = serde_json::from_slice(&octets).expect("an error report");
        assert_eq!(told.error.kind, kind, "{method} {path}");
        assert!(told.error.message.contains(words), "{method} {path}: {}", told.error.message);
    }
    let response = call(&http, "POST", "/v1/reload", "null").await;
    assert_eq!(response.status(), StatusCode::NOT_FOUND, "nothing can be changed at http");
}

/// Calls `check` on every object of a document.
fn each<'v>(value: &'v Value, check: &mut dyn FnMut(&'v serde_json::Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            check(object);
            object.values().for_each(|value| each(value, check));
        }
        Value::Array(list) => list.iter().for_each(|value| each(value, check)),
        _ => {}
    }
}

/// What the specification requires of a document (OpenAPI 3.1 §4.8), as far as this one uses it.
#[test]
fn the_document_is_open_api() {
    let document = described();
    assert!(document["openapi"].as_str().is_some_and(|version| version.starts_with("3.1.")));
    for field in ["title", "version"] {
        assert!(document["info"][field].is_string(), "info.{field}");
    }
    let mut ids = BTreeSet::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        assert!(path.starts_with('/'), "{path}");
        for (method, operation) in item.as_object().expect("operations") {
            let id = operation["operationId"].as_str().expect("an id");
            assert!(ids.insert(id), "{id} twice");
            let told = |field: &str| operation[field].as_str().is_some_and(|text| !text.trim().is_empty());
            assert!(told("summary") || told("description"), "{method} {path} is not explained");
            let responses = operation["responses"].as_object().expect("responses");
            assert!(responses.contains_key("default"), "{method} {path}: failures");
            for (status, response) in responses {
                let code = status.parse::<u16>().is_ok_and(|code| (100..600).contains(&code));
                assert!(code || status == "default", "{status}");
                assert!(response["description"].is_string(), "{method} {path} {status}");
                for media in response["content"].as_object().expect("content").values() {
                    assert!(media["schema"].is_object(), "{method} {path} {status}");
                }
            }
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                assert!(parameter["name"].is_string() && parameter["in"] == "query", "{parameter}");
                assert!(parameter["schema"].is_object(), "{parameter}");
            }
        }
    }
    let mut references = 0;
    each(&document, &mut |object| {
        let Some(Value::String(reference)) = object.get("$ref") else { return };
        let pointer = reference.strip_prefix('#').expect("within the document");
        assert!(document.pointer(pointer).is_some(), "{reference} is nowhere");
        references += 1;
    });
    assert!(references > 20, "{references}");
    for schema in document["components"]["schemas"].as_object().expect("schemas").values() {
        let kinds = ["type", "oneOf", "allOf", "$ref"];
        assert!(kinds.iter().any(|kind| schema.get(kind).is_some()), "{schema}");
    }
}

#[tokio::test]
async fn it_is_served_where_it_says() {
    for router in routers() {
        let response = call(&router, "GET", "/v1/openapi.json", "").await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/json");
        let octets = to_bytes(response.into_body(), 1 << 20).await.expect("a body");
        assert_eq!(serde_json::from_slice::<Value>(&octets).expect("JSON"), described());
    }
}
