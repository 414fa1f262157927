//! `[[profile]]` and `[[profile.endpoint]]`.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use router_common::geo_regions::parse_code;
use router_common::model::{
    AdminStatus, AllDown, Endpoint, MAX_TTL, Method, MinChildren, ProbeDestination, Profile, ProfileId,
    Target,
};
use toml::de::DeValue;

use super::files::Loader;
use super::monitor::{self, Wish};
use super::reader::{Site, Spot, Table, choice, shown, text, truth, whole};
use super::values::{address, by_family, duration, name, subnet};
use super::warnings::ProfileSites;
use crate::fault::nearest;

/// TTL of a profile that gives none, seconds.
const DEFAULT_TTL: u32 = 30;
/// `max_return` of a multivalue profile that gives none (Traffic Manager's).
const DEFAULT_MAX_RETURN: u8 = 2;
/// Most addresses of one endpoint: an answer must fit a TCP message.
const MAX_ADDRESSES: usize = 1000;
/// Greatest sensitivity.
const MAX_SENSITIVITY: Duration = Duration::from_secs(60);

/// A profile as it was read, with references that wait for the other profiles.
pub(super) struct Read {
    pub(super) profile: Profile,
    pub(super) sites: ProfileSites,
    /// For each endpoint that nests a profile: its position and the name it gives.
    pub(super) nested: Vec<(usize, String)>,
}

/// The word of `method`, before the keys that belong to it are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Priority,
    Weighted,
    Performance,
    Geographic,
    Multivalue,
    Subnet,
}

const METHODS: [(&str, Word); 6] = [
    ("priority", Word::Priority),
    ("weighted", Word::Weighted),
    ("performance", Word::Performance),
    ("geographic", Word::Geographic),
    ("multivalue", Word::Multivalue),
    ("subnet", Word::Subnet),
];

/// Keys of an endpoint whose use depends on the method.
const BY_METHOD: [(&str, &[Word]); 4] = [
    ("priority", &[Word::Priority]),
    ("geo", &[Word::Geographic]),
    ("subnets", &[Word::Subnet, Word::Geographic, Word::Performance]),
    ("dial", &[Word::Priority, Word::Performance]),
];

pub(super) fn read(table: Table<'_>, loader: &Loader<'_>) -> Read {
    let own_name = label(&table, "www");
    let word = table.take("method", |value| choice(value, &METHODS));
    if !table.has("method") {
        table.missing("method", "\"priority\"");
    }
    let (method, by_probe) = method(&table, word);
    let names = table.items("names", name).unwrap_or_default();
    let ttl = table.take("ttl", |value| whole(value, 0..=i64::from(MAX_TTL))).unwrap_or(DEFAULT_TTL);
    let states = [("enabled", true), ("disabled", false)];
    let enabled = table.take("status", |value| choice(value, &states)).unwrap_or(true);
    let switches = [("on", true), ("off", false)];
    let ecs = table.take("ecs", |value| choice(value, &switches)).unwrap_or(true);
    let monitor = monitor::of_profile(&table, loader);
    let mut endpoints = Vec::new();
    let mut sites = Vec::new();
    let mut nested = Vec::new();
    for (at, endpoint) in table.tables("endpoint", "[[profile.endpoint]]").into_iter().enumerate() {
        let (read, child, mut site) = read_endpoint(endpoint, word, by_probe, (&own_name, &monitor), loader);
        if word.is_none() {
            // Which keys are used is unknown until the method is.
            site.excuse(&["priority", "weight", "region", "geo", "subnets", "dial"]);
        }
        endpoints.push(read);
        sites.push(site);
        nested.extend(child.map(|child| (at, child)));
    }
    if sites.iter().any(|site| site.is_faulty("subnets")) {
        // Without its subnets an endpoint looks like a fallback beside the real one.
        sites.iter_mut().filter(|site| !site.has("subnets")).for_each(|site| site.excuse(&["subnets"]));
    }
    if word == Some(Word::Priority) {
        priorities(&table, &own_name, &mut endpoints, &mut sites);
    }
    let all_down = all_down(&table, &endpoints);
    let profile = Profile { name: own_name, names, method, ttl, enabled, ecs, all_down, endpoints };
    Read { profile, sites: ProfileSites { profile: table.finish(), endpoints: sites }, nested }
}

