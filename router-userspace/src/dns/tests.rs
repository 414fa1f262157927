//! Queries are built here octet by octet; replies are decoded by hickory-proto, so that the check does not
//! share code with what it checks.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Message, ResponseCode};
use hickory_proto::rr::{RData, Record};
use router_common::counter::Counter;
use router_common::model::{Model, Node, Parts, Profile, RrSet, Soa, Zone};
use router_common::name::Name;

use super::{Client, Counts, Service, Transport, respond};
use crate::settings::Dns;

mod chaos;
mod cookies;
mod edns;
mod header;
mod limits;
mod options;
mod profiles;
mod ready;
mod secondaries;
mod semantics;
mod sockets;
mod subnet;
mod transfer;
mod tsig;
mod wire;

const A: u16 = 1;
const NS: u16 = 2;
const CNAME: u16 = 5;
const SOA: u16 = 6;
const MX: u16 = 15;
const TXT: u16 = 16;
const AAAA: u16 = 28;
const DNAME: u16 = 39;
const DS: u16 = 43;
const ANY: u16 = 255;

const WWW: &str = "www.example.test";

/// What most tests ask about: every kind of name.
const ZONE: &str = "
example.test 3600 SOA
example.test 3600 NS ns1.example.test
example.test 300 MX 10 mail.example.test
ns1.example.test 3600 A 192.0.2.1
mail.example.test 300 A 192.0.2.25
www.example.test 300 A 192.0.2.80
www.example.test 300 A 192.0.2.81
www.example.test 300 AAAA 2001:db8::80
v4only.example.test 300 A 192.0.2.44
ttl0.example.test 0 A 192.0.2.100
alias.example.test 300 CNAME www.example.test
alias2.example.test 200 CNAME alias.example.test
outalias.example.test 300 CNAME www.example.org
crossalias.example.test 300 CNAME www.other.test
dangling.example.test 300 CNAME nosuch.example.test
loop1.example.test 300 CNAME loop2.example.test
loop2.example.test 300 CNAME loop3.example.test
loop3.example.test 300 CNAME loop1.example.test
self.example.test 300 CNAME self.example.test
todeleg.example.test 300 CNAME host.deleg.example.test
a.b.ent.example.test 300 A 192.0.2.99
*.wild.example.test 300 A 192.0.2.77
*.wild.example.test 300 TXT wild
host.wild.example.test 300 TXT explicit
sub.ent2.wild.example.test 300 A 192.0.2.78
*.wcname.example.test 300 CNAME www.example.test
deleg.example.test 300 NS ns.deleg.example.test
deleg.example.test 300 NS ns1.example.test
deleg.example.test 300 NS ns.elsewhere.invalid
ns.deleg.example.test 300 A 192.0.2.53
ns.deleg.example.test 300 AAAA 2001:db8::53
signed.example.test 300 NS ns.elsewhere.invalid
signed.example.test 300 DS 00010d02aa
dn.example.test 300 DNAME www.example.test
deep.example.test 300 DNAME wild.example.test
loopdn.example.test 300 DNAME a.loopdn.example.test
child.example.test 300 NS ns.elsewhere.invalid
child.example.test 300 DS 00020d02bb
";

/// A second zone, and a third one below the first.
const OTHER: &str = "
other.test 60 SOA
other.test 60 NS ns1.example.test
www.other.test 300 A 203.0.113.1
";
const CHILD: &str = "
child.example.test 60 SOA
child.example.test 60 NS ns.elsewhere.invalid
www.child.example.test 300 A 203.0.113.2
";

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// A zone from lines of owner, TTL, type, data; all names absolute. The first line is the apex's SOA.
fn zone(text: &str) -> Zone {
    let mut nodes: BTreeMap<Name, Node> = BTreeMap::new();
    let mut apex: Option<(Name, u32, Soa)> = None;
    for line in text.lines().filter(|line| !line.is_empty()) {
        let mut words = line.split(' ');
        let owner = name(words.next().unwrap());
        let ttl: u32 = words.next().unwrap().parse().unwrap();
        let kind = words.next().unwrap();
        let data = words.next().unwrap_or_default();
        let (rtype, rdata) = match kind {
            "SOA" => {
                let soa = Soa {
                    mname: name("ns1.example.test"),
                    rname: name("hostmaster.example.test"),
                    serial: 7,
                    refresh: 7200,
                    retry: 1800,
                    expire: 1_209_600,
                    minimum: 300,
                };
                apex = Some((owner.clone(), ttl, soa.clone()));
                (SOA, soa.to_wire())
            }
            "A" => (A, data.parse::<Ipv4Addr>().unwrap().octets().to_vec()),
            "AAAA" => (AAAA, data.parse::<Ipv6Addr>().unwrap().octets().to_vec()),
            "NS" => (NS, name(data).as_wire().to_vec()),
            "CNAME" => (CNAME, name(data).as_wire().to_vec()),
            "DNAME" => (DNAME, name(data).as_wire().to_vec()),
            "MX" => {
                let preference: u16 = data.parse().unwrap();
                let host = name(words.next().unwrap());
                (MX, [&preference.to_be_bytes()[..], host.as_wire()].concat())
            }
            "TXT" => (TXT, [&[data.len() as u8], data.as_bytes()].concat()),
            "DS" => (DS, unhex(data)),
            other => panic!("{other}: not a type that these tests use"),
        };
        let set = nodes.entry(owner).or_default().entry(rtype).or_insert(RrSet { ttl, rdata: Vec::new() });
        assert_eq!(set.ttl, ttl);
        set.rdata.push(rdata);
    }
    let (name, ttl, soa) = apex.unwrap();
    Zone { name, soa, ttl, nodes }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        write!(text, "{octet:02x}").unwrap();
        text
    })
}

