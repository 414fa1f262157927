use std::collections::HashMap;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::*;
use crate::abi::{Cell, INLINE_PIECE, endpoint_hash};
use crate::decide::{Asker, Records, distribution};
use crate::fixture::*;
use crate::lookup::Miss;
use crate::model::{Method, rtype};
use crate::name::Name;
use crate::share::Share;
use crate::sim::{Possible, Sim, query};
use crate::view::Health;

fn frontage() -> Frontage {
    Frontage { addresses: vec![ip("192.0.2.53")], edns_size: 1232, ..Frontage::default() }
}

fn seeds() -> impl FnMut() -> [u64; 2] {
    let mut key = 0u64;
    move || {
        key += 1;
        [key.wrapping_mul(0x9e37_79b9_7f4a_7c15), !key]
    }
}

fn compiled(snapshot: &Snapshot) -> Compiled {
    compile(snapshot, &frontage(), seeds(), 1).expect("it fits")
}

/// RRset and TTL of a piece of records, decoded here by hand.
fn decode(possible: &Possible) -> Option<(Records, u32)> {
    let (mut a, mut aaaa, mut cname, mut ttls) = (Vec::new(), Vec::new(), None, Vec::new());
    let mut rest = possible.piece.as_slice();
    for _ in 0..possible.ancount {
        let (head, tail) = rest.split_at(12);
        assert_eq!((&head[..2], &head[4..6]), (&[0xc0, 12][..], &[0, 1][..]));
        ttls.push(u32::from_be_bytes(head[6..10].try_into().unwrap()));
        let (rdata, tail) = tail.split_at(u16::from_be_bytes([head[10], head[11]]).into());
        match u16::from_be_bytes([head[2], head[3]]) {
            rtype::A => a.push(<[u8; 4]>::try_from(rdata).unwrap().into()),
            rtype::AAAA => aaaa.push(<[u8; 16]>::try_from(rdata).unwrap().into()),
            rtype::CNAME => cname = Some(Name::from_wire(rdata).unwrap()),
            other => panic!("type {other}"),
        }
        rest = tail;
    }
    assert!(rest.is_empty());
    ttls.dedup();
    assert_eq!(ttls.len(), 1, "one TTL for an RRset");
    let records = match (a.is_empty(), aaaa.is_empty(), cname) {
        (false, true, None) => Records::A(a),
        (true, false, None) => Records::Aaaa(aaaa),
        (true, true, Some(name)) => Records::Cname(name),
        _ => panic!("more than one RRset"),
    };
    Some((records.sorted(), ttls[0]))
}

/// What tables say to a query, by answer: share and scope; `None` is NODATA.
type Said = HashMap<Option<(Records, u32)>, (Share, u8)>;

fn said(tables: &Tables, name: &Name, aaaa: bool, asker: &Asker, zone: &crate::model::Zone) -> Said {
    let sim = Sim::new(tables);
    let mut said = Said::new();
    for possible in sim.enumerate(&query(name, aaaa, asker)).expect("the name is there") {
        let key = match possible.kind {
            Cell::RECORDS => decode(&possible),
            Cell::NODATA => {
                assert_eq!((possible.ancount, possible.nscount, possible.scope), (0, 1, 0));
                assert_eq!(&possible.piece[..2], [0, 0], "the owner is filled in by the reader");
                assert_eq!(&possible.piece[6..10], zone.negative_ttl().to_be_bytes());
                assert_eq!(possible.in_full(&zone.name)[12..], zone.soa.to_wire());
                None
            }
            other => panic!("a share is left to userspace ({other})"),
        };
        let entry = said.entry(key).or_insert((Share::zero(), possible.scope));
        assert_eq!(entry.1, possible.scope, "one answer, one scope");
        entry.0 = entry.0.add(&possible.share);
    }
    said.retain(|_, (share, _)| !share.is_zero());
    said
}

