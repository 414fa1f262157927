//! `cargo xtask bench flood`: answers a second of the program in a veth, to what a program reaches there that only
//! swaps addresses. Generator, program and sink share one processor; what the sink finds wrong is a missed goal.

use std::path::Path;

use anyhow::{Context, Result};
use router_tests::bench::contest::{Contest, Tally, contest};
use router_tests::bench::estate::{Estate, NAMES, PROFILES};
use router_tests::bench::flood::{Flood, Load};
use router_tests::bench::lab::{Lab, processors};
use router_tests::bench::report::{Figure, Goal, Order, Report};
use router_tests::bench::serving::{Form, Serving};

/// Where tor-geoipdb puts its tables.
const TABLES: &str = "/usr/share/tor";
/// Answers to a reflector's with 100,000 names and a country table, and with 1,000,000 and 2,000,000 prefixes.
const REAL: Goal = Goal::AtLeast(0.85);
const LARGE: Goal = Goal::AtLeast(0.80);
/// Profiles of the large one, and names of each: a configuration may have 64 MiB.
const LARGE_SIZE: [usize; 2] = [50_000, 20];
/// Queries of a set for the one and for the other; a set is sent again and again.
const REAL_SET: usize = 1 << 18;
const LARGE_SET: usize = 1 << 20;
/// And of one for which the caches have room.
const FEW: usize = 64;

fn main() -> Result<()> {
    let order = Order::from_command_line()?;
    let mut report = Report::new("Answers a second over veth");
    let cpu = *processors().last().context("no processor")?;
    let estate = Estate::new(Path::new(TABLES));
    report.section(&format!(
        "{} names, country table of {} prefixes ({})",
        PROFILES * NAMES,
        estate.prefixes.iter().sum::<usize>(),
        estate.table
    ));
    let serving = Serving::new(&estate)?;
    drop(estate);
    let forms: &[_] = match order.quick {
        true => &[(Form::Subnet, Some(REAL))],
        false => &[(Form::Bare, None), (Form::Edns, None), (Form::Subnet, Some(REAL))],
    };
    measure(&mut report, &serving, forms, REAL_SET, cpu, order.quick)?;
    if !order.quick {
        drop(serving);
        let estate = Estate::made_up(LARGE_SIZE, [1_150_000, 850_000]);
        report.section(&format!(
            "{} names, country table of {} prefixes",
            LARGE_SIZE[0] * LARGE_SIZE[1],
            estate.prefixes.iter().sum::<usize>()
        ));
        let serving = Serving::new(&estate)?;
        drop(estate);
        measure(&mut report, &serving, &[(Form::Subnet, Some(LARGE))], LARGE_SET, cpu, false)?;
    }
    report.write(&order)
}

fn measure(
    report: &mut Report,
    serving: &Serving,
    forms: &[(Form, Option<Goal>)],
    set: usize,
    cpu: usize,
    quick: bool,
) -> Result<()> {
    let (ours, mirror) = (Lab::new()?, Lab::new()?);
    let _responder = serving.start(&ours)?;
    for &(form, goal) in forms {
        let mut flood = Flood::load(set, |number| serving.ask(form, number), cpu)?;
        flood.attach_sink(&ours)?;
        flood.attach_sink(&mirror)?;
        flood.attach_reflector(&mirror)?;
        let load = Load::full(1 << 17);
        let found = contest(&mut flood, [&ours, &mirror], &load, if quick { 3 } else { 9 })?;
        let what = match form {
            Form::Bare => "A",
            Form::Edns => "A, EDNS",
            Form::Subnet => "A, EDNS, client subnet",
        };
        tell(report, what, goal, &found);
    }
    // The same with what it reads in the caches: the rest of the difference is the memory's.
    let mut flood = Flood::load(FEW, |number| serving.ask(Form::Subnet, number), cpu)?;
    flood.attach_sink(&ours)?;
    flood.attach_sink(&mirror)?;
    flood.attach_reflector(&mirror)?;
    let found = contest(&mut flood, [&ours, &mirror], &Load::full(1 << 17), 3)?;
    tell(report, &format!("A, EDNS, client subnet, the same {FEW} queries"), None, &found);
    Ok(())
}

fn tell(report: &mut Report, what: &str, goal: Option<Goal>, found: &Contest) {
    let figure = Figure::new(what, found.ratio, "")
        .column("to the reflector")
        .base("the reflector's answers a second, in the same run")
        .spread(found.least, found.greatest);
    report.add(match goal {
        Some(goal) => figure.goal(goal),
        None => figure,
    });
    let [ours, mirror] = found.time;
    report.add(Figure::new(what, 1e3 / ours, "M/s").column("answers"));
    report.add(Figure::new(what, 1e3 / mirror, "M/s").column("reflected"));
    report.add(Figure::new(what, ours - mirror, "ns").column("over the reflector"));
    let sum = |of: fn(&Tally) -> u64| found.tally.iter().map(of).sum::<u64>();
    report.add(Figure::new(what, sum(|tally| tally.right) as f64, "").column("right"));
    report.add(Figure::new(what, sum(|tally| tally.wrong) as f64, "").column("wrong").at_most(0.0));
    report.add(Figure::new(what, sum(|tally| tally.overflow) as f64, "").column("dropped by full queues"));
    report.add(Figure::new(what, sum(|tally| tally.lost) as f64, "").column("lost otherwise").at_most(0.0));
    for [name, text] in &found.remarks {
        report.note(name, text);
    }
}
