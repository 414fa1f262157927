//! Settings in the words of the configuration, and which of them differ.

use std::time::Duration;

use super::Setting;
use crate::model::{
    AdminStatus, AllDown, Endpoint, Method, Model, Monitor, ProbeDestination, ProbeTarget, Profile, RrSet,
    Target, WindowRule, Zone, rtype,
};
use crate::name::Name;

/// Collects settings that differ.
#[derive(Default)]
struct Differing(Vec<Setting>);

impl Differing {
    fn add(&mut self, key: &'static str, before: impl ToString, after: impl ToString) {
        let (before, after) = (before.to_string(), after.to_string());
        if before != after {
            self.0.push(Setting { key, before, after });
        }
    }
}

/// Of a zone: its SOA and TTL, and how many static names it has.
pub(super) fn zone(before: &Zone, after: &Zone) -> Vec<Setting> {
    let mut differing = Differing::default();
    let (old, new) = (&before.soa, &after.soa);
    differing.add("soa.mname", &old.mname, &new.mname);
    differing.add("soa.rname", &old.rname, &new.rname);
    differing.add("soa.serial", old.serial, new.serial);
    differing.add("soa.refresh", old.refresh, new.refresh);
    differing.add("soa.retry", old.retry, new.retry);
    differing.add("soa.expire", old.expire, new.expire);
    differing.add("soa.minimum", old.minimum, new.minimum);
    differing.add("ttl", before.ttl, after.ttl);
    differing.0
}

/// Of a profile, besides its endpoints and names.
pub(super) fn profile(before: &Profile, after: &Profile) -> Vec<Setting> {
    let mut differing = Differing::default();
    differing.add("method", before.method.as_str(), after.method.as_str());
    let source = |profile: &Profile| match profile.method {
        Method::Fastest { .. } => "probe",
        Method::Performance => "table",
        _ => "none",
    };
    differing.add("source", source(before), source(after));
    let sensitivity = |profile: &Profile| match profile.method {
        Method::Fastest { sensitivity } => span(sensitivity),
        _ => String::from("none"),
    };
    differing.add("sensitivity", sensitivity(before), sensitivity(after));
    let max_return = |profile: &Profile| match profile.method {
        Method::Multivalue { max_return } => max_return.to_string(),
        _ => String::from("none"),
    };
    differing.add("max_return", max_return(before), max_return(after));
    differing.add("ttl", before.ttl, after.ttl);
    let status = |profile: &Profile| if profile.enabled { "enabled" } else { "disabled" };
    differing.add("status", status(before), status(after));
    let ecs = |profile: &Profile| if profile.ecs { "on" } else { "off" };
    differing.add("ecs", ecs(before), ecs(after));
    differing.add("all_down", all_down(before), all_down(after));
    differing.0
}

fn all_down(profile: &Profile) -> String {
    match profile.all_down {
        AllDown::ServeAll => String::from("serve-all"),
        AllDown::Nodata => String::from("nodata"),
        AllDown::Fallback(index) => match profile.endpoints.get(index as usize) {
            Some(endpoint) => format!("fallback {}", endpoint.name),
            None => String::from("fallback"),
        },
    }
}

/// Of an endpoint, besides its monitor.
pub(super) fn endpoint(
    (old_model, before): (&Model, &Endpoint),
    (new_model, after): (&Model, &Endpoint),
) -> Vec<Setting> {
    let mut differing = Differing::default();
    let key = match after.target {
        Target::Addresses { .. } => "address",
        Target::Domain(_) => "target",
        Target::Profile(_) => "profile",
    };
    differing.add(key, target(old_model, &before.target), target(new_model, &after.target));
    differing.add("status", status(before.status), status(after.status));
    differing.add("always_serve", before.always_serve, after.always_serve);
    differing.add("priority", before.priority, after.priority);
    differing.add("weight", before.weight, after.weight);
    let region = |endpoint: &Endpoint| endpoint.region.clone().unwrap_or_else(|| String::from("none"));
    differing.add("region", region(before), region(after));
    differing.add("geo", list(&before.geo), list(&after.geo));
    differing.add("subnets", list(&before.subnets), list(&after.subnets));
    differing.add("dial", before.dial, after.dial);
    let (old, new) = (before.min_children, after.min_children);
    let optional = |count: Option<u32>| count.map_or_else(|| String::from("none"), |count| count.to_string());
    differing.add("min_child_endpoints", old.any, new.any);
    differing.add("min_child_endpoints_ipv4", optional(old.ipv4), optional(new.ipv4));
    differing.add("min_child_endpoints_ipv6", optional(old.ipv6), optional(new.ipv6));
    differing.0
}

/// Of an endpoint's monitor.
pub(super) fn monitor(before: &Endpoint, after: &Endpoint) -> Vec<Setting> {
    let mut differing = Differing::default();
    match (&before.monitor, &after.monitor) {
        (Some(old), Some(new)) => {
            let (one, other) = (normal(&old.target), normal(&new.target));
            if one != other {
                let mut after = new.target.to_string();
                if old.target.to_string() == after {
                    after.push_str(" with other certificates");
                }
                differing.add("monitor", &old.target, after);
            }
            differing.add("monitor.expected_status", codes(old), codes(new));
            differing.add("monitor.interval", span(old.interval), span(new.interval));
            differing.add("monitor.timeout", span(old.timeout), span(new.timeout));
            differing.add("monitor.window", window(old.window), window(new.window));
            differing.add("monitor.hold", span(old.hold), span(new.hold));
        }
        (old, new) => {
            let shown = |monitor: &Option<Monitor>| {
                monitor.as_ref().map_or_else(|| String::from("off"), |monitor| monitor.target.to_string())
            };
            differing.add("monitor", shown(old), shown(new));
        }
    }
    differing.0
}

