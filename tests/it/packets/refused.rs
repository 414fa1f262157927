//! What is not answered: every malformed or foreign packet meets its outcome, is counted by its reason,
//! and is byte for byte what it was.

use std::net::{Ipv4Addr, Ipv6Addr};

use router_common::counter::Counter;
use router_tests::need_bpf;
use router_tests::packet::{Checksum, Frame, Query, ecs_option, rtype, wire_name};

use super::fixture::{Builder, CLIENT4, CLIENT6, Fixture, SERVICE4, SERVICE6, a, standard, v4, v6};

/// Its name, what is done to a good frame, and the counter that moves.
type Case = (&'static str, fn(&mut Frame), Counter);

fn www() -> Query {
    Query::new("www.example.test", rtype::A)
}

/// With EDNS and Client Subnet.
fn rich() -> Query {
    www().edns(1232).ecs("198.51.100.0/24")
}

#[test]
fn bpf_frames_cut_at_every_octet() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    let tag = |f: &mut Frame| f.tags = vec![(0x88a8, 7), (0x8100, 7)];
    for frame in [v4(&rich()), v6(&rich()), v4(&rich()).with(tag), v6(&rich()).with(tag)] {
        fixture.answered(&frame, &rich());
        let whole = frame.bytes();
        // The kernel runs no frame below 14 octets.
        for len in 14..whole.len() {
            fixture.passed(&format!("cut at {len}"), &whole[..len], Counter::PassShort);
        }
    }
}

#[test]
fn bpf_messages_cut_at_every_octet() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    let query = rich();
    let message = query.bytes();
    let name_end = 12 + query.name.len();
    for len in 0..message.len() {
        let expected = if len < 12 {
            Counter::PassShort
        } else if len < name_end {
            Counter::PassName
        } else if len < name_end + 4 {
            Counter::PassShort
        } else {
            Counter::PassOpt
        };
        // What was cut off is still there, as padding that no check may take for the message.
        for padding in [vec![], message[len..].to_vec()] {
            for frame in [v4(&query), v6(&query)] {
                let frame =
                    frame.with(|f| (f.payload, f.padding) = (message[..len].to_vec(), padding.clone()));
                fixture.passed(&format!("message cut at {len}"), &frame.bytes(), expected);
            }
        }
    }
}

#[test]
fn bpf_link_layer() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    let cases: [Case; 14] = [
        ("another MAC, last octet", |f| f.to[5] ^= 1, Counter::PassMac),
        ("another MAC, first octet", |f| f.to[0] ^= 4, Counter::PassMac),
        ("MAC of another interface", |f| f.to = [2, 9, 9, 9, 9, 9], Counter::PassMac),
        ("broadcast MAC", |f| f.to = [0xff; 6], Counter::PassMac),
        ("from a multicast MAC", |f| f.from[0] |= 1, Counter::PassMac),
        ("VLAN not configured", |f| f.tags = vec![(0x8100, 100)], Counter::PassVlan),
        ("VLAN 0 not configured", |f| f.tags = vec![(0x8100, 0)], Counter::PassVlan),
        ("inner VLAN not configured", |f| f.tags = vec![(0x88a8, 7), (0x8100, 8)], Counter::PassVlan),
        ("outer VLAN not configured", |f| f.tags = vec![(0x88a8, 8), (0x8100, 7)], Counter::PassVlan),
        ("three tags", |f| f.tags = vec![(0x8100, 7); 3], Counter::PassNotIp),
        ("ARP", |f| f.ethertype = Some(0x0806), Counter::PassNotIp),
        ("IEEE 802.3 length", |f| f.ethertype = Some(0x0040), Counter::PassNotIp),
        ("IPv6 in an IPv4 frame", |f| f.ethertype = Some(0x0800), Counter::PassIpHeader),
        ("IPv4 in an IPv6 frame", |f| f.ethertype = Some(0x86dd), Counter::PassIpHeader),
    ];
    for (why, change, counter) in cases {
        let frame = if why.starts_with("IPv6") { v6(&rich()) } else { v4(&rich()) };
        fixture.passed(why, &frame.with(change).bytes(), counter);
    }
}

