//! The status page: one HTML page without scripts and without anything from elsewhere, for a browser at `server.http`.
//!
//! Names, targets and error texts come from configurations and from whatever endpoints send, so nothing that is not
//! a constant of this file reaches the page unescaped: see [`Html`].

use std::sync::LazyLock;

use axum::extract::State;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;

use super::report::ago;
use super::{EndpointReport, ErrorReport, ProfileReport, Refusal, Request, Requests, StatusReport, ask};

/// Most endpoints shown; a page with more is of no use to people.
const MAX_ENDPOINTS: usize = 2000;
/// Most names shown of a profile.
const MAX_NAMES: usize = 20;

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#8884;--good:#1a7f37;--bad:#cf222e;--mid:#9a6700}\
@media(prefers-color-scheme:dark){:root{--good:#3fb950;--bad:#ff7b72;--mid:#d29922}}\
body{font:14px/1.5 system-ui,sans-serif;margin:1.5rem auto;max-width:75rem;padding:0 1rem}\
h1{font-size:1.4rem;margin:0}h2{font-size:1.1rem;margin:1.6rem 0 .3rem}\
.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}\
th,td{text-align:left;vertical-align:top;padding:.25rem .8rem .25rem 0;border-bottom:1px solid var(--line)}\
th{font-weight:600;white-space:nowrap}code,pre{font-family:ui-monospace,monospace;font-size:.92em}\
pre{white-space:pre-wrap;margin:.3rem 0}p{margin:.3rem 0}\
.good{color:var(--good)}.bad{color:var(--bad)}.mid{color:var(--mid)}";

/// What a browser may do with the page: show it, in this style.
static POLICY: LazyLock<String> = LazyLock::new(|| {
    let digest = ring::digest::digest(&ring::digest::SHA256, STYLE.as_bytes());
    let digest = base64::engine::general_purpose::STANDARD.encode(digest);
    format!(
        "default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    )
});

/// The status as a page for people; it loads itself anew.
#[utoipa::path(
    get, path = "/", tag = "look",
    responses(
        (status = 200, description = "the page", body = String, content_type = "text/html; charset=utf-8"),
        (status = "default", description = "failed", body = ErrorReport),
    ),
)]
pub(super) async fn page(State(requests): Requests) -> Result<Response, Refusal> {
    let report = ask(&requests, Request::Status).await?;
    let head = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, POLICY.as_str()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    Ok((head, render(&report)).into_response())
}

/// Text of a page. Markup can only be a constant; everything else is escaped.
struct Html(String);

impl Html {
    fn markup(&mut self, markup: &'static str) -> &mut Self {
        self.0.push_str(markup);
        self
    }

    fn text(&mut self, text: &str) -> &mut Self {
        for character in text.chars() {
            match character {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\'' => self.0.push_str("&#39;"),
                '\n' | '\t' => self.0.push(character),
                // Invisible ones could make a line read as something else.
                character if character.is_control() || is_invisible(character) => {
                    self.0.push_str(&character.escape_unicode().to_string());
                }
                character => self.0.push(character),
            }
        }
        self
    }

    fn row(&mut self, name: &'static str, value: &str) {
        self.markup("<tr><th>").markup(name).markup("<td>").text(value).markup("\n");
    }

    fn cell(&mut self, class: &'static str, text: &str) -> &mut Self {
        match class {
            "" => self.markup("<td>").text(text),
            class => self.markup("<td class=").markup(class).markup(">").text(text),
        }
    }
}

/// Marks of direction and width: what follows one may be shown elsewhere than it stands.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

fn class(status: &str) -> &'static str {
    match status {
        "Online" => "good",
        "Degraded" => "bad",
        "CheckingEndpoint" | "CheckingEndpoints" | "Stopped" => "mid",
        _ => "",
    }
}

fn render(report: &StatusReport) -> String {
    let mut page = Html(String::with_capacity(16 * 1024));
    page.markup("<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n")
        .markup("<meta name=viewport content=\"width=device-width\">\n<meta http-equiv=refresh content=5>\n")
        .markup("<title>xroute</title>\n<style>")
        .markup(STYLE)
        .markup("</style>\n<h1>xroute</h1>\n");
    agent(&mut page, report);
    paths(&mut page, report);
    files(&mut page, report);
    overrides(&mut page, report);
    let mut room = MAX_ENDPOINTS;
    let mut shown = 0;
    for part in &report.profiles {
        let Some(left) = room.checked_sub(part.endpoints.len().max(1)) else { break };
        room = left;
        shown += 1;
        profile(&mut page, part);
    }
    if let more @ 1.. = report.profiles.len() - shown {
        page.markup("<p>and ").text(&more.to_string()).markup(" more profiles: <code>xroute status</code>\n");
    }
    page.0
}

