//! drill and kdig: other people's clients print what is expected. (dig is asked in `agent.rs`.)

use router_tests::netns::Pair;

use super::Laboratory;

/// Arguments, then what the output has, and (after `!`) has not.
type Ask = (&'static str, &'static [&'static str]);

const KDIG: &[Ask] = &[
    ("www.example.test A", &["status: NOERROR", "Flags: qr aa rd;", "192.0.2.80", "192.0.2.81", "!WARNING"]),
    ("www.example.test AAAA", &["status: NOERROR", "2001:db8::80", "!WARNING"]),
    ("www.example.test A +subnet=198.51.100.0/24", &["CLIENT-SUBNET: 198.51.100.0/24/0", "192.0.2.80"]),
    ("www.example.test AAAA +subnet=2001:db8::/56", &["CLIENT-SUBNET: 2001:db8::/56/0", "2001:db8::80"]),
    ("example.test TXT", &["\"apex text\""]),
    ("big.example.test TXT", &["status: NOERROR", "truncated reply", "retrying over TCP", "0123456789"]),
    ("big.example.test TXT +ignore +bufsize=512", &["Flags: qr aa tc rd;", "!0123456789"]),
    ("big.example.test TXT +bufsize=1232", &["Flags: qr aa rd;", "0123456789", "!truncated"]),
    ("huge.example.test AAAA +tcp", &["ANSWER: 90;", "2001:db8:1::5a"]),
    ("nosuch.example.test A", &["status: NXDOMAIN", "SOA"]),
    ("deleg.example.test NS +norec", &["Flags: qr;", "ANSWER: 0; AUTHORITY: 2; ADDITIONAL: 1", "192.0.2.53"]),
    (
        "example.test DNSKEY +dnssec",
        &["status: NOERROR", "Flags: qr aa rd;", "ANSWER: 0; AUTHORITY: 1", "flags: do"],
    ),
    ("alias2.example.test A", &["ANSWER: 4;", "CNAME", "192.0.2.80"]),
    ("x.dn.example.test A", &["status: NXDOMAIN", "DNAME", "CNAME", "SOA"]),
    ("example.org SOA", &["status: REFUSED", "!SOA\t"]),
    ("version.bind TXT CH", &["status: REFUSED"]),
    ("www.example.test A +edns=1", &["BADVERS"]),
    ("example.test AXFR", &["REFUSED"]),
];

const DRILL: &[Ask] = &[
    ("www.example.test A", &["rcode: NOERROR", "flags: qr aa rd ;", "192.0.2.80", "192.0.2.81"]),
    ("www.example.test AAAA", &["rcode: NOERROR", "2001:db8::80"]),
    ("example.test TXT", &["\"apex text\""]),
    ("example.test MX", &["MX\t10 mail.example.test."]),
    ("-t huge.example.test AAAA", &["ANSWER: 90,", "2001:db8:1::5a"]),
    ("-a big.example.test TXT", &["rcode: NOERROR", "0123456789"]),
    ("-b 512 big.example.test TXT", &["rcode: NOERROR"]),
    ("nosuch.example.test A", &["rcode: NXDOMAIN", "SOA"]),
    ("-o rd deleg.example.test NS", &["flags: qr ;", "AUTHORITY: 2, ADDITIONAL: 1", "192.0.2.53"]),
    ("-D example.test DNSKEY", &["rcode: NOERROR", "ANSWER: 0, AUTHORITY: 1", "flags: do"]),
    ("alias2.example.test A", &["ANSWER: 4,", "CNAME"]),
    ("x.wild.example.test A", &["x.wild.example.test.\t300\tIN\tA\t192.0.2.77"]),
    ("example.org SOA", &["rcode: REFUSED"]),
];

fn check(tool: &str, asks: &[Ask]) {
    let Some(laboratory) = Laboratory::new() else { return };
    let agent = laboratory.example();
    for server in Pair::SERVER_ADDRESSES {
        for (arguments, words) in asks {
            // Some tell of REFUSED or BADVERS by their exit status.
            let printed = laboratory.pair.client.sh(&format!("{tool} @{server} {arguments} 2>&1 || true"));
            for word in *words {
                let (word, expected) = word.strip_prefix('!').map_or((*word, true), |word| (word, false));
                assert_eq!(
                    printed.contains(word),
                    expected,
                    "{tool} @{server} {arguments}: {word:?}\n{printed}"
                );
            }
        }
    }
    agent.terminate();
}

#[test]
fn netns_kdig_prints_what_is_expected() {
    check("kdig", KDIG);
}

#[test]
fn netns_drill_prints_what_is_expected() {
    check("drill", DRILL);
}
