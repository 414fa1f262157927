use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::fixture::*;
use crate::geo_regions::parse_code;
use crate::model::{AdminStatus, AllDown, Coordinates, Endpoint, Method, MinChildren, Profile, Target};

fn weighted(label: &str, target: &str, weight: u16) -> Endpoint {
    Endpoint { weight, ..endpoint(label, target) }
}

fn near(label: &str, target: &str, region: &str) -> Endpoint {
    Endpoint { region: Some(region.into()), ..endpoint(label, target) }
}

fn mapped(label: &str, target: &str, codes: &[&str]) -> Endpoint {
    let geo = codes.iter().map(|code| parse_code(code).unwrap()).collect();
    Endpoint { geo, ..endpoint(label, target) }
}

fn nested_only(mut profile: Profile) -> Profile {
    profile.names.clear();
    profile
}

fn prio() -> World {
    World::new(vec![profile(
        "prio",
        Method::Priority,
        vec![
            endpoint("first", "192.0.2.1"),
            endpoint("second", "192.0.2.2 2001:db8::2"),
            endpoint("third", "backup.example.net."),
        ],
    )])
}

#[test]
fn priority_takes_the_first_available_that_can_answer() {
    for (state, asked, expected) in [
        (&[][..], Asked::A, "/0 1/1 A 192.0.2.1 30"),
        (&["prio/first=unhealthy"], Asked::A, "/0 1/1 A 192.0.2.2 30"),
        (&["prio/first=checking"], Asked::A, "/0 1/1 A 192.0.2.1 30"),
        (&["prio/first=unhealthy", "prio/second=unhealthy"], Asked::A, "/0 1/1 CNAME backup.example.net. 30"),
        (
            &["prio/first=unhealthy", "prio/second=unhealthy", "prio/third=unhealthy"],
            Asked::A,
            "/0 1/1 A 192.0.2.1 30",
        ),
        (&[], Asked::Aaaa, "/0 1/1 AAAA 2001:db8::2 30"),
        (&[], Asked::Cname, "/0 1/1 CNAME backup.example.net. 30"),
        (&["prio/first=unhealthy"], Asked::Any, "/0 1/1 A 192.0.2.2 30"),
    ] {
        assert_eq!(prio().with_state(state).ask("prio", asked, "198.51.100.7"), expected, "{state:?}");
    }
}

#[test]
fn all_down_policies() {
    let all = ["prio/first=unhealthy", "prio/second=unhealthy", "prio/third=unhealthy"];
    for (policy, asked, expected) in [
        (AllDown::ServeAll, Asked::Aaaa, "/0 1/1 AAAA 2001:db8::2 30"),
        (AllDown::Nodata, Asked::A, "/0 1/1 NODATA 0"),
        (AllDown::Fallback(1), Asked::A, "/0 1/1 A 192.0.2.2 30"),
        (AllDown::Fallback(0), Asked::Aaaa, "/0 1/1 NODATA 0"),
    ] {
        let mut world = prio().with_state(&all);
        world.parts.profiles[0].all_down = policy;
        assert_eq!(world.ask("prio", asked, "198.51.100.7"), expected, "{policy:?} {asked:?}");
    }
    let mut off = prio().with_state(&all);
    off.parts.profiles[0].all_down = AllDown::Fallback(1);
    off.parts.profiles[0].endpoints[1].status = AdminStatus::Stopped;
    assert_eq!(off.ask("prio", Asked::A, "198.51.100.7"), "/0 1/1 NODATA 0");
    let mut none = prio();
    for endpoint in &mut none.parts.profiles[0].endpoints {
        endpoint.status = AdminStatus::Disabled;
    }
    assert_eq!(none.ask("prio", Asked::A, "198.51.100.7"), "/0 1/1 NODATA 0");
}

fn wrr() -> Profile {
    profile(
        "wrr",
        Method::Weighted,
        vec![
            weighted("big", "192.0.2.1", 700),
            weighted("small", "192.0.2.2", 200),
            endpoint("default", "192.0.2.3"),
        ],
    )
}

#[test]
fn weights_are_exact_and_multiply_along_nesting() {
    assert_eq!(
        World::new(vec![wrr()]).ask("wrr", Asked::A, "198.51.100.7"),
        "/0 1/901 A 192.0.2.3 30; 200/901 A 192.0.2.2 30; 700/901 A 192.0.2.1 30"
    );
    let mut outer =
        profile("outer", Method::Weighted, vec![endpoint("pool", "@1"), weighted("direct", "192.0.2.9", 3)]);
    outer.ttl = 300;
    assert_eq!(
        World::new(vec![outer, wrr()]).ask("outer", Asked::A, "198.51.100.7"),
        "/0 1/3604 A 192.0.2.3 30; 175/901 A 192.0.2.1 30; 3/4 A 192.0.2.9 300; 50/901 A 192.0.2.2 30"
    );
}

