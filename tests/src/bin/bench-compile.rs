//! `cargo xtask bench compile`: how long it takes from a configuration of 100,000 names to tables in the
//! kernel, and from a verdict to the last word written. Prints figures beside goals; the argument is a file
//! for them in JSON.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use router_common::atlas::Atlas;
use router_common::compile::{Compiled, Room, compile};
use router_common::decide::Snapshot;
use router_common::diff::Operation;
use router_common::model::{EndpointId, Model, ProfileId, Target};
use router_common::plan::{self, Options};
use router_common::tables::Frontage;
use router_common::view::{Health, HealthView};
use router_tests::bench::estate::{Estate, NAMES, OWN, POOL, PROFILES};
use router_tests::bench::maps;
use router_tests::bench::report::{Order, Report, median, processor, timed};
use router_tests::prog_run::probe_bpf;
use router_tests::random::Rng;
use router_userspace::config::{self, Config};
use router_userspace::datapath::{Capacity, Datapath};

/// Runs of which the median is taken.
const RUNS: usize = 5;
const FULL: Duration = Duration::from_secs(5);
const ONE: Duration = Duration::from_millis(1);
const ALL: Duration = Duration::from_millis(100);
/// Where tor-geoipdb puts its tables.
const TABLES: &str = "/usr/share/tor";

fn main() -> Result<()> {
    let order = Order::from_command_line()?;
    let mut report = Report::new("The compiler at scale");
    let estate = Estate::new(Path::new(TABLES));
    report.note("country table", &estate.table);
    report.count("IPv4 prefixes of it", estate.prefixes[0] as u64);
    report.count("IPv6 prefixes of it", estate.prefixes[1] as u64);
    report.count("profiles", PROFILES as u64);
    report.count("names", (PROFILES * NAMES) as u64);

    let (load, config) = timed(|| config::parse(&estate.text, "bench.toml", &estate.files));
    let config = config.map_err(|errors| anyhow!("{errors}"))?;
    report.time("load (text and tables to model)", load, None);
    let model = Arc::new(config.model.clone());
    let health = Arc::new(healthy(&model));
    let mut times: [Vec<Duration>; 3] = Default::default();
    let mut made = None;
    for _ in 0..RUNS {
        drop(made.take());
        let (time, atlas) = timed(|| Atlas::build(&model, &config.geography, &config.latency));
        times[0].push(time);
        let snapshot = Snapshot { model: model.clone(), atlas: Arc::new(atlas), health: health.clone() };
        let (time, compiled) = timed(|| compiled(&snapshot));
        times[1].push(time);
        times[2].push(times[0][times[0].len() - 1] + time);
        made = Some((snapshot, compiled?));
    }
    let (mut snapshot, mut compiled) = made.context("nothing was compiled")?;
    let [atlas, compile, both] = times.map(median);
    report.time("atlas (overlay, classes, partitions)", atlas, None);
    report.time("compile (owners, answers, cells, prefixes)", compile, None);
    let tables = &compiled.tables;
    for (what, count) in [
        ("locations", u64::from(snapshot.atlas.locations())),
        ("prefixes in tables, IPv4", tables.locations4.len() as u64),
        ("prefixes in tables, IPv6", tables.locations6.len() as u64),
        ("owner slots", tables.owners.len() as u64),
        ("region words", tables.regions.len() as u64),
        ("answers", tables.answers.len() as u64),
        ("cells", tables.cells.len() as u64),
        ("lines", tables.lines.len() as u64),
    ] {
        report.count(what, count);
    }

    plans(&mut report, &config, &snapshot)?;

    let mut datapath = None;
    match probe_bpf() {
        Err(error) => {
            report.note("apply", &format!("left out, no BPF: {error:#}"));
            report.time("atlas and compile", both, Some(FULL));
        }
        Ok(()) => {
            let known = maps::known();
            let (first, made) = timed(|| Datapath::unattached(tables, &Capacity::for_tables(tables), &[]));
            let mut made = made?;
            report.time("load program, make maps, apply", first, None);
            let mut times = Vec::new();
            for _ in 0..RUNS {
                let (time, done) = timed(|| made.install(tables));
                done.map_err(|error| anyhow!("{error}"))?;
                times.push(time);
            }
            let apply = median(times);
            report.time("apply (whole generation into maps)", apply, None);
            report.time("atlas, compile and apply", both + apply, Some(FULL));
            let memory = maps::memory(&known)?;
            for (name, octets) in &memory {
                report.count(&format!("octets of map {name}"), *octets);
            }
            report.count("octets of all maps", memory.values().sum());
            datapath = Some(made);
        }
    }

    let own = named(&model, OWN.0, OWN.1)?;
    let mut verdicts = |what: &str, changed: &[EndpointId], goal, report: &mut Report| -> Result<()> {
        let mut times = Vec::new();
        let mut busy = Vec::new();
        let mut parts: [Vec<Duration>; 2] = Default::default();
        let mut count = BTreeMap::new();
        for round in 0..RUNS * 4 {
            let health = Arc::make_mut(&mut snapshot.health);
            for endpoint in changed {
                let verdict = if round % 2 == 0 { Health::Unhealthy } else { Health::Healthy };
                health.verdicts.insert(*endpoint, verdict);
            }
            let room = datapath.as_ref().map_or(Room::UNBOUNDED, |datapath| {
                let capacity = datapath.capacity();
                Room { cells: capacity.cells, lines: capacity.lines, tallies: capacity.tallies }
            });
            let before = processor();
            let (update, operations) = timed(|| compiled.update(&snapshot, changed, &room));
            let operations = operations.map_err(|error| anyhow!("{error}"))?;
            let (apply, applied) = timed(|| datapath.as_mut().map(|datapath| datapath.apply(&operations)));
            applied.transpose().map_err(|error| anyhow!("{error}"))?;
            busy.push(processor() - before);
            times.push(update + apply);
            parts[0].push(update);
            parts[1].push(apply);
            count = tally(&operations);
            if let Some(datapath) = &datapath {
                datapath.grace();
            }
            compiled.reclaim();
        }
        report.note(&format!("{what}: operations"), &format!("{count:?}"));
        let [update, apply] = parts.map(median);
        report.time(&format!("{what}: recompile"), update, None);
        report.time(&format!("{what}: write"), apply, None);
        report.time(&format!("{what}: processor time"), median(busy), None);
        report.time(&format!("{what}: to the last word"), median(times), goal);
        Ok(())
    };
    verdicts("a verdict seen by 1 profile", &[own], Some(ONE), &mut report)?;
    let shared = sharing(&model)?;
    verdicts(&format!("a verdict seen by {PROFILES} profiles"), &shared, Some(ALL), &mut report)?;

    report.write(&order)
}

