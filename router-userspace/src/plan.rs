//! What a plan tells: [`router_common::plan`] with the settings of the machine and with the limits, for people and for
//! programs.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use router_common::atlas::Atlas;
use router_common::decide::{Asked, Snapshot};
use router_common::plan::{self, Change, Kind, Options, Shares};
use router_common::view::HealthView;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::agent::{Basis, Draft};
use crate::config::Config;
use crate::settings::Server;

mod limits;
mod server;
mod text;

pub use limits::exceeded;

/// A plan as it is shown.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct PlanReport {
    /// What runs, or is compared with.
    pub before: String,
    /// What would take its place.
    pub after: String,
    /// Whether nothing is otherwise.
    pub empty: bool,
    /// The figures in short.
    pub summary: Summary,
    /// Settings of the machine that only a restart can change.
    pub restart: Vec<SettingReport>,
    /// Settings of the machine that change at once.
    pub settings: Vec<SettingReport>,
    /// What comes, goes and changes: zones, names, profiles, endpoints.
    pub changes: Vec<ItemReport>,
    /// How answers move.
    pub traffic: TrafficReport,
    /// What the limits forbid, one each; they are those of what runs.
    pub exceeded: Vec<String>,
    /// Overrides that stay laid over what an operator wrote.
    pub overrides: usize,
    /// What is probably not meant in the new configuration.
    pub warnings: Vec<String>,
    /// What comparing took.
    pub milliseconds: u64,
}

/// A plan in figures.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// Zones.
    pub zones: Counts,
    /// Owner names.
    pub names: Counts,
    /// Profiles.
    pub profiles: Counts,
    /// Endpoints.
    pub endpoints: Counts,
    /// Settings of the machine that are others.
    pub settings: usize,
    /// Share of all answers that are others, 0..=1: the largest of the types and families.
    pub moved: f64,
    /// Share of all answers that are NODATA and were not.
    pub nodata: f64,
}

/// How many are new, gone, changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Counts {
    /// New.
    pub added: usize,
    /// Gone.
    pub removed: usize,
    /// Changed.
    pub changed: usize,
}

/// A setting that is another.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SettingReport {
    /// Its key.
    pub key: String,
    /// Before.
    pub before: String,
    /// After.
    pub after: String,
}

/// Something that comes, goes or changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ItemReport {
    /// `zone`, `name`, `profile` or `endpoint`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// `added`, `removed` or `changed`.
    pub change: String,
    /// What it is, of what is new or gone.
    pub about: Option<String>,
    /// What is otherwise, of what changed.
    pub settings: Vec<SettingReport>,
}

/// A share by clients' family.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct FamilyShares {
    /// Of IPv4 clients, 0..=1.
    pub ipv4: f64,
    /// Of IPv6 clients, 0..=1.
    pub ipv6: f64,
}

/// A share by type asked for and clients' family.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ShareReport {
    /// Of answers to A.
    pub a: FamilyShares,
    /// Of answers to AAAA.
    pub aaaa: FamilyShares,
}

/// How answers move.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct TrafficReport {
    /// Share of all answers that are others, of the address space and with every name alike.
    pub moved: ShareReport,
    /// The same with each profile weighed by the queries that were counted for it, when any were.
    pub moved_by_queries: Option<ShareReport>,
    /// Share of the clients for whom anything is otherwise.
    pub clients: ShareReport,
    /// Share of all answers that are NODATA and were not.
    pub nodata: ShareReport,
    /// Names with addresses that would not exist any more.
    pub gone: u64,
    /// Profiles that answer otherwise, those that move most first.
    pub profiles: Vec<SteeredReport>,
}

/// A profile that answers otherwise.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct SteeredReport {
    /// The profile before; `records` for static records.
    pub before: String,
    /// The profile after.
    pub after: String,
    /// Its names.
    pub names: Vec<String>,
    /// Share of its answers that are others.
    pub moved: ShareReport,
    /// Share of the clients for whom anything is otherwise.
    pub clients: ShareReport,
    /// Share of its answers that are NODATA and were not.
    pub nodata: ShareReport,
    /// Endpoints whose share is another.
    pub endpoints: Vec<EndpointSharesReport>,
    /// A few prefixes whose answer is another.
    pub examples: Vec<ExampleReport>,
    /// A few prefixes that would get NODATA.
    pub nodata_examples: Vec<ExampleReport>,
}

/// An endpoint's share before and after.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct EndpointSharesReport {
    /// `profile/endpoint`, `NODATA` or `records`.
    pub path: String,
    /// Before.
    pub before: ShareReport,
    /// After.
    pub after: ShareReport,
}

/// What becomes of the clients in a prefix.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExampleReport {
    /// The prefix.
    pub prefix: String,
    /// `A` or `AAAA`.
    pub asked: String,
    /// What they get.
    pub before: String,
    /// What they would get.
    pub after: String,
}

/// Compares what runs with a draft. `names` are how both are called, `queries` what was counted by profile.
pub fn of_draft(
    basis: &Basis,
    draft: &Draft,
    queries: &HashMap<String, u64>,
    names: (String, String),
) -> PlanReport {
    let (old, new) = (&basis.ground, draft.ground());
    // Arcs of what has `Eq` are compared by their address first; floats keep these from having it.
    let same_sources = (Arc::ptr_eq(&old.geography, &new.geography) || old.geography == new.geography)
        && (Arc::ptr_eq(&old.latency, &new.latency) || old.latency == new.latency);
    let before = Stand { server: &old.settings, written: &old.base, snapshot: &basis.snapshot };
    let after = Stand { server: &new.settings, written: &new.base, snapshot: draft.snapshot() };
    let options = Options { same_sources, queries: Some(queries) };
    let mut report = compared(&before, &after, &options, names);
    report.overrides = basis.ground.overrides.list().len();
    report
}

