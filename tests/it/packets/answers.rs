//! What is answered: types, link and IP layers, EDNS, header bits, and the state of the program.

use router_common::abi::{Answer, Cell, Control, Generation, Owner, Pick};
use router_common::counter::Counter;
use router_tests::need_bpf;
use router_tests::packet::{Checksum, Frame, Query, rtype};

use super::fixture::{
    Builder, Fixture, Record, SERVICE4, SERVICE6, VLANS, a, aaaa, cname, ready, standard, v4, v6,
};

/// Its name, and what is done to good tables.
type Damage = (&'static str, fn(&mut Builder));

/// A frame of a query, over both families, untagged and with one and two tags.
fn carried(query: &Query) -> Vec<Frame> {
    let tags = [vec![], vec![(0x8100, 0x2000 | VLANS[0])], vec![(0x88a8, VLANS[1]), (0x8100, VLANS[0])]];
    let plain = [v4(query), v6(query)];
    plain.iter().flat_map(|frame| tags.iter().map(|tags| frame.with(|f| f.tags = tags.clone()))).collect()
}

#[test]
fn bpf_address_records_and_aliases_are_answered_over_every_carrier() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    for (name, qtype, expected) in [
        ("www.example.test", rtype::A, "www.example.test. 30 IN A 192.0.2.10"),
        ("www.example.test", rtype::AAAA, "www.example.test. 30 IN AAAA 2001:db8::10"),
        ("alias.example.test", rtype::A, "alias.example.test. 60 IN CNAME eu1.example.net."),
        ("alias.example.test", rtype::AAAA, "alias.example.test. 60 IN CNAME eu1.example.net."),
    ] {
        let plain = Query::new(name, qtype);
        for query in [plain.clone(), plain.clone().edns(4096), plain.edns(512).dnssec_ok()] {
            for frame in carried(&query) {
                let reply = fixture.answered(&frame, &query);
                assert_eq!((reply.answers(), reply.authorities()), (vec![expected.to_owned()], vec![]));
            }
        }
    }
}

#[test]
fn bpf_an_address_in_its_answer_is_sent_as_from_a_cell() {
    if !need_bpf() {
        return;
    }
    for (address, ttl, tally) in [
        ([192, 0, 2, 10], 30, 7),
        ([255; 4], Answer::MAX_TTL, 4095),
        ([0; 4], 0, 256),
        ([0, 0, 0, 1], 1, 255),
    ] {
        let mut tables = Builder::new(64);
        let cell = tables.records(&[Record(rtype::A, ttl, address.to_vec())]);
        let nodata = tables.nodata("", "");
        tables.simple("www.example.test", Cell { detail: tally, ..cell }, nodata);
        let from_cell = tables.start();
        tables.image.answers[0] = Answer::address(address, ttl, tally).expect("it fits");
        // Nothing of it is needed.
        tables.image.cells[0] = Cell::EMPTY;
        let from_answer = tables.start();
        let plain = Query::new("www.example.test", rtype::A);
        let ecs = plain.clone().edns(1232).ecs("198.51.100.0/24");
        let mut sent = 0;
        for query in [plain.clone(), plain.edns(512).dnssec_ok(), ecs] {
            for frame in carried(&query) {
                let reply = from_answer.answered(&frame, &query);
                let [a, b, c, d] = address;
                assert_eq!(reply.answers(), [format!("www.example.test. {ttl} IN A {a}.{b}.{c}.{d}")]);
                let octets = frame.bytes();
                let replies =
                    [&from_answer, &from_cell].map(|fixture| fixture.run.run(&octets).expect("it runs"));
                assert_eq!(replies[0], replies[1], "{query:?}");
                sent += 2;
            }
        }
        let counted = |fixture: &Fixture, tally| fixture.run.tally(0, tally).expect("it is read").0;
        assert_eq!(counted(&from_answer, tally), sent);
        assert_eq!(counted(&from_cell, tally), sent / 2);
        for beside in [tally - 1, tally + 1] {
            assert_eq!(counted(&from_answer, beside), 0);
        }
    }
}

