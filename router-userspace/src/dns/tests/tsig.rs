//! Signed messages (RFC 8945). The queries, and the MACs of the replies, were made by dnspython 2.3.0.

use super::*;
use crate::settings::{Algorithm, Key};

/// When dnspython signed.
const THEN: u64 = 1_700_000_000;
/// What it signed: www.example.test AAAA. The key's name is compressed, with a capital.
const SIGNED: [(&str, Algorithm, &str, &str); 4] = [
    (
        "hmac-sha1",
        Algorithm::HmacSha1,
        "12340000000100000000000103777777076578616d706c65047465737400001c000103586672c01000fa00ff00000000002f09686d\
         61632d736861310000006553f100012c0014e1e1cfc36d90a0a4f0f7c989c9c6b4e7f88a74d5123400000000",
        "3f1ad447d60ddc84fe74daba159a8cd1e4076a3c",
    ),
    (
        "hmac-sha256",
        Algorithm::HmacSha256,
        "12340000000100000000000103777777076578616d706c65047465737400001c000103586672c01000fa00ff00000000003d0b686d\
         61632d7368613235360000006553f100012c0020e4154e5a259c8d895fa41b2573c981e615fc78694cbedb21d98a2b246434a8a612\
         3400000000",
        "fe164390ab9e82b3ca3dca223b7969a43d81c352212e6a07b685377da7125813",
    ),
    (
        "hmac-sha384",
        Algorithm::HmacSha384,
        "12340000000100000000000103777777076578616d706c65047465737400001c000103586672c01000fa00ff00000000004d0b686d\
         61632d7368613338340000006553f100012c003070d67a666914723dea3e71acb465ea1cdcda488e16f4d84a00758539b148ea3265\
         0b6f3c04ae1920950715bdfa3d9655123400000000",
        "4ec8fc15d13cd1475a4d8da19ee39b410d7fbfa08e8cba8759413897a6b717010a246022650d819c2609f17215962358",
    ),
    (
        "hmac-sha512",
        Algorithm::HmacSha512,
        "12340000000100000000000103777777076578616d706c65047465737400001c000103586672c01000fa00ff00000000005d0b686d\
         61632d7368613531320000006553f100012c004040876d48cd7dfbd2d9111d4f87fb38573c16729dca01b474f3421bfecf7bd0813865\
         c52628224ddce9ba79c5c34fef0931b60c42b0274a39e7e61c5f560b68b5123400000000",
        "6670eb65521ad53c8cfbf6365353dc6153feb7f44f44dc438b14d88984d06ddc13c0d7aebe8f41e5483ed4097fa02626ea655fe1bf\
         480d4f7022e0a049b113a2",
    ),
];

const KEY: &str = "xfr.example.test";
const BADSIG: u16 = 16;
const BADKEY: u16 = 17;
const BADTIME: u16 = 18;

pub fn key(algorithm: Algorithm) -> Arc<Key> {
    Arc::new(Key::new(name(KEY), algorithm, (1..=32).collect()))
}

fn with_keys(keys: Vec<Arc<Key>>) -> Service {
    let settings = Dns { keys, ..Dns::default() };
    Service::new(service().snapshot, Arc::new(settings))
}

/// The query of a row, cut out of the message before its TSIG record.
fn unsigned(signed: &[u8]) -> Vec<u8> {
    let mut query = signed[..34].to_vec();
    query[11] = 0;
    query
}

fn tsig_rdata(algorithm: &str, time: u64, mac: &[u8], error: u16, other: &[u8]) -> Vec<u8> {
    let mut rdata = wire(algorithm);
    rdata.extend_from_slice(&time.to_be_bytes()[2..]);
    rdata.extend_from_slice(&300u16.to_be_bytes());
    rdata.extend_from_slice(&(mac.len() as u16).to_be_bytes());
    rdata.extend_from_slice(mac);
    rdata.extend_from_slice(&[0x12, 0x34]);
    rdata.extend_from_slice(&error.to_be_bytes());
    rdata.extend_from_slice(&(other.len() as u16).to_be_bytes());
    rdata.extend_from_slice(other);
    rdata
}

fn ask_at(service: &Service, query: &[u8], now: u64) -> (Vec<u8>, Counts) {
    let counts = Counts::default();
    let client = Client { now: Duration::from_secs(now), ..from(CLIENT, Transport::Udp) };
    let reply = respond(service, query, &client, &mut || 0, &counts).expect("a reply");
    (reply, counts)
}

/// A reply that is `bare` and a TSIG record besides.
fn followed_by_tsig(bare: &[u8], rdata: &[u8]) -> Vec<u8> {
    let mut reply = [bare, &record(&wire(KEY), 250, 255, 0, rdata)].concat();
    reply[11] += 1;
    reply
}