#[test]
fn bpf_ipv4_headers() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    let cases: [Case; 20] = [
        ("options", |f| f.v4().options = vec![1, 1, 1, 0], Counter::PassIpHeader),
        ("header length 4", |f| f.v4().first = Some(0x44), Counter::PassIpHeader),
        ("version 5", |f| f.v4().first = Some(0x55), Counter::PassIpHeader),
        ("version 6", |f| f.v4().first = Some(0x65), Counter::PassIpHeader),
        ("bad header checksum", |f| f.v4().checksum = Some(0x1234), Counter::PassIpHeader),
        ("no header checksum", |f| f.v4().checksum = Some(0), Counter::PassIpHeader),
        ("total length over the frame", |f| f.v4().total_len = Some(1000), Counter::PassShort),
        ("total length below the header", |f| f.v4().total_len = Some(19), Counter::PassShort),
        ("total length without UDP header", |f| f.v4().total_len = Some(27), Counter::PassShort),
        ("total length cuts the message", |f| f.v4().total_len = Some(60), Counter::PassLength),
        ("more fragments", |f| f.v4().fragment = 0x2000, Counter::PassFragment),
        ("fragment offset 1", |f| f.v4().fragment = 1, Counter::PassFragment),
        ("fragment offset with DF", |f| f.v4().fragment = 0x5fff, Counter::PassFragment),
        ("TCP", |f| f.v4().protocol = 6, Counter::PassNotDns),
        ("UDP-Lite", |f| f.v4().protocol = 136, Counter::PassNotDns),
        ("port 54", |f| f.udp.destination = 54, Counter::PassNotDns),
        ("port 53 in the upper octet", |f| f.udp.destination = 0x3500, Counter::PassNotDns),
        ("UDP length below", |f| f.udp.len = Some(30), Counter::PassLength),
        ("UDP length above", |f| f.udp.len = Some(300), Counter::PassLength),
        ("UDP length 0", |f| f.udp.len = Some(0), Counter::PassLength),
    ];
    for (why, change, counter) in cases {
        fixture.passed(why, &v4(&rich()).with(change).bytes(), counter);
    }
}

#[test]
fn bpf_ipv6_headers() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    for header in [0, 43, 44, 50, 51, 59, 60, 135, 139, 140] {
        // With the extension header in place, and (nothing looks further) without.
        for extension in [vec![], vec![17, 0, 0, 0, 0, 0, 0, 0]] {
            let frame = v6(&rich()).with(|f| {
                (f.v6().next_header, f.v6().extension) = (header, extension.clone());
            });
            fixture.passed("extension header", &frame.bytes(), Counter::PassExtension);
        }
    }
    let cases: [Case; 7] = [
        ("version 4", |f| f.v6().first = 0x4000_0000, Counter::PassIpHeader),
        ("TCP", |f| f.v6().next_header = 6, Counter::PassNotDns),
        ("ICMP", |f| f.v6().next_header = 58, Counter::PassNotDns),
        ("payload over the frame", |f| f.v6().payload_len = Some(300), Counter::PassShort),
        ("payload without UDP header", |f| f.v6().payload_len = Some(7), Counter::PassShort),
        ("payload cuts the message", |f| f.v6().payload_len = Some(40), Counter::PassLength),
        ("UDP length 0", |f| f.udp.len = Some(0), Counter::PassLength),
    ];
    for (why, change, counter) in cases {
        fixture.passed(why, &v6(&rich()).with(change).bytes(), counter);
    }
}

#[test]
fn bpf_sources_that_nobody_can_be_reached_at() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    let other_service = Ipv4Addr::new(192, 0, 2, 54);
    for source in [
        "0.0.0.0",
        "0.1.2.3",
        "127.0.0.1",
        "127.9.9.9",
        "224.0.0.1",
        "239.1.1.1",
        "240.0.0.1",
        "255.255.255.255",
    ]
    .map(|text| text.parse().unwrap())
    .into_iter()
    .chain([SERVICE4, other_service])
    {
        let frame = v4(&rich()).with(|f| f.v4().source = source);
        fixture.passed("IPv4 martian", &frame.bytes(), Counter::PassMartian);
    }
    for source in ["::", "::1", "ff02::1", "ff0e::5", "::ffff:198.18.0.7", "::9"]
        .map(|text| text.parse::<Ipv6Addr>().unwrap())
        .into_iter()
        .chain([SERVICE6])
    {
        let frame = v6(&rich()).with(|f| f.v6().source = source);
        fixture.passed("IPv6 martian", &frame.bytes(), Counter::PassMartian);
    }
}

