//! The agent's part of a status report.

use std::time::Duration;

use router_common::health::ProbeFault;
use router_common::model::{EndpointId, ProbeTarget, ProfileId, Target};
use router_common::status::Statuses;

use super::Agent;
use crate::control::{EndpointReport, ProfileReport};
use crate::probe::Percentiles;

impl Agent {
    /// Profiles and endpoints as they are. `now` is the time since the epoch; `next` says in how long a target
    /// is probed.
    pub fn profiles(
        &self,
        now: Duration,
        next: &dyn Fn(&ProbeTarget) -> Option<Duration>,
    ) -> Vec<ProfileReport> {
        let model = &self.snapshot.model;
        let statuses = Statuses::new(model, &self.snapshot.health);
        let report = |(i, profile): (usize, &router_common::model::Profile)| {
            let id = ProfileId(i as u32);
            ProfileReport {
                name: profile.name.clone(),
                method: profile.method.as_str().to_string(),
                status: statuses.profile(id).to_string(),
                serving_all: statuses.serving_all(id),
                names: profile.names.iter().map(ToString::to_string).collect(),
                endpoints: profile
                    .endpoints
                    .iter()
                    .enumerate()
                    .map(|(index, endpoint)| {
                        let id = EndpointId { profile: id, index: index as u32 };
                        EndpointReport {
                            name: endpoint.name.clone(),
                            target: target(model, &endpoint.target),
                            status: statuses.endpoint(id).to_string(),
                            ..self.monitored(id, now, next)
                        }
                    })
                    .collect(),
            }
        };
        model.profiles().iter().enumerate().map(report).collect()
    }

    /// Why the newest probe of an endpoint that failed did, in words.
    pub fn last_failure(&self, id: EndpointId) -> Option<String> {
        let health = self.monitors.endpoint(id)?;
        health.record.last_error.map(|(_, fault)| explained(fault, health.said.as_deref()))
    }

    /// What the monitor of an endpoint knows; nothing when there is none.
    fn monitored(
        &self,
        id: EndpointId,
        now: Duration,
        next: &dyn Fn(&ProbeTarget) -> Option<Duration>,
    ) -> EndpointReport {
        let Some(health) = self.monitors.endpoint(id) else { return EndpointReport::default() };
        let milliseconds = |latency: Duration| latency.as_secs_f64() * 1000.0;
        let ago = |at: Duration| now.saturating_sub(at).as_secs();
        let record = health.record;
        let percentile = |which: fn(Percentiles) -> Duration| health.percentiles.map(which).map(milliseconds);
        EndpointReport {
            probe: Some(health.target.to_string()),
            probe_shared_by: health.shared_by,
            // Rounded up: 0 is for what is under way or due.
            next_probe_ms: next(&health.target)
                .map(|next| u64::try_from(next.as_micros().div_ceil(1000)).unwrap_or(u64::MAX)),
            since_seconds: record.since.map(ago),
            hold_seconds: health.hold.as_secs_f64(),
            window: record.strip.to_string(),
            latency_last_ms: record
                .last
                .and_then(|last| last.sample.latency.filter(|_| last.sample.ok))
                .map(milliseconds),
            latency_average_ms: record.average.map(milliseconds),
            latency_p50_ms: percentile(|percentiles| percentiles.p50),
            latency_p90_ms: percentile(|percentiles| percentiles.p90),
            latency_p99_ms: percentile(|percentiles| percentiles.p99),
            last_error: record.last_error.map(|(_, fault)| explained(fault, health.said.as_deref())),
            last_error_seconds: record.last_error.map(|(at, _)| ago(at)),
            trouble: health.trouble.as_deref().map(str::to_owned),
            flaps: u64::from(record.flaps),
            ..EndpointReport::default()
        }
    }
}

/// A fault, with what was said of it where that says more.
fn explained(fault: ProbeFault, said: Option<&str>) -> String {
    let name = fault.to_string();
    match said {
        // The system has no more to say of these than their number.
        _ if matches!(fault, ProbeFault::Refused | ProbeFault::Reset) => name,
        Some(said) if said.starts_with(&name) => said.to_owned(),
        Some(said) => format!("{name} ({said})"),
        None => name,
    }
}

fn target(model: &router_common::model::Model, target: &Target) -> String {
    match target {
        Target::Addresses { ipv4, ipv6 } => {
            let addresses: Vec<String> =
                ipv4.iter().map(ToString::to_string).chain(ipv6.iter().map(ToString::to_string)).collect();
            addresses.join(", ")
        }
        Target::Domain(name) => name.to_string(),
        Target::Profile(child) => format!("profile {}", model.profile(*child).name),
    }
}