#[test]
fn a_good_signature_is_answered_signed() {
    for (algorithm, held, query, mac) in SIGNED {
        let query = unhex(query);
        let service = with_keys(vec![key(held)]);
        let bare = ask(&service, &unsigned(&query)).unwrap();
        let expected = followed_by_tsig(&bare, &tsig_rdata(algorithm, THEN, &unhex(mac), 0, &[]));
        let (reply, counts) = ask_at(&service, &query, THEN);
        assert_eq!(hex(&reply), hex(&expected), "{algorithm}");
        assert_eq!(counts.get(Counter::ServerRecords), 1);
        // Both ends of the fudge.
        for at in [THEN - 300, THEN + 300] {
            assert_eq!(show(&ask_at(&service, &query, at).0).lines().next(), Some("NOERROR aa qd1"));
        }
    }
}

#[test]
fn unknown_keys_and_wrong_macs_are_told_so_unsigned() {
    let service = with_keys(vec![key(Algorithm::HmacSha256)]);
    let refusal = |query: &[u8], algorithm: &str, error: u16| {
        let mut bare = unsigned(query);
        (bare[2], bare[3]) = (0x80, 9);
        followed_by_tsig(&bare, &tsig_rdata(algorithm, THEN, &[], error, &[]))
    };
    for (algorithm, held, query, _) in SIGNED {
        let query = unhex(query);
        if held != Algorithm::HmacSha256 {
            // A key is used with one algorithm only.
            assert_eq!(ask_at(&service, &query, THEN).0, refusal(&query, algorithm, BADKEY), "{algorithm}");
            continue;
        }
        let none = with_keys(Vec::new());
        assert_eq!(ask_at(&none, &query, THEN).0, refusal(&query, algorithm, BADKEY));
        // Whatever is changed in what is signed, the MAC does not hold: QNAME, QTYPE, flags, time, MAC.
        let mac_at = query.len() - 38;
        for at in [13, 31, 2, 3, query.len() - 43, mac_at, query.len() - 7] {
            let mut changed = query.clone();
            changed[at] ^= 1;
            let (reply, counts) = ask_at(&service, &changed, THEN);
            assert_eq!(reply[3] & 0xf, 9, "octet {at}: {}", hex(&reply));
            assert_eq!(&reply[reply.len() - 4..], [0, BADSIG as u8, 0, 0], "octet {at}");
            assert_eq!(counts.get(Counter::ServerOther), 1);
        }
        // The id is not signed, the original id is.
        let mut forwarded = query.clone();
        forwarded[0] ^= 0xff;
        assert_eq!(ask_at(&service, &forwarded, THEN).0[3] & 0xf, 0);
        // An error in the query would have been found before what it asks.
        assert_eq!(ask_at(&service, &query, THEN + 10_000).0[3] & 0xf, 9);
    }
}

#[test]
fn another_time_is_told_in_a_signed_reply() {
    let service = with_keys(vec![key(Algorithm::HmacSha256)]);
    let query = unhex(SIGNED[1].2);
    for at in [THEN - 301, THEN + 301, 0, u64::from(u32::MAX) * 7] {
        let (reply, _) = ask_at(&service, &query, at);
        let mut bare = unsigned(&query);
        (bare[2], bare[3]) = (0x80, 9);
        let other = &at.to_be_bytes()[2..];
        // The MAC is checked by computing it here, from the parts that RFC 8945 §5.3 names.
        let mut hmac = key(Algorithm::HmacSha256).hmac();
        let request_mac = &query[query.len() - 38..query.len() - 6];
        hmac.update(&[0, 32]);
        hmac.update(request_mac);
        hmac.update(&bare);
        hmac.update(&wire(KEY));
        hmac.update(&[0, 255, 0, 0, 0, 0]);
        hmac.update(&wire("hmac-sha256"));
        hmac.update(&THEN.to_be_bytes()[2..]);
        hmac.update(&[1, 44, 0, BADTIME as u8, 0, 6]);
        hmac.update(other);
        let rdata = tsig_rdata("hmac-sha256", THEN, hmac.sign().as_ref(), BADTIME, other);
        assert_eq!(hex(&reply), hex(&followed_by_tsig(&bare, &rdata)), "{at}");
    }
}

