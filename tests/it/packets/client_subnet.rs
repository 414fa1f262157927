//! EDNS Client Subnet (RFC 7871): what decides, which scope, and how the option comes back.

use router_common::abi::{LocationEntry, NONE, Owner};
use router_common::counter::Counter;
use router_tests::need_bpf;
use router_tests::packet::{Query, rtype};

use super::fixture::{Builder, Fixture, a, v4, v6};

/// `geo` answers 192.0.2.LOCATION; `off` the same without looking at Client Subnet; `plain` ignores the
/// client.
fn tables() -> Fixture {
    let mut tables = Builder::new(16);
    for (location, prefix) in
        ["0.0.0.0/0", "198.51.100.0/24", "203.0.113.0/25", "203.0.113.9/32"].iter().enumerate()
    {
        tables.location(prefix, location as u32, 0);
    }
    tables.location("10.0.0.0/8", 9, LocationEntry::SPECIAL);
    for (i, prefix) in ["::/0", "2001:db8:1::/48", "2001:db8:1:2::/64"].iter().enumerate() {
        tables.location(prefix, 4 + i as u32, 0);
    }
    tables.location("fd00::/8", 9, LocationEntry::SPECIAL);
    // The queries' own source addresses.
    tables.location("198.18.0.0/16", 7, 0);
    tables.location("2001:db8:c::/64", 8, 0);
    let partition = tables.partition(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    let block: Vec<_> = (0..10)
        .map(|i| {
            let cell = tables.records(&[a([192, 0, 2, i])]);
            [tables.always(cell), tables.always(cell)]
        })
        .collect();
    tables.name("geo.example.test", partition, 0, &block);
    tables.name("off.example.test", partition, Owner::ECS_OFF, &block);
    tables.name("plain.example.test", NONE, 0, &block);
    tables.start()
}

/// Location and scope of the answer to a query with this option.
fn ask(fixture: &Fixture, name: &str, subnet: &str, ipv6: bool) -> (u8, u8) {
    let query = Query::new(name, rtype::A).edns(1232).ecs(subnet);
    let reply = fixture.answered(&if ipv6 { v6(&query) } else { v4(&query) }, &query);
    let shown = reply.answers().concat();
    (shown.rsplit('.').next().unwrap().parse().unwrap(), reply.scope())
}

#[test]
fn bpf_the_subnet_decides_and_its_entry_is_the_scope() {
    if !need_bpf() {
        return;
    }
    let fixture = tables();
    for (subnet, expected) in [
        ("198.51.100.0/24", (1, 24)),
        ("198.51.100.77/32", (1, 24)),
        ("198.51.100.0/25", (1, 24)),
        ("203.0.113.0/24", (2, 25)),
        ("203.0.113.9/32", (3, 32)),
        ("203.0.113.128/25", (0, 0)),
        ("128.0.0.0/1", (0, 0)),
        ("2001:db8:1::/48", (5, 48)),
        ("2001:db8:1:2::/64", (6, 64)),
        ("2001:db8:1:2::9/128", (6, 64)),
        ("2001:db8:2::/56", (4, 0)),
        ("8000::/1", (4, 0)),
        // v4-mapped and NAT64: the IPv4 address in it decides once it is known, and the scope is that of
        // the option's family.
        ("::ffff:198.51.100.7/128", (1, 96 + 24)),
        ("64:ff9b::198.51.100.7/128", (1, 96 + 24)),
        ("64:ff9b::cb00:7109/128", (3, 96 + 32)),
        ("::ffff:198.51.100.0/120", (1, 96 + 24)),
        ("::fffe:0:0/95", (4, 0)),
        // Special: the resolver's own address decides, the scope covers the block.
        ("10.1.2.0/24", (7, 8)),
        ("fd12:3456::/32", (7, 8)),
        ("::ffff:10.1.2.3/128", (7, 96 + 8)),
    ] {
        assert_eq!(ask(&fixture, "geo.example.test", subnet, false), expected, "{subnet}");
    }
    assert_eq!(ask(&fixture, "geo.example.test", "10.1.2.0/24", true), (8, 8));
}

#[test]
fn bpf_source_zero_asks_for_the_resolver_itself() {
    if !need_bpf() {
        return;
    }
    let fixture = tables();
    for subnet in ["0.0.0.0/0", "::/0"] {
        assert_eq!(ask(&fixture, "geo.example.test", subnet, false), (7, 0));
        assert_eq!(ask(&fixture, "geo.example.test", subnet, true), (8, 0));
    }
}

#[test]
fn bpf_an_unused_option_comes_back_with_scope_zero() {
    if !need_bpf() {
        return;
    }
    let fixture = tables();
    for subnet in ["198.51.100.0/24", "2001:db8:1::/48", "10.0.0.0/8", "::ffff:198.51.100.7/128"] {
        assert_eq!(ask(&fixture, "off.example.test", subnet, false), (7, 0), "{subnet}");
        assert_eq!(ask(&fixture, "off.example.test", subnet, true), (8, 0), "{subnet}");
        assert_eq!(ask(&fixture, "plain.example.test", subnet, false), (0, 0), "{subnet}");
    }
}

#[test]
fn bpf_every_source_length_is_echoed_bit_for_bit() {
    if !need_bpf() {
        return;
    }
    let fixture = tables();
    let v4_octets = u32::from_be_bytes([0xab, 0xcd, 0xef, 0x97]);
    for len in 0..=32u32 {
        let masked = v4_octets & u32::MAX.checked_shl(32 - len).unwrap_or(0);
        ask(
            &fixture,
            "geo.example.test",
            &format!("{}/{len}", std::net::Ipv4Addr::from(masked)),
            len % 2 == 0,
        );
    }
    let v6_octets = u128::from_be_bytes(*b"\x2a\xf1\xe2\xd3\xc4\xb5\xa6\x97\x88\x79\x6a\x5b\x4c\x3d\x2e\x1f");
    for len in 0..=128u32 {
        let masked = v6_octets & u128::MAX.checked_shl(128 - len).unwrap_or(0);
        ask(
            &fixture,
            "geo.example.test",
            &format!("{}/{len}", std::net::Ipv6Addr::from(masked)),
            len % 2 == 0,
        );
    }
}

#[test]
fn bpf_answers_with_a_client_subnet_are_counted_by_family() {
    if !need_bpf() {
        return;
    }
    let fixture = tables();
    let counted = || fixture.run.subnets().unwrap();
    let query = Query::new("plain.example.test", rtype::A).edns(1232);
    fixture.answered(&v4(&query), &query);
    assert_eq!(counted(), [0, 0], "an OPT record without one");
    ask(&fixture, "geo.example.test", "198.51.100.0/24", true);
    assert_eq!(counted(), [1, 0]);
    ask(&fixture, "plain.example.test", "2001:db8:1::/48", false);
    assert_eq!(counted(), [1, 1]);
    ask(&fixture, "off.example.test", "0.0.0.0/0", false);
    assert_eq!(counted(), [2, 1], "sent, whatever becomes of it");
    // What is passed is counted by whoever answers it.
    let query = Query::new("nowhere.example.test", rtype::A).edns(1232).ecs("198.51.100.0/24");
    fixture.passed("an unknown name", &v4(&query).bytes(), Counter::PassUnknownName);
    assert_eq!(counted(), [2, 1]);
}
