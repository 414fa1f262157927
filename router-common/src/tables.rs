//! The compiled tables as one image, with every base at 0: what the agent writes into a half.

use std::fmt;
use std::net::IpAddr;

use crate::abi::{
    Answer, Cell, Credit, Generation, Interface, Line, LocationLine, LocationWord, MAX_ADDRESSES,
    MAX_INTERFACES, MAX_VLANS, Owner,
};

/// One generation of tables.
#[derive(Clone, PartialEq, Debug)]
pub struct Tables {
    /// Hash key, numbers of slots and buckets, and where we answer; bases are 0.
    pub generation: Generation,
    /// Slots of names.
    pub owners: Vec<Owner>,
    /// Displacements of buckets, four a word.
    pub buckets: Vec<u64>,
    /// Partitions one after the other, four regions a word.
    pub regions: Vec<u64>,
    /// Blocks one after the other.
    pub answers: Vec<Answer>,
    /// Cells.
    pub cells: Vec<Cell>,
    /// Lines of long names and pieces.
    pub lines: Vec<Line>,
    /// Whom each tally counts for; the first is nobody's.
    pub credits: Vec<Credit>,
    /// From addresses to locations; the ways begin at [`Generation::location_roots`].
    pub locations: Vec<LocationLine>,
}

/// Where the fast path answers, and how: copied into every generation.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Frontage {
    /// Service addresses, at most [`MAX_ADDRESSES`] a family.
    pub addresses: Vec<IpAddr>,
    /// VLAN ids, at most [`MAX_VLANS`].
    pub vlans: Vec<u16>,
    /// Interfaces, at most [`MAX_INTERFACES`].
    pub interfaces: Vec<Interface>,
    /// Largest UDP payload sent, 512..=1232.
    pub edns_size: u16,
    /// [`Generation::PASS_COOKIE`] and others.
    pub flags: u16,
}

/// More of something than the tables have room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooMany {
    /// What.
    pub what: &'static str,
    /// How many are allowed.
    pub allowed: usize,
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "too many {} for the fast path (allowed: {})", self.what, self.allowed)
    }
}

impl std::error::Error for TooMany {}

impl Frontage {
    /// The generation record of tables under this frontage, before there are names.
    pub fn generation(&self, seed: [u64; 2], serial: u64) -> Result<Generation, TooMany> {
        let mut generation = Generation {
            seed,
            serial,
            owners: 0,
            owner_slots: 0,
            buckets: 0,
            bucket_count: 0,
            regions: 0,
            answers: 0,
            cells: 0,
            lines: 0,
            tallies: 0,
            locations: 0,
            location_roots: [LocationWord::NOWHERE; 2],
            edns_size: self.edns_size,
            flags: self.flags,
            ipv4_count: 0,
            ipv6_count: 0,
            vlan_count: 0,
            interface_count: 0,
            ipv4: [[0; 4]; MAX_ADDRESSES],
            ipv6: [[0; 16]; MAX_ADDRESSES],
            vlans: [0; MAX_VLANS],
            interfaces: [Interface::default(); MAX_INTERFACES],
        };
        for address in &self.addresses {
            match address {
                IpAddr::V4(address) => put(
                    &mut generation.ipv4,
                    &mut generation.ipv4_count,
                    address.octets(),
                    "IPv4 addresses in server.listen",
                )?,
                IpAddr::V6(address) => put(
                    &mut generation.ipv6,
                    &mut generation.ipv6_count,
                    address.octets(),
                    "IPv6 addresses in server.listen",
                )?,
            }
        }
        for &vlan in &self.vlans {
            put(&mut generation.vlans, &mut generation.vlan_count, vlan, "server.vlans")?;
        }
        for &interface in &self.interfaces {
            put(&mut generation.interfaces, &mut generation.interface_count, interface, "server.interfaces")?;
        }
        Ok(generation)
    }
}

fn put<T: PartialEq, const N: usize>(
    places: &mut [T; N],
    count: &mut u8,
    value: T,
    what: &'static str,
) -> Result<(), TooMany> {
    if places[..usize::from(*count)].contains(&value) {
        return Ok(());
    }
    let place = places.get_mut(usize::from(*count)).ok_or(TooMany { what, allowed: N })?;
    *place = value;
    *count += 1;
    Ok(())
}
