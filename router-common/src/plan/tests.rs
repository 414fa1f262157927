use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;
use crate::decide::{Asker, Dependence, Distribution, dependence, distribution};
use crate::fixture::*;
use crate::model::{AdminStatus, Method, Profile, ProfileId, rtype};
use crate::view::Health;

fn plan(before: &World, after: &World) -> Plan {
    let (old, new) = (before.snapshot(), after.snapshot());
    compare((&old.model, &old), (&new.model, &new), &Options::default())
}

fn weighted(weights: &[u16]) -> Profile {
    let endpoint = |(at, &weight): (usize, &u16)| {
        let mut made = endpoint(&format!("e{at}"), &format!("192.0.2.{at}"));
        made.weight = weight;
        made
    };
    profile("www", Method::Weighted, weights.iter().enumerate().map(endpoint).collect())
}

fn shown(items: &[Item]) -> Vec<String> {
    let item = |item: &Item| {
        let change = match &item.change {
            Change::Added(about) => format!("+ {about}"),
            Change::Removed(about) => format!("- {about}"),
            Change::Changed(settings) => {
                let setting =
                    |setting: &Setting| format!("{} {} -> {}", setting.key, setting.before, setting.after);
                settings.iter().map(setting).collect::<Vec<_>>().join(", ")
            }
        };
        format!("{:?} {}: {change}", item.kind, item.name)
    };
    items.iter().map(item).collect()
}

#[test]
fn a_weight_moves_the_share_that_it_must() {
    let found = plan(&World::new(vec![weighted(&[3, 1])]), &World::new(vec![weighted(&[1, 1])]));
    assert_eq!(shown(&found.items), ["Endpoint www/e0: weight 3 -> 1"]);
    let quarter = Share::ratio(1, 4);
    assert_eq!(found.traffic.moved.a, [quarter.clone(), quarter]);
    assert_eq!(found.traffic.moved.aaaa, [Share::zero(), Share::zero()]);
    assert_eq!(found.traffic.clients.a, [Share::one(), Share::one()]);
    assert!(found.traffic.nodata.is_zero());
    let [steered] = found.traffic.steered.as_slice() else { panic!("one profile") };
    let endpoints: Vec<_> = steered
        .endpoints
        .iter()
        .map(|each| (each.path.as_str(), each.before.a[0].to_string(), each.after.a[1].to_string()))
        .collect();
    assert_eq!(endpoints, [("www/e0", "3/4".into(), "1/2".into()), ("www/e1", "1/4".into(), "1/2".into())]);
    assert_eq!(steered.examples[0].before, "www/e0 75.0 %, www/e1 25.0 %");
}

#[test]
fn a_country_that_goes_is_nodata_with_its_prefixes() {
    let geographic = |codes: &[&str]| {
        let mut eu = endpoint("eu", "192.0.2.1");
        eu.geo = codes.iter().map(|code| crate::geo_regions::parse_code(code).expect("a code")).collect();
        World::new(vec![profile("www", Method::Geographic, vec![eu])]).override_geo(&[
            ("198.51.100.0/24", "IE"),
            ("203.0.113.0/25", "DE"),
            ("10.0.0.0/8", "IE"),
        ])
    };
    let found = plan(&geographic(&["IE", "DE"]), &geographic(&["IE"]));
    assert_eq!(shown(&found.items), ["Endpoint www/eu: geo IE DE -> IE"]);
    let share = Share::ratio(128, 222 << 24);
    assert_eq!(found.traffic.nodata.a, [share.clone(), Share::zero()]);
    assert_eq!((found.traffic.moved.largest(), found.traffic.clients.largest()), (share.clone(), share));
    let [example] = found.traffic.steered[0].nodata_examples.as_slice() else { panic!("one prefix") };
    assert_eq!(example.prefix.to_string(), "203.0.113.0/25");
    assert_eq!((example.before.as_str(), example.after.as_str()), ("www/eu", "NODATA"));
}

#[test]
fn clients_in_no_block_that_counts_are_told_of() {
    let subnet = |rest: bool| {
        let mut inside = endpoint("inside", "192.0.2.1");
        inside.subnets = vec![range("fd00::/8")];
        let mut all = vec![inside];
        if rest {
            all.push(endpoint("rest", "192.0.2.2"));
        } else {
            all[0].status = AdminStatus::Disabled;
            all.push(endpoint("rest", "192.0.2.2"));
        }
        World::new(vec![profile("www", Method::Subnet, all)])
    };
    let found = plan(&subnet(true), &subnet(false));
    assert!(found.traffic.moved.is_zero());
    let [steered] = found.traffic.steered.as_slice() else { panic!("one profile") };
    assert!(steered.unseen);
    assert_eq!(steered.examples[0].prefix.to_string(), "fd00::/8");
    assert_eq!(steered.examples[0].after, "www/rest");
}

