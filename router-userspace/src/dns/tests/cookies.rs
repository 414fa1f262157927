//! DNS cookies: RFC 7873 §5.2, and RFC 9018 with all vectors of its Appendix A.

use super::*;
use crate::dns::cookie::{Cookie, Jar};
use crate::settings::{Cookies, Secret};

const FIRST: &str = "e5e973e5a6b2a43f48e7dc849e37bfcf";
const OLD: &str = "dd3bdf9344b678b185a6f5cb60fca715";
const NEW: &str = "445536bcd2513298075a5d379663c962";

fn secrets(written: &[&str]) -> Vec<Secret> {
    written.iter().map(|digits| Secret(unhex(digits).try_into().unwrap())).collect()
}

fn jar(written: &[&str]) -> Jar {
    Jar::new(&Cookies { secrets: secrets(written), require: false }).unwrap()
}

fn read(jar: &Jar, option: &str, client: &str, now: u64) -> (&'static str, String) {
    let cookie = jar.read(&unhex(option), client.parse().unwrap(), now);
    let word = match cookie {
        Cookie::Malformed => "malformed",
        Cookie::New(_) => "new",
        Cookie::Bad(_) => "bad",
        Cookie::Good(_) => "good",
    };
    (word, cookie.payload().map(|payload| hex(&payload)).unwrap_or_default())
}

#[test]
fn rfc_9018_appendix_a() {
    let jar = jar(&[FIRST]);
    // A.1: a client learns its first server cookie.
    let learned = "2464c4abcf10c957010000005cf79f111f8130c3eee29480";
    assert_eq!(read(&jar, "2464c4abcf10c957", "198.51.100.100", 1_559_731_985), ("new", learned.into()));
    // A.2: 40 minutes later it gets a fresh one.
    let renewed = "2464c4abcf10c957010000005cf7a871d4a564a1442aca77";
    assert_eq!(read(&jar, learned, "198.51.100.100", 1_559_734_385), ("good", renewed.into()));
    // A.3: reserved octets count as they were sent, and are zero in what is made. The cookie is older than an
    // hour there, so that it is good only earlier.
    let sent = "fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5";
    let renewed = "fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e";
    assert_eq!(read(&jar, sent, "203.0.113.203", 1_559_727_985), ("good", sent.into()));
    assert_eq!(read(&jar, sent, "203.0.113.203", 1_559_734_700), ("bad", renewed.into()));
}

#[test]
fn rfc_9018_appendix_a_4_an_ipv6_client_and_a_secret_that_was_rolled_over() {
    let client = "2001:db8:220:1:59de:d0f4:8769:82b8";
    let sent = "22681ab97d52c298010000005cf7c57926556bd0934c72f8";
    let renewed = "22681ab97d52c298010000005cf7c609a6bb79d16625507a";
    assert_eq!(read(&jar(&[NEW, OLD]), sent, client, 1_559_741_961), ("good", renewed.into()));
    // Two more secrets between them, the most there can be.
    assert_eq!(read(&jar(&[NEW, FIRST, OLD]), sent, client, 1_559_741_961), ("good", renewed.into()));
    // Before the roll-over it is good as it is, also where the new secret is known already.
    assert_eq!(read(&jar(&[OLD, NEW]), sent, client, 1_559_741_961), ("good", sent.into()));
    assert_eq!(read(&jar(&[NEW]), sent, client, 1_559_741_961), ("bad", renewed.into()));
    assert_eq!(read(&jar(&[NEW, OLD]), sent, "2001:db8::1", 1_559_741_961).0, "bad");
}

#[test]
fn a_cookie_ages() {
    let jar = jar(&[FIRST]);
    let made = 1_559_731_985;
    let sent = "2464c4abcf10c957010000005cf79f111f8130c3eee29480";
    for (now, word, renewed) in [
        (made - 301, "bad", true),
        (made - 300, "good", false),
        (made, "good", false),
        (made + 1800, "good", false),
        (made + 1801, "good", true),
        (made + 3600, "good", true),
        (made + 3601, "bad", true),
        // In 68 years and after 136: no cookie of this century comes back to life, except where the numbers
        // have gone round.
        (made + (1 << 31), "bad", true),
        (made + (1 << 32), "good", false),
    ] {
        let (found, payload) = read(&jar, sent, "198.51.100.100", now);
        assert_eq!((found, payload != sent), (word, renewed), "{}", now as i64 - made as i64);
    }
    // Over the end of the numbers, in February 2106.
    let end = 1 << 32;
    let (_, late) = read(&jar, "2464c4abcf10c957", "198.51.100.100", end - 10);
    assert_eq!(read(&jar, &late, "198.51.100.100", end + 100), ("good", late.clone()));
    assert_eq!(read(&jar, &late, "198.51.100.100", end + 3591).0, "bad");
    let (_, early) = read(&jar, "2464c4abcf10c957", "198.51.100.100", end + 10);
    assert_eq!(read(&jar, &early, "198.51.100.100", end - 10), ("good", early.clone()));
}

