//! DNS.md §1.1–1.3: header, names, class and type.

use super::*;

#[test]
fn responses_and_scraps_get_no_reply() {
    let service = service();
    for query in [
        [header(0x8000, [1, 0, 0, 0]), question(WWW, A, 1)].concat(),
        [header(0x8001, [1, 0, 0, 0]), question(WWW, A, 1)].concat(),
        [header(0xf800, [1, 0, 0, 0]), question(WWW, A, 1)].concat(),
        Vec::new(),
        header(0, [1, 0, 0, 0])[..11].to_vec(),
    ] {
        assert_eq!(ask(&service, &query), None);
    }
}

#[test]
fn opcodes_other_than_query_are_not_implemented() {
    let service = service();
    for opcode in 1..16u16 {
        // RD is not copied: the opcode may use the bit for something else.
        let query = [header(opcode << 11 | 0x100, [1, 0, 0, 0]), question("example.test", SOA, 1)].concat();
        let reply = ask(&service, &query).unwrap();
        assert_eq!(reply[2..4], (0x8004 | opcode << 11).to_be_bytes());
        assert_eq!(reply[4..], [&[0, 1, 0, 0, 0, 0, 0, 0], &query[12..]].concat());
    }
    let only_header = header(15 << 11, [0; 4]);
    assert_eq!(ask(&service, &only_header).unwrap().len(), 12);
    let broken = [header(4 << 11, [1, 0, 0, 0]), vec![0xc0]].concat();
    assert_eq!(ask(&service, &broken).unwrap().len(), 12);
    let edns = [header(2 << 11, [1, 0, 0, 1]), question(WWW, A, 1), opt(1232, 0, &[])].concat();
    check(&service, &edns, "NOTIMP op2 qd1\nopt v0 1232 []");
}

#[test]
fn flags_of_a_query_are_ignored_except_rd() {
    let service = service();
    for (flags, expected) in [
        (0x400, "NOERROR aa qd1"),
        (0x200, "NOERROR aa qd1"),
        (0x100, "NOERROR aa rd qd1"),
        (0x080, "NOERROR aa qd1"),
        (0x040, "NOERROR aa qd1"),
        (0x020, "NOERROR aa qd1"),
        (0x010, "NOERROR aa qd1"),
        (0x7f0, "NOERROR aa rd qd1"),
        (5, "NOERROR aa qd1"),
    ] {
        let query = [header(flags, [1, 0, 0, 0]), question(WWW, A, 1)].concat();
        check_head(&service, "flags", &query, expected);
    }
    // In errors too.
    let query = [header(0x7ff, [1, 0, 0, 0]), question("example.org", A, 1)].concat();
    check(&service, &query, "REFUSED rd qd1");
    let query = header(0x7ff, [0; 4]);
    check(&service, &query, "FORMERR rd qd0");
}

#[test]
fn question_counts_other_than_one_are_format_errors() {
    let service = service();
    let q = question(WWW, A, 1);
    for (why, query, expected) in [
        ("12 octets that claim a question", header(0, [1, 0, 0, 0]), "FORMERR qd0\n"),
        ("none", header(0, [0; 4]), "FORMERR qd0\n"),
        (
            "none, with OPT",
            [header(0, [0, 0, 0, 1]), opt(1232, 0, &[])].concat(),
            "FORMERR qd0\nopt v0 1232 []\n",
        ),
        (
            "none, with a cookie, and cookies are not implemented",
            [header(0, [0, 0, 0, 1]), opt(1232, 0, &option(10, b"12345678"))].concat(),
            "FORMERR qd0\nopt v0 1232 []\n",
        ),
        ("two", [header(0, [2, 0, 0, 0]), q.clone(), question(WWW, AAAA, 1)].concat(), "FORMERR qd0\n"),
        ("two, one there", [header(0, [2, 0, 0, 0]), q.clone()].concat(), "FORMERR qd0\n"),
        ("65535", [header(0, [65535, 0, 0, 0]), q.clone()].concat(), "FORMERR qd0\n"),
        (
            "two, with OPT",
            [header(0, [2, 0, 0, 1]), q.clone(), q.clone(), opt(512, 0, &[])].concat(),
            "FORMERR qd0\nopt v0 1232 []\n",
        ),
    ] {
        let reply = ask(&service, &query).unwrap();
        assert_eq!(show(&reply), expected, "{why}");
    }
}

#[test]
fn counts_beyond_the_data_are_format_errors_with_the_question() {
    let service = service();
    let q = question(WWW, A, 1);
    for counts in [[1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1], [1, 65535, 65535, 65535]] {
        check(&service, &[header(0, counts), q.clone()].concat(), "FORMERR qd1");
    }
    let query = [header(0, [1, 0, 0, 65535]), q, opt(1232, 0, &[])].concat();
    check(&service, &query, "FORMERR qd1\nopt v0 1232 []");
}

