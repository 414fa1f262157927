use proptest::prelude::*;

use super::*;

const HEAD: &str =
    "$TTL 300\n@ 3600 IN SOA ns1 host.master 7 7200 1800 1209600 60\n@ NS ns1\nns1 A 192.0.2.1\n";

fn read(text: &str, files: &[(&str, &str)]) -> Result<Zone, Vec<String>> {
    let include = |path: &Path| {
        let found = files.iter().find(|(name, _)| Path::new(name) == path);
        let missing = || io::Error::new(io::ErrorKind::NotFound, "no such file");
        found.map(|(_, text)| text.as_bytes().to_vec()).ok_or_else(missing)
    };
    let apex: Name = "example.test".parse().unwrap();
    parse(&apex, Path::new("z/main.zone"), text.as_bytes(), &include)
        .map_err(|faults| faults.iter().map(Fault::to_string).collect())
}

/// The records below the head, as `owner ttl type hex`.
fn records(rest: &str) -> Vec<String> {
    records_with(rest, &[])
}

fn records_with(rest: &str, files: &[(&str, &str)]) -> Vec<String> {
    let zone = read(&format!("{HEAD}{rest}"), files).unwrap_or_else(|faults| panic!("{}", faults.join("\n")));
    let mut shown = Vec::new();
    for (owner, node) in &zone.nodes {
        for (number, set) in node {
            for rdata in &set.rdata {
                let hex: String = rdata.iter().map(|octet| format!("{octet:02x}")).collect();
                shown.push(format!("{owner} {} {number} {hex}", set.ttl));
            }
        }
    }
    shown.retain(|line| !line.starts_with("example.test. ") && !line.starts_with("ns1.example.test. "));
    shown
}

/// What the lines below the head are refused with; line numbers count from them.
fn refused(rest: &str) -> Vec<String> {
    match read(&format!("{HEAD}{rest}"), &[]) {
        Ok(_) => vec!["accepted".into()],
        Err(faults) => faults
            .iter()
            .map(|fault| {
                let mut parts = fault.trim_start_matches("z/main.zone:").splitn(2, ':');
                let (line, rest) = (parts.next().unwrap(), parts.next().unwrap());
                line.parse::<usize>().map_or(fault.clone(), |line| format!("{}:{rest}", line - 4))
            })
            .collect(),
    }
}

#[test]
fn soa_and_ttls() {
    let zone = read(HEAD, &[]).unwrap();
    assert_eq!(zone.soa.mname.to_string(), "ns1.example.test.");
    assert_eq!(zone.soa.rname.to_string(), "host.master.example.test.");
    assert_eq!((zone.soa.serial, zone.soa.expire, zone.ttl, zone.negative_ttl()), (7, 1_209_600, 3600, 60));
    assert_eq!(zone.nodes[&zone.name][&rtype::SOA].rdata, [zone.soa.to_wire()]);
    // Without $TTL the SOA has its MINIMUM, and others the TTL of the record before.
    let zone = read("@ SOA ns h 1 2 3 4 5\n  NS ns\nns A 192.0.2.1\n", &[]).unwrap();
    assert_eq!((zone.ttl, zone.nodes[&zone.name][&rtype::NS].ttl), (5, 5));
}

#[test]
fn owners_origins_and_continuation() {
    assert_eq!(
        records(
            "a A 192.0.2.1\n  AAAA 2001:db8::1 ; the same owner\n$ORIGIN sub\nb 60 IN A 192.0.2.2\n\
             c IN 1h30m A (\n  192.0.2.3 ) ; over lines\n@ TXT \"x y\" z\n\\@.x A 192.0.2.4\nE.example.TEST. A \
             192.0.2.5\n"
        ),
        [
            "a.example.test. 300 1 c0000201",
            "a.example.test. 300 28 20010db8000000000000000000000001",
            "e.example.test. 300 1 c0000205",
            "sub.example.test. 300 16 03782079017a",
            "b.sub.example.test. 60 1 c0000202",
            "c.sub.example.test. 5400 1 c0000203",
            "\\@.x.sub.example.test. 300 1 c0000204",
        ]
    );
}

