//! `cargo xtask bench prog`: what one query costs in the XDP program over an empty one, by `BPF_PROG_TEST_RUN`: by
//! case, by number of names and by number of prefixes; names and sources are drawn from all there are. Everything
//! that is compared is measured in turn, round after round.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use router_common::atlas::Atlas;
use router_common::compile::compile;
use router_common::decide::Snapshot;
use router_common::tables::Frontage;
use router_common::view::HealthView;
use router_tests::bench::cases::{Case, Queries};
use router_tests::bench::estate::{Estate, NAMES, PROFILES};
use router_tests::bench::interpreter::Interpreter;
use router_tests::bench::plot::{self, Series};
use router_tests::bench::report::{Figure, Order, Report};
use router_tests::bench::world::{Size, World};
use router_tests::prog_run::replay::{Replay, Target};
use router_tests::prog_run::{ProgRun, action, jit_is_on};
use router_tests::random::Rng;
use router_userspace::config;
use router_userspace::datapath::{Capacity, Datapath};

/// Where tor-geoipdb puts its tables.
const TABLES: &str = "/usr/share/tor";
/// The sizes that all cases are measured at. One name is one of each kind.
const COLUMNS: [Size; 3] = [size(1, 1_000), USUAL, size(1_000_000, 2_000_000)];
const USUAL: Size = size(100_000, 500_000);
/// By names, over the usual prefixes, and by prefixes, under the usual names.
const NAMES_AXIS: [usize; 4] = [1, 1_000, 100_000, 1_000_000];
const PREFIXES_AXIS: [usize; 4] = [1_000, 50_000, 500_000, 2_000_000];
/// Goals, in nanoseconds, octets, and as a ratio.
const USUAL_GOAL: f64 = 70.0;
const SLOWEST_GOAL: f64 = 150.0;
const GROWTH_GOAL: f64 = 1.5;
const MEMORY_GOAL: f64 = 100e6;

const fn size(names: usize, prefixes: usize) -> Size {
    Size { names, prefixes }
}

fn main() -> Result<()> {
    let order = Order::from_command_line()?;
    ensure!(jit_is_on(), "the BPF JIT compiler is off: figures would say nothing (net.core.bpf_jit_enable)");
    go_first();
    let extent = if order.quick { Extent::QUICK } else { Extent::WHOLE };
    let mut report = Report::new("One query in the XDP program");
    let mut bench = Bench { rows: Vec::new(), counts: Vec::new(), datapaths: Vec::new(), extent };

    report.section("What is measured");
    report.paragraph(
        "The program's time for a query by `BPF_PROG_TEST_RUN`, less the time of the same harness with a program that \
         only says `XDP_TX`. Each figure is the median of the rounds, in brackets the least and the greatest. Names, \
         sources and ECS networks are drawn from all there are.",
    );
    report.count("different frames of each case", extent.frames as u64);
    report.count("rounds, in each of which every case is measured once", extent.rounds as u64);
    let columns = if order.quick { &[USUAL][..] } else { &COLUMNS };
    for size in columns {
        bench.add(*size, &Case::ALL, &mut report)?;
    }
    if order.quick {
        bench.add(COLUMNS[0], &[Case::USUAL], &mut report)?;
    } else {
        for names in NAMES_AXIS {
            bench.add(Size { names, ..USUAL }, &[Case::USUAL], &mut report)?;
        }
        for prefixes in PREFIXES_AXIS {
            bench.add(Size { prefixes, ..USUAL }, &[Case::USUAL], &mut report)?;
        }
    }
    bench.measure()?;
    bench.report_cases(&mut report);
    if !order.quick {
        bench.report_growth(&order, &mut report)?;
    }
    bench.report_counts(&mut report);
    drop(bench);
    of_the_program(&mut report)?;
    memory(&mut report)?;
    report.write(&order)
}

/// Before other processes: what else runs is to be measured as little as possible.
fn go_first() {
    // SAFETY: plain values; a refusal only makes the figures noisier.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, -19) };
}

