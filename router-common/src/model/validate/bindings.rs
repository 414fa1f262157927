//! Owner names of profiles: in one of our zones, bound once, and not in the way of static records.

use std::collections::{HashMap, HashSet};

use super::{Faults, Place};
use crate::model::{Parts, Target, Zone, rtype};
use crate::name::Name;

pub(super) fn check(parts: &Parts, faults: &mut Faults) {
    let zones: HashMap<&Name, &Zone> = parts.zones.iter().map(|zone| (&zone.name, zone)).collect();
    let mut bound: HashMap<&Name, &str> = HashMap::new();
    for (i, profile) in parts.profiles.iter().enumerate() {
        // The path to the first domain name that this profile can answer with.
        let alias = if profile.names.is_empty() { None } else { alias_below(parts, i) };
        for (item, name) in profile.names.iter().enumerate() {
            let mut fault = |message: String| faults.add_item(Place::Profile(i), "names", item, message);
            if let Some(other) = bound.insert(name, &profile.name) {
                fault(format!("{name} is bound to profile {other:?} already"));
                continue;
            }
            if name.labels().skip(1).any(|label| label == b"*") {
                fault(format!("{name}: \"*\" can only be the first label"));
                continue;
            }
            if name.labels().any(|label| label.len() > 1 && label.contains(&b'*')) {
                fault(format!("{name}: \"*\" stands for a whole label, never for a part of one"));
                continue;
            }
            let Some(zone) = enclosing(&zones, name) else {
                let known: Vec<String> = parts.zones.iter().map(|zone| zone.name.to_string()).collect();
                let known = if known.is_empty() { "there are none".into() } else { known.join(", ") };
                fault(format!("{name} is in none of the zones ({known})"));
                continue;
            };
            if let Some(message) = hidden(zone, name) {
                fault(message);
                continue;
            }
            let node = zone.nodes.get(name);
            for (number, kind) in [(rtype::A, "A"), (rtype::AAAA, "AAAA"), (rtype::CNAME, "CNAME")] {
                if node.is_some_and(|node| node.contains_key(&number)) {
                    fault(format!("{name} has static {kind} records; a profile cannot be bound to it"));
                }
            }
            if let Some(alias) = &alias {
                if *name == zone.name {
                    fault(format!(
                        "{name} is the apex of a zone, where no CNAME can stand; {alias} is a domain name"
                    ));
                } else if node.is_some_and(|node| !node.contains_key(&rtype::CNAME)) {
                    fault(format!(
                        "{name} has static records, beside which no CNAME can stand; {alias} is a domain name"
                    ));
                }
            }
        }
    }
}

fn enclosing<'z>(zones: &HashMap<&Name, &'z Zone>, name: &Name) -> Option<&'z Zone> {
    let mut at = Some(name.clone());
    while let Some(here) = at {
        if let Some(zone) = zones.get(&here) {
            return Some(zone);
        }
        at = here.parent();
    }
    None
}

/// Why a name can never be answered from a profile: a delegation or a DNAME at it or above it.
fn hidden(zone: &Zone, name: &Name) -> Option<String> {
    let mut at = Some(name.clone());
    while let Some(here) = at.filter(|here| here.is_within(&zone.name)) {
        if let Some(node) = zone.nodes.get(&here) {
            if here != zone.name && node.contains_key(&rtype::NS) {
                return Some(format!("{name} is delegated away at {here}; a profile cannot be bound to it"));
            }
            if node.contains_key(&rtype::DNAME) {
                return Some(format!(
                    "{name} is at or below the DNAME at {here}; a profile cannot be bound to it"
                ));
            }
        }
        at = here.parent();
    }
    None
}

/// `profile/endpoint` of the first endpoint, at any depth, that answers with a domain name.
fn alias_below(parts: &Parts, top: usize) -> Option<String> {
    let mut seen = HashSet::from([top]);
    let mut open = vec![top];
    while let Some(at) = open.pop() {
        let profile = parts.profiles.get(at)?;
        for endpoint in &profile.endpoints {
            match &endpoint.target {
                Target::Domain(_) => return Some(super::path(profile, endpoint)),
                Target::Profile(child) if seen.insert(child.0 as usize) => open.push(child.0 as usize),
                Target::Profile(_) | Target::Addresses { .. } => {}
            }
        }
    }
    None
}