#[test]
fn bpf_sources_that_are_this_machines_or_broadcast_addresses() {
    if !need_bpf() {
        return;
    }
    let mut fixture = Fixture::standard();
    let locals: [Ipv4Addr; 4] =
        [[198, 18, 0, 255], [10, 0, 0, 255], [10, 0, 0, 7], [198, 18, 0, 66]].map(Into::into);
    fixture.run.set_locals(&locals);
    for source in locals {
        let frame = v4(&rich()).with(|f| f.v4().source = source);
        fixture.passed("an address of ours", &frame.bytes(), Counter::PassMartian);
    }
    // Those that look like one to the filter.
    for source in [[198, 18, 0, 191], [10, 0, 1, 255], [198, 18, 0, 2], [198, 18, 0, 7]] {
        let frame = v4(&rich()).with(|f| f.v4().source = source.into());
        fixture.answered(&frame, &rich());
    }
    fixture.run.set_locals(&[]);
    fixture.answered(&v4(&rich()).with(|f| f.v4().source = [198, 18, 0, 255].into()), &rich());
}

#[test]
fn bpf_destinations_that_are_not_ours() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    for (i, bit) in [(0, 1), (1, 2), (2, 0x80), (3, 1)] {
        let mut octets = SERVICE4.octets();
        octets[i] ^= bit;
        let frame = Frame::ipv4(CLIENT4, octets.into(), rich().bytes());
        // One of these neighbours is not in the list by chance.
        fixture.passed("another IPv4 address", &frame.bytes(), Counter::PassAddress);
    }
    for i in 0..16 {
        let mut octets = SERVICE6.octets();
        octets[i] ^= 0x40;
        let frame = Frame::ipv6(CLIENT6, octets.into(), rich().bytes());
        fixture.passed("another IPv6 address", &frame.bytes(), Counter::PassAddress);
    }
}

#[test]
fn bpf_checksums() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    for frame in [v4(&rich()), v6(&rich())] {
        let whole = frame.bytes();
        let udp = whole.len() - rich().bytes().len() - 8;
        // Each octet of ports, length, checksum and message is covered; a changed length is found before.
        for at in (udp..whole.len()).filter(|at| !(udp + 2..udp + 6).contains(at)) {
            for bit in [0x01, 0x80] {
                let mut damaged = whole.clone();
                damaged[at] ^= bit;
                fixture.passed(&format!("octet {at}"), &damaged, Counter::PassChecksum);
            }
        }
        for extra in 1..10 {
            let query = rich().option(65_001, &vec![0x11; extra]);
            let mut damaged = frame.with(|f| f.payload = query.bytes()).bytes();
            *damaged.last_mut().unwrap() ^= 0x10;
            fixture.passed("last octet", &damaged, Counter::PassChecksum);
        }
    }
    let none = v6(&rich()).with(|f| f.udp.checksum = Checksum::Is(0));
    fixture.passed("IPv6 without a checksum", &none.bytes(), Counter::PassChecksum);
}

