//! What holds for every reply to any octets, and octets of every kind.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::settings::{Cookies, Secret};

static SERVICE: LazyLock<Service> = LazyLock::new(profiles::service);
/// The same with every option and name that can be configured.
static FULL: LazyLock<Service> = LazyLock::new(|| {
    let cookies = Some(Cookies { secrets: vec![Secret([7; 16])], require: true });
    let (version, id, nsid) = (Some("v".repeat(255)), Some("i".into()), Some(vec![7; 255]));
    configured(profiles::service(), Dns { cookies, version, id, nsid, ..Dns::default() })
});

/// An OPT record found in a message.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct OptAt<'m> {
    pub size: u16,
    pub options: &'m [u8],
}

/// How far a message can be read.
pub struct Scan<'m> {
    /// Octets up to the end of the last thing read.
    pub end: usize,
    /// Whether everything that the counts promise is there.
    pub complete: bool,
    /// End of the only question.
    pub question_end: Option<usize>,
    /// The first OPT whose fixed part is there.
    pub opt: Option<OptAt<'m>>,
    /// How many OPT records.
    pub opts: usize,
}

/// Walks a message. `None` when there is no header.
pub fn scan(message: &[u8]) -> Option<Scan<'_>> {
    let number = |at: usize| Some(u16::from_be_bytes(message.get(at..at + 2)?.try_into().unwrap()));
    let counts = [number(4)?, number(6)?, number(8)?, number(10)?];
    let mut found = Scan { end: 12, complete: false, question_end: None, opt: None, opts: 0 };
    let skip_name = |mut at: usize, pointers: bool| {
        let start = at;
        loop {
            match *message.get(at)? {
                0 => return (at + 1 - start <= 255).then_some(at + 1),
                len @ 1..=63 => at += 1 + usize::from(len),
                0xc0.. if pointers => return message.get(at + 1).map(|_| at + 2),
                _ => return None,
            }
            if at - start > 255 {
                return None;
            }
        }
    };
    for _ in 0..counts[0] {
        let Some(end) = skip_name(found.end, false).filter(|end| message.len() >= end + 4) else {
            return Some(found);
        };
        found.end = end + 4;
    }
    found.question_end = (counts[0] == 1).then_some(found.end);
    for _ in 0..counts[1..].iter().map(|&count| u32::from(count)).sum::<u32>() {
        let Some(fixed) = skip_name(found.end, true).filter(|end| message.len() >= end + 10) else {
            return Some(found);
        };
        let (Some(rtype), Some(size), Some(len)) = (number(fixed), number(fixed + 2), number(fixed + 8))
        else {
            return Some(found);
        };
        let rdata = message.get(fixed + 10..fixed + 10 + usize::from(len));
        if rtype == 41 {
            found.opts += 1;
            found.opt.get_or_insert(OptAt { size, options: rdata.unwrap_or_default() });
        }
        if rdata.is_none() {
            return Some(found);
        }
        found.end = fixed + 10 + usize::from(len);
    }
    found.complete = true;
    Some(found)
}

/// Code and payload of each option, as far as they can be read.
fn options(mut octets: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    while let Some(([a, b, c, d], rest)) = octets.split_first_chunk::<4>() {
        let Some((payload, rest)) = rest.split_at_checked(usize::from(u16::from_be_bytes([*c, *d]))) else {
            break;
        };
        found.push((u16::from_be_bytes([*a, *b]), payload));
        octets = rest;
    }
    found
}

