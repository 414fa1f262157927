//! What the benchmark beside other servers relies on: that they give the same answers to the same questions as xroute
//! does, and that what measures them measures.

use router_tests::bench::peers::ground::Cores;
use router_tests::bench::peers::lineup::Lineup;
use router_tests::bench::peers::rate::Rates;
use router_tests::bench::peers::{OTHERS, XROUTE};
use router_tests::netns::need_netns;

/// Networks of four parts of the world, and one inside another.
const TABLE: &str = "192.0.2.0/24,DE\n198.51.100.0/24,US\n203.0.113.0/24,JP\n100.100.0.0/16,BR\n100.100.7.0/24,SA\n\
    2001:db8::/32,FR\n";

#[test]
fn netns_another_server_gives_the_answers_of_the_fast_path() {
    if !need_netns() {
        return;
    }
    let there = OTHERS.iter().filter(|peer| peer.find().is_some());
    // One that knows geography, when there is one.
    let Some(other) = there.max_by_key(|peer| peer.geography) else {
        println!("none of the other servers is there: nothing to compare with");
        return;
    };
    if let Err(error) = Cores::choose() {
        println!("{error}: nothing was compared");
        return;
    }
    let mut lineup = Lineup::on(&[&XROUTE, other], TABLE, 200).expect("both answer");
    assert!(lineup.missing.is_empty(), "{:?}", lineup.missing);
    let compared = lineup.compare().expect("equal answers");
    println!("{}: {compared} answers", other.name);
    assert_eq!(compared, 2 * 5 * 40);

    let mut rates = Rates::new(&mut lineup, 1 << 10).expect("the flood is there");
    for server in &lineup.servers {
        let sample = rates.measure(server, Some(10_000), 0.2).expect("it is measured");
        assert!(sample.rate > 0.0 && sample.wrong == 0, "{}: {sample:?}", server.peer.name);
        assert!(sample.cost() > 0.0, "{}: {sample:?}", server.peer.name);
    }
}
