//! Record data in presentation form to wire form, by a list of fields for each type.

use std::net::{Ipv4Addr, Ipv6Addr};

use router_common::model::rtype;
use router_common::name::Name;

use super::lexer::Token;
use super::{svcb, types};

/// What is wrong with which value.
type Wrong = (usize, String);

/// One field of record data.
#[derive(Clone, Copy)]
enum Field {
    U8,
    U16,
    U32,
    /// Seconds, with units or without.
    Period,
    Name,
    /// Octets after their length, at most 255.
    Text,
    /// One or several of those, to the end.
    Texts,
    /// Octets without a length, to the end of the record.
    Rest,
    /// The tag of a CAA record (RFC 8659 §4.1).
    Tag,
    /// Hexadecimal digits to the end.
    Hex,
    /// Base 64 to the end.
    Base64,
}

/// The fields of a type, when its presentation form is known.
fn fields(number: u16) -> Option<&'static [Field]> {
    use Field::{Base64, Hex, Name, Period, Rest, Tag, Text, Texts, U8, U16, U32};
    Some(match number {
        rtype::NS | rtype::CNAME | rtype::DNAME | 12 => &[Name],
        rtype::SOA => &[Name, Name, U32, Period, Period, Period, Period],
        13 => &[Text, Text],
        15 | 18 | 36 => &[U16, Name],
        16 | 99 => &[Texts],
        17 => &[Name, Name],
        33 => &[U16, U16, U16, Name],
        35 => &[U16, U16, Text, Text, Text, Name],
        37 => &[U16, U16, U8, Base64],
        43 | 59 => &[U16, U8, U8, Hex],
        44 => &[U8, U8, Hex],
        48 | 60 => &[U16, U8, U8, Base64],
        52 | 53 => &[U8, U8, U8, Hex],
        61 => &[Base64],
        64 | 65 => &[U16, Name, Rest],
        256 => &[U16, U16, Rest],
        257 => &[U8, Tag, Rest],
        _ => return None,
    })
}

/// Reads the record data of a type.
pub(super) fn read(number: u16, values: &[Token], origin: &[u8]) -> Result<Vec<u8>, Wrong> {
    let texts: Vec<&str> = values.iter().map(|token| token.text.as_str()).collect();
    if let Some((first, rest)) = values.split_first()
        && first.text == "\\#"
        && !first.quoted
    {
        let wire = generic(rest).map_err(|(at, why)| (at + 1, why))?;
        return if is_sound(number, &wire) {
            Ok(wire)
        } else {
            Err((0, format!("these octets are not the data of a {} record", types::mnemonic(number))))
        };
    }
    let wire = match number {
        rtype::A => match texts.as_slice() {
            [address] => {
                let parsed: Result<Ipv4Addr, _> = address.parse();
                parsed.map_err(|_| (0, format!("{address:?} is not an IPv4 address")))?.octets().to_vec()
            }
            _ => return Err((1, format!("{} values; allowed is one IPv4 address", texts.len()))),
        },
        rtype::AAAA => match texts.as_slice() {
            [address] => {
                let parsed: Result<Ipv6Addr, _> = address.parse();
                parsed.map_err(|_| (0, format!("{address:?} is not an IPv6 address")))?.octets().to_vec()
            }
            _ => return Err((1, format!("{} values; allowed is one IPv6 address", texts.len()))),
        },
        64 | 65 => svcb::read(values, origin)?,
        _ => match fields(number) {
            Some(fields) => by_fields(number, fields, &texts, origin)?,
            None => {
                let mnemonic = types::mnemonic(number);
                return Err((
                    0,
                    format!("{mnemonic} data is written as: {mnemonic} \\# length hex (RFC 3597)"),
                ));
            }
        },
    };
    if wire.len() > usize::from(u16::MAX) {
        return Err((0, format!("{} octets of record data; allowed are 65535", wire.len())));
    }
    Ok(wire)
}