#[test]
fn further_records_and_octets_are_ignored() {
    let service = service();
    let q = question(WWW, A, 1);
    let extra = record(&wire(WWW), A, 1, 60, &[1, 2, 3, 4]);
    let plain = ask(&service, &plain(WWW, A)).unwrap();
    for query in [
        [header(0, [1, 1, 0, 0]), q.clone(), extra.clone()].concat(),
        [header(0, [1, 0, 1, 0]), q.clone(), extra.clone()].concat(),
        [header(0, [1, 0, 0, 1]), q.clone(), extra.clone()].concat(),
        [header(0, [1, 0, 0, 1]), q.clone(), record(&[0xc0, 12], A, 1, 60, &[1, 2, 3, 4])].concat(),
        [header(0, [1, 0, 0, 0]), q.clone(), vec![0]].concat(),
        [header(0, [1, 0, 0, 0]), q.clone(), vec![b'A'; 100]].concat(),
        // The IXFR client's SOA is of no use to us, and of no harm.
        [header(0, [1, 0, 1, 0]), q, record(&wire("example.test"), SOA, 1, 0, &[0; 22])].concat(),
    ] {
        assert_eq!(ask(&service, &query).unwrap(), plain);
    }
}

#[test]
fn signed_queries_are_not_authorised() {
    let service = service();
    let mut rdata = wire("hmac-sha256");
    rdata.extend_from_slice(&[0, 0, 0, 0, 0, 1, 1, 44, 0, 32]);
    rdata.extend_from_slice(&[b'x'; 32]);
    rdata.extend_from_slice(&[0x12, 0x34, 0, 0, 0, 0]);
    let tsig = record(&wire("nokey"), 250, 255, 0, &rdata);
    let q = question(WWW, A, 1);
    // The record comes back without a MAC and with ERROR 17, BADKEY.
    let mut rdata = wire("hmac-sha256");
    rdata.extend_from_slice(&[0, 0, 0, 0, 0, 1, 1, 44, 0, 0, 0x12, 0x34, 0, 17, 0, 0]);
    let bad_key = record(&wire("nokey"), 250, 255, 0, &rdata);
    for options in [vec![], opt(1232, 0, &[])] {
        let records = 1 + u16::from(!options.is_empty());
        let query = [&header(0, [1, 0, 0, records])[..], &q, &options, &tsig].concat();
        let reply = ask(&service, &query).unwrap();
        assert_eq!(reply, [&header(0x8009, [1, 0, 0, records])[..], &q, &options, &bad_key].concat());
    }
    let first = [header(0, [1, 0, 0, 2]), q.clone(), tsig.clone(), opt(1232, 0, &[])].concat();
    check(&service, &first, "FORMERR qd1\nopt v0 1232 []");
    check(&service, &[header(0, [1, 1, 0, 0]), q.clone(), tsig.clone()].concat(), "FORMERR qd1");
    for cut in 1..rdata.len() {
        let broken = record(&wire("nokey"), 250, 255, 0, &rdata[..rdata.len() - cut]);
        check(&service, &[header(0, [1, 0, 0, 1]), q.clone(), broken].concat(), "FORMERR qd1");
    }
}

#[test]
fn the_question_comes_back_letter_for_letter() {
    let service = service();
    for text in [
        "wWw.eXaMpLe.tEsT",
        "WWW.EXAMPLE.TEST",
        "nOnExIsT.ExAmPlE.tEsT",
        "X.wIlD.example.TEST",
        "ExAmPlE.oRg",
    ] {
        let query = plain(text, A);
        // `check_reply` compares the question octet by octet.
        let reply = ask(&service, &query).unwrap();
        assert_eq!(reply[12..query.len()], query[12..]);
    }
    check_head(&service, "case", &plain("wWw.eXaMpLe.tEsT", A), "NOERROR aa qd1");
    let reply = ask(&service, &plain("wWw.eXaMpLe.tEsT", A)).unwrap();
    assert_eq!(Message::from_vec(&reply).unwrap().answers[0].name.to_string(), "wWw.eXaMpLe.tEsT.");
}

