//! Zone transfers, message by message: what is sent to whom, and that it is the zone.

use std::collections::{BTreeMap, BTreeSet};

use hickory_proto::op::Message;
use router_common::decide::Snapshot;
use router_common::model::{Method, Target};

use super::*;
use crate::dns::transfer::{self, Places, Transfer};
use crate::settings::{Algorithm, Allowed, Secondaries};

const AXFR: u16 = 252;
const IXFR: u16 = 251;

fn range(text: &str) -> Option<router_common::model::AddressRange> {
    let net: ipnet::IpNet = text.parse().unwrap();
    Some(router_common::model::AddressRange { first: net.network(), last: net.broadcast() })
}

/// Everything there is, `zones` of it for whoever is at [`CLIENT`].
fn open(snapshot: Snapshot, zones: &[&str]) -> Arc<Service> {
    let transfer = vec![Allowed { from: range("198.51.100.7/32"), key: None }];
    let secondaries = Secondaries { transfer, ..Secondaries::default() };
    let settings = Dns {
        secondaries: zones.iter().map(|zone| (name(zone), secondaries.clone())).collect(),
        ..Dns::default()
    };
    Arc::new(Service::new(snapshot, Arc::new(settings)))
}

fn tcp() -> Client {
    from(CLIENT, Transport::Tcp)
}

fn begin(service: &Arc<Service>, query: &[u8], client: &Client) -> Option<Transfer> {
    transfer::wanted(service, query, client, &Places::default(), &Arc::default())
}

fn messages(mut transfer: Transfer) -> Vec<Vec<u8>> {
    let messages = std::iter::from_fn(|| transfer.next_message(Duration::ZERO)).collect();
    assert!(transfer.is_whole());
    messages
}

/// A record with its names written out.
type Row = (Name, u16, u32, Vec<u8>);

/// A name at an offset, and where what follows it begins.
fn name_at(message: &[u8], mut at: usize) -> (Vec<u8>, usize) {
    let (mut octets, mut end) = (Vec::new(), None);
    loop {
        match message[at] {
            0 => {
                octets.push(0);
                return (octets, end.unwrap_or(at + 1));
            }
            len @ 1..=63 => {
                octets.extend_from_slice(&message[at..=at + usize::from(len)]);
                at += 1 + usize::from(len);
            }
            high => {
                end.get_or_insert(at + 2);
                at = usize::from(high & 0x3f) << 8 | usize::from(message[at + 1]);
            }
        }
    }
}

fn rows_of(message: &[u8]) -> Vec<Row> {
    // Another decoder takes it too.
    Message::from_vec(message).unwrap_or_else(|error| panic!("{error}"));
    let number = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    let mut at = 12;
    for _ in 0..number(4) {
        at = name_at(message, at).1 + 4;
    }
    let mut rows = Vec::new();
    for _ in 0..number(6) {
        let (owner, head) = name_at(message, at);
        let (rtype, len) = (number(head), usize::from(number(head + 8)));
        let ttl = u32::from(number(head + 4)) << 16 | u32::from(number(head + 6));
        let (start, end) = (head + 10, head + 10 + len);
        let (fixed, names) = match rtype {
            NS | CNAME => (0, 1),
            SOA => (0, 2),
            MX => (2, 1),
            _ => (len, 0),
        };
        let mut rdata = message[start..start + fixed].to_vec();
        let mut after = start + fixed;
        for _ in 0..names {
            let (name, next) = name_at(message, after);
            rdata.extend(name);
            after = next;
        }
        rdata.extend_from_slice(&message[after..end]);
        rows.push((Name::from_wire(&owner).unwrap(), rtype, ttl, rdata));
        at = end;
    }
    rows
}

