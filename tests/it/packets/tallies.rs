//! Answers are counted by whom they come, and the last one's time is noted.

use std::time::Duration;

use router_common::abi::{Cell, NONE, Pick};
use router_common::counter::Counter;
use router_tests::need_bpf;
use router_tests::packet::{Query, rtype};
use router_userspace::datapath::monotonic;

use super::fixture::{Builder, a, ready, v4, v6};

/// A jiffy of a slow kernel, and what a loaded machine adds.
const NEAR: Duration = Duration::from_millis(100);

#[test]
fn bpf_an_answer_moves_the_tally_of_its_cell_and_no_other() {
    if !need_bpf() {
        return;
    }
    let mut tables = Builder::new(64);
    let first = Cell { detail: 5, ..tables.records(&[a([192, 0, 2, 1])]) };
    let second = Cell { detail: 6, ..tables.records(&[a([192, 0, 2, 2])]) };
    let many: Vec<_> = (0..9).map(|last| a([192, 0, 2, last])).collect();
    let long = Cell { detail: 7, ..tables.records(&many) };
    let uncounted = tables.records(&[a([192, 0, 2, 3])]);
    // Its detail says where names end, which is no tally.
    let nodata = tables.nodata_in_the_zone("ns1", "hostmaster");
    tables.simple("one.gslb.example.test", first, nodata);
    tables.simple("long.gslb.example.test", long, nodata);
    tables.simple("uncounted.gslb.example.test", uncounted, nodata);
    let both = [[tables.answer(Pick::Random, 0, vec![first, second]); 2]];
    tables.name("both.gslb.example.test", NONE, 0, &both);
    let mut fixture = tables.start();
    let all = |fixture: &super::fixture::Fixture, half| -> Vec<u64> {
        (0..64).map(|tally| fixture.run.tally(half, tally).expect("it is read").0).collect()
    };
    let query = |name: &str, rtype| Query::new(&format!("{name}.gslb.example.test"), rtype).edns(1232);

    let one = query("one", rtype::A);
    let before = Duration::from_nanos(monotonic());
    fixture.answered(&v4(&one), &one);
    fixture.answered(&v6(&one), &one);
    let (answers, last) = fixture.run.tally(0, 5).expect("it is read");
    let last = Duration::from_nanos(last);
    assert_eq!(answers, 2);
    assert!(
        before.saturating_sub(NEAR) <= last && last <= Duration::from_nanos(monotonic()),
        "{before:?} {last:?}"
    );

    let long = query("long", rtype::A);
    fixture.answered(&v4(&long), &long);
    let mut expected = vec![0; 64];
    (expected[5], expected[7]) = (2, 1);
    assert_eq!(all(&fixture, 0), expected);

    // What is not handed out is not counted: NODATA, what passes, what is nobody's.
    for (name, rtype) in [("one", rtype::AAAA), ("long", rtype::AAAA)] {
        let query = query(name, rtype);
        fixture.answered_as(&v4(&query), &query, &[(Counter::AnswerNodata, 1)]);
    }
    let uncounted = query("uncounted", rtype::A);
    fixture.answered(&v4(&uncounted), &uncounted);
    fixture.passed("another type", &v4(&query("one", rtype::TXT)).bytes(), Counter::PassType);
    assert_eq!(all(&fixture, 0), expected);

    // The other half has tallies of its own.
    fixture.run.install(1, &tables.image).expect("it fits");
    fixture.run.set_control(ready(1));
    let both = query("both", rtype::A);
    for _ in 0..200 {
        fixture.run.run(&v4(&both).bytes()).expect("it runs");
    }
    assert_eq!(all(&fixture, 0), expected);
    let counted = all(&fixture, 1);
    assert_eq!(counted.iter().sum::<u64>(), 200);
    assert_eq!(counted[5] + counted[6], 200);
}