fn label(table: &Table<'_>, example: &str) -> String {
    if !table.has("name") {
        table.missing("name", &format!("{example:?}"));
    }
    table.take("name", text).map(str::to_owned).unwrap_or_default()
}

/// The method with its own keys, and whether weights count because probes decide.
fn method(table: &Table<'_>, word: Option<Word>) -> (Method, bool) {
    let sources = [("table", false), ("probe", true)];
    let by_probe = table.take("source", |value| choice(value, &sources)).unwrap_or(false);
    let sensitivity = table.take("sensitivity", |value| duration(value, Duration::ZERO..=MAX_SENSITIVITY));
    let max_return = table.take("max_return", |value| whole(value, 1..=10)).unwrap_or(DEFAULT_MAX_RETURN);
    let Some(word) = word else { return (Method::Priority, false) };
    if word != Word::Multivalue {
        table.refuse("max_return", "is used by the method \"multivalue\" only");
    }
    if word != Word::Performance {
        table.refuse("source", "is used by the method \"performance\" only");
    }
    if word != Word::Performance || !by_probe {
        table.refuse("sensitivity", "is used by the method \"performance\" with source = \"probe\" only");
    }
    let method = match word {
        Word::Priority => Method::Priority,
        Word::Weighted => Method::Weighted,
        Word::Performance if by_probe => {
            Method::Fastest { sensitivity: sensitivity.unwrap_or(Duration::ZERO) }
        }
        Word::Performance => Method::Performance,
        Word::Geographic => Method::Geographic,
        Word::Multivalue => Method::Multivalue { max_return },
        Word::Subnet => Method::Subnet,
    };
    (method, by_probe && word == Word::Performance)
}

/// All endpoints set a priority, or none: then it is the order in the file.
fn priorities(table: &Table<'_>, profile: &str, endpoints: &mut [Endpoint], sites: &mut [Site]) {
    let set = sites.iter().filter(|site| site.has("priority")).count();
    if set == sites.len() {
        return;
    }
    for (at, (endpoint, site)) in endpoints.iter_mut().zip(sites.iter_mut()).enumerate() {
        if set > 0 {
            if !site.has("priority") {
                let message = format!(
                    "{profile}/{}: priority is missing: {set} of the profile's endpoints set it; allowed is \
                     all or none",
                    endpoint.name
                );
                table.faults().add(site.head.fault(message));
            }
            site.excuse(&["priority"]);
        }
        if set == 0 {
            endpoint.priority = u16::try_from(at + 1).unwrap_or(u16::MAX);
        }
    }
}

fn all_down(table: &Table<'_>, endpoints: &[Endpoint]) -> AllDown {
    let words = [("serve-all", AllDown::ServeAll), ("nodata", AllDown::Nodata)];
    let Some(DeValue::Table(_)) = table.value("all_down").map(|value| value.get_ref()) else {
        let chosen = table.take("all_down", |value| {
            let found = value.as_str();
            let listed = words.iter().find(|(word, _)| Some(*word) == found).map(|&(_, policy)| policy);
            listed.ok_or_else(|| {
                let near = found.and_then(|found| nearest(found, words.map(|(word, _)| word)));
                let hint = near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"));
                format!(
                    "found {}; allowed are \"serve-all\", \"nodata\" and {{ fallback = \"endpoint\" }}{hint}",
                    shown(value)
                )
            })
        });
        return chosen.unwrap_or(AllDown::ServeAll);
    };
    let Some(policy) = table.table("all_down", "all_down") else { return AllDown::ServeAll };
    let fallback = policy.take("fallback", |value| {
        let named = text(value)?;
        let found = endpoints.iter().position(|endpoint| endpoint.name == named);
        found.and_then(|at| u32::try_from(at).ok()).ok_or_else(|| {
            let names = || endpoints.iter().map(|endpoint| endpoint.name.as_str());
            let hint = nearest(named, names()).map(|near| format!("; did you mean {near:?}?"));
            let listed = names().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
            format!(
                "there is no endpoint {named:?} in the profile; allowed are {listed}{}",
                hint.unwrap_or_default()
            )
        })
    });
    if !policy.has("fallback") {
        policy.missing("fallback", "\"endpoint\"");
    }
    policy.finish();
    fallback.map_or(AllDown::ServeAll, AllDown::Fallback)
}

