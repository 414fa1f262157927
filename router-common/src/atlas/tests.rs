use std::net::IpAddr;

use ipnet::IpNet;
use proptest::prelude::*;

use super::overlay::Needs;
use super::*;
use crate::decide::{Asked, Asker, choose, distribution};
use crate::fixture::*;
use crate::geo_regions::{grouping_of, is_state};
use crate::model::Method;

fn entry(world: &World, client: &str) -> (u8, bool) {
    let snapshot = world.snapshot();
    let client = match ip(client) {
        IpAddr::V4(address) => Client::ipv4(address.octets()),
        IpAddr::V6(address) => Client::ipv6(address.octets()).fold(128).0,
    };
    let entry = snapshot.atlas.find(&client);
    (entry.prefix_len, entry.special)
}

fn subnet_world() -> World {
    let mut office = endpoint("office", "192.0.2.1");
    office.subnets = vec![range("198.51.100.0/24"), range("203.0.113.4-203.0.113.11")];
    let mut isp = endpoint("isp", "192.0.2.2");
    isp.subnets = vec![range("203.0.113.128/25")];
    World::new(vec![profile("net", Method::Subnet, vec![office, isp, endpoint("rest", "192.0.2.3")])])
}

#[test]
fn with_one_profile_the_scope_is_the_shortest_there_is() {
    let world = subnet_world();
    assert_eq!(entry(&world, "9.9.9.9"), (1, false));
    assert_eq!(entry(&world, "203.0.113.3"), (30, false));
    assert_eq!(entry(&world, "203.0.113.4"), (30, false));
    assert_eq!(entry(&world, "203.0.113.8"), (30, false));
    assert_eq!(entry(&world, "198.51.100.255"), (24, false));
    assert_eq!(entry(&world, "203.0.113.200"), (25, false));
}

#[test]
fn special_blocks_are_entries_of_their_own_unless_a_source_mentions_them() {
    let world = subnet_world();
    for (client, len) in [
        ("10.1.2.3", 8),
        ("100.64.0.1", 10),
        ("127.0.0.1", 8),
        ("169.254.9.9", 16),
        ("172.31.255.255", 12),
        ("192.168.0.1", 16),
        ("::1", 128),
        ("fd00::1", 7),
        ("fe80::1", 10),
    ] {
        assert_eq!(entry(&world, client), (len, true), "{client}");
    }
    assert_eq!(entry(&world, "172.32.0.0"), (2, false));
    let mut mentioned = world.clone();
    mentioned.parts.profiles[0].endpoints[1].subnets = vec![range("10.1.0.0/16")];
    assert_eq!(entry(&mentioned, "10.1.2.3"), (16, false));
    assert_eq!(entry(&mentioned, "10.128.0.0"), (9, false));
    assert_eq!(entry(&mentioned, "192.168.0.1"), (16, true));
}

#[test]
fn a_private_client_subnet_leaves_the_decision_to_the_source() {
    let world = subnet_world();
    let snapshot = world.snapshot();
    let ask = |ecs: (&str, u8)| {
        let asker = Asker { source: ip("198.51.100.1"), ecs: Some((ip(ecs.0), ecs.1)) };
        show(&distribution(&snapshot, ProfileId(0), Asked::A, &asker))
    };
    assert_eq!(ask(("10.1.2.0", 24)), "/8 1/1 A 192.0.2.1 30");
    assert_eq!(ask(("::ffff:10.1.2.0", 120)), "/104 1/1 A 192.0.2.1 30");
    assert_eq!(ask(("9.9.9.0", 24)), "/1 1/1 A 192.0.2.3 30");
}

#[test]
fn folding_blocks_stand_apart_and_are_looked_up_as_ipv4() {
    let world = subnet_world();
    assert_eq!(entry(&world, "::ffff:198.51.100.1"), (24, false));
    assert_eq!(entry(&world, "64:ff9b::cb00:7180"), (25, false));
    assert_eq!(entry(&world, "2001:db8::1"), (3, false));
    // Sources inside them are the IPv4 prefixes they mean.
    let mut mapped = world.clone();
    mapped.parts.profiles[0].endpoints[1].subnets = vec![range("::ffff:9.9.9.0/120")];
    assert_eq!(entry(&mapped, "9.9.9.9"), (24, false));
}

#[test]
fn what_no_profile_looks_at_divides_nothing() {
    let priority = profile("p", Method::Priority, vec![endpoint("a", "192.0.2.1")]);
    let world = World::new(vec![priority]).override_geo(&[("198.51.100.0/24", "IE")]).latency(&[(
        "203.0.113.0/24",
        "eu",
        5.0,
    )]);
    let snapshot = world.snapshot();
    assert_eq!(snapshot.atlas.locations(), 1);
    assert!(!snapshot.atlas.looks_at_client(ProfileId(0)));
    assert_eq!(snapshot.atlas.partition(ProfileId(0)), Partition::Trivial);
    assert_eq!(entry(&world, "198.51.100.1"), (0, false));
}