#[test]
fn names_come_go_and_are_bound_to_others() {
    let mut before =
        World::new(vec![weighted(&[1]), profile("b", Method::Priority, vec![endpoint("x", "192.0.2.9")])]);
    before.parts.profiles[0].names.push(name("gone.x.test"));
    before.parts.profiles[0].names.push(name("covered.apps.x.test"));
    record(&mut before.parts.zones[0], "static.x.test", rtype::A, &[192, 0, 2, 70]);
    record(&mut before.parts.zones[0], "text.x.test", 16, b"\x01a");
    let mut after = before.clone();
    after.parts.profiles[0].names = vec![name("new.x.test"), name("*.apps.x.test")];
    after.parts.profiles[1].names.push(name("www.x.test"));
    record(&mut after.parts.zones[0], "static.x.test", rtype::A, &[192, 0, 2, 71]);
    let found = plan(&before, &after);
    assert_eq!(
        shown(&found.items),
        [
            "Name *.apps.x.test.: + profile www",
            "Name covered.apps.x.test.: - profile www",
            "Name gone.x.test.: - profile www",
            "Name new.x.test.: + profile www",
            "Name static.x.test.: records A 192.0.2.70 ttl 60 -> A 192.0.2.71 ttl 60",
            "Name www.x.test.: profile www -> b",
        ]
    );
    assert_eq!(found.traffic.gone, 1);
    let steered: Vec<_> =
        found.traffic.steered.iter().map(|one| (one.before.as_str(), one.after.as_str())).collect();
    assert_eq!(steered, [("records", "records"), ("www", "b")]);
    // Two of four that were and are: b's own name and the covered one stay.
    assert_eq!(found.traffic.moved.a[0], Share::ratio(1, 2));
    assert_eq!(found.traffic.moved_by_queries, None);
    let counted = HashMap::from([("www".to_owned(), 300), ("b".to_owned(), 100)]);
    let (old, new) = (before.snapshot(), after.snapshot());
    let options = Options { queries: Some(&counted), ..Options::default() };
    let found = compare((&old.model, &old), (&new.model, &new), &options);
    // A third of www's queries each: one moved, one stays, one is gone.
    let moved = found.traffic.moved_by_queries.as_ref().expect("queries were counted");
    assert_eq!(moved.a[0], Share::ratio(1, 3));
    assert_eq!(found.traffic.moved.a[0], Share::ratio(1, 2), "names are another measure");
}

#[test]
fn settings_are_told_of_in_the_words_of_the_configuration() {
    let before = World::new(vec![
        profile(
            "www",
            Method::Priority,
            vec![endpoint("a", "192.0.2.1"), endpoint("b", "192.0.2.2 2001:db8::2")],
        ),
        profile("old", Method::Priority, vec![endpoint("a", "@0")]),
    ]);
    let mut after = before.clone();
    after.parts.profiles[1] = profile("new", Method::Priority, vec![endpoint("a", "t.example.net.")]);
    let www = &mut after.parts.profiles[0];
    (www.ttl, www.all_down) = (5, crate::model::AllDown::Fallback(1));
    www.endpoints[0].always_serve = true;
    www.endpoints[1].target = endpoint("b", "192.0.2.3").target;
    for endpoint in &mut www.endpoints {
        let monitor = endpoint.monitor.as_mut().expect("monitored");
        monitor.interval = std::time::Duration::from_millis(11_500);
    }
    after.parts.zones[0].soa.serial = 2;
    after.parts.zones.push(zone("z.test"));
    assert_eq!(
        shown(&plan(&before, &after).items),
        [
            "Zone x.test.: soa.serial 1 -> 2",
            "Zone z.test.: + ",
            "Name new.x.test.: + profile new",
            "Name old.x.test.: - profile old",
            "Name z.test.: + NS SOA",
            "Profile new: + priority",
            "Profile old: - priority",
            "Profile www: ttl 30 -> 5, all_down serve-all -> fallback b, monitor.interval 30s -> 11500ms",
            "Endpoint new/a: + t.example.net.",
            "Endpoint old/a: - profile www",
            "Endpoint www/a: always_serve false -> true",
            "Endpoint www/b: address 192.0.2.2 2001:db8::2 -> 192.0.2.3",
        ]
    );
}

