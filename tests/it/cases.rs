//! Every case of every scenario on every subject.

use std::path::Path;

use anyhow::Result;
use router_common::decide::{Asker, Snapshot};
use router_common::share::Share;
use router_tests::decide::Decide;
use router_tests::kernel::Kernel;
use router_tests::live::Laboratory;
use router_tests::need_bpf;
use router_tests::netns::need_netns;
use router_tests::prog_run::ProgRun;
use router_tests::scenario::{self, Expect, Scenario};
use router_tests::server::Server;
use router_tests::sim::Sim;
use router_tests::subject::{Question, Subject, snapshot};

fn all() -> Vec<(String, Scenario)> {
    scenario::all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")).unwrap()
}

/// Runs every case on the subject that is made of its snapshot, and returns how many it answered.
fn run(mut on: impl FnMut(Snapshot, &mut dyn FnMut(&mut dyn Subject) -> Result<()>) -> Result<()>) -> usize {
    let mut faults = Vec::new();
    let mut answered = 0;
    for (file, scenario) in all() {
        let config = scenario.load().unwrap_or_else(|errors| panic!("{file}: {errors}"));
        assert!(!scenario.cases.is_empty(), "{file} has no cases");
        for case in &scenario.cases {
            let mut found = Vec::new();
            let mut ask = |subject: &mut dyn Subject| -> Result<()> {
                let question = case.ask.question()?;
                match subject.ask(&question)? {
                    Some(answer) => {
                        found = case.expect.differences(&answer, &subject.tolerance())?;
                        answered += 1;
                    }
                    None if subject.must_answer(&question) => found.push("it abstains".into()),
                    None => {}
                }
                Ok(())
            };
            let outcome = snapshot(&config, &case.state).and_then(|snapshot| on(snapshot, &mut ask));
            found.extend(outcome.err().map(|error| format!("{error:#}")));
            let place = format!("{file}: {} ({})", case.why, case.ask.name);
            faults.extend(found.iter().map(|fault| format!("{place}: {fault}")));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    answered
}

#[test]
fn on_the_oracle() {
    assert!(run(|snapshot, ask| ask(&mut Decide::new(snapshot))) >= 60);
}

#[test]
fn on_the_tables() {
    assert!(run(|snapshot, ask| ask(&mut Sim::new(snapshot)?)) >= 56);
}

#[test]
fn on_the_userspace_server() {
    assert!(run(|snapshot, ask| ask(&mut Server::new(snapshot))) >= 60);
}

/// Law 1: the fast path may abstain, it may never disagree; and what it must answer it answers.
#[test]
fn bpf_in_the_kernel() {
    if !need_bpf() {
        return;
    }
    let mut program = ProgRun::load().unwrap();
    assert!(run(|snapshot, ask| ask(&mut Kernel::new(&mut program, snapshot)?)) >= 55);
}

/// Real packets from clients of everywhere to both paths.
#[test]
fn netns_over_the_wire() {
    if !need_netns() {
        return;
    }
    let mut laboratory = Laboratory::new();
    assert!(run(|snapshot, ask| ask(&mut laboratory.serve(snapshot)?)) >= 58);
}

/// A veth leaves between 0 and 63 octets behind a query, by its length: each length must be able to grow.
#[test]
fn netns_every_length_of_query_is_answered_by_the_fast_path() {
    if !need_netns() {
        return;
    }
    let names: Vec<String> = (1..=63).map(|len| format!("{}.len.test", "n".repeat(len))).collect();
    let text = format!(
        r#"
        [[zone]]
        name = "len.test"
        soa = {{ mname = "ns1.a-long-name-for-a-server.example.", rname = "hostmaster.example.", serial = 1, refresh = 1, retry = 1, expire = 1, minimum = 60 }}
        ns = ["ns1.example."]
        [[profile]]
        name = "all"
        names = {names:?}
        method = "priority"
        monitor = "off"
          [[profile.endpoint]]
          name = "one"
          address = ["192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.4"]
        "#
    );
    let none = std::collections::BTreeMap::<String, Vec<u8>>::new();
    let config = router_userspace::config::parse(&text, "len.toml", &none).unwrap();
    let mut laboratory = Laboratory::new();
    let mut live = laboratory.serve(snapshot(&config, &Default::default()).unwrap()).unwrap();
    for name in &names {
        for source in ["10.77.0.9", "fd77::9"] {
            for qtype in [1, 28] {
                let question = Question {
                    name: name.parse().unwrap(),
                    qtype,
                    asker: Asker { source: source.parse().unwrap(), ecs: None },
                };
                live.ask_times(&question, 2).unwrap();
            }
        }
    }
}

/// Changes an expectation so that it cannot be met.
type Damage = fn(&mut Expect);

/// The comparison itself: an expectation that is changed in one place is not met.
#[test]
fn a_wrong_expectation_is_not_met() {
    let damages: [Damage; 5] = [
        |expect| expect.rcode = "REFUSED".into(),
        |expect| expect.authority = Some("NS".into()),
        |expect| expect.scope = Some(99),
        |expect| {
            expect.shares.insert("A 192.0.2.250".into(), "1/2".into());
        },
        |expect| match expect.shares.pop_first() {
            Some((records, _)) => {
                expect.shares.insert(records, "1/5".into());
            }
            None => expect.authority = None,
        },
    ];
    for (file, scenario) in all() {
        let config = scenario.load().unwrap_or_else(|errors| panic!("{file}: {errors}"));
        for case in &scenario.cases {
            let mut subject = Decide::new(snapshot(&config, &case.state).unwrap());
            let answer = subject.ask(&case.ask.question().unwrap()).unwrap().unwrap();
            for damage in damages {
                let mut expect = case.expect.clone();
                damage(&mut expect);
                let differences = expect.differences(&answer, &Share::zero()).unwrap();
                assert!(!differences.is_empty(), "{file}: {}", case.why);
            }
        }
    }
}