#[test]
fn record_data() {
    for (text, number, hex) in [
        ("CNAME b", 5, "01620765786d61706c65"),
        ("MX 10 mail.test.", 15, "000a046d61696c047465737400"),
        ("SRV 1 2 53 h.", 33, "0001000200350168 00"),
        ("TXT a\\\"b \"c;d\" \\255", 16, "03612262 03633b64 01ff"),
        ("CAA 0 issue \"ca.test; x=1\"", 257, "00 05 6973737565 63612e746573743b20783d31"),
        ("DS 1 8 2 ab cd", 43, "0001 08 02 abcd"),
        ("TLSA 3 1 1 (ab\n cd)", 52, "03 01 01 abcd"),
        (
            "NAPTR 1 2 u sip+E2U \"!^.*$!sip:x!\" .",
            35,
            "0001 0002 0175 077369702b453255 0c215e2e2a24217369703a7821 00",
        ),
        ("DNSKEY 257 3 8 AQI=", 48, "0101 03 08 0102"),
        ("SSHFP 4 2 00ff", 44, "04 02 00ff"),
        ("HINFO cpu os", 13, "03637075 026f73"),
        ("URI 1 2 \"ftp://x\"", 256, "0001 0002 6674703a2f2f78"),
        ("HTTPS 0 svc.test.", 65, "0000 03737663047465737400"),
        (
            "HTTPS 1 . port=8443 alpn=\"h2,h3\" ipv4hint=192.0.2.1,192.0.2.2 no-default-alpn",
            65,
            "0001 00 0001 0006 026832026833 0002 0000 0003 0002 20fb 0004 0008 c0000201c0000202",
        ),
        (
            "SVCB 1 . mandatory=port,alpn alpn=a\\\\,b port=1",
            64,
            "0001 00 0000 0004 00010003 0001 0004 03612c62 0003 0002 0001",
        ),
        ("SVCB 1 . key667=hello key65000", 64, "0001 00 029b 0005 68656c6c6f fde8 0000"),
        ("TYPE65280 \\# 3 ab cdef", 65280, "abcdef"),
        ("TYPE1 \\# 4 c0000201", 1, "c0000201"),
        ("CLASS1 LOC \\# 0", 29, ""),
    ] {
        let hex = hex.replace(' ', "");
        let found = records(&format!("x IN {text}\n").replace("IN CLASS1", "CLASS1"));
        let expected = if number == 5 {
            "x.example.test. 300 5 0162076578616d706c65047465737400".to_owned()
        } else {
            format!("x.example.test. 300 {number} {hex}")
        };
        assert_eq!(found, [expected], "{text}");
    }
}

#[test]
fn includes_keep_the_origin() {
    let files = [
        ("z/sub/more.zone", "w A 192.0.2.1\n$ORIGIN deep\nv A 192.0.2.2\n$INCLUDE last.zone\n"),
        ("z/sub/last.zone", "u A 192.0.2.3\n"),
    ];
    assert_eq!(
        records_with("$INCLUDE sub/more.zone s\nt A 192.0.2.4\n", &files),
        [
            "u.deep.s.example.test. 300 1 c0000203",
            "v.deep.s.example.test. 300 1 c0000202",
            "w.s.example.test. 300 1 c0000201",
            "t.example.test. 300 1 c0000204",
        ]
    );
    let found = read(&format!("{HEAD}$INCLUDE main.zone\n"), &[("z/main.zone", "$INCLUDE main.zone\n")]);
    assert_eq!(found.unwrap_err(), ["z/main.zone:1:1: files include each other more than 8 deep"]);
    let found = read(&format!("{HEAD}$INCLUDE sub/bad.zone\n"), &[("z/sub/bad.zone", "\nw A x\n")]);
    assert_eq!(found.unwrap_err(), ["z/sub/bad.zone:2:5: \"x\" is not an IPv4 address"]);
}

