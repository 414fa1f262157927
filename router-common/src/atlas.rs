//! The atlas: what is known of every client address, and which addresses no profile tells apart.
//!
//! All prefix sources (geography, latency table, subnets of all profiles) are laid over one another.
//! Stretches of which the same is known share their *facts*; facts that no profile of the model can
//! tell apart, whatever the health, are one *location*. The address space of a family is a list of
//! *runs* of one location, and a run is cut into the fewest aligned prefixes, its *entries*. So an
//! entry's length is the shortest valid scope (ROUTING.md §7).
//!
//! Special blocks (RFC 7871 §11.3) of which nothing is known are entries of their own *inside* the
//! entry around them: an address there matches the longer prefix. `::ffff:0:0/96` and `64:ff9b::/96`
//! are looked up as IPv4 (see [`Client::fold`]), so in the IPv6 runs they stand apart and no entry
//! spans them.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::lookup::Client;
use crate::model::{Coordinates, GeoCode, Model, ProfileId};
use crate::view::{Geography, Latency};

mod lens;
mod overlay;
pub(crate) mod prefix;
mod special;
mod track;

use lens::Lenses;
use overlay::{Needs, Overlay};
use special::Block;
use track::Track;

/// What is known of a client.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Location {
    /// Its codes but `WORLD`, narrowest first.
    codes: [Option<GeoCode>; 3],
    /// Where it is, when the geo database says so and a profile needs it.
    pub coordinates: Option<Coordinates>,
    /// Milliseconds to regions by [`Atlas::region_id`], ascending.
    latency: Arc<[(u16, f64)]>,
    /// Endpoint (its position plus one) by subnet map, ascending.
    members: Arc<[(u32, u32)]>,
}

impl Location {
    /// Its codes from narrow to wide; `WORLD` is always the last.
    pub fn codes(&self) -> impl Iterator<Item = GeoCode> {
        self.codes.into_iter().flatten().chain([GeoCode::World])
    }

    /// Milliseconds to a region by the latency table.
    pub fn latency(&self, region: u16) -> Option<f64> {
        let at = self.latency.binary_search_by_key(&region, |&(id, _)| id).ok()?;
        self.latency.get(at).map(|&(_, milliseconds)| milliseconds)
    }

    /// Endpoint of a subnet map whose set holds the client.
    fn member(&self, map: u32) -> Option<u32> {
        let at = self.members.binary_search_by_key(&map, |&(id, _)| id).ok()?;
        self.members.get(at)?.1.checked_sub(1)
    }
}

/// What [`Atlas::find`] finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Location id.
    pub location: u32,
    /// Length of the entry's own prefix: the valid scope, in bits of the (folded) family.
    pub prefix_len: u8,
    /// A special block that no table mentions.
    pub special: bool,
}

/// How a profile divides the locations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Partition {
    /// Not at all: one region, and the client is not looked up.
    Trivial,
    /// Into regions.
    Regions {
        /// Region of each location.
        of: Arc<[u16]>,
        /// A location of each region.
        representatives: Vec<u32>,
    },
    /// Into more regions than a table can name.
    TooMany,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Atlas {
    /// Distinct facts; the first is "nothing known".
    facts: Vec<Location>,
    /// Location id of each facts.
    location_of: Vec<u32>,
    /// Facts that stand for each location.
    representatives: Vec<u32>,
    segments4: Track<u32>,
    segments6: Track<u128>,
    runs4: Track<u32>,
    runs6: Track<u128>,
    special4: Vec<Block>,
    special6: Vec<Block>,
    regions: HashMap<String, u16>,
    places: Vec<Option<Coordinates>>,
    /// Subnet map of each profile.
    maps: Vec<Option<u32>>,
    lenses: Lenses,
}

impl Atlas {
    /// Lays all sources over one another. Rows and prefixes that no profile of the model looks at are
    /// left out. IPv6 prefixes inside the two folding blocks are taken as the IPv4 ones they mean.
    pub fn build(model: &Model, geography: &Geography, latency: &Latency) -> Self {
        let needs = Needs::of(model);
        let overlay = Overlay::build(&needs, geography, latency);
        let lenses = Lenses::build(model, &needs, &overlay.facts);
        let location_of = lenses.location_of.clone();
        let representatives = lenses.representatives.clone();
        let runs4 = overlay.ipv4.map(|facts| location(&location_of, facts), |_| 0);
        let runs6 = overlay.ipv6.map(|facts| location(&location_of, facts), special::folding_block);
        Self {
            special4: special::unmentioned(&special::IPV4, |first, last| {
                overlay.ipv4.all(first as u32, last as u32, 0)
            }),
            special6: special::unmentioned(&special::IPV6, |first, last| overlay.ipv6.all(first, last, 0)),
            facts: overlay.facts,
            location_of,
            representatives,
            segments4: overlay.ipv4,
            segments6: overlay.ipv6,
            runs4,
            runs6,
            regions: needs.region_ids,
            places: needs.places,
            maps: needs.maps,
            lenses,
        }
    }