/// Every address at which something may change, for either side, and that at which the counted blocks begin.
fn borders(snapshots: [&Snapshot; 2]) -> [BTreeSet<u128>; 2] {
    let mut borders = [BTreeSet::from([0x0100_0000, 0x7f00_0000, 0x8000_0000, 0xe000_0000]), BTreeSet::new()];
    for (head, len) in [
        (0x2001u128, 16u32),
        (0x2003, 18),
        (0x2400, 11),
        (0x2600, 12),
        (0x2610, 23),
        (0x2620, 23),
        (0x2630, 12),
        (0x2800, 12),
        (0x2a00, 11),
        (0x2c00, 12),
    ] {
        borders[1].extend([head << 112, (head << 112 | u128::MAX >> len) + 1]);
    }
    for snapshot in snapshots {
        for (address, len, ..) in snapshot.atlas.entries4() {
            let first = u128::from(address.to_bits());
            borders[0].extend([first, first + (1 << (32 - len))]);
        }
        for (address, len, ..) in snapshot.atlas.entries6() {
            let last = address.to_bits() | u128::MAX.checked_shr(len.into()).unwrap_or(0);
            borders[1].extend([Some(address.to_bits()), last.checked_add(1)].into_iter().flatten());
        }
    }
    borders[0].insert(0);
    borders[1].insert(0);
    borders
}

/// Whether an address counts.
fn counts(family: usize, address: u128) -> bool {
    if family == 0 {
        return (0x0100_0000..0x7f00_0000).contains(&address)
            || (0x8000_0000..0xe000_0000).contains(&address);
    }
    let (head, next) = ((address >> 112) as u16, (address >> 96) as u16);
    match head {
        0x2001 | 0x2400..=0x241f | 0x2600..=0x260f | 0x2630..=0x263f | 0x2800..=0x280f => true,
        0x2a00..=0x2a1f | 0x2c00..=0x2c0f => true,
        0x2003 => next < 0x4000,
        0x2610 | 0x2620 => next < 0x0200,
        _ => false,
    }
}

fn distance(before: &Distribution, after: &Distribution) -> [Share; 2] {
    let share = |distribution: &Distribution, records: Option<&crate::decide::Records>| -> Share {
        let sorted = records.map(crate::decide::Records::sorted);
        let fits = |each: &&crate::decide::Outcome| {
            each.records.as_ref().map(crate::decide::Records::sorted) == sorted
        };
        distribution.outcomes.iter().filter(fits).map(|each| &each.share).sum()
    };
    let mut answers: Vec<Option<crate::decide::Records>> =
        after.outcomes.iter().map(|each| each.records.as_ref().map(crate::decide::Records::sorted)).collect();
    answers.dedup();
    let mut moved = Share::zero();
    let mut seen = Vec::new();
    for records in answers {
        if !seen.contains(&records) {
            moved = moved.add(&share(after, records.as_ref()).less(&share(before, records.as_ref())));
            seen.push(records);
        }
    }
    [moved, share(after, None).less(&share(before, None))]
}

/// Moved and NODATA shares by asking for the first client of every stretch; none when clients are hashed.
fn asked_one_by_one(
    (before, old): (&Snapshot, ProfileId),
    (after, new): (&Snapshot, ProfileId),
) -> Option<[Shares; 2]> {
    let mut sums = [Shares::default(), Shares::default()];
    for (family, borders) in borders([before, after]).into_iter().enumerate() {
        let borders: Vec<u128> = borders.into_iter().collect();
        let mut all = 0u128;
        let mut parts = Vec::new();
        for (at, &first) in borders.iter().enumerate() {
            if !counts(family, first) {
                continue;
            }
            let source = match family {
                0 => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(first).expect("an IPv4 address"))),
                _ => IpAddr::V6(Ipv6Addr::from_bits(first)),
            };
            let count = borders[at + 1] - first;
            all += count;
            let asker = Asker { source, ecs: None };
            for (kind, asked) in [Asked::A, Asked::Aaaa].into_iter().enumerate() {
                for (snapshot, id) in [(before, old), (after, new)] {
                    if dependence(snapshot, id, asked, &asker) == Dependence::Address {
                        return None;
                    }
                }
                let each = distance(
                    &distribution(before, old, asked, &asker),
                    &distribution(after, new, asked, &asker),
                );
                parts.push((kind, count, each));
            }
        }
        for (kind, count, each) in parts {
            for (sum, share) in sums.iter_mut().zip(each) {
                let sum = if kind == 0 { &mut sum.a[family] } else { &mut sum.aaaa[family] };
                *sum = sum.add(&share.mul(&Share::of_counts(count, all)));
            }
        }
    }
    Some(sums)
}