fn by_fields(number: u16, fields: &[Field], texts: &[&str], origin: &[u8]) -> Result<Vec<u8>, Wrong> {
    let mut wire = Vec::new();
    let mut at = 0;
    for field in fields {
        let rest = texts.get(at..).unwrap_or_default();
        let Some(&text) = rest.first() else {
            let mnemonic = types::mnemonic(number);
            return Err((at, format!("{at} values; a {mnemonic} record has at least {}", fields.len())));
        };
        let wrong = |why: String| (at, why);
        let mut taken = 1;
        match field {
            Field::U8 => wire.push(whole(text).map_err(wrong)?),
            Field::U16 => wire.extend_from_slice(&whole::<u16>(text).map_err(wrong)?.to_be_bytes()),
            Field::U32 => wire.extend_from_slice(&whole::<u32>(text).map_err(wrong)?.to_be_bytes()),
            Field::Period => wire.extend_from_slice(&types::ttl(text).map_err(wrong)?.to_be_bytes()),
            Field::Name => {
                wire.extend_from_slice(&types::written(text, origin).map_err(wrong)?);
            }
            Field::Text => string(text, &mut wire).map_err(wrong)?,
            Field::Texts => {
                for (i, text) in rest.iter().enumerate() {
                    string(text, &mut wire).map_err(|why| (at + i, why))?;
                }
                taken = rest.len();
            }
            Field::Rest => wire.extend_from_slice(&types::octets(text).map_err(wrong)?),
            Field::Tag => {
                if text.is_empty()
                    || text.len() > 15
                    || !text.bytes().all(|octet| octet.is_ascii_alphanumeric())
                {
                    return Err(wrong(format!(
                        "{text:?} is not a tag; allowed are e.g. issue, issuewild, iodef"
                    )));
                }
                wire.push(text.len() as u8);
                wire.extend_from_slice(text.as_bytes());
            }
            Field::Hex => {
                wire.extend_from_slice(&hex(&rest.concat()).map_err(wrong)?);
                taken = rest.len();
            }
            Field::Base64 => {
                wire.extend_from_slice(&base64(&rest.concat()).map_err(wrong)?);
                taken = rest.len();
            }
        }
        at += taken;
    }
    if at < texts.len() {
        let mnemonic = types::mnemonic(number);
        return Err((at, format!("{} values; a {mnemonic} record has {}", texts.len(), fields.len())));
    }
    Ok(wire)
}

/// `\# length hex` (RFC 3597 §5).
fn generic(values: &[Token]) -> Result<Vec<u8>, Wrong> {
    let texts: Vec<&str> = values.iter().map(|token| token.text.as_str()).collect();
    let Some((length, digits)) = texts.split_first() else {
        return Err((0, "\\# is followed by a length and hexadecimal digits".into()));
    };
    let length: u16 = whole(length).map_err(|why| (0, why))?;
    let wire = hex(&digits.concat()).map_err(|why| (1, why))?;
    if wire.len() != usize::from(length) {
        return Err((0, format!("{} octets follow; the length says {length}", wire.len())));
    }
    Ok(wire)
}

/// Whether sound data of a type is the same record: case counts everywhere but in names (RFC 4034 §6.2).
pub(super) fn same(number: u16, one: &[u8], other: &[u8]) -> bool {
    if one == other || !one.eq_ignore_ascii_case(other) {
        return one == other;
    }
    let (mut one, mut other) = (one, other);
    for field in fields(number).unwrap_or_default() {
        let names = match field {
            Field::Name => split_name(one).zip(split_name(other)),
            _ => None,
        };
        let (rest, rests) = match names {
            Some(((_, rest), (_, rests))) => (rest, rests),
            None => {
                let len = one.len() - after(*field, one).map_or(0, <[u8]>::len);
                if one.get(..len) != other.get(..len) {
                    return false;
                }
                (one.get(len..).unwrap_or_default(), other.get(len..).unwrap_or_default())
            }
        };
        (one, other) = (rest, rests);
    }
    one == other
}

