//! How a cell is picked: at random by the alias table, by a hash of the client, and further.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use router_common::abi::{Answer, Cell, LocationEntry, NONE, Pick};
use router_common::counter::Counter;
use router_common::lookup::{Client, hash_client, scale};
use router_tests::need_bpf;
use router_tests::packet::{Frame, Query, rtype};

use super::fixture::{Builder, CLIENT4, Fixture, SERVICE4, a, v4, v6};

/// Last octets of the addresses that are answered to `runs` queries, and how often.
fn sample(fixture: &Fixture, frame: &Frame, query: &Query, runs: usize) -> BTreeMap<u8, usize> {
    let mut seen = BTreeMap::new();
    for _ in 0..runs {
        let reply = fixture.answered(frame, query);
        let shown = reply.answers().concat();
        let last = shown.rsplit('.').next().unwrap().parse().unwrap();
        *seen.entry(last).or_default() += 1;
    }
    seen
}

#[test]
fn bpf_weights_are_those_of_the_alias_table() {
    if !need_bpf() {
        return;
    }
    let mut tables = Builder::new(16);
    let cell = |tables: &mut Builder, last, threshold, alias| {
        let cell = tables.records(&[a([192, 0, 2, last])]);
        Cell { threshold, alias, ..cell }
    };
    // Weights 1:5:0. Three cells of a third: 1 keeps half of its cell, the other half and the whole cell
    // of 3 go to 2, whose own is kept.
    let cells =
        vec![cell(&mut tables, 1, 1 << 31, 1), cell(&mut tables, 2, 0, 1), cell(&mut tables, 3, 0, 1)];
    let answer = tables.answer(Pick::Random, 0, cells);
    tables.name("weighted.example.test", NONE, 0, &[[answer, answer]]);
    let fixture = tables.start();
    let query = Query::new("weighted.example.test", rtype::A);
    let seen = sample(&fixture, &v4(&query), &query, 3000);
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), [1, 2]);
    // 500 expected, with a standard deviation of 20.4; seven of them either way.
    assert!((357..=643).contains(&seen[&1]), "{seen:?}");
}

#[test]
fn bpf_a_hashed_pick_belongs_to_the_client_subnet() {
    if !need_bpf() {
        return;
    }
    let mut tables = Builder::new(16);
    tables.location("0.0.0.0/0", 0, 0);
    tables.location("::/0", 0, 0);
    let partition = tables.partition(&[0]);
    let salt = 0x5a5;
    let cells: Vec<_> = (0..7).map(|i| tables.records(&[a([192, 0, 2, i])])).collect();
    let answer = tables.answer(Pick::Hashed, salt, cells);
    tables.name("near.example.test", partition, 0, &[[answer, answer]]);
    let fixture = tables.start();
    let expected = |client: Client| scale(hash_client(&client, salt), 7).0 as u8;
    let query = Query::new("near.example.test", rtype::A);
    let mut seen = [0; 7];
    for i in 0..100u8 {
        let client = Ipv4Addr::new(198, 18, i, 7);
        let frame = v4(&query).with(|f| f.v4().source = client);
        let found = sample(&fixture, &frame, &query, 1);
        let last = *found.keys().next().unwrap();
        assert_eq!(last, expected(Client::ipv4(client.octets())));
        seen[usize::from(last)] += 1;
        let neighbour = v4(&query).with(|f| f.v4().source = Ipv4Addr::new(198, 18, i, 200));
        assert_eq!(sample(&fixture, &neighbour, &query, 1), found);
        // By Client Subnet the same pick, whoever asks, and the hashed length is the least scope.
        let by_ecs = query.clone().edns(1232).ecs(&format!("{client}/32"));
        assert_eq!(sample(&fixture, &v6(&by_ecs), &by_ecs, 1), found);
        assert_eq!(fixture.answered(&v6(&by_ecs), &by_ecs).scope(), 24);
    }
    assert!(seen.iter().all(|&count| count > 2), "{seen:?}");
    let by_ecs = query.clone().edns(1232).ecs("2001:db8:1:2::/64");
    let reply = fixture.answered(&v4(&by_ecs), &by_ecs);
    assert_eq!(reply.scope(), 56);
    let octets = "2001:db8:1:2::".parse::<std::net::Ipv6Addr>().unwrap().octets();
    assert!(reply.answers().concat().ends_with(&format!(".{}", expected(Client::ipv6(octets)))));
}

