//! Zones: unique, with SOA and NS at the apex, and record sets that may stand beside each other.

use std::collections::HashSet;

use super::{Faults, MAX_TTL, Place};
use crate::model::{Parts, Zone, rtype};

pub(super) fn check(parts: &Parts, faults: &mut Faults) {
    let mut seen = HashSet::new();
    for (i, zone) in parts.zones.iter().enumerate() {
        let place = Place::Zone(i);
        if !seen.insert(&zone.name) {
            faults.add(place, "name", format!("a zone named {} already exists", zone.name));
        }
        // RFC 4592 §4.2 leaves open what one would mean. A `*` further on is a label like any other (§2.1.1).
        if zone.name.is_wildcard() {
            faults.add(place, "name", format!("{}: a zone cannot be a wildcard", zone.name));
        }
        if zone.ttl > MAX_TTL {
            faults.add(
                place,
                "ttl",
                format!("{}: ttl is {}; allowed is 0 to {MAX_TTL}", zone.name, zone.ttl),
            );
        }
        let timers = [
            ("refresh", zone.soa.refresh),
            ("retry", zone.soa.retry),
            ("expire", zone.soa.expire),
            ("minimum", zone.soa.minimum),
        ];
        for (timer, seconds) in timers {
            if seconds > MAX_TTL {
                let message = format!("{}: {timer} is {seconds}; allowed is 0 to {MAX_TTL}", zone.name);
                faults.add(place, "soa", message);
            }
        }
        records(zone, place, faults);
    }
}

fn records(zone: &Zone, place: Place, faults: &mut Faults) {
    let apex = zone.nodes.get(&zone.name);
    if apex.and_then(|node| node.get(&rtype::SOA)).is_none_or(|set| set.rdata.len() != 1) {
        faults.add(place, "soa", format!("{}: exactly one SOA record must stand at the apex", zone.name));
    }
    if apex.and_then(|node| node.get(&rtype::NS)).is_none_or(|set| set.rdata.is_empty()) {
        faults.add(place, "ns", format!("{}: at least one NS record must stand at the apex", zone.name));
    }
    for (owner, node) in &zone.nodes {
        if !owner.is_within(&zone.name) {
            faults.add(place, None, format!("{owner} is not within the zone {}", zone.name));
        }
        if *owner != zone.name && node.contains_key(&rtype::SOA) {
            faults.add(place, None, format!("{owner}: a SOA record stands only at the apex, {}", zone.name));
        }
        if let Some(alias) = node.get(&rtype::CNAME) {
            if alias.rdata.len() > 1 {
                faults.add(place, None, format!("{owner}: more than one CNAME record"));
            }
            if node.len() > 1 {
                let message = format!("{owner}: a CNAME cannot stand beside other records (RFC 1034 §3.6.2)");
                faults.add(place, None, message);
            }
        }
        if node.get(&rtype::DNAME).is_some_and(|set| set.rdata.len() > 1) {
            faults.add(place, None, format!("{owner}: more than one DNAME record (RFC 6672 §2.4)"));
        }
        for set in node.values() {
            if set.ttl > MAX_TTL {
                faults.add(place, None, format!("{owner}: ttl is {}; allowed is 0 to {MAX_TTL}", set.ttl));
            }
        }
    }
}