/// Whether tables say what the oracle says.
fn agrees(
    said: &Said,
    snapshot: &Snapshot,
    profile: ProfileId,
    aaaa: bool,
    asker: &Asker,
) -> Result<(), String> {
    let asked = if aaaa { Asked::Aaaa } else { Asked::A };
    let expected = distribution(snapshot, profile, asked, asker);
    let uses_scope = asker.ecs.is_some();
    let tolerance = Share::ratio(2 * expected.outcomes.len() as u64 + 2, 1 << 32);
    let mut seen = 0;
    for outcome in &expected.outcomes {
        let key = outcome.records.as_ref().map(|records| (records.sorted(), outcome.ttl));
        let Some((share, scope)) = said.get(&key) else {
            if outcome.share < tolerance {
                continue;
            }
            return Err(format!("{key:?} is missing of {said:?}"));
        };
        seen += 1;
        if share.distance(&outcome.share) > tolerance {
            return Err(format!("{key:?}: {share}, not {}", outcome.share));
        }
        let expected_scope = if key.is_none() { 0 } else { expected.scope };
        if uses_scope && *scope != expected_scope {
            return Err(format!("{key:?}: scope {scope}, not {expected_scope}"));
        }
    }
    if seen == said.len() { Ok(()) } else { Err(format!("{said:?} has more than {expected:?}")) }
}

/// By whom answers come, and with which TTL: the share of each.
type Counted = HashMap<(u32, Vec<u64>), Share>;

/// Whether tables count answers for those by whom they come.
fn counts_alike(
    tables: &Tables,
    name: &Name,
    snapshot: &Snapshot,
    profile: ProfileId,
    aaaa: bool,
    asker: &Asker,
) -> Result<(), String> {
    let add = |counted: &mut Counted, key, share: &Share| {
        let held = counted.entry(key).or_insert(Share::zero());
        *held = held.add(share);
    };
    let (mut found, mut expected) = (Counted::new(), Counted::new());
    let sim = Sim::new(tables);
    for possible in sim.enumerate(&query(name, aaaa, asker)).expect("the name is there") {
        if possible.kind == Cell::RECORDS {
            let credited = sim.credited(possible.tally).map_err(|miss| format!("{miss:?}"))?;
            add(&mut found, credited, &possible.share);
        }
    }
    let asked = if aaaa { Asked::Aaaa } else { Asked::A };
    for outcome in distribution(snapshot, profile, asked, asker).outcomes {
        let whole: Share = outcome.credits.iter().map(|(share, _)| share).sum();
        if outcome.records.is_some() && whole != outcome.share {
            return Err(format!("{outcome:?} comes by {whole}"));
        }
        for (share, credits) in &outcome.credits {
            let hash = |id: &EndpointId| {
                endpoint_hash(&snapshot.model.profile(id.profile).name, &snapshot.model.endpoint(*id).name)
            };
            add(&mut expected, (outcome.ttl, credits.iter().map(hash).collect()), share);
        }
    }
    let tolerance = Share::ratio(2 * expected.len() as u64 + 2, 1 << 32);
    for key in found.keys().chain(expected.keys()) {
        let nothing = Share::zero();
        let of = |counted: &Counted| counted.get(key).unwrap_or(&nothing).clone();
        if of(&found).distance(&of(&expected)) > tolerance {
            return Err(format!("{key:?}: {}, not {}", of(&found), of(&expected)));
        }
    }
    Ok(())
}

/// Names of a model that a profile decides.
fn bound(model: &Model) -> Vec<(Name, ProfileId, ZoneId)> {
    let mut bound: Vec<(Name, ProfileId, ZoneId)> = model
        .bindings()
        .iter()
        .filter_map(|(name, binding)| Some((name.clone(), binding.profile?, binding.zone)))
        .collect();
    bound.sort();
    bound
}

