//! Endpoints of one profile: each by itself, then what they must not share.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use super::{Faults, Place, bad_label, monitors, path};
use crate::model::{AddressRange, Endpoint, GeoCode, Method, MinChildren, Parts, Profile, Target};

pub(super) fn check(parts: &Parts, index: usize, profile: &Profile, faults: &mut Faults) {
    let mut seen: HashSet<&str> = HashSet::new();
    for (j, endpoint) in profile.endpoints.iter().enumerate() {
        let place = Place::Endpoint(index, j);
        if let Some(why) = bad_label(&endpoint.name) {
            faults.add(place, "name", format!("endpoint name {:?} {why}", endpoint.name));
        }
        if !seen.insert(&endpoint.name) {
            let message = format!("profile {:?} has an endpoint {:?} already", profile.name, endpoint.name);
            faults.add(place, "name", message);
        }
        target(parts, place, profile, endpoint, faults);
        ranges(place, profile, endpoint, faults);
        for (item, range) in endpoint.subnets.iter().enumerate() {
            if range.first.is_ipv4() != range.last.is_ipv4() || range.first > range.last {
                let message = format!("{}: the range {range} ends before it begins", path(profile, endpoint));
                faults.add_item(place, "subnets", item, message);
            }
        }
        if let Some(monitor) = &endpoint.monitor {
            for (_, message) in monitors::faults(monitor) {
                faults.add(place, "monitor", format!("{}: {message}", path(profile, endpoint)));
            }
        }
    }
    match profile.method {
        Method::Priority => priorities(index, profile, faults),
        Method::Performance => regions(index, profile, faults),
        Method::Geographic => codes(index, profile, faults),
        Method::Subnet => fallbacks(index, profile, faults),
        Method::Fastest { .. } | Method::Weighted | Method::Multivalue { .. } => {}
    }
    overlaps(index, profile, faults);
}

fn target(parts: &Parts, place: Place, profile: &Profile, endpoint: &Endpoint, faults: &mut Faults) {
    let path = path(profile, endpoint);
    match &endpoint.target {
        Target::Addresses { ipv4, ipv6 } => {
            if ipv4.is_empty() && ipv6.is_empty() {
                faults.add(place, "address", format!("{path}: at least one address is needed"));
            }
            let mut seen = HashSet::new();
            let all = ipv4.iter().copied().map(IpAddr::V4).chain(ipv6.iter().copied().map(IpAddr::V6));
            for address in all {
                if !seen.insert(address) {
                    faults.add(place, "address", format!("{path}: {address} stands twice"));
                }
            }
        }
        Target::Domain(_) => {
            if matches!(profile.method, Method::Multivalue { .. }) {
                let message = format!("{path}: endpoints of a multivalue profile are addresses, not names");
                faults.add(place, "target", message);
            }
        }
        Target::Profile(child) => {
            if matches!(profile.method, Method::Multivalue { .. }) {
                let message =
                    format!("{path}: endpoints of a multivalue profile are addresses; it nests nothing");
                faults.add(place, "profile", message);
            }
            if endpoint.monitor.is_some() {
                let message = format!("{path}: a nested profile is never probed itself; its endpoints are");
                faults.add(place, "monitor", message);
            }
            match parts.profiles.get(child.0 as usize) {
                Some(child) => children(place, &path, endpoint.min_children, child, faults),
                None => faults.add(place, "profile", format!("{path}: there is no such profile")),
            }
        }
    }
    if !matches!(endpoint.target, Target::Profile(_)) && endpoint.min_children != MinChildren::default() {
        let message = format!("{path}: min_child_endpoints is for nested profiles only");
        faults.add(place, "min_child_endpoints", message);
    }
}

/// A threshold that no health can reach is a mistake.
fn children(place: Place, path: &str, min: MinChildren, child: &Profile, faults: &mut Faults) {
    let thresholds = [
        ("min_child_endpoints", Some(min.any)),
        ("min_child_endpoints_ipv4", min.ipv4),
        ("min_child_endpoints_ipv6", min.ipv6),
    ];
    for (key, threshold) in thresholds {
        let Some(threshold) = threshold else { continue };
        let most = child.endpoints.len().max(1);
        if threshold < 1 || threshold as usize > most {
            let message = format!(
                "{path}: {key} is {threshold}; allowed is 1 to {most}, the endpoints of profile {:?}",
                child.name
            );
            faults.add(place, key, message);
        }
    }
}

/// Numbers in range, and nothing set that the method does not use.
fn ranges(place: Place, profile: &Profile, endpoint: &Endpoint, faults: &mut Faults) {
    let path = path(profile, endpoint);
    if !(1..=1000).contains(&endpoint.weight) {
        let message = format!("{path}: weight is {}; allowed is 1 to 1000", endpoint.weight);
        faults.add(place, "weight", message);
    }
    if endpoint.dial > 100 {
        let message = format!("{path}: dial is {}; allowed is 0 to 100", endpoint.dial);
        faults.add(place, "dial", message);
    }
    let method = profile.method;
    let set = [
        ("weight", endpoint.weight != 1, matches!(method, Method::Weighted | Method::Fastest { .. })),
        ("dial", endpoint.dial != 100, uses_dial(method)),
        ("region", endpoint.region.is_some(), matches!(method, Method::Performance | Method::Fastest { .. })),
        ("geo", !endpoint.geo.is_empty(), method == Method::Geographic),
        ("subnets", !endpoint.subnets.is_empty(), uses_subnets(method)),
    ];
    for (key, is_set, is_used) in set {
        if is_set && !is_used {
            let message = format!("{path}: {key} is not used by the method {:?}", method.as_str());
            faults.add(place, key, message);
        }
    }
}