/// What kind of thing an endpoint answers with.
enum Kind {
    /// With the first one in the text, which is probed.
    Addresses(Option<IpAddr>),
    Domain,
    Profile(String),
}

fn read_endpoint(
    table: Table<'_>,
    word: Option<Word>,
    by_probe: bool,
    (profile, profile_monitor): (&str, &Wish),
    loader: &Loader<'_>,
) -> (Endpoint, Option<String>, Site) {
    let own_name = label(&table, "eu1");
    let (target, kind) = target(&table);
    if let Some(word) = word {
        let method = METHODS.iter().find(|(_, candidate)| *candidate == word).map_or("", |(name, _)| *name);
        for (key, users) in BY_METHOD {
            if !users.contains(&word) {
                let listed: Vec<String> = METHODS
                    .iter()
                    .filter(|(_, candidate)| users.contains(candidate))
                    .map(|(name, _)| format!("{name:?}"))
                    .collect();
                let why =
                    format!("is not used by the method {method:?}; it belongs to {}", listed.join(", "));
                table.refuse(key, &why);
            }
        }
        if word != Word::Weighted && !by_probe {
            table.refuse(
                "weight",
                &format!(
                    "is not used by the method {method:?}; it belongs to \"weighted\", and to \"performance\" \
                     with source = \"probe\""
                ),
            );
        }
        if word != Word::Performance {
            table.refuse(
                "region",
                &format!("is not used by the method {method:?}; it belongs to \"performance\""),
            );
        }
    }
    let states = [
        ("enabled", AdminStatus::Enabled),
        ("disabled", AdminStatus::Disabled),
        ("stopped", AdminStatus::Stopped),
    ];
    let status = table.take("status", |value| choice(value, &states)).unwrap_or_default();
    let always_serve = table.take("always_serve", truth).unwrap_or(false);
    let region = table.take("region", |value| match text(value)? {
        "" => Err("found \"\"; a region has a name".into()),
        region => Ok(region.to_owned()),
    });
    let geo = table
        .items("geo", |value| parse_code(text(value)?).map_err(|why| why.to_string()))
        .unwrap_or_default();
    let subnets = table.items("subnets", subnet).unwrap_or_default();
    if table.has("subnets") && table.count("subnets") == 0 {
        table.fault_at("subnets", "subnets: an empty list; leave the key out for the fallback".into());
    }
    let min_children = min_children(&table, &kind);
    if let Some(Kind::Profile(_)) = kind {
        table.refuse("always_serve", "is not used by a nested profile; its own endpoints can have it");
        table.refuse("monitor", "is not used by a nested profile, which is never probed itself");
    }
    let own = monitor::of_endpoint(&table, profile_monitor, loader);
    let here = table.spot();
    let monitor = match (profile_monitor, destination(&target, &kind)) {
        (Wish::Keys(base), Some(destination)) => {
            let keys = own.map_or_else(|| (**base).clone(), |own| own.over(base));
            keys.settle(destination, &format!("{profile}/{own_name}"), &here, table.faults())
        }
        _ => None,
    };
    let endpoint = Endpoint {
        name: own_name,
        target,
        status,
        always_serve,
        priority: table.take("priority", |value| whole(value, 1..=1000)).unwrap_or(1),
        weight: table.take("weight", |value| whole(value, 1..=1000)).unwrap_or(1),
        region,
        geo,
        subnets,
        dial: table.take("dial", |value| whole(value, 0..=100)).unwrap_or(100),
        min_children,
        monitor,
    };
    let child = match kind {
        Some(Kind::Profile(child)) => Some(child),
        _ => None,
    };
    let mut site = table.finish();
    if matches!(endpoint.target, Target::Addresses { .. })
        && ["address", "target", "profile"].iter().any(|key| site.is_faulty(key))
    {
        site.excuse(&["address"]);
    }
    (endpoint, child, site)
}