/// Stays on the last core, so that caches are its own.
fn stay() {
    // SAFETY: a set of cores is integers, for which zero is a value; it outlives the call. A refusal only makes the
    // figures noisier.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        let cores = libc::sysconf(libc::_SC_NPROCESSORS_ONLN).max(1) as usize;
        libc::CPU_SET(cores - 1, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// How much is done.
#[derive(Clone, Copy)]
struct Extent {
    frames: usize,
    rounds: usize,
}

impl Extent {
    const WHOLE: Self = Self { frames: 1 << 14, rounds: 9 };
    const QUICK: Self = Self { frames: 1 << 12, rounds: 5 };
}

/// One case at one size.
struct Row {
    size: Size,
    case: Case,
    replay: Replay,
    /// Nanoseconds of the program with the harness, and of the harness.
    rounds: Vec<[f64; 2]>,
}

/// Instructions of one case.
struct Count {
    name: &'static str,
    /// Each of some queries: instructions, calls of helpers.
    queries: Vec<[f64; 2]>,
}

impl Count {
    /// So many queries are counted.
    const QUERIES: usize = 64;

    fn of(case: &Case, queries: &Queries<'_>, datapath: &Datapath) -> Result<Self> {
        let mut interpreter = Interpreter::new(datapath)?;
        let count = |number: usize| -> Result<[f64; 2]> {
            let took = interpreter.run(&queries.frames[number])?;
            ensure!(took.action == action::TX, "{}: interpreted, it ends in {}", case.name, took.action);
            queries.check(number, &took.frame)?;
            Ok([took.instructions as f64, took.helpers.values().sum::<u64>() as f64])
        };
        let numbers = 0..Self::QUERIES.min(queries.frames.len());
        Ok(Self { name: case.name, queries: numbers.map(count).collect::<Result<_>>()? })
    }
}

struct Bench {
    rows: Vec<Row>,
    counts: Vec<Count>,
    /// Each holds its maps.
    datapaths: Vec<Datapath>,
    extent: Extent,
}

impl Bench {
    /// Builds a world and verifies the answers to all queries; what is there already is left.
    fn add(&mut self, size: Size, cases: &[Case], report: &mut Report) -> Result<()> {
        if self.rows.iter().any(|row| row.size == size) {
            return Ok(());
        }
        let world = World::new(size)?;
        let datapath = world.datapath()?;
        let octets: u64 = datapath.memory().iter().map(|map| map.octets).sum();
        report.add(Figure::new(format!("maps, {}", title(size)), octets as f64 / 1e6, "MB"));
        for case in cases {
            let queries = case.queries(&world, self.extent.frames)?;
            queries.verify(datapath.program())?;
            if size == USUAL {
                self.counts.push(Count::of(case, &queries, &datapath)?);
            }
            let replay = Replay::new(datapath.program(), &queries.frames)?;
            self.rows.push(Row { size, case: *case, replay, rounds: Vec::new() });
        }
        self.datapaths.push(datapath);
        Ok(())
    }

    fn measure(&mut self) -> Result<()> {
        stay();
        let mut rng = Rng::new(1);
        let count = self.extent.frames as u32;
        // The first round warms up.
        for round in 0..=self.extent.rounds {
            for row in &mut self.rows {
                let mut time = |target| -> Result<f64> {
                    let first = rng.below(count as usize);
                    Ok(row.replay.time(target, first, count)?.as_nanos() as f64)
                };
                let times = [time(Target::Program)?, time(Target::Empty)?];
                if round > 0 {
                    row.rounds.push(times);
                }
            }
        }
        Ok(())
    }

    fn row(&self, size: Size, case: Case) -> Option<&Row> {
        self.rows.iter().find(|row| row.size == size && row.case == case)
    }

    fn report_cases(&self, report: &mut Report) {
        report.section("Nanoseconds over an empty program, by case");
        for size in &COLUMNS {
            for row in self.rows.iter().filter(|row| row.size == *size) {
                let figure = row.figure(row.case.name).column(title(*size));
                let judged = row.case == Case::USUAL && *size == USUAL;
                report.add(if judged { figure.at_most(USUAL_GOAL) } else { figure });
            }
        }
        let of_columns = self.rows.iter().filter(|row| COLUMNS.contains(&row.size));
        if let Some(slowest) = of_columns.max_by(|a, b| a.cost().total_cmp(&b.cost())) {
            let name = format!("the slowest: {}, {}", slowest.case.name, title(slowest.size));
            report.add(slowest.figure(&name).at_most(SLOWEST_GOAL));
        }
        let empty = self.rows.iter().flat_map(|row| row.rounds.iter().map(|round| round[1]));
        let (harness, spread) = middle(empty.collect());
        report.add(Figure::new("the harness alone", harness, "ns").spread(spread[0], spread[1]));
    }

    fn report_counts(&self, report: &mut Report) {
        report.section("Instructions executed for a query, at the usual size");
        for count in &self.counts {
            for (at, column) in ["BPF instructions", "calls of helpers"].into_iter().enumerate() {
                let (value, [least, greatest]) =
                    middle(count.queries.iter().map(|query| query[at]).collect());
                report.add(Figure::new(count.name, value, "").column(column).spread(least, greatest));
            }
        }
    }

    fn report_growth(&self, order: &Order, report: &mut Report) -> Result<()> {
        report.section("Cost against size");
        let axes = [
            (
                "names, under 500,000 prefixes of each family",
                NAMES_AXIS.map(|names| (names, Size { names, ..USUAL })),
            ),
            (
                "prefixes of each family, over 100,000 names",
                PREFIXES_AXIS.map(|prefixes| (prefixes, Size { prefixes, ..USUAL })),
            ),
        ];
        let mut plotted = Vec::new();
        for (title, sizes) in axes {
            let rows: Vec<(usize, &Row)> = sizes
                .into_iter()
                .map(|(count, size)| {
                    Ok((count, self.row(size, Case::USUAL).context("a size was not measured")?))
                })
                .collect::<Result<_>>()?;
            let points = rows.iter().map(|(count, row)| (*count as f64, row.cost())).collect();
            plotted.push(Series { title: title.into(), points });
            if let [(_, small), .., (_, large)] = rows[..] {
                let growth = growth(small, large);
                report.add(growth(&format!("most to fewest {title}")).at_most(GROWTH_GOAL));
            }
        }
        let ends = COLUMNS.first().zip(COLUMNS.last());
        if let Some((small, large)) = ends
            && let (Some(small), Some(large)) = (self.row(*small, Case::USUAL), self.row(*large, Case::USUAL))
        {
            report.add(growth(small, large)("both at once"));
        }
        report.block(&plot::text(&plotted, "ns"));
        if let Some(file) = &order.file {
            let picture = file.with_file_name("prog.svg");
            fs::write(&picture, plot::svg(&plotted, "ns for A + EDNS"))
                .with_context(|| format!("cannot write {}", picture.display()))?;
            report.picture("prog.svg", "Nanoseconds of A + EDNS against the number of names and of prefixes");
        }
        Ok(())
    }
}

impl Row {
    fn costs(&self) -> Vec<f64> {
        self.rounds.iter().map(|[program, empty]| program - empty).collect()
    }

    fn cost(&self) -> f64 {
        middle(self.costs()).0
    }

    fn figure(&self, name: &str) -> Figure {
        let (cost, [least, greatest]) = middle(self.costs());
        Figure::new(name, cost, "ns").spread(least, greatest).base("over the harness with an empty program")
    }
}

/// What the same query costs in a large world to a small one, by rounds.
fn growth(small: &Row, large: &Row) -> impl Fn(&str) -> Figure {
    let ratios = large.costs().iter().zip(small.costs()).map(|(large, small)| large / small).collect();
    let (ratio, [least, greatest]) = middle(ratios);
    move |name| Figure::new(name, ratio, "").spread(least, greatest).base("ns to ns, the same rounds")
}

/// The median, the least and the greatest.
fn middle(mut values: Vec<f64>) -> (f64, [f64; 2]) {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    (at(values.len() / 2), [at(0), at(values.len().saturating_sub(1))])
}

fn title(size: Size) -> String {
    let apart = |count: usize| match count {
        1 => "1 name".to_owned(),
        _ => format!("{} names", thousands(count)),
    };
    format!("{} and {} prefixes", apart(size.names), thousands(size.prefixes))
}

fn thousands(count: usize) -> String {
    match count {
        _ if count >= 1_000_000 => {
            format!("{},{:03},{:03}", count / 1_000_000, count / 1000 % 1000, count % 1000)
        }
        _ if count >= 1000 => format!("{},{:03}", count / 1000, count % 1000),
        _ => count.to_string(),
    }
}

/// What the kernel says of the program.
fn of_the_program(report: &mut Report) -> Result<()> {
    report.section("The program");
    let program = ProgRun::load()?;
    match program.verified_instructions() {
        Ok(count) => report.count("instructions that the verifier walked", count.into()),
        Err(error) => report.note("instructions that the verifier walked", &format!("{error:#}")),
    }
    let (translated, jitted) = program.sizes()?;
    report.count("instructions of the program", (translated / 8).into());
    report.count("octets of machine code", jitted.into());
    Ok(())
}

/// What maps cost for the estate of `bench compile`: 100,000 names of all methods, a country table of the real world.
fn memory(report: &mut Report) -> Result<()> {
    report.section("Memory of maps: 100,000 names over a country table of the real world");
    let estate = Estate::new(Path::new(TABLES));
    report.note("country table", &estate.table);
    report.count("names", (PROFILES * NAMES) as u64);
    report.count("prefixes of countries, IPv4", estate.prefixes[0] as u64);
    report.count("prefixes of countries, IPv6", estate.prefixes[1] as u64);
    let config =
        config::parse(&estate.text, "bench.toml", &estate.files).map_err(|errors| anyhow!("{errors}"))?;
    let atlas = Atlas::build(&config.model, &config.geography, &config.latency);
    let health = HealthView::default().into();
    let snapshot = Snapshot { model: config.model.into(), atlas: atlas.into(), health };
    let frontage = Frontage { edns_size: 1232, ..Frontage::default() };
    let mut keys = Rng::new(1);
    let tables = compile(&snapshot, &frontage, || [keys.draw(), keys.draw()], 1)?.tables;
    let mut memory = Datapath::unattached(&tables, &Capacity::for_tables(&tables), &[])?.memory();
    let all: u64 = memory.iter().map(|map| map.octets).sum();
    report.add(
        Figure::new("all maps, both halves with head-room", all as f64 / 1e6, "MB")
            .at_most(MEMORY_GOAL / 1e6),
    );
    memory.sort_by_key(|map| std::cmp::Reverse(map.octets));
    for map in memory.iter().take(8) {
        report.add(Figure::new(format!("map {}", map.name), map.octets as f64 / 1e6, "MB"));
    }
    Ok(())
}
