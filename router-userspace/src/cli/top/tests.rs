use std::collections::BTreeMap;

use super::*;
use crate::control::{EndpointReport, FastPathReport, InterfaceReport, LeaseReport, ProfileReport};

fn report(counters: &[(&str, u64)]) -> StatusReport {
    let endpoint = |name: &str, status: &str, latency: f64, flaps| EndpointReport {
        name: name.into(),
        status: status.into(),
        probe: Some("TCP".into()),
        latency_average_ms: Some(latency),
        latency_p99_ms: Some(latency * 2.0),
        since_seconds: Some(75),
        flaps,
        ..EndpointReport::default()
    };
    let profile = |name: &str, serving_all| ProfileReport {
        name: name.into(),
        method: "priority".into(),
        status: "Degraded".into(),
        serving_all,
        names: Vec::new(),
        endpoints: vec![endpoint("eu1", "Degraded", 12.5, 3), endpoint("us1", "Online", 80.0, 0)],
    };
    StatusReport {
        version: "9.8.7".into(),
        pid: 42,
        generation: 5,
        interfaces: vec![InterfaceReport {
            name: "eth0".into(),
            mode: "native".into(),
            why_not_native: None,
            away: false,
        }],
        fast_path: Some(FastPathReport {
            lease: LeaseReport { left_ms: 14_200, late_renewals: 0 },
            ..FastPathReport::default()
        }),
        counters: counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect(),
        profiles: vec![profile("www", false), profile("api", true)],
        ..StatusReport::default()
    }
}

fn view() -> View {
    let mut view = View::new(Duration::from_secs(1));
    let now = Instant::now();
    view.status(report(&[("answer_records", 1000), ("server_nodata", 7), ("pass_type", 0)]), now);
    let later = now + Duration::from_secs(2);
    view.status(report(&[("answer_records", 51_000), ("server_nodata", 27), ("pass_type", 20)]), later);
    for i in 0..40 {
        view.event(format!("event {i}"));
    }
    view
}

fn drawn(view: &View, columns: u16, lines: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, lines)).expect("a screen in memory");
    terminal.draw(|frame| draw::draw(view, frame)).expect("drawn");
    plain(terminal.backend())
}

#[test]
fn a_wide_screen_shows_everything() {
    let text = drawn(&view(), 140, 50);
    for words in [
        "xroute 9.8.7  pid 42",
        "generation 5",
        "lease 14 s",
        "eth0: XDP native",
        "fast path 25.0k/s",
        "userspace 10/s",
        "www (priority)",
        "serving all",
        "eu1",
        "12.5 ms",
        "160.0 ms",
        "1 min 15 s",
        "answer_records",
        "51000",
        "event 39",
        "q quit",
    ] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
    assert!(!text.contains("event 0\n"), "the oldest do not fit");
    let row = text.lines().find(|line| line.contains("answer_records")).expect("there");
    assert!(row.contains("25.0k"), "{row}");
}

#[test]
fn a_narrow_screen_shows_what_matters() {
    let text = drawn(&view(), 40, 30);
    for words in ["xroute 9.8.7", "www (priority)", "eu1", "Degraded", "answer_records", "event 39"] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
    let text = drawn(&view(), 60, 8);
    assert!(text.contains("eu1") && !text.contains("answer_records"), "{text}");
    let mut view = view();
    view.next_part(true);
    let text = drawn(&view, 60, 8);
    assert!(text.contains("answer_records") && !text.contains("eu1"), "{text}");
}

#[test]
fn no_size_is_too_small_or_too_large() {
    let mut views = [View::new(Duration::from_secs(1)), view(), view(), view()];
    views[2].lost(String::from("gone"));
    views[3].next_part(false);
    views[3].scroll(Direction::Up, usize::MAX);
    for view in &views {
        for columns in (1..=45).chain([63, 64, 99, 100, 101, 300]) {
            for lines in (1..=30).chain([60, 200]) {
                drawn(view, columns, lines);
            }
        }
    }
}

#[test]
fn keys() {
    let mut view = view();
    let key = |code| KeyEvent::new(code, KeyModifiers::NONE);
    let go = |view: &mut View, code| assert!(press(view, key(code)).is_continue());
    assert!(press(&mut view, key(KeyCode::Char('q'))).is_break());
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert!(press(&mut view, interrupt).is_break());
    assert!(press(&mut view, key(KeyCode::Char('c'))).is_continue());
    // Endpoints: down to the last, sorted by status, latency, flaps.
    for code in [KeyCode::End, KeyCode::PageUp, KeyCode::Down] {
        assert!(press(&mut view, key(code)).is_continue());
    }
    assert!(drawn(&view, 140, 8).contains("2 to 4 of 6"), "{}", drawn(&view, 140, 8));
    let first = |view: &View| {
        let row = view.endpoints().into_iter().next().expect("rows");
        format!("{} {}", row.profile, row.endpoint.map_or("", |endpoint| endpoint.name.as_str()))
    };
    let mut firsts = vec![first(&view)];
    for _ in 0..4 {
        go(&mut view, KeyCode::Char('s'));
        firsts.push(first(&view));
    }
    assert_eq!(firsts, ["www ", "www eu1", "www us1", "www eu1", "www "]);
    // Outcomes.
    go(&mut view, KeyCode::Tab);
    let names = |view: &View| view.outcomes().iter().map(|row| row.name.to_owned()).collect::<Vec<_>>();
    assert_eq!(names(&view), ["answer_records", "server_nodata", "pass_type"]);
    go(&mut view, KeyCode::Char('s'));
    go(&mut view, KeyCode::Char('s'));
    assert_eq!(names(&view), ["answer_records", "pass_type", "server_nodata"]);
    // Events: up is back in time, and what is looked at stays.
    go(&mut view, KeyCode::Tab);
    go(&mut view, KeyCode::Up);
    assert!(!drawn(&view, 140, 50).contains("event 39"));
    view.event(String::from("one more"));
    let text = drawn(&view, 140, 50);
    assert!(text.contains("event 38") && !text.contains("event 39") && text.contains("2 newer"), "{text}");
    go(&mut view, KeyCode::End);
    assert!(drawn(&view, 140, 50).contains("one more"));
    go(&mut view, KeyCode::Tab);
    assert_eq!(view.focus, super::view::Part::Endpoints);
}

#[test]
fn another_agent_begins_anew() {
    let mut view = view();
    view.lost(String::from("cannot reach the agent"));
    assert!(drawn(&view, 140, 50).contains("no news: cannot reach the agent"));
    let later = Instant::now() + Duration::from_secs(10);
    view.status(report(&[("answer_records", 60_000), ("server_nodata", 1)]), later);
    let [fast, server] = view.rates().expect("known");
    assert!(fast > 0.0, "the fast path went on");
    assert_eq!(server, 0.0, "the server's counters began at 0");
    assert!(!drawn(&view, 140, 50).contains("no news"));
    let rates: BTreeMap<String, Option<f64>> =
        view.outcomes().iter().map(|row| (row.name.to_owned(), row.rate)).collect();
    assert_eq!(rates["server_nodata"], None);
}

#[test]
fn arguments() {
    assert_eq!(size("80x24"), Ok((80, 24)));
    for wrong in ["", "80", "0x3", "80x", "x24", "80x24x3", "2000x2"] {
        assert!(size(wrong).is_err(), "{wrong}");
    }
    assert_eq!(interval("2s"), Ok(Duration::from_secs(2)));
    for wrong in ["0s", "100ms", "2m", "often"] {
        assert!(interval(wrong).is_err(), "{wrong}");
    }
}