#[test]
fn truncated_macs_go_down_to_half() {
    for (_, held, query, _) in SIGNED {
        let whole = held.mac_len();
        let query = unhex(query);
        let service = with_keys(vec![key(held)]);
        let mac_at = query.len() - 6 - whole;
        for keep in 0..=whole {
            let mut cut = query.clone();
            cut.drain(mac_at + keep..mac_at + whole);
            let rdata_len = cut.len() - 50;
            cut[48..50].copy_from_slice(&(rdata_len as u16).to_be_bytes());
            cut[mac_at - 1] = keep as u8;
            let (reply, _) = ask_at(&service, &cut, THEN);
            let expected = if keep < 10.max(whole / 2) { "FORMERR qd1" } else { "NOERROR aa qd1" };
            assert_eq!(show(&reply).lines().next(), Some(expected), "{keep} of {whole}");
        }
        // Longer than the hash.
        let mut long = query.clone();
        long.insert(mac_at, 0);
        let rdata_len = long.len() - 50;
        long[48..50].copy_from_slice(&(rdata_len as u16).to_be_bytes());
        long[mac_at - 1] = whole as u8 + 1;
        assert_eq!(show(&ask_at(&service, &long, THEN).0), "FORMERR qd1\n");
    }
}

#[test]
fn the_class_and_ttl_of_the_record_are_fixed() {
    let service = with_keys(vec![key(Algorithm::HmacSha256)]);
    let query = unhex(SIGNED[1].2);
    // Owner in 6 octets at 34, then type, class, TTL.
    for at in [42, 43, 44, 47] {
        let mut changed = query.clone();
        changed[at] ^= 1;
        assert_eq!(show(&ask_at(&service, &changed, THEN).0), "FORMERR qd1\n", "octet {at}");
    }
    // A name that points to itself, forward, or past the end.
    for (high, low) in [(0xc0, 38), (0xc0, 39), (0xc0, 200), (0xff, 0xff), (0xc0, 34)] {
        let mut changed = query.clone();
        (changed[38], changed[39]) = (high, low);
        assert_eq!(show(&ask_at(&service, &changed, THEN).0), "FORMERR qd1\n", "{high:x} {low:x}");
    }
}

/// What is said of errors that are found before the question is looked at, to who signed well.
#[test]
fn errors_are_signed_as_well() {
    let service = with_keys(vec![key(Algorithm::HmacSha256)]);
    let sign = |mut message: Vec<u8>| {
        let mut signer = crate::dns::tsig::Signer::query(key(Algorithm::HmacSha256));
        signer.sign(&mut message, Duration::from_secs(THEN));
        (message, signer.mac().to_vec())
    };
    for (what, query, rcode) in [
        ("BADVERS", [header(0, [1, 0, 0, 1]), question(WWW, A, 1), opt(1232, 0x10000, &[])].concat(), 0),
        ("a broken option", with_opt(WWW, A, 1232, &[0, 8, 0, 9]), 1),
        ("NOTIFY", [header(0x2000, [1, 0, 0, 0]), question("example.test", SOA, 1)].concat(), 4),
        ("REFUSED", plain("elsewhere.invalid", A), 5),
    ] {
        let (query, mac) = sign(query);
        let (reply, _) = ask_at(&service, &query, THEN);
        assert_eq!(reply[3] & 0xf, rcode, "{what}");
        let as_query = [&reply[..2], &[reply[2] & 0x7f], &reply[3..]].concat();
        let signature = crate::dns::query::Query::parse(&as_query).unwrap().signature;
        let now = Duration::from_secs(THEN);
        let key = key(Algorithm::HmacSha256);
        let holds = |mac: &[u8], now| crate::dns::tsig::answers(&reply, signature.as_ref(), &key, mac, now);
        assert!(holds(&mac, now), "{what}");
        assert!(!holds(&mac[1..], now) && !holds(&[], now), "{what}: as an answer to something else");
        assert!(!holds(&mac, now + Duration::from_secs(301)), "{what}: too late");
    }
}

#[test]
fn the_signature_counts_in_the_size_of_a_reply() {
    let rows: String = (0..30).map(|i| format!("many.example.test 60 A 192.0.2.{i}\n")).collect();
    let service = service_of(vec![zone(&(ZONE.to_owned() + &rows))], Vec::new());
    let settings = Dns { keys: vec![key(Algorithm::HmacSha512)], ..Dns::default() };
    let service = Service::new(service.snapshot, Arc::new(settings));
    // 12 + 23 + 30 × 16 = 515 octets, 11 of OPT, 118 + 5 of TSIG.
    for (size, truncated) in [(512, true), (600, true), (640, true), (660, false), (1232, false)] {
        let mut query = with_opt("many.example.test", A, size, &[]);
        let mut signer = crate::dns::tsig::Signer::query(key(Algorithm::HmacSha512));
        signer.sign(&mut query, Duration::from_secs(THEN));
        let (reply, _) = ask_at(&service, &query, THEN);
        assert_eq!(reply[2] & 2 != 0, truncated, "{size}: {} octets", reply.len());
        assert!(reply.len() <= usize::from(size));
        assert_eq!(reply[11], 2, "{size}: OPT and TSIG");
    }
}