/// The zone that a secondary makes of it.
fn zone_of(apex: &str, messages: &[Vec<u8>]) -> Zone {
    let rows: Vec<Row> = messages.iter().flat_map(|message| rows_of(message)).collect();
    let (first, last) = (rows.first().unwrap(), rows.last().unwrap());
    assert_eq!((first, first.1), (last, SOA));
    assert_eq!(rows.iter().filter(|row| row.1 == SOA).count(), 2);
    let mut nodes: BTreeMap<Name, Node> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (owner, rtype, ttl, rdata) in &rows[..rows.len() - 1] {
        assert!(seen.insert((owner.clone(), *rtype, rdata.clone())), "{owner} {rtype} stands twice");
        let empty = RrSet { ttl: *ttl, rdata: Vec::new() };
        let set = nodes.entry(owner.clone()).or_default().entry(*rtype).or_insert(empty);
        assert_eq!(set.ttl, *ttl);
        set.rdata.push(rdata.clone());
    }
    let rdata = &first.3;
    let (mname, at) = name_at(rdata, 0);
    let (rname, at) = name_at(rdata, at);
    let numbers: Vec<u32> =
        rdata[at..].chunks(4).map(|four| u32::from_be_bytes(four.try_into().unwrap())).collect();
    let soa = Soa {
        mname: Name::from_wire(&mname).unwrap(),
        rname: Name::from_wire(&rname).unwrap(),
        serial: numbers[0],
        refresh: numbers[1],
        retry: numbers[2],
        expire: numbers[3],
        minimum: numbers[4],
    };
    Zone { name: name(apex), soa, ttl: first.2, nodes }
}

fn transferred(service: &Arc<Service>, apex: &str) -> Zone {
    zone_of(apex, &messages(begin(service, &plain(apex, AXFR), &tcp()).expect("a transfer")))
}

#[test]
fn static_zones_arrive_as_they_are() {
    let service = open(service().snapshot, &["example.test", "other.test", "child.example.test"]);
    for (apex, text) in [("example.test", ZONE), ("other.test", OTHER), ("child.example.test", CHILD)] {
        let mut expected = zone(text);
        // A zone arrives without the order of records in a set.
        let mut found = transferred(&service, apex);
        for zone in [&mut expected, &mut found] {
            for set in zone.nodes.values_mut().flat_map(Node::values_mut) {
                set.rdata.sort();
            }
        }
        assert_eq!(found, expected);
    }
}

/// Type, TTL, and data in order.
type Set = (u16, u32, Vec<Vec<u8>>);

/// RCODE, AA, and the first record set of the answer.
fn said(service: &Service, query: &[u8]) -> (u8, bool, Option<Set>) {
    let reply = ask_over(service, query, Transport::Tcp).unwrap();
    let rows = rows_of(&reply);
    let first = rows.first().map(|first| {
        let set = rows.iter().filter(|row| (&row.0, row.1) == (&first.0, first.1));
        let mut rdata: Vec<Vec<u8>> = set.map(|row| row.3.clone()).collect();
        rdata.sort();
        (first.1, first.2, rdata)
    });
    (reply[3] & 0xf, reply[2] & 4 != 0, first)
}

#[test]
fn a_secondary_answers_as_we_do() {
    let ours = open(profiles::service().snapshot, &["profile.test"]);
    let theirs = service_of(vec![transferred(&ours, "profile.test")], Vec::new());
    let labels = [
        "",
        "www.",
        "v4only.",
        "several.",
        "cname.",
        "away.",
        "multi.",
        "apps.",
        "*.apps.",
        "x.apps.",
        "mx.apps.",
        "y.mx.apps.",
        "disabled.",
        "nodata.",
        "x.nodata.",
        "subnet.",
        "off.",
        "alias.",
        "subalias.",
        "absent.",
        "x.www.",
    ];
    let mut compared = 0;
    for label in labels {
        // An alias says at a secondary what any alias says: that it stands for every type. Here a profile
        // answers for its own types only.
        let types: &[u16] = match label {
            "cname." | "away." => &[A, AAAA, CNAME],
            _ => &[A, AAAA, CNAME, MX, TXT, NS, SOA, DS, 65280],
        };
        for &qtype in types {
            let query = plain(&format!("{label}profile.test"), qtype);
            assert_eq!(said(&theirs, &query), said(&ours, &query), "{label} {qtype}");
            compared += 1;
        }
    }
    assert_eq!(compared, labels.len() * 9 - 12);
}

fn zone_text(apex: &str) -> String {
    format!("{apex} 3600 SOA\n{apex} 3600 NS ns1.example.test\n")
}