#[test]
fn names_that_cannot_be_read_get_twelve_octets() {
    let service = service();
    let end = [0, 1, 0, 1];
    let long = |last: usize| {
        let label = "a".repeat(63);
        format!("{label}.{label}.{label}.{}.example.test", "b".repeat(last))
    };
    for (why, octets) in [
        ("pointer to itself", [&[0xc0, 12][..], &end].concat()),
        ("pointer to the header", [b"\x03www\xc0\x00", &end[..]].concat()),
        ("pointer forward", [b"\x03www\xc0\x14", &end[..], &wire("example.test")].concat()),
        ("pointer out of the message", [b"\x03www\xff\xff", &end[..]].concat()),
        ("label type 01", [&b"\x40"[..], &[b'a'; 64], &wire("example.test"), &end].concat()),
        ("label type 10", [&b"\x80"[..], &[b'a'; 128], &wire("example.test"), &end].concat()),
        ("bit label", [&b"\x41\x08\xaa"[..], &wire("example.test"), &end].concat()),
        ("256 octets", [wire(&long(49)), end.into()].concat()),
        ("320 octets", [wire(&vec!["a".repeat(63); 5].join(".")), end.into()].concat()),
        ("no end", b"\x03www\x07example\x04test".to_vec()),
        ("cut in a label", b"\x03www\x07exam".to_vec()),
        ("no type", [wire(WWW), vec![0]].concat()),
        ("no class", [wire(WWW), vec![0, 1]].concat()),
        ("half a class", [wire(WWW), vec![0, 1, 0]].concat()),
    ] {
        let reply = ask(&service, &[header(0x100, [1, 0, 0, 0]), octets].concat()).unwrap();
        assert_eq!(hex(&reply), "123481010000000000000000", "{why}");
    }
    check_head(&service, "255 octets", &plain(&long(48), A), "NXDOMAIN aa qd1");
    let labels = vec!["a"; 120].join(".") + ".example.test";
    check_head(&service, "122 labels", &plain(&labels, A), "NXDOMAIN aa qd1");
    check_head(&service, "127 labels", &plain(&vec!["a"; 127].join("."), A), "REFUSED qd1");
}

#[test]
fn any_octet_may_stand_in_a_label() {
    let service = service();
    let end = [0, 1, 0, 1];
    for (why, start, expected) in [
        ("NUL", &b"\x03a\0b"[..], "NXDOMAIN aa qd1"),
        ("high bit", b"\x02\xc4\xe4", "NXDOMAIN aa qd1"),
        ("brackets are not letters", b"\x04{ww[", "NXDOMAIN aa qd1"),
    ] {
        let query = [&header(0, [1, 0, 0, 0])[..], start, &wire("example.test"), &end].concat();
        check_head(&service, why, &query, expected);
    }
    let dot = [&header(0, [1, 0, 0, 0])[..], b"\x0bwww.example\x04test\0", &end].concat();
    check_head(&service, "a dot in a label", &dot, "REFUSED qd1");
}

#[test]
fn classes_other_than_in_are_refused() {
    let service = service();
    for class in [0, 3, 4, 254, 255, 65535] {
        check(&service, &[header(0, [1, 0, 0, 0]), question(WWW, A, class)].concat(), "REFUSED qd1");
    }
    for text in ["version.bind", "id.server"] {
        check(&service, &[header(0, [1, 0, 0, 0]), question(text, TXT, 3)].concat(), "REFUSED qd1");
    }
}

#[test]
fn every_type_is_answered() {
    let service = service();
    for qtype in 0..=65535 {
        let expected = match qtype {
            // NXNAME may not be asked for; transfers are refused.
            128 => "FORMERR qd1",
            251 | 252 => "REFUSED qd1",
            _ => "NOERROR aa qd1",
        };
        let reply = ask(&service, &plain(WWW, qtype)).unwrap();
        let flags = u16::from_be_bytes([reply[2], reply[3]]);
        let counts = reply[6..12].to_vec();
        match expected {
            "FORMERR qd1" => assert_eq!((flags, counts), (0x8001, vec![0; 6]), "type {qtype}"),
            "REFUSED qd1" => assert_eq!((flags, counts), (0x8005, vec![0; 6]), "type {qtype}"),
            _ => {
                let answers = match qtype {
                    A | ANY => vec![0, 2, 0, 0, 0, 0],
                    AAAA => vec![0, 1, 0, 0, 0, 0],
                    _ => vec![0, 0, 0, 1, 0, 0],
                };
                assert_eq!((flags, counts), (0x8400, answers), "type {qtype}");
            }
        }
    }
}

#[test]
fn transfers_are_refused_on_both_transports() {
    let service = service();
    for qtype in [251, 252] {
        for transport in [Transport::Udp, Transport::Tcp] {
            let reply = ask_over(&service, &plain("example.test", qtype), transport).unwrap();
            assert_eq!(show(&reply), "REFUSED qd1\n");
        }
    }
}
