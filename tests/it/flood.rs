//! The flood of the benchmarks: that it floods, and that its sink tells right answers from wrong ones.

use std::net::Ipv4Addr;

use router_tests::bench::estate::Estate;
use router_tests::bench::flood::{Ask, Flood, Load, Outcome, Pace, Rule, Verdict};
use router_tests::bench::lab::{Lab, SERVICE, processors};
use router_tests::bench::serving::{Form, Serving};
use router_tests::need_bpf;
use router_tests::netns::need_netns;
use router_tests::packet::{Checksum, Frame, Query, parse, rtype};

/// Queries of names of different lengths, from different sources, of all three forms.
fn ask(number: usize) -> Ask {
    let name = format!("{}.service{number}.example.test", "h".repeat(1 + number % 12));
    let plain = Query::new(&name, rtype::A);
    let query = match number % 3 {
        0 => plain,
        1 => plain.edns(1232),
        _ => plain.edns(1232).ecs(&format!("198.{}.100.0/24", number % 256)),
    };
    Ask { query, source: Ipv4Addr::from_bits(0x0c80_0000 + number as u32 * 77), records: (1, 2) }
}

fn cpu() -> usize {
    *processors().last().expect("a processor")
}

/// Few, and each looked at whole.
const FEW: Load = Load { unsampled: 0, ..Load::full(5000) };

#[track_caller]
fn all_right(outcome: &Outcome) {
    assert_eq!((outcome.sent, outcome.wrong(), outcome.lost()), (5000, 0, 0), "{outcome:?}");
    assert!(outcome.right > 4000, "{outcome:?}");
}

#[test]
fn netns_a_flood_comes_back_from_the_reflector_and_is_no_answer() {
    if !need_netns() {
        return;
    }
    let lab = Lab::new().expect("a lab");
    let mut flood = Flood::load(1000, |number| Ok(ask(number)), cpu()).expect("it loads");
    flood.attach_sink(&lab).expect("the sink is attached");
    flood.attach_reflector(&lab).expect("the reflector is attached");
    all_right(&flood.run(&lab, Rule::Reflected, &FEW).expect("it runs"));
    let outcome = flood.run(&lab, Rule::Answered, &FEW).expect("it runs");
    assert_eq!((outcome.right, outcome.lost()), (0, 0), "{outcome:?}");
    assert_eq!(outcome.verdicts[Verdict::Flags as usize], outcome.wrong(), "{outcome:?}");
}

#[test]
fn netns_a_flood_is_paced() {
    if !need_netns() {
        return;
    }
    let lab = Lab::new().expect("a lab");
    let mut flood = Flood::load(1000, |number| Ok(ask(number)), cpu()).expect("it loads");
    flood.attach_sink(&lab).expect("the sink is attached");
    flood.attach_reflector(&lab).expect("the reflector is attached");
    let pace = Pace { rate: 20_000, burst: 10 };
    let paced = Load { pace: Some(pace), packets: 1 << 20, ..FEW };
    let outcome = flood.run(&lab, Rule::Reflected, &paced).expect("it runs");
    assert_eq!((outcome.wrong(), outcome.lost()), (0, 0), "{outcome:?}");
    let most = outcome.elapsed.as_secs_f64() * f64::from(pace.rate) + 2.0 * f64::from(pace.burst);
    // A machine that does other things sends less, never more.
    assert!(outcome.right > 100 && outcome.sent as f64 <= most, "{outcome:?}, at most {most}");
}

#[test]
fn netns_a_flood_is_answered_right_by_the_program() {
    if !need_netns() {
        return;
    }
    let serving = Serving::new(&Estate::made_up([12, 10], [300, 100])).expect("it compiles");
    let lab = Lab::new().expect("a lab");
    let responder = serving.start(&lab).expect("it is attached");
    for form in [Form::Bare, Form::Edns, Form::Subnet] {
        let mut flood = Flood::load(1024, |number| serving.ask(form, number), cpu()).expect("it loads");
        flood.attach_sink(&lab).expect("the sink is attached");
        all_right(&flood.run(&lab, Rule::Answered, &FEW).expect("it runs"));
    }
    let counters = responder.datapath().expect("it runs").counters().expect("counters");
    assert!(counters[0] > 12_000, "the program answered {}", counters[0]);
}