#[test]
fn what_chance_decides_is_the_likeliest_and_an_alias_gives_way() {
    let ours = open(profiles::service().snapshot, &["profile.test"]);
    let zone = transferred(&ours, "profile.test");
    let set = |owner: &str, rtype: u16| {
        zone.nodes.get(&name(&format!("{owner}.profile.test"))).and_then(|node| node.get(&rtype))
    };
    assert_eq!(set("*.apps", A).unwrap(), &RrSet { ttl: 30, rdata: vec![vec![192, 0, 2, 31]] });
    assert_eq!(set("multi", A).unwrap().rdata.len(), 2);
    assert_eq!(set("cname", CNAME).unwrap().rdata, [wire(&"www.profile.test".to_lowercase())]);
    assert_eq!(set("disabled", A), None);
    let mut mixed = profiles::profile(
        "mixed",
        Method::Priority,
        &[profiles::addresses(&["192.0.2.1"]), Target::Domain(name("elsewhere.invalid"))],
    );
    mixed.ttl = 5;
    let apex = zone_text("profile.test");
    let ours = open(service_of(vec![super::zone(&apex)], vec![mixed]).snapshot, &["profile.test"]);
    // AAAA is answered with an alias, beside which the A records could not stand.
    assert_eq!(said(&ours, &plain("mixed.profile.test", AAAA)).2.unwrap().0, CNAME);
    let mixed = &transferred(&ours, "profile.test").nodes[&name("mixed.profile.test")];
    assert_eq!(*mixed, Node::from([(A, RrSet { ttl: 5, rdata: vec![vec![192, 0, 2, 1]] })]));
    // Static records of a profile's name, and what holds a name that has none.
    assert_eq!(set("subnet", TXT).unwrap().rdata, [b"\x04here"]);
    assert_eq!(set("_xroute.nodata", TXT).unwrap().rdata, [b"\x15no address at present"]);
    assert!(!zone.nodes.contains_key(&name("_xroute.www.profile.test")));
}

#[test]
fn the_asker_is_the_secondary() {
    let service = profiles::service();
    let settings = Dns {
        secondaries: BTreeMap::from([(
            name("profile.test"),
            Secondaries {
                transfer: vec![Allowed { from: range("0.0.0.0/0"), key: None }],
                ..Secondaries::default()
            },
        )]),
        ..Dns::default()
    };
    let service = Arc::new(Service::new(service.snapshot, Arc::new(settings)));
    let at = |client: &str| {
        let client = from(client.parse().unwrap(), Transport::Tcp);
        let messages = messages(begin(&service, &plain("profile.test", AXFR), &client).unwrap());
        let zone = zone_of("profile.test", &messages);
        let node = &zone.nodes[&name("subnet.profile.test")];
        node.get(&A).map(|set| set.rdata.clone())
    };
    assert_eq!(at("198.51.100.9"), Some(vec![vec![192, 0, 2, 60]]));
    assert_eq!(at("203.0.113.9"), None);
}

