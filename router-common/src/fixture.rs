//! Small models for tests, and random ones that shrink: every choice takes one octet of a list.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;

use crate::atlas::Atlas;
use crate::decide::{Asked, Asker, Distribution, Records, Snapshot, distribution};
use crate::geo_regions::parse_code;
use crate::model::{
    AddressRange, AdminStatus, AllDown, Connection, Coordinates, Endpoint, EndpointId, Method, MinChildren,
    Model, Monitor, Parts, ProbeDestination, ProbeTarget, Profile, ProfileId, RrSet, Soa, Source, Target,
    WindowRule, Zone, rtype,
};
use crate::name::Name;
use crate::share::Share;
use crate::view::{GeoFacts, Geography, Health, HealthView, Latency};

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub(crate) fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// A CIDR prefix or a range `first-last`.
pub(crate) fn range(text: &str) -> AddressRange {
    match text.split_once('-') {
        Some((first, last)) => AddressRange { first: ip(first), last: ip(last) },
        None => AddressRange { first: net(text).network(), last: net(text).broadcast() },
    }
}

pub(crate) fn zone(apex: &str) -> Zone {
    let mut zone = Zone {
        name: name(apex),
        soa: Soa {
            mname: name("ns1.example.net"),
            rname: name("hostmaster.example.net"),
            serial: 1,
            refresh: 3600,
            retry: 600,
            expire: 604_800,
            minimum: 60,
        },
        ttl: 3600,
        nodes: Default::default(),
    };
    let soa = RrSet { ttl: 3600, rdata: vec![zone.soa.to_wire()] };
    let ns = RrSet { ttl: 3600, rdata: vec![name("ns1.example.net").as_wire().to_vec()] };
    zone.nodes.insert(zone.name.clone(), [(rtype::SOA, soa), (rtype::NS, ns)].into());
    zone
}

pub(crate) fn record(zone: &mut Zone, owner: &str, rtype: u16, rdata: &[u8]) {
    let set = RrSet { ttl: 60, rdata: vec![rdata.to_vec()] };
    zone.nodes.entry(name(owner)).or_default().insert(rtype, set);
}

fn monitor() -> Monitor {
    Monitor {
        target: ProbeTarget::Tcp(Connection {
            destination: ProbeDestination::Domain(name("probe.example.net")),
            port: 80,
            source: Source::default(),
        }),
        expected_status: vec![(200, 200)],
        interval: Duration::from_secs(30),
        timeout: Duration::from_secs(10),
        window: WindowRule::Samples { size: 4, successful: 2 },
        hold: Duration::ZERO,
    }
}

/// A monitored endpoint. `target` is addresses separated by spaces, a name with a final dot, or
/// `@position` of a nested profile.
pub(crate) fn endpoint(label: &str, target: &str) -> Endpoint {
    let target = if let Some(position) = target.strip_prefix('@') {
        Target::Profile(ProfileId(position.parse().unwrap()))
    } else if target.ends_with('.') {
        Target::Domain(name(target))
    } else {
        let (mut ipv4, mut ipv6) = (Vec::new(), Vec::new());
        for address in target.split_whitespace().map(ip) {
            match address {
                IpAddr::V4(address) => ipv4.push(address),
                IpAddr::V6(address) => ipv6.push(address),
            }
        }
        Target::Addresses { ipv4, ipv6 }
    };
    Endpoint {
        name: label.into(),
        status: AdminStatus::Enabled,
        always_serve: false,
        priority: 1,
        weight: 1,
        region: None,
        geo: Vec::new(),
        subnets: Vec::new(),
        dial: 100,
        min_children: MinChildren::default(),
        monitor: (!matches!(target, Target::Profile(_))).then(monitor),
        target,
    }
}

/// A profile bound to `label.x.test`; priorities are the order.
pub(crate) fn profile(label: &str, method: Method, mut endpoints: Vec<Endpoint>) -> Profile {
    for (index, endpoint) in endpoints.iter_mut().enumerate() {
        endpoint.priority = index as u16 + 1;
    }
    Profile {
        name: label.into(),
        names: vec![name(&format!("{label}.x.test"))],
        method,
        ttl: 30,
        enabled: true,
        ecs: true,
        all_down: AllDown::ServeAll,
        endpoints,
    }
}

/// A model in the zone `x.test` with everything around it.
#[derive(Clone, Debug)]
pub(crate) struct World {
    pub parts: Parts,
    pub geography: Geography,
    pub latency: Latency,
    pub health: HealthView,
}