#[test]
fn bpf_dns_headers() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    for flags in [0x8000, 0x8180, 0xffff, 0x8003, 0xa800] {
        let frame = v4(&www().with(|query| query.flags = flags));
        fixture.dropped("QR=1", &frame.bytes(), Counter::DropResponse);
        fixture.dropped("QR=1", &frame.with(|f| f.udp.source = 53).bytes(), Counter::DropResponse);
    }
    for frame in [v4(&www()), v6(&www())] {
        let frame = frame.with(|f| f.udp.source = 0);
        fixture.dropped("source port 0", &frame.bytes(), Counter::DropSourcePort);
    }
    for opcode in 1..16 {
        let query = www().with(|query| query.flags |= opcode << 11);
        fixture.passed("opcode", &v4(&query).bytes(), Counter::PassOpcode);
    }
    for counts in [
        [0, 0, 0, 0],
        [2, 0, 0, 0],
        [0x0100, 0, 0, 0],
        [0xffff, 0, 0, 0],
        [1, 1, 0, 0],
        [1, 0x0100, 0, 0],
        [1, 0, 1, 0],
        [1, 0, 0xe300, 0],
        [1, 0, 0, 2],
        [1, 0, 0, 0x0100],
        [1, 0, 0, 0xffff],
        [1, 1, 1, 1],
    ] {
        for query in [www(), rich()] {
            let query = query.with(|query| query.counts = Some(counts));
            fixture.passed("counts", &v4(&query).bytes(), Counter::PassCounts);
        }
    }
    let two = www().with(|query| {
        query.counts = Some([2, 0, 0, 0]);
        query.records = query.question();
    });
    fixture.passed("two questions", &v4(&two).bytes(), Counter::PassCounts);
}

#[test]
fn bpf_names() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    let label = |len: u8| [&[len], &vec![b'x'; len.into()][..]].concat();
    let end = wire_name("example.test");
    let names: [(&str, Vec<u8>); 14] = [
        ("pointer after a zero octet in a label", vec![2, b'a', 0, 0xc0, 12]),
        ("label of 64 after a zero octet in a label", [&[1, 0], &label(64)[..], &end[..]].concat()),
        ("pointer to itself", vec![0xc0, 12]),
        ("pointer into the header", vec![0xc0, 0]),
        ("pointer after a label", [&b"\x03www"[..], &[0xc0, 12]].concat()),
        ("label of 64", [label(64), end.clone()].concat()),
        ("label type 01", [&[0x41, 0x00], &end[..]].concat()),
        ("label type 10", [&[0x80], &end[..]].concat()),
        ("label of 255", [label(255), end.clone()].concat()),
        ("256 octets", [label(63), label(63), label(63), label(62), vec![0]].concat()),
        ("257 octets", [label(63), label(63), label(63), label(63), vec![0]].concat()),
        ("320 octets", [label(63), label(63), label(63), label(63), label(62), vec![0]].concat()),
        ("128 labels and the root", [[1, b'x'].repeat(128), vec![0]].concat()),
        ("no end", [1, b'x'].repeat(100)),
    ];
    for (why, name) in names {
        for query in [www(), rich()] {
            let query = query.with(|query| query.name = name.clone());
            for frame in [v4(&query), v6(&query)] {
                // The frame goes on with zeros, which end no name that the message does not end.
                let frame = frame.with(|f| f.padding = vec![0; 64]);
                let counter = match why {
                    // Then QTYPE's first octet is its end, and what follows is no question.
                    "no end" => continue,
                    _ => Counter::PassName,
                };
                fixture.passed(why, &frame.bytes(), counter);
            }
        }
    }
    for name in [
        // The longest name, and the most labels, are fine and unknown.
        [label(63), label(63), label(63), label(61), vec![0]].concat(),
        [[1, b'x'].repeat(127), vec![0]].concat(),
        // Zero octets in labels, the last of them as if it were the end of ours.
        [&[4, b'a', 0, b'b', b'c'], &end[..]].concat(),
        [&[1, 0], &end[..]].concat(),
        [&[1, 0, 1, 0, 1, 0], &end[..]].concat(),
        [&[8], &b"\x03www\0\x01x\0"[..], &end[..]].concat(),
        wire_name("ww.example.test"),
        wire_name("www.example.tes"),
        wire_name("www.example.test.x"),
        vec![0],
    ] {
        for query in [www(), rich()] {
            let query = query.with(|query| query.name = name.clone());
            fixture.passed("unknown name", &v4(&query).bytes(), Counter::PassUnknownName);
        }
    }
}