#[test]
fn every_bit_counts() {
    let jar = jar(&[FIRST]);
    let sent = unhex("2464c4abcf10c957010000005cf79f111f8130c3eee29480");
    let client: IpAddr = "198.51.100.100".parse().unwrap();
    for bit in 0..sent.len() * 8 {
        let mut changed = sent.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert!(matches!(jar.read(&changed, client, 1_559_731_985), Cookie::Bad(_)), "bit {bit}");
    }
    assert!(matches!(jar.read(&sent, "198.51.100.101".parse().unwrap(), 1_559_731_985), Cookie::Bad(_)));
    // On a socket for both families an IPv4 client is the same client.
    let mapped = "::ffff:198.51.100.100".parse().unwrap();
    assert!(matches!(jar.read(&sent, mapped, 1_559_731_985), Cookie::Good(_)));
}

/// A service with cookies.
fn with_cookies(require: bool) -> Service {
    let cookies = Some(Cookies { secrets: secrets(&[FIRST]), require });
    configured(service(), Dns { cookies, ..Dns::default() })
}

/// [`CLIENT`]'s cookie at the start of the epoch, when every query of these tests is sent.
fn good() -> Vec<u8> {
    let (word, cookie) = read(&jar(&[FIRST]), "4142434445464748", &CLIENT.to_string(), 0);
    assert_eq!(word, "new");
    unhex(&cookie)
}

fn with_cookie(payload: &[u8]) -> Vec<u8> {
    with_opt(WWW, A, 1232, &option(10, payload))
}

fn shown_cookie() -> String {
    format!("opt v0 1232 [{}]", hex(&option(10, &good())))
}

#[test]
fn lengths_that_no_cookie_has_are_format_errors() {
    let service = with_cookies(false);
    for len in 0..60 {
        let query = with_cookie(&vec![b'A'; len]);
        let malformed = len != 8 && !(16..=40).contains(&len);
        let head = if malformed { "FORMERR qd1" } else { "NOERROR aa qd1" };
        check_head(&service, &format!("{len} octets"), &query, head);
        check_head(&super::service(), "cookies are off", &query, "NOERROR aa qd1");
    }
    check(&service, &with_cookie(b"short"), "FORMERR qd1\nopt v0 1232 []");
}

#[test]
fn a_reply_has_a_server_cookie_whatever_it_is() {
    let service = with_cookies(false);
    let options = option(10, b"ABCDEFGH");
    let class = |qclass| [header(0, [1, 0, 0, 1]), question(WWW, A, qclass), opt(1232, 0, &options)].concat();
    for (query, head) in [
        (with_opt(WWW, A, 1232, &options), "NOERROR aa qd1"),
        (with_opt("nosuch.example.test", A, 1232, &options), "NXDOMAIN aa qd1"),
        (with_opt("example.org", A, 1232, &options), "REFUSED qd1"),
        (with_opt("example.test", 252, 1232, &options), "REFUSED qd1"),
        (class(3), "REFUSED qd1"),
        (
            [header(0x2000, [1, 0, 0, 1]), question(WWW, A, 1), opt(1232, 0, &options)].concat(),
            "NOTIMP op4 qd1",
        ),
    ] {
        for transport in [Transport::Udp, Transport::Tcp] {
            let shown = show(&ask_over(&service, &query, transport).unwrap());
            assert_eq!(shown.lines().next(), Some(head));
            assert_eq!(shown.lines().last(), Some(&*shown_cookie()), "{head}");
        }
    }
    let version = [header(0, [1, 0, 0, 1]), question(WWW, A, 1), opt(1232, 0x10000, &options)].concat();
    check(&service, &version, "BADVERS qd1\nopt v0 1232 []");
    // No option, no cookie.
    check_head(&service, "none", &with_opt(WWW, A, 1232, &[]), "NOERROR aa qd1");
}

