//! `cargo xtask bench peers`: the same questions to xroute's fast path and to other DNS servers, each on one core, from the
//! same generator to the same sink; and how long an answer takes at a moderate rate. The agent is `XROUTE_BIN`, or beside
//! this program.

use std::path::Path;

use anyhow::Result;
use router_tests::bench::peers::lineup::{Lineup, Size};
use router_tests::bench::peers::race::{Plan, Race, greatest, rate, thrift};
use router_tests::bench::peers::rate::Search;
use router_tests::bench::peers::{OTHERS, Peer, XROUTE, XROUTE_USERSPACE, latency};
use router_tests::bench::report::{Figure, Order, Report};

/// Where tor-geoipdb puts its tables.
const TABLES: &str = "/usr/share/tor";
/// Answers a second, to the best peer on sockets and to Knot by AF_XDP.
const SOCKETS: f64 = 12.0;
const AF_XDP: f64 = 5.0;
/// The rate at which latency is measured, in queries a second: far from what any of them can.
const MODERATE: u32 = 20_000;

fn main() -> Result<()> {
    let order = Order::from_command_line()?;
    let mut report = Report::new("Beside other DNS servers");
    let plan = if order.quick {
        Plan {
            size: Size { names: 10_000, every: 10 },
            search: Search { first: 80_000, step: 1.6, patience: 2, seconds: 0.1 },
            rounds: 2,
            seconds: 0.4,
        }
    } else {
        Plan {
            size: Size { names: 100_000, every: 1 },
            search: Search { first: 60_000, step: 1.25, patience: 3, seconds: 0.3 },
            rounds: 7,
            seconds: 1.0,
        }
    };
    // Our server without XDP has a benchmark of its own.
    let ours: &[&'static Peer] = if order.quick { &[&XROUTE] } else { &[&XROUTE, &XROUTE_USERSPACE] };
    let peers: Vec<&'static Peer> = ours.iter().copied().chain(&OTHERS).collect();
    let mut lineup = Lineup::start(&peers, Path::new(TABLES), plan.size)?;
    lineup.tell(&mut report)?;

    report.section(&format!("Latency at {MODERATE} queries a second"));
    for server in &lineup.servers {
        let seconds = if order.quick { 1 } else { 4 };
        let found = latency::measure(server, &lineup.questions(), MODERATE, seconds, &lineup.cores)?;
        for (column, time) in [("half", found.p50), ("99 %", found.p99), ("99.9 %", found.p999)] {
            report.add(Figure::new(server.peer.name, time, "µs").column(column));
        }
        report.add(Figure::new(server.peer.name, found.lost * 100.0, "%").column("no answer"));
    }

    let race = Race::run(&mut lineup, &plan)?;
    report.section("Answers, with one core each");
    race.tell(&mut report);

    report.section("What xroute is to the others");
    let ours = XROUTE.name;
    let sockets = race.on_sockets();
    let add =
        |report: &mut Report, name: String, found: Option<[f64; 3]>, column: &str, goal: Option<f64>| {
            let Some([least, median, greatest]) = found else { return };
            let figure = Figure::new(name, median, "").column(column).spread(least, greatest);
            report.add(match goal {
                Some(goal) => figure.at_least(goal),
                None => figure,
            });
        };
    let both = |report: &mut Report, name: &str, theirs: &[&str], goal: Option<f64>| {
        add(report, name.into(), race.ratio(ours, theirs, rate, greatest), "answers a second", goal);
        add(
            report,
            name.into(),
            race.ratio(ours, theirs, thrift, greatest),
            "answers a second of core time",
            None,
        );
    };
    both(&mut report, "to the best peer on sockets", &sockets, Some(SOCKETS));
    for peer in &OTHERS {
        let goal = (peer.name == OTHERS[1].name).then_some(AF_XDP);
        both(&mut report, &format!("to {}", peer.name), &[peer.name], goal);
    }
    report.write(&order)
}
