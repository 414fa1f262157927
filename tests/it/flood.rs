//! The flood of the benchmarks: that it floods, and that its sink tells right answers from wrong ones.

use std::net::Ipv4Addr;

use router_tests::bench::flood::{Ask, Flood, Load, Rule};
use router_tests::bench::lab::{Lab, processors};
use router_tests::netns::need_netns;
use router_tests::packet::{Query, rtype};

/// Queries of names of different lengths, from different sources, of all three forms.
fn asks() -> Vec<Ask> {
    (0..1000u32)
        .map(|at| {
            let name = format!("{}.service{at}.example.test", "h".repeat(1 + at as usize % 12));
            let plain = Query::new(&name, rtype::A);
            let query = match at % 3 {
                0 => plain,
                1 => plain.edns(1232),
                _ => plain.edns(1232).ecs(&format!("198.{}.100.0/24", at % 256)),
            };
            Ask { query, source: Ipv4Addr::from_bits(0x0a80_0000 + at * 77), records: (1, 1) }
        })
        .collect()
}

#[test]
fn netns_a_flood_comes_back_from_the_reflector() {
    if !need_netns() {
        return;
    }
    let cpu = *processors().last().expect("a processor");
    let lab = Lab::new().expect("a lab");
    let asks = asks();
    let mut flood = Flood::load(asks.len(), |number| Ok(asks[number].clone()), cpu).expect("it loads");
    flood.attach_sink(&lab).expect("the sink is attached");
    flood.attach_reflector(&lab).expect("the reflector is attached");
    let whole = Load { unsampled: 0, ..Load::full(5000) };
    let outcome = flood.run(&lab, Rule::Reflected, &whole).expect("it runs");
    println!("{outcome:?}");
    assert_eq!((outcome.sent, outcome.wrong()), (5000, 0), "{outcome:?}");
    assert_eq!(outcome.lost(), 0, "{outcome:?}");
    assert!(outcome.right > 4000, "{outcome:?}");
}
