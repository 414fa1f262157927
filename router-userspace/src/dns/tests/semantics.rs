//! DNS.md §1.4: what static data answers.

use super::*;

/// The SOA of a negative answer of the first zone: min(3600, 300).
const SOA_LINE: &str = "ns example.test. 300 SOA ns1.example.test. 300";

#[track_caller]
fn expect(text: &str, qtype: u16, expected: &str) {
    check(&service(), &plain(&format!("{text}.example.test"), qtype), &expected.replace("$SOA", SOA_LINE));
}

#[test]
fn exact_names() {
    expect(
        "www",
        A,
        "NOERROR aa qd1\nan www.example.test. 300 A 192.0.2.80\nan www.example.test. 300 A 192.0.2.81",
    );
    expect("www", AAAA, "NOERROR aa qd1\nan www.example.test. 300 AAAA 2001:db8::80");
    expect("ttl0", A, "NOERROR aa qd1\nan ttl0.example.test. 0 A 192.0.2.100");
    let service = service();
    check(
        &service,
        &plain("example.test", SOA),
        "NOERROR aa qd1\nan example.test. 3600 SOA ns1.example.test. 300",
    );
    check(&service, &plain("example.test", NS), "NOERROR aa qd1\nan example.test. 3600 NS ns1.example.test.");
    check(
        &service,
        &plain("example.test", MX),
        "NOERROR aa qd1\nan example.test. 300 MX 10 mail.example.test.",
    );
}

#[test]
fn names_outside_are_refused_by_label() {
    let service = service();
    for text in ["www.example.org", "xexample.test", "com", "test", "."] {
        check(&service, &plain(text, A), "REFUSED qd1");
    }
}

#[test]
fn negative_answers_carry_the_soa_with_the_negative_ttl() {
    expect("v4only", AAAA, "NOERROR aa qd1\n$SOA");
    expect("www", TXT, "NOERROR aa qd1\n$SOA");
    expect("nosuch", A, "NXDOMAIN aa qd1\n$SOA");
    expect("a.www", A, "NXDOMAIN aa qd1\n$SOA");
    expect("nosuch", ANY, "NXDOMAIN aa qd1\n$SOA");
    // The other way round: SOA TTL 60, MINIMUM 300.
    check(
        &service(),
        &plain("nosuch.other.test", A),
        "NXDOMAIN aa qd1\nns other.test. 60 SOA ns1.example.test. 300",
    );
}

#[test]
fn empty_non_terminals_exist() {
    expect("b.ent", A, "NOERROR aa qd1\n$SOA");
    expect("ent", AAAA, "NOERROR aa qd1\n$SOA");
    expect("ent", ANY, "NOERROR aa qd1\n$SOA");
    expect("x.ent", A, "NXDOMAIN aa qd1\n$SOA");
}

#[test]
fn wildcards_cover_what_the_closest_encloser_lacks() {
    expect("x.wild", A, "NOERROR aa qd1\nan x.wild.example.test. 300 A 192.0.2.77");
    expect("x.y.wild", A, "NOERROR aa qd1\nan x.y.wild.example.test. 300 A 192.0.2.77");
    expect("x.wild", AAAA, "NOERROR aa qd1\n$SOA");
    expect("host.wild", A, "NOERROR aa qd1\n$SOA");
    expect("ent2.wild", A, "NOERROR aa qd1\n$SOA");
    expect("x.ent2.wild", A, "NXDOMAIN aa qd1\n$SOA");
    expect("*.wild", A, "NOERROR aa qd1\nan *.wild.example.test. 300 A 192.0.2.77");
    expect("a.*.wild", A, "NXDOMAIN aa qd1\n$SOA");
    expect("wild", A, "NOERROR aa qd1\n$SOA");
    expect("X.wIlD", A, "NOERROR aa qd1\nan X.wIlD.example.test. 300 A 192.0.2.77");
    expect("x.wild", ANY, "NOERROR aa qd1\nan x.wild.example.test. 300 A 192.0.2.77");
}

