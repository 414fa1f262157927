//! Record data from zone files, read back by an implementation that is not ours.

use std::collections::BTreeMap;
use std::path::Path;

use hickory_proto::rr::{RData, RecordType};
use hickory_proto::serialize::binary::{BinDecoder, Restrict};
use router_userspace::config::{self, Config};

fn load(zone: &str) -> Config {
    let files = BTreeMap::from([("z.zone".to_owned(), zone.as_bytes().to_vec())]);
    let text = "[[zone]]\nname = \"example.test\"\nfile = \"z.zone\"\n";
    config::parse(text, "c.toml", &files).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Every record of the zone as `owner type data`, decoded by hickory-proto.
fn decoded(config: &Config) -> Vec<String> {
    let mut shown = Vec::new();
    for (owner, node) in &config.model.zones()[0].nodes {
        for (number, set) in node {
            for rdata in &set.rdata {
                let mut decoder = BinDecoder::new(rdata);
                let kind = RecordType::from(*number);
                let data = RData::read(&mut decoder, kind, Restrict::new(rdata.len() as u16))
                    .unwrap_or_else(|error| panic!("{owner} {kind}: {error}"));
                assert!(decoder.is_empty(), "{owner} {kind}: octets are left over");
                shown.push(format!("{owner} {kind} {data}"));
            }
        }
    }
    shown
}

#[test]
fn every_type_decodes_to_what_was_written() {
    let shown = decoded(&load(
        "$TTL 300\n@ SOA ns1 hostmaster 2026010101 7200 1800 1209600 60\n@ NS ns1\nns1 A 192.0.2.1\nns1 AAAA \
         2001:db8::1\na CNAME www.example.org.\nm MX 10 mail\ns SRV 1 2 5060 sip\nt TXT \"one two\" three\n\
         c CAA 128 issue \"ca.example.net\"\nl TLSA 3 1 1 00ff\nh HTTPS 1 . alpn=h2,h3 port=8443 \
         ipv4hint=192.0.2.1\np PTR www\nn NAPTR 100 10 S SIP+D2U \"\" _sip._udp\nf SSHFP 4 2 00ff\n",
    ));
    let expected = [
        "example.test. NS ns1.example.test.",
        "example.test. SOA ns1.example.test. hostmaster.example.test. 2026010101 7200 1800 1209600 60",
        "a.example.test. CNAME www.example.org.",
        "c.example.test. CAA 128 issue \"ca.example.net\"",
        "f.example.test. SSHFP 4 2 00ff",
        // hickory-proto ends lists of values with a comma.
        "h.example.test. HTTPS 1 . alpn=h2,h3, port=8443 ipv4hint=192.0.2.1,",
        "l.example.test. TLSA 3 1 1 00ff",
        "m.example.test. MX 10 mail.example.test.",
        "n.example.test. NAPTR 100 10 \"S\" \"SIP+D2U\" \"\" _sip._udp.example.test.",
        "ns1.example.test. A 192.0.2.1",
        "ns1.example.test. AAAA 2001:db8::1",
        "p.example.test. PTR www.example.test.",
        "s.example.test. SRV 1 2 5060 sip.example.test.",
        "t.example.test. TXT one twothree",
    ];
    for (found, expected) in shown.iter().zip(expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(shown.len(), expected.len());
}

#[test]
fn the_zone_of_the_wire_tests_loads() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("zones/example.test.zone");
    let config = load(&std::fs::read_to_string(path).unwrap());
    let zone = &config.model.zones()[0];
    assert_eq!((zone.ttl, zone.soa.minimum), (3600, 60));
    let count = |owner: &str, number: u16| {
        let owner = format!("{owner}.example.test").parse().unwrap();
        zone.nodes[&owner][&number].rdata.len()
    };
    assert_eq!((count("many", 1), count("huge", 28), count("*.wild", 16)), (40, 90, 1));
    assert_eq!(count("big", 16), 1);
    assert!(decoded(&config).len() > 160);
}