    /// The entry of a folded client.
    pub fn find(&self, client: &Client) -> Entry {
        let (address, bits) = number(client);
        let specials = if bits == 32 { &self.special4 } else { &self.special6 };
        if let Some(block) = specials.iter().find(|block| block.contains(address)) {
            return Entry { location: location(&self.location_of, 0), prefix_len: block.len, special: true };
        }
        let (location, first, last) = if bits == 32 {
            let (location, first, last) = self.runs4.at(address as u32);
            (location, first.into(), last.into())
        } else {
            self.runs6.at(address)
        };
        Entry { location, prefix_len: prefix::around(address, first, last, bits), special: false }
    }

    /// What is known of a folded client itself. Every client of a location has equal decisions, but
    /// what is known of them can differ.
    pub fn facts(&self, client: &Client) -> &Location {
        let (address, bits) = number(client);
        let facts =
            if bits == 32 { self.segments4.at(address as u32).0 } else { self.segments6.at(address).0 };
        self.facts.get(facts as usize).unwrap_or_else(|| self.default_location())
    }

    /// What stands for a location; of an unknown id, the default.
    pub fn location(&self, id: u32) -> &Location {
        self.representatives
            .get(id as usize)
            .and_then(|&facts| self.facts.get(facts as usize))
            .unwrap_or_else(|| self.default_location())
    }

    /// Number of locations; ids are below.
    pub fn locations(&self) -> u32 {
        self.representatives.len() as u32
    }

    /// The location of which nothing is known.
    pub fn default_location(&self) -> &Location {
        static NOTHING: std::sync::LazyLock<Location> = std::sync::LazyLock::new(Location::default);
        self.facts.first().unwrap_or(&NOTHING)
    }

    /// All IPv4 entries: address, prefix length, location, special. They cover the family; special
    /// ones lie inside others.
    pub fn entries4(&self) -> impl Iterator<Item = (Ipv4Addr, u8, u32, bool)> {
        self.runs4
            .stretches()
            .flat_map(|(location, first, last)| {
                prefix::cut(first.into(), last.into(), 32).map(move |(address, len)| (address, len, location))
            })
            .filter(|&(address, len, _)| !self.special4.iter().any(|block| block.is(address, len)))
            .map(|(address, len, location)| (address, len, location, false))
            .chain(
                self.special4
                    .iter()
                    .map(|block| (block.first, block.len, location(&self.location_of, 0), true)),
            )
            .map(|(address, len, location, special)| {
                (Ipv4Addr::from_bits(address as u32), len, location, special)
            })
    }

    /// All IPv6 entries, as [`Self::entries4`].
    pub fn entries6(&self) -> impl Iterator<Item = (Ipv6Addr, u8, u32, bool)> {
        self.runs6
            .stretches()
            .flat_map(|(location, first, last)| {
                prefix::cut(first, last, 128).map(move |(address, len)| (address, len, location))
            })
            .filter(|&(address, len, _)| !self.special6.iter().any(|block| block.is(address, len)))
            .map(|(address, len, location)| (address, len, location, false))
            .chain(
                self.special6
                    .iter()
                    .map(|block| (block.first, block.len, location(&self.location_of, 0), true)),
            )
            .map(|(address, len, location, special)| (Ipv6Addr::from_bits(address), len, location, special))
    }

    /// The IPv4 addresses as consecutive stretches of one location: location, first and last address.
    pub fn stretches4(&self) -> impl Iterator<Item = (u32, u128, u128)> {
        self.runs4.stretches().map(|(location, first, last)| (location, first.into(), last.into()))
    }

    /// The IPv6 addresses, as [`Self::stretches4`].
    pub fn stretches6(&self) -> impl Iterator<Item = (u32, u128, u128)> {
        self.runs6.stretches()
    }

    /// Whether an IPv6 address is looked up as an IPv4 one. A stretch is wholly so or not at all.
    pub fn is_folded(address: u128) -> bool {
        special::folding_block(address) != 0
    }

    /// Whether the client can make a difference to a profile or to what it nests: if not, no location
    /// is looked up and the scope is 0.
    pub fn looks_at_client(&self, profile: ProfileId) -> bool {
        self.lenses.looks(profile)
    }

    /// How a profile divides the locations. Exact for profiles that are bound to a name or that no
    /// other nests.
    pub fn partition(&self, profile: ProfileId) -> Partition {
        self.lenses.partition(profile)
    }

    /// Endpoint of this profile (position) whose subnets hold the client. Subnets of disabled endpoints
    /// are absent; those of stopped ones too where an override only counts while healthy.
    pub fn member(&self, profile: ProfileId, location: &Location) -> Option<u32> {
        location.member((*self.maps.get(profile.0 as usize)?)?)
    }

    /// Id of a performance region that some endpoint is in.
    pub fn region_id(&self, region: &str) -> Option<u16> {
        self.regions.get(region).copied()
    }

    /// Place of a performance region.
    pub fn region_place(&self, region: u16) -> Option<Coordinates> {
        self.places.get(usize::from(region)).copied().flatten()
    }
}

fn location(location_of: &[u32], facts: u32) -> u32 {
    location_of.get(facts as usize).copied().unwrap_or(0)
}

/// A folded client's address as a number, and the bits of its family.
fn number(client: &Client) -> (u128, u8) {
    let whole = u128::from_be_bytes(client.octets);
    if client.family == 4 { (whole >> 96, 32) } else { (whole, 128) }
}

#[cfg(test)]
mod tests;