#[test]
fn bpf_nodata_points_to_the_zone_inside_the_question() {
    if !need_bpf() {
        return;
    }
    let mut tables = Builder::new(512);
    let v4_record = tables.records(&[a([192, 0, 2, 11])]);
    // One SOA inside its cell, one in lines, and three whose names end with the same pointer: at even places and
    // at odd ones, inside the cell and in lines.
    let soas = [
        (tables.nodata("", ""), ". ."),
        (tables.nodata("ns1.example.test", "host.example.test"), "ns1.example.test. host.example.test."),
        (tables.nodata_in_the_zone("a", "b"), "a.example.test. b.example.test."),
        (tables.nodata_in_the_zone("ns", "odd"), "ns.example.test. odd.example.test."),
        (
            tables.nodata_in_the_zone("ns1.far", "hostmaster"),
            "ns1.far.example.test. hostmaster.example.test.",
        ),
    ];
    let mut names = vec!["example.test".to_owned()];
    names.extend((1..=63).map(|len| format!("{}.example.test", "n".repeat(len))));
    names.extend((1..=63).map(|len| format!("{}.b.c.example.test", "m".repeat(len))));
    for (i, name) in names.iter().enumerate() {
        tables.simple(name, v4_record, soas[i % soas.len()].0);
    }
    let fixture = tables.start();
    for (i, name) in names.iter().enumerate() {
        let soa = soas[i % soas.len()].1;
        let expected = format!("example.test. 60 IN SOA {soa} 1 3600 600 604800 60");
        let plain = Query::new(name, rtype::AAAA);
        // With Client Subnet, the scope of a negative answer is 0.
        for query in [plain.clone(), plain.edns(1232).ecs("203.0.113.0/24")] {
            let frame = if i % 3 == 0 { v6(&query) } else { v4(&query) };
            let reply = fixture.answered_as(&frame, &query, &[(Counter::AnswerNodata, 1)]);
            assert_eq!((reply.answers(), reply.authorities()), (vec![], vec![expected.clone()]), "{name}");
            assert!(query.opt.is_none() || reply.scope() == 0);
        }
    }
}

#[test]
fn bpf_header_bits_of_a_query_are_copied_or_cleared() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    // Every flag and RCODE with QR 0 and opcode 0; the checks are in `answered`.
    for flags in (0..0x0800).step_by(7).chain([0x0100, 0x07ff, 0x0010, 0x0020, 0x0040, 0x0200, 0x0400]) {
        let query = Query::new("www.example.test", rtype::A).with(|query| query.flags = flags);
        fixture.answered(&v4(&query), &query);
    }
    for flags in [0, 0x8000, 0x7fff, 0xffff] {
        let query = Query::new("www.example.test", rtype::A).edns(1232).with(|query| {
            let opt = query.opt.as_mut().unwrap();
            (opt.flags, opt.extended_rcode) = (flags, 0xff);
        });
        fixture.answered(&v6(&query), &query);
    }
}

#[test]
fn bpf_case_is_ignored_and_given_back() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    for name in ["WWW.EXAMPLE.TEST", "wWw.eXaMpLe.tEsT", "www.example.tesT"] {
        let query = Query::new(name, rtype::A).edns(1232);
        let reply = fixture.answered(&v4(&query), &query);
        assert_eq!(reply.message.answers.len(), 1);
    }
    // Only letters have case (RFC 4343): `[` is not `{`, and a high bit stays.
    for name in ["www.ex\u{1}mple.test", "wWw.exAmple.t%st", "\u{57}ww.example.te\u{53}\u{54}x"] {
        let query = Query::new(name, rtype::A);
        fixture.passed(name, &v4(&query).bytes(), Counter::PassUnknownName);
    }
}

