use std::time::Instant;

use router_common::abi::Cell;
use router_common::decide::{Asked, Asker, distribution};
use router_common::health::{Observation, Outcome, ProbeFault};
use router_common::model::ProbeDestination;
use router_common::name::Name;
use router_common::sim::{Sim, query};

use super::*;
use crate::config;

pub(super) const NOW: Duration = Duration::from_secs(1_700_000_000);

/// A priority profile over endpoints with these names and last octets, in this order.
pub(super) fn configuration(endpoints: &[(&str, u8)]) -> Config {
    let mut text = String::from(
        r#"
[[zone]]
name = "gslb.test"
soa = { mname = "ns1.example.net.", rname = "h.example.net.", serial = 1, refresh = 1, retry = 1, expire = 1, minimum = 1 }
ns = ["ns1.example.net."]
[[profile]]
name = "www"
names = ["www.gslb.test"]
method = "priority"
ttl = 30
  [profile.monitor]
  protocol = "tcp"
  port = 80
  sample_size = 2
  successful_samples = 2
"#,
    );
    for (name, octet) in endpoints {
        text += &format!("  [[profile.endpoint]]\n  name = \"{name}\"\n  address = [\"192.0.2.{octet}\"]\n");
    }
    let files = std::collections::BTreeMap::<String, Vec<u8>>::new();
    config::parse(&text, "xroute.toml", &files).expect("valid")
}

pub(super) fn agent(endpoints: &[(&str, u8)]) -> Agent {
    Agent::new(configuration(endpoints), HealthView::default()).expect("compiles")
}

/// A probe of `192.0.2.octet` ends.
pub(super) fn probe(agent: &mut Agent, octet: u8, ok: bool) -> Vec<Effect> {
    let target = crate::probe::targets_of(&agent.snapshot().model)
        .into_iter()
        .map(|(target, _)| target)
        .find(|target| {
            let to = target.connection().map(|connection| &connection.destination);
            to == Some(&ProbeDestination::Address([192, 0, 2, octet].into()))
        })
        .expect("it is probed");
    let outcome = if ok { Outcome::Connected } else { Outcome::Fault(ProbeFault::Refused) };
    let observation = Observation { outcome, latency: ok.then_some(Duration::from_millis(3)) };
    let observed = Observed { target: Arc::new(target), observation, said: None, at: Instant::now() };
    agent.handle(Event::Observed(vec![observed]), NOW).expect("compiles")
}

pub(super) fn fail(agent: &mut Agent, octet: u8) {
    probe(agent, octet, false);
}

/// What the tables answer, and what the snapshot decides; they must be one.
fn answers(compiled: &Compiled, snapshot: &Snapshot) -> String {
    let name: Name = "www.gslb.test".parse().expect("a name");
    let asker = Asker { source: "203.0.113.1".parse().expect("an address"), ecs: None };
    let profile = snapshot.model.profile_named("www").expect("there");
    let decided = distribution(snapshot, profile, Asked::A, &asker);
    let [outcome] = decided.outcomes.as_slice() else { panic!("{decided:?}") };
    assert!(Sim::new(&compiled.tables).answers(&name, false, &asker));
    // With one cell, whatever is drawn is the answer.
    let fresh = compile(snapshot, &Frontage::default(), || [1, 2], 1).expect("compiles");
    let records = |compiled: &Compiled| {
        let sim = Sim::new(&compiled.tables);
        let (cell, _) = sim.look_up(&query(&name, false, &asker)).expect("an answer");
        // Tallies are numbered as they come.
        Cell { detail: 0, ..cell }
    };
    assert_eq!(records(compiled), records(&fresh), "the tables lag behind the verdicts");
    let endpoint = outcome.endpoint.expect("one endpoint");
    snapshot.model.endpoint(endpoint).name.clone()
}

pub(super) fn serving(agent: &Agent) -> String {
    answers(agent.compiled(), agent.snapshot())
}

fn drafted(draft: &Draft) -> String {
    answers(&draft.compiled, draft.snapshot())
}

