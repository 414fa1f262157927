//! Header bits, EDNS versions, flags and options in every combination, and types, in the manner of ISC's genreport.

use router_tests::netns::Pair;
use router_tests::packet::{Query, rtype};

use super::{Laboratory, ask, show, socket};

/// AA, TC, RD, RA, Z, AD, CD.
const BITS: [u16; 7] = [0x400, 0x200, 0x100, 0x80, 0x40, 0x20, 0x10];
const RD: u16 = 0x100;

/// The types that genreport asks for one after the other, and some that have none.
const TYPES: &[u16] = &[
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28,
    29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 55, 56,
    57, 58, 59, 60, 61, 62, 63, 64, 65, 99, 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 256, 257, 258,
    259, 32768, 32769, 666, 1000, 65280, 65534,
];

/// A way to use EDNS, and what the reply's OPT must be then.
struct Use {
    version: u8,
    flags: u16,
    options: &'static [(u16, &'static [u8])],
    expected: &'static str,
}

const SUBNET: (u16, &[u8]) = (8, &[0, 1, 0, 0]);
const LIST: &[(u16, &[u8])] = &[(3, &[]), (100, b"abc"), (10, b"ABCDEFGH"), (9, &[]), SUBNET];

const USES: [Use; 8] = [
    Use { version: 0, flags: 0, options: &[], expected: " opt(v0,1232)" },
    Use { version: 0, flags: 0x8000, options: &[], expected: " opt(v0,1232,DO)" },
    Use { version: 0, flags: 0x7fff, options: &[], expected: " opt(v0,1232)" },
    Use { version: 0, flags: 0xffff, options: &[(100, &[])], expected: " opt(v0,1232,DO)" },
    Use { version: 0, flags: 0, options: LIST, expected: " opt(v0,1232 ecs[00010000])" },
    Use { version: 1, flags: 0, options: &[], expected: " opt(v0,1232)" },
    Use { version: 1, flags: 0x8040, options: &[(100, &[])], expected: " opt(v0,1232,DO)" },
    Use { version: 200, flags: 0, options: LIST, expected: " opt(v0,1232)" },
];

fn ask_and_show(socket: &std::net::UdpSocket, query: &[u8]) -> String {
    show::reply(&ask(socket, query), query)
}

#[test]
fn netns_flags_and_edns_in_every_combination() {
    let Some(laboratory) = Laboratory::new() else { return };
    let agent = laboratory.example();
    let socket = socket(&laboratory.pair.client, Pair::SERVER_ADDRESSES[0]);
    let mut id = 0;
    for bits in 0..1u16 << BITS.len() {
        let flags = BITS.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, bit)| bit).sum();
        let rd = if flags & RD == 0 { "" } else { "rd " };
        let mut query = |uses: Option<&Use>| {
            id += 1;
            let mut query =
                Query::new("example.test", rtype::SOA).with(|query| (query.id, query.flags) = (id, flags));
            if let Some(uses) = uses {
                query = query.edns(4096);
                for &(code, content) in uses.options {
                    query = query.option(code, content);
                }
                let opt = query.opt.as_mut().expect("EDNS");
                (opt.version, opt.flags) = (uses.version, uses.flags);
            }
            query.bytes()
        };
        assert_eq!(ask_and_show(&socket, &query(None)), format!("NOERROR aa {rd}1/1/0/0 81B"), "{flags:x}");
        for uses in &USES {
            let shown = ask_and_show(&socket, &query(Some(uses)));
            let head = if uses.version == 0 {
                format!("NOERROR aa {rd}1/1/0/1 ")
            } else {
                format!("BADVERS {rd}1/0/0/1 ")
            };
            assert!(
                shown.starts_with(&head) && shown.ends_with(uses.expected),
                "{flags:x} {}: {shown}",
                uses.version
            );
        }
    }
    // Opcodes, with and without whatever else there is.
    for opcode in 1..16u16 {
        for flags in [0, 0x7ff] {
            let query =
                Query::new("example.test", rtype::SOA).with(|query| query.flags = opcode << 11 | flags);
            let shown = ask_and_show(&socket, &query.bytes());
            assert_eq!(shown, format!("NOTIMP 1/0/0/0 30B op{opcode}"), "opcode {opcode} {flags:x}");
            let shown = ask_and_show(&socket, &query.edns(4096).dnssec_ok().bytes());
            assert_eq!(
                shown,
                format!("NOTIMP 1/0/0/1 41B opt(v0,1232,DO) op{opcode}"),
                "opcode {opcode} {flags:x}"
            );
        }
    }
    agent.terminate();
}

#[test]
fn netns_types_that_a_name_has_and_has_not() {
    let Some(laboratory) = Laboratory::new() else { return };
    let agent = laboratory.example();
    let socket = socket(&laboratory.pair.client, Pair::SERVER_ADDRESSES[0]);
    let apex = [1, 2, 6, 15, 16, 28];
    for (at, &qtype) in TYPES.iter().enumerate() {
        let query = |name: &str| Query::new(name, qtype).with(|query| query.id = at as u16).bytes();
        let shown = ask_and_show(&socket, &query("example.test"));
        let head =
            if apex.contains(&qtype) { "NOERROR aa rd 1/" } else { "NOERROR aa rd 1/0/1/0 81B SOAttl60" };
        assert!(shown.starts_with(head), "type {qtype}: {shown}");
        assert_eq!(shown.contains("SOAttl"), !apex.contains(&qtype), "type {qtype}: {shown}");
        let absent = ask_and_show(&socket, &query("nosuch.example.test"));
        assert_eq!(absent, "NXDOMAIN aa rd 1/0/1/0 88B SOAttl60", "type {qtype}");
        let elsewhere = ask_and_show(&socket, &query("example.org"));
        assert_eq!(elsewhere, "REFUSED rd 1/0/0/0 29B", "type {qtype}");
    }
    agent.terminate();
}