/// What is probed without where: an address that changed is told of as the endpoint's.
fn normal(target: &ProbeTarget) -> ProbeTarget {
    let mut target = target.clone();
    let nowhere = || ProbeDestination::Domain(Name::root());
    match &mut target {
        ProbeTarget::Http(probe) => {
            let named = match &probe.connection.destination {
                ProbeDestination::Address(address) => address.to_string(),
                ProbeDestination::Domain(name) => name.to_string(),
            };
            if probe.host.trim_matches(['[', ']', '.']) == named.trim_end_matches('.') {
                probe.host.clear();
            }
            probe.connection.destination = nowhere();
        }
        ProbeTarget::Tcp(connection) => connection.destination = nowhere(),
        ProbeTarget::Exec(_) | ProbeTarget::File(_) => {}
    }
    target
}

fn codes(monitor: &Monitor) -> String {
    let code = |&(low, high): &(u16, u16)| match low == high {
        true => low.to_string(),
        false => format!("{low}-{high}"),
    };
    monitor.expected_status.iter().map(code).collect::<Vec<_>>().join(" ")
}

fn window(rule: WindowRule) -> String {
    match rule {
        WindowRule::Samples { size, successful } => format!("{successful} of {size}"),
        WindowRule::Tolerated { failures } => format!("tolerates {failures}"),
    }
}

fn status(status: AdminStatus) -> &'static str {
    match status {
        AdminStatus::Enabled => "enabled",
        AdminStatus::Disabled => "disabled",
        AdminStatus::Stopped => "stopped",
    }
}

/// Most items of a list that are shown.
const MOST: usize = 16;

fn list<T: ToString>(items: &[T]) -> String {
    if items.is_empty() {
        return String::from("none");
    }
    let mut shown: Vec<String> = items.iter().take(MOST).map(ToString::to_string).collect();
    if items.len() > MOST {
        // Lists that differ beyond must look different.
        let hash = items.iter().skip(MOST).flat_map(|item| item.to_string().into_bytes());
        let hash =
            hash.fold(0x811c_9dc5u32, |hash, octet| (hash ^ u32::from(octet)).wrapping_mul(0x0100_0193));
        shown.push(format!("and {} more ({hash:08x})", items.len() - MOST));
    }
    shown.join(" ")
}

/// What an endpoint answers with.
pub(super) fn target(model: &Model, target: &Target) -> String {
    match target {
        Target::Addresses { ipv4, ipv6 } => {
            let ipv4 = ipv4.iter().map(ToString::to_string);
            ipv4.chain(ipv6.iter().map(ToString::to_string)).collect::<Vec<_>>().join(" ")
        }
        Target::Domain(name) => name.to_string(),
        Target::Profile(child) => format!("profile {}", model.profile(*child).name),
    }
}

/// An endpoint in short.
pub(super) fn about(model: &Model, endpoint: &Endpoint) -> String {
    target(model, &endpoint.target)
}

/// A time span as the configuration writes it.
fn span(span: Duration) -> String {
    match span.as_millis() {
        0 => String::from("0s"),
        milliseconds if milliseconds % 1000 == 0 => format!("{}s", milliseconds / 1000),
        milliseconds => format!("{milliseconds}ms"),
    }
}

/// A type as people write it.
pub(super) fn type_name(rtype: u16) -> String {
    let known = match rtype {
        rtype::A => "A",
        rtype::NS => "NS",
        rtype::CNAME => "CNAME",
        rtype::SOA => "SOA",
        rtype::AAAA => "AAAA",
        rtype::DNAME => "DNAME",
        15 => "MX",
        16 => "TXT",
        33 => "SRV",
        64 => "SVCB",
        65 => "HTTPS",
        257 => "CAA",
        other => return format!("TYPE{other}"),
    };
    known.to_owned()
}

/// A record set in short: what can be read of it, else how many records it has and a checksum.
pub(super) fn records(rtype: u16, set: Option<&RrSet>) -> String {
    let kind = type_name(rtype);
    let Some(set) = set else { return format!("no {kind}") };
    let readable = |rdata: &Vec<u8>| match rtype {
        rtype::A => Some(std::net::Ipv4Addr::from(<[u8; 4]>::try_from(rdata.as_slice()).ok()?).to_string()),
        rtype::AAAA => {
            Some(std::net::Ipv6Addr::from(<[u8; 16]>::try_from(rdata.as_slice()).ok()?).to_string())
        }
        rtype::CNAME | rtype::NS | rtype::DNAME => Some(Name::from_wire(rdata).ok()?.to_string()),
        _ => None,
    };
    match set.rdata.iter().map(readable).collect::<Option<Vec<_>>>() {
        Some(shown) => format!("{kind} {} ttl {}", list(&shown), set.ttl),
        None => {
            let octets = set.rdata.iter().flatten();
            let hash = octets
                .fold(0x811c_9dc5u32, |hash, &octet| (hash ^ u32::from(octet)).wrapping_mul(0x0100_0193));
            format!("{} {kind} ttl {} ({hash:08x})", set.rdata.len(), set.ttl)
        }
    }
}
