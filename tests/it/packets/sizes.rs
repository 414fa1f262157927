//! Lengths: of names, of pieces, and of what a client takes, with every alignment of everything.

use router_common::counter::Counter;
use router_tests::need_bpf;
use router_tests::packet::{Query, rtype};

use super::fixture::{Builder, EDNS_SIZE, Record, a, v4, v6};

/// A name of exactly `len` octets in wire form, below the usual zone when there is room.
fn name_of(len: usize) -> String {
    let suffix = if len >= 16 { ".example.test" } else { "" };
    let mut left = len - 1 - suffix.len();
    let mut labels = Vec::new();
    while left > 0 {
        // No label may be left with its length octet alone.
        let octets = if left > 64 && left < 67 { 32 } else { left.min(64) };
        labels.push("xyz0123456789".chars().cycle().take(octets - 1).collect::<String>());
        left -= octets;
    }
    labels.join(".") + suffix
}

#[test]
fn bpf_names_of_every_length() {
    if !need_bpf() {
        return;
    }
    let mut tables = Builder::new(1024);
    let lengths = || (3..=255).filter(|len| !(14..16).contains(len));
    for len in lengths() {
        let cell = tables.records(&[a([192, 0, 2, len as u8])]);
        tables.simple(&name_of(len), cell, cell);
    }
    let fixture = tables.start();
    for len in lengths() {
        let name = name_of(len);
        let plain = Query::new(&name, rtype::A);
        assert_eq!(plain.name.len(), len);
        let upper = Query::new(&name.to_ascii_uppercase(), rtype::AAAA).edns(1232).ecs("198.51.100.0/24");
        for query in [plain.clone(), upper] {
            for frame in [v4(&query), v6(&query)] {
                let reply = fixture.answered(&frame, &query);
                assert_eq!(reply.answers().len(), 1, "{len}");
                assert!(reply.answers()[0].ends_with(&format!(" 192.0.2.{len}")), "{len}");
            }
        }
        // One octet elsewhere is another name, wherever it is.
        for at in [1, len / 2, len.saturating_sub(3)] {
            let other = plain.with(|query| query.name[at] ^= 0x04);
            if other.name != plain.name {
                let frame = v4(&other).bytes();
                let (outcome, moved) = fixture.observe(&frame);
                assert_eq!((outcome.action, &outcome.frame), (2, &frame), "length {len}, octet {at}");
                let [(counter, 1)] = moved[..] else { panic!("{moved:?}") };
                assert!(matches!(counter, Counter::PassUnknownName | Counter::PassName), "{counter:?}");
            }
        }
    }
}

#[test]
fn bpf_the_root_can_be_an_owner() {
    if !need_bpf() {
        return;
    }
    let mut tables = Builder::new(16);
    let (cell, none) = (tables.records(&[a([192, 0, 2, 1])]), tables.nodata("", ""));
    let slot = tables.simple("", cell, none);
    tables.image.owners[slot].zone_len = 1;
    let fixture = tables.start();
    let query = Query::new("", rtype::A);
    assert_eq!(fixture.answered(&v4(&query), &query).answers(), [". 30 IN A 192.0.2.1"]);
    for query in [Query::new("", rtype::AAAA), Query::new("", rtype::AAAA).edns(1232)] {
        for frame in [v4(&query), v6(&query)] {
            let reply = fixture.answered_as(&frame, &query, &[(Counter::AnswerNodata, 1)]);
            assert_eq!(reply.authorities(), [". 60 IN SOA . . 1 3600 600 604800 60"]);
        }
    }
}

#[test]
fn bpf_pieces_of_every_length_at_every_alignment() {
    if !need_bpf() {
        return;
    }
    // TXT records, because their length is free; the program does not look into a piece.
    let text = |len: usize| -> Vec<u8> {
        let octets: Vec<u8> = (0..len).map(|i| (i * 37 + len) as u8).collect();
        octets.chunks(255).flat_map(|chunk| [&[chunk.len() as u8], chunk].concat()).collect()
    };
    let lens: Vec<usize> = (1..200).chain((200..960).step_by(13)).collect();
    for parity in [0, 1] {
        let name = |i: usize| format!("{}{i:04}.example.test", "n".repeat(parity));
        let mut tables = Builder::new(1024);
        for (i, &len) in lens.iter().enumerate() {
            let cell = tables.records(&[Record(rtype::TXT, 5, text(len))]);
            tables.simple(&name(i), cell, cell);
        }
        let fixture = tables.start();
        for (i, &len) in lens.iter().enumerate() {
            let plain = Query::new(&name(i), rtype::A);
            let rich = plain.clone().edns(EDNS_SIZE).dnssec_ok();
            let odd = rich.clone().ecs("198.51.96.0/20");
            for query in [plain, rich.clone(), rich.ecs("2001:db8::/56"), odd] {
                let piece = 12 + text(len).len();
                if query.opt.is_none() && 12 + query.question().len() + piece > 512 {
                    fixture.passed("over 512", &v4(&query).bytes(), Counter::PassTooBig);
                    continue;
                }
                for frame in [v4(&query), v6(&query)] {
                    let reply = fixture.answered(&frame, &query);
                    let at = 12 + query.question().len();
                    let piece = &reply.parsed.payload[at..at + piece];
                    assert_eq!(piece[12..], text(len), "{len} octets");
                    assert_eq!(reply.parsed.payload.len(), at + piece.len() + reply.opt.len());
                }
            }
        }
    }
}

