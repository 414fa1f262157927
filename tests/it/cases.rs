//! Every case of every scenario on every subject.

use std::path::Path;

use anyhow::Result;
use router_common::decide::Snapshot;
use router_common::share::Share;
use router_tests::decide::Decide;
use router_tests::scenario::{self, Expect, Scenario};
use router_tests::sim::Sim;
use router_tests::subject::{Subject, snapshot};

fn all() -> Vec<(String, Scenario)> {
    scenario::all(&Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")).unwrap()
}

/// Runs every case on the subject that `build` makes of its snapshot, and returns how many it answered.
fn run(build: impl Fn(Snapshot) -> Result<Box<dyn Subject>>) -> usize {
    let mut faults = Vec::new();
    let mut answered = 0;
    for (file, scenario) in all() {
        let config = scenario.load().unwrap_or_else(|errors| panic!("{file}: {errors}"));
        assert!(!scenario.cases.is_empty(), "{file} has no cases");
        for case in &scenario.cases {
            let ask = || -> Result<Vec<String>> {
                let mut subject = build(snapshot(&config, &case.state)?)?;
                let question = case.ask.question()?;
                match subject.ask(&question)? {
                    Some(answer) => case.expect.differences(&answer, &subject.tolerance()),
                    None if subject.must_answer(&question) => Ok(vec!["it abstains".into()]),
                    None => Ok(vec![String::new()]),
                }
            };
            let found = ask().unwrap_or_else(|error| vec![format!("{error:#}")]);
            answered += usize::from(found.is_empty());
            for difference in found.iter().filter(|difference| !difference.is_empty()) {
                faults.push(format!("{file}: {} ({}): {difference}", case.why, case.ask.name));
            }
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    answered
}

#[test]
fn on_the_oracle() {
    assert!(run(|snapshot| Ok(Box::new(Decide::new(snapshot)))) >= 58);
}

#[test]
fn on_the_tables() {
    assert!(run(|snapshot| Ok(Box::new(Sim::new(snapshot)?))) >= 55);
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