#[test]
fn files_that_include_each_other_many_times_come_to_an_end() {
    let names = ["z/1", "z/2", "z/3", "z/4", "z/5", "z/6", "z/7"];
    let texts: Vec<String> = (2..=8).map(|next| format!("$INCLUDE {next}\n").repeat(10)).collect();
    let mut files: Vec<(&str, &str)> = names.into_iter().zip(texts.iter().map(String::as_str)).collect();
    files.push(("z/8", ""));
    let found = read(&format!("{HEAD}$INCLUDE 1\n"), &files).unwrap_err();
    assert!(found[0].ends_with(": more than 1000 files are included"), "{found:?}");
}

#[test]
fn mistakes() {
    assert_eq!(
        refused(
            "a A\na A 192.0.2\na B 1\na CH A 192.0.2.1\n$GENERATE 1-2 a A 1\na.b..c A 192.0.2.1\nx.other. A \
             192.0.2.1\na SOA a b 1 2 3 4 5\nb CNAME c\nb A 192.0.2.1\nc A 192.0.2.1\nc CNAME d\n\
             d CNAME e\nd CNAME f\ne 60 A 192.0.2.1\ne 61 A 192.0.2.2\nf TXT \"open\nf ) A 192.0.2.1\nf MX 1\n\
             f MX 65536 g\nf MX 1 g h\nf TXT \\300\nf RRSIG A\nf ANY x\nf 1x A 192.0.2.1\nf TYPE1 \\# 3 c00002\n\
             f TYPE9 \\# 3 c0\nf HTTPS 0 . port=1\nf HTTPS 1 . port=1 port=2\nf HTTPS 1 . mandatory=alpn\n\
             $TTL x\n$ORIGIN\n$INCLUDE none\nf LOC 1 2 3\ng\nf DS 1 1 1 abc\n"
        ),
        [
            "1:3: 0 values; allowed is one IPv4 address",
            "2:5: \"192.0.2\" is not an IPv4 address",
            "3:3: \"B\" is not a record type; types without a mnemonic here are TYPE123",
            "4:3: class CH; allowed is IN",
            "5:1: unknown directive $GENERATE; allowed are $ORIGIN, $TTL, $INCLUDE",
            "6:1: \"a.b..c\" is not a domain name: an empty label",
            "7:1: x.other. is outside the zone example.test.",
            "8:3: a SOA record stands only at the apex, example.test.",
            "10:3: b.example.test.: a CNAME cannot stand beside other records (RFC 1034 §3.6.2)",
            "12:3: c.example.test.: a CNAME cannot stand beside other records (RFC 1034 §3.6.2)",
            "14:3: d.example.test. has such a record already; only one is allowed",
            "16:6: ttl 61, where the record before it has 60; allowed is one for all of e.example.test. of a type",
            "17:7: a quote that is not closed on its line",
            "18:3: a closing parenthesis without an opening one",
            "19:3: 1 values; a MX record has at least 2",
            "20:6: \"65536\" is not a number; allowed is 0 to 65535",
            "21:10: 3 values; a MX record has 2",
            "22:7: \"\\\\300\" has a bad escape; allowed are \\X and \\DDD up to \\255",
            "23:3: RRSIG: signed zones are not served; answers would not match their signatures",
            "24:3: \"ANY\" is not a record type; types without a mnemonic here are TYPE123",
            "25:3: \"1X\" is not a TTL; allowed is 0 to 2147483647 seconds, e.g. 3600 or 1h30m",
            "26:9: these octets are not the data of a A record",
            "27:12: 1 octets follow; the length says 3",
            "28:13: priority 0 is an alias, which has no parameters (RFC 9460 §2.4.2)",
            "29:20: the parameter port stands twice",
            "30:13: mandatory names a parameter that is not there (RFC 9460 §8)",
            "31:6: \"x\" is not a TTL; allowed is 0 to 2147483647 seconds, e.g. 3600 or 1h30m",
            "32:1: $ORIGIN with 0 values; allowed are $ORIGIN name, $TTL seconds, $INCLUDE file [origin]",
            "33:10: cannot read z/none: no such file",
            "34:7: LOC data is written as: LOC \\# length hex (RFC 3597)",
            "35:1: the record ends before its type",
            "36:12: hexadecimal digits in pairs are wanted",
        ]
    );
}