#[test]
fn a_nested_pool_is_up_while_enough_of_it_is() {
    let pool =
        Endpoint { min_children: MinChildren { any: 2, ..MinChildren::default() }, ..endpoint("pool", "@1") };
    let top = profile("top", Method::Priority, vec![pool, endpoint("reserve", "192.0.2.99")]);
    let world = World::new(vec![top, wrr()]);
    let ask = |state: &[&str]| world.clone().with_state(state).ask("top", Asked::A, "198.51.100.7");
    assert_eq!(ask(&["wrr/big=unhealthy"]), "/0 1/201 A 192.0.2.3 30; 200/201 A 192.0.2.2 30");
    assert_eq!(ask(&["wrr/big=unhealthy", "wrr/small=unhealthy"]), "/0 1/1 A 192.0.2.99 30");
}

#[test]
fn multivalue_gives_all_healthy_addresses_or_windows_of_them() {
    let world = |max_return| {
        World::new(vec![profile(
            "multi",
            Method::Multivalue { max_return },
            vec![
                endpoint("m1", "192.0.2.1"),
                endpoint("m2", "192.0.2.2"),
                endpoint("m3", "192.0.2.3 2001:db8::3"),
            ],
        )])
    };
    let ask = |max, state: &[&str], asked| world(max).with_state(state).ask("multi", asked, "9.9.9.9");
    assert_eq!(ask(4, &[], Asked::A), "/0 1/1 A 192.0.2.1+192.0.2.2+192.0.2.3 30");
    assert_eq!(ask(4, &["multi/m2=unhealthy"], Asked::A), "/0 1/1 A 192.0.2.1+192.0.2.3 30");
    assert_eq!(ask(4, &[], Asked::Aaaa), "/0 1/1 AAAA 2001:db8::3 30");
    assert_eq!(ask(4, &[], Asked::Cname), "/0 1/1 NODATA 0");
    assert_eq!(
        ask(2, &[], Asked::A),
        "/0 1/3 A 192.0.2.1+192.0.2.2 30; 1/3 A 192.0.2.1+192.0.2.3 30; 1/3 A 192.0.2.2+192.0.2.3 30"
    );
}

fn geographic() -> World {
    let west =
        profile("west", Method::Priority, vec![endpoint("w1", "192.0.2.11"), endpoint("w2", "192.0.2.12")]);
    let west = Profile { ttl: 20, ..nested_only(west) };
    World::new(vec![
        profile(
            "www",
            Method::Geographic,
            vec![
                mapped("ireland", "192.0.2.1", &["IE"]),
                mapped("europe", "192.0.2.2", &["GEO-EU"]),
                mapped("california", "@1", &["US-CA"]),
                mapped("america", "192.0.2.4 2001:db8::4", &["GEO-NA"]),
            ],
        ),
        west,
    ])
    .override_geo(&[
        ("198.51.100.0/26", "IE"),
        ("198.51.100.64/26", "DE"),
        ("198.51.100.128/26", "US-CA"),
        ("198.51.100.192/26", "US-NY"),
        ("203.0.113.64/26", "MX"),
        ("203.0.113.128/26", "EG"),
        ("2001:db8:1::/48", "IE"),
    ])
}

#[test]
fn geographic_takes_the_narrowest_match_whatever_its_health() {
    for (state, client, asked, expected) in [
        (&[][..], "198.51.100.7", Asked::A, "/26 1/1 A 192.0.2.1 30"),
        (&["www/ireland=unhealthy"], "198.51.100.7", Asked::A, "/26 1/1 A 192.0.2.1 30"),
        (&[], "198.51.100.70", Asked::A, "/26 1/1 A 192.0.2.2 30"),
        (&[], "198.51.100.130", Asked::A, "/26 1/1 A 192.0.2.11 20"),
        (&["west/w1=unhealthy"], "198.51.100.130", Asked::A, "/26 1/1 A 192.0.2.12 20"),
        (&[], "198.51.100.200", Asked::A, "/26 1/1 A 192.0.2.4 30"),
        (&[], "203.0.113.70", Asked::A, "/26 1/1 A 192.0.2.4 30"),
        (&[], "2001:db8:1::1", Asked::A, "/48 1/1 A 192.0.2.1 30"),
    ] {
        let world = geographic().with_state(state);
        assert_eq!(world.ask("www", asked, client), expected, "{client}");
    }
    for (client, asked) in
        [("203.0.113.130", Asked::A), ("9.9.9.9", Asked::A), ("2001:db8:1::1", Asked::Aaaa)]
    {
        let answer = geographic().ask("www", asked, client);
        assert!(answer.ends_with(" 1/1 NODATA 0"), "{client}: {answer}");
    }
}

