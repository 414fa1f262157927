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
    for faults in faults.iter().flatten() {
        let (last, others) = faults.split_last().expect("refused without a reason");
        for fault in others {
            assert!((1..=lines).contains(&fault.line), "{fault}: of {lines} lines");
        }
        // How many more there are is about the file as a whole.
        assert!((0..=lines).contains(&last.line) && (last.line > 0 || others.len() > 1), "{last}");
        assert!(faults.iter().all(|fault| !fault.message.is_empty()), "says nothing");
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
