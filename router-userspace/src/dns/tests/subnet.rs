//! DNS.md §1.6: EDNS Client Subnet on names that no profile decides.

use super::*;

/// The last line of the reply to a query with these options.
fn opt_line(text: &str, qtype: u16, options: &[u8]) -> String {
    let reply = ask(&service(), &with_opt(text, qtype, 1232, options)).unwrap();
    show(&reply).lines().last().unwrap().to_owned()
}

#[test]
fn the_option_is_echoed_exactly_for_every_type_and_outcome() {
    for (source, address) in [
        (1, &[128][..]),
        (7, &[10]),
        (8, &[10]),
        (9, &[10, 128]),
        (23, &[192, 0, 2]),
        (24, &[192, 0, 2]),
        (25, &[192, 0, 2, 128]),
        (32, &[192, 0, 2, 1]),
    ] {
        let option = ecs(1, source, 0, address);
        assert_eq!(opt_line(WWW, A, &option), format!("opt v0 1232 [{}]", hex(&option)));
    }
    let v6: Vec<u8> = (0..16).map(|i| 0x20 + i).collect();
    for source in [1u8, 47, 48, 56, 64, 127, 128] {
        let whole = u128::from_be_bytes(v6.clone().try_into().unwrap()) & u128::MAX << (128 - source);
        let option = ecs(2, source, 0, &whole.to_be_bytes()[..usize::from(source).div_ceil(8)]);
        assert_eq!(opt_line(WWW, AAAA, &option), format!("opt v0 1232 [{}]", hex(&option)));
    }
    let option = ecs(1, 24, 0, &[192, 0, 2]);
    for (text, qtype) in [
        (WWW, A),
        (WWW, TXT),
        ("v4only.example.test", AAAA),
        ("nosuch.example.test", A),
        ("example.test", SOA),
        ("alias.example.test", A),
        ("a.deleg.example.test", A),
        ("example.org", A),
        ("example.test", 252),
    ] {
        assert_eq!(opt_line(text, qtype, &option), format!("opt v0 1232 [{}]", hex(&option)), "{text}");
    }
}

#[test]
fn source_zero_is_answered_and_echoed() {
    for family in [1, 2] {
        let option = ecs(family, 0, 0, &[]);
        assert_eq!(opt_line(WWW, A, &option), format!("opt v0 1232 [{}]", hex(&option)));
    }
    // Which hickory-proto cannot decode: dig +subnet=0.
    let option = ecs(0, 0, 0, &[]);
    let reply = ask(&service(), &with_opt(WWW, A, 1232, &option)).unwrap();
    assert_eq!(reply[2..12], [0x84, 0, 0, 1, 0, 2, 0, 0, 0, 1]);
    assert!(reply.ends_with(&option));
}

#[test]
fn malformed_options_are_format_errors() {
    for (why, options) in [
        ("bits beyond /25", ecs(1, 25, 0, &[192, 0, 2, 0x81])),
        ("an octet too many", ecs(1, 24, 0, &[192, 0, 2, 0])),
        ("an octet too few", ecs(1, 24, 0, &[192, 0])),
        ("33 bits of IPv4", ecs(1, 33, 0, &[192, 0, 2, 1, 0])),
        ("129 bits of IPv6", ecs(2, 129, 0, &[0x20; 17])),
        ("bits beyond /57", ecs(2, 57, 0, &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 1])),
        ("a scope", ecs(1, 24, 24, &[192, 0, 2])),
        ("family 3", ecs(3, 24, 0, &[192, 0, 2])),
        ("family 3 without address", ecs(3, 0, 0, &[])),
        ("family 256", ecs(256, 0, 0, &[])),
        ("family 0 with address", ecs(0, 8, 0, &[10])),
        ("SOURCE 0 with address", ecs(1, 0, 0, &[10])),
        ("no octet", option(8, &[])),
        ("one octet", option(8, &[0])),
        ("two octets", option(8, &[0, 1])),
        ("three octets", option(8, &[0, 1, 0])),
        ("two options", [ecs(1, 24, 0, &[192, 0, 2]), ecs(1, 24, 0, &[10, 0, 0])].concat()),
        ("a good and a bad one", [ecs(1, 24, 0, &[192, 0, 2]), ecs(1, 24, 1, &[10, 0, 0])].concat()),
    ] {
        let reply = ask(&service(), &with_opt(WWW, A, 1232, &options)).unwrap();
        assert_eq!(show(&reply), "FORMERR qd1\nopt v0 1232 []\n", "{why}");
    }
}