#[test]
fn a_stopped_match_ends_the_search_and_a_disabled_one_takes_no_part() {
    let ask = |status| {
        let mut world = geographic();
        world.parts.profiles[0].endpoints[0].status = status;
        world.ask("www", Asked::A, "198.51.100.7")
    };
    assert!(ask(AdminStatus::Stopped).ends_with(" 1/1 NODATA 0"));
    assert!(ask(AdminStatus::Disabled).ends_with(" 1/1 A 192.0.2.2 30"));
    let mut child_off = geographic();
    child_off.parts.profiles[1].enabled = false;
    assert!(child_off.ask("www", Asked::A, "198.51.100.130").ends_with(" 1/1 NODATA 0"));
}

fn performance() -> World {
    let pacific = profile(
        "pacific",
        Method::Weighted,
        vec![weighted("p1", "192.0.2.31", 3), weighted("p2", "192.0.2.32", 1)],
    );
    World::new(vec![
        profile(
            "www",
            Method::Performance,
            vec![near("eu", "192.0.2.1", "eu"), near("us", "192.0.2.2", "us"), near("ap", "@1", "ap")],
        ),
        Profile { ttl: 10, ..nested_only(pacific) },
    ])
    .latency(&[
        ("198.51.100.0/24", "eu", 10.0),
        ("198.51.100.0/24", "us", 90.0),
        ("198.51.100.0/24", "ap", 200.0),
        ("198.51.100.128/25", "us", 8.0),
        ("203.0.113.0/24", "ap", 9.0),
    ])
}

#[test]
fn performance_takes_the_nearest_available_region() {
    for (state, client, expected) in [
        (&[][..], "198.51.100.7", "/25 1/1 A 192.0.2.1 30"),
        (&[], "198.51.100.200", "/25 1/1 A 192.0.2.2 30"),
        (&[], "::ffff:198.51.100.200", "/121 1/1 A 192.0.2.2 30"),
        (&["www/us=unhealthy"], "198.51.100.200", "/25 1/1 A 192.0.2.1 30"),
        (&[], "203.0.113.7", "/24 1/4 A 192.0.2.32 10; 3/4 A 192.0.2.31 10"),
        (&["pacific/p1=unhealthy"], "203.0.113.7", "/24 1/1 A 192.0.2.32 10"),
        (&["pacific/p1=unhealthy", "pacific/p2=unhealthy"], "203.0.113.7", "/24 1/1 A 192.0.2.1 30"),
        (&[], "9.9.9.9", "/1 1/1 A 192.0.2.1 30"),
    ] {
        assert_eq!(performance().with_state(state).ask("www", Asked::A, client), expected, "{client}");
    }
}

#[test]
fn regions_the_table_does_not_give_come_by_distance() {
    let mut world = performance();
    let places = [("eu", 52.0, 5.0), ("us", 40.0, -74.0), ("ap", 35.0, 139.0)];
    for (region, latitude, longitude) in places {
        world.parts.regions.insert(region.into(), Coordinates { latitude, longitude });
    }
    let tokyo = crate::view::GeoFacts {
        coordinates: Some(Coordinates { latitude: 35.7, longitude: 139.7 }),
        ..Default::default()
    };
    world.geography.database = vec![(net("9.0.0.0/8"), tokyo), (net("203.0.113.0/24"), tokyo)];
    assert_eq!(world.ask("www", Asked::A, "9.9.9.9"), "/8 1/4 A 192.0.2.32 10; 3/4 A 192.0.2.31 10");
    // Amsterdam is 9,300 km from Tokyo, New York 10,800.
    let down = ["pacific/p1=unhealthy", "pacific/p2=unhealthy"];
    let next = world.clone().with_state(&down).ask("www", Asked::A, "203.0.113.7");
    assert!(next.ends_with(" 1/1 A 192.0.2.1 30"), "{next}");
}

