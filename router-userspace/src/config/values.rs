//! Values that are written as strings: durations, domain names, client prefixes, status codes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::time::Duration;

use ipnet::IpNet;
use router_common::model::AddressRange;
use router_common::name::{Name, NameError};
use toml::de::DeValue;

use super::reader::{shown, text};

/// A duration such as `"500ms"`, `"30s"`, `"5m"`, `"1h"`, within a range.
pub(super) fn duration(value: &DeValue<'_>, allowed: RangeInclusive<Duration>) -> Result<Duration, String> {
    let range = || format!("allowed is {} to {}", show(*allowed.start()), show(*allowed.end()));
    let wrong = || format!("found {}; a duration such as \"500ms\", \"30s\", \"5m\" is wanted", shown(value));
    let DeValue::String(written) = value else { return Err(wrong()) };
    let duration = duration_of(written).ok_or_else(wrong)?;
    if allowed.contains(&duration) {
        Ok(duration)
    } else {
        Err(format!("found {}; {}", shown(value), range()))
    }
}

/// A duration such as `500ms`, `30s`, `5m`, `1h`. One that no clock can hold is the longest there is.
pub fn duration_of(written: &str) -> Option<Duration> {
    let digits = written.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = written.split_at_checked(digits).filter(|(number, _)| !number.is_empty())?;
    let factor: u64 = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        _ => return None,
    };
    let milliseconds = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    Some(milliseconds.map_or(Duration::MAX, Duration::from_millis))
}

/// A duration as the configuration writes it.
pub(super) fn show(duration: Duration) -> String {
    let milliseconds = duration.as_millis();
    match milliseconds {
        0 => "0s".into(),
        _ if milliseconds.is_multiple_of(3_600_000) => format!("{}h", milliseconds / 3_600_000),
        _ if milliseconds.is_multiple_of(60_000) => format!("{}m", milliseconds / 60_000),
        _ if milliseconds.is_multiple_of(1000) => format!("{}s", milliseconds / 1000),
        _ => format!("{milliseconds}ms"),
    }
}

/// A domain name of a host or a zone; always absolute, with or without the final dot.
pub(super) fn name(value: &DeValue<'_>) -> Result<Name, String> {
    name_of(text(value)?)
}

/// See [`name`].
pub(super) fn name_of(written: &str) -> Result<Name, String> {
    // Any octet is legal in a name, but a space or a slash in one is a slip of the keyboard: those who
    // mean it can write `\032`.
    let mut escaped = false;
    for character in written.chars() {
        let plain = character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.' | '*' | '\\');
        if !escaped && !plain {
            let hint = if character.is_ascii() {
                format!("write it as \\{:03} if it is meant", u32::from(character))
            } else {
                "write the name in its ASCII form (xn--…)".into()
            };
            return Err(format!("{written:?} is not a domain name: {character:?} in it; {hint}"));
        }
        escaped = !escaped && character == '\\';
    }
    written.parse().map_err(|why: NameError| format!("{written:?} is not a domain name: {why}"))
}

/// An IP address.
pub(super) fn address(value: &DeValue<'_>) -> Result<IpAddr, String> {
    let written = text(value)?;
    written.parse().map_err(|_| {
        let hint = if written.contains('/') {
            "an address has no prefix length"
        } else if written.parse::<std::net::SocketAddr>().is_ok() {
            "an address has no port; the monitor's port is set in the monitor"
        } else {
            "for a domain name use target"
        };
        format!("{written:?} is not an IPv4 or IPv6 address; {hint}")
    })
}

/// A set of client addresses: a prefix with its host bits zero, or `first-last`.
pub(super) fn subnet(value: &DeValue<'_>) -> Result<AddressRange, String> {
    let written = text(value)?;
    let wrong = || {
        format!(
            "{written:?} is not a subnet; allowed are a prefix, e.g. 198.51.100.0/24, and a range, \
             e.g. 203.0.113.7-203.0.113.40"
        )
    };
    let range = if let Some((first, last)) = written.split_once('-') {
        let first: IpAddr = first.trim().parse().map_err(|_| wrong())?;
        let last: IpAddr = last.trim().parse().map_err(|_| wrong())?;
        if first.is_ipv4() != last.is_ipv4() {
            return Err(format!("{written:?} begins in one address family and ends in the other"));
        }
        if first > last {
            return Err(format!("{written:?} ends before it begins"));
        }
        AddressRange { first, last }
    } else if let Ok(only) = written.parse::<IpAddr>() {
        AddressRange { first: only, last: only }
    } else {
        let net: IpNet = written.parse().map_err(|_| wrong())?;
        if net.trunc() != net {
            return Err(format!("{written:?} has host bits set; the prefix is {}", net.trunc()));
        }
        AddressRange { first: net.network(), last: net.broadcast() }
    };
    Ok(range)
}

/// A range of status codes: `"200"`, `"200-299"`; the bare number too.
pub(super) fn status(value: &DeValue<'_>) -> Result<(u16, u16), String> {
    let wrong = || format!("found {}; allowed are \"200\" and \"200-299\", within 100 to 599", shown(value));
    let written = match value {
        DeValue::String(written) => written.to_string(),
        DeValue::Integer(number) => number.to_string(),
        _ => return Err(wrong()),
    };
    let code = |digits: &str| -> Result<u16, String> {
        let all_digits = digits.len() == 3 && digits.bytes().all(|digit| digit.is_ascii_digit());
        let code = digits.parse().ok().filter(|code| all_digits && (100..=599).contains(code));
        code.ok_or_else(wrong)
    };
    let (low, high) = match written.split_once('-') {
        Some((low, high)) => (code(low)?, code(high)?),
        None => (code(&written)?, code(&written)?),
    };
    if low > high {
        return Err(format!("{written:?} ends before it begins"));
    }
    Ok((low, high))
}

/// Octets written as text, or as hexadecimal digits after `0x`; 1 to 255 of them.
pub(super) fn octets(value: &DeValue<'_>) -> Result<Vec<u8>, String> {
    let written = text(value)?;
    let octets = match written.strip_prefix("0x") {
        None => written.as_bytes().to_vec(),
        Some(digits) => digits
            .as_bytes()
            .chunks(2)
            .map(hex_octet)
            .collect::<Option<Vec<u8>>>()
            .ok_or_else(|| format!("found {}; after 0x come pairs of hexadecimal digits", shown(value)))?,
    };
    match octets.len() {
        1..=255 => Ok(octets),
        len => Err(format!("found {len} octets; allowed are 1 to 255")),
    }
}

/// Text of 1 to 255 octets, as one string of a TXT record holds.
pub(super) fn short_text(value: &DeValue<'_>) -> Result<String, String> {
    let written = text(value)?;
    match written.len() {
        1..=255 => Ok(written.to_owned()),
        len => Err(format!("found {len} octets; allowed are 1 to 255")),
    }
}

/// The octet that two hexadecimal digits mean.
pub(super) fn hex_octet(digits: &[u8]) -> Option<u8> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    match digits {
        &[high, low] => u8::try_from(digit(high)? << 4 | digit(low)?).ok(),
        _ => None,
    }
}

/// An address family's addresses of a list.
pub(super) fn by_family(addresses: &[IpAddr]) -> (Vec<Ipv4Addr>, Vec<Ipv6Addr>) {
    let mut families = (Vec::new(), Vec::new());
    for address in addresses {
        match address {
            IpAddr::V4(address) => families.0.push(*address),
            IpAddr::V6(address) => families.1.push(*address),
        }
    }
    families
}