impl World {
    pub fn new(profiles: Vec<Profile>) -> Self {
        Self {
            parts: Parts { zones: vec![zone("x.test")], profiles, regions: Default::default() },
            geography: Geography::default(),
            latency: Latency::default(),
            health: HealthView::default(),
        }
    }

    /// Healthy unless told otherwise, as `profile/endpoint=unhealthy` or `=checking`.
    pub fn with_state(mut self, state: &[&str]) -> Self {
        for (profile, found) in (0..).map(ProfileId).zip(&self.parts.profiles) {
            for (index, endpoint) in (0..).zip(&found.endpoints) {
                let path = format!("{}/{}", found.name, endpoint.name);
                let health = match state.iter().find_map(|each| each.strip_prefix(&path)) {
                    Some("=unhealthy") => Health::Unhealthy,
                    Some("=checking") => Health::Checking,
                    _ => Health::Healthy,
                };
                self.health.verdicts.insert(EndpointId { profile, index }, health);
            }
        }
        self
    }

    pub fn override_geo(mut self, rows: &[(&str, &str)]) -> Self {
        self.geography.overrides =
            rows.iter().map(|(prefix, code)| (net(prefix), parse_code(code).unwrap())).collect();
        self
    }

    pub fn latency(mut self, rows: &[(&str, &str, f64)]) -> Self {
        self.latency.rows =
            rows.iter().map(|&(prefix, region, ms)| (net(prefix), region.to_owned(), ms)).collect();
        self
    }

    pub fn snapshot(&self) -> Snapshot {
        let model = Arc::new(Model::new(self.parts.clone()).expect("the fixture is sound"));
        let atlas = Arc::new(Atlas::build(&model, &self.geography, &self.latency));
        Snapshot { model, atlas, health: Arc::new(self.health.clone()) }
    }

    /// Asks, and shows shares as `5/8 A 192.0.2.1 30`, sorted; `scope` is shown first.
    pub fn ask(&self, profile: &str, asked: Asked, client: &str) -> String {
        let snapshot = self.snapshot();
        let id = snapshot.model.profile_named(profile).unwrap();
        let asker = Asker { source: ip(client), ecs: None };
        show(&distribution(&snapshot, id, asked, &asker))
    }
}

/// A distribution as text, to compare.
pub(crate) fn show(distribution: &Distribution) -> String {
    assert_eq!(distribution.outcomes.iter().map(|each| &each.share).sum::<Share>(), Share::one());
    let mut lines: Vec<String> = distribution
        .outcomes
        .iter()
        .map(|each| {
            let records = match each.records.as_ref().map(Records::sorted) {
                None => "NODATA".to_owned(),
                Some(Records::Cname(target)) => format!("CNAME {target}"),
                Some(Records::A(list)) => format!("A {}", join(&list)),
                Some(Records::Aaaa(list)) => format!("AAAA {}", join(&list)),
            };
            format!("{} {records} {}", each.share, each.ttl)
        })
        .collect();
    lines.sort();
    format!("/{} {}", distribution.scope, lines.join("; "))
}

fn join<A: ToString>(list: &[A]) -> String {
    list.iter().map(A::to_string).collect::<Vec<_>>().join("+")
}

/// Random choices out of a list of octets; 0 when it is used up, so that shorter lists are simpler.
#[derive(Clone, Debug)]
pub(crate) struct Dice {
    octets: Vec<u8>,
    at: usize,
}

impl Dice {
    pub fn new(octets: Vec<u8>) -> Self {
        Self { octets, at: 0 }
    }

    /// 0..count, count up to 256.
    pub fn roll(&mut self, count: usize) -> usize {
        let octet = self.octets.get(self.at).copied().unwrap_or(0);
        self.at += 1;
        usize::from(octet) * count / 256
    }

    /// True one time in `count`.
    pub fn once_in(&mut self, count: usize) -> bool {
        self.roll(count) + 1 == count
    }

    pub fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.roll(list.len())]
    }
}

/// Prefixes that are close to one another, wide ones, and special ones.
pub(crate) const PREFIXES: [&str; 24] = [
    "198.51.100.0/24",
    "198.51.100.128/25",
    "198.51.100.0/26",
    "198.51.100.64/27",
    "198.51.100.7/32",
    "198.51.100.8/30",
    "198.48.0.0/12",
    "203.0.113.0/24",
    "203.0.112.0/23",
    "0.0.0.0/1",
    "0.0.0.0/0",
    "255.255.255.255/32",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "192.168.0.0/24",
    "2001:db8::/32",
    "2001:db8:a::/48",
    "2001:db8:a:8000::/52",
    "2001:db8:a::1/128",
    "::/0",
    "8000::/1",
    "fc00::/8",
    "::ffff:198.51.100.0/122",
    "64:ff9b::cb00:7100/120",
];