#[test]
fn what_is_static_passes_and_a_wildcard_covers_the_rest() {
    let mut world = World::new(vec![profile("www", Method::Priority, vec![endpoint("a", "192.0.2.1")])]);
    world.parts.profiles[0].names.push(name("*.apps.x.test"));
    record(&mut world.parts.zones[0], "static.apps.x.test", rtype::A, &[192, 0, 2, 9]);
    record(&mut world.parts.zones[0], "deep.below.x.test", rtype::A, &[192, 0, 2, 9]);
    record(&mut world.parts.zones[0], "cut.x.test", rtype::NS, name("ns.example.net").as_wire());
    let compiled = compiled(&world.snapshot());
    let sim = Sim::new(&compiled.tables);
    let asker = Asker { source: ip("9.9.9.9"), ecs: None };
    let find = |text: &str| {
        let query = query(&name(text), false, &asker);
        sim.look_up(&query).map(|(cell, _)| cell.ancount)
    };
    assert_eq!(find("www.x.test"), Ok(1));
    assert_eq!(find("*.apps.x.test"), Ok(1));
    for passed in
        ["x.test", "apps.x.test", "static.apps.x.test", "deep.below.x.test", "below.x.test", "cut.x.test"]
    {
        assert_eq!(find(passed), Err(Miss::Deferred), "{passed}");
    }
    for covered in ["some.apps.x.test", "a.b.c.apps.x.test", "a.b.c.d.e.f.g.h.apps.x.test"] {
        assert_eq!(find(covered), Ok(1), "{covered}");
    }
    assert_eq!(find("a.b.c.d.e.f.g.h.i.apps.x.test"), Err(Miss::Deferred), "more labels than are stripped");
    // What exists hides the wildcard from what is below it (RFC 4592 §3.3.1).
    for unknown in ["nobody.x.test", "below.static.apps.x.test", "a.*.apps.x.test", "www.y.test", "test"] {
        assert_eq!(find(unknown), Err(Miss::UnknownName), "{unknown}");
    }
    let apex = name("apps.x.test");
    let encloser = compiled.tables.owners.iter().find(|owner| owner.name.starts_with(apex.as_wire()));
    let wildcard = compiled.tables.owners[encloser.unwrap().wildcard as usize];
    assert!(wildcard.name.starts_with(name("*.apps.x.test").as_wire()));
    assert_eq!(wildcard.flags & Owner::PASS, 0);
    assert_eq!(usize::from(wildcard.zone_len), name("x.test").as_wire().len());
}

#[test]
fn long_names_and_long_pieces_are_in_lines() {
    let long = format!("{0}.{0}.{0}.x.test", "abcdefghijklmnopqrstuvwxyz0123456789");
    let mut world = World::new(vec![profile(
        "www",
        Method::Multivalue { max_return: 10 },
        (0..9).map(|at| endpoint(&format!("e{at}"), &format!("192.0.2.{at}"))).collect(),
    )]);
    world.parts.profiles[0].names.push(name(&long));
    let snapshot = world.snapshot();
    let compiled = compiled(&snapshot);
    let asker = Asker { source: ip("9.9.9.9"), ecs: None };
    let said = said(&compiled.tables, &name(&long), false, &asker, snapshot.model.zone(ZoneId(0)));
    agrees(&said, &snapshot, ProfileId(0), false, &asker).unwrap();
    assert!(compiled.tables.cells.iter().any(|cell| usize::from(cell.len) > INLINE_PIECE));
    // One octet of the name in the last line differs.
    let other = long.replace("x.test", "y.test");
    let missed = Sim::new(&compiled.tables).look_up(&query(&name(&other), false, &asker)).map(|_| ());
    assert_eq!(missed, Err(Miss::UnknownName));
}

/// A tailored alias stands alone, wherever it leads (RFC 7871 §7.2.1), as in the userspace server.
#[test]
fn an_alias_into_our_own_zones_is_not_followed() {
    let mut world = World::new(vec![profile("www", Method::Priority, vec![endpoint("a", "static.x.test.")])]);
    record(&mut world.parts.zones[0], "static.x.test", rtype::A, &[192, 0, 2, 9]);
    let compiled = compiled(&world.snapshot());
    let asker = Asker { source: ip("9.9.9.9"), ecs: None };
    let possible = Sim::new(&compiled.tables).enumerate(&query(&name("www.x.test"), false, &asker)).unwrap();
    let [alias] = possible.as_slice() else { panic!("{possible:?}") };
    assert_eq!((alias.kind, alias.ancount), (Cell::RECORDS, 1));
}

#[test]
fn profiles_that_look_alike_share_a_partition_and_equal_answers_of_one_share_cells() {
    let subnet = |label: &str| {
        let mut office = endpoint("office", "192.0.2.1");
        office.subnets = vec![range("198.51.100.0/24")];
        profile(label, Method::Subnet, vec![office, endpoint("rest", "192.0.2.3")])
    };
    let one = compiled(&World::new(vec![subnet("p0")]).snapshot()).tables;
    let two = compiled(&World::new(vec![subnet("p0"), subnet("p1")]).snapshot()).tables;
    assert_eq!(one.regions, two.regions);
    // NODATA is the same for both; one address needs no cell.
    assert_eq!((one.cells.len(), two.cells.len()), (1, 1));
    assert_eq!(2 * one.answers.len(), two.answers.len());
    // Records in cells are counted for each.
    let mut profiles = [subnet("p0"), subnet("p1")];
    profiles.iter_mut().for_each(|profile| profile.ttl = Answer::MAX_TTL + 1);
    let cells = compiled(&World::new(profiles.to_vec()).snapshot()).tables.cells;
    assert_eq!(cells.len(), 5);
}

