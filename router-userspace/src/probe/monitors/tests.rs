use std::net::Ipv4Addr;

use router_common::health::{ProbeFault, Stage};
use router_common::model::{
    AdminStatus, AllDown, Connection, Endpoint, HttpProbe, Method, MinChildren, Monitor, Parts,
    ProbeDestination, ProbeMethod, Profile, ProfileId, Source, Target,
};

use super::*;
use crate::probe::{Schedule, targets_of};

const N4X2: WindowRule = WindowRule::Samples { size: 4, successful: 2 };
const STRICT: WindowRule = WindowRule::Tolerated { failures: 0 };

fn probe(host: u8) -> HttpProbe {
    HttpProbe {
        connection: Connection {
            destination: ProbeDestination::Address(Ipv4Addr::new(192, 0, 2, host).into()),
            port: 80,
            source: Source::default(),
        },
        tls: None,
        method: ProbeMethod::Head,
        path: "/".to_owned(),
        host: "www.example.test".to_owned(),
        user_agent: None,
        headers: Vec::new(),
    }
}

fn place(host: u8) -> ProbeTarget {
    ProbeTarget::Http(probe(host))
}

pub(in crate::probe) fn monitor(host: u8, window: WindowRule, interval: u64) -> Monitor {
    Monitor {
        target: place(host),
        expected_status: vec![(200, 200)],
        interval: Duration::from_secs(interval),
        timeout: Duration::from_secs(interval - 1),
        window,
        hold: Duration::ZERO,
    }
}

pub(in crate::probe) fn endpoint(name: &str, monitor: Option<Monitor>) -> Endpoint {
    Endpoint {
        name: name.to_owned(),
        target: Target::Addresses { ipv4: vec![Ipv4Addr::LOCALHOST], ipv6: Vec::new() },
        status: AdminStatus::Enabled,
        always_serve: false,
        priority: 1,
        weight: 1,
        region: None,
        geo: Vec::new(),
        subnets: Vec::new(),
        dial: 100,
        min_children: MinChildren::default(),
        monitor,
    }
}

/// Profiles by name; endpoints get distinct priorities.
pub(in crate::probe) fn model(profiles: Vec<(&str, Vec<Endpoint>)>) -> Model {
    let profiles = profiles
        .into_iter()
        .map(|(name, mut endpoints)| {
            endpoints.iter_mut().enumerate().for_each(|(i, endpoint)| endpoint.priority = i as u16 + 1);
            Profile {
                name: name.to_owned(),
                names: Vec::new(),
                method: Method::Priority,
                ttl: 30,
                enabled: true,
                ecs: true,
                all_down: AllDown::ServeAll,
                endpoints,
            }
        })
        .collect();
    build(profiles)
}

fn build(profiles: Vec<Profile>) -> Model {
    Model::new(Parts { profiles, ..Parts::default() }).unwrap()
}

pub(in crate::probe) fn id(profile: u32, index: u32) -> EndpointId {
    EndpointId { profile: ProfileId(profile), index }
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(1_000_000 + seconds)
}

fn status(code: u16, ms: u64) -> Observation {
    Observation { outcome: Outcome::Status(code), latency: Some(Duration::from_millis(ms)) }
}

const LOST: Observation =
    Observation { outcome: Outcome::Fault(ProbeFault::Timeout(Stage::Connect)), latency: None };

#[test]
fn one_observation_two_verdicts() {
    let wide = Monitor { expected_status: vec![(200, 299)], ..monitor(1, N4X2, 30) };
    let model = model(vec![
        ("lenient", vec![endpoint("a", Some(monitor(1, N4X2, 30)))]),
        ("strict", vec![endpoint("a", Some(monitor(1, STRICT, 30)))]),
        ("wide", vec![endpoint("a", Some(wide)), endpoint("b", Some(monitor(2, N4X2, 30)))]),
    ]);
    assert_eq!(targets_of(&model).len(), 2);
    let mut monitors = Monitors::new(&model);
    let (lenient, strict, wide, other) = (id(0, 0), id(1, 0), id(2, 0), id(2, 1));
    assert_eq!(monitors.health_view(), HealthView::default());
    let mut changed = monitors.observe(&place(1), &status(200, 10), at(0));
    changed.sort_by_key(|(id, _)| *id);
    let healthy = [(lenient, Health::Healthy), (strict, Health::Healthy), (wide, Health::Healthy)];
    assert_eq!(changed, healthy);
    // 204 is a failure to two of them; one failure is enough for one of these.
    assert_eq!(monitors.observe(&place(1), &status(204, 10), at(1)), [(strict, Health::Unhealthy)]);
    assert_eq!(monitors.observe(&place(1), &status(204, 10), at(2)), []);
    assert_eq!(monitors.observe(&place(1), &status(204, 10), at(3)), [(lenient, Health::Unhealthy)]);
    let view = monitors.health_view();
    assert_eq!(view.health(wide), Health::Healthy);
    assert_eq!(view.health(other), Health::Checking, "its own target has no sample");
    assert_eq!(view.latency.get(&wide), Some(&Duration::from_millis(10)));
    assert_eq!(view.latency.len(), 3);
    let watching: Vec<EndpointId> = monitors.watching(&place(1)).collect();
    assert_eq!(watching, [lenient, strict, wide]);
    // Our own machine's trouble is nobody's sample, a stranger's target nobody's business.
    let local = Observation { outcome: Outcome::Fault(ProbeFault::Local), latency: None };
    assert_eq!(monitors.observe(&place(1), &local, at(4)), []);
    assert_eq!(monitors.endpoint(wide).unwrap().record.strip.to_string(), "++++");
    assert_eq!(monitors.observe(&place(9), &LOST, at(4)), []);
}

