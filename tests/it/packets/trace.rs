//! What is copied for those who read queries along, and that nothing is when nobody does.

use router_common::abi::{Control, NAME_WORDS};
use router_common::counter::Counter;
use router_common::lookup::Client;
use router_common::trace::{QUERY_FRAME, Rule};
use router_tests::need_bpf;
use router_tests::packet::{Frame, Query, rtype, wire_name};
use router_tests::prog_run::{Copied, action, jit_is_on, rule};

use super::fixture::{Builder, CLIENT4, CLIENT6, Fixture, VLANS, standard, v4, v6};

const ANSWERS: [Counter; 2] = [Counter::AnswerRecords, Counter::AnswerNodata];

fn traced(rules: &[Rule]) -> Fixture {
    let mut fixture = Fixture::standard();
    fixture.run.trace(rules).unwrap();
    fixture
}

/// Runs frames; what was copied.
fn copies(fixture: &mut Fixture, frames: &[Frame]) -> Vec<Copied> {
    for frame in frames {
        fixture.run.run(&frame.bytes()).unwrap();
    }
    fixture.run.copies().unwrap()
}

fn names(copies: &[Copied]) -> Vec<Counter> {
    copies.iter().map(Copied::outcome).collect()
}

#[test]
fn bpf_a_copy_is_the_query_and_the_reply_octet_for_octet() {
    if !need_bpf() {
        return;
    }
    let mut fixture = traced(&[rule(&ANSWERS)]);
    let plain = Query::new("wWw.example.test", rtype::A);
    let nodata = Query::new("v4only.example.test", rtype::AAAA).edns(1232);
    let subnet = Query::new("www.example.test", rtype::AAAA).edns(4096).ecs("203.0.113.0/24");
    let tags = [vec![], vec![(0x8100, VLANS[0])], vec![(0x88a8, VLANS[1]), (0x8100, VLANS[0])]];
    for (query, outcome) in [
        (&plain, Counter::AnswerRecords),
        (&nodata, Counter::AnswerNodata),
        (&subnet, Counter::AnswerRecords),
    ] {
        for frame in [v4(query), v6(query)] {
            for tags in &tags {
                let frame = frame.with(|frame| frame.tags = tags.clone()).bytes();
                let (run, moved) = fixture.observe(&frame);
                assert_eq!((run.action, moved), (action::TX, vec![(outcome, 1)]));
                let [copy] = &fixture.run.copies().unwrap()[..] else { panic!("one copy") };
                assert_eq!((&copy.query, &copy.reply), (&frame, &run.frame));
                assert_eq!((copy.outcome(), copy.head.rules, copy.head.interface), (outcome, 1, 1));
                assert!(copy.head.time > 0);
            }
        }
    }
}

#[test]
fn bpf_the_largest_query_and_reply_are_copied_whole() {
    if !need_bpf() {
        return;
    }
    let mut tables = Builder::new(64);
    let addresses: Vec<_> = (0..57).map(|i| super::fixture::a([192, 0, 2, i])).collect();
    let cell = tables.records(&addresses);
    let name = ["n".repeat(63), "o".repeat(63), "p".repeat(63), "q".repeat(40)].join(".") + ".example.test";
    tables.simple(&name, cell, cell);
    let mut fixture = tables.start();
    fixture.run.trace(&[rule(&ANSWERS)]).unwrap();
    let query = Query::new(&name, rtype::A).edns(1232);
    let padding = 512 - query.bytes().len() - 4;
    let query = query.option(12, &vec![0; padding]);
    assert_eq!(query.bytes().len(), 512);
    let tags = vec![(0x88a8, VLANS[1]), (0x8100, VLANS[0])];
    let frame = v6(&query).with(|frame| frame.tags = tags).bytes();
    let (run, _) = fixture.observe(&frame);
    assert_eq!(run.action, action::TX);
    let [copy] = &fixture.run.copies().unwrap()[..] else { panic!("one copy") };
    assert_eq!((&copy.query, &copy.reply), (&frame, &run.frame));
    assert!(copy.reply.len() > 1200);
}