/// Compares two configurations, without an agent and so without health: everything counts as not probed.
pub fn of_files(before: Config, after: Config, names: (&Path, &Path)) -> PlanReport {
    let same_sources = before.geography == after.geography && before.latency == after.latency;
    let warnings = after.warnings.iter().map(ToString::to_string).collect();
    let world = |config: Config| {
        let model = Arc::new(config.model);
        let atlas = Arc::new(Atlas::build(&model, &config.geography, &config.latency));
        (config.server, Snapshot { model, atlas, health: Arc::new(HealthView::default()) })
    };
    let (old_server, old) = world(before);
    let (new_server, new) = world(after);
    let before = Stand { server: &old_server, written: &old.model, snapshot: &old };
    let after = Stand { server: &new_server, written: &new.model, snapshot: &new };
    let names = (names.0.display().to_string(), names.1.display().to_string());
    let options = Options { same_sources, queries: None };
    PlanReport { warnings, ..compared(&before, &after, &options, names) }
}

/// One side of a comparison.
struct Stand<'a> {
    server: &'a Server,
    /// The configuration as it is written.
    written: &'a router_common::model::Model,
    /// What decides, with what operators changed.
    snapshot: &'a Snapshot,
}

fn compared(
    before: &Stand<'_>,
    after: &Stand<'_>,
    options: &Options<'_>,
    (old, new): (String, String),
) -> PlanReport {
    let began = Instant::now();
    let found = plan::compare((before.written, before.snapshot), (after.written, after.snapshot), options);
    let (restart, settings) = server::differing(before.server, after.server);
    let counts = |kind| {
        let [added, removed, changed] = found.count(kind);
        Counts { added, removed, changed }
    };
    PlanReport {
        before: old,
        after: new,
        empty: found.is_empty() && restart.is_empty() && settings.is_empty(),
        summary: Summary {
            zones: counts(Kind::Zone),
            names: counts(Kind::Name),
            profiles: counts(Kind::Profile),
            endpoints: counts(Kind::Endpoint),
            settings: restart.len() + settings.len(),
            moved: found.traffic.moved.largest().to_f64(),
            nodata: found.traffic.nodata.largest().to_f64(),
        },
        restart,
        settings,
        exceeded: exceeded(&before.server.limits, &found),
        changes: found.items.iter().map(item).collect(),
        traffic: traffic(&found.traffic),
        overrides: 0,
        warnings: Vec::new(),
        milliseconds: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
    }
}

fn item(item: &plan::Item) -> ItemReport {
    let (change, about, settings) = match &item.change {
        Change::Added(about) => ("added", Some(about), &[][..]),
        Change::Removed(about) => ("removed", Some(about), &[][..]),
        Change::Changed(settings) => ("changed", None, settings.as_slice()),
    };
    let setting = |setting: &plan::Setting| SettingReport {
        key: setting.key.to_owned(),
        before: setting.before.clone(),
        after: setting.after.clone(),
    };
    ItemReport {
        kind: String::from(match item.kind {
            Kind::Zone => "zone",
            Kind::Name => "name",
            Kind::Profile => "profile",
            Kind::Endpoint => "endpoint",
        }),
        name: item.name.clone(),
        change: change.to_owned(),
        about: about.filter(|about| !about.is_empty()).cloned(),
        settings: settings.iter().map(setting).collect(),
    }
}

fn traffic(traffic: &plan::Traffic) -> TrafficReport {
    TrafficReport {
        moved: shares(&traffic.moved),
        moved_by_queries: traffic.moved_by_queries.as_ref().map(shares),
        clients: shares(&traffic.clients),
        nodata: shares(&traffic.nodata),
        gone: traffic.gone,
        profiles: traffic.steered.iter().map(steered).collect(),
    }
}

fn steered(steered: &plan::Steered) -> SteeredReport {
    let examples = |examples: &[plan::Example]| examples.iter().map(example).collect();
    let endpoint = |endpoint: &plan::EndpointShares| EndpointSharesReport {
        path: endpoint.path.clone(),
        before: shares(&endpoint.before),
        after: shares(&endpoint.after),
    };
    SteeredReport {
        before: steered.before.clone(),
        after: steered.after.clone(),
        names: steered.names.iter().map(ToString::to_string).collect(),
        moved: shares(&steered.moved),
        clients: shares(&steered.clients),
        nodata: shares(&steered.nodata),
        endpoints: steered.endpoints.iter().map(endpoint).collect(),
        examples: examples(&steered.examples),
        nodata_examples: examples(&steered.nodata_examples),
    }
}

fn example(example: &plan::Example) -> ExampleReport {
    ExampleReport {
        prefix: example.prefix.to_string(),
        asked: String::from(if example.asked == Asked::Aaaa { "AAAA" } else { "A" }),
        before: example.before.clone(),
        after: example.after.clone(),
    }
}

fn shares(shares: &Shares) -> ShareReport {
    let both = |[ipv4, ipv6]: &[router_common::share::Share; 2]| FamilyShares {
        ipv4: ipv4.to_f64(),
        ipv6: ipv6.to_f64(),
    };
    ShareReport { a: both(&shares.a), aaaa: both(&shares.aaaa) }
}

#[cfg(test)]
mod tests;