#[test]
fn status_has_everything() {
    let model = model(vec![
        ("www", vec![endpoint("eu", Some(monitor(1, N4X2, 30))), endpoint("us", None)]),
        ("api", vec![endpoint("eu", Some(monitor(1, STRICT, 30)))]),
    ]);
    let mut monitors = Monitors::new(&model);
    for ms in 1..=100 {
        monitors.observe(&place(1), &status(200, ms), at(ms));
    }
    monitors.observe(&place(1), &status(503, 1), at(101));
    let shown = monitors.endpoint(id(0, 0)).unwrap();
    assert_eq!((shown.profile.as_str(), shown.name.as_str(), shown.shared_by), ("www", "eu", 2));
    assert_eq!(shown.rule, N4X2);
    assert_eq!(*shown.target, place(1));
    assert_eq!((shown.record.health, shown.record.since), (Health::Healthy, Some(at(1))));
    assert_eq!(shown.record.last_error, Some((at(101), ProbeFault::Status(503))));
    assert_eq!(shown.record.strip.to_string(), "+".repeat(63) + "-");
    // The last 63 healthy ones took 38 to 100 ms.
    let ms = Duration::from_millis;
    assert_eq!(shown.percentiles, Some(Percentiles { p50: ms(69), p90: ms(94), p99: ms(100) }));
    assert!(monitors.endpoint(id(0, 1)).is_none());
    let order: Vec<EndpointId> = monitors.endpoints().iter().map(|shown| shown.endpoint).collect();
    assert_eq!(order, [id(0, 0), id(1, 0)]);
}

#[test]
fn state_follows_the_name_not_the_position() {
    let eu = || endpoint("eu", Some(monitor(1, STRICT, 30)));
    let us = || endpoint("us", Some(monitor(2, STRICT, 30)));
    let mut monitors = Monitors::new(&model(vec![("www", vec![eu(), us()])]));
    monitors.observe(&place(1), &LOST, at(1));
    monitors.observe(&place(2), &status(200, 5), at(1));
    // Another profile before, another order within.
    let moved =
        model(vec![("new", vec![endpoint("eu", Some(monitor(3, STRICT, 30)))]), ("www", vec![us(), eu()])]);
    monitors.rebuild(&moved, at(2));
    let view = monitors.health_view();
    assert_eq!(view.health(id(0, 0)), Health::Checking);
    assert_eq!(view.health(id(1, 0)), Health::Healthy);
    assert_eq!(view.health(id(1, 1)), Health::Unhealthy);
    assert_eq!(monitors.endpoint(id(1, 1)).unwrap().record.since, Some(at(1)));
    assert_eq!(monitors.observe(&place(1), &status(200, 5), at(3)), [(id(1, 1), Health::Healthy)]);
    // Two swap their targets: the samples stay with the targets.
    let swapped = model(vec![(
        "www",
        vec![endpoint("us", Some(monitor(1, STRICT, 30))), endpoint("eu", Some(monitor(2, STRICT, 30)))],
    )]);
    monitors.observe(&place(2), &LOST, at(4));
    monitors.rebuild(&swapped, at(5));
    assert_eq!(monitors.health_view().health(id(0, 0)), Health::Healthy);
    assert_eq!(monitors.health_view().health(id(0, 1)), Health::Unhealthy);
    // A removed target is forgotten.
    monitors.rebuild(&model(vec![("www", vec![us()])]), at(6));
    assert_eq!(monitors.observe(&place(1), &LOST, at(7)), []);
    monitors.rebuild(&swapped, at(8));
    assert_eq!(monitors.health_view().health(id(0, 0)), Health::Checking);
}