#[test]
fn who_gets_what() {
    let settings = Dns {
        keys: vec![tsig::key(Algorithm::HmacSha256)],
        secondaries: BTreeMap::from([
            (
                name("example.test"),
                Secondaries {
                    transfer: vec![Allowed { from: range("198.51.100.0/24"), key: None }],
                    ..Secondaries::default()
                },
            ),
            (
                name("other.test"),
                Secondaries {
                    transfer: vec![Allowed {
                        from: range("198.51.100.0/24"),
                        key: Some(name("xfr.example.test")),
                    }],
                    ..Secondaries::default()
                },
            ),
        ]),
        ..Dns::default()
    };
    let service = Arc::new(Service::new(service().snapshot, Arc::new(settings)));
    let elsewhere: IpAddr = "203.0.113.1".parse().unwrap();
    let ixfr = |zone: &str, serial: u32| {
        let mut soa = [wire("ns1.example.test"), wire("hostmaster.example.test")].concat();
        soa.extend([serial, 1, 2, 3, 4].into_iter().flat_map(u32::to_be_bytes));
        let record = record(&[0xc0, 12], SOA, 1, 0, &soa);
        [header(0, [1, 0, 1, 0]), question(zone, IXFR, 1), record].concat()
    };
    let signed = |mut query: Vec<u8>| {
        crate::dns::tsig::Signer::query(tsig::key(Algorithm::HmacSha256)).sign(&mut query, Duration::ZERO);
        query
    };
    let one_soa = "NOERROR aa qd1\nan example.test. 3600 SOA ns1.example.test. 300\n";
    for (why, query, source, udp, refused, expected) in [
        ("in the zone's list", plain("example.test", AXFR), CLIENT, false, 0, "whole"),
        ("letters do not matter", plain("EXAMPLE.test", AXFR), CLIENT, false, 0, "whole"),
        ("not in it", plain("example.test", AXFR), elsewhere, false, 1, "REFUSED qd1\n"),
        ("no list", plain("child.example.test", AXFR), CLIENT, false, 1, "REFUSED qd1\n"),
        ("a name in a zone", plain(WWW, AXFR), CLIENT, false, 1, "NOTAUTH qd1\n"),
        ("not ours", plain("elsewhere.invalid", AXFR), CLIENT, false, 1, "NOTAUTH qd1\n"),
        ("over UDP", plain("example.test", AXFR), CLIENT, true, 1, "REFUSED qd1\n"),
        ("not ours over UDP", plain("elsewhere.invalid", AXFR), CLIENT, true, 1, "REFUSED qd1\n"),
        ("the key is missing", plain("other.test", AXFR), CLIENT, false, 1, "REFUSED qd1\n"),
        ("address and key", signed(plain("other.test", AXFR)), CLIENT, false, 0, "whole"),
        ("the key from elsewhere", signed(plain("other.test", AXFR)), elsewhere, false, 1, "REFUSED"),
        ("a key that is not asked for", signed(plain("example.test", AXFR)), CLIENT, false, 0, "whole"),
        (
            "another class",
            [header(0, [1, 0, 0, 0]), question("example.test", AXFR, 3)].concat(),
            CLIENT,
            false,
            0,
            "REFUSED qd1\n",
        ),
        ("an old serial", ixfr("example.test", 6), CLIENT, false, 0, "whole"),
        ("the same serial", ixfr("example.test", 7), CLIENT, false, 0, one_soa),
        ("a newer serial", ixfr("example.test", 8), CLIENT, false, 0, one_soa),
        ("IXFR over UDP", ixfr("example.test", 6), CLIENT, true, 0, one_soa),
        ("IXFR over UDP, not in the list", ixfr("example.test", 6), elsewhere, true, 1, "REFUSED qd1\n"),
        ("IXFR without a serial", plain("example.test", IXFR), CLIENT, false, 0, "FORMERR qd1\n"),
    ] {
        let client = from(source, if udp { Transport::Udp } else { Transport::Tcp });
        let counts = Arc::new(Counts::default());
        let transfer =
            if udp { None } else { transfer::wanted(&service, &query, &client, &Places::default(), &counts) };
        match transfer {
            Some(transfer) => {
                assert_eq!(expected, "whole", "{why}");
                assert_eq!(counts.get(Counter::ServerTransfer), 1);
                let sent = messages(transfer);
                assert_eq!(sent[0][11], u8::from(query[11] > 0), "{why}: signed when the query is");
            }
            None => {
                let reply = respond(&service, &query, &client, &mut || 0, &counts).unwrap();
                let shown = show(&reply);
                assert!(
                    shown == expected || expected == "REFUSED" && shown.starts_with(expected),
                    "{why}: {shown}"
                );
                assert_eq!(counts.get(Counter::ServerTransfer), 0);
            }
        }
        assert_eq!(counts.get(Counter::ServerTransferRefused), refused, "{why}");
    }
}