/// Exactly one of `address`, `target`, `profile`.
fn target(table: &Table<'_>) -> (Target, Option<Kind>) {
    let nothing = || Target::Addresses { ipv4: Vec::new(), ipv6: Vec::new() };
    let found: Vec<&str> =
        ["address", "target", "profile"].into_iter().filter(|key| table.has(key)).collect();
    match found.as_slice() {
        ["address"] => {
            let addresses = table.items("address", address).unwrap_or_default();
            table.no_twins("address", &addresses);
            if addresses.len() > MAX_ADDRESSES {
                let message =
                    format!("address: found {}; at most {MAX_ADDRESSES} are allowed", addresses.len());
                table.fault_at("address", message);
            }
            let (ipv4, ipv6) = by_family(&addresses);
            (Target::Addresses { ipv4, ipv6 }, Some(Kind::Addresses(addresses.first().copied())))
        }
        ["target"] => {
            let domain = table.take("target", |value| {
                let written = text(value)?;
                if written.parse::<std::net::IpAddr>().is_ok() {
                    return Err(format!("{written:?} is an address; write address = [{written:?}]"));
                }
                let domain = name(value)?;
                if domain.labels().any(|label| label == b"*") || domain.labels().next().is_none() {
                    return Err(format!("{written:?} is not the name of a host"));
                }
                Ok(domain)
            });
            (domain.map_or_else(nothing, Target::Domain), Some(Kind::Domain))
        }
        ["profile"] => {
            let child = table.take("profile", text).map(|child| Kind::Profile(child.to_owned()));
            (nothing(), child)
        }
        [] => {
            table.fault_at(
                "address",
                format!("{} has none of address, target, profile; exactly one is needed", table.title()),
            );
            (nothing(), None)
        }
        several => {
            // The first of them stands for all: the key at fault is that there are several.
            for key in
                ["address", "target", "profile"].into_iter().filter(|key| several.contains(key)).take(1)
            {
                let message = format!(
                    "found {}; exactly one of address, target, profile is allowed",
                    several.join(", ")
                );
                table.fault_at(key, message);
            }
            (nothing(), None)
        }
    }
}

fn min_children(table: &Table<'_>, kind: &Option<Kind>) -> MinChildren {
    let threshold = |key: &'static str| -> Option<u32> {
        if matches!(kind, Some(Kind::Addresses(_) | Kind::Domain)) {
            table.refuse(key, "is for nested profiles only");
            return None;
        }
        table.take(key, |value| whole(value, 1..=1000))
    };
    MinChildren {
        any: threshold("min_child_endpoints").unwrap_or(1),
        ipv4: threshold("min_child_endpoints_ipv4"),
        ipv6: threshold("min_child_endpoints_ipv6"),
    }
}

/// What a probe connects to.
fn destination(target: &Target, kind: &Option<Kind>) -> Option<ProbeDestination> {
    match (target, kind) {
        (_, Some(Kind::Addresses(first))) => first.map(ProbeDestination::Address),
        (Target::Domain(name), _) => Some(ProbeDestination::Domain(name.clone())),
        _ => None,
    }
}

/// Finds the profile that an endpoint nests, among all that were read.
pub(super) fn nest(reads: &mut [Read], faults: &super::reader::Faults) {
    let mut names: HashMap<String, u32> = HashMap::new();
    for (at, read) in (0..).zip(reads.iter()) {
        names.entry(read.profile.name.clone()).or_insert(at);
    }
    for read in reads.iter_mut() {
        for (at, child) in std::mem::take(&mut read.nested) {
            let (Some(endpoint), Some(site)) =
                (read.profile.endpoints.get_mut(at), read.sites.endpoints.get_mut(at))
            else {
                continue;
            };
            match names.get(&child) {
                Some(&found) => endpoint.target = Target::Profile(ProfileId(found)),
                None => {
                    let hint = match nearest(&child, names.keys().map(String::as_str)) {
                        Some(near) => format!("; did you mean {near:?}?"),
                        None => String::new(),
                    };
                    let spot: Spot = site.spot(Some("profile"), None);
                    faults.add(spot.fault(format!("profile: there is no profile {child:?}{hint}")));
                    site.excuse(&["profile", "address", "min_child_endpoints"]);
                    site.excuse(&["min_child_endpoints_ipv4", "min_child_endpoints_ipv6"]);
                }
            }
        }
    }
}