#[test]
fn the_answers_of_a_block_are_in_one_cache_line_when_they_fit() {
    let of = |ranges: usize, at: usize| {
        let each = |number: usize| {
            let mut office = endpoint(&format!("e{number}"), &format!("192.0.2.{number}"));
            office.subnets = vec![range(&format!("198.51.{number}.0/24"))];
            office
        };
        profile(&format!("p{at}"), Method::Subnet, (0..=ranges).map(each).collect())
    };
    let ranges = [0, 2, 1, 2, 0, 0, 3, 1, 7, 2];
    let profiles = ranges.iter().zip(0..).map(|(&ranges, at)| of(ranges, at)).collect();
    let Compiled { tables, blocks, .. } = compiled(&World::new(profiles).snapshot());
    assert_eq!(blocks.len(), ranges.len());
    let mut next = 0;
    for block in &blocks {
        let (first, count) = (block.first_answer as usize, block.contents.len());
        assert!(first >= next && first < next + ANSWERS_LINE, "{first}, {next}");
        assert!(count > ANSWERS_LINE || first % ANSWERS_LINE + count <= ANSWERS_LINE, "{count} at {first}");
        assert!(tables.answers[next..first].iter().all(|&unused| unused == Answer::default()));
        next = first + count;
    }
    assert_eq!(next, tables.answers.len());
    assert!(blocks.iter().any(|block| block.contents.len() > ANSWERS_LINE));
}

#[test]
fn a_change_touches_only_what_can_see_it() {
    let pool =
        profile("pool", Method::Priority, vec![endpoint("a", "192.0.2.1"), endpoint("b", "192.0.2.2")]);
    let top = profile("top", Method::Weighted, vec![endpoint("pool", "@1"), endpoint("c", "192.0.2.3")]);
    let other = profile("other", Method::Weighted, vec![endpoint("d", "192.0.2.4")]);
    let world = World::new(vec![top, pool, other]).with_state(&[]);
    let mut compiled = compiled(&world.snapshot());
    let changed = [EndpointId { profile: ProfileId(1), index: 0 }];
    let same = compiled.update(&world.snapshot(), &changed, &Room::UNBOUNDED).unwrap();
    assert_eq!(same, []);
    let down = world.clone().with_state(&["pool/a=unhealthy"]).snapshot();
    let operations = compiled.update(&down, &changed, &Room::UNBOUNDED).unwrap();
    let flips = operations.iter().filter(|each| matches!(each, Operation::SetAnswer { .. })).count();
    assert_eq!(flips, 2, "A of top and of pool");
    assert!(compiled.has_retired());
    let Tables { cells, lines, .. } = &compiled.tables;
    let room = Room { cells: cells.len() as u32, lines: lines.len() as u32, ..Room::UNBOUNDED };
    assert_eq!(compiled.clone().update(&world.snapshot(), &changed, &room), Err(OutOfRoom));
    compiled.reclaim();
    assert!(compiled.update(&world.snapshot(), &changed, &room).is_ok());
    // Ids that the model does not have are nobody's.
    let nobody = [EndpointId { profile: ProfileId(99), index: 7 }];
    assert_eq!(compiled.update(&world.snapshot(), &nobody, &room), Ok(Vec::new()));
}