#[test]
fn countries_that_lead_to_one_endpoint_are_one_location() {
    let mut europe = endpoint("europe", "192.0.2.1");
    europe.geo = vec![parse("GEO-EU")];
    let world = World::new(vec![profile("p", Method::Geographic, vec![europe])]).override_geo(&[
        ("198.51.100.0/25", "IE"),
        ("198.51.100.128/25", "DE"),
        ("203.0.113.0/24", "US"),
    ]);
    assert_eq!(world.snapshot().atlas.locations(), 2);
    assert_eq!(entry(&world, "198.51.100.1"), (24, false));
    assert_eq!(entry(&world, "203.0.113.1"), (5, false));
}

#[test]
fn a_nested_profile_divides_only_the_clients_that_reach_it() {
    let near = |label: &str, region: &str| {
        let mut made = endpoint(label, "192.0.2.9");
        made.region = Some(region.into());
        made
    };
    let mut europe = endpoint("europe", "@1");
    europe.geo = vec![parse("GEO-EU")];
    let mut child = profile("child", Method::Performance, vec![near("a", "a"), near("b", "b")]);
    child.names.clear();
    let world = World::new(vec![profile("p", Method::Geographic, vec![europe]), child])
        .override_geo(&[("198.51.100.0/24", "IE")])
        .latency(&[("198.51.100.0/25", "b", 1.0), ("203.0.113.0/24", "b", 1.0)]);
    assert_eq!(entry(&world, "198.51.100.1"), (25, false));
    assert_eq!(entry(&world, "203.0.113.1"), (5, false));
}

#[test]
fn what_the_fallback_of_a_subnet_nests_divides_its_clients() {
    let mut office = endpoint("office", "192.0.2.1");
    office.subnets = vec![range("198.51.100.0/24")];
    let mut elsewhere = endpoint("elsewhere", "192.0.2.2");
    elsewhere.subnets = vec![range("203.0.113.0/24")];
    let mut europe = endpoint("europe", "192.0.2.3");
    europe.geo = vec![parse("GEO-EU")];
    let mut child = profile("child", Method::Geographic, vec![europe]);
    child.names.clear();
    let mut spare = endpoint("spare", "@1");
    spare.subnets = vec![range("192.0.2.0/24")];
    let mut net = profile("net", Method::Subnet, vec![office, elsewhere, spare]);
    net.all_down = crate::model::AllDown::Fallback(2);
    let world = World::new(vec![net, child])
        .override_geo(&[("198.51.100.0/25", "IE"), ("9.9.9.0/24", "IE")])
        .with_state(&["net/office=unhealthy"]);
    assert_eq!(entry(&world, "198.51.100.1"), (25, false));
    assert_eq!(entry(&world, "198.51.100.200"), (25, false));
    assert_eq!(entry(&world, "203.0.113.1"), (24, false));
    // Who belongs to no endpoint never reaches the fallback.
    assert_eq!(entry(&world, "9.9.9.9"), (1, false));
    assert_eq!(world.ask("net", Asked::A, "198.51.100.1"), "/25 1/1 A 192.0.2.3 30");
    assert_eq!(world.ask("net", Asked::A, "198.51.100.200"), "/25 1/1 NODATA 0");
}

fn parse(code: &str) -> GeoCode {
    crate::geo_regions::parse_code(code).unwrap()
}

/// Longest matching prefix of a list by looking at each; of equal ones the last. A prefix in a folding
/// block means IPv4.
fn longest<'l, T>(list: impl Iterator<Item = (&'l IpNet, T)>, address: IpAddr) -> Option<T> {
    let means = |net: &IpNet| match net {
        IpNet::V6(net) => {
            let (client, folded) = Client::ipv6(net.network().octets()).fold(net.prefix_len());
            if folded == 0 {
                return IpNet::V6(*net);
            }
            let o = client.octets;
            IpNet::new(IpAddr::from([o[0], o[1], o[2], o[3]]), net.prefix_len() - 96).unwrap()
        }
        net => *net,
    };
    list.filter(|(net, _)| means(net).contains(&address))
        .fold(None, |best: Option<(u8, T)>, (net, value)| {
            let len = means(net).prefix_len();
            if best.as_ref().is_none_or(|&(before, _)| len >= before) { Some((len, value)) } else { best }
        })
        .map(|(_, value)| value)
}