fn agent(page: &mut Html, report: &StatusReport) {
    page.markup("<table>\n");
    page.row("agent", &format!("{}, pid {}, up {}", report.version, report.pid, ago(report.uptime_seconds)));
    let age = ago(report.generation_age_seconds);
    let another = if report.reloading { "; another is being made" } else { "" };
    page.row("generation", &format!("{}, loaded {age} ago{another}", report.generation));
    page.row("configuration", &report.config);
    page.row("answers on", &report.listen.join(", "));
    if report.interfaces.is_empty() {
        page.row("fast path", "none: the userspace server answers everything");
    }
    for interface in &report.interfaces {
        if interface.away {
            page.row("fast path", &format!("{}, not there; attached to when it comes back", interface.name));
            continue;
        }
        let why =
            interface.why_not_native.as_ref().map_or_else(String::new, |why| format!(" (not native: {why})"));
        page.row("fast path", &format!("{}, XDP {}{why}", interface.name, interface.mode));
    }
    if let Some(fast_path) = &report.fast_path {
        page.row("tables", &fast_path.to_string());
    }
    for listener in &report.api {
        page.row("api", &listener.to_string());
    }
    page.markup("</table>\n");
    if let Some(why) = &report.last_reload_error {
        page.markup("<h2 class=bad>The last reload was refused</h2>\n<pre>").text(why).markup("</pre>\n");
    }
}

fn paths(page: &mut Html, report: &StatusReport) {
    let (fast, userspace) = report.answered();
    page.markup("<h2>Paths</h2>\n<table>\n");
    page.row("fast path", &format!("{fast} answered"));
    page.row("userspace", &format!("{userspace} answered"));
    page.markup("</table>\n<details><summary>every outcome</summary>\n<table>\n");
    for (name, count) in report.counters.iter().filter(|(_, count)| **count > 0) {
        page.markup("<tr><td><code>").text(name).markup("</code><td>").text(&count.to_string()).markup("\n");
    }
    page.markup("</table></details>\n");
}

fn files(page: &mut Html, report: &StatusReport) {
    if report.data.is_empty() {
        return;
    }
    page.markup(
        "<h2>Data files</h2>\n<div class=scroll><table>\n<tr><th>file<th>holds<th>rows<th>read<th>\n",
    );
    for feed in &report.data {
        page.markup("<tr>").cell("", &feed.path).cell("", &feed.kind.to_string());
        page.cell("", &feed.rows.to_string()).cell("", &format!("{} ago", ago(feed.age_seconds)));
        let why =
            feed.error.as_ref().map_or_else(String::new, |why| format!("as it is now not in use: {why}"));
        page.cell("bad", &why).markup("\n");
    }
    page.markup("</table></div>\n");
}

fn overrides(page: &mut Html, report: &StatusReport) {
    if report.overrides.is_empty() {
        return;
    }
    page.markup("<h2>Changed by hand</h2>\n");
    for held in &report.overrides {
        page.markup("<p>").text(&held.to_string()).markup("\n");
    }
}

fn profile(page: &mut Html, profile: &ProfileReport) {
    page.markup("<h2>").text(&profile.name).markup(" <span class=\"");
    page.markup(class(&profile.status)).markup("\">").text(&profile.status).markup("</span></h2>\n<p>");
    page.text(&profile.method);
    if profile.serving_all {
        page.markup("; <span class=bad>serving all: every endpoint is down, all are answered with</span>");
    }
    for name in profile.names.iter().take(MAX_NAMES) {
        page.markup(", <code>").text(name).markup("</code>");
    }
    if let Some(more @ 1..) = profile.names.len().checked_sub(MAX_NAMES) {
        page.text(&format!(", and {more} more"));
    }
    page.markup("\n<div class=scroll><table>\n");
    page.markup("<tr><th>endpoint<th>status<th>answers with<th>probes<th>for<th>latency<th>\n");
    for part in &profile.endpoints {
        endpoint(page, part);
    }
    page.markup("</table></div>\n");
}

fn endpoint(page: &mut Html, endpoint: &EndpointReport) {
    page.markup("<tr>").cell("", &endpoint.name).cell(class(&endpoint.status), &endpoint.status);
    page.cell("", &endpoint.target).markup("<td><code>").text(&endpoint.window).markup("</code>");
    page.cell("", &endpoint.since_seconds.map_or_else(String::new, ago));
    page.cell(
        "",
        &endpoint.latency_average_ms.map_or_else(String::new, |average| format!("{average:.1} ms")),
    );
    let mut said = Vec::new();
    if let Some(trouble) = &endpoint.trouble {
        said.push(format!("not probed, the state stays: {trouble}"));
    }
    if let Some(error) = &endpoint.last_error {
        let when = endpoint.last_error_seconds.map_or_else(String::new, |at| format!(" {} ago", ago(at)));
        said.push(format!("last error{when}: {error}"));
    }
    page.cell("", &said.join("; ")).markup("\n");
}

#[cfg(test)]
mod tests;