#[test]
fn the_first_of_two_cookies_counts() {
    let service = with_cookies(false);
    let (first, second) = (option(10, b"ABCDEFGH"), option(10, b"HGFEDCBA"));
    let reply = ask(&service, &with_opt(WWW, A, 1232, &[first.clone(), second].concat())).unwrap();
    assert!(show(&reply).ends_with(&format!("{}\n", shown_cookie())), "{}", show(&reply));
    let reply = ask(&service, &with_opt(WWW, A, 1232, &[first, option(10, b"bad")].concat())).unwrap();
    assert!(show(&reply).starts_with("NOERROR aa"), "{}", show(&reply));
}

#[test]
fn a_query_can_be_for_a_cookie_alone() {
    let ask_for = |payload: &[u8]| [header(0, [0, 0, 0, 1]), opt(1232, 0, &option(10, payload))].concat();
    for require in [false, true] {
        let service = with_cookies(require);
        for payload in [b"ABCDEFGH".as_slice(), &good()] {
            check(&service, &ask_for(payload), &format!("NOERROR qd0\n{}", shown_cookie()));
        }
        let bad = [b"ABCDEFGH".as_slice(), &[0; 16]].concat();
        check(&service, &ask_for(&bad), &format!("BADCOOKIE qd0\n{}", shown_cookie()));
        check(&service, &ask_for(b"ABC"), "FORMERR qd0\nopt v0 1232 []");
        check(
            &service,
            &[header(0, [0, 0, 0, 1]), opt(1232, 0, &[])].concat(),
            "FORMERR qd0\nopt v0 1232 []",
        );
        check(&service, &header(0, [0, 0, 0, 0]), "FORMERR qd0");
    }
    check(&super::service(), &ask_for(b"ABCDEFGH"), "FORMERR qd0\nopt v0 1232 []");
}

#[test]
fn cookies_can_be_required_of_clients_that_have_them() {
    let bad = [b"ABCDEFGH".as_slice(), &[0; 16]].concat();
    let strict = with_cookies(true);
    for payload in [b"ABCDEFGH".as_slice(), &bad] {
        check(&strict, &with_cookie(payload), &format!("BADCOOKIE qd1\n{}", shown_cookie()));
        let reply = ask_over(&strict, &with_cookie(payload), Transport::Tcp).unwrap();
        assert!(show(&reply).starts_with("NOERROR aa"), "TCP shows that the address is the client's");
        check_head(&with_cookies(false), "not required", &with_cookie(payload), "NOERROR aa qd1");
    }
    check_head(&strict, "good", &with_cookie(&good()), "NOERROR aa qd1");
    check_head(&strict, "a client without cookies", &plain(WWW, A), "NOERROR aa qd1");
    check_head(&strict, "a client without cookies", &with_opt(WWW, A, 1232, &[]), "NOERROR aa qd1");
    // What is an error anyway is told as such.
    let notify =
        [header(0x2000, [1, 0, 0, 1]), question(WWW, A, 1), opt(1232, 0, &option(10, &bad))].concat();
    check_head(&strict, "NOTIMP", &notify, "NOTIMP op4 qd1");
}

#[test]
fn the_cookie_counts_in_the_size_of_the_reply() {
    let mut text = "example.test 3600 SOA\nexample.test 3600 NS ns1.example.test\n".to_owned();
    for i in 1..=40 {
        writeln!(text, "many.example.test 300 A 198.51.100.{i}").unwrap();
    }
    let cookies = Some(Cookies { secrets: secrets(&[FIRST]), require: false });
    let many = configured(service_of(vec![zone(&text)], Vec::new()), Dns { cookies, ..Dns::default() });
    // 686 octets with OPT and 28 of the option.
    for (size, fits) in [(713, false), (714, true)] {
        let reply = ask(&many, &with_opt("many.example.test", A, size, &option(10, b"ABCDEFGH"))).unwrap();
        assert_eq!(reply[2] & 2 == 0, fits, "size {size}");
        assert!(show(&reply).ends_with(&format!("{}\n", shown_cookie())), "{}", show(&reply));
    }
}

#[test]
fn without_a_file_the_secret_lasts_as_long_as_the_process() {
    let settings = Cookies { secrets: Vec::new(), require: false };
    let (one, other) = (Jar::new(&settings).unwrap(), Jar::new(&settings).unwrap());
    assert_eq!(one, other);
    let client: IpAddr = "192.0.2.1".parse().unwrap();
    let made = one.read(b"ABCDEFGH", client, 5).payload().unwrap();
    assert_eq!(other.read(&made, client, 6), Cookie::Good(made));
    assert!(matches!(jar(&[FIRST]).read(&made, client, 6), Cookie::Bad(_)));
}

#[test]
fn a_secret_is_not_shown() {
    let shown = format!("{:?}", secrets(&[FIRST]));
    assert_eq!(shown, "[Secret(…)]");
}
