use std::sync::Arc;

use router_common::atlas::Atlas;
use router_common::decide::Snapshot;
use router_common::view::{Geography, HealthView, Latency};

use super::*;
use crate::config;
use crate::datapath::{Tallied, Tallies};

const NOW: Duration = Duration::from_secs(1_700_000_000);
/// `CLOCK_MONOTONIC` at [`NOW`].
const MONOTONIC: u64 = 5_000_000_000_000;
const TTL: Duration = Duration::from_secs(30);

fn model(weight: u16) -> Model {
    let text = format!(
        r#"
[[zone]]
name = "x.test"
soa = {{ mname = "ns.y.", rname = "h.y.", serial = 1, refresh = 1, retry = 1, expire = 1, minimum = 1 }}
ns = ["ns.y."]
[[profile]]
name = "www"
names = ["www.x.test"]
method = "weighted"
monitor = "off"
[[profile.endpoint]]
name = "a"
address = ["192.0.2.1"]
weight = {weight}
[[profile.endpoint]]
name = "b"
address = ["192.0.2.2"]
"#
    );
    let files = BTreeMap::<String, Vec<u8>>::new();
    config::parse(&text, "c.toml", &files).expect("a configuration").model
}

fn answers(saved: Option<Saved>, fast: Option<&Tallies>) -> Answers {
    let mut answers = Answers::resume(saved, fast, NOW);
    answers.learn(&model(3));
    answers
}

fn reading<'a>(fast: Option<&'a Tallies>, userspace: &'a dns::Registry) -> Reading<'a> {
    Reading { fast, userspace, now: NOW, monotonic: MONOTONIC }
}

/// So many answers with `www/a`, the last so many seconds ago, with a TTL of 30 s.
fn counted(count: u64, ago: u64) -> datapath::Totals {
    let last = MONOTONIC - ago * 1_000_000_000;
    let until = last + 30_000_000_000;
    datapath::Totals::from([(endpoint_hash("www", "a"), Tallied { answers: count, last, until })])
}