#[test]
fn bpf_nothing_is_copied_when_nobody_reads() {
    if !need_bpf() {
        return;
    }
    let mut fixture = traced(&[rule(&ANSWERS)]);
    let frame = v4(&Query::new("www.example.test", rtype::A));
    assert_eq!(copies(&mut fixture, std::slice::from_ref(&frame)).len(), 1);
    // A rule that is off; one that has lapsed, as a dead agent's does; none looked at.
    for rule in [Rule { threshold: 0, ..rule(&ANSWERS) }, Rule { deadline: 0, ..rule(&ANSWERS) }] {
        fixture.run.trace(&[rule]).unwrap();
        assert_eq!(copies(&mut fixture, std::slice::from_ref(&frame)), []);
    }
    fixture.run.trace(&[rule(&ANSWERS)]).unwrap();
    fixture.run.set_control(Control::new(0, Control::READY, u32::MAX));
    assert_eq!(copies(&mut fixture, &[frame]), []);
    assert_eq!(fixture.run.missed(0).unwrap(), (0, 0));
}

#[test]
fn bpf_what_passes_is_copied_when_it_is_asked_for_and_passes_untouched() {
    if !need_bpf() {
        return;
    }
    let mut fixture = traced(&[rule(&[Counter::PassType, Counter::PassTrailing]), rule(&ANSWERS)]);
    let query = Query::new("www.example.test", 15);
    let frame = v4(&query).bytes();
    fixture.passed("MX", &frame, Counter::PassType);
    let [copy] = &fixture.run.copies().unwrap()[..] else { panic!("one copy") };
    assert_eq!((&copy.query, copy.reply.len(), copy.head.rules), (&frame, 0, 1));
    // Not asked for, and answered: the other rule's.
    fixture.passed("HS", &v4(&query.with(|query| query.qclass = 4)).bytes(), Counter::PassClass);
    let answered = copies(&mut fixture, &[v6(&Query::new("www.example.test", rtype::A))]);
    assert_eq!((names(&answered), answered[0].head.rules), (vec![Counter::AnswerRecords], 2));
    // Longer than what is copied: cut short.
    let long = Query::new("www.example.test", rtype::A).edns(1232).option(12, &[0; 440]);
    let mut payload = long.bytes();
    payload.resize(512, 0);
    let frame = v6(&long).with(|frame| frame.payload = payload).bytes();
    let frame = [frame, vec![0; 100]].concat();
    fixture.passed("trailing octets", &frame, Counter::PassTrailing);
    let [copy] = &fixture.run.copies().unwrap()[..] else { panic!("one copy") };
    assert_eq!(copy.query, frame[..QUERY_FRAME]);
}

#[test]
fn bpf_rules_choose_by_name_client_and_type() {
    if !need_bpf() {
        return;
    }
    let named = |name: &str, exact: bool| {
        let octets = wire_name(name);
        let mut words = [0; NAME_WORDS];
        for (word, chunk) in words.iter_mut().zip(octets.chunks(8)) {
            let mut padded = [0; 8];
            padded[..chunk.len()].copy_from_slice(chunk);
            *word = u64::from_le_bytes(padded);
        }
        Rule { name: words, name_len: octets.len() as u8, exact: exact.into(), ..rule(&ANSWERS) }
    };
    let within = |client: Client, mask: Client| Rule {
        family: client.family,
        client: client.words(),
        mask: mask.words(),
        ..rule(&ANSWERS)
    };
    let [a, b, ..] = CLIENT4.octets();
    let v4_net = within(Client::ipv4([a, b, 0, 0]), Client::ipv4([255, 255, 0, 0]));
    let mut ones = [0; 16];
    ones[..6].fill(0xff);
    let mut net = CLIENT6.octets();
    net[6..].fill(0);
    let v6_net = within(Client::ipv6(net), Client::ipv6(ones));
    let subnet = within(Client::ipv4([203, 0, 113, 0]), Client::ipv4([255, 255, 255, 0]));

    let www = Query::new("WWW.example.test", rtype::A).edns(1232);
    let aaaa = Query::new("www.example.test", rtype::AAAA).edns(1232);
    let alias = Query::new("alias.example.test", rtype::A).edns(1232).ecs("203.0.113.0/24");
    let frames = [v4(&www), v6(&www), v4(&aaaa), v4(&alias)];
    for (what, rule, expected) in [
        ("exact", named("www.example.test", true), [true, true, true, false]),
        ("exact, and that is longer", named("example.test", true), [false; 4]),
        ("below", named("example.test", false), [true; 4]),
        ("itself", named("www.example.test", false), [true, true, true, false]),
        ("longer than asked for", named("a.very.long.www.example.test", false), [false; 4]),
        ("not at a label", named("s.example.test", false), [false; 4]),
        ("IPv4 source", v4_net, [true, false, true, true]),
        ("IPv6 source", v6_net, [false, true, false, false]),
        ("subnet", subnet, [false, false, false, true]),
        ("A", Rule { types: Rule::A, ..self::rule(&ANSWERS) }, [true, true, false, true]),
        ("AAAA", Rule { types: Rule::AAAA, ..self::rule(&ANSWERS) }, [false, false, true, false]),
        ("no outcome", Rule { outcomes: 0, ..self::rule(&ANSWERS) }, [false; 4]),
    ] {
        let mut fixture = traced(&[rule]);
        for (frame, expected) in frames.iter().zip(expected) {
            let copied = copies(&mut fixture, std::slice::from_ref(frame)).len() == 1;
            assert_eq!(copied, expected, "{what}: {frame:?}");
        }
    }
    // Several rules: each is told apart.
    let mut fixture = traced(&[named("alias.example.test", true), rule(&ANSWERS), Rule::OFF, subnet]);
    let rules: Vec<u16> = copies(&mut fixture, &frames).iter().map(|copy| copy.head.rules).collect();
    assert_eq!(rules, [0b0010, 0b0010, 0b0010, 0b1011]);
}