#[test]
fn health_goes_over_by_name_when_endpoints_change_places() {
    let mut agent = agent(&[("a", 1), ("b", 2), ("c", 3)]);
    fail(&mut agent, 1);
    assert_eq!(serving(&agent), "b");
    let mut draft =
        agent.basis().with_configuration(configuration(&[("c", 3), ("a", 1), ("b", 2)])).expect("fits");
    assert_eq!(drafted(&draft), "c");
    agent.align(&mut draft).expect("compiles");
    agent.adopt(draft, NOW).expect("compiles");
    assert_eq!(serving(&agent), "c");
    fail(&mut agent, 3);
    assert_eq!(serving(&agent), "b", "the failed one has moved, and is failed still");
    let windows: Vec<String> = agent.profiles(NOW, &|_| None)[0]
        .endpoints
        .iter()
        .map(|e| format!("{} {}", e.name, e.window))
        .collect();
    assert_eq!(windows, ["c -", "a -", "b "], "windows go with their names");
}

#[test]
fn a_verdict_that_comes_while_a_generation_is_made_counts_in_both() {
    let mut agent = agent(&[("a", 1), ("b", 2), ("c", 3)]);
    let basis = agent.basis();
    fail(&mut agent, 1);
    assert_eq!(serving(&agent), "b", "the serving generation follows");
    let mut draft = basis.with_configuration(configuration(&[("c", 3), ("a", 1), ("b", 2)])).expect("fits");
    fail(&mut agent, 3);
    assert_eq!(drafted(&draft), "c", "the draft knows nothing of it");
    agent.align(&mut draft).expect("compiles");
    assert_eq!(drafted(&draft), "b", "when it comes into service it does");
    let serial = agent.compiled().tables.generation.serial;
    assert_eq!(draft.tables().generation.serial, serial + 1);
    let effects = agent.adopt(draft, NOW).expect("compiles");
    assert_eq!(serving(&agent), "b");
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Apply(_) | Effect::Install)));
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Serve(_))));
}

#[test]
fn a_verdict_that_is_taken_back_meanwhile_is_not_carried_over() {
    let mut agent = agent(&[("a", 1), ("b", 2)]);
    fail(&mut agent, 1);
    let mut draft = agent.basis().with_configuration(configuration(&[("a", 1), ("b", 2)])).expect("fits");
    assert_eq!(drafted(&draft), "b");
    probe(&mut agent, 1, true);
    probe(&mut agent, 1, true);
    assert_eq!(serving(&agent), "a");
    agent.align(&mut draft).expect("compiles");
    assert_eq!(drafted(&draft), "a");
}

#[test]
fn a_draft_that_is_dropped_leaves_no_trace() {
    let mut agent = agent(&[("a", 1), ("b", 2)]);
    fail(&mut agent, 1);
    let before = agent.compiled().clone();
    let mut draft = agent.basis().with_configuration(configuration(&[("z", 9)])).expect("fits");
    agent.align(&mut draft).expect("compiles");
    drop(draft);
    assert_eq!(*agent.compiled(), before);
    assert_eq!(serving(&agent), "b");
    fail(&mut agent, 2);
    probe(&mut agent, 1, true);
    probe(&mut agent, 1, true);
    assert_eq!(serving(&agent), "a");
}

#[test]
fn an_endpoint_with_another_address_is_another_endpoint() {
    let mut agent = agent(&[("a", 1), ("b", 2)]);
    fail(&mut agent, 1);
    let mut draft = agent.basis().with_configuration(configuration(&[("a", 7), ("b", 2)])).expect("fits");
    agent.align(&mut draft).expect("compiles");
    let effects = agent.adopt(draft, NOW).expect("compiles");
    assert_eq!(serving(&agent), "a", "it was never probed there");
    let targets = effects.iter().find_map(|effect| match effect {
        Effect::Probe(targets) => Some(targets.len()),
        _ => None,
    });
    assert_eq!(targets, Some(2));
}

#[test]
fn a_newcomer_on_a_probed_target_has_its_verdict_at_once() {
    let mut agent = agent(&[("a", 1), ("b", 2)]);
    fail(&mut agent, 1);
    let mut draft =
        agent.basis().with_configuration(configuration(&[("renamed", 1), ("b", 2)])).expect("fits");
    agent.align(&mut draft).expect("compiles");
    let effects = agent.adopt(draft, NOW).expect("compiles");
    assert_eq!(serving(&agent), "b");
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Verdict(_, Health::Unhealthy))));
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Apply(_))));
}