#[test]
fn endpoints_of_one_region_share_clients_evenly_and_for_good() {
    let world = World::new(vec![profile(
        "www",
        Method::Performance,
        vec![near("a", "192.0.2.1", "eu"), near("b", "192.0.2.2", "eu"), near("c", "192.0.2.3", "us")],
    )]);
    let snapshot = world.snapshot();
    let ask = |client: [u8; 4]| {
        let asker = Asker { source: client.into(), ecs: None };
        show(&distribution(&snapshot, ProfileId(0), Asked::A, &asker))
    };
    let mut first = 0;
    for third in 0..200 {
        let answer = ask([198, 51, third, 1]);
        assert_eq!(answer, ask([198, 51, third, 200]), "the hash is of the /24");
        match answer.as_str() {
            "/24 1/1 A 192.0.2.1 30" => first += 1,
            other => assert_eq!(other, "/24 1/1 A 192.0.2.2 30"),
        }
    }
    assert!((60..140).contains(&first), "{first} of 200");
}

#[test]
fn an_override_holds_on_performance_only_while_healthy() {
    let mut canary = near("canary", "192.0.2.77", "us");
    canary.subnets = vec![range("198.51.100.128/25")];
    let world =
        World::new(vec![profile("test", Method::Performance, vec![near("eu", "192.0.2.1", "eu"), canary])])
            .latency(&[("198.51.100.0/24", "eu", 10.0), ("198.51.100.0/24", "us", 90.0)]);
    assert_eq!(world.ask("test", Asked::A, "198.51.100.130"), "/25 1/1 A 192.0.2.77 30");
    assert_eq!(world.ask("test", Asked::Aaaa, "198.51.100.130"), "/25 1/1 NODATA 0");
    let down = world.clone().with_state(&["test/canary=unhealthy"]);
    assert_eq!(down.ask("test", Asked::A, "198.51.100.130"), "/25 1/1 A 192.0.2.1 30");
    let all_down = world.with_state(&["test/canary=unhealthy", "test/eu=unhealthy"]);
    assert_eq!(all_down.ask("test", Asked::A, "198.51.100.130"), "/25 1/1 A 192.0.2.77 30");
}

#[test]
fn dials_walk_the_regions_from_near_to_far() {
    let dialled = |dials: [u8; 2]| {
        let mut beijing = near("beijing", "192.0.2.1", "cn-beijing");
        let mut shanghai = near("shanghai", "192.0.2.2", "cn-shanghai");
        (beijing.dial, shanghai.dial) = (dials[0], dials[1]);
        World::new(vec![profile("ga", Method::Performance, vec![beijing, shanghai])]).latency(&[
            ("198.51.100.0/24", "cn-beijing", 5.0),
            ("198.51.100.0/24", "cn-shanghai", 30.0),
            ("203.0.113.0/24", "cn-beijing", 30.0),
            ("203.0.113.0/24", "cn-shanghai", 5.0),
        ])
    };
    for (dials, client, state, expected) in [
        ([100, 100], "198.51.100.7", &[][..], "1/1 A 192.0.2.1 30"),
        ([50, 100], "198.51.100.7", &[], "1/2 A 192.0.2.1 30; 1/2 A 192.0.2.2 30"),
        ([50, 100], "203.0.113.7", &[], "1/1 A 192.0.2.2 30"),
        ([50, 50], "198.51.100.7", &[], "3/8 A 192.0.2.2 30; 5/8 A 192.0.2.1 30"),
        ([50, 50], "203.0.113.7", &[], "3/8 A 192.0.2.1 30; 5/8 A 192.0.2.2 30"),
        ([50, 50], "198.51.100.7", &["ga/beijing=unhealthy"], "1/1 A 192.0.2.2 30"),
    ] {
        let answer = dialled(dials).with_state(state).ask("ga", Asked::A, client);
        assert!(answer.ends_with(&format!(" {expected}")), "{dials:?} {client}: {answer}");
    }
}