/// Panics when a reply breaks a rule that holds for all of them.
#[track_caller]
pub fn check_reply(service: &Service, query: &[u8], reply: &[u8], transport: Transport) {
    let asked = scan(query).expect("only messages with a header are answered");
    let scanned = scan(reply).unwrap();
    let context = || format!("query {}\nreply {}", hex(query), hex(reply));
    assert!(scanned.complete && scanned.end == reply.len(), "well formed to its end: {}", context());
    assert_eq!(reply[..2], query[..2], "ID: {}", context());
    assert_eq!(reply[2] & 0xf8, 0x80 | query[2] & 0x78, "QR and OPCODE: {}", context());
    assert_eq!(reply[3] & 0xf0, 0, "RA, Z, AD and CD: {}", context());
    let recursion = if query[2] & 0x78 == 0 { query[2] & 1 } else { 0 };
    assert_eq!(reply[2] & 1, recursion, "RD: {}", context());
    match asked.question_end {
        Some(end) => assert_eq!(reply.get(12..end), Some(&query[12..end]), "question: {}", context()),
        None => assert_eq!(reply[4..6], [0, 0], "no question: {}", context()),
    }
    assert_eq!(scanned.opts, usize::from(asked.opt.is_some()), "OPT iff OPT: {}", context());
    let most = match (transport, asked.opt) {
        (Transport::Tcp, _) => 65_535,
        (Transport::Udp, None) => 512,
        (Transport::Udp, Some(opt)) => usize::from(opt.size.clamp(512, service.settings.edns_size.max(512))),
    };
    assert!(reply.len() <= most, "{} octets, at most {most}: {}", reply.len(), context());
    if reply[2] & 2 != 0 {
        assert_eq!(reply[6..10], [0; 4], "nothing in a truncated reply: {}", context());
        assert_eq!(reply[10..12], [0, scanned.opts as u8], "nothing in a truncated reply: {}", context());
    }
    if let Some(opt) = scanned.opt {
        assert_eq!(opt.size, service.settings.edns_size);
        let asked = options(asked.opt.unwrap().options);
        let first = |code| asked.iter().find(|option| option.0 == code).map(|option| option.1);
        let mut seen = Vec::new();
        for (code, payload) in options(opt.options) {
            assert!(!seen.contains(&code), "each option once: {}", context());
            seen.push(code);
            let right = match code {
                // As it came, its scope aside.
                8 => asked.iter().any(|(code, sent)| {
                    *code == 8
                        && sent.len() == payload.len()
                        && (sent[..3] == payload[..3] && sent[3] == 0 && sent[4..] == payload[4..])
                }),
                10 => {
                    let sent = first(10).is_some_and(|sent| sent.starts_with(&payload[..8]));
                    payload.len() == 24 && sent && service.settings.cookies.is_some()
                }
                3 => first(3).is_some() && service.settings.nsid.as_deref() == Some(payload),
                11 => first(11).is_some() && payload.len() == 2 && transport == Transport::Tcp,
                _ => false,
            };
            assert!(right, "option {code}: {}", context());
        }
        if opt.options.starts_with(&[0, 8, 0, 4, 0, 0]) {
            return; // hickory-proto knows no family 0.
        }
    }
    if let Err(error) = Message::from_vec(reply) {
        // A question that hickory-proto cannot hold, or a type that it takes for something else.
        assert!(reply[6..12].iter().all(|&octet| octet == 0), "{error}: {}", context());
    }
}

