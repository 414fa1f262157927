use std::time::Duration;

use super::*;
use crate::dns::{Asked, Transport};

fn event(name: &str, client: &str, outcome: Counter) -> Event {
    Event {
        at: Duration::ZERO,
        path: Path::Fast,
        interface: None,
        outcome,
        client: client.parse().unwrap(),
        server: "192.0.2.53:53".parse().unwrap(),
        transport: Transport::Udp,
        query: Vec::new(),
        reply: None,
        asked: Asked {
            name: Some(name.parse().unwrap()),
            rtype: Some(1),
            subnet: Some(("203.0.113.0".parse().unwrap(), 24)),
        },
    }
}

fn filter(name: Option<&str>, client: Option<&str>, outcome: Option<&str>) -> Filter {
    Filter::parse(name, client, None, outcome, None).unwrap()
}

#[test]
fn names_are_patterns_of_absolute_names() {
    for (pattern, fits, fits_not) in [
        ("www.example.com", &["www.example.com"][..], &["a.www.example.com", "example.com"][..]),
        ("WWW.example.com.", &["wWw.EXAMPLE.com"], &[]),
        ("*.example.com", &["a.example.com", "a.b.example.com"], &["example.com", "example.com.net"]),
        ("*example.com", &["example.com", "a.example.com", "notexample.com"], &["example.com.net"]),
        ("www*", &["www.example.com", "www2.net"], &["a.www.net"]),
    ] {
        let filter = filter(Some(pattern), None, None);
        for name in fits {
            assert!(filter.fits(&event(name, "192.0.2.1:1", Counter::AnswerRecords)), "{pattern} {name}");
        }
        for name in fits_not {
            assert!(!filter.fits(&event(name, "192.0.2.1:1", Counter::AnswerRecords)), "{pattern} {name}");
        }
    }
}

#[test]
fn the_fast_path_is_told_the_literal_end_of_a_pattern() {
    for (pattern, name, exact) in [
        ("www.example.com", "www.example.com.", 1),
        ("*.example.com", "example.com.", 0),
        ("www-?.eu.example.com", "eu.example.com.", 0),
        ("*example.com", "com.", 0),
        ("a\\.b.example.com", "a\\.b.example.com.", 1),
    ] {
        let rule = filter(Some(pattern), None, None).rule();
        let octets: Vec<u8> = rule.name.iter().flat_map(|word| word.to_le_bytes()).collect();
        let held = Name::from_wire(&octets[..usize::from(rule.name_len)]).unwrap();
        assert_eq!((held.to_string().as_str(), rule.exact), (name, exact), "{pattern}");
    }
    for pattern in ["www*", "a\\.b*.example.com", "*"] {
        assert_eq!(filter(Some(pattern), None, None).rule().name_len, 0, "{pattern}");
    }
}

#[test]
fn clients_are_networks_of_the_source_or_the_subnet() {
    let of = |client: &str| filter(None, Some(client), None);
    let seen = event("a.", "198.51.100.7:5353", Counter::AnswerRecords);
    for (client, fits) in [
        ("198.51.100.0/24", true),
        ("198.51.100.7", true),
        ("198.51.100.8", false),
        ("203.0.113.0/24", true),
        ("203.0.0.0/16", true),
        ("2001:db8::/32", false),
    ] {
        assert_eq!(of(client).fits(&seen), fits, "{client}");
    }
    let rule = of("2001:db8::/32").rule();
    assert_eq!((rule.family, rule.mask), (6, [0xffff_ffffu64.to_le(), 0]));
    assert_eq!(rule.client[0], u64::from_le_bytes([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0]));
}

#[test]
fn outcomes_are_those_that_end_a_query_unless_named() {
    let usual = Filter::default();
    let fits = |filter: &Filter, outcome| filter.fits(&event("a.", "192.0.2.1:1", outcome));
    assert!(fits(&usual, Counter::AnswerNodata) && fits(&usual, Counter::ServerRefused));
    assert!(!fits(&usual, Counter::PassType) && !fits(&usual, Counter::DropResponse));
    assert!(usual.wants_userspace() && usual.rule().outcomes == 0b11);
    let passed = filter(None, None, Some("pass_*"));
    assert!(fits(&passed, Counter::PassType) && fits(&passed, Counter::PassStale));
    // What was not found to be for us is nobody's to look at.
    assert!(!fits(&passed, Counter::PassAddress) && !fits(&passed, Counter::PassNotDns));
    assert!(!passed.wants_userspace());
    let refused = filter(None, None, Some("server_refused"));
    assert!(refused.wants_userspace() && refused.rule().outcomes == 0);
}

#[test]
fn mistakes_are_told() {
    let parse =
        |name, client, rtype, outcome, path| Filter::parse(name, client, rtype, outcome, path).unwrap_err();
    assert!(parse(Some("a..b"), None, None, None, None).contains("\"a..b\" is not a name"));
    assert!(parse(None, Some("198.51.100.7/24"), None, None, None).contains("198.51.100.0/24"));
    assert!(parse(None, Some("near"), None, None, None).contains("is not a client"));
    assert!(parse(None, None, Some("AX"), None, None).contains("is not a record type"));
    assert!(parse(None, None, None, Some("answr*"), None).contains("there are answer_records"));
    assert!(parse(None, None, None, Some("server_*"), Some(Path::Fast)).contains("never"));
}