#[test]
fn answers_are_counted_by_whom_they_come_and_by_ttl() {
    let mut pool =
        profile("pool", Method::Weighted, vec![endpoint("a", "192.0.2.1"), endpoint("b", "192.0.2.2")]);
    pool.ttl = 10;
    let top = profile("top", Method::Weighted, vec![endpoint("pool", "@1"), endpoint("c", "192.0.2.3")]);
    let world = World::new(vec![top, pool]).with_state(&[]);
    let snapshot = world.snapshot();
    let mut compiled = compiled(&snapshot);
    let name = |profile: &str, endpoint: &str| endpoint_hash(profile, endpoint);
    let ttl = snapshot.model.profile(ProfileId(0)).ttl;
    let mut credits: Vec<(u32, Vec<u64>)> = (1..compiled.tables.credits.len() as u32)
        .map(|tally| Sim::new(&compiled.tables).credited(tally).expect("it is there"))
        .collect();
    let through = |leaf| (10.min(ttl), vec![name("top", "pool"), name("pool", leaf)]);
    let mut expected = vec![through("a"), through("b"), (ttl, vec![name("top", "c")])];
    if !snapshot.model.profile(ProfileId(1)).names.is_empty() {
        expected.extend([(10, vec![name("pool", "a")]), (10, vec![name("pool", "b")])]);
    }
    credits.sort_unstable();
    expected.sort_unstable();
    assert_eq!(credits, expected);
    // What is left of them when one is down is counted where it was.
    let before = compiled.tables.credits.clone();
    let down = world.with_state(&["pool/a=unhealthy"]).snapshot();
    compiled
        .update(&down, &[EndpointId { profile: ProfileId(1), index: 0 }], &Room::UNBOUNDED)
        .expect("room");
    assert_eq!(compiled.tables.credits, before);
}

#[test]
fn a_new_way_to_an_answer_takes_a_tally_or_more_room() {
    let tens = (1..=10).map(|at| endpoint(&format!("e{at}"), &format!("192.0.2.{at}"))).collect();
    let world = World::new(vec![profile("many", Method::Multivalue { max_return: 8 }, tens)]).with_state(&[]);
    let mut compiled = compiled(&world.snapshot());
    // Ten sets of eight, each in two credits, and nobody's.
    assert_eq!(compiled.tables.credits.len(), 1 + 10 * 2);
    let down = world.with_state(&["many/e1=unhealthy"]).snapshot();
    let changed = [EndpointId { profile: ProfileId(0), index: 0 }];
    let room = |tallies| Room { tallies, ..Room::UNBOUNDED };
    assert_eq!(compiled.clone().update(&down, &changed, &room(34)), Err(OutOfRoom));
    let operations = compiled.update(&down, &changed, &room(35)).expect("room for seven new sets");
    let mut written = Vec::new();
    for operation in &operations {
        match operation {
            Operation::WriteCredit { index, .. } => written.push(*index),
            Operation::WriteCell { cell, .. } => {
                let tally = cell.tally();
                assert!(
                    tally <= 20 || written.contains(&tally),
                    "whom a cell counts for is written before it"
                );
            }
            _ => {}
        }
    }
    assert_eq!(written.len(), 14);
    let (_, names) = Sim::new(&compiled.tables).credited(21).expect("it is there");
    assert_eq!(names.len(), 8);
    assert!(!compiled.is_out_of_tallies());
}

/// Two names of one length whose hashes are equal under the key returned with them: their first words
/// differ as they like, their second by what makes up for it.
fn colliding() -> ([u64; 2], [Name; 2]) {
    use crate::lookup::{CASE, hash_word};
    let first = |text: &[u8; 7]| {
        let mut octets = [14; 8];
        octets[1..].copy_from_slice(text);
        octets
    };
    let (one, other) = (first(b"collide"), first(b"twinned"));
    for key in 0u64.. {
        let mixed = |word: [u8; 8]| hash_word(key, u64::from_le_bytes(word));
        let differ = mixed(one) ^ mixed(other);
        let wanted = differ & CASE == 0;
        let differ = differ.to_le_bytes();
        // The last octet is the root of both, and the bits of the case do not count.
        if differ[7] != 0 || !wanted {
            continue;
        }
        let plain = |octet: u8| !octet.is_ascii_uppercase() && octet != b'*';
        let second: [u8; 8] = std::array::from_fn(|at| {
            let fits = |&octet: &u8| plain(octet) && plain(octet ^ differ[at]);
            if at == 7 { 0 } else { (0..=255).find(fits).unwrap() }
        });
        let twin: [u8; 8] = std::array::from_fn(|at| second[at] ^ differ[at]);
        let wire = |first: [u8; 8], second: [u8; 8]| Name::from_wire(&[first, second].concat()).unwrap();
        return ([key, 99], [wire(one, second), wire(other, twin)]);
    }
    unreachable!("one key in 65,536 serves")
}