#[test]
fn a_changed_monitor_keeps_the_samples_it_can() {
    let with = |monitor: Monitor| model(vec![("www", vec![endpoint("eu", Some(monitor))])]);
    let eu = id(0, 0);
    let mut monitors = Monitors::new(&with(monitor(1, N4X2, 30)));
    for (second, code) in [(1, 200), (2, 200), (3, 204), (4, 204)] {
        monitors.observe(&place(1), &status(code, 10), at(second));
    }
    assert_eq!(monitors.health_view().health(eu), Health::Healthy);
    // Another window: the same samples.
    monitors.rebuild(&with(monitor(1, STRICT, 30)), at(5));
    assert_eq!(monitors.health_view().health(eu), Health::Unhealthy);
    assert_eq!(monitors.endpoint(eu).unwrap().record.since, Some(at(5)));
    // Another expected status: the same observations, judged anew.
    let wide = Monitor { expected_status: vec![(200, 299)], ..monitor(1, STRICT, 30) };
    monitors.rebuild(&with(wide.clone()), at(6));
    let shown = monitors.endpoint(eu).unwrap();
    assert_eq!((shown.record.health, shown.record.strip.to_string().as_str()), (Health::Healthy, "++++"));
    // Another interval alone changes nothing.
    monitors.rebuild(&with(Monitor { interval: Duration::from_secs(60), ..wide }), at(7));
    assert_eq!(monitors.endpoint(eu).unwrap().record, shown.record);
    // A newcomer on the same target knows at once what is known.
    let both = model(vec![
        ("www", vec![endpoint("eu", Some(monitor(1, STRICT, 30)))]),
        ("api", vec![endpoint("eu", Some(monitor(1, N4X2, 30)))]),
    ]);
    monitors.rebuild(&both, at(8));
    assert_eq!(monitors.endpoint(id(1, 0)).unwrap().record.strip.to_string(), "++--");
    // Another path is another target: nothing is known of it.
    let path = "/health".to_owned();
    let elsewhere =
        Monitor { target: ProbeTarget::Http(HttpProbe { path, ..probe(1) }), ..monitor(1, STRICT, 30) };
    monitors.rebuild(&with(elsewhere), at(9));
    assert_eq!(monitors.health_view().health(eu), Health::Checking);
}

#[test]
fn saved_state_is_used_until_the_first_sample() {
    let model = model(vec![("www", vec![endpoint("eu", Some(monitor(1, N4X2, 30)))])]);
    let mut before = Monitors::new(&model);
    for second in 1..=4 {
        before.observe(&place(1), &LOST, at(second));
    }
    let saved = before.endpoints().remove(0);
    let eu = id(0, 0);
    let mut after = Monitors::new(&model);
    assert!(!after.restore(id(0, 1), &place(1), N4X2, saved.record, at(9)), "no such endpoint");
    assert!(!after.restore(eu, &place(2), N4X2, saved.record, at(9)), "it watches another target");
    assert!(after.restore(eu, &saved.target, N4X2, saved.record, at(9)));
    assert_eq!(after.health_view().health(eu), Health::Unhealthy);
    after.observe(&place(1), &status(200, 1), at(50));
    assert_eq!(after.endpoint(eu).unwrap().record.strip.to_string(), "----+");
    assert!(!after.restore(eu, &saved.target, N4X2, saved.record, at(51)), "too late");
    // Saved under a rule that is another now: the samples stay, the verdict is that of today's rule.
    let patient = WindowRule::Tolerated { failures: 9 };
    let other = Monitor { window: patient, ..monitor(1, N4X2, 30) };
    let mut after = Monitors::new(&self::model(vec![("www", vec![endpoint("eu", Some(other))])]));
    assert!(after.restore(eu, &saved.target, N4X2, saved.record, at(60)));
    assert_eq!(after.endpoint(eu).unwrap().record.since, Some(at(60)));
    assert_eq!(after.health_view().health(eu), Health::Healthy);
}

