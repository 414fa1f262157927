use super::*;
use crate::control::{FastPathReport, FeedReport, InterfaceReport, ListenerReport, OverrideReport};
use crate::feed::FeedKind;
use crate::overrides::{Override, Setting, State};

/// Would run, leave an attribute, end an element, or turn what follows round.
const HOSTILE: &str =
    "</td><script>alert('1')</script><img src=x onerror=\"alert(1)\"> &amp; \u{202e}\u{0}\u{1b}[2J";

fn hostile() -> StatusReport {
    let text = || String::from(HOSTILE);
    let endpoint = EndpointReport {
        name: text(),
        target: text(),
        status: text(),
        probe: Some(text()),
        since_seconds: Some(61),
        window: text(),
        latency_average_ms: Some(1.25),
        last_error: Some(text()),
        last_error_seconds: Some(9),
        trouble: Some(text()),
        ..EndpointReport::default()
    };
    StatusReport {
        version: text(),
        config: text(),
        last_reload_error: Some(text()),
        data: vec![FeedReport {
            kind: FeedKind::GeoDatabase,
            path: text(),
            rows: 3,
            loaded_at: 0,
            age_seconds: 5,
            error: Some(text()),
        }],
        listen: vec![text()],
        fast_path: Some(FastPathReport::default()),
        interfaces: vec![InterfaceReport {
            name: text(),
            mode: text(),
            why_not_native: Some(text()),
            away: false,
        }],
        counters: [(text(), 7)].into(),
        api: vec![ListenerReport {
            listener: text(),
            refused: [(text(), 1)].into(),
            ..ListenerReport::default()
        }],
        overrides: vec![OverrideReport {
            held: Override {
                target: text(),
                setting: Setting::Status(State::Disabled),
                since: 0,
                until: None,
                by: text(),
                reason: Some(text()),
                drain: false,
            },
            age_seconds: 1,
            left_seconds: None,
            rests: true,
        }],
        profiles: vec![ProfileReport {
            name: text(),
            method: text(),
            status: text(),
            serving_all: true,
            names: vec![text()],
            endpoints: vec![endpoint],
        }],
        ..StatusReport::default()
    }
}

/// Tags of a page, in order.
fn tags(page: &str) -> Vec<&str> {
    page.split('<').skip(1).map(|rest| rest.split('>').next().expect("a tag ends")).collect()
}

#[test]
fn nothing_from_outside_is_markup() {
    let page = render(&hostile());
    let harmless = render(
        &serde_json::from_str(&serde_json::to_string(&hostile()).expect("JSON").replace(
            &serde_json::to_string(HOSTILE).expect("JSON").trim_matches('"').to_owned(),
            "harmless",
        ))
        .expect("JSON"),
    );
    assert!(harmless.matches("harmless").count() > 20, "{harmless}");
    assert_eq!(tags(&page), tags(&harmless), "a text became markup");
    assert_eq!(page.matches("&lt;script&gt;").count(), harmless.matches("harmless").count());
    for never in ["<script", "<img", "\u{202e}", "\u{0}", "\u{1b}"] {
        assert!(!page.contains(never), "{never:?} is in\n{page}");
    }
    // Text is told, not dropped.
    assert!(page.contains("\\u{202e}"), "{page}");
    assert!(page.contains("&amp;amp;"), "{page}");
}

#[test]
fn a_page_takes_nothing_from_elsewhere() {
    let page = render(&hostile());
    for tag in tags(&page) {
        let name = tag.split([' ', '/']).find(|word| !word.is_empty()).unwrap_or_default();
        assert!(
            !["script", "link", "img", "iframe", "object", "embed", "base", "form"].contains(&name),
            "<{tag}>"
        );
        assert!(!tag.contains(" src") && !tag.contains(" href") && !tag.contains(" on"), "<{tag}>");
        assert!(!tag.contains(" style"), "<{tag}>: the policy forbids it");
    }
    assert!(page.contains("http-equiv=refresh"));
    assert!(POLICY.starts_with("default-src 'none'; style-src 'sha256-"), "{}", *POLICY);
    assert!(!STYLE.contains("url(") && !STYLE.contains("@import") && !STYLE.contains('<'));
}

#[test]
fn what_an_operator_looks_for_is_there() {
    let mut report = hostile();
    report.profiles[0].endpoints[0].status = String::from("Online");
    report.generation = 41;
    let page = render(&report);
    for words in [
        "<th>generation<td>41, loaded",
        "<td class=good>Online",
        "lease holds 0.0 s",
        "1 min 1 s",
        "1.2 ms",
        "7",
    ] {
        assert!(page.contains(words), "{words} is not in\n{page}");
    }
}

#[test]
fn a_large_estate_is_cut_and_says_so() {
    let profile = ProfileReport {
        name: String::from("www"),
        method: String::from("priority"),
        status: String::from("Online"),
        serving_all: false,
        names: (0..100).map(|i| format!("n{i}.example.")).collect(),
        endpoints: vec![EndpointReport::default(); 1000],
    };
    let page = render(&StatusReport { profiles: vec![profile; 5], ..StatusReport::default() });
    assert!(page.contains("and 80 more"), "names");
    assert!(page.contains("and 3 more profiles"), "profiles");
    assert!(page.len() < 1_000_000, "{}", page.len());
}