fn compiled(snapshot: &Snapshot) -> Result<Compiled> {
    let frontage = Frontage {
        addresses: vec!["192.0.2.53".parse()?, "2001:db8::53".parse()?],
        edns_size: 1232,
        ..Frontage::default()
    };
    let mut keys = Rng::new(1);
    Ok(compile(snapshot, &frontage, || [keys.draw(), keys.draw()], 1)?)
}

/// What comparing two configurations takes: with one weight that changes, and with all of the world's geography
/// another.
fn plans(report: &mut Report, config: &Config, snapshot: &Snapshot) -> Result<()> {
    let compared = |after: &Snapshot, same_sources| {
        let options = Options { same_sources, queries: None };
        timed(|| plan::compare((&snapshot.model, snapshot), (&after.model, after), &options))
    };
    let (unchanged, found) = compared(snapshot, true);
    anyhow::ensure!(found.is_empty(), "a world differs from itself");
    report.time("plan, nothing changed", unchanged, None);
    let mut parts = snapshot.model.parts().clone();
    let pool = parts.profiles.iter_mut().find(|profile| profile.name == POOL).context("no pool")?;
    pool.endpoints.first_mut().context("no endpoint")?.weight += 1;
    let model = Model::new(parts).map_err(|faults| anyhow!("{faults:?}"))?;
    let model = Arc::new(model);
    let after = Snapshot { model, ..snapshot.clone() };
    let (pool, found) = compared(&after, true);
    anyhow::ensure!(found.traffic.steered.len() > PROFILES / 4, "few profiles nest the pool");
    report.time("plan, the pool that most profiles nest has another weight", pool, Some(FULL));
    let mut geography = config.geography.clone();
    // Every tenth prefix is in another country.
    let codes: Vec<_> = geography.overrides.iter().map(|&(_, code)| code).collect();
    for (at, (_, code)) in geography.overrides.iter_mut().enumerate().step_by(10) {
        *code = codes[(at + codes.len() / 2) % codes.len()];
    }
    let atlas = Arc::new(Atlas::build(&snapshot.model, &geography, &config.latency));
    let after = Snapshot { atlas, ..snapshot.clone() };
    let (moved, found) = compared(&after, false);
    anyhow::ensure!(!found.traffic.moved.is_zero(), "nobody moved");
    report.count("profiles that answer otherwise with another geography", found.traffic.steered.len() as u64);
    report.time("plan, a tenth of the prefixes is in another country", moved, Some(FULL));
    Ok(())
}

/// Every monitor says healthy.
fn healthy(model: &Model) -> HealthView {
    let ids = (0..).map(ProfileId).zip(model.profiles());
    let endpoints = ids.flat_map(|(profile, found)| {
        (0..found.endpoints.len() as u32).map(move |index| EndpointId { profile, index })
    });
    let verdicts = endpoints
        .filter(|&id| model.endpoint(id).monitor.is_some())
        .map(|id| (id, Health::Healthy))
        .collect();
    HealthView { verdicts, ..HealthView::default() }
}

fn named(model: &Model, profile: &str, endpoint: &str) -> Result<EndpointId> {
    let profile = model.profile_named(profile).context("no such profile")?;
    let index = model.profile(profile).endpoints.iter().position(|each| each.name == endpoint);
    Ok(EndpointId { profile, index: index.context("no such endpoint")? as u32 })
}

/// Every endpoint that is probed at the same target as the pool's first.
fn sharing(model: &Model) -> Result<Vec<EndpointId>> {
    let pool = model.endpoint(named(model, POOL, "a")?);
    let Target::Addresses { ipv4, .. } = &pool.target else { anyhow::bail!("the pool has no addresses") };
    let same = |target: &Target| matches!(target, Target::Addresses { ipv4: other, .. } if other == ipv4);
    let ids = (0..).map(ProfileId).zip(model.profiles());
    Ok(ids
        .flat_map(|(profile, found)| {
            (0u32..).zip(&found.endpoints).map(move |(index, each)| (EndpointId { profile, index }, each))
        })
        .filter(|(_, each)| same(&each.target))
        .map(|(id, _)| id)
        .collect())
}

fn tally(operations: &[Operation]) -> BTreeMap<&'static str, usize> {
    let mut count = BTreeMap::new();
    for operation in operations {
        let kind = match operation {
            Operation::WriteCredit { .. } => "credits",
            Operation::WriteLine { .. } => "lines",
            Operation::WriteCell { .. } => "cells",
            Operation::SetAnswer { .. } => "answers",
        };
        *count.entry(kind).or_default() += 1;
    }
    count
}
