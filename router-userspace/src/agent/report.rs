//! The agent's part of a status report.

use std::time::Duration;

use router_common::model::{Endpoint, EndpointId, ProfileId, Target};
use router_common::status::Statuses;

use super::Agent;
use crate::control::{EndpointReport, ProfileReport};

impl Agent {
    /// Profiles and endpoints as they are. `now` is the time since the epoch.
    pub fn profiles(&self, now: Duration) -> Vec<ProfileReport> {
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
                        self.endpoint(id, endpoint, statuses.endpoint(id).to_string(), now)
                    })
                    .collect(),
            }
        };
        model.profiles().iter().enumerate().map(report).collect()
    }

    fn endpoint(&self, id: EndpointId, endpoint: &Endpoint, status: String, now: Duration) -> EndpointReport {
        let milliseconds = |latency: Duration| latency.as_secs_f64() * 1000.0;
        let record = self.monitors.endpoint(id).map(|health| health.record);
        let record = record.as_ref();
        let mut window: String = record
            .map(|record| record.strip.newest_first().map(|ok| if ok { '+' } else { '-' }).collect())
            .unwrap_or_default();
        window = window.chars().rev().collect();
        EndpointReport {
            name: endpoint.name.clone(),
            target: target(&self.snapshot.model, &endpoint.target),
            status,
            since_seconds: record
                .and_then(|record| record.since)
                .map(|since| now.saturating_sub(since).as_secs()),
            window,
            latency_last_ms: record
                .and_then(|record| record.last.as_ref())
                .and_then(|last| last.sample.latency)
                .map(milliseconds),
            latency_average_ms: record.and_then(|record| record.average).map(milliseconds),
            last_error: record
                .and_then(|record| record.last_error.as_ref())
                .map(|(_, fault)| fault.to_string()),
            flaps: record.map_or(0, |record| u64::from(record.flaps)),
        }
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
