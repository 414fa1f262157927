//! What loads, but is probably not what was meant.

use std::collections::{BTreeMap, BTreeSet};

use router_common::model::{
    AdminStatus, AllDown, Endpoint, GeoCode, Method, Model, Profile, ProfileId, Target, Zone, rtype,
};
use router_common::name::Name;
use router_common::view::Latency;

use super::reader::{Site, Spot};
use crate::fault::Fault;

/// Warnings in the order in which they were found.
#[derive(Default)]
pub(super) struct Warnings(Vec<Fault>);

impl Warnings {
    pub(super) fn add(&mut self, spot: &Spot, message: String) {
        self.0.push(spot.fault(message));
    }

    pub(super) fn into_inner(self) -> Vec<Fault> {
        self.0
    }
}

/// Where the parts of a model stand in the text.
#[derive(Default)]
pub(super) struct Sites {
    pub(super) zones: Vec<Site>,
    pub(super) profiles: Vec<ProfileSites>,
    /// `[geo]`.
    pub(super) geo: Option<Spot>,
    /// `table` of `[latency]`.
    pub(super) table: Option<Spot>,
    /// `[latency.regions.…]`.
    pub(super) regions: BTreeMap<String, Spot>,
}

/// Where a profile and its endpoints stand.
pub(super) struct ProfileSites {
    pub(super) profile: Site,
    pub(super) endpoints: Vec<Site>,
}

/// Warns of everything that the model and the tables together show.
pub(super) fn of_model(model: &Model, latency: &Latency, sites: &Sites, warnings: &mut Warnings) {
    for (zone, site) in model.zones().iter().zip(&sites.zones) {
        name_servers(model, zone, site, warnings);
    }
    for (i, (profile, at)) in model.profiles().iter().zip(&sites.profiles).enumerate() {
        let id = ProfileId(i as u32);
        unused_profile(model, id, profile, at, warnings);
        monitors(profile, at, warnings);
        all_down(profile, at, warnings);
        match profile.method {
            Method::Geographic => geographic(profile, at, sites, warnings),
            Method::Subnet => subnet(profile, at, warnings),
            Method::Fastest { .. } => fastest(profile, at, warnings),
            _ => {}
        }
        if matches!(profile.method, Method::Geographic | Method::Subnet) {
            one_family(model, profile, at, warnings);
        }
        children(model, profile, at, warnings);
    }
    regions(model, latency, sites, warnings);
    if let Some(spot) = &sites.geo
        && !model.profiles().iter().any(|profile| asks_geography(model, profile))
    {
        warnings.add(spot, "no profile looks at geography: [geo] is not used".into());
    }
}

fn asks_geography(model: &Model, profile: &Profile) -> bool {
    match profile.method {
        Method::Geographic => true,
        Method::Performance => !model.regions().is_empty(),
        _ => false,
    }
}

/// A server inside the zone that no address leads to cannot be reached by its name.
fn name_servers(model: &Model, zone: &Zone, site: &Site, warnings: &mut Warnings) {
    let Some(servers) = zone.nodes.get(&zone.name).and_then(|apex| apex.get(&rtype::NS)) else { return };
    for (item, rdata) in servers.rdata.iter().enumerate() {
        let Ok(server) = Name::from_wire(rdata) else { continue };
        let elsewhere = model.zones().iter().any(|other| {
            other.name != zone.name && other.name.is_within(&zone.name) && server.is_within(&other.name)
        });
        if !server.is_within(&zone.name) || elsewhere {
            continue;
        }
        let has_address = zone
            .nodes
            .get(&server)
            .is_some_and(|node| node.contains_key(&rtype::A) || node.contains_key(&rtype::AAAA))
            || model.bindings().get(&server).is_some_and(|binding| binding.profile.is_some());
        if !has_address {
            warnings.add(
                &site.spot(Some("ns"), Some(item)),
                format!(
                    "{server} is a name server inside the zone {}, which has no address for it",
                    zone.name
                ),
            );
        }
    }
}

fn unused_profile(
    model: &Model,
    id: ProfileId,
    profile: &Profile,
    at: &ProfileSites,
    warnings: &mut Warnings,
) {
    let mut warn = |key: &str, message: String| warnings.add(&at.profile.spot(Some(key), None), message);
    let name = &profile.name;
    if profile.names.is_empty() && model.parents(id).is_empty() {
        warn("name", format!("{name}: neither bound to a name nor nested: nothing reaches this profile"));
    }
    if profile.names.is_empty() && !profile.ecs {
        warn("ecs", format!("{name}: ecs counts at the profile that a name is bound to, which this is not"));
    }
    if !profile.endpoints.iter().any(|endpoint| endpoint.status == AdminStatus::Enabled) {
        warn("name", format!("{name}: no endpoint is enabled: every answer is NODATA"));
    }
}