/// What is known of an address, found without a sweep.
fn naive(world: &World, atlas: &Atlas, model: &Model, address: IpAddr) -> Location {
    let database = world.geography.database.iter().map(|(net, facts)| (net, facts));
    let database = longest(database, address).copied().unwrap_or_default();
    let overrides = world.geography.overrides.iter().map(|(net, code)| (net, *code));
    let (country, state, grouping) = match longest(overrides, address) {
        Some(GeoCode::World) => (None, None, None),
        Some(GeoCode::Grouping(code)) => (None, None, Some(GeoCode::Grouping(code))),
        Some(GeoCode::Country(country)) => (Some(country), None, grouping_of(country)),
        Some(GeoCode::State(country, state)) => (Some(country), Some(state), grouping_of(country)),
        None => {
            let country = database.country;
            (country, database.state, country.and_then(grouping_of))
        }
    };
    let state = state
        .zip(country)
        .filter(|&(state, country)| is_state(country, state))
        .map(|(state, country)| GeoCode::State(country, state));
    let mut latency: Vec<(u16, f64)> = atlas
        .regions
        .iter()
        .filter_map(|(region, &id)| {
            let rows = world.latency.rows.iter().filter(|(_, each, _)| each == region);
            longest(rows.map(|(net, _, milliseconds)| (net, *milliseconds)), address).map(|ms| (id, ms))
        })
        .collect();
    latency.sort_by_key(|&(id, _)| id);
    let needs = Needs::of(model);
    let mut members: Vec<(u32, u32)> = Vec::new();
    for (profile, map) in model.profiles().iter().zip(&needs.maps) {
        let Some(map) = *map else { continue };
        let holds = |range: &crate::model::AddressRange| {
            let folded = |address: IpAddr| match address {
                IpAddr::V6(v6) => {
                    let (client, folded) = Client::ipv6(v6.octets()).fold(128);
                    let o = client.octets;
                    if folded == 0 { address } else { IpAddr::from([o[0], o[1], o[2], o[3]]) }
                }
                v4 => v4,
            };
            let (first, last) = (folded(range.first), folded(range.last));
            let (first, last) =
                if first.is_ipv4() == last.is_ipv4() { (first, last) } else { (range.first, range.last) };
            first.is_ipv4() == address.is_ipv4() && (first..=last).contains(&address)
        };
        for (index, endpoint) in (1..).zip(&profile.endpoints) {
            if endpoint.status != crate::model::AdminStatus::Disabled && endpoint.subnets.iter().any(holds) {
                members.push((map, index));
            }
        }
    }
    members.sort_unstable();
    // Where ranges meet that mean the same IPv4 addresses, the first endpoint counts.
    members.dedup_by_key(|&mut (map, _)| map);
    Location {
        codes: [state, country.map(GeoCode::Country), grouping],
        coordinates: database.coordinates,
        latency: latency.into(),
        members: members.into(),
    }
}

/// An address somewhere in a prefix.
fn inside(dice: &mut Dice, address: IpAddr, len: u8) -> IpAddr {
    let mut random = || u128::from_be_bytes(std::array::from_fn(|_| dice.roll(256) as u8));
    match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shr(len.into()).unwrap_or(0);
            std::net::Ipv4Addr::from_bits(address.to_bits() & !mask | random() as u32 & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shr(len.into()).unwrap_or(0);
            std::net::Ipv6Addr::from_bits(address.to_bits() & !mask | random() & mask).into()
        }
    }
}