#[test]
fn fastest_shares_by_weight_within_the_sensitivity() {
    let world = |sensitivity, latencies: [Option<u64>; 3]| {
        let method = Method::Fastest { sensitivity: Duration::from_millis(sensitivity) };
        let endpoints =
            vec![weighted("a", "192.0.2.1", 3), weighted("b", "192.0.2.2", 1), endpoint("c", "192.0.2.3")];
        let mut world = World::new(vec![profile("fast", method, endpoints)]).with_state(&[]);
        for (index, latency) in (0..).zip(latencies) {
            if let Some(latency) = latency {
                let id = EndpointId { profile: ProfileId(0), index };
                world.health.latency.insert(id, Duration::from_millis(latency));
            }
        }
        world.ask("fast", Asked::A, "9.9.9.9")
    };
    assert_eq!(world(0, [Some(20), Some(10), Some(10)]), "/0 1/1 A 192.0.2.2 30");
    assert_eq!(world(10, [Some(20), Some(10), Some(21)]), "/0 1/4 A 192.0.2.2 30; 3/4 A 192.0.2.1 30");
    assert_eq!(world(0, [None, None, Some(90)]), "/0 1/1 A 192.0.2.3 30");
    assert_eq!(world(0, [None; 3]), "/0 1/5 A 192.0.2.2 30; 1/5 A 192.0.2.3 30; 3/5 A 192.0.2.1 30");
}

#[test]
fn subnet_policies_apply_to_the_mapped_endpoint_alone() {
    let mut office = endpoint("office", "192.0.2.1");
    office.subnets = vec![range("198.51.100.0/24")];
    let base = World::new(vec![profile("net", Method::Subnet, vec![office, endpoint("rest", "192.0.2.3")])]);
    let ask = |policy, status, state: &[&str], client: &str| {
        let mut world = base.clone().with_state(state);
        world.parts.profiles[0].all_down = policy;
        world.parts.profiles[0].endpoints[0].status = status;
        let answer = world.ask("net", Asked::A, client);
        answer.split_once(' ').unwrap().1.to_owned()
    };
    let (client, down, enabled) = ("198.51.100.7", &["net/office=unhealthy"][..], AdminStatus::Enabled);
    assert_eq!(ask(AllDown::ServeAll, enabled, down, client), "1/1 A 192.0.2.1 30");
    assert_eq!(ask(AllDown::Nodata, enabled, down, client), "1/1 NODATA 0");
    assert_eq!(ask(AllDown::Fallback(1), enabled, down, client), "1/1 A 192.0.2.3 30");
    assert_eq!(ask(AllDown::ServeAll, AdminStatus::Stopped, &[], client), "1/1 NODATA 0");
    assert_eq!(ask(AllDown::ServeAll, AdminStatus::Disabled, &[], client), "1/1 A 192.0.2.3 30");
    assert_eq!(ask(AllDown::ServeAll, enabled, &[], "9.9.9.9"), "1/1 A 192.0.2.3 30");
}

#[test]
fn without_ecs_the_source_decides_and_the_scope_is_0() {
    let mut world = performance();
    world.parts.profiles[0].ecs = false;
    let snapshot = world.snapshot();
    let asker = Asker { source: ip("198.51.100.7"), ecs: Some((ip("198.51.100.200"), 32)) };
    let answer = show(&distribution(&snapshot, ProfileId(0), Asked::A, &asker));
    assert_eq!(answer, "/0 1/1 A 192.0.2.1 30");
}

#[test]
fn a_random_number_picks_by_share() {
    let snapshot = World::new(vec![wrr()]).snapshot();
    let asker = Asker { source: ip("9.9.9.9"), ecs: None };
    let distribution = distribution(&snapshot, ProfileId(0), Asked::A, &asker);
    let weight = |part: u128| ((part << 64) / 901) as u64;
    for (random, endpoint) in [
        (0, 0),
        (weight(700), 0),
        (weight(700) + 1, 1),
        (weight(900), 1),
        (weight(900) + 1, 2),
        (u64::MAX, 2),
    ] {
        assert_eq!(distribution.pick(random).unwrap().endpoint.unwrap().index, endpoint, "{random}");
    }
}

/// Everything a world answers, as text.
fn answers(world: &World, askers: &[Asker]) -> Vec<String> {
    let snapshot = world.snapshot();
    let mut all = Vec::new();
    for (id, profile) in (0..).map(ProfileId).zip(snapshot.model.profiles()) {
        for asker in askers {
            for asked in [Asked::A, Asked::Aaaa, Asked::Cname, Asked::Any] {
                let answer = show(&distribution(&snapshot, id, asked, asker));
                all.push(format!("{} {asked:?} {asker:?}: {answer}", profile.name));
            }
        }
    }
    all
}

