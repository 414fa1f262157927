//! What a model wants probed.

use std::collections::HashMap;

use router_common::model::{AdminStatus, Endpoint, EndpointId, Model, Monitor, ProbeTarget, ProfileId};

use super::Schedule;

/// Every target of a model once, in file order, with the smallest interval of the endpoints that watch it
/// and the timeout that belongs to it (of equal intervals the longer timeout).
///
/// Probed is what `watched` says. A profile that no name leads to is probed as well: its state is then
/// known before the first answer depends on it, and `status` can show it.
pub fn targets_of(model: &Model) -> Vec<(ProbeTarget, Schedule)> {
    let mut targets: Vec<(ProbeTarget, Schedule)> = Vec::new();
    let mut places: HashMap<&ProbeTarget, usize> = HashMap::new();
    for (_, _, monitor) in watched(model) {
        let schedule = Schedule { interval: monitor.interval, timeout: monitor.timeout };
        match places.get(&monitor.target).and_then(|&place| targets.get_mut(place)) {
            Some((_, known)) => {
                let shorter = schedule.interval < known.interval;
                let as_short = schedule.interval == known.interval && schedule.timeout > known.timeout;
                if shorter || as_short {
                    *known = schedule;
                }
            }
            None => {
                places.insert(&monitor.target, targets.len());
                targets.push((monitor.target.clone(), schedule));
            }
        }
    }
    targets
}

/// The endpoints whose health comes from probes: monitored, enabled, not served always, and of an
/// enabled profile (ROUTING.md §2).
pub(super) fn watched(model: &Model) -> impl Iterator<Item = (EndpointId, &Endpoint, &Monitor)> {
    model.profiles().iter().enumerate().filter(|(_, profile)| profile.enabled).flat_map(|(i, profile)| {
        profile.endpoints.iter().enumerate().filter_map(move |(j, endpoint)| {
            let monitor = endpoint.monitor.as_ref()?;
            let probed = endpoint.status == AdminStatus::Enabled && !endpoint.always_serve;
            let id = EndpointId { profile: ProfileId(i as u32), index: j as u32 };
            probed.then_some((id, endpoint, monitor))
        })
    })
}
