//! NSID (RFC 5001), edns-tcp-keepalive (RFC 7828), padding (RFC 7830).

use super::*;
use crate::settings::Tcp;

fn identified(nsid: &[u8]) -> Service {
    configured(service(), Dns { nsid: Some(nsid.into()), ..Dns::default() })
}

/// The last line of a reply: OPT.
fn opt_of(service: &Service, query: &[u8], transport: Transport) -> String {
    let reply = ask_over(service, query, transport).unwrap();
    show(&reply).lines().last().unwrap().to_owned()
}

#[test]
fn nsid_is_sent_when_it_is_asked_for_and_set() {
    let service = identified(b"pop1");
    let sent = format!("opt v0 1232 [{}]", hex(&option(3, b"pop1")));
    for (why, query) in [
        ("asked", with_opt(WWW, A, 1232, &option(3, &[]))),
        ("a payload means nothing", with_opt(WWW, A, 1232, &option(3, b"whatever"))),
        ("twice", with_opt(WWW, A, 1232, &[option(3, &[]), option(3, &[])].concat())),
        ("NXDOMAIN", with_opt("nosuch.example.test", A, 1232, &option(3, &[]))),
        ("REFUSED", with_opt("example.org", A, 1232, &option(3, &[]))),
        (
            "NOTIMP",
            [header(0x2000, [1, 0, 0, 1]), question(WWW, A, 1), opt(1232, 0, &option(3, &[]))].concat(),
        ),
        (
            "CH",
            [header(0, [1, 0, 0, 1]), question("id.server", TXT, 3), opt(1232, 0, &option(3, &[]))].concat(),
        ),
    ] {
        for transport in [Transport::Udp, Transport::Tcp] {
            assert_eq!(opt_of(&service, &query, transport), sent, "{why}");
        }
    }
    for (why, query) in [
        ("not asked", with_opt(WWW, A, 1232, &[])),
        ("another option", with_opt(WWW, A, 1232, &option(4, &[]))),
        // What options of a later version mean is not ours to say.
        (
            "BADVERS",
            [header(0, [1, 0, 0, 1]), question(WWW, A, 1), opt(1232, 0x10000, &option(3, &[]))].concat(),
        ),
    ] {
        assert_eq!(opt_of(&service, &query, Transport::Udp), "opt v0 1232 []", "{why}");
    }
    assert_eq!(
        opt_of(&super::service(), &with_opt(WWW, A, 1232, &option(3, &[])), Transport::Udp),
        "opt v0 1232 []"
    );
}

#[test]
fn nsid_and_client_subnet_come_together() {
    let subnet = ecs(1, 24, 0, &[198, 51, 100]);
    let asked = [option(3, &[]), subnet.clone()].concat();
    let sent = [subnet, option(3, b"pop1")].concat();
    let query = with_opt(WWW, A, 1232, &asked);
    assert_eq!(opt_of(&identified(b"pop1"), &query, Transport::Udp), format!("opt v0 1232 [{}]", hex(&sent)));
}

#[test]
fn nsid_counts_in_the_size_of_the_reply() {
    let service = identified(&[b'x'; 255]);
    // 12 + 22 of question + 32 of records + 11 of OPT and 259 of NSID.
    let reply = ask(&service, &with_opt(WWW, A, 512, &option(3, &[]))).unwrap();
    assert_eq!((reply.len(), reply[2] & 2), (12 + 22 + 32 + 270, 0));
    // The longest name: the identifier itself does not fit, and is left out.
    let long = format!("{0}.{0}.{0}.{1}.example.test", "x".repeat(63), "y".repeat(48));
    assert_eq!(wire(&long).len(), 255);
    let reply = ask(&service, &with_opt(&long, A, 512, &option(3, &[]))).unwrap();
    assert!(show(&reply).ends_with("opt v0 1232 []\n"), "{}", show(&reply));
    // With room for it, but not for the SOA: truncated.
    let long = format!("{0}.{0}.{1}.example.test", "x".repeat(63), "y".repeat(48));
    let reply = ask(&service, &with_opt(&long, A, 512, &option(3, &[]))).unwrap();
    assert!(reply.len() > 450 && reply[2] & 2 != 0, "{} octets", reply.len());
}

#[test]
fn keepalive_tells_the_idle_time_over_tcp_only() {
    let service = service();
    let asked = with_opt(WWW, A, 1232, &option(11, &[]));
    assert_eq!(
        opt_of(&service, &asked, Transport::Tcp),
        format!("opt v0 1232 [{}]", hex(&option(11, &[0, 100])))
    );
    assert_eq!(opt_of(&service, &asked, Transport::Udp), "opt v0 1232 []");
    assert_eq!(opt_of(&service, &with_opt(WWW, A, 1232, &[]), Transport::Tcp), "opt v0 1232 []");
    // A client has no time to tell.
    let told = with_opt(WWW, A, 1232, &option(11, &[0, 200]));
    let reply = ask_over(&service, &told, Transport::Tcp).unwrap();
    assert!(show(&reply).starts_with("FORMERR qd1\n"), "{}", show(&reply));
    check_head(&service, "ignored over UDP", &told, "NOERROR aa qd1");
    // What does not fit the field is as long as can be said.
    for (seconds, field) in [(1, [0, 10]), (120, [0x04, 0xb0]), (1_000_000, [0xff, 0xff])] {
        let tcp = Tcp { idle: Duration::from_secs(seconds), ..Tcp::default() };
        let patient = configured(super::service(), Dns { tcp, ..Dns::default() });
        let shown = format!("opt v0 1232 [{}]", hex(&option(11, &field)));
        assert_eq!(opt_of(&patient, &asked, Transport::Tcp), shown);
    }
}

#[test]
fn padding_is_for_encrypted_transports() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let query = with_opt(WWW, A, 1232, &option(12, &[0; 100]));
        assert_eq!(opt_of(&service(), &query, transport), "opt v0 1232 []");
    }
}