#[test]
fn bpf_octets_that_are_no_letters_keep_their_bits() {
    if !need_bpf() {
        return;
    }
    let mut tables = Builder::new(64);
    let cell = tables.records(&[a([192, 0, 2, 1])]);
    tables.simple("a{b.example.test", cell, cell);
    let fixture = tables.start();
    let query = Query::new("A{B.example.test", rtype::A);
    fixture.answered(&v4(&query), &query);
    for (other, counter) in [
        // It hashes alike, so it may be there.
        ("a[b.example.test", Counter::PassDeferred),
        ("a\u{7f}b.example.test", Counter::PassUnknownName),
        ("aPb.example.test", Counter::PassUnknownName),
    ] {
        let query = Query::new(other, rtype::A);
        fixture.passed(other, &v4(&query).bytes(), counter);
    }
    let query = Query::new("a{b.example.test", rtype::A).with(|query| query.name[2] |= 0x80);
    fixture.passed("high bit", &v4(&query).bytes(), Counter::PassUnknownName);
}

#[test]
fn bpf_good_checksums_come_in_three_forms() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    for extra in 0..9 {
        let query = Query::new("www.example.test", rtype::A).edns(1232).option(65_001, &vec![0xa5; extra]);
        for (frame, checksum) in [
            (v4(&query), Checksum::Full),
            (v4(&query), Checksum::Offloaded),
            (v4(&query), Checksum::Is(0)),
            (v6(&query), Checksum::Full),
            (v6(&query), Checksum::Offloaded),
        ] {
            fixture.answered(&frame.with(|f| f.udp.checksum = checksum), &query);
        }
    }
}

#[test]
fn bpf_a_reply_whose_checksum_would_be_zero_carries_all_ones() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    let query = Query::new("www.example.test", rtype::A);
    for frame in [v4(&query), v6(&query)] {
        let checksum_of = |query: &Query| {
            let reply = fixture.run.run(&frame.with(|f| f.payload = query.bytes()).bytes()).unwrap().frame;
            let udp = reply.len() - fixture.answered(&frame, query).parsed.payload.len() - 8;
            u16::from_be_bytes([reply[udp + 6], reply[udp + 7]])
        };
        // The complement of the sum is what is missing to all ones; the ID can bring it.
        let (sum, carry) = query.id.overflowing_add(checksum_of(&query));
        let id = sum + u16::from(carry);
        assert_eq!(checksum_of(&query.with(|query| query.id = id)), 0xffff);
    }
}

#[test]
fn bpf_ip_fields_that_do_not_matter() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    let query = Query::new("www.example.test", rtype::A).edns(1232);
    for change in [
        |f: &mut Frame| f.v4().ttl = 1,
        |f: &mut Frame| f.v4().ttl = 0,
        |f: &mut Frame| f.v4().tos = 0xff,
        |f: &mut Frame| f.v4().fragment = 0x4000,
        |f: &mut Frame| f.v4().fragment = 0x8000,
        |f: &mut Frame| f.v4().id = 0xffff,
        |f: &mut Frame| f.udp.source = 53,
        |f: &mut Frame| f.udp.source = 7,
        |f: &mut Frame| f.from = [0, 0xff, 0xff, 0xff, 0xff, 0xff],
        |f: &mut Frame| f.padding = vec![0x5a; 1],
        |f: &mut Frame| f.padding = vec![0x5a; 18],
        |f: &mut Frame| f.padding = vec![0x5a; 700],
    ] {
        fixture.answered(&v4(&query).with(change), &query);
    }
    for change in [
        |f: &mut Frame| f.v6().hop_limit = 0,
        |f: &mut Frame| f.v6().first = 0x6fff_ffff,
        |f: &mut Frame| f.padding = vec![0x5a; 33],
    ] {
        fixture.answered(&v6(&query).with(change), &query);
    }
}

