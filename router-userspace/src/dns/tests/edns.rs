//! DNS.md §1.5: EDNS(0), sizes and truncation.

use super::*;

const ADDRESSES: &str =
    "NOERROR aa qd1\nan www.example.test. 300 A 192.0.2.80\nan www.example.test. 300 A 192.0.2.81";

/// A query with an OPT whose TTL field is given.
fn with_ttl(text: &str, ttl: u32, options: &[u8]) -> Vec<u8> {
    [header(0, [1, 0, 0, 1]), question(text, A, 1), opt(1232, ttl, options)].concat()
}

#[test]
fn opt_is_answered_with_opt() {
    let service = service();
    check(&service, &with_opt(WWW, A, 1232, &[]), &format!("{ADDRESSES}\nopt v0 1232 []"));
    check(
        &service,
        &with_opt("nosuch.example.test", A, 4096, &[]),
        "NXDOMAIN aa qd1\nns example.test. 300 SOA ns1.example.test. 300\nopt v0 1232 []",
    );
    check(&service, &with_opt("example.org", A, 1232, &[]), "REFUSED qd1\nopt v0 1232 []");
    check(&service, &plain(WWW, A), ADDRESSES);
}

#[test]
fn versions_above_zero_are_bad_before_anything_is_looked_up() {
    let service = service();
    for (text, ttl, options) in [
        (WWW, 0x0001_0000, vec![]),
        (WWW, 0x00ff_0000, vec![]),
        ("example.org", 0x0001_0000, vec![]),
        (WWW, 0x0001_0000, option(100, b"abc")),
        (WWW, 0x0001_0000, ecs(1, 24, 0, &[192, 0, 2])),
        // What a later version may put there is none of our business.
        (WWW, 0x0001_0000, vec![0, 8, 0xff]),
    ] {
        check(&service, &with_ttl(text, ttl, &options), "BADVERS qd1\nopt v0 1232 []");
    }
}

#[test]
fn do_is_copied_and_other_flags_are_not() {
    let service = service();
    check(&service, &with_ttl(WWW, 0x8000, &[]), &format!("{ADDRESSES}\nopt v0 1232 do []"));
    check(&service, &with_ttl(WWW, 0x7fff, &[]), &format!("{ADDRESSES}\nopt v0 1232 []"));
    check(&service, &with_ttl(WWW, 0xff00_0000, &[]), &format!("{ADDRESSES}\nopt v0 1232 []"));
}

#[test]
fn broken_opt_records_are_format_errors_with_opt() {
    let service = service();
    let q = question(WWW, A, 1);
    let good = opt(1232, 0, &[]);
    let mut overrun = good.clone();
    overrun[10] = 10;
    for (why, query) in [
        ("two", [header(0, [1, 0, 0, 2]), q.clone(), good.clone(), good.clone()].concat()),
        ("owner", [header(0, [1, 0, 0, 1]), q.clone(), record(b"\x01a\0", 41, 1232, 0, &[])].concat()),
        ("pointer", [header(0, [1, 0, 0, 1]), q.clone(), record(&[0xc0, 12], 41, 1232, 0, &[])].concat()),
        ("in answer", [header(0, [1, 1, 0, 0]), q.clone(), good.clone()].concat()),
        ("in authority", [header(0, [1, 0, 1, 0]), q.clone(), good.clone()].concat()),
        ("RDLEN over", [header(0, [1, 0, 0, 1]), q.clone(), overrun].concat()),
        ("three octets", with_opt(WWW, A, 1232, &[0, 3, 0])),
        ("option over", with_opt(WWW, A, 1232, &[0, 3, 0, 9, b'x'])),
        ("two questions", [header(0, [2, 0, 0, 1]), q.clone(), q.clone(), good.clone()].concat()),
    ] {
        let reply = ask(&service, &query).unwrap();
        let questions = usize::from(why != "two questions");
        assert_eq!(show(&reply), format!("FORMERR qd{questions}\nopt v0 1232 []\n"), "{why}");
    }
}