#[test]
fn bpf_a_foreign_name_with_our_hash_gets_no_answer() {
    if !need_bpf() {
        return;
    }
    // Short names and long ones are compared in different ways; the last octets differ.
    let long = "l".repeat(60);
    for (ours, foreign) in [
        ("www.example.test".to_owned(), "xww.example.test".to_owned()),
        ("www.example.test".to_owned(), "www.example.tesu".to_owned()),
        (format!("{long}.example.test"), format!("{long}.example.tesu")),
        (format!("{long}.a.example.test"), format!("{long}.b.example.test")),
    ] {
        let mut tables = standard();
        let cell = tables.records(&[a([192, 0, 2, 66])]);
        // The foreign name is put in to learn its slot and hash, and then given our name.
        let slot = tables.simple(&foreign, cell, cell);
        let mut other = Builder::new(16);
        let own = other.simple(&ours, cell, cell);
        let lines = tables.image.lines.len() as u32;
        let mut owner = other.image.owners[own];
        if owner.name_len > 40 {
            let first = u32::from_ne_bytes(owner.name[..4].try_into().unwrap());
            tables.image.lines.extend_from_slice(&other.image.lines[first as usize..]);
            owner.name[..4].copy_from_slice(&lines.to_ne_bytes());
        }
        owner.hash = tables.image.owners[slot].hash;
        owner.first_answer = tables.image.owners[slot].first_answer;
        tables.image.owners[slot] = owner;
        let fixture = tables.start();
        let query = Query::new(&foreign, rtype::A);
        fixture.passed("same hash, another name", &v4(&query).bytes(), Counter::PassDeferred);
    }
}

#[test]
fn bpf_classes_and_types() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    for class in [0, 2, 3, 4, 254, 255, 0x0100, 0xffff] {
        let query = rich().with(|query| query.qclass = class);
        fixture.passed("class", &v4(&query).bytes(), Counter::PassClass);
    }
    for qtype in [0, 2, 5, 6, 15, 16, 33, 41, 64, 65, 250, 252, 255, 0x0100, 0x1c00, 0xffff] {
        let query = rich().with(|query| query.qtype = qtype);
        fixture.passed("type", &v6(&query).bytes(), Counter::PassType);
    }
}

#[test]
fn bpf_additional_records() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    let opt =
        |change: fn(&mut router_tests::packet::Opt)| rich().with(|query| change(query.opt.as_mut().unwrap()));
    let bare = www().edns(1232);
    for (why, query, counter) in [
        ("owner not root", opt(|opt| opt.owner = vec![1, b'x', 0]), Counter::PassOpt),
        ("owner a pointer", opt(|opt| opt.owner = vec![0xc0, 12]), Counter::PassOpt),
        ("not an OPT record", opt(|opt| opt.rtype = rtype::A), Counter::PassOpt),
        ("TSIG", opt(|opt| opt.rtype = 250), Counter::PassOpt),
        ("version 1", opt(|opt| opt.version = 1), Counter::PassEdnsVersion),
        ("version 255", opt(|opt| opt.version = 255), Counter::PassEdnsVersion),
        ("RDLENGTH over the message", opt(|opt| opt.rdlen = Some(12)), Counter::PassOpt),
        ("RDLENGTH far over", opt(|opt| opt.rdlen = Some(0xffff)), Counter::PassOpt),
        ("RDLENGTH inside an option", opt(|opt| opt.rdlen = Some(10)), Counter::PassOpt),
        ("RDLENGTH inside an option's header", opt(|opt| opt.rdlen = Some(3)), Counter::PassOpt),
        ("RDLENGTH 0 with options behind", opt(|opt| opt.rdlen = Some(0)), Counter::PassTrailing),
        ("option over the record", opt(|opt| opt.options[0].1 = Some(8)), Counter::PassOpt),
        ("option far over the record", opt(|opt| opt.options[0].1 = Some(0xffff)), Counter::PassOpt),
        (
            "option of 3 octets",
            bare.with(|q| (q.opt.as_mut().unwrap().rdlen, q.trailing) = (Some(3), vec![0; 3])),
            Counter::PassOpt,
        ),
        ("trailing octet", rich().with(|query| query.trailing = vec![0]), Counter::PassTrailing),
        ("trailing octet without EDNS", www().with(|query| query.trailing = vec![0]), Counter::PassTrailing),
        (
            "OPT without ARCOUNT",
            rich().with(|query| query.counts = Some([1, 0, 0, 0])),
            Counter::PassTrailing,
        ),
        ("ARCOUNT without OPT", www().with(|query| query.counts = Some([1, 0, 0, 1])), Counter::PassOpt),
        (
            "two OPT records",
            rich().with(|q| (q.counts, q.records) = (Some([1, 0, 0, 2]), q.opt.as_ref().unwrap().bytes())),
            Counter::PassCounts,
        ),
        (
            "two OPT records, one counted",
            rich().with(|q| (q.counts, q.records) = (Some([1, 0, 0, 1]), q.opt.as_ref().unwrap().bytes())),
            Counter::PassTrailing,
        ),
        (
            "an A record before OPT",
            rich().with(|q| {
                (q.counts, q.records) = (Some([1, 0, 0, 2]), b"\0\0\x01\0\x01\0\0\0\0\0\x04abcd".to_vec())
            }),
            Counter::PassCounts,
        ),
    ] {
        for frame in [v4(&query), v6(&query)] {
            fixture.passed(why, &frame.bytes(), counter);
            // Octets behind the packet are none of the message.
            fixture.passed(why, &frame.with(|f| f.padding = vec![0; 40]).bytes(), counter);
        }
    }
}

