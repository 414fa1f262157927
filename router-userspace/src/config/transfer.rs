//! `transfer` and `notify` of a `[[zone]]`: its secondaries.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use router_common::model::AddressRange;
use router_common::name::Name;
use toml::de::DeValue;

use super::key::Keys;
use super::reader::{Faults, Spot, Table, Value, shown, text};
use super::server::socket;
use super::values::{address, name, subnet};
use super::warnings::Warnings;
use crate::fault::nearest;
use crate::settings::{Allowed, Notified, Secondaries};

/// How an entry of `transfer` is called.
const TRANSFER: &str = "an entry of transfer";
/// How an entry of `notify` is called.
const NOTIFY: &str = "an entry of notify";

/// The secondaries of a zone, and the keys that they name, which may stand in a later file.
#[derive(Default)]
pub(super) struct Read {
    secondaries: Secondaries,
    named: Vec<(Name, Spot)>,
}

/// Reads both keys.
pub(super) fn read(table: &Table<'_>, warnings: &mut Warnings) -> Read {
    let mut read = Read::default();
    for entry in entries(table, "transfer") {
        let allowed = match entry.get_ref() {
            DeValue::Table(_) => allowed(table, entry, &mut read.named),
            written => report(table, "transfer", entry, lone_range(written))
                .map(|from| Allowed { from: Some(from), key: None }),
        };
        let Some(allowed) = allowed else { continue };
        if let Allowed { from: Some(from), key: None } = &allowed
            && is_everybody(from)
        {
            let message = format!("transfer: {from} without a key lets everybody fetch the zone");
            warnings.add(&table.spot_of(entry), message);
        }
        read.secondaries.transfer.push(allowed);
    }
    let mut seen = BTreeSet::new();
    for entry in entries(table, "notify") {
        let notified = match entry.get_ref() {
            DeValue::Table(_) => notified(table, entry, &mut read.named),
            written => report(table, "notify", entry, text(written).and_then(reachable))
                .map(|address| Notified { address, key: None, source: None }),
        };
        let Some(notified) = notified else { continue };
        if !seen.insert(notified.address) {
            let message = format!("notify: {} stands twice", notified.address);
            table.fault_by("notify", &table.spot_of(entry), message);
        }
        read.secondaries.notify.push(notified);
    }
    read
}

/// Puts the secondaries of all zones together; a key that is named must be there.
pub(super) fn all(reads: Vec<(Name, Read)>, keys: &Keys, faults: &Faults) -> BTreeMap<Name, Secondaries> {
    let mut secondaries = BTreeMap::new();
    for (zone, Read { secondaries: read, named }) in reads {
        for (key, spot) in named.iter().filter(|(key, _)| !keys.has(key)) {
            let known = keys.names();
            let hint = match nearest(&key.to_string(), known.iter().map(String::as_str)) {
                Some(near) => format!("did you mean {near:?}?"),
                None if known.is_empty() => "there is no [[key]]".into(),
                None => format!("there are {}", known.join(", ")),
            };
            faults.add(spot.fault(format!("key: no key is named {key}; {hint}")));
        }
        if read != Secondaries::default() {
            secondaries.insert(zone, read);
        }
    }
    secondaries
}

/// The entries of a list; a lone value is a list of one.
fn entries<'t>(table: &Table<'t>, key: &'static str) -> &'t [Value<'t>] {
    match table.value(key) {
        None => &[],
        Some(value) => match value.get_ref() {
            DeValue::Array(entries) => entries,
            _ => std::slice::from_ref(value),
        },
    }
}

fn report<T>(table: &Table<'_>, key: &'static str, at: &Value<'_>, taken: Result<T, String>) -> Option<T> {
    taken.map_err(|why| table.fault_by(key, &table.spot_of(at), format!("{key}: {why}"))).ok()
}

/// An entry of `transfer` that is no table.
fn lone_range(value: &DeValue<'_>) -> Result<AddressRange, String> {
    let written = value.as_str().ok_or_else(|| {
        format!(
            "found {}; allowed are e.g. \"192.0.2.7\", \"2001:db8::/32\" and {{ key = \"…\" }}",
            shown(value)
        )
    })?;
    subnet(value).map(AddressRange::meant).map_err(|why| {
        // Colons and slashes are what addresses have and names of keys have not.
        match written.strip_prefix("key:").or((!written.contains([':', '/'])).then_some(written)) {
            Some(key) if key.contains(char::is_alphabetic) => {
                format!("{written:?} is not an address; a key is written {{ key = {key:?} }}")
            }
            _ => why,
        }
    })
}

fn is_everybody(range: &AddressRange) -> bool {
    match (range.first, range.last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => first.to_bits() == 0 && last.to_bits() == u32::MAX,
        (IpAddr::V6(first), IpAddr::V6(last)) => first.to_bits() == 0 && last.to_bits() == u128::MAX,
        _ => false,
    }
}

fn allowed<'t>(table: &Table<'t>, entry: &'t Value<'t>, named: &mut Vec<(Name, Spot)>) -> Option<Allowed> {
    let entry = table.sub(TRANSFER, "transfer", entry)?;
    let from = entry.take("address", subnet).map(AddressRange::meant);
    let key = key(&entry, named);
    if !entry.has("address") && !entry.has("key") {
        entry.fault(format!("{TRANSFER} has an address, a key, or both"));
    }
    // One that could not be read must not let in more than was meant.
    let whole = from.is_some() == entry.has("address") && key.is_some() == entry.has("key");
    entry.finish();
    whole.then_some(Allowed { from, key })
}

fn notified<'t>(table: &Table<'t>, entry: &'t Value<'t>, named: &mut Vec<(Name, Spot)>) -> Option<Notified> {
    let entry = table.sub(NOTIFY, "notify", entry)?;
    let to = entry.take("address", |value| reachable(text(value)?));
    if !entry.has("address") {
        entry.missing("address", "\"192.0.2.7:53\"");
    }
    let key = key(&entry, named);
    let source = entry.take("source", |value| {
        let source = address(value)?;
        match to {
            Some(to) if to.is_ipv4() != source.is_ipv4() => {
                Err(format!("found {source}, which is not of the address family of {to}"))
            }
            _ => Ok(source),
        }
    });
    entry.finish();
    Some(Notified { address: to?, key, source })
}

fn key(entry: &Table<'_>, named: &mut Vec<(Name, Spot)>) -> Option<Name> {
    let key = entry.take("key", name)?;
    named.push((key.clone(), entry.value("key").map_or_else(|| entry.spot(), |value| entry.spot_of(value))));
    Some(key)
}

/// An address with a port that a message can be sent to.
fn reachable(written: &str) -> Result<SocketAddr, String> {
    let address = socket(written)?;
    if address.ip().is_unspecified() || address.ip().is_multicast() {
        return Err(format!("{written:?} is not the address of a server"));
    }
    Ok(address)
}