#[test]
fn messages_are_full_and_begin_with_the_question() {
    let rows: String = (0..20_000u32)
        .map(|i| format!("host{i}.example.test 60 A 10.0.{}.{}\n", i >> 8, i & 0xff))
        .chain((0..3000u32).map(|i| format!("big.example.test 60 TXT {i:0200}\n")))
        .collect();
    let all = zone(&(ZONE.to_owned() + &rows));
    let service = open(service_of(vec![all.clone()], Vec::new()).snapshot, &["example.test"]);
    for query in [plain("example.test", AXFR), with_opt("example.test", AXFR, 1232, &[])] {
        let sent = messages(begin(&service, &query, &tcp()).unwrap());
        assert!((15..25).contains(&sent.len()), "{} messages", sent.len());
        let mut records = 0;
        for (i, message) in sent.iter().enumerate() {
            let parsed = Message::from_vec(message).unwrap();
            assert_eq!(message[..2], [0x12, 0x34]);
            assert_eq!(message[2..4], [0x84, 0]);
            assert_eq!(parsed.queries.len(), usize::from(i == 0));
            assert_eq!(parsed.edns.is_some(), i == 0 && query[11] > 0);
            assert!(i + 1 == sent.len() || message.len() > 65_000, "{} octets", message.len());
            records += parsed.answers.len();
        }
        let held: usize = all.nodes.values().flat_map(Node::values).map(|set| set.rdata.len()).sum();
        assert_eq!(records, held + 1);
        let mut found = zone_of("example.test", &sent);
        let mut expected = all.clone();
        for zone in [&mut expected, &mut found] {
            for set in zone.nodes.values_mut().flat_map(Node::values_mut) {
                set.rdata.sort();
            }
        }
        assert!(found == expected);
    }
}

#[test]
fn a_record_that_fits_in_no_message_is_an_error() {
    let mut broken = zone(ZONE);
    let huge = RrSet { ttl: 60, rdata: vec![vec![7; 65_500]] };
    broken.nodes.entry(name("huge.example.test")).or_default().insert(65280, huge);
    let service = open(service_of(vec![broken], Vec::new()).snapshot, &["example.test"]);
    let counts = Arc::new(Counts::default());
    let query = plain("example.test", AXFR);
    let mut transfer =
        transfer::wanted(&service, &query, &tcp(), &Places::default(), &counts).expect("a transfer");
    let sent: Vec<Vec<u8>> = std::iter::from_fn(|| transfer.next_message(Duration::ZERO)).collect();
    assert!(!transfer.is_whole());
    assert_eq!(sent.last().map(|message| (message[3] & 0xf, message[7])), Some((2, 0)));
    drop(transfer);
    assert_eq!(counts.get(Counter::ServerTransferFailed), 1);
    assert_eq!(counts.get(Counter::ServerTransferFinished), 0);
}

#[test]
fn every_message_is_signed_with_the_one_before_in_it() {
    let rows: String =
        (0..20_000u32).map(|i| format!("host{i}.example.test 60 A 10.0.{}.{}\n", i >> 8, i & 0xff)).collect();
    let snapshot = service_of(vec![zone(&(ZONE.to_owned() + &rows))], Vec::new()).snapshot;
    let key = tsig::key(Algorithm::HmacSha384);
    let settings = Dns {
        keys: vec![key.clone()],
        secondaries: BTreeMap::from([(
            name("example.test"),
            Secondaries {
                transfer: vec![Allowed { from: None, key: Some(name("xfr.example.test")) }],
                ..Secondaries::default()
            },
        )]),
        ..Dns::default()
    };
    let service = Arc::new(Service::new(snapshot, Arc::new(settings)));
    let mut query = plain("example.test", AXFR);
    let mut signer = crate::dns::tsig::Signer::query(key.clone());
    signer.sign(&mut query, Duration::ZERO);
    let mut prior = signer.mac().to_vec();
    let sent = messages(begin(&service, &query, &tcp()).unwrap());
    assert!(sent.len() > 5);
    let record = wire("xfr.example.test").len() + 10 + wire("hmac-sha384").len() + 16 + 48;
    for (i, message) in sent.iter().enumerate() {
        let (signed, tsig) = message.split_at(message.len() - record);
        let mac = &tsig[tsig.len() - 54..tsig.len() - 6];
        let mut hmac = key.hmac();
        hmac.update(&[0, 48]);
        hmac.update(&prior);
        hmac.update(&signed[..11]);
        hmac.update(&[signed[11] - 1]);
        hmac.update(&signed[12..]);
        if i == 0 {
            hmac.update(&wire("xfr.example.test"));
            hmac.update(&[0, 255, 0, 0, 0, 0]);
            hmac.update(&wire("hmac-sha384"));
        }
        hmac.update(&[0, 0, 0, 0, 0, 0, 1, 44]);
        if i == 0 {
            hmac.update(&[0, 0, 0, 0]);
        }
        assert_eq!(hmac.sign().as_ref(), mac, "message {i}");
        prior = mac.to_vec();
    }
}