#[test]
fn opt_may_stand_anywhere_in_additional() {
    let service = service();
    let q = question(WWW, A, 1);
    let other = record(&wire("x"), A, 1, 0, &[1, 2, 3, 4]);
    for extra in [[opt(1232, 0, &[]), other.clone()].concat(), [other, opt(1232, 0, &[])].concat()] {
        let query = [header(0, [1, 0, 0, 2]), q.clone(), extra].concat();
        check(&service, &query, &format!("{ADDRESSES}\nopt v0 1232 []"));
    }
}

#[test]
fn other_options_are_ignored_and_not_echoed() {
    let service = service();
    let many: Vec<u8> = (100..160).flat_map(|code| option(code, &[])).collect();
    for options in [
        option(100, b"abc"),
        option(65001, &[]),
        many,
        option(3, &[]),
        option(3, b"abc"),
        option(10, b"ABCDEFGH"),
        option(10, b"bad length"),
        option(10, &[]),
        option(11, &[]),
        option(12, &[0; 20]),
        option(9, &[]),
        option(15, &[0, 1, b'x']),
        option(13, &wire("example.test")),
    ] {
        check(&service, &with_opt(WWW, A, 1232, &options), &format!("{ADDRESSES}\nopt v0 1232 []"));
    }
}

/// 40 A records: 675 octets with the question, without OPT.
fn large() -> Service {
    let mut text = "example.test 3600 SOA\nexample.test 3600 NS ns1.example.test\n".to_owned();
    for i in 1..=40 {
        writeln!(text, "many.example.test 300 A 198.51.100.{i}").unwrap();
    }
    for i in 1..=90 {
        writeln!(text, "huge.example.test 300 AAAA 2001:db8::{i:x}").unwrap();
    }
    service_of(vec![zone(&text)], Vec::new())
}

#[test]
fn udp_sizes() {
    let service = large();
    let truncated = "NOERROR aa tc qd1";
    check(&service, &plain("many.example.test", A), truncated);
    // With OPT the answer is 686 octets long.
    for (size, fits) in [
        (0, false),
        (1, false),
        (511, false),
        (512, false),
        (685, false),
        (686, true),
        (1232, true),
        (65535, true),
    ] {
        let reply = ask(&service, &with_opt("many.example.test", A, size, &[])).unwrap();
        if fits {
            assert_eq!(reply.len(), 686, "size {size}");
        } else {
            assert_eq!(show(&reply), format!("{truncated}\nopt v0 1232 []\n"), "size {size}");
        }
    }
    // Our own limit holds whatever the client takes.
    for size in [1232, 4096, 65535] {
        let reply = ask(&service, &with_opt("huge.example.test", AAAA, size, &[])).unwrap();
        assert_eq!(show(&reply), format!("{truncated}\nopt v0 1232 []\n"));
    }
    let small = Service::new(service.snapshot, Arc::new(Dns { edns_size: 600, ..Dns::default() }));
    let reply = ask(&small, &with_opt("many.example.test", A, 4096, &[])).unwrap();
    assert_eq!(show(&reply), format!("{truncated}\nopt v0 600 []\n"));
}

#[test]
fn options_of_the_reply_count_in_its_size() {
    let service = large();
    let subnet = ecs(1, 24, 0, &[198, 51, 100]);
    // 686 and an option of 11 octets.
    for (size, fits) in [(696, false), (697, true)] {
        let reply = ask(&service, &with_opt("many.example.test", A, size, &subnet)).unwrap();
        assert_eq!(reply[2] & 2 == 0, fits, "size {size}");
        assert!(show(&reply).ends_with(&format!("[{}]\n", hex(&subnet))), "{}", show(&reply));
    }
}

#[test]
fn tcp_has_no_such_limit() {
    let service = large();
    for query in [plain("huge.example.test", AAAA), with_opt("huge.example.test", AAAA, 512, &[])] {
        let reply = ask_over(&service, &query, Transport::Tcp).unwrap();
        assert_eq!(Message::from_vec(&reply).unwrap().answers.len(), 90);
    }
}