/// Addresses on both sides of the prefixes' borders.
pub(crate) fn some_address(dice: &mut Dice) -> IpAddr {
    let net = net(dice.of(&PREFIXES));
    let beside = dice.roll(4);
    match (net.network(), net.broadcast()) {
        (IpAddr::V4(first), IpAddr::V4(last)) => Ipv4Addr::from_bits(match beside {
            0 => first.to_bits(),
            1 => last.to_bits(),
            2 => first.to_bits().wrapping_sub(1),
            _ => last.to_bits().wrapping_add(1),
        })
        .into(),
        (IpAddr::V6(first), IpAddr::V6(last)) => Ipv6Addr::from_bits(match beside {
            0 => first.to_bits(),
            1 => last.to_bits(),
            2 => first.to_bits().wrapping_sub(1),
            _ => last.to_bits().wrapping_add(1),
        })
        .into(),
        _ => unreachable!("a prefix is of one family"),
    }
}

/// Somebody who asks, with or without a client subnet.
pub(crate) fn some_asker(dice: &mut Dice) -> Asker {
    let source = some_address(dice);
    let ecs = (!dice.once_in(3)).then(|| {
        let address = some_address(dice);
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let len = dice.of(&[bits, bits - 8, bits - 7, bits / 4 * 3, bits / 2, 1]);
        (IpNet::new(address, len).expect("the length fits").network(), len)
    });
    Asker { source, ecs }
}

const REGIONS: [&str; 4] = ["r0", "r1", "r2", "r3"];
const CODES: [&str; 10] = ["IE", "DE", "US", "US-CA", "US-NY", "GEO-EU", "GEO-NA", "GEO-ME", "WORLD", "TR"];

/// A random sound model with geography, latency and health.
pub(crate) fn some_world(dice: &mut Dice) -> World {
    let count = 1 + dice.roll(5);
    let profiles: Vec<Profile> = (0..count).map(|at| some_profile(dice, at, count)).collect();
    let mut world = World::new(profiles);
    let sizes: Vec<u32> = world.parts.profiles.iter().map(|profile| profile.endpoints.len() as u32).collect();
    for endpoint in world.parts.profiles.iter_mut().flat_map(|profile| &mut profile.endpoints) {
        if let Target::Profile(child) = endpoint.target {
            endpoint.min_children.any = endpoint.min_children.any.min(sizes[child.0 as usize]);
        }
    }
    world.parts.zones.push(zone("y.test"));
    world.parts.profiles[0].names.push(name("p0.y.test"));
    world.parts.profiles[0].names.push(name("*.w.x.test"));
    for region in REGIONS {
        if dice.once_in(2) {
            let place =
                Coordinates { latitude: dice.roll(180) as f64 - 90.0, longitude: dice.roll(256) as f64 };
            world.parts.regions.insert(region.into(), place);
        }
    }
    for _ in 0..dice.roll(6) {
        let country = dice.of(&["IE", "DE", "US", "TR", "BR"]).as_bytes().try_into().ok();
        let state = dice.once_in(2).then_some(*b"CA\0");
        let place = Coordinates { latitude: dice.roll(90) as f64, longitude: dice.roll(180) as f64 };
        let facts = GeoFacts { country, state, coordinates: dice.once_in(2).then_some(place) };
        world.geography.database.push((net(dice.of(&PREFIXES)), facts));
    }
    for _ in 0..dice.roll(5) {
        world.geography.overrides.push((net(dice.of(&PREFIXES)), parse_code(dice.of(&CODES)).unwrap()));
    }
    for _ in 0..dice.roll(8) {
        let row = (net(dice.of(&PREFIXES)), dice.of(&REGIONS).to_owned(), dice.roll(5) as f64);
        world.latency.rows.push(row);
    }
    world.health = some_health(dice, &world.parts);
    world
}

