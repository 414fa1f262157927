//! What needs no text to be tried: static records in the way of profiles, nesting, thresholds. Ranges and
//! the keys of methods are in the agent's table of bad configurations.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::model::{
    AddressRange, AdminStatus, AllDown, Connection, HttpProbe, MinChildren, Model, Monitor, ProbeDestination,
    ProbeMethod, ProbeTarget, ProfileId, Program, RrSet, Soa, Source, Target, WindowRule, Zone, rtype,
};
use crate::name::Name;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn zone(apex: &str, records: &[(&str, u16)]) -> Zone {
    let soa = Soa {
        mname: name("ns.test"),
        rname: name("h.test"),
        serial: 1,
        refresh: 2,
        retry: 3,
        expire: 4,
        minimum: 5,
    };
    let mut nodes: BTreeMap<Name, BTreeMap<u16, RrSet>> = BTreeMap::new();
    let mut add = |owner: &str, number: u16, rdata: Vec<u8>| {
        nodes.entry(name(owner)).or_default().insert(number, RrSet { ttl: 60, rdata: vec![rdata] });
    };
    add(apex, rtype::SOA, soa.to_wire());
    add(apex, rtype::NS, name("ns.test").as_wire().to_vec());
    for &(owner, number) in records {
        add(owner, number, name("x.test").as_wire().to_vec());
    }
    Zone { name: name(apex), soa, ttl: 60, nodes }
}

fn endpoint(label: &str, target: Target) -> Endpoint {
    Endpoint {
        name: label.to_owned(),
        target,
        status: AdminStatus::Enabled,
        always_serve: false,
        priority: 1,
        weight: 1,
        region: None,
        geo: Vec::new(),
        subnets: Vec::new(),
        dial: 100,
        min_children: MinChildren::default(),
        monitor: None,
    }
}

fn address() -> Target {
    Target::Addresses { ipv4: vec![Ipv4Addr::LOCALHOST], ipv6: Vec::new() }
}

fn profile(label: &str, names: &[&str], endpoints: Vec<Endpoint>) -> Profile {
    Profile {
        name: label.to_owned(),
        names: names.iter().map(|text| name(text)).collect(),
        method: Method::Weighted,
        ttl: 30,
        enabled: true,
        ecs: true,
        all_down: AllDown::ServeAll,
        endpoints,
    }
}

