//! `cargo xtask bench userspace`: our server without XDP beside other DNS servers on sockets, each on one core, from the
//! same generator to the same sink. The agent is `XROUTE_BIN`, or beside this program.

use std::path::Path;

use anyhow::Result;
use router_tests::bench::peers::lineup::{Lineup, Size};
use router_tests::bench::peers::race::{Plan, Race, middle, rate, thrift};
use router_tests::bench::peers::rate::Search;
use router_tests::bench::peers::{OTHERS, Peer, Way, XROUTE_STATIC, XROUTE_USERSPACE};
use router_tests::bench::report::{Figure, Order, Report};

/// Where tor-geoipdb puts its tables.
const TABLES: &str = "/usr/share/tor";

fn main() -> Result<()> {
    let order = Order::from_command_line()?;
    let mut report = Report::new("The userspace server beside others on sockets");
    let plan = if order.quick {
        Plan {
            size: Size { names: 2_000, every: 100 },
            search: Search { first: 80_000, step: 1.6, patience: 1, seconds: 0.1 },
            rounds: 1,
            seconds: 0.3,
        }
    } else {
        Plan {
            size: Size { names: 100_000, every: 1 },
            search: Search { first: 60_000, step: 1.25, patience: 2, seconds: 0.2 },
            rounds: 5,
            seconds: 0.8,
        }
    };
    let ours: [&'static Peer; 2] = [&XROUTE_USERSPACE, &XROUTE_STATIC];
    let others = OTHERS.iter().filter(|peer| peer.way == Way::Sockets);
    let peers: Vec<&'static Peer> = ours.into_iter().chain(others).collect();
    let mut lineup = Lineup::start(&peers, Path::new(TABLES), plan.size)?;
    lineup.tell(&mut report)?;

    let race = Race::run(&mut lineup, &plan)?;
    report.section("Answers, with one core each");
    race.tell(&mut report);
    report.section("What ours is to the median of the others");
    let sockets = race.on_sockets();
    for peer in ours {
        if let Some([least, median, greatest]) = race.ratio(peer.name, &sockets, rate, middle) {
            let figure =
                Figure::new(peer.name, median, "").column("answers a second").spread(least, greatest);
            report.add(figure.at_least(1.0));
        }
        if let Some([least, median, greatest]) = race.ratio(peer.name, &sockets, thrift, middle) {
            let column = "answers a second of core time";
            report.add(Figure::new(peer.name, median, "").column(column).spread(least, greatest));
        }
    }
    report.write(&order)
}