/// Whether octets can be the data of a type; what is compressed or cut would break readers.
fn is_sound(number: u16, wire: &[u8]) -> bool {
    match number {
        rtype::A => wire.len() == 4,
        rtype::AAAA => wire.len() == 16,
        rtype::SOA => super::soa(wire).is_some(),
        rtype::NS | rtype::CNAME | rtype::DNAME | 12 => Name::from_wire(wire).is_ok(),
        _ => fields(number).is_none_or(|fields| fits(fields, wire)),
    }
}

/// Whether octets are exactly these fields.
fn fits(fields: &[Field], mut wire: &[u8]) -> bool {
    for field in fields {
        let Some(rest) = after(*field, wire) else { return false };
        wire = rest;
    }
    wire.is_empty()
}

/// What follows a field; `None` when it is not whole.
fn after(field: Field, wire: &[u8]) -> Option<&[u8]> {
    fn counted(wire: &[u8]) -> Option<&[u8]> {
        let (&length, rest) = wire.split_first()?;
        rest.get(usize::from(length)..)
    }
    match field {
        Field::U8 => wire.get(1..),
        Field::U16 => wire.get(2..),
        Field::U32 | Field::Period => wire.get(4..),
        Field::Name => split_name(wire).map(|(_, rest)| rest),
        Field::Text | Field::Tag => counted(wire),
        Field::Texts => {
            let mut left = counted(wire);
            while let Some(more) = left.filter(|left| !left.is_empty()) {
                left = counted(more);
            }
            left
        }
        Field::Rest | Field::Hex | Field::Base64 => wire.get(wire.len()..),
    }
}

/// The name at the start of some octets, and what follows it.
pub(super) fn split_name(wire: &[u8]) -> Option<(Name, &[u8])> {
    let mut at = 0;
    while let Some(&length) = wire.get(at) {
        at += 1 + usize::from(length);
        if length == 0 {
            let (name, rest) = wire.split_at_checked(at)?;
            return Some((Name::from_wire(name).ok()?, rest));
        }
    }
    None
}

fn whole<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    let digits = !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit());
    let bits = size_of::<T>() * 8;
    text.parse()
        .ok()
        .filter(|_| digits)
        .ok_or_else(|| format!("{text:?} is not a number; allowed is 0 to {}", u64::MAX >> (64 - bits)))
}

/// A character-string: its length, then its octets.
fn string(text: &str, wire: &mut Vec<u8>) -> Result<(), String> {
    let octets = types::octets(text)?;
    let length = u8::try_from(octets.len())
        .map_err(|_| format!("a string of {} octets; allowed are 255: write several", octets.len()))?;
    wire.push(length);
    wire.extend_from_slice(&octets);
    Ok(())
}

fn hex(digits: &str) -> Result<Vec<u8>, String> {
    let values: Option<Vec<u8>> =
        digits.chars().map(|digit| digit.to_digit(16).map(|value| value as u8)).collect();
    match values {
        Some(values) if values.len().is_multiple_of(2) => Ok(values
            .chunks_exact(2)
            .map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit))
            .collect()),
        _ => Err("hexadecimal digits in pairs are wanted".into()),
    }
}

/// Base 64 with its padding (RFC 4648 §4).
pub(super) fn base64(text: &str) -> Result<Vec<u8>, String> {
    let wrong = || "base 64 is wanted (RFC 4648 §4)".to_owned();
    let body = text.trim_end_matches('=');
    let padding = text.len() - body.len();
    if !text.len().is_multiple_of(4) || padding > 2 {
        return Err(wrong());
    }
    let mut out = Vec::with_capacity(body.len() * 3 / 4);
    let (mut bits, mut have) = (0u32, 0u32);
    for octet in body.bytes() {
        let value = match octet {
            b'A'..=b'Z' => octet - b'A',
            b'a'..=b'z' => octet - b'a' + 26,
            b'0'..=b'9' => octet - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return Err(wrong()),
        };
        bits = (bits << 6 | u32::from(value)) & 0xffff;
        have += 6;
        if have >= 8 {
            have -= 8;
            out.push((bits >> have) as u8);
        }
    }
    Ok(out)
}
