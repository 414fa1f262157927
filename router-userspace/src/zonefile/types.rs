//! Words of a master file: names, TTLs, types, strings.

use router_common::model::MAX_TTL;
use router_common::name::{Name, NameError};

/// Record types by mnemonic (IANA), those that may stand in a zone.
const TYPES: [(&str, u16); 33] = [
    ("A", 1),
    ("NS", 2),
    ("CNAME", 5),
    ("SOA", 6),
    ("PTR", 12),
    ("HINFO", 13),
    ("MX", 15),
    ("TXT", 16),
    ("RP", 17),
    ("AFSDB", 18),
    ("AAAA", 28),
    ("LOC", 29),
    ("SRV", 33),
    ("NAPTR", 35),
    ("KX", 36),
    ("CERT", 37),
    ("DNAME", 39),
    ("DS", 43),
    ("SSHFP", 44),
    ("IPSECKEY", 45),
    ("DNSKEY", 48),
    ("TLSA", 52),
    ("SMIMEA", 53),
    ("HIP", 55),
    ("CDS", 59),
    ("CDNSKEY", 60),
    ("OPENPGPKEY", 61),
    ("CSYNC", 62),
    ("SVCB", 64),
    ("HTTPS", 65),
    ("SPF", 99),
    ("URI", 256),
    ("CAA", 257),
];

/// Types of records that a signer makes. Answers are not signed: such records would be wrong.
const SIGNED: [(&str, u16); 4] = [("RRSIG", 46), ("NSEC", 47), ("NSEC3", 50), ("NSEC3PARAM", 51)];

/// The number of a record type: its mnemonic, or `TYPE123`.
pub(super) fn number(word: &str) -> Result<u16, String> {
    let upper = word.to_ascii_uppercase();
    let listed = TYPES.iter().chain(&SIGNED).find(|(mnemonic, _)| *mnemonic == upper);
    let generic = || upper.strip_prefix("TYPE")?.parse::<u16>().ok();
    let number = listed.map(|&(_, number)| number).or_else(generic);
    match number {
        None => Err(format!("{word:?} is not a record type; types without a mnemonic here are TYPE123")),
        // RFC 6895 §3.1: 0 is special, OPT and 128..=255 are meta types.
        Some(0 | 41 | 128..=255) => Err(format!("{word:?} is a type that never stands in a zone")),
        Some(number) if SIGNED.iter().any(|&(_, signed)| signed == number) => {
            Err(format!("{word}: signed zones are not served; answers would not match their signatures"))
        }
        Some(number) => Ok(number),
    }
}

/// The mnemonic of a record type, else `TYPE123`.
pub(super) fn mnemonic(number: u16) -> String {
    let listed = TYPES.iter().find(|&&(_, known)| known == number);
    listed.map_or_else(|| format!("TYPE{number}"), |&(mnemonic, _)| mnemonic.to_owned())
}

/// A name, relative to the origin when it does not end with a dot.
pub(super) fn name(text: &str, origin: &[u8]) -> Result<Name, String> {
    checked(text, origin).map(|(name, _)| name)
}

/// The same in wire form, its letters as they are written: the case of a name is kept (RFC 4343 §3), though
/// it decides nothing.
pub(super) fn written(text: &str, origin: &[u8]) -> Result<Vec<u8>, String> {
    checked(text, origin).map(|(_, written)| written)
}

fn checked(text: &str, origin: &[u8]) -> Result<(Name, Vec<u8>), String> {
    let wrong = |why: NameError| format!("{text:?} is not a domain name: {why}");
    let mut octets = if text == "@" { vec![0] } else { Name::written(text).map_err(wrong)? };
    if text == "@" || !ends_with_dot(text) {
        octets.pop();
        octets.extend_from_slice(origin);
    }
    Ok((Name::from_wire(&octets).map_err(wrong)?, octets))
}

/// Whether the last character is a dot that no `\` escapes.
fn ends_with_dot(text: &str) -> bool {
    let Some(before) = text.strip_suffix('.') else { return false };
    let mut escaped = false;
    for octet in before.bytes() {
        escaped = !escaped && octet == b'\\';
    }
    !escaped
}

/// A TTL: seconds, or with units as in `1h30m`.
pub(super) fn ttl(text: &str) -> Result<u32, String> {
    let wrong = || format!("{text:?} is not a TTL; allowed is 0 to {MAX_TTL} seconds, e.g. 3600 or 1h30m");
    let mut total: u64 = 0;
    let mut number: Option<u64> = None;
    for octet in text.bytes() {
        if octet.is_ascii_digit() {
            let value = number.unwrap_or(0).saturating_mul(10);
            number = Some(value.saturating_add(u64::from(octet - b'0')));
            continue;
        }
        let factor = match octet.to_ascii_lowercase() {
            b's' => 1,
            b'm' => 60,
            b'h' => 3600,
            b'd' => 86_400,
            b'w' => 604_800,
            _ => return Err(wrong()),
        };
        let value = number.take().ok_or_else(wrong)?;
        total = total.saturating_add(value.saturating_mul(factor));
    }
    if text.is_empty() {
        return Err(wrong());
    }
    let total = total.saturating_add(number.unwrap_or(0));
    u32::try_from(total).ok().filter(|&total| total <= MAX_TTL).ok_or_else(wrong)
}

/// The octets of a string whose escapes are `\X` and `\DDD`.
pub(super) fn octets(text: &str) -> Result<Vec<u8>, String> {
    let wrong = || format!("{text:?} has a bad escape; allowed are \\X and \\DDD up to \\255");
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let next = bytes.next().ok_or_else(wrong)?;
        if !next.is_ascii_digit() {
            out.push(next);
            continue;
        }
        let mut value = u32::from(next - b'0');
        for _ in 0..2 {
            let digit = bytes.next().filter(u8::is_ascii_digit).ok_or_else(wrong)?;
            value = value * 10 + u32::from(digit - b'0');
        }
        out.push(u8::try_from(value).map_err(|_| wrong())?);
    }
    Ok(out)
}