fn mark(serial: u64) -> Mark {
    Mark { seed: 7, serial }
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn what_generations_counted_is_one_sum_and_the_longest_ttl_counts() {
    let answers = answers(None, None);
    let mut fast = Tallies { folded: counted(5, 10), live: counted(2, 8), ..Tallies::default() };
    // The older generation had a longer TTL.
    fast.folded.values_mut().for_each(|tallied| tallied.until += 300_000_000_000);
    let registry = dns::Registry::default();
    let totals = answers.totals(&reading(Some(&fast), &registry));
    let total = totals["www/a"];
    assert_eq!((total.fast, total.userspace), (7, 0));
    assert_eq!((total.last, total.until), (Some(NOW - seconds(8)), Some(NOW + seconds(320))));
    assert_eq!(totals.len(), 1);
}

#[test]
fn nothing_is_counted_twice_or_lost_over_a_restart() {
    let registry = dns::Registry::default();
    let fast = Tallies {
        folded: counted(5, 40),
        live: counted(2, 8),
        mark: Some(mark(4)),
        marks: vec![mark(3)],
        lost: false,
    };
    let first = answers(None, None);
    for (ended, marks, expected) in [
        // Its maps were found, and have counted on.
        (None, vec![mark(3), mark(4)], 5 + 3),
        (Some(Ended::Attached), vec![mark(3), mark(4)], 5 + 3),
        // They were not: what it had counted when it ended.
        (Some(Ended::Detached), vec![], 5 + 2),
        (None, vec![], 5 + 2),
    ] {
        let saved = first.kept(&reading(Some(&fast), &registry), ended);
        let found = !marks.is_empty();
        let folded = if found { counted(3, 1) } else { datapath::Totals::new() };
        let next = Tallies { folded, live: datapath::Totals::new(), mark: Some(mark(5)), marks, lost: false };
        let resumed = answers(Some(saved), Some(&next));
        let totals = resumed.totals(&reading(Some(&next), &registry));
        assert_eq!(totals["www/a"].fast, expected, "{ended:?} {found}");
        let last = if found { 1 } else { 8 };
        assert_eq!(totals["www/a"].last, Some(NOW - seconds(last)));
        let killed = ended.is_none();
        assert_eq!(resumed.gap.is_some(), killed, "{ended:?} {found}");
    }
}

#[test]
fn an_endpoint_is_safe_when_its_last_answer_has_expired() {
    let mut answers = answers(None, None);
    answers.since = NOW - seconds(1000);
    assert_eq!(answers.drained("www/a", &Totals::new(), TTL, true), None, "it is not being drained");
    answers.draining(["www/a", "www/b"].into_iter(), NOW);
    let fast = Tallies { live: counted(2, 12), ..Tallies::default() };
    let registry = dns::Registry::default();
    let totals = answers.totals(&reading(Some(&fast), &registry));
    let drained = answers.drained("www/a", &totals, TTL, true).expect("it is being drained");
    assert_eq!((drained.out, drained.safe), (NOW, NOW + seconds(18)));
    assert!(!drained.still && !drained.unsure);
    // One that was never answered with can go at once.
    let drained = answers.drained("www/b", &totals, TTL, true).expect("it is being drained");
    assert_eq!(drained.safe, NOW);
    // Answers that are not counted may have been given until it was out of them.
    let drained = answers.drained("www/b", &totals, TTL, false).expect("it is being drained");
    assert_eq!((drained.safe, drained.unsure), (NOW + TTL, true));
    // Drained again it stays out since then; put back it is out no more.
    answers.draining(["www/a"].into_iter(), NOW + seconds(5));
    assert_eq!(answers.drained("www/a", &totals, TTL, true).expect("still").out, NOW);
    assert_eq!(answers.drained("www/b", &totals, TTL, true), None);
}

#[test]
fn one_that_is_still_answered_with_is_told_of_and_counts_anew() {
    let mut answers = answers(None, None);
    answers.since = NOW - seconds(1000);
    answers.draining(["www/a"].into_iter(), NOW - seconds(60));
    let fast = Tallies { live: counted(2, 1), ..Tallies::default() };
    let registry = dns::Registry::default();
    let totals = answers.totals(&reading(Some(&fast), &registry));
    let drained = answers.drained("www/a", &totals, TTL, true).expect("it is being drained");
    assert!(drained.still);
    assert_eq!(drained.safe, NOW + seconds(29));
}

#[test]
fn what_nobody_counted_is_assumed_as_late_as_it_can_have_been() {
    let registry = dns::Registry::default();
    let mut first = answers(None, None);
    first.since = NOW - seconds(1000);
    first.draining(["www/a"].into_iter(), NOW - seconds(70));
    let saved = first.kept(&reading(None, &registry), None);
    let saved = Saved { written: saved.written - 60_000, ..saved };
    let mut killed = answers(Some(saved), None);
    killed.draining(["www/a", "www/b"].into_iter(), NOW);
    // It was out of the answers before the file was written.
    let drained = killed.drained("www/a", &Totals::new(), TTL, true).expect("it is being drained");
    assert_eq!((drained.safe, drained.unsure), (NOW - seconds(70), false));
    // The other one may have been answered with until the agent was killed.
    let drained = killed.drained("www/b", &Totals::new(), TTL, true).expect("it is being drained");
    assert_eq!((drained.safe, drained.unsure), (NOW + TTL, true));
    // Without any file nothing is known of the time before.
    let mut anew = answers(None, None);
    anew.draining(["www/a"].into_iter(), NOW + seconds(10));
    let drained = anew.drained("www/a", &Totals::new(), TTL, true).expect("it is being drained");
    assert_eq!((drained.safe, drained.unsure), (NOW + TTL, true));
}

#[test]
fn shares_are_of_the_answers_since_others_were_expected() {
    let snapshot = |weight| {
        let model = Arc::new(model(weight));
        let atlas = Arc::new(Atlas::build(&model, &Geography::default(), &Latency::default()));
        Snapshot { model, atlas, health: Arc::new(HealthView::default()) }
    };
    let totals = |a: u64, b: u64| {
        let total = |fast| Total { fast, ..Total::default() };
        Totals::from([(String::from("www/a"), total(a)), (String::from("www/b"), total(b))])
    };
    let mut shares = Shares::default();
    shares.expect(&snapshot(3), || totals(100, 0));
    let of = |shares: &Shares, a, b| -> Vec<(f64, Option<f64>)> {
        let standings = shares.standings("www", &totals(a, b));
        standings.iter().map(|standing| (standing.expected, standing.share)).collect()
    };
    assert_eq!(of(&shares, 100, 0), [(0.75, None), (0.25, None)]);
    assert_eq!(of(&shares, 170, 30), [(0.75, Some(0.7)), (0.25, Some(0.3))]);
    shares.expect(&snapshot(3), || panic!("nothing has changed"));
    shares.expect(&snapshot(1), || totals(170, 30));
    assert_eq!(of(&shares, 175, 35), [(0.5, Some(0.5)), (0.5, Some(0.5))]);
    assert_eq!(shares.standings("other", &totals(1, 1)), []);
}

#[test]
fn the_file_is_read_as_it_was_written() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = kept::path(&folder.path().join("new"));
    assert_eq!(kept::read(&path).expect("no file is none"), None);
    let fast = Tallies { live: counted(2, 8), mark: Some(mark(4)), ..Tallies::default() };
    let mut first = answers(None, None);
    first.draining(["www/a"].into_iter(), NOW);
    let registry = dns::Registry::default();
    let saved = first.kept(&reading(Some(&fast), &registry), Some(Ended::Attached));
    kept::write(&path, &saved).expect("writable");
    assert_eq!(kept::read(&path).expect("readable"), Some(saved.clone()));
    kept::write(&path, &Saved { version: 9, ..saved }).expect("writable");
    assert!(kept::read(&path).is_err());
}
