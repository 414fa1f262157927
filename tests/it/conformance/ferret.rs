//! The Ferret data set: 3,169 zones full of wildcards, delegations, CNAMEs and DNAMEs, and what BIND, NSD, Knot and
//! PowerDNS answered.

use std::fs;
use std::process::{Command, Output};

use router_tests::netns::Pair;
use router_tests::python;

use super::{Laboratory, shared};

/// How many zones, each with one query.
const QUERIES: u64 = 3169;

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// How many of each outcome, in the line that the tool ends with: `{'ok-consensus': 2518, …}`.
fn outcomes(printed: &str) -> Vec<(String, u64)> {
    let line = printed.lines().find(|line| line.starts_with("{'")).expect("a line of outcomes");
    let pairs = line.trim_matches(['{', '}']).split(", ");
    pairs
        .map(|pair| {
            let (name, count) = pair.split_once(": ").expect("an outcome and its count");
            (name.trim_matches('\'').to_owned(), count.parse().expect("a count"))
        })
        .collect()
}

#[test]
fn netns_ferret_finds_every_answer_right() {
    let Some(laboratory) = Laboratory::new() else { return };
    let (python, tool, data) =
        (python::having("dns.message"), shared("ferret_run.py"), shared("ferret-part.jsonl.gz"));
    let made = Command::new(python).arg(&tool).arg("gen").arg(&data).arg(laboratory.folder.path()).output();
    text(&made.expect("Python starts"));
    let list = fs::read_to_string(laboratory.folder.path().join("zones.list")).expect("a list");
    let zones: String = list
        .lines()
        .map(|line| {
            let (number, name) = line.split_once(' ').expect("number and name");
            format!("[[zone]]\nname = \"{name}\"\nfile = \"zones/{number}.zone\"\n")
        })
        .collect();
    let agent = laboratory.start("", &zones);
    for transport in [&[][..], &["--tcp"]] {
        let ran = laboratory
            .pair
            .client
            .command(python)
            .arg(&tool)
            .arg("run")
            .arg(&data)
            .args(["--server", Pair::SERVER_ADDRESSES[0], "--level", "authority"])
            .args(transport)
            .output();
        let printed = text(&ran.expect("Python starts"));
        let outcomes = outcomes(&printed);
        assert!(outcomes.iter().all(|(name, _)| name.starts_with("ok-")), "{transport:?}: {printed}");
        assert_eq!(outcomes.iter().map(|(_, count)| count).sum::<u64>(), QUERIES, "{printed}");
    }
    agent.terminate();
}