#[test]
fn aliases_are_followed_inside_the_zone() {
    let addresses = "an www.example.test. 300 A 192.0.2.80\nan www.example.test. 300 A 192.0.2.81";
    let alias = "an alias.example.test. 300 CNAME www.example.test.";
    expect("alias", A, &format!("NOERROR aa qd1\n{alias}\n{addresses}"));
    expect(
        "alias2",
        A,
        &format!(
            "NOERROR aa qd1\nan alias2.example.test. 200 CNAME alias.example.test.\n{alias}\n{addresses}"
        ),
    );
    expect(
        "x.wcname",
        A,
        &format!("NOERROR aa qd1\nan x.wcname.example.test. 300 CNAME www.example.test.\n{addresses}"),
    );
    expect("alias", CNAME, &format!("NOERROR aa qd1\n{alias}"));
    expect("alias", ANY, &format!("NOERROR aa qd1\n{alias}"));
    expect("alias", TXT, &format!("NOERROR aa qd1\n{alias}\n$SOA"));
    expect("outalias", A, "NOERROR aa qd1\nan outalias.example.test. 300 CNAME www.example.org.");
    expect("crossalias", A, "NOERROR aa qd1\nan crossalias.example.test. 300 CNAME www.other.test.");
    expect("dangling", A, "NXDOMAIN aa qd1\nan dangling.example.test. 300 CNAME nosuch.example.test.\n$SOA");
}

#[test]
fn alias_loops_end_with_each_record_once() {
    let expected = "NOERROR aa qd1
        an loop1.example.test. 300 CNAME loop2.example.test.
        an loop2.example.test. 300 CNAME loop3.example.test.
        an loop3.example.test. 300 CNAME loop1.example.test.";
    expect("loop1", A, expected);
    expect("self", A, "NOERROR aa qd1\nan self.example.test. 300 CNAME self.example.test.");
}

#[test]
fn long_alias_chains_are_cut() {
    let mut text = "chain.test 60 SOA\nchain.test 60 NS ns.chain.test\n".to_owned();
    for i in 0..100 {
        writeln!(text, "c{i}.chain.test 60 CNAME c{}.chain.test", i + 1).unwrap();
    }
    let service = service_of(vec![zone(&text)], Vec::new());
    let reply = ask_over(&service, &plain("c0.chain.test", A), Transport::Tcp).unwrap();
    let message = Message::from_vec(&reply).unwrap();
    assert_eq!(message.answers.len(), 16);
    assert_eq!(message.metadata.response_code, ResponseCode::NoError);
}

#[test]
fn delegations_are_referred_with_glue() {
    let servers = "ns deleg.example.test. 300 NS ns.deleg.example.test.
        ns deleg.example.test. 300 NS ns1.example.test.
        ns deleg.example.test. 300 NS ns.elsewhere.invalid.
        ar ns.deleg.example.test. 300 A 192.0.2.53
        ar ns.deleg.example.test. 300 AAAA 2001:db8::53
        ar ns1.example.test. 3600 A 192.0.2.1";
    for (text, qtype) in [
        ("deleg", NS),
        ("deleg", A),
        ("deleg", SOA),
        ("deleg", ANY),
        ("a.deleg", A),
        ("ns.deleg", A),
        ("a.deleg", DS),
    ] {
        expect(text, qtype, &format!("NOERROR qd1\n{servers}"));
    }
    // The alias is ours, what it leads to is not.
    expect(
        "todeleg",
        A,
        &format!("NOERROR aa qd1\nan todeleg.example.test. 300 CNAME host.deleg.example.test.\n{servers}"),
    );
}