/// Queries that start well formed: names of the zone and others, types, records, options.
fn queries() -> impl Strategy<Value = Vec<u8>> {
    let names = prop_oneof![
        prop::sample::select(vec![
            WWW,
            "example.test",
            "alias2.example.test",
            "x.y.wild.example.test",
            "a.deleg.example.test",
            "x.deep.example.test",
            "x.loopdn.example.test",
            "loop1.example.test",
            "www.profile.test",
            "x.apps.profile.test",
            "alias.profile.test",
            "example.org",
            "",
            "version.bind",
            "hostname.bind",
        ])
        .prop_map(wire),
        prop::collection::vec("[a-zA-Z0-9*_-]{1,12}", 0..6)
            .prop_map(|labels| wire(&format!("{}.example.test", labels.join(".")))),
    ];
    let types = prop_oneof![
        prop::sample::select(vec![A, AAAA, CNAME, ANY, SOA, NS, MX, TXT, DS, DNAME, 251, 252]),
        any::<u16>()
    ];
    let options = prop::collection::vec(
        prop_oneof![
            (0..4u16, 0..130u8, prop::collection::vec(any::<u8>(), 0..18))
                .prop_map(|(family, source, address)| ecs(family, source, 0, &address)),
            (1..33u8, any::<[u8; 4]>()).prop_map(|(source, octets)| {
                let masked = u32::from_be_bytes(octets) & u32::MAX << (32 - source);
                ecs(1, source, 0, &masked.to_be_bytes()[..usize::from(source).div_ceil(8)])
            }),
            (any::<u16>(), prop::collection::vec(any::<u8>(), 0..20))
                .prop_map(|(code, payload)| option(code, &payload)),
            (
                prop::sample::select(vec![3, 10, 11, 12]),
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..50),
                    prop::collection::vec(any::<u8>(), 8),
                    Just(Vec::new())
                ]
            )
                .prop_map(|(code, payload)| option(code, &payload)),
        ],
        0..3,
    )
    .prop_map(|options| options.concat());
    let opts = prop::option::of((any::<u16>(), prop_oneof![4 => Just(0u32), 1 => any::<u32>()], options));
    let class = prop_oneof![8 => Just(1u16), 1 => Just(3), 1 => any::<u16>()];
    let extra = (prop::sample::select(vec![A, 24, 41, 250]), prop::collection::vec(any::<u8>(), 0..8));
    let extras = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(extra, 0..3)];
    (any::<u16>(), any::<u16>(), names, types, class, opts, extras).prop_map(
        |(id, flags, name, qtype, qclass, opts, extras)| {
            let mut query = id.to_be_bytes().to_vec();
            query.extend_from_slice(&(flags & 0x07ff).to_be_bytes());
            let records = u8::from(opts.is_some()) + extras.len() as u8;
            // The same records in another section, now and then.
            let counts = if flags & 0x3000 == 0x3000 { [records, 0, 0] } else { [0, 0, records] };
            query.extend_from_slice(&[0, 1, 0, counts[0], 0, counts[1], 0, counts[2]]);
            query.extend_from_slice(&name);
            query.extend_from_slice(&qtype.to_be_bytes());
            query.extend_from_slice(&qclass.to_be_bytes());
            if let Some((size, ttl, options)) = opts {
                query.extend_from_slice(&opt(size, ttl, &options));
            }
            for (rtype, rdata) in extras {
                query.extend_from_slice(&record(&[0], rtype, 255, 0, &rdata));
            }
            query
        },
    )
}

/// One change to a message.
#[derive(Clone, Debug)]
enum Mutation {
    Set(prop::sample::Index, u8),
    Flip(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    Repeat(prop::sample::Index),
}

fn mutations() -> impl Strategy<Value = Vec<Mutation>> {
    let at = any::<prop::sample::Index>;
    prop::collection::vec(
        prop_oneof![
            (at(), any::<u8>()).prop_map(|(at, octet)| Mutation::Set(at, octet)),
            (at(), 0..8u8).prop_map(|(at, bit)| Mutation::Flip(at, bit)),
            at().prop_map(Mutation::Cut),
            (at(), prop::collection::vec(any::<u8>(), 1..8))
                .prop_map(|(at, octets)| Mutation::Insert(at, octets)),
            at().prop_map(Mutation::Repeat),
        ],
        0..5,
    )
}

fn mutate(mut message: Vec<u8>, mutations: Vec<Mutation>) -> Vec<u8> {
    for mutation in mutations {
        if message.is_empty() {
            break;
        }
        let len = message.len();
        match mutation {
            Mutation::Set(at, octet) => message[at.index(len)] = octet,
            Mutation::Flip(at, bit) => message[at.index(len)] ^= 1 << bit,
            Mutation::Cut(at) => message.truncate(at.index(len)),
            Mutation::Insert(at, octets) => {
                let at = at.index(len);
                message.splice(at..at, octets);
            }
            Mutation::Repeat(at) => message.extend_from_within(at.index(len)..),
        }
    }
    message
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn any_octets(message in prop::collection::vec(any::<u8>(), 0..300), tcp: bool) {
        let transport = if tcp { Transport::Tcp } else { Transport::Udp };
        ask_over(&SERVICE, &message, transport);
        ask_over(&FULL, &message, transport);
    }

    #[test]
    fn well_formed_queries_are_always_answered(query in queries(), tcp: bool) {
        let transport = if tcp { Transport::Tcp } else { Transport::Udp };
        prop_assert!(ask_over(&SERVICE, &query, transport).is_some());
        prop_assert!(ask_over(&FULL, &query, transport).is_some());
    }

    #[test]
    fn mutated_queries(query in queries(), changes in mutations(), tcp: bool) {
        let transport = if tcp { Transport::Tcp } else { Transport::Udp };
        let query = mutate(query, changes);
        ask_over(&SERVICE, &query, transport);
        ask_over(&FULL, &query, transport);
    }
}
