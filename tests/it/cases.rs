//! Every case of every scenario on every subject.

use std::path::Path;

use anyhow::Result;
use router_common::decide::Snapshot;
use router_tests::decide::Decide;
use router_tests::scenario;
use router_tests::subject::{Subject, snapshot};

/// Runs every case on the subject that `build` makes of its snapshot, and returns how many it answered.
fn run(build: impl Fn(Snapshot) -> Result<Box<dyn Subject>>) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let mut faults = Vec::new();
    let mut answered = 0;
    for (file, scenario) in scenario::all(&folder).unwrap() {
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