fn monitors(profile: &Profile, at: &ProfileSites, warnings: &mut Warnings) {
    let enabled = profile.endpoints.iter().filter(|endpoint| endpoint.status == AdminStatus::Enabled);
    let own = profile.endpoints.iter().filter(|endpoint| !matches!(endpoint.target, Target::Profile(_)));
    let any_own = own.clone().next().is_some();
    let off = any_own && own.clone().all(|endpoint| endpoint.monitor.is_none());
    if off && enabled.count() > 1 {
        warnings.add(
            &at.profile.spot(Some("monitor"), None),
            format!("{}: without a monitor, endpoints that are down stay in the answers", profile.name),
        );
    }
    if !any_own && !profile.endpoints.is_empty() && at.profile.has("monitor") {
        warnings.add(
            &at.profile.spot(Some("monitor"), None),
            format!(
                "{}: nested profiles are never probed themselves: this monitor is not used",
                profile.name
            ),
        );
    }
}

/// Whether the endpoint can ever be Degraded.
fn can_degrade(endpoint: &Endpoint) -> bool {
    let watched = endpoint.monitor.is_some() && !endpoint.always_serve;
    endpoint.status == AdminStatus::Enabled && (watched || matches!(endpoint.target, Target::Profile(_)))
}

fn all_down(profile: &Profile, at: &ProfileSites, warnings: &mut Warnings) {
    if !at.profile.has("all_down") {
        return;
    }
    let mut warn = |message: String| warnings.add(&at.profile.spot(Some("all_down"), None), message);
    let name = &profile.name;
    let enabled = || profile.endpoints.iter().filter(|endpoint| endpoint.status == AdminStatus::Enabled);
    if profile.method == Method::Geographic {
        warn(format!(
            "{name}: the geographic method returns its match whatever its health: all_down is never used"
        ));
    } else if profile.method == Method::Subnet && !enabled().any(can_degrade)
        || profile.method != Method::Subnet && !enabled().all(can_degrade)
    {
        warn(format!("{name}: an endpoint that is always served keeps all_down from being used"));
    }
    if let AllDown::Fallback(index) = profile.all_down
        && let Some(endpoint) = profile.endpoints.get(index as usize)
        && endpoint.status != AdminStatus::Enabled
    {
        let state = if endpoint.status == AdminStatus::Disabled { "disabled" } else { "stopped" };
        warn(format!("{name}: the fallback {:?} is {state}: it ends in NODATA", endpoint.name));
    }
}

/// NODATA carries scope 0: resolvers keep it for everybody (ROUTING.md §7).
const CACHED: &str = "resolvers keep a NODATA answer for clients of every place";

fn geographic(profile: &Profile, at: &ProfileSites, sites: &Sites, warnings: &mut Warnings) {
    let name = &profile.name;
    let mut warn = |message: String| warnings.add(&at.profile.spot(Some("method"), None), message);
    let world = profile
        .endpoints
        .iter()
        .find(|endpoint| endpoint.status != AdminStatus::Disabled && endpoint.geo.contains(&GeoCode::World));
    if world.is_none() {
        warn(format!("{name}: no endpoint has the code WORLD: other clients get NODATA; {CACHED}"));
    }
    if let Some(stopped) = profile.endpoints.iter().find(|endpoint| endpoint.status == AdminStatus::Stopped) {
        warn(format!("{name}: clients of the stopped endpoint {:?} get NODATA; {CACHED}", stopped.name));
    }
    let narrow = |endpoint: &Endpoint| endpoint.geo.iter().any(|code| *code != GeoCode::World);
    if sites.geo.is_none() && profile.endpoints.iter().any(narrow) {
        warn(format!("{name}: there is no [geo]: no client has a place, and only WORLD matches"));
    }
}

fn subnet(profile: &Profile, at: &ProfileSites, warnings: &mut Warnings) {
    let name = &profile.name;
    let mut warn = |message: String| warnings.add(&at.profile.spot(Some("method"), None), message);
    let rest = profile
        .endpoints
        .iter()
        .any(|endpoint| endpoint.status != AdminStatus::Disabled && endpoint.subnets.is_empty());
    if !rest {
        warn(format!("{name}: no endpoint is without subnets: other clients get NODATA; {CACHED}"));
    }
    if let Some(stopped) = profile.endpoints.iter().find(|endpoint| endpoint.status == AdminStatus::Stopped) {
        warn(format!("{name}: clients of the stopped endpoint {:?} get NODATA; {CACHED}", stopped.name));
    }
    if profile.all_down == AllDown::Nodata && profile.endpoints.iter().any(can_degrade) {
        warn(format!(
            "{name}: all_down = \"nodata\": clients of an endpoint that is down get NODATA; {CACHED}"
        ));
    }
}