/// Random verdicts and latencies.
pub(crate) fn some_health(dice: &mut Dice, parts: &Parts) -> HealthView {
    let mut health = HealthView::default();
    for (profile, found) in (0..).map(ProfileId).zip(&parts.profiles) {
        let all_down = dice.once_in(5);
        for index in 0..found.endpoints.len() as u32 {
            let verdict = dice.of(&[Health::Healthy, Health::Unhealthy, Health::Checking]);
            let verdict = if all_down { Health::Unhealthy } else { verdict };
            health.verdicts.insert(EndpointId { profile, index }, verdict);
            if dice.once_in(2) {
                let latency = Duration::from_millis(dice.roll(4) as u64 * 10);
                health.latency.insert(EndpointId { profile, index }, latency);
            }
        }
    }
    health
}

fn some_profile(dice: &mut Dice, at: usize, count: usize) -> Profile {
    let method = match dice.roll(7) {
        0 => Method::Priority,
        1 => Method::Weighted,
        2 => Method::Performance,
        3 => Method::Fastest { sensitivity: Duration::from_millis(dice.roll(3) as u64 * 10) },
        4 => Method::Geographic,
        5 => Method::Multivalue { max_return: 1 + dice.roll(3) as u8 },
        _ => Method::Subnet,
    };
    let multivalue = matches!(method, Method::Multivalue { .. });
    let dialled = dice.once_in(3);
    let mut codes: Vec<&str> = CODES.into();
    let mut prefixes: Vec<&str> = PREFIXES.into();
    let mut taken: Vec<AddressRange> = Vec::new();
    let mut has_rest = false;
    let endpoints: Vec<Endpoint> = (0..1 + dice.roll(4))
        .filter_map(|index| {
            let target = match dice.roll(6) {
                0..=1 => format!("192.0.2.{}", dice.roll(5)),
                2 => format!("2001:db8:f::{}", dice.roll(5)),
                3 => format!("192.0.2.{} 192.0.2.{} 2001:db8:f::9", dice.roll(5), 5 + dice.roll(5)),
                4 if !multivalue => format!("t{}.example.net.", dice.roll(3)),
                5 if !multivalue && at + 1 < count => {
                    format!("@{}", at + 1 + dice.roll(count - at - 1))
                }
                _ => "192.0.2.77".to_owned(),
            };
            let mut made = endpoint(&format!("e{index}"), &target);
            made.status = match dice.roll(10) {
                8 => AdminStatus::Disabled,
                9 => AdminStatus::Stopped,
                _ => AdminStatus::Enabled,
            };
            if matches!(method, Method::Weighted | Method::Fastest { .. }) {
                made.weight = dice.of(&[1, 2, 3, 1000]);
            }
            if let Target::Profile(_) = made.target {
                made.min_children.any = 1 + u32::from(dice.once_in(3));
                made.min_children.ipv6 = dice.once_in(6).then_some(1);
            } else if dice.once_in(6) {
                made.monitor = None;
            }
            match method {
                Method::Performance if dialled => {
                    made.region = Some(REGIONS[index].to_owned());
                    made.dial = dice.of(&[100, 50, 0, 33]);
                }
                Method::Performance => made.region = Some(dice.of(&REGIONS).to_owned()),
                Method::Priority if dialled => made.dial = dice.of(&[100, 50, 0, 33]),
                Method::Geographic => {
                    for _ in 0..1 + dice.roll(2) {
                        let code = codes.remove(dice.roll(codes.len()));
                        made.geo.push(parse_code(code).unwrap());
                    }
                }
                _ => {}
            }
            let may_override = matches!(method, Method::Performance | Method::Geographic);
            if method == Method::Subnet && (has_rest || !dice.once_in(4)) || may_override && dice.once_in(4) {
                for _ in 0..1 + dice.roll(2) {
                    let candidate = range(prefixes.remove(dice.roll(prefixes.len())));
                    if !taken.iter().any(|each| overlap(each, &candidate.meant())) {
                        taken.push(candidate.meant());
                        made.subnets.push(candidate);
                    }
                }
            }
            if method == Method::Subnet && made.subnets.is_empty() {
                if has_rest {
                    return None;
                }
                has_rest = true;
            }
            Some(made)
        })
        .collect();
    let mut made = profile(&format!("p{at}"), method, endpoints);
    made.ttl = dice.of(&[30, 5, 300]);
    made.enabled = at == 0 || !dice.once_in(8);
    made.ecs = !dice.once_in(8);
    made.all_down = match dice.roll(4) {
        2 => AllDown::Nodata,
        3 => AllDown::Fallback(dice.roll(made.endpoints.len()) as u32),
        _ => AllDown::ServeAll,
    };
    made
}

fn overlap(a: &AddressRange, b: &AddressRange) -> bool {
    a.first.is_ipv4() == b.first.is_ipv4() && a.first <= b.last && b.first <= a.last
}