#[test]
fn bpf_a_pick_can_lead_to_another() {
    if !need_bpf() {
        return;
    }
    let mut tables = Builder::new(16);
    let leaf = |tables: &mut Builder, last| {
        let cell = tables.records(&[a([192, 0, 2, last])]);
        tables.always(cell)
    };
    // Hashed among two, one of which is random among two.
    let (one, two, three) = (leaf(&mut tables, 1), leaf(&mut tables, 2), leaf(&mut tables, 3));
    let half = |answer, alias| Cell { threshold: 1 << 31, alias, ..Builder::further(answer) };
    let random = tables.answer(Pick::Random, 0, vec![half(one, 1), half(two, 0)]);
    let top = tables.answer(Pick::Hashed, 9, vec![Builder::further(random), Builder::further(three)]);
    tables.name("mixed.example.test", NONE, 0, &[[top, top]]);
    // As deep as can be followed, and one deeper.
    let chain = |tables: &mut Builder, depth| {
        (0..depth).fold(leaf(tables, 4), |answer: Answer, _| tables.always(Builder::further(answer)))
    };
    let (deep, deeper) = (chain(&mut tables, 3), chain(&mut tables, 4));
    tables.name("deep.example.test", NONE, 0, &[[deep, deeper]]);
    let fixture = tables.start();
    let query = Query::new("mixed.example.test", rtype::A);
    let mut kinds = [0; 2];
    for i in 0..40u8 {
        let client = Ipv4Addr::new(198, 18, i, 7);
        let seen = sample(&fixture, &v4(&query).with(|f| f.v4().source = client), &query, 40);
        let choice = scale(hash_client(&Client::ipv4(client.octets()), 9), 2).0 as usize;
        kinds[choice] += 1;
        let expected: &[u8] = if choice == 0 { &[1, 2] } else { &[3] };
        assert_eq!(seen.keys().copied().collect::<Vec<_>>(), expected);
    }
    assert!(kinds[0] > 0 && kinds[1] > 0);
    let query = Query::new("deep.example.test", rtype::A);
    assert_eq!(fixture.answered(&v4(&query), &query).answers(), ["deep.example.test. 30 IN A 192.0.2.4"]);
    let query = Query::new("deep.example.test", rtype::AAAA);
    fixture.passed("nested too deep", &v4(&query).bytes(), Counter::PassDeferredShare);
}

#[test]
fn bpf_the_source_address_decides_without_client_subnet() {
    if !need_bpf() {
        return;
    }
    let mut tables = Builder::new(16);
    for (i, prefix) in ["0.0.0.0/0", "198.18.0.0/16", "198.18.0.4/30", "198.18.0.7/32"].iter().enumerate() {
        tables.location(prefix, i as u32, 0);
    }
    for (i, prefix) in ["::/0", "2001:db8:c::/48", "2001:db8:c::7/128"].iter().enumerate() {
        tables.location(prefix, 4 + i as u32, LocationEntry::default().flags);
    }
    let partition = tables.partition(&[0, 1, 2, 3, 4, 5, 6]);
    let block: Vec<_> = (0..7)
        .map(|i| {
            let cell = tables.records(&[a([192, 0, 2, i])]);
            [tables.always(cell), tables.always(cell)]
        })
        .collect();
    tables.name("geo.example.test", partition, 0, &block);
    let fixture = tables.start();
    let query = Query::new("geo.example.test", rtype::AAAA);
    for (source, expected) in [
        (CLIENT4, 3),
        (Ipv4Addr::new(198, 18, 0, 6), 2),
        (Ipv4Addr::new(198, 18, 255, 6), 1),
        (Ipv4Addr::new(9, 18, 255, 6), 0),
    ] {
        let frame = Frame::ipv4(source, SERVICE4, query.bytes());
        assert_eq!(sample(&fixture, &frame, &query, 1), BTreeMap::from([(expected, 1)]));
    }
    for (source, expected) in [("2001:db8:c::7", 6), ("2001:db8:c:9::", 5), ("2001:db8:d::7", 4)] {
        let frame = v6(&query).with(|f| f.v6().source = source.parse().unwrap());
        assert_eq!(sample(&fixture, &frame, &query, 1), BTreeMap::from([(expected, 1)]));
    }
}