/// The answer to a query that was sent, one record, as a frame that can be changed.
fn answer(sent: &[u8]) -> Frame {
    let query = parse(sent).expect("a query");
    let source = match query.source {
        std::net::IpAddr::V4(source) => source,
        std::net::IpAddr::V6(_) => panic!("an IPv6 source"),
    };
    let mut payload = query.payload.clone();
    payload[2] |= 0x84;
    payload[7] = 1;
    // In front of the OPT record, when there is one.
    let end = if payload[11] == 1 { payload.len() - 11 } else { payload.len() };
    payload.splice(end..end, [0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 192, 0, 2, 1]);
    let mut frame = Frame::ipv4(SERVICE, source, payload);
    (frame.to, frame.from) = (query.from, query.to);
    (frame.udp.source, frame.udp.destination) = (query.ports.1, query.ports.0);
    frame
}

#[test]
fn bpf_the_sink_of_a_flood_finds_what_is_wrong() {
    if !need_bpf() {
        return;
    }
    let mut flood = Flood::load(1000, |number| Ok(ask(number)), cpu()).expect("it loads");
    for number in [0, 1, 3, 4, 511, 999] {
        let sent = flood.frame(number).expect("a frame");
        let good = answer(&sent);
        let mut says = |frame: Frame| flood.judge(Rule::Answered, &frame.bytes()).expect("it runs");
        assert_eq!(says(good.clone()), Verdict::Right, "{number}");
        let payload = |change: &dyn Fn(&mut Vec<u8>)| good.with(|frame| change(&mut frame.payload));
        for (frame, verdict) in [
            (good.with(|frame| frame.udp.source = 5353), Verdict::Other),
            (good.with(|frame| frame.v4().protocol = 6), Verdict::Other),
            (good.with(|frame| frame.to[5] ^= 1), Verdict::Headers),
            (good.with(|frame| frame.from[0] ^= 2), Verdict::Headers),
            (good.with(|frame| frame.udp.len = Some(20)), Verdict::Headers),
            (good.with(|frame| frame.v4().total_len = Some(400)), Verdict::Headers),
            (good.with(|frame| frame.udp.destination ^= 1), Verdict::Unasked),
            (payload(&|payload| payload[1] ^= 1), Verdict::Unasked),
            (good.with(|frame| frame.v4().destination = Ipv4Addr::new(12, 1, 1, 1)), Verdict::Unasked),
            (payload(&|payload| payload[3] |= 2), Verdict::Flags),
            (payload(&|payload| payload[2] &= 0x7f), Verdict::Flags),
            (payload(&|payload| payload[7] = 0), Verdict::Counts),
            (payload(&|payload| payload[7] = 3), Verdict::Counts),
            (payload(&|payload| payload[5] = 2), Verdict::Counts),
            (good.with(|frame| frame.v4().checksum = Some(0x1234)), Verdict::Checksum),
            (good.with(|frame| frame.udp.checksum = Checksum::Is(0x1234)), Verdict::Checksum),
            (payload(&|payload| payload[13] ^= 0x20), Verdict::Question),
            (payload(&|payload| payload[20] ^= 0x20), Verdict::Question),
            (payload(&|payload| *question_end(payload) ^= 1), Verdict::Question),
        ] {
            assert_eq!(says(frame.clone()), verdict, "{number}: {frame:?}");
        }
        let reflected = Frame { payload: parse(&sent).expect("a query").payload, ..good.clone() };
        let judged = flood.judge(Rule::Reflected, &reflected.bytes()).expect("it runs");
        assert_eq!(judged, Verdict::Right);
        let judged = flood.judge(Rule::Reflected, &good.bytes()).expect("it runs");
        assert_eq!(judged, Verdict::Flags);
    }
}

/// The last octet of QCLASS.
fn question_end(payload: &mut [u8]) -> &mut u8 {
    let name = payload[12..].iter().position(|&octet| octet == 0).expect("the root");
    &mut payload[12 + name + 4]
}