#[test]
fn a_held_state_is_held_from_the_start() {
    let held = Monitor { hold: Duration::from_secs(60), ..monitor(1, STRICT, 30) };
    let with = |monitor: &Monitor| model(vec![("www", vec![endpoint("eu", Some(monitor.clone()))])]);
    let mut monitors = Monitors::new(&with(&held));
    monitors.observe(&place(1), &LOST, at(0));
    assert_eq!(monitors.observe(&place(1), &status(200, 1), at(59)), []);
    monitors.rebuild(&with(&held), at(59));
    assert_eq!(monitors.health_view().health(id(0, 0)), Health::Unhealthy, "a reload does not end it");
    let saved = monitors.endpoint(id(0, 0)).unwrap();
    let mut after = Monitors::new(&with(&held));
    assert!(after.restore(id(0, 0), &place(1), STRICT, saved.record, at(59)));
    assert_eq!(after.observe(&place(1), &status(200, 1), at(59)), [], "nor does a restart");
    assert_eq!(monitors.observe(&place(1), &status(200, 1), at(60)), [(id(0, 0), Health::Healthy)]);
    assert_eq!(monitors.observe(&place(1), &LOST, at(61)), []);
    monitors.rebuild(&with(&Monitor { hold: Duration::ZERO, ..held }), at(62));
    assert_eq!(monitors.observe(&place(1), &LOST, at(63)), [(id(0, 0), Health::Unhealthy)], "not held now");
    assert_eq!(monitors.endpoint(id(0, 0)).unwrap().record.flaps, 2);
}

#[test]
fn words_belong_to_the_failure_they_are_about() {
    let model = model(vec![("www", vec![endpoint("eu", Some(monitor(1, N4X2, 30)))])]);
    let mut monitors = Monitors::new(&model);
    let seen = |observation, said: Option<&str>| Observed {
        target: Arc::new(place(1)),
        observation,
        said: said.map(Arc::from),
        at: std::time::Instant::now(),
    };
    let words = |monitors: &Monitors| {
        let shown = monitors.endpoint(id(0, 0)).unwrap();
        (shown.said.as_deref().map(str::to_owned), shown.trouble.as_deref().map(str::to_owned))
    };
    monitors.observed(&seen(LOST, Some("no way")), at(1));
    assert_eq!(words(&monitors), (Some("no way".into()), None));
    let local = Observation { outcome: Outcome::Fault(ProbeFault::Local), latency: None };
    monitors.observed(&seen(local, Some("too many open files")), at(2));
    assert_eq!(words(&monitors), (Some("no way".into()), Some("too many open files".into())));
    monitors.observed(&seen(status(200, 1), None), at(3));
    assert_eq!(words(&monitors), (Some("no way".into()), None), "the last error is still that one");
    monitors.observed(&seen(status(503, 1), None), at(4));
    assert_eq!(words(&monitors), (None, None), "of the newest failure nothing was said");
}

#[test]
fn probed_once_at_the_smallest_interval() {
    let slow = monitor(1, N4X2, 30);
    let fast = Monitor { timeout: Duration::from_secs(2), ..monitor(1, STRICT, 5) };
    let fast_and_patient = Monitor { timeout: Duration::from_secs(3), ..monitor(1, STRICT, 5) };
    let model = model(vec![
        ("a", vec![endpoint("x", Some(slow)), endpoint("y", Some(monitor(2, N4X2, 60)))]),
        ("b", vec![endpoint("x", Some(fast)), endpoint("y", Some(fast_and_patient))]),
    ]);
    let schedule = |interval, timeout| Schedule {
        interval: Duration::from_secs(interval),
        timeout: Duration::from_secs(timeout),
    };
    assert_eq!(targets_of(&model), [(place(1), schedule(5, 3)), (place(2), schedule(60, 59))]);
}

#[test]
fn only_what_counts_is_probed() {
    let watched = |host: u8| endpoint("x", Some(monitor(host, N4X2, 30)));
    let base = model(vec![
        ("enabled", vec![watched(1)]),
        ("disabled", vec![watched(2)]),
        ("stopped", vec![watched(3)]),
        ("served", vec![watched(4)]),
        ("off", vec![endpoint("x", None)]),
        ("inactive", vec![watched(6)]),
    ]);
    let mut profiles = base.profiles().to_vec();
    profiles[1].endpoints[0].status = AdminStatus::Disabled;
    profiles[2].endpoints[0].status = AdminStatus::Stopped;
    profiles[3].endpoints[0].always_serve = true;
    profiles[5].enabled = false;
    let model = build(profiles);
    let targets: Vec<ProbeTarget> = targets_of(&model).into_iter().map(|(target, _)| target).collect();
    assert_eq!(targets, [place(1)]);
    let monitors = Monitors::new(&model);
    assert_eq!(monitors.endpoints().len(), 1);
}