#[test]
fn bpf_client_subnets() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    let v4_24 = ecs_option("198.51.100.0/24", 0);
    let changed = |change: fn(&mut Vec<u8>)| {
        let mut option = v4_24.clone();
        change(&mut option);
        option
    };
    for (why, option) in [
        ("empty", vec![]),
        ("one octet", vec![0]),
        ("three octets", vec![0, 1, 0]),
        ("family 0, source 0", vec![0, 0, 0, 0]),
        ("family 0", changed(|o| o[1] = 0)),
        ("family 3", changed(|o| o[1] = 3)),
        ("family 256", changed(|o| o[0] = 1)),
        ("scope in a query", changed(|o| o[3] = 1)),
        ("scope 24 in a query", changed(|o| o[3] = 24)),
        ("too few octets", changed(|o| o.truncate(6))),
        ("too many octets", changed(|o| o.push(0))),
        ("no octets", changed(|o| o.truncate(4))),
        ("octets with source 0", vec![0, 1, 0, 0, 0]),
        ("source 33", vec![0, 1, 33, 0, 1, 2, 3, 4, 0]),
        ("source 33 in 4 octets", vec![0, 1, 33, 0, 1, 2, 3, 4]),
        ("source 255", vec![0, 1, 255, 0, 1, 2, 3, 4]),
        ("IPv6 source 129", [&[0, 2, 129, 0][..], &[0x20; 17]].concat()),
        ("IPv6 source 129 in 16 octets", [&[0, 2, 129, 0][..], &[0x20; 16]].concat()),
        ("IPv6 too few", [&[0, 2, 64, 0][..], &[0x20; 7]].concat()),
        ("IPv6 too many", [&[0, 2, 64, 0][..], &[0x20; 9]].concat()),
        ("dirty /25", vec![0, 1, 25, 0, 198, 51, 100, 0x40]),
        ("dirty /1", vec![0, 1, 1, 0, 0xff]),
        ("dirty /31", vec![0, 1, 31, 0, 198, 51, 100, 1]),
        ("dirty IPv6 /57", vec![0, 2, 57, 0, 0x20, 1, 0xd, 0xb8, 0, 0, 0, 0xc0]),
        ("dirty IPv6 /121", [&[0, 2, 121, 0][..], &[0x20; 15], &[0x7f]].concat()),
    ] {
        let query = www().edns(1232).option(8, &option);
        for query in [
            query.clone(),
            query.clone().option(65_001, &[1, 2]),
            www().edns(1232).option(65_001, &[]).option(8, &option),
        ] {
            for frame in [v4(&query), v6(&query)] {
                fixture.passed(why, &frame.bytes(), Counter::PassEcs);
            }
        }
    }
    let twice = rich().ecs("198.51.100.0/24");
    fixture.passed("two options", &v4(&twice).bytes(), Counter::PassEcs);
    let twice = rich().ecs("0.0.0.0/0");
    fixture.passed("two options", &v4(&twice).bytes(), Counter::PassEcs);
    let twice = www().edns(1232).ecs("0.0.0.0/0").ecs("2001:db8::/32");
    fixture.passed("two options", &v4(&twice).bytes(), Counter::PassEcs);
}