fn service_of(zones: Vec<Zone>, profiles: Vec<Profile>) -> Service {
    let model = Model::new(Parts { zones, profiles, ..Parts::default() }).unwrap();
    Service::new(profiles::snapshot(model), Arc::default())
}

/// The same service with other settings.
fn configured(service: Service, settings: Dns) -> Service {
    Service::new(service.snapshot, Arc::new(settings))
}

/// The zones above, and no profile.
fn service() -> Service {
    service_of([ZONE, OTHER, CHILD].map(zone).into(), Vec::new())
}

/// A name in wire form, letters as given.
fn wire(text: &str) -> Vec<u8> {
    let mut octets = Vec::new();
    for label in text.split('.').filter(|label| !label.is_empty()) {
        octets.push(label.len() as u8);
        octets.extend_from_slice(label.as_bytes());
    }
    octets.push(0);
    octets
}

fn header(flags: u16, counts: [u16; 4]) -> Vec<u8> {
    [0x1234, flags, counts[0], counts[1], counts[2], counts[3]]
        .into_iter()
        .flat_map(u16::to_be_bytes)
        .collect()
}

fn question(text: &str, qtype: u16, qclass: u16) -> Vec<u8> {
    [wire(text), qtype.to_be_bytes().into(), qclass.to_be_bytes().into()].concat()
}

fn record(owner: &[u8], rtype: u16, class: u16, ttl: u32, rdata: &[u8]) -> Vec<u8> {
    let len = rdata.len() as u16;
    [owner, &rtype.to_be_bytes(), &class.to_be_bytes(), &ttl.to_be_bytes(), &len.to_be_bytes(), rdata]
        .concat()
}

/// An OPT record; `ttl` is extended RCODE, version and flags.
fn opt(size: u16, ttl: u32, options: &[u8]) -> Vec<u8> {
    record(&[0], 41, size, ttl, options)
}

fn option(code: u16, payload: &[u8]) -> Vec<u8> {
    [&code.to_be_bytes()[..], &(payload.len() as u16).to_be_bytes(), payload].concat()
}

fn ecs(family: u16, source: u8, scope: u8, address: &[u8]) -> Vec<u8> {
    option(8, &[&family.to_be_bytes()[..], &[source, scope], address].concat())
}

/// A plain query.
fn plain(text: &str, qtype: u16) -> Vec<u8> {
    [header(0, [1, 0, 0, 0]), question(text, qtype, 1)].concat()
}

/// A query with an OPT record.
fn with_opt(text: &str, qtype: u16, size: u16, options: &[u8]) -> Vec<u8> {
    [header(0, [1, 0, 0, 1]), question(text, qtype, 1), opt(size, 0, options)].concat()
}

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));

/// A client at the start of the epoch.
fn from(source: IpAddr, transport: Transport) -> Client {
    Client { source, transport, now: Duration::ZERO }
}

/// Sends a query over "UDP", checks what holds for every reply and that the right counters moved, and gives
/// the reply.
fn ask(service: &Service, query: &[u8]) -> Option<Vec<u8>> {
    ask_over(service, query, Transport::Udp)
}