#[test]
fn ds_is_answered_above_the_cut() {
    expect("deleg", DS, "NOERROR aa qd1\n$SOA");
    let reply = ask(&service(), &plain("signed.example.test", DS)).unwrap();
    let message = Message::from_vec(&reply).unwrap();
    assert!(message.metadata.authoritative);
    assert_eq!(u16::from(message.answers[0].record_type()), DS);
    // At our own apex whose parent is somebody else's: nothing, but ours.
    check(&service(), &plain("example.test", DS), &format!("NOERROR aa qd1\n{SOA_LINE}"));
    // At an apex whose parent is ours too: the parent's record.
    let reply = ask(&service(), &plain("child.example.test", DS)).unwrap();
    let message = Message::from_vec(&reply).unwrap();
    assert!(message.metadata.authoritative);
    assert_eq!(message.answers.len(), 1);
    check(
        &service(),
        &plain("www.child.example.test", A),
        "NOERROR aa qd1\nan www.child.example.test. 300 A 203.0.113.2",
    );
}

#[test]
fn in_domain_glue_that_does_not_fit_truncates_and_other_addresses_are_left_out() {
    let mut text = "big.test 60 SOA\nbig.test 60 NS ns.big.test\n".to_owned();
    for i in 0..12 {
        writeln!(text, "in.big.test 60 NS ns{i}.in.big.test\nns{i}.in.big.test 60 AAAA 2001:db8::{i}")
            .unwrap();
        writeln!(text, "out.big.test 60 NS ns{i}.far.big.test\nns{i}.far.big.test 60 AAAA 2001:db8::{i}")
            .unwrap();
    }
    let service = service_of(vec![zone(&text)], Vec::new());
    check(&service, &plain("x.in.big.test", A), "NOERROR tc qd1");
    let reply = ask(&service, &plain("x.out.big.test", A)).unwrap();
    let message = Message::from_vec(&reply).unwrap();
    assert!(!message.metadata.truncation);
    assert_eq!(message.authorities.len(), 12);
    assert!((1..12).contains(&message.additionals.len()), "{}", message.additionals.len());
    let whole = ask_over(&service, &plain("x.in.big.test", A), Transport::Tcp).unwrap();
    assert_eq!(Message::from_vec(&whole).unwrap().additionals.len(), 12);
}

#[test]
fn dname_rewrites_names_below_it() {
    let target = hex(&wire(WWW));
    expect("dn", A, "NOERROR aa qd1\n$SOA");
    expect(
        "x.dn",
        A,
        &format!(
            "NXDOMAIN aa qd1
            an dn.example.test. 300 TYPE39 {target}
            an x.dn.example.test. 300 CNAME x.www.example.test.
            $SOA"
        ),
    );
    let target = hex(&wire("wild.example.test"));
    expect(
        "x.deep",
        A,
        &format!(
            "NOERROR aa qd1
            an deep.example.test. 300 TYPE39 {target}
            an x.deep.example.test. 300 CNAME x.wild.example.test.
            an x.wild.example.test. 300 A 192.0.2.77"
        ),
    );
    let long = vec!["a".repeat(60); 3].join(".") + "." + &"b".repeat(54) + ".dn";
    let reply = ask(&service(), &plain(&format!("{long}.example.test"), A)).unwrap();
    let shown = show(&reply);
    assert!(shown.starts_with("YXDOMAIN aa qd1\nan dn.example.test. 300 TYPE39"), "{shown}");
    assert_eq!(shown.lines().count(), 2, "{shown}");
    // Each round makes the name longer; the DNAME is given once.
    let reply = ask_over(&service(), &plain("x.loopdn.example.test", A), Transport::Tcp).unwrap();
    let message = Message::from_vec(&reply).unwrap();
    assert_eq!(message.answers.iter().filter(|held| u16::from(held.record_type()) == DNAME).count(), 1);
    assert!(message.answers.len() <= 17);
}

#[test]
fn any_gives_one_set_of_records() {
    expect(
        "www",
        ANY,
        "NOERROR aa qd1\nan www.example.test. 300 A 192.0.2.80\nan www.example.test. 300 A 192.0.2.81",
    );
    let reply = ask(&service(), &plain("example.test", ANY)).unwrap();
    let types: Vec<u16> =
        Message::from_vec(&reply).unwrap().answers.iter().map(|held| u16::from(held.record_type())).collect();
    assert_eq!(types, [NS]);
}