#[test]
fn bpf_options_that_nobody_asked_us_to_know_are_skipped() {
    if !need_bpf() {
        return;
    }
    let fixture = Fixture::standard();
    let plain = Query::new("www.example.test", rtype::A).edns(1232);
    let many = (0..8).fold(plain.clone(), |query, i| query.option(65_000 + i, &[7; 3]));
    for query in [
        plain.clone().option(10, &[1; 8]),
        plain.clone().option(3, &[]),
        plain.clone().option(12, &[0; 300]),
        plain.clone().option(11, &[]).option(9, &[0, 0, 0, 1]).ecs("198.51.100.0/24"),
        many.clone(),
    ] {
        for frame in [v4(&query), v6(&query)] {
            fixture.answered(&frame, &query);
        }
    }
    let more = many.option(65_100, &[]);
    fixture.passed("nine options", &v4(&more).bytes(), Counter::PassLong);
}

#[test]
fn bpf_cookies_and_nsid_pass_when_they_are_configured() {
    if !need_bpf() {
        return;
    }
    let plain = Query::new("www.example.test", rtype::A).edns(1232).ecs("198.51.100.0/24");
    let (cookie, nsid) = (plain.clone().option(10, &[1; 8]), plain.clone().option(3, &[]));
    for (flags, passing) in [
        (Generation::PASS_COOKIE, vec![(&cookie, Counter::PassCookie)]),
        (Generation::PASS_NSID, vec![(&nsid, Counter::PassNsid)]),
        (
            Generation::PASS_NSID | Generation::PASS_COOKIE,
            vec![(&nsid, Counter::PassNsid), (&cookie, Counter::PassCookie)],
        ),
    ] {
        let mut tables = standard();
        tables.image.generation.flags = flags;
        let fixture = tables.start();
        fixture.answered(&v4(&plain), &plain);
        for (query, counter) in passing {
            fixture.passed("configured", &v4(query).bytes(), counter);
        }
    }
}

#[test]
fn bpf_lease_and_readiness() {
    if !need_bpf() {
        return;
    }
    let mut fixture = Fixture::standard();
    let query = Query::new("www.example.test", rtype::A);
    let frame = v4(&query);
    let mut control = |flags, deadline| fixture.run.set_control(Control::new(0, flags, deadline));
    control(0, u32::MAX);
    fixture.passed("not ready", &frame.bytes(), Counter::PassNotReady);
    let mut control = |flags, deadline| fixture.run.set_control(Control::new(0, flags, deadline));
    control(Control::READY | Control::STALE_PASS, 0);
    fixture.passed("stale", &frame.bytes(), Counter::PassStale);
    fixture.run.set_control(Control::new(0, Control::READY, 0));
    fixture.answered_as(&frame, &query, &[(Counter::AnswerRecords, 1), (Counter::AnswerStale, 1)]);
    // The clock is CLOCK_MONOTONIC: a deadline at its present tick has not passed.
    let tick = Control::tick(monotonic_nanoseconds());
    fixture.run.set_control(Control::new(0, Control::READY | Control::STALE_PASS, tick + 5));
    fixture.answered(&frame, &query);
    fixture.run.set_control(Control::new(0, Control::READY | Control::STALE_PASS, tick.saturating_sub(2)));
    if tick >= 2 {
        fixture.passed("just stale", &frame.bytes(), Counter::PassStale);
    }
}