#[test]
fn bpf_shares_limits_and_a_full_ring_are_counted() {
    if !need_bpf() {
        return;
    }
    let frame = v4(&Query::new("www.example.test", rtype::A));
    let octets = frame.bytes();
    let run = |fixture: &Fixture, count: usize| {
        for _ in 0..count {
            assert_eq!(fixture.run.run(&octets).unwrap().action, action::TX);
        }
    };
    // Half of them: seven standard deviations.
    let mut fixture = traced(&[Rule { threshold: 1 << 31, ..rule(&ANSWERS) }]);
    run(&fixture, 4000);
    let copied = fixture.run.copies().unwrap().len();
    assert!((1780..2220).contains(&copied), "{copied} of 4000");

    // Ten in each window and on each CPU; the rest is counted.
    let mut fixture = traced(&[Rule { per_window: 10, ..rule(&ANSWERS) }]);
    run(&fixture, 2000);
    let copied = fixture.run.copies().unwrap().len() as u64;
    let (withheld, lost) = fixture.run.missed(0).unwrap();
    assert_eq!((copied + withheld, lost), (2000, 0));
    assert!(copied >= 10 && withheld > 0, "{copied}");

    // Nobody empties the ring: answers go on, and each copy is there or counted.
    let mut fixture = traced(&[rule(&ANSWERS)]);
    run(&fixture, 9000);
    let (withheld, lost) = fixture.run.missed(0).unwrap();
    let copied = fixture.run.copies().unwrap().len() as u64;
    assert!(lost > 0 && copied > 1000, "{copied} copied, {lost} lost");
    assert_eq!((withheld, copied + lost), (0, 9000));
    // And there is room again.
    assert_eq!(copies(&mut fixture, &[frame]).len(), 1);
}

#[test]
fn bpf_what_a_copy_costs() {
    if !need_bpf() {
        return;
    }
    if !jit_is_on() {
        println!("SKIPPED bpf: without the JIT compiler nothing can be measured");
        return;
    }
    let mut fixture = standard().start();
    let frame = v4(&Query::new("www.example.test", rtype::A).edns(1232)).bytes();
    let sampled = |threshold| Rule { threshold, ..rule(&ANSWERS) };
    for (what, rules) in [
        ("off", None),
        ("on, no rule", Some([Rule::OFF])),
        ("one in a thousand", Some([sampled((1 << 32) / 1000)])),
        ("lapsed", Some([Rule { deadline: 0, ..rule(&ANSWERS) }])),
        ("over the limit", Some([Rule { per_window: 0, ..rule(&ANSWERS) }])),
        ("every one, the ring full", Some([rule(&ANSWERS)])),
    ] {
        if let Some(rules) = rules {
            fixture.run.trace(&rules).unwrap();
        }
        let cost = fixture.run.cost(&frame, action::TX, 2_000, 40).unwrap();
        println!("A, EDNS, trace {what}: {:.0} ns (harness {:.0} ns)", cost.program, cost.harness);
        assert!(cost.program < 3_000.0, "{what}: {cost:?}");
    }
}
