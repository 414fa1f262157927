//! SVCB and HTTPS record data (RFC 9460 §2.1).

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::lexer::Token;
use super::{rdata, types};

/// Parameters by name (RFC 9460 §14.3.2, RFC 9461, RFC 9540).
const KEYS: [(&str, u16); 9] = [
    ("mandatory", 0),
    ("alpn", 1),
    ("no-default-alpn", 2),
    ("port", 3),
    ("ipv4hint", 4),
    ("ech", 5),
    ("ipv6hint", 6),
    ("dohpath", 7),
    ("ohttp", 8),
];

/// Reads `priority target key=value …`.
pub(super) fn read(values: &[Token], origin: &[u8]) -> Result<Vec<u8>, (usize, String)> {
    let [priority, target, parameters @ ..] = values else {
        return Err((values.len(), "a priority and a target are wanted".into()));
    };
    let priority: u16 = priority
        .text
        .parse()
        .map_err(|_| (0, format!("{:?} is not a priority; allowed is 0 to 65535", priority.text)))?;
    let target = types::written(&target.text, origin).map_err(|why| (1, why))?;
    if priority == 0 && !parameters.is_empty() {
        return Err((2, "priority 0 is an alias, which has no parameters (RFC 9460 §2.4.2)".into()));
    }
    let mut by_key: BTreeMap<u16, Vec<u8>> = BTreeMap::new();
    for (i, token) in parameters.iter().enumerate() {
        let at = i + 2;
        let (name, value) = match token.text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (token.text.as_str(), None),
        };
        let key = key(name).ok_or_else(|| (at, format!("unknown parameter {name:?}; others are key123")))?;
        let value = parameter(key, name, value).map_err(|why| (at, why))?;
        if by_key.insert(key, value).is_some() {
            return Err((at, format!("the parameter {name} stands twice")));
        }
    }
    if let Some(mandatory) = by_key.get(&0) {
        for word in mandatory.chunks_exact(2) {
            let key = word.iter().fold(0u16, |key, &octet| key << 8 | u16::from(octet));
            if key == 0 || !by_key.contains_key(&key) {
                return Err((2, "mandatory names a parameter that is not there (RFC 9460 §8)".into()));
            }
        }
    }
    if by_key.contains_key(&2) && !by_key.contains_key(&1) {
        return Err((2, "no-default-alpn without alpn (RFC 9460 §7.1.1)".into()));
    }
    let mut wire = priority.to_be_bytes().to_vec();
    wire.extend_from_slice(&target);
    for (key, value) in by_key {
        let length =
            u16::try_from(value.len()).map_err(|_| (2, "a parameter that is too long".to_owned()))?;
        wire.extend_from_slice(&key.to_be_bytes());
        wire.extend_from_slice(&length.to_be_bytes());
        wire.extend_from_slice(&value);
    }
    Ok(wire)
}

fn key(name: &str) -> Option<u16> {
    let lower = name.to_ascii_lowercase();
    let listed = KEYS.iter().find(|(known, _)| *known == lower).map(|&(_, key)| key);
    listed.or_else(|| lower.strip_prefix("key")?.parse().ok().filter(|&key: &u16| key != u16::MAX))
}

fn parameter(key: u16, name: &str, value: Option<&str>) -> Result<Vec<u8>, String> {
    if matches!(key, 2 | 8) {
        return match value {
            None => Ok(Vec::new()),
            Some(_) => Err(format!("{name} has no value")),
        };
    }
    if key > 8 {
        return value.map_or_else(|| Ok(Vec::new()), types::octets);
    }
    let value = value.filter(|value| !value.is_empty()).ok_or_else(|| format!("{name} needs a value"))?;
    let mut wire = Vec::new();
    match key {
        0 => {
            let mut keys = Vec::new();
            for word in value.split(',') {
                keys.push(self::key(word).ok_or_else(|| format!("unknown parameter {word:?}"))?);
            }
            keys.sort_unstable();
            for key in &keys {
                wire.extend_from_slice(&key.to_be_bytes());
            }
            keys.dedup();
            if keys.len() * 2 != wire.len() {
                return Err("mandatory names a parameter twice".into());
            }
        }
        1 => {
            for protocol in listed(&types::octets(value)?) {
                let length = u8::try_from(protocol.len()).ok().filter(|&length| length > 0);
                wire.push(length.ok_or("a protocol of alpn has 1 to 255 octets")?);
                wire.extend_from_slice(&protocol);
            }
        }
        3 => {
            let port: u16 = value.parse().map_err(|_| format!("{value:?} is not a port"))?;
            wire.extend_from_slice(&port.to_be_bytes());
        }
        4 => {
            for address in value.split(',') {
                let parsed: Ipv4Addr =
                    address.parse().map_err(|_| format!("{address:?} is not an IPv4 address"))?;
                wire.extend_from_slice(&parsed.octets());
            }
        }
        5 => wire = rdata::base64(value)?,
        6 => {
            for address in value.split(',') {
                let parsed: Ipv6Addr =
                    address.parse().map_err(|_| format!("{address:?} is not an IPv6 address"))?;
                wire.extend_from_slice(&parsed.octets());
            }
        }
        _ => wire = types::octets(value)?,
    }
    Ok(wire)
}

/// Values between commas; `\,` is a comma and `\\` a backslash of a value (RFC 9460 appendix A.1).
fn listed(octets: &[u8]) -> Vec<Vec<u8>> {
    let mut values = vec![Vec::new()];
    let mut escaped = false;
    for &octet in octets {
        match octet {
            b'\\' if !escaped => {
                escaped = true;
                continue;
            }
            b',' if !escaped => values.push(Vec::new()),
            _ => {
                if let Some(value) = values.last_mut() {
                    value.push(octet);
                }
            }
        }
        escaped = false;
    }
    values
}
