//! What `/v1/status` tells.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use router_common::counter::Counter;

use super::serving::Serving;
use super::telling::Telling;
use super::{changes, keeping};
use crate::clock::unix_now;
use crate::control::{
    DnstapReport, FastPathReport, FillReport, InterfaceReport, LeaseReport, MapReport, ProbesReport,
    StatusReport, TraceReport,
};
use crate::datapath::{Attached, Datapath, MapMemory};
use crate::dns::ServerReport;
use crate::dnstap::State;
use crate::metrics::Scrape;
use crate::probe::{NextProbe, Stats};

/// Serial number of the serving generation.
pub(super) fn generation(serving: &Serving) -> u64 {
    let compiled = serving.agent.compiled().tables.generation.serial;
    serving.datapath.as_ref().map_or(compiled, Datapath::active_generation)
}

/// Everything.
pub(super) fn report(serving: &Serving) -> StatusReport {
    let Serving { agent, datapath, counts, engine, feeds, reloads, .. } = serving;
    let now = unix_now();
    let mut profiles = agent.profiles(now, &|target| {
        engine.next_probe(target).map(|next| match next {
            NextProbe::Now => Duration::ZERO,
            NextProbe::In(time) => time,
        })
    });
    serving.add_answers(&mut profiles);
    let fast = datapath.as_ref().map(Datapath::counters).and_then(Result::ok).unwrap_or_default();
    let counters: BTreeMap<String, u64> = Counter::ALL
        .iter()
        .enumerate()
        .map(|(i, &counter)| {
            (counter.name().to_string(), fast.get(i).copied().unwrap_or(0) + counts.get(counter))
        })
        .collect();
    StatusReport {
        version: env!("CARGO_PKG_VERSION").to_string(),
        pid: std::process::id(),
        uptime_seconds: serving.started.elapsed().as_secs(),
        generation: generation(serving),
        loaded_at: serving.loaded_at.as_secs(),
        generation_age_seconds: now.saturating_sub(serving.loaded_at).as_secs(),
        config: serving.config.display().to_string(),
        held: serving.keeping.held().map(|held| keeping::differs(held, &serving.config)),
        reloading: reloads.is_busy(),
        last_reload_error: reloads.last_error.clone(),
        reloads: reloads.counts,
        data: feeds.reports(now),
        listen: agent.settings().listen.iter().map(ToString::to_string).collect(),
        interfaces: datapath
            .as_ref()
            .map(|datapath| datapath.interfaces().iter().map(interface).collect())
            .unwrap_or_default(),
        fast_path: datapath.as_ref().map(|datapath| fast_path(serving, datapath)),
        counters,
        server: ServerReport::of(counts),
        failover: serving.telling.clock.report,
        events: serving.telling.stream.report(),
        probes: probes(&engine.stats()),
        trace: TraceReport {
            readers: counts.readers().readers(),
            tally: counts.readers().totals(),
            dnstap: serving.tap.output().map(|output| {
                let State { open, frames, error } = output.state();
                DnstapReport { target: output.settings().target.to_string(), open, frames, error }
            }),
        },
        api: serving.doors.iter().map(|door| door.report()).collect(),
        overrides: changes::report(agent, now),
        profiles,
    }
}

/// What metrics are rendered from.
pub(super) fn scrape(serving: &Serving) -> Scrape {
    let Telling { figures, .. } = &serving.telling;
    Scrape { report: report(serving), figures: Arc::clone(figures), probes: serving.engine.durations() }
}

/// Lease, fill and memory of the fast path.
fn fast_path(serving: &Serving, datapath: &Datapath) -> FastPathReport {
    let tables = &serving.agent.compiled().tables;
    let capacity = datapath.capacity();
    let fill = |table: &str, used: usize, capacity: u32| FillReport {
        table: table.to_owned(),
        used: used as u64,
        capacity: u64::from(capacity),
    };
    let owners = tables.owners.iter().filter(|owner| owner.name_len > 0).count();
    FastPathReport {
        half: datapath.active_half(),
        lease: LeaseReport {
            left_ms: u64::try_from(datapath.lease_left().as_millis()).unwrap_or(u64::MAX),
            late_renewals: serving.telling.late,
        },
        fill: vec![
            fill("owners", owners, capacity.owners),
            fill("regions", tables.regions.len(), capacity.regions),
            fill("answers", tables.answers.len(), capacity.answers),
            fill("cells", tables.cells.len(), capacity.cells),
            fill("lines", tables.lines.len(), capacity.lines),
            fill("locations", tables.locations.len(), capacity.locations),
        ],
        maps: datapath
            .memory()
            .into_iter()
            .map(|MapMemory { name, octets }| MapReport { name, octets })
            .collect(),
        client_subnet: client_subnets(datapath),
    }
}

/// Answers of the fast path by the family of their client subnet; nothing when the kernel does not tell.
fn client_subnets(datapath: &Datapath) -> BTreeMap<String, u64> {
    let counted = || {
        let [ipv4, ipv6] = datapath.subnets()?;
        let answers = datapath.counter(Counter::AnswerRecords)? + datapath.counter(Counter::AnswerNodata)?;
        // Queries go on between two looks.
        let none = answers.saturating_sub(ipv4).saturating_sub(ipv6);
        anyhow::Ok([("none", none), ("ipv4", ipv4), ("ipv6", ipv6)])
    };
    match counted() {
        Ok(counts) => counts.map(|(family, count)| (family.to_owned(), count)).into(),
        Err(error) => {
            log::warn!("client subnets of the fast path: {error:#}");
            BTreeMap::new()
        }
    }
}

fn interface(attached: &Attached) -> InterfaceReport {
    InterfaceReport {
        name: attached.name.clone(),
        mode: attached.mode.to_string(),
        why_not_native: attached.why_not_native.clone(),
        away: attached.away,
    }
}

fn probes(stats: &Stats) -> ProbesReport {
    let bounds = Stats::LATENESS.iter().map(|bound| u64::try_from(bound.as_millis()).ok()).chain([None]);
    ProbesReport {
        targets: stats.targets,
        in_flight: stats.in_flight,
        waiting: stats.waiting,
        started: stats.started,
        answered: stats.answered,
        failed: stats.failed,
        local_faults: stats.local_faults,
        lateness: bounds.zip(stats.lateness).collect(),
    }
}