#[test]
fn bpf_a_full_answer_set() {
    if !need_bpf() {
        return;
    }
    let mut tables = Builder::new(16);
    let many: Vec<_> = (0..60).map(|i| a([192, 0, 2, i])).collect();
    let cell = tables.records(&many);
    tables.simple("many.example.test", cell, cell);
    let fixture = tables.start();
    let query = Query::new("many.example.test", rtype::A).edns(EDNS_SIZE);
    let reply = fixture.answered(&v4(&query), &query);
    let expected: Vec<String> = (0..60).map(|i| format!("many.example.test. 30 IN A 192.0.2.{i}")).collect();
    assert_eq!(reply.answers(), expected);
}

#[test]
fn bpf_an_answer_fits_or_passes_to_the_octet() {
    if !need_bpf() {
        return;
    }
    let mut tables = Builder::new(16);
    // 12 + 18 + 4 octets before the pieces, and an OPT record of 11 or 22.
    let records = |count: u8| (0..count).map(|i| a([10, 0, 0, i])).collect::<Vec<_>>();
    let (large, small) = (tables.records(&records(40)), tables.records(&records(29)));
    tables.simple("big.example.test", large, small);
    let fixture = tables.start();
    let large = 12 + 18 + 4 + 40 * 16;
    let small = 12 + 18 + 4 + 29 * 16;
    for (qtype, len) in [(rtype::A, large), (rtype::AAAA, small)] {
        for subnet in [None, Some("198.51.100.0/24")] {
            for size in [0, 511, 512, 513, 600, large + 10, large + 11, large + 21, large + 22, 1232, 65_535]
            {
                let query = Query::new("big.example.test", qtype).edns(size);
                let query = subnet.into_iter().fold(query, Query::ecs);
                let whole = len + 11 + if subnet.is_some() { 11 } else { 0 };
                if whole <= size.clamp(512, EDNS_SIZE) {
                    let reply = fixture.answered(&v6(&query), &query);
                    assert_eq!(reply.parsed.payload.len(), usize::from(whole));
                } else {
                    fixture.passed("too big", &v6(&query).bytes(), Counter::PassTooBig);
                }
            }
        }
    }
    let query = Query::new("big.example.test", rtype::AAAA);
    fixture.answered(&v4(&query), &query);
    let query = Query::new("big.example.test", rtype::A);
    fixture.passed("512 without EDNS", &v4(&query).bytes(), Counter::PassTooBig);
}

#[test]
fn bpf_what_we_send_is_limited_by_the_configuration() {
    if !need_bpf() {
        return;
    }
    let mut tables = Builder::new(16);
    let records: Vec<_> = (0..34).map(|i| a([10, 0, 0, i])).collect();
    let cell = tables.records(&records);
    tables.simple("big.example.test", cell, cell);
    let whole = 12 + 18 + 4 + 34 * 16 + 11;
    tables.image.generation.edns_size = whole;
    let query = Query::new("big.example.test", rtype::A).edns(4096);
    let fixture = tables.start();
    let outcome = fixture.run.run(&v4(&query).bytes()).unwrap();
    assert_eq!((outcome.action, outcome.frame.len()), (3, 14 + 20 + 8 + usize::from(whole)));
    tables.image.generation.edns_size = whole - 1;
    tables.start().passed("over ours", &v4(&query).bytes(), Counter::PassTooBig);
}

#[test]
fn bpf_a_reply_can_be_shorter_than_its_query() {
    if !need_bpf() {
        return;
    }
    let fixture = super::fixture::Fixture::standard();
    for padding in [0, 10, 16, 17, 100, 400] {
        let query = Query::new("www.example.test", rtype::A).edns(1232).option(12, &vec![0; padding]);
        for frame in [v4(&query), v6(&query)] {
            fixture.answered(&frame, &query);
        }
    }
}

#[test]
fn bpf_queries_longer_than_512_octets_pass() {
    if !need_bpf() {
        return;
    }
    let fixture = super::fixture::Fixture::standard();
    let base = Query::new("www.example.test", rtype::A).edns(1232);
    let room = 512 - base.bytes().len() - 4;
    let query = base.clone().option(12, &vec![0; room]);
    fixture.answered(&v4(&query), &query);
    let query = base.option(12, &vec![0; room + 1]);
    fixture.passed("513 octets", &v4(&query).bytes(), Counter::PassLong);
}

#[test]
fn bpf_a_packet_in_several_buffers_passes() {
    if !need_bpf() {
        return;
    }
    let fixture = super::fixture::Fixture::standard();
    let query = Query::new("www.example.test", rtype::A).edns(1232);
    for (padding, counter) in
        [(3000, None), (5000, Some(Counter::PassNoRoom)), (20_000, Some(Counter::PassNoRoom))]
    {
        let frame = v4(&query).with(|f| f.padding = vec![0x5a; padding]);
        match counter {
            None => drop(fixture.answered(&frame, &query)),
            Some(counter) => fixture.passed("several buffers", &frame.bytes(), counter),
        }
    }
    let long = query.option(12, &[0; 5000]);
    fixture.passed("a long query in several buffers", &v4(&long).bytes(), Counter::PassShort);
}