/// Puts endpoint `from(i)` at position `i` of a profile, its health with it.
fn rearrange(world: &mut World, profile: ProfileId, from: &[u32]) {
    let found = &mut world.parts.profiles[profile.0 as usize];
    let before = found.endpoints.clone();
    found.endpoints = from.iter().map(|&at| before[at as usize].clone()).collect();
    let moved = |index: u32| from.iter().position(|&at| at == index).map(|at| at as u32);
    if let AllDown::Fallback(index) = &mut found.all_down {
        *index = moved(*index).unwrap();
    }
    let place = |id: EndpointId| match moved(id.index) {
        Some(index) if id.profile == profile => EndpointId { index, ..id },
        _ => id,
    };
    let verdicts = std::mem::take(&mut world.health.verdicts);
    world.health.verdicts = verdicts.into_iter().map(|(id, verdict)| (place(id), verdict)).collect();
    let latency = std::mem::take(&mut world.health.latency);
    world.health.latency = latency.into_iter().map(|(id, latency)| (place(id), latency)).collect();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_disabled_endpoint_changes_nothing(octets in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut dice = Dice::new(octets);
        let world = some_world(&mut dice);
        let askers: Vec<Asker> = (0..4).map(|_| some_asker(&mut dice)).collect();
        let mut more = world.clone();
        let id = ProfileId(dice.roll(more.parts.profiles.len()) as u32);
        let found = &mut more.parts.profiles[id.0 as usize];
        let mut extra = endpoint("extra", "192.0.2.200 2001:db8::200");
        extra.status = AdminStatus::Disabled;
        extra.priority = 1000;
        match found.method {
            Method::Performance => extra.region = Some("r9".into()),
            Method::Geographic => extra.geo = vec![parse_code("BR").unwrap()],
            Method::Subnet => {
                let mine = range("240.0.0.0/8");
                let overlap = |each: &crate::model::AddressRange| each.first <= mine.last && mine.first <= each.last;
                prop_assume!(!found.endpoints.iter().flat_map(|each| &each.subnets).any(overlap));
                extra.subnets = vec![mine];
            }
            _ => {}
        }
        found.endpoints.push(extra);
        let last = found.endpoints.len() as u32 - 1;
        let at = dice.roll(last as usize + 1) as u32;
        let order: Vec<u32> = (0..at).chain([last]).chain(at..last).collect();
        rearrange(&mut more, id, &order);
        prop_assert_eq!(answers(&world, &askers), answers(&more, &askers));
    }

    #[test]
    fn the_order_of_the_file_decides_ties_only(octets in prop::collection::vec(any::<u8>(), 0..400)) {
        let mut dice = Dice::new(octets);
        let world = some_world(&mut dice);
        let askers: Vec<Asker> = (0..4).map(|_| some_asker(&mut dice)).collect();
        let mut turned = world.clone();
        for (id, profile) in (0..).map(ProfileId).zip(&world.parts.profiles) {
            let without_ties = match profile.method {
                // Priorities stay with their endpoints.
                Method::Priority | Method::Weighted | Method::Geographic | Method::Subnet => true,
                Method::Performance | Method::Fastest { .. } | Method::Multivalue { .. } => false,
            };
            // What means the same IPv4 addresses twice goes to the first.
            let mapped = profile.endpoints.iter().flat_map(|each| &each.subnets);
            let twice = mapped.filter(|range| range.first.is_ipv6()).count() > 0;
            if without_ties && !twice {
                let count = profile.endpoints.len() as u32;
                let by = dice.roll(count as usize) as u32;
                let order: Vec<u32> = (0..count).map(|at| (at + by) % count).collect();
                rearrange(&mut turned, id, &order);
            }
        }
        prop_assert_eq!(answers(&world, &askers), answers(&turned, &askers));
    }
}

#[test]
fn a_target_profile_is_told_in_the_explanation() {
    let world = geographic();
    let snapshot = world.snapshot();
    let asker = Asker { source: ip("198.51.100.130"), ecs: None };
    let steps = crate::explain::steps(&snapshot, ProfileId(0), Asked::A, &asker);
    let told: Vec<(&str, &str, &str)> = steps
        .iter()
        .map(|step| (step.profile.as_str(), step.chose.as_str(), step.because.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            ("www", "california", "narrowest match: US-CA"),
            ("west", "w1", "lowest priority number of those available: 1"),
        ]
    );
    assert!(matches!(snapshot.model.profile(ProfileId(0)).endpoints[2].target, Target::Profile(_)));
    let aaaa = crate::explain::steps(&snapshot, ProfileId(0), Asked::Aaaa, &asker);
    assert_eq!(aaaa[0].chose, "NODATA");
    assert_eq!(aaaa[0].candidates[0].left_out, Some("it cannot answer this type"));
}
