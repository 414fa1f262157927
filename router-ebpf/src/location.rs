//! The search for a client's location, in a global function: the verifier follows its loop once, not at each place that
//! asks.

use router_common::abi::{Generation, LocationEntry, LocationWord};
use router_common::location;
use router_common::lookup::Client;

use crate::maps::LOCATIONS;

/// The entry of a client that was folded before.
#[inline(always)]
pub fn find(generation: &Generation, client: &Client) -> Option<LocationEntry> {
    let [high, low] = location::bits(client);
    let root = location::root(client, &generation.location_roots);
    LocationWord(find_location(root.0, generation.locations, high, low)).entry()
}

/// Where the way from `root` ends, for an address of 128 bits, in lines of which `first` is the first.
#[inline(never)]
#[unsafe(no_mangle)]
pub extern "C" fn find_location(root: u32, first: u32, high: u64, low: u64) -> u32 {
    location::find(LocationWord(root), [high, low], |line| LOCATIONS.get(first.wrapping_add(line))).0
}
