//! What a query costs. Bounds are loose: they catch a mistake, not a slow machine.

use router_common::abi::Cell;
use router_tests::need_bpf;
use router_tests::packet::{Query, rtype};
use router_tests::prog_run::{action, jit_is_on};

use super::fixture::{Builder, a, standard, v4, v6};

/// Instructions that the verifier may walk through: a quarter of what it allows.
const BUDGET: u32 = 250_000;

#[test]
fn bpf_the_verifier_needs_less_than_its_budget() {
    if !need_bpf() {
        return;
    }
    let used = standard().start().run.verified_instructions().unwrap();
    println!("verifier: {used} instructions");
    assert!(used < BUDGET, "{used} instructions");
}

#[test]
fn bpf_what_a_query_costs() {
    if !need_bpf() {
        return;
    }
    if !jit_is_on() {
        println!("SKIPPED bpf: without the JIT compiler nothing can be measured");
        return;
    }
    let mut tables = Builder::new(64);
    let uncounted = tables.records(&[a([192, 0, 2, 10])]);
    let cell = Cell { detail: 1, ..uncounted };
    tables.simple("few.gslb.example.test", uncounted, uncounted);
    tables.simple("www.gslb.example.test", cell, cell);
    tables.location("0.0.0.0/0", 0, 0);
    tables.location("198.51.0.0/16", 1, 0);
    let partition = tables.partition(&[0, 0]);
    let block = [[tables.always(cell), tables.always(cell)]];
    tables.name("geo.gslb.example.test", partition, 0, &block);
    let fixture = tables.start();
    let plain = Query::new("www.gslb.example.test", rtype::A);
    let edns = plain.clone().edns(1232);
    let few = Query::new("few.gslb.example.test", rtype::A).edns(1232);
    let located = Query::new("geo.gslb.example.test", rtype::A).edns(1232).ecs("198.51.100.0/24");
    let unknown = Query::new("nowhere.example.test", rtype::A).edns(1232);
    let foreign = v4(&edns).with(|f| f.v4().protocol = 6);
    for (what, frame, expected) in [
        ("A", v4(&plain), action::TX),
        ("A, EDNS", v4(&edns), action::TX),
        ("A, EDNS, in no tally", v4(&few), action::TX),
        ("A, EDNS, IPv6", v6(&edns), action::TX),
        ("A, EDNS, client subnet, location", v4(&located), action::TX),
        ("unknown name, EDNS", v4(&unknown), action::PASS),
        ("a TCP segment", foreign, action::PASS),
    ] {
        let cost = fixture.run.cost(&frame.bytes(), expected, 2_000, 40).unwrap();
        println!("{what}: {:.0} ns (harness {:.0} ns)", cost.program, cost.harness);
        assert!(cost.program < 2_000.0, "{what}: {cost:?}");
    }
}