fn messages(zones: Vec<Zone>, profiles: Vec<Profile>) -> Vec<String> {
    let parts = Parts { zones, profiles, ..Parts::default() };
    match Model::new(parts) {
        Ok(_) => Vec::new(),
        Err(faults) => faults.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn static_records_in_the_way_of_a_profile() {
    let zones = || {
        vec![
            zone(
                "a.test",
                &[
                    ("v4.a.test", rtype::A),
                    ("v6.a.test", rtype::AAAA),
                    ("alias.a.test", rtype::CNAME),
                    ("mail.a.test", 15),
                    ("cut.a.test", rtype::NS),
                    ("dn.a.test", rtype::DNAME),
                ],
            ),
            zone("sub.cut.a.test", &[]),
        ]
    };
    let bound = |owner: &str, target: Target| {
        messages(zones(), vec![profile("p", &[owner], vec![endpoint("e", target)])])
    };
    for (owner, message) in [
        ("v4.a.test", "v4.a.test. has static A records; a profile cannot be bound to it"),
        ("v6.a.test", "v6.a.test. has static AAAA records; a profile cannot be bound to it"),
        ("alias.a.test", "alias.a.test. has static CNAME records; a profile cannot be bound to it"),
        ("cut.a.test", "cut.a.test. is delegated away at cut.a.test.; a profile cannot be bound to it"),
        ("x.cut.a.test", "x.cut.a.test. is delegated away at cut.a.test.; a profile cannot be bound to it"),
        ("dn.a.test", "dn.a.test. is at or below the DNAME at dn.a.test.; a profile cannot be bound to it"),
        (
            "x.dn.a.test",
            "x.dn.a.test. is at or below the DNAME at dn.a.test.; a profile cannot be bound to it",
        ),
        ("b.test", "b.test. is in none of the zones (a.test., sub.cut.a.test.)"),
        ("xa.test", "xa.test. is in none of the zones (a.test., sub.cut.a.test.)"),
    ] {
        assert_eq!(bound(owner, address()), [message]);
    }
    for owner in ["mail.a.test", "www.a.test", "a.test", "*.a.test", "x.sub.cut.a.test", "below.v4.a.test"] {
        assert_eq!(bound(owner, address()), Vec::<String>::new(), "{owner}");
    }
    let domain = || Target::Domain(name("www.other.test"));
    assert_eq!(bound("www.a.test", domain()), Vec::<String>::new());
    assert_eq!(
        bound("mail.a.test", domain()),
        ["mail.a.test. has static records, beside which no CNAME can stand; p/e is a domain name"]
    );
    assert_eq!(
        bound("sub.cut.a.test", domain()),
        ["sub.cut.a.test. is the apex of a zone, where no CNAME can stand; p/e is a domain name"]
    );
}

#[test]
fn zones_hold_what_can_stand_together() {
    let mut broken =
        zone("a.test", &[("x.a.test", rtype::CNAME), ("x.a.test", rtype::A), ("y.test", rtype::A)]);
    broken.nodes.get_mut(&name("a.test")).unwrap().clear();
    broken.soa.minimum = MAX_TTL + 1;
    let found = messages(vec![broken, zone("a.test", &[])], Vec::new());
    assert_eq!(
        found,
        [
            "a.test.: minimum is 2147483648; allowed is 0 to 2147483647",
            "a.test.: exactly one SOA record must stand at the apex",
            "a.test.: at least one NS record must stand at the apex",
            "x.a.test.: a CNAME cannot stand beside other records (RFC 1034 §3.6.2)",
            "y.test. is not within the zone a.test.",
            "a zone named a.test. already exists",
        ]
    );
}

/// Profiles 0, 1, 2 … with these edges.
fn nested(edges: &[(usize, usize)], count: usize) -> Vec<String> {
    let profiles = (0..count)
        .map(|at| {
            let children = edges.iter().filter(|(from, _)| *from == at);
            let endpoints = children
                .enumerate()
                .map(|(i, (_, to))| endpoint(&format!("e{i}"), Target::Profile(ProfileId(*to as u32))));
            profile(&at.to_string(), &[], endpoints.collect())
        })
        .collect();
    messages(Vec::new(), profiles)
}

#[test]
fn loops_are_named_whole() {
    assert_eq!(nested(&[(0, 1), (1, 2), (2, 0)], 3), ["profiles nest in a loop: 0 → 1 → 2 → 0"]);
    // Whoever leads to a loop, or is led to by one, is not on it.
    assert_eq!(nested(&[(3, 0), (0, 1), (1, 0), (1, 2)], 4), ["profiles nest in a loop: 0 → 1 → 0"]);
    assert_eq!(nested(&[(0, 0), (1, 1)], 2).len(), 2);
    assert_eq!(nested(&[(0, 1), (0, 2), (1, 3), (2, 3)], 4), Vec::<String>::new());
    assert_eq!(nested(&[(0, 9)], 1), ["0/e0: there is no such profile"]);
}

#[test]
fn depth_is_limited_without_recursion() {
    let chain = |length: usize| -> Vec<(usize, usize)> { (0..length).map(|at| (at, at + 1)).collect() };
    assert_eq!(nested(&chain(MAX_NESTING), MAX_NESTING + 1), Vec::<String>::new());
    let found = nested(&chain(MAX_NESTING + 1), MAX_NESTING + 2);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("profiles nest 11 levels deep; allowed are 10: 0 → 1 → "), "{}", found[0]);
    let long = nested(&chain(3000), 3001);
    assert_eq!(long.len(), 1);
}

#[test]
fn thresholds_that_no_health_can_reach() {
    let mut pool = endpoint("pool", Target::Profile(ProfileId(1)));
    pool.min_children = MinChildren { any: 3, ipv4: Some(0), ipv6: Some(2) };
    let child = profile("b", &[], vec![endpoint("x", address()), endpoint("y", address())]);
    let mut plain = endpoint("plain", address());
    plain.min_children.any = 2;
    assert_eq!(
        messages(Vec::new(), vec![profile("a", &[], vec![pool, plain]), child]),
        [
            "a/pool: min_child_endpoints is 3; allowed is 1 to 2, the endpoints of profile \"b\"",
            "a/pool: min_child_endpoints_ipv4 is 0; allowed is 1 to 2, the endpoints of profile \"b\"",
            "a/plain: min_child_endpoints is for nested profiles only",
        ]
    );
}

#[test]
fn monitors() {
    let source = Source { address: Some(Ipv6Addr::LOCALHOST.into()), interface: None };
    let probe = HttpProbe {
        connection: Connection {
            destination: ProbeDestination::Address(Ipv4Addr::LOCALHOST.into()),
            port: 0,
            source,
        },
        tls: None,
        method: ProbeMethod::Head,
        path: "health".into(),
        host: "x".into(),
        user_agent: None,
        headers: vec![(String::new(), String::new()); 9],
    };
    let monitor = Monitor {
        target: ProbeTarget::Http(probe.clone()),
        expected_status: vec![(99, 600)],
        interval: Duration::from_millis(999),
        timeout: Duration::from_millis(999),
        window: WindowRule::Samples { size: 3, successful: 4 },
        hold: Duration::from_secs(86_401),
    };
    let with = |monitor: Monitor| {
        let mut one = endpoint("e", address());
        one.monitor = Some(monitor);
        messages(Vec::new(), vec![profile("p", &[], vec![one])]).len()
    };
    assert_eq!(with(monitor), 9);
    let connection = Connection { port: 80, source: Source::default(), ..probe.connection };
    let sound = Monitor {
        target: ProbeTarget::Http(HttpProbe { connection, path: "/".into(), headers: Vec::new(), ..probe }),
        expected_status: vec![(200, 299)],
        interval: Duration::from_secs(1),
        timeout: Duration::from_millis(1),
        window: WindowRule::Tolerated { failures: 9 },
        hold: Duration::from_secs(86_400),
    };
    let nothing = Program { file: String::new(), arguments: Vec::new() };
    assert_eq!(with(Monitor { target: ProbeTarget::Exec(nothing), ..sound.clone() }), 1);
    assert_eq!(with(sound.clone()), 0);
    for window in [
        WindowRule::Samples { size: 0, successful: 0 },
        WindowRule::Samples { size: 65, successful: 1 },
        WindowRule::Samples { size: 1, successful: 0 },
        WindowRule::Tolerated { failures: 10 },
    ] {
        assert_eq!(with(Monitor { window, ..sound.clone() }), 1, "{window:?}");
    }
}

#[test]
fn ranges_show_as_prefixes_when_they_are() {
    let shown = |first: &str, last: &str| {
        AddressRange { first: first.parse().unwrap(), last: last.parse().unwrap() }.to_string()
    };
    assert_eq!(shown("192.0.2.0", "192.0.2.255"), "192.0.2.0/24");
    assert_eq!(shown("0.0.0.0", "255.255.255.255"), "0.0.0.0/0");
    assert_eq!(shown("192.0.2.1", "192.0.2.1"), "192.0.2.1/32");
    assert_eq!(shown("192.0.2.1", "192.0.2.2"), "192.0.2.1-192.0.2.2");
    assert_eq!(shown("192.0.2.2", "192.0.2.1"), "192.0.2.2-192.0.2.1");
    assert_eq!(shown("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), "::/0");
    assert_eq!(shown("2001:db8::", "2001:db8::ffff"), "2001:db8::/112");
}

#[test]
fn a_v4_mapped_range_overlaps_the_ipv4_range_it_means() {
    let range =
        |first: &str, last: &str| AddressRange { first: first.parse().unwrap(), last: last.parse().unwrap() };
    let found = |other: AddressRange| {
        let one =
            Endpoint { subnets: vec![range("198.51.100.0", "198.51.100.63")], ..endpoint("e0", address()) };
        let two = Endpoint { subnets: vec![other], ..endpoint("e1", address()) };
        let subnet = Profile { method: Method::Subnet, ..profile("p", &[], vec![one, two]) };
        messages(Vec::new(), vec![subnet])
    };
    assert_eq!(found(range("::ffff:198.51.100.60", "::ffff:198.51.100.70")).len(), 1);
    assert_eq!(found(range("64:ff9b::198.51.100.0", "64:ff9b::198.51.100.0")).len(), 1);
    assert_eq!(found(range("::ffff:198.51.100.64", "::ffff:198.51.100.70")).len(), 0);
    assert_eq!(found(range("2001:db8::", "2001:db8::ffff")).len(), 0);
}

/// Whether two endpoints share an address, by looking at every address.
fn share(a: &[AddressRange], b: &[AddressRange]) -> bool {
    let within = |ranges: &[AddressRange], octet: u8| {
        let address: IpAddr = Ipv4Addr::new(192, 0, 2, octet).into();
        ranges.iter().any(|range| range.first <= address && address <= range.last)
    };
    (0..=255).any(|octet| within(a, octet) && within(b, octet))
}

proptest! {
    #[test]
    fn overlaps_are_found_exactly_when_they_are(
        sets in proptest::collection::vec(
            proptest::collection::vec((any::<u8>(), 0u8..8), 1..4),
            2..5,
        ),
    ) {
        let ranges: Vec<Vec<AddressRange>> = sets
            .iter()
            .map(|set| {
                set.iter()
                    .map(|&(first, more)| AddressRange {
                        first: Ipv4Addr::new(192, 0, 2, first).into(),
                        last: Ipv4Addr::new(192, 0, 2, first.saturating_add(more)).into(),
                    })
                    .collect()
            })
            .collect();
        let endpoints = ranges.iter().enumerate().map(|(i, subnets)| Endpoint {
            subnets: subnets.clone(),
            ..endpoint(&format!("e{i}"), address())
        });
        let subnet = Profile { method: Method::Subnet, ..profile("p", &[], endpoints.collect()) };
        let found = messages(Vec::new(), vec![subnet]);
        let expected = (0..ranges.len()).any(|i| (0..i).any(|j| share(&ranges[i], &ranges[j])));
        prop_assert_eq!(!found.is_empty(), expected, "{:?}", found);
    }

    #[test]
    fn any_nesting_is_judged(edges in proptest::collection::vec((0usize..8, 0usize..8), 0..16)) {
        let found = nested(&edges, 8);
        // A loop exists exactly when some profile reaches itself.
        let mut reach = [[false; 8]; 8];
        edges.iter().for_each(|&(from, to)| reach[from][to] = true);
        for via in 0..8 {
            for from in 0..8 {
                for to in 0..8 {
                    reach[from][to] |= reach[from][via] && reach[via][to];
                }
            }
        }
        let looped = (0..8).any(|at| reach[at][at]);
        prop_assert_eq!(found.iter().any(|message| message.contains("in a loop")), looped);
    }
}