fn uses_dial(method: Method) -> bool {
    matches!(method, Method::Priority | Method::Performance | Method::Fastest { .. })
}

fn uses_subnets(method: Method) -> bool {
    matches!(method, Method::Subnet | Method::Geographic | Method::Performance | Method::Fastest { .. })
}

fn priorities(index: usize, profile: &Profile, faults: &mut Faults) {
    let mut seen: HashMap<u16, &str> = HashMap::new();
    for (j, endpoint) in profile.endpoints.iter().enumerate() {
        let place = Place::Endpoint(index, j);
        let path = path(profile, endpoint);
        if !(1..=1000).contains(&endpoint.priority) {
            let message = format!("{path}: priority is {}; allowed is 1 to 1000", endpoint.priority);
            faults.add(place, "priority", message);
        }
        if let Some(other) = seen.insert(endpoint.priority, &endpoint.name) {
            let message = format!("{path}: priority {} is endpoint {other:?}'s already", endpoint.priority);
            faults.add(place, "priority", message);
        }
    }
}

fn regions(index: usize, profile: &Profile, faults: &mut Faults) {
    let dialled = profile.endpoints.iter().find(|endpoint| endpoint.dial < 100);
    let mut seen: HashMap<&str, &str> = HashMap::new();
    for (j, endpoint) in profile.endpoints.iter().enumerate() {
        let place = Place::Endpoint(index, j);
        let path = path(profile, endpoint);
        let Some(region) = &endpoint.region else {
            let message = format!("{path}: an endpoint of a performance profile needs a region");
            faults.add(place, "region", message);
            continue;
        };
        if region.is_empty() {
            faults.add(place, "region", format!("{path}: region is empty"));
        }
        if let Some(other) = seen.insert(region, &endpoint.name)
            && let Some(dialled) = dialled
        {
            let message = format!(
                "{path}: region {region:?} is endpoint {other:?}'s already; with a dial below 100 \
                 (endpoint {:?}) each region has at most one endpoint",
                dialled.name
            );
            faults.add(place, "region", message);
        }
    }
}

fn codes(index: usize, profile: &Profile, faults: &mut Faults) {
    let mut seen: HashMap<GeoCode, &str> = HashMap::new();
    for (j, endpoint) in profile.endpoints.iter().enumerate() {
        let place = Place::Endpoint(index, j);
        if endpoint.geo.is_empty() && endpoint.subnets.is_empty() {
            let message = format!(
                "{}: an endpoint of a geographic profile needs at least one code in geo",
                path(profile, endpoint)
            );
            faults.add(place, "geo", message);
        }
        for (item, code) in endpoint.geo.iter().enumerate() {
            if let Some(other) = seen.insert(*code, &endpoint.name) {
                let message = format!(
                    "{}: {code} is mapped to endpoint {other:?} already; a code belongs to one endpoint only",
                    path(profile, endpoint)
                );
                faults.add_item(place, "geo", item, message);
            }
        }
    }
}

fn fallbacks(index: usize, profile: &Profile, faults: &mut Faults) {
    let mut first: Option<&str> = None;
    for (j, endpoint) in profile.endpoints.iter().enumerate() {
        if !endpoint.subnets.is_empty() {
            continue;
        }
        match first {
            None => first = Some(&endpoint.name),
            Some(other) => {
                let message = format!(
                    "{}: without subnets it is the fallback, which endpoint {other:?} is already",
                    path(profile, endpoint)
                );
                faults.add(Place::Endpoint(index, j), "subnets", message);
            }
        }
    }
}

/// Subnets of two endpoints of a profile share no address.
fn overlaps(index: usize, profile: &Profile, faults: &mut Faults) {
    let mut all: Vec<(AddressRange, usize, usize)> = Vec::new();
    for (j, endpoint) in profile.endpoints.iter().enumerate() {
        all.extend(endpoint.subnets.iter().enumerate().map(|(item, range)| (range.meant(), j, item)));
    }
    all.sort();
    let mut reported = HashSet::new();
    let mut widest: Option<(AddressRange, usize)> = None;
    for (range, j, item) in all {
        if let Some((other, k)) = widest
            && other.last >= range.first
            && other.first.is_ipv4() == range.first.is_ipv4()
            && k != j
            && reported.insert((j.min(k), j.max(k)))
        {
            let message = format!(
                "{}: {range} overlaps {other} of endpoint {:?}",
                path(profile, &profile.endpoints[j]),
                profile.endpoints[k].name
            );
            faults.add_item(Place::Endpoint(index, j), "subnets", item, message);
        }
        if widest.is_none_or(|(other, _)| {
            range.last > other.last || other.first.is_ipv4() != range.first.is_ipv4()
        }) {
            widest = Some((range, j));
        }
    }
}