fn ask_over(service: &Service, query: &[u8], transport: Transport) -> Option<Vec<u8>> {
    let counts = Counts::default();
    let reply = respond(service, query, &from(CLIENT, transport), &mut || 0, &counts);
    // A refused transfer is counted as such besides.
    let outcomes = Counter::ALL.iter().filter(|&&counter| counter != Counter::ServerTransferRefused);
    let moved: u64 = outcomes.map(|&counter| counts.get(counter)).sum();
    let truncated = reply.as_ref().is_some_and(|reply| reply[2] & 2 != 0);
    assert_eq!(counts.get(Counter::ServerTruncated), u64::from(truncated));
    assert_eq!(counts.get(Counter::ServerDropped), u64::from(reply.is_none()));
    assert_eq!(moved, 1 + u64::from(truncated), "one counter a reply");
    if let Some(reply) = &reply {
        wire::check_reply(service, query, reply, transport);
    }
    reply
}

/// The reply as text: a line of RCODE, flags and counts, then records and OPT, one a line.
fn show(reply: &[u8]) -> String {
    let message = Message::from_vec(reply).unwrap_or_else(|error| panic!("{}: {error}", hex(reply)));
    let mut text = match message.metadata.response_code {
        ResponseCode::NoError => "NOERROR".to_owned(),
        ResponseCode::FormErr => "FORMERR".to_owned(),
        ResponseCode::NXDomain => "NXDOMAIN".to_owned(),
        ResponseCode::NotImp => "NOTIMP".to_owned(),
        ResponseCode::Refused => "REFUSED".to_owned(),
        ResponseCode::YXDomain => "YXDOMAIN".to_owned(),
        ResponseCode::NotAuth => "NOTAUTH".to_owned(),
        // 16 is BADVERS where there is no TSIG.
        ResponseCode::BADVERS | ResponseCode::BADSIG => "BADVERS".to_owned(),
        ResponseCode::BADCOOKIE => "BADCOOKIE".to_owned(),
        other => format!("{other:?}"),
    };
    let flags = u16::from_be_bytes([reply[2], reply[3]]);
    for (bit, word) in
        [(0x400, "aa"), (0x200, "tc"), (0x100, "rd"), (0x80, "ra"), (0x40, "z"), (0x20, "ad"), (0x10, "cd")]
    {
        if flags & bit != 0 {
            write!(text, " {word}").unwrap();
        }
    }
    if flags >> 11 & 0xf != 0 {
        write!(text, " op{}", flags >> 11 & 0xf).unwrap();
    }
    writeln!(text, " qd{}", message.queries.len()).unwrap();
    for (section, records) in
        [("an", &message.answers), ("ns", &message.authorities), ("ar", &message.additionals)]
    {
        for record in records {
            writeln!(text, "{section} {}", show_record(record)).unwrap();
        }
    }
    if let Some(edns) = &message.edns {
        let dnssec_ok = if edns.flags().dnssec_ok { " do" } else { "" };
        let z = if edns.flags().z != 0 { " z" } else { "" };
        write!(text, "opt v{} {}{dnssec_ok}{z}", edns.version(), edns.max_payload()).unwrap();
        let at = wire::scan(reply).unwrap().opt.unwrap();
        writeln!(text, " [{}]", hex(at.options)).unwrap();
    }
    text
}

fn show_record(record: &Record) -> String {
    let data = match &record.data {
        RData::SOA(soa) => format!("SOA {} {}", soa.mname, soa.minimum),
        RData::Unknown { code, rdata } => format!("TYPE{} {}", u16::from(*code), hex(&rdata.anything)),
        data => format!("{} {data}", record.record_type()),
    };
    format!("{} {} {data}", record.name, record.ttl)
}

/// Asks and compares with the expected lines.
#[track_caller]
fn check(service: &Service, query: &[u8], expected: &str) {
    let reply = ask(service, query).unwrap_or_else(|| panic!("no reply to {}", hex(query)));
    let expected = expected.lines().map(str::trim).filter(|line| !line.is_empty());
    let expected: String = expected.fold(String::new(), |text, line| text + line + "\n");
    assert_eq!(show(&reply), expected, "query {}", hex(query));
}

/// Asks and compares the first line only.
#[track_caller]
fn check_head(service: &Service, why: &str, query: &[u8], expected: &str) {
    let reply = ask(service, query).unwrap_or_else(|| panic!("{why}: no reply to {}", hex(query)));
    let shown = show(&reply);
    assert_eq!(shown.lines().next(), Some(expected), "{why}: query {}\n{shown}", hex(query));
}