fn monotonic_nanoseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to the structure only.
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) }, 0);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[test]
fn bpf_the_control_word_chooses_the_half() {
    if !need_bpf() {
        return;
    }
    let mut fixture = Fixture::standard();
    let mut other = Builder::new(16);
    let long = "l".repeat(60);
    let cell = other.records(&[cname(&format!("{long}.example.net"))]);
    other.simple("www.example.test", cell, cell);
    let name = format!("{long}.{long}.example.test");
    let (v4_record, v6_record) =
        (other.records(&[a([203, 0, 113, 9])]), other.records(&[aaaa("2001:db8::9")]));
    other.simple(&name, v4_record, v6_record);
    fixture.run.install(1, &other.image).unwrap();
    let query = Query::new("www.example.test", rtype::A);
    let here = |fixture: &Fixture| fixture.answered(&v4(&query), &query).answers().concat();
    assert_eq!(here(&fixture), "www.example.test. 30 IN A 192.0.2.10");
    fixture.run.set_control(ready(1));
    assert_eq!(here(&fixture), format!("www.example.test. 60 IN CNAME {long}.example.net."));
    let query = Query::new(&name, rtype::AAAA).edns(1232);
    let reply = fixture.answered(&v6(&query), &query);
    assert_eq!(reply.answers(), [format!("{name}. 30 IN AAAA 2001:db8::9")]);
    fixture.run.set_control(ready(0));
    fixture.passed("gone", &v6(&query).bytes(), Counter::PassUnknownName);
}

#[test]
fn bpf_only_the_listed_addresses_and_interfaces_count() {
    if !need_bpf() {
        return;
    }
    let query = Query::new("www.example.test", rtype::A);
    for (ipv4, ipv6, interfaces) in [(1, 2, 2), (2, 1, 2), (2, 2, 1), (0, 0, 0)] {
        let mut tables = standard();
        let generation = &mut tables.image.generation;
        (generation.ipv4_count, generation.ipv6_count) = (ipv4, ipv6);
        generation.interface_count = interfaces;
        let fixture = tables.start();
        for (frame, listed) in [(v4(&query), ipv4 == 2), (v6(&query), ipv6 == 2)] {
            match (interfaces == 2, listed) {
                (true, true) => drop(fixture.answered(&frame, &query)),
                (true, false) => fixture.passed("not listed", &frame.bytes(), Counter::PassAddress),
                (false, _) => fixture.passed("no interface", &frame.bytes(), Counter::PassMac),
            }
        }
    }
    // All sixteen places, and the other address of each family.
    let mut tables = standard();
    let generation = &mut tables.image.generation;
    (generation.ipv4_count, generation.ipv6_count) = (16, 16);
    generation.ipv4[1] = [0; 4];
    generation.ipv6[1] = [0; 16];
    generation.ipv4[15] = SERVICE4.octets();
    generation.ipv6[15] = SERVICE6.octets();
    let fixture = tables.start();
    fixture.answered(&v4(&query), &query);
    fixture.answered(&v6(&query), &query);
}

#[test]
fn bpf_tables_that_lead_nowhere_pass() {
    if !need_bpf() {
        return;
    }
    let query = Query::new("www.example.test", rtype::A);
    let broken: [Damage; 6] = [
        ("no cells", |t| t.image.answers[0] = Answer::new(0, 0, Pick::Random, 0)),
        ("cell far away", |t| t.image.answers[0] = Answer::new(1 << 30, 1, Pick::Random, 0)),
        ("answer far away", |t| t.image.owners.iter_mut().for_each(|o| o.first_answer = 1 << 30)),
        ("piece too short", |t| t.image.cells[0].len = 11),
        ("piece too long", |t| t.image.cells[0].len = 1025),
        ("lines far away", |t| {
            t.image.cells[0].len = 49;
            t.image.cells[0].piece[..4].copy_from_slice(&(1u32 << 30).to_ne_bytes());
        }),
    ];
    for (why, damage) in broken {
        let mut tables = standard();
        damage(&mut tables);
        tables.start().passed(why, &v4(&query).bytes(), Counter::PassBroken);
    }
    let mut tables = standard();
    tables.image.cells.iter_mut().for_each(|cell| cell.kind = Cell::PASS);
    tables.start().passed("deferred share", &v4(&query).bytes(), Counter::PassDeferredShare);
    let mut tables = standard();
    tables.image.owners.iter_mut().for_each(|owner| owner.flags |= Owner::PASS);
    tables.start().passed("deferred", &v4(&query).bytes(), Counter::PassDeferred);
}
