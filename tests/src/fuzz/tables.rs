//! Files of data: tables in CSV, and a geo database.

use router_userspace::geo::{self, Wanted};
use router_userspace::latency;

/// Reads the octets as geo overrides and as a latency table.
///
/// # Panics
/// When a mistake has no place.
pub fn tables(octets: &[u8]) {
    let lines = octets.iter().filter(|&&octet| octet == b'\n').count() + 1;
    let faults = [geo::overrides("t.csv", octets).err(), latency::parse("t.csv", octets).err()];
    for fault in faults.iter().flatten().flatten() {
        assert!((1..=lines).contains(&fault.line) && !fault.message.is_empty(), "{fault}: of {lines} lines");
    }
}

/// Reads the octets as a database in MaxMind's format.
///
/// # Panics
/// When the reader does, or what it gives overlaps.
pub fn database(octets: &[u8]) {
    let Ok(rows) = geo::database(octets, Wanted { codes: true, coordinates: true }) else { return };
    for (net, _) in rows {
        assert_eq!(net, net.trunc(), "bits beyond the length");
    }
}