#[test]
fn an_apex_has_soa_and_ns() {
    let found = |text: &str| read(text, &[]).unwrap_err();
    assert_eq!(
        found("$TTL 5\na A 192.0.2.1\n"),
        ["z/main.zone: no SOA record at example.test.", "z/main.zone: no NS record at example.test."]
    );
    assert_eq!(found("  A 192.0.2.1\n"), ["z/main.zone:1:3: the first record has no owner name"]);
    assert_eq!(
        refused("@ SOA a b 1 2 3 4 5\nd DNAME e\nx.d A 192.0.2.1\n( A 192.0.2.1\n"),
        [
            "1:3: example.test. has such a record already; only one is allowed",
            "4:1: a parenthesis that is never closed",
            "3:5: x.d.example.test. is below the DNAME at d.example.test., which hides it",
        ]
    );
}

#[test]
fn mistakes_are_cut_short() {
    assert_eq!(refused(&"a A x\n".repeat(200)).len(), MAX_FAULTS);
}

proptest! {
    #[test]
    fn no_octets_panic(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
        let apex: Name = "example.test".parse().unwrap();
        let _ = parse(&apex, Path::new("z"), &octets, &|_| Ok(Vec::new()));
    }

    #[test]
    fn no_near_miss_panics(
        words in proptest::collection::vec(
            prop_oneof![
                Just("@"), Just("IN"), Just("300"), Just("\n"), Just("\n "), Just("("), Just(")"), Just("\""),
                Just("A"), Just("SOA"), Just("HTTPS"), Just("NAPTR"), Just("\\#"), Just("4"), Just("c0000201"),
                Just("x"), Just("$TTL"), Just("$ORIGIN"), Just("port="), Just("alpn=h2,,"), Just("\\"), Just(";"),
                Just("mandatory=port"), Just("TYPE1"), Just("MX"), Just("TXT"), Just("CAA"), Just("."),
            ],
            0..40,
        ),
    ) {
        let text = words.join(" ");
        if let Err(faults) = read(&format!("{HEAD}{text}"), &[]) {
            prop_assert!(!faults.is_empty());
        }
    }
}

/// Names of the same letters are the same name; what they are made of is kept as it was written, wherever a
/// resolver may see it.
#[test]
fn names_in_record_data_keep_their_case() {
    let shown = records(
        "a CNAME Www\nb MX 10 MAIL.Example.ORG.\n$ORIGIN Sub.example.test.\nc NS nS\nd HTTPS 1 Svc alpn=h2\n",
    );
    let wire = |text: &str| -> String {
        Name::written(text).unwrap().iter().map(|octet| format!("{octet:02x}")).collect()
    };
    assert_eq!(
        shown,
        [
            format!("a.example.test. 300 5 {}", wire("Www.example.test")),
            format!("b.example.test. 300 15 000a{}", wire("MAIL.Example.ORG")),
            format!("c.sub.example.test. 300 2 {}", wire("nS.Sub.example.test")),
            format!("d.sub.example.test. 300 65 0001{}000100030268{}", wire("Svc.Sub.example.test"), "32"),
        ]
    );
}

#[test]
fn records_that_differ_in_the_case_of_names_only_are_one() {
    let shown = records(
        "a NS One\na NS oNE\na NS two\nb MX 10 m\nb MX 10 M\nb MX 20 M\nt TXT \"a\"\nt TXT \"A\"\nn NAPTR 1 1 S \
         x \"\" r\nn NAPTR 1 1 s x \"\" r\nn NAPTR 1 1 S x \"\" R\nh HTTPS 1 q\nh HTTPS 1 Q\n",
    );
    let count = |owner: &str| shown.iter().filter(|line| line.starts_with(owner)).count();
    assert_eq!(["a.", "b.", "t.", "n.", "h."].map(count), [2, 2, 2, 2, 1], "{shown:#?}");
    // The second name of an alias is a mistake, the same once more is not.
    assert_eq!(records("a CNAME b\na CNAME B\n").len(), 1);
}