#[test]
fn a_foreign_name_that_hashes_alike_gets_no_answer_and_two_of_ours_another_key() {
    let (key, [one, other]) = colliding();
    let hash = |key: &[u64; 2], name: &Name| crate::lookup::hash_name(key, &words(name), 16);
    assert_eq!(hash(&key, &one), hash(&key, &other));
    let mut world = World::new(vec![profile("www", Method::Priority, vec![endpoint("a", "192.0.2.1")])]);
    world.parts.zones = vec![zone(".")];
    world.parts.profiles[0].names = vec![one.clone()];
    let asker = Asker { source: ip("9.9.9.9"), ecs: None };
    let with = |world: &World| {
        let mut keys = vec![[key[0] ^ 1, 5], key];
        compile(&world.snapshot(), &frontage(), || keys.pop().unwrap(), 7).unwrap().tables
    };
    let find = |tables: &Tables, name: &Name| {
        Sim::new(tables).look_up(&query(name, false, &asker)).map(|(cell, _)| cell.ancount)
    };
    let alone = with(&world);
    assert_eq!((alone.generation.seed, alone.generation.serial), (key, 7));
    assert_eq!(find(&alone, &one), Ok(1));
    assert_eq!(find(&alone, &other), Err(Miss::Deferred));

    world.parts.profiles[0].names.push(other.clone());
    let both = with(&world);
    assert_ne!(both.generation.seed, key);
    assert_eq!((find(&both, &one), find(&both, &other)), (Ok(1), Ok(1)));
}

#[test]
fn more_addresses_than_the_program_compares_with_are_refused() {
    let world = World::new(vec![profile("www", Method::Priority, vec![endpoint("a", "192.0.2.1")])]);
    let crowded =
        Frontage { addresses: (0..17).map(|last| [192, 0, 2, last].into()).collect(), ..frontage() };
    let refused = compile(&world.snapshot(), &crowded, seeds(), 1);
    assert!(matches!(refused, Err(CompileError::Frontage(_))));
}