fn folded(address: IpAddr) -> Client {
    match address {
        IpAddr::V4(address) => Client::ipv4(address.octets()),
        IpAddr::V6(address) => Client::ipv6(address.octets()).fold(128).0,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// The sweep, the classes and their numbers against a look at every prefix.
    #[test]
    fn what_is_known_is_what_a_search_through_all_prefixes_finds(
        octets in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let mut dice = Dice::new(octets);
        let world = some_world(&mut dice);
        let snapshot = world.snapshot();
        for _ in 0..12 {
            let address = some_address(&mut dice);
            let client = folded(address);
            let plain = if client.family == 4 {
                let o = client.octets;
                IpAddr::from([o[0], o[1], o[2], o[3]])
            } else {
                address
            };
            let found = naive(&world, &snapshot.atlas, &snapshot.model, plain);
            let entry = snapshot.atlas.find(&client);
            for (id, profile) in (0..).map(ProfileId).zip(snapshot.model.profiles()) {
                for asked in [Asked::A, Asked::Aaaa, Asked::Cname, Asked::Any] {
                    let expected = choose(&snapshot, id, asked, &found);
                    prop_assert_eq!(
                        &choose(&snapshot, id, asked, snapshot.atlas.facts(&client)), &expected
                    );
                    if !profile.names.is_empty() {
                        let class = snapshot.atlas.location(entry.location);
                        prop_assert_eq!(&choose(&snapshot, id, asked, class), &expected);
                    }
                }
            }
        }
    }

    /// Inside the scope of an answer every client has the same distribution.
    #[test]
    fn scopes_hold(octets in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut dice = Dice::new(octets);
        let snapshot = some_world(&mut dice).snapshot();
        for _ in 0..8 {
            let mut asker = some_asker(&mut dice);
            // An option that names the whole address, so that its scope can be looked into.
            let address = some_address(&mut dice);
            let bits = if address.is_ipv4() { 32 } else { 128 };
            asker.ecs = Some((address, bits));
            let special = snapshot.atlas.find(&folded(address)).special;
            for (id, profile) in (0..).map(ProfileId).zip(snapshot.model.profiles()) {
                if profile.names.is_empty() {
                    continue;
                }
                for asked in [Asked::A, Asked::Aaaa] {
                    let here = distribution(&snapshot, id, asked, &asker);
                    for _ in 0..3 {
                        let other = inside(&mut dice, address, here.scope);
                        // Special blocks are exceptions inside the entries around them; so are the
                        // folding blocks inside a scope of 0.
                        if snapshot.atlas.find(&folded(other)).special != special
                            || folded(other).family != folded(address).family
                        {
                            continue;
                        }
                        let there =
                            distribution(&snapshot, id, asked, &Asker { ecs: Some((other, bits)), ..asker });
                        prop_assert_eq!(&here, &there, "{} and {}", address, other);
                    }
                }
            }
        }
    }

    /// Entries cover the family once, and no two halves of a prefix are of one location.
    #[test]
    fn entries_are_disjoint_and_the_fewest(octets in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut dice = Dice::new(octets);
        let snapshot = some_world(&mut dice).snapshot();
        let atlas = &snapshot.atlas;
        let mut next = Some(0u32);
        let mut before: Option<(u32, u8, u32)> = None;
        for (address, len, location, _) in atlas.entries4().filter(|entry| !entry.3) {
            let first = address.to_bits();
            // A special block that is exactly an entry stands for it.
            while next.is_some_and(|next| next < first) {
                let hole = atlas.find(&Client::ipv4(next.unwrap_or(0).to_be_bytes()));
                prop_assert!(hole.special);
                next = next.and_then(|at| at.checked_add(1 << (32 - hole.prefix_len)));
            }
            prop_assert_eq!(next, Some(first));
            if let Some((earlier, earlier_len, earlier_location)) = before {
                let sibling = len > 0 && earlier_len == len && earlier ^ first == 1 << (32 - len);
                prop_assert!(!(sibling && earlier_location == location), "{}/{}", address, len);
            }
            before = Some((first, len, location));
            next = u32::try_from(u64::from(first) + (1 << (32 - len))).ok();
        }
        let found = |octets: [u8; 4]| atlas.find(&Client::ipv4(octets));
        for (address, len, location, special) in atlas.entries4() {
            let inside = found(address.octets());
            if !inside.special || special {
                prop_assert_eq!((inside.prefix_len, inside.location), (len, location));
            }
        }
        let blocks: f64 = atlas.entries6().filter(|e| !e.3).map(|e| 2f64.powi(-i32::from(e.1))).sum();
        prop_assert!(blocks <= 1.0 && blocks > 0.9, "{}", blocks);
    }
}

#[test]
fn many_prefixes_make_few_locations() {
    // Three regions have six orders, and nearest ties keep the file's.
    let (entries, locations) = large(60_000);
    assert!(entries > 60_000, "{entries}");
    assert!(locations <= 6, "{locations}");
}

/// Builds an atlas over this many prefixes of the latency table; returns its IPv4 entries.
fn large(prefixes: u32) -> (usize, u32) {
    let near = |label: &str, region: &str| {
        let mut made = endpoint(label, "192.0.2.9");
        made.region = Some(region.into());
        made
    };
    let mut world = World::new(vec![profile(
        "p",
        Method::Performance,
        vec![near("a", "a"), near("b", "b"), near("c", "c")],
    )]);
    world.latency.rows = (0..prefixes)
        .map(|at| {
            let address = std::net::Ipv4Addr::from_bits(at.wrapping_mul(0x9e37_79b1) & 0xffff_ff00);
            let region = ["a", "b", "c"][at as usize % 3];
            (IpNet::new(address.into(), 24).unwrap(), region.to_owned(), f64::from(at % 50))
        })
        .collect();
    let snapshot = world.snapshot();
    (snapshot.atlas.entries4().count(), snapshot.atlas.locations())
}
