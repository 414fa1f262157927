//! Good queries, for names of `fuzz/service.toml`.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::kernel::{SERVICE4, SERVICE6};
use crate::packet::{Checksum, Frame, Query, rtype};
use crate::random::Rng;

/// What profiles decide, what wildcards cover, and what is neither.
const NAMES: [&str; 32] = [
    "www.g.test",
    "g.test",
    "gslb.example.test",
    "v4only.g.test",
    "deep.down.below.v4only.g.test",
    "x.a-zone-whose-name-is-longer-than-forty-octets.example",
    "alias.g.test",
    "inside.g.test",
    "a.wild.g.test",
    "a.b.c.d.wild.g.test",
    "closer.wild.g.test",
    "a.closer.wild.g.test",
    "y.sub.example.test",
    "pool.g.test",
    "many.g.test",
    "near.g.test",
    "other.near.g.test",
    "shop.g.test",
    "net.g.test",
    "blind.g.test",
    "long.g.test",
    "none.g.test",
    "up.g.test",
    "a-rather-long-label-in-front-of-it-that-fills-up-all.sixty-three.wild.g.test",
    // For userspace.
    "absent.g.test",
    "wild.g.test",
    "www.example.test",
    "absent.example.test",
    "elsewhere.example",
    "*.wild.g.test",
    "",
    "1.2.3.4.5.6.7.8.9.10.wild.g.test",
];
/// How many of them the fast path is for.
const FAST: usize = 24;

/// Subnets that the tables tell apart, special ones, and lengths of every kind.
const SUBNETS: [&str; 16] = [
    "203.0.113.0/24",
    "203.0.112.0/23",
    "198.51.100.7/32",
    "198.51.100.0/25",
    "198.51.100.128/26",
    "10.1.2.0/24",
    "192.168.0.0/16",
    "0.0.0.0/0",
    "128.0.0.0/1",
    "2001:db8:2::/48",
    "2001:db8:3:100::/56",
    "2001:db8:3::1/128",
    "fd00::/8",
    "::/0",
    "2001:db8:2:ab00::/57",
    "::ffff:203.0.113.0/120",
];

/// A query that a resolver might send.
pub fn query(rng: &mut Rng) -> Query {
    let name = if rng.once_in(8) { rng.of(&NAMES) } else { rng.of(&NAMES[..FAST]) };
    let qtype = if rng.once_in(16) { rng.of(&[rtype::TXT, rtype::CNAME, 255, 65]) } else { 0 };
    let qtype = if qtype > 0 { qtype } else { rng.of(&[rtype::A, rtype::AAAA]) };
    let mut query = Query::new(name, qtype);
    query.id = rng.draw() as u16;
    query.flags = rng.of(&[0x0000, 0x0100, 0x0110, 0x0120]);
    if rng.once_in(2) {
        let capitals = rng.draw();
        for (at, octet) in query.name.iter_mut().enumerate() {
            if capitals >> (at % 64) & 1 == 1 {
                octet.make_ascii_uppercase();
            }
        }
    }
    if rng.once_in(4) {
        return query;
    }
    query = query.edns(rng.of(&[512, 1232, 1232, 1232, 1400, 4096, 0, 65_535]));
    if rng.once_in(3) {
        query = query.dnssec_ok();
    }
    if rng.once_in(8) {
        query = query.option(10, &rng.draw().to_be_bytes());
    }
    if !rng.once_in(3) {
        query = query.ecs(rng.of(&SUBNETS));
    }
    query
}

/// The frame that carries it here.
pub fn frame(rng: &mut Rng, payload: Vec<u8>) -> Frame {
    let mut frame = if rng.once_in(3) {
        let network = rng.of(&[2, 2, 3, 3, 0xc]);
        let source = Ipv6Addr::new(0x2001, 0xdb8, network, 0, 0, 0, 0, rng.below(0xffff) as u16);
        Frame::ipv6(source, SERVICE6, payload)
    } else {
        let [a, b, c] = rng.of(&[[203, 0, 113], [198, 51, 100], [10, 1, 2], [192, 168, 1], [198, 18, 0]]);
        Frame::ipv4(Ipv4Addr::new(a, b, c, rng.below(256) as u8), SERVICE4, payload)
    };
    frame.udp.source = rng.of(&[40_000, 1024, 65_535, 53]);
    if rng.once_in(6) {
        frame.tags.push((0x8100, rng.of(&[7, 0xffe, 0xe007])));
        if rng.once_in(3) {
            frame.tags.push((0x8100, 7));
        }
    }
    if rng.once_in(10) {
        frame.padding = vec![rng.draw() as u8; rng.below(20)];
    }
    match rng.below(12) {
        0 => frame.udp.checksum = Checksum::Offloaded,
        1 if frame.ethertype.is_none() && matches!(frame.ip, crate::packet::Ip::V4(_)) => {
            frame.udp.checksum = Checksum::Is(0);
        }
        _ => {}
    }
    frame
}