fn two_worlds() -> impl Strategy<Value = (World, World)> {
    (prop::collection::vec(any::<u8>(), 0..300), prop::collection::vec(any::<u8>(), 0..300), 0..4u8).prop_map(
        |(one, other, alike)| {
            let before = some_world(&mut Dice::new(one));
            let mut after = some_world(&mut Dice::new(other));
            if alike > 1 {
                // The same world but for a profile's settings, or for health.
                let differing = after;
                after = before.clone();
                match alike {
                    2 => after.parts.profiles[0].method = Method::Weighted,
                    _ => {
                        after.geography = differing.geography;
                        after.latency = differing.latency;
                    }
                }
            }
            (before, after)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn equal_worlds_have_an_empty_plan(octets in prop::collection::vec(any::<u8>(), 0..300)) {
        let world = some_world(&mut Dice::new(octets));
        let found = plan(&world, &world);
        prop_assert!(found.is_empty(), "{found:?}");
        prop_assert!(found.traffic.moved.is_zero() && found.traffic.gone == 0);
        let (old, new) = (world.snapshot(), world.snapshot());
        let options = Options { same_sources: true, queries: None };
        prop_assert!(compare((&old.model, &old), (&new.model, &new), &options).is_empty());
    }

    #[test]
    fn moved_shares_are_those_of_clients_asked_one_by_one((before, after) in two_worlds()) {
        // What the fixture changes may make no sound model.
        let sound = |world: &World| Model::new(world.parts.clone()).is_ok();
        prop_assume!(sound(&before) && sound(&after));
        let (old, new) = (before.snapshot(), after.snapshot());
        let found = compare((&old.model, &old), (&new.model, &new), &Options::default());
        let bound = |model: &Model, name: &Name| model.bindings().get(name).and_then(|binding| binding.profile);
        let label = name("p0.x.test");
        let (Some(one), Some(other)) = (bound(&old.model, &label), bound(&new.model, &label)) else {
            return Ok(());
        };
        let none = Shares::default();
        let steered = found.traffic.steered.iter().find(|steered| steered.names.contains(&label));
        if let Some([moved, nodata]) = asked_one_by_one((&old, one), (&new, other)) {
            prop_assert_eq!(steered.map_or(&none, |steered| &steered.moved), &moved);
            prop_assert_eq!(steered.map_or(&none, |steered| &steered.nodata), &nodata);
        }
        for steered in &found.traffic.steered {
            // What one endpoint loses, others gain, and nothing is above one.
            for pick in [0, 1, 2, 3] {
                let of = |shares: &Shares| [&shares.a[0], &shares.a[1], &shares.aaaa[0], &shares.aaaa[1]][pick].clone();
                let before: Share = steered.endpoints.iter().map(|each| of(&each.before)).sum();
                let after: Share = steered.endpoints.iter().map(|each| of(&each.after)).sum();
                prop_assert_eq!(&before, &after);
                prop_assert!(before <= Share::one() && of(&steered.moved) <= of(&steered.clients));
                prop_assert!(of(&steered.nodata) <= of(&steered.moved) && of(&steered.clients) <= Share::one());
            }
        }
        prop_assert!(found.traffic.moved.largest() <= Share::one());
    }

    #[test]
    fn profiles_that_are_alike_need_not_be_asked(octets in prop::collection::vec(any::<u8>(), 0..300), pick in any::<u8>(), down in any::<bool>()) {
        let before = some_world(&mut Dice::new(octets));
        let mut after = before.clone();
        let count = after.parts.profiles.len();
        let changed = &mut after.parts.profiles[usize::from(pick) % count];
        if down {
            let id = crate::model::EndpointId { profile: ProfileId(u32::from(pick) % count as u32), index: 0 };
            after.health.verdicts.insert(id, Health::Unhealthy);
        } else {
            changed.endpoints[0].status = AdminStatus::Disabled;
        }
        prop_assume!(Model::new(after.parts.clone()).is_ok());
        let (old, new) = (before.snapshot(), after.snapshot());
        let with = |same_sources| {
            compare((&old.model, &old), (&new.model, &new), &Options { same_sources, queries: None })
        };
        prop_assert_eq!(with(true), with(false));
    }
}