#[test]
fn a_share_by_hash_inside_a_random_pick_has_one_scope() {
    let near = |label: &str, target: &str| {
        let mut made = endpoint(label, target);
        made.region = Some("eu".into());
        made
    };
    let even = profile("even", Method::Performance, vec![near("a", "192.0.2.1"), near("b", "192.0.2.2")]);
    let top = profile("top", Method::Weighted, vec![endpoint("even", "@1"), endpoint("c", "192.0.2.3")]);
    let snapshot = World::new(vec![top, even]).snapshot();
    let tables = compiled(&snapshot).tables;
    let zone = snapshot.model.zone(ZoneId(0));
    let asker = |ecs: &str, len| Asker { source: ip("9.9.9.9"), ecs: Some((ip(ecs), len)) };
    for (ecs, len, scope) in
        [("198.51.100.0", 24, 24), ("2001:db8::", 56, 56), ("::ffff:198.51.100.0", 120, 120)]
    {
        let asker = asker(ecs, len);
        let said = said(&tables, &name("top.x.test"), false, &asker, zone);
        agrees(&said, &snapshot, ProfileId(0), false, &asker).unwrap();
        assert!(said.values().all(|&(_, each)| each == scope), "{ecs}: {said:?}");
    }
    // The hash too is of the source when the option is of a private block.
    let whole: Vec<Said> = (0..32)
        .map(|second| {
            let asker = asker(&format!("10.{second}.2.0"), 24);
            said(&tables, &name("top.x.test"), false, &asker, zone)
        })
        .collect();
    assert!(whole.iter().all(|each| *each == whole[0]));
    assert!(whole[0].values().all(|&(_, scope)| scope == 8));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Law 1 on the image: what the tables say is what the oracle says.
    #[test]
    fn tables_say_what_the_oracle_says(octets in prop::collection::vec(any::<u8>(), 0..500)) {
        let mut dice = Dice::new(octets);
        let snapshot = some_world(&mut dice).snapshot();
        let compiled = compiled(&snapshot);
        let bound = bound(&snapshot.model);
        for _ in 0..6 {
            let asker = some_asker(&mut dice);
            for (name, profile, zone) in &bound {
                for aaaa in [false, true] {
                    let said = said(&compiled.tables, name, aaaa, &asker, snapshot.model.zone(*zone));
                    if let Err(why) = agrees(&said, &snapshot, *profile, aaaa, &asker) {
                        let shown = &snapshot.model.profile(*profile);
                        return Err(TestCaseError::fail(format!("{name} {aaaa} {asker:?}: {why}\n{shown:#?}")));
                    }
                    let sim = Sim::new(&compiled.tables);
                    prop_assert!(sim.look_up(&query(name, aaaa, &asker)).is_ok());
                }
            }
        }
    }

    /// Law 2 on the image: after each operation every answer is the old or the new oracle's.
    #[test]
    fn no_operation_shows_a_mixture(octets in prop::collection::vec(any::<u8>(), 0..600)) {
        let mut dice = Dice::new(octets);
        let mut world = some_world(&mut dice);
        let mut before = world.snapshot();
        let mut compiled = compiled(&before);
        let bound = bound(&before.model);
        for round in 0..4 {
            let health = some_health(&mut dice, &world.parts);
            let changed: Vec<EndpointId> = health
                .verdicts
                .keys()
                .copied()
                .filter(|id| {
                    world.health.health(*id) != health.health(*id)
                        || world.health.latency.get(id) != health.latency.get(id)
                })
                .collect();
            world.health = health.clone();
            let after = Snapshot { health: std::sync::Arc::new(health), ..before.clone() };
            let mut image = compiled.tables.clone();
            let operations = compiled.update(&after, &changed, &Room::UNBOUNDED).unwrap();
            let asker = some_asker(&mut dice);
            for operation in &operations {
                match *operation {
                    Operation::WriteCredit { index, credit } => {
                        // It begins at zero, so nobody may be counting there.
                        prop_assert!(image.credits.len() <= index as usize);
                        image.credits.resize(index as usize + 1, credit);
                    }
                    Operation::WriteLine { index, line } => {
                        let len = image.lines.len().max(index as usize + 1);
                        image.lines.resize(len, line);
                        image.lines[index as usize] = line;
                    }
                    Operation::WriteCell { index, cell } => {
                        let len = image.cells.len().max(index as usize + 1);
                        image.cells.resize(len, cell);
                        image.cells[index as usize] = cell;
                    }
                    Operation::SetAnswer { index, answer } => image.answers[index as usize] = answer,
                }
                for (name, profile, zone) in &bound {
                    for aaaa in [false, true] {
                        let said = said(&image, name, aaaa, &asker, before.model.zone(*zone));
                        let old = agrees(&said, &before, *profile, aaaa, &asker);
                        let new = agrees(&said, &after, *profile, aaaa, &asker);
                        prop_assert!(old.is_ok() || new.is_ok(), "{:?} {:?}", old, new);
                    }
                }
            }
            prop_assert_eq!(&image, &compiled.tables);
            for (name, profile, zone) in &bound {
                let said = said(&image, name, false, &asker, before.model.zone(*zone));
                prop_assert_eq!(agrees(&said, &after, *profile, false, &asker), Ok(()));
                for aaaa in [false, true] {
                    prop_assert_eq!(counts_alike(&image, name, &after, *profile, aaaa, &asker), Ok(()));
                }
            }
            if round % 2 == 1 {
                compiled.reclaim();
            }
            before = after;
        }
    }

    /// A fresh compilation and a series of updates say the same.
    #[test]
    fn updates_come_to_what_a_compilation_gives(octets in prop::collection::vec(any::<u8>(), 0..500)) {
        let mut dice = Dice::new(octets);
        let mut world = some_world(&mut dice);
        let first = world.snapshot();
        let mut updated = compiled(&first);
        let mut all: Vec<EndpointId> = world.health.verdicts.keys().copied().collect();
        all.sort_unstable();
        for _ in 0..6 {
            // A single verdict: whatever it does not concern must be left as it was.
            let one = all[dice.roll(all.len())];
            let before = world.health.health(one);
            let others = [Health::Healthy, Health::Unhealthy, Health::Checking];
            let others: Vec<Health> = others.into_iter().filter(|other| *other != before).collect();
            world.health.verdicts.insert(one, dice.of(&others));
            let snapshot = Snapshot { health: std::sync::Arc::new(world.health.clone()), ..first.clone() };
            updated.update(&snapshot, &[one], &Room::UNBOUNDED).unwrap();
            updated.reclaim();
        }
        let fresh = compiled(&world.snapshot());
        prop_assert_eq!(updated.tables.answers.len(), fresh.tables.answers.len());
        let asker = some_asker(&mut dice);
        for (name, _, zone) in bound(&first.model) {
            let zone = first.model.zone(zone);
            prop_assert_eq!(
                said(&updated.tables, &name, false, &asker, zone),
                said(&fresh.tables, &name, false, &asker, zone)
            );
        }
    }
}
