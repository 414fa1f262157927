//! Names of class CH (RFC 4892).

use super::*;

fn chaos(text: &str, qtype: u16) -> Vec<u8> {
    [header(0, [1, 0, 0, 0]), question(text, qtype, 3)].concat()
}

#[test]
fn names_that_are_set_are_answered_and_no_others() {
    let named = configured(
        service(),
        Dns { version: Some("xroute 1".into()), id: Some("pop1".into()), ..Dns::default() },
    );
    for (text, value) in [
        ("version.bind", "xroute 1"),
        ("version.server", "xroute 1"),
        ("VERSION.Bind", "xroute 1"),
        ("id.server", "pop1"),
        ("hostname.bind", "pop1"),
    ] {
        for qtype in [TXT, ANY] {
            let reply = ask(&named, &chaos(text, qtype)).unwrap();
            let message = Message::from_vec(&reply).unwrap();
            assert!(message.metadata.authoritative && message.answers.len() == 1, "{text}");
            let record = &message.answers[0];
            assert_eq!((u16::from(record.dns_class), record.ttl), (3, 0), "{text}");
            assert_eq!(show_record(record), format!("{text}. 0 TXT {value}"), "{text}");
            // The owner is a pointer to the question.
            let at = 12 + question(text, qtype, 3).len();
            assert_eq!(reply[at..at + 6], [0xc0, 12, 0, 16, 0, 3]);
        }
        for (text, qtype) in
            [(text, A), (text, SOA), ("bind", TXT), ("x.version.bind", TXT), (WWW, A), (WWW, TXT)]
        {
            check(&named, &chaos(text, qtype), "REFUSED qd1");
        }
        // In class IN the names are like any others.
        check(&named, &plain(text, TXT), "REFUSED qd1");
    }
}

#[test]
fn one_name_can_be_set_without_the_other() {
    let versioned = configured(service(), Dns { version: Some("1".into()), ..Dns::default() });
    check_head(&versioned, "set", &chaos("version.bind", TXT), "NOERROR aa qd1");
    check(&versioned, &chaos("id.server", TXT), "REFUSED qd1");
    let identified = configured(service(), Dns { id: Some("1".into()), ..Dns::default() });
    check_head(&identified, "set", &chaos("hostname.bind", TXT), "NOERROR aa qd1");
    check(&identified, &chaos("version.server", TXT), "REFUSED qd1");
}

#[test]
fn the_longest_text_fits_without_edns() {
    let long = configured(service(), Dns { version: Some("x".repeat(255)), ..Dns::default() });
    let reply = ask(&long, &chaos("version.bind", TXT)).unwrap();
    assert_eq!(reply.len(), 12 + 18 + 12 + 256);
    assert_eq!(reply[2] & 2, 0);
}
