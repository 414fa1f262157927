//! The engine on real sockets: what goes over the wire when, and what is left when it ends.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use router_common::health::{Outcome, ProbeFault};
use router_common::model::{Monitor, WindowRule};
use router_common::view::Health;
use tokio::sync::mpsc;

use super::server::{Act, OK, Server};
use super::{get, get_path, http, tcp};
use crate::clock::unix_now;
use crate::probe::monitors::tests::{endpoint, id, model, monitor};
use crate::probe::{Applied, Engine, Limits, Monitors, NextProbe, Observed, Schedule, targets_of};

fn every(ms: u64) -> Schedule {
    Schedule { interval: Duration::from_millis(ms), timeout: Duration::from_secs(5) }
}

async fn next(events: &mut mpsc::Receiver<Observed>) -> Observed {
    tokio::time::timeout(Duration::from_secs(5), events.recv()).await.expect("an event in time").unwrap()
}

fn tasks() -> usize {
    tokio::runtime::Handle::current().metrics().num_alive_tasks()
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(5), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn targets_come_and_go_with_the_configuration() {
    let one = Server::start(Act::Reply(OK.to_vec())).await;
    let two = Server::start(Act::Reply(OK.to_vec())).await;
    let (sender, mut events) = mpsc::channel(64);
    let engine = Engine::start(Limits::default(), sender);
    // Far apart, so that a second probe of the same target is only due to a change.
    let applied = engine.set_targets(vec![(http(one.address), every(60_000))]);
    assert_eq!(applied, Applied { added: 1, kept: 0, removed: 0 });
    let begun = Instant::now();
    let seen = next(&mut events).await;
    assert!(begun.elapsed() < Duration::from_secs(1), "the first probe goes out at once");
    assert_eq!(*seen.target, http(one.address));
    assert_eq!(seen.observation.outcome, Outcome::Status(200));
    assert!(matches!(engine.next_probe(&http(one.address)), Some(NextProbe::In(_) | NextProbe::Now)));
    assert_eq!(engine.next_probe(&http(two.address)), None);

    let applied =
        engine.set_targets(vec![(http(two.address), every(60_000)), (http(one.address), every(60_000))]);
    assert_eq!(applied, Applied { added: 1, kept: 1, removed: 0 });
    assert_eq!(*next(&mut events).await.target, http(two.address));

    let applied = engine.set_targets(vec![(http(two.address), every(50))]);
    assert_eq!(applied, Applied { added: 0, kept: 1, removed: 1 });
    assert_eq!(*next(&mut events).await.target, http(two.address));
    assert_eq!(*next(&mut events).await.target, http(two.address));
    assert_eq!((one.connections(), engine.next_probe(&http(one.address))), (1, None));
    engine.shutdown().await;
    two.assert_no_connection().await;
}

#[tokio::test]
async fn a_removed_target_is_let_go_in_mid_probe() {
    let server = Server::start(Act::Silent).await;
    let (sender, mut events) = mpsc::channel(64);
    let engine = Engine::start(Limits::default(), sender);
    engine.set_targets(vec![(http(server.address), every(60_000))]);
    eventually("connected", || server.requests().len() == 1).await;
    assert_eq!(engine.next_probe(&http(server.address)), Some(NextProbe::Now));
    engine.set_targets(Vec::new());
    server.assert_no_connection().await;
    eventually("no flight left", || engine.stats().in_flight == 0).await;
    assert!(events.try_recv().is_err(), "and nothing is reported of it");
    engine.shutdown().await;
}

#[tokio::test]
async fn one_connection_and_one_request_for_each_probe() {
    let server = Server::start(Act::Reply(OK.to_vec())).await;
    let (sender, mut events) = mpsc::channel(64);
    let engine = Engine::start(Limits::default(), sender);
    engine.set_targets(vec![(get(server.address), every(40)), (get(server.address), every(20))]);
    for _ in 0..10 {
        assert_eq!(next(&mut events).await.observation.outcome, Outcome::Status(200));
    }
    assert_eq!(engine.stats().targets, 1, "equal targets are one");
    engine.set_targets(Vec::new());
    eventually("no flight left", || engine.stats().in_flight == 0).await;
    let stats = engine.stats();
    engine.shutdown().await;
    assert!(stats.answered >= 10 && stats.failed == 0, "{stats:?}");
    assert!(stats.lateness.iter().sum::<u64>() + 1 >= 10, "{stats:?}");
    // The last one may have been dropped on its way.
    assert!(server.connections() - server.requests().len() <= 1);
    assert!(stats.started - server.connections() as u64 <= 1, "{stats:?}");
}

#[tokio::test]
async fn nothing_is_left_after_the_end() {
    let before = tasks();
    let silent = Server::start(Act::Silent).await;
    let (sender, events) = mpsc::channel(64);
    let many: Vec<_> = (0..50).map(|n| (get_path(silent.address, format!("/{n}")), every(60_000))).collect();
    // By shutdown.
    let engine = Engine::start(Limits::default(), sender.clone());
    engine.set_targets(many.clone());
    eventually("all under way", || silent.requests().len() == 50).await;
    assert_eq!(engine.stats().in_flight, 50);
    engine.shutdown().await;
    silent.assert_no_connection().await;
    // By dropping.
    let engine = Engine::start(Limits::default(), sender.clone());
    engine.set_targets(many.clone());
    eventually("all under way", || silent.requests().len() == 100).await;
    drop(engine);
    silent.assert_no_connection().await;
    // Because nobody listens any more.
    let engine = Engine::start(Limits::default(), sender);
    engine.set_targets(many);
    eventually("all under way", || silent.requests().len() == 150).await;
    drop(events);
    silent.assert_no_connection().await;
    silent.stop().await;
    eventually("no task left", || tasks() == before).await;
    drop(engine);
}

#[tokio::test]
async fn probes_under_way_are_capped() {
    let silent = Server::start(Act::Silent).await;
    let (sender, mut events) = mpsc::channel(64);
    let limits = Limits { in_flight: 4, ..Limits::default() };
    let engine = Engine::start(limits, sender);
    let targets = (0..10)
        .map(|n| {
            let target = get_path(silent.address, format!("/{n}"));
            (target, Schedule { interval: Duration::from_secs(60), timeout: Duration::from_millis(800) })
        })
        .collect();
    engine.set_targets(targets);
    eventually("the first four", || silent.connections() == 4).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!((silent.connections(), engine.stats().in_flight, engine.stats().waiting), (4, 4, 6));
    for _ in 0..10 {
        let seen = next(&mut events).await;
        assert!(matches!(seen.observation.outcome, Outcome::Fault(ProbeFault::Timeout(_))));
    }
    assert_eq!(silent.connections(), 10);
    engine.shutdown().await;
}

#[tokio::test]
async fn the_rate_is_capped() {
    // Twenty targets, since each is at an address of its own.
    let server = Server::bind("0.0.0.0:0", Act::Silent, None).await;
    let (sender, mut events) = mpsc::channel(64);
    let engine = Engine::start(Limits { per_second: 50, ..Limits::default() }, sender);
    let targets = (0..20)
        .map(|n| (tcp((Ipv4Addr::new(127, 0, 7, n), server.address.port()).into()), every(60_000)))
        .collect();
    let begun = Instant::now();
    engine.set_targets(targets);
    for _ in 0..20 {
        assert_eq!(next(&mut events).await.observation.outcome, Outcome::Connected);
    }
    assert!(begun.elapsed() >= Duration::from_millis(19 * 20), "{:?}", begun.elapsed());
    engine.shutdown().await;
}

#[tokio::test]
async fn a_slow_receiver_slows_the_probes_and_loses_none() {
    let server = Server::start(Act::Reply(OK.to_vec())).await;
    let (sender, mut events) = mpsc::channel(1);
    let engine = Engine::start(Limits { in_flight: 3, ..Limits::default() }, sender);
    let targets = (0..8).map(|n| (get_path(server.address, format!("/{n}")), every(60_000))).collect();
    engine.set_targets(targets);
    eventually("one reported, three held", || server.requests().len() >= 4).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(server.requests().len(), 4, "nobody reads");
    let mut paths = std::collections::BTreeSet::new();
    for _ in 0..8 {
        paths.insert(next(&mut events).await.target.to_string());
    }
    assert_eq!(paths.len(), 8);
    engine.shutdown().await;
}

#[tokio::test]
async fn two_profiles_one_probe_on_the_wire_two_verdicts() {
    let server = Server::start(Act::Reply(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())).await;
    let here = |window, expected_status| Monitor {
        target: http(server.address),
        expected_status,
        ..monitor(1, window, 30)
    };
    let strict = here(WindowRule::Tolerated { failures: 0 }, vec![(200, 200)]);
    let patient = here(WindowRule::Samples { size: 4, successful: 2 }, vec![(200, 200)]);
    let wide = here(WindowRule::Tolerated { failures: 0 }, vec![(200, 299)]);
    let model = model(vec![
        ("strict", vec![endpoint("x", Some(strict))]),
        ("patient", vec![endpoint("x", Some(patient))]),
        ("wide", vec![endpoint("x", Some(wide))]),
    ]);
    let mut monitors = Monitors::new(&model);
    let (sender, mut events) = mpsc::channel(64);
    let engine = Engine::start(Limits::default(), sender);
    engine.set_targets(targets_of(&model));
    let seen = next(&mut events).await;
    let mut changed = monitors.observe(&seen.target, &seen.observation, unix_now());
    changed.sort_by_key(|(endpoint, _)| *endpoint);
    assert_eq!(
        changed,
        [(id(0, 0), Health::Unhealthy), (id(1, 0), Health::Healthy), (id(2, 0), Health::Healthy)]
    );
    engine.shutdown().await;
    assert_eq!((server.connections(), server.requests().len()), (1, 1));
}