/// A method that pins clients to endpoints of different address families.
fn one_family(model: &Model, profile: &Profile, at: &ProfileSites, warnings: &mut Warnings) {
    for (family, ipv4) in [("A", true), ("AAAA", false)] {
        let active = || profile.endpoints.iter().filter(|endpoint| endpoint.status == AdminStatus::Enabled);
        let mut without = active().filter(|endpoint| !answers(model, endpoint, ipv4));
        let with = active().any(|endpoint| answers(model, endpoint, ipv4));
        if let Some(without) = without.next().filter(|_| with) {
            warnings.add(
                &at.profile.spot(Some("method"), None),
                format!(
                    "{}: endpoint {:?} has no {family} record and others have: its clients get NODATA for \
                     {family}; {CACHED}",
                    profile.name, without.name
                ),
            );
        }
    }
}

/// Whether an endpoint can answer a family. Profiles are known to nest without a loop.
fn answers(model: &Model, endpoint: &Endpoint, ipv4: bool) -> bool {
    let mut seen = BTreeSet::new();
    let mut open = vec![endpoint];
    while let Some(endpoint) = open.pop() {
        match &endpoint.target {
            Target::Domain(_) => return true,
            Target::Addresses { ipv4: four, ipv6: six } => {
                if if ipv4 { !four.is_empty() } else { !six.is_empty() } {
                    return true;
                }
            }
            Target::Profile(child) => {
                if seen.insert(*child) {
                    let usable = |endpoint: &&Endpoint| endpoint.status == AdminStatus::Enabled;
                    open.extend(model.profile(*child).endpoints.iter().filter(usable));
                }
            }
        }
    }
    false
}

fn fastest(profile: &Profile, at: &ProfileSites, warnings: &mut Warnings) {
    for (endpoint, site) in profile.endpoints.iter().zip(&at.endpoints) {
        if endpoint.region.is_some() {
            warnings.add(
                &site.spot(Some("region"), None),
                format!(
                    "{}/{}: with source = \"probe\" the measured latency decides; region is not used",
                    profile.name, endpoint.name
                ),
            );
        }
    }
}

fn children(model: &Model, profile: &Profile, at: &ProfileSites, warnings: &mut Warnings) {
    for (endpoint, site) in profile.endpoints.iter().zip(&at.endpoints) {
        let Target::Profile(child) = endpoint.target else { continue };
        let child = model.profile(child);
        let mut warn = |key: &str, message: String| {
            let path = format!("{}/{}", profile.name, endpoint.name);
            warnings.add(&site.spot(Some(key), None), format!("{path}: {message}"));
        };
        if !child.enabled {
            warn(
                "profile",
                format!("profile {:?} is disabled, so that this endpoint is stopped", child.name),
            );
            continue;
        }
        let thresholds: [(&str, Option<u32>, Option<bool>); 3] = [
            ("min_child_endpoints", Some(endpoint.min_children.any), None),
            ("min_child_endpoints_ipv4", endpoint.min_children.ipv4, Some(true)),
            ("min_child_endpoints_ipv6", endpoint.min_children.ipv6, Some(false)),
        ];
        for (key, threshold, family) in thresholds {
            let Some(threshold) = threshold else { continue };
            let usable = child
                .endpoints
                .iter()
                .filter(|endpoint| endpoint.status == AdminStatus::Enabled)
                .filter(|endpoint| family.is_none_or(|ipv4| answers(model, endpoint, ipv4)))
                .count();
            if usable > 0 && (threshold as usize) > usable {
                warn(
                    key,
                    format!(
                        "{key} is {threshold}, but only {usable} of the endpoints of profile {:?} can count: it is \
                         always Degraded",
                        child.name
                    ),
                );
            }
        }
    }
}

/// Regions of endpoints, of the latency table and of `[latency.regions]` should be the same ones.
fn regions(model: &Model, latency: &Latency, sites: &Sites, warnings: &mut Warnings) {
    let measured: BTreeSet<&str> = latency.rows.iter().map(|(_, region, _)| region.as_str()).collect();
    let mut used = BTreeSet::new();
    for (profile, at) in model.profiles().iter().zip(&sites.profiles) {
        if profile.method != Method::Performance {
            continue;
        }
        for (endpoint, site) in profile.endpoints.iter().zip(&at.endpoints) {
            let Some(region) = &endpoint.region else { continue };
            if !measured.contains(region.as_str()) && !model.regions().contains_key(region) {
                let path = format!("{}/{}", profile.name, endpoint.name);
                warnings.add(
                    &site.spot(Some("region"), None),
                    format!(
                        "{path}: region {region:?} is neither in the latency table nor in [latency.regions]: it \
                         comes last for every client"
                    ),
                );
            }
            used.insert(region.as_str());
        }
    }
    for (region, spot) in &sites.regions {
        if !used.contains(region.as_str()) {
            warnings.add(spot, format!("no endpoint is in the region {region:?}"));
        }
    }
    if let Some(spot) = &sites.table {
        let idle: Vec<&str> = measured.difference(&used).copied().collect();
        if let Some((first, others)) = idle.split_first() {
            let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
            warnings.add(spot, format!("the latency table has regions without an endpoint: {first}{more}"));
        }
    }
}
