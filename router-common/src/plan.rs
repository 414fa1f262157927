//! A plan: what would be otherwise if one configuration took the place of another.
//!
//! [`compare`] says which zones, names, profiles and endpoints come, go or change, and how traffic moves: for every
//! name, which share of the answers would be another one, weighed by the address space that clients come from.
//! Nothing is sampled. The classes of clients that the two worlds tell apart are few, each is asked for once on
//! both sides, and shares are exact.

use std::collections::HashMap;

use ipnet::IpNet;

use crate::decide::{Asked, Snapshot};
use crate::model::Model;
use crate::name::Name;
use crate::share::Share;

mod alike;
mod changes;
mod classes;
mod distance;
mod names;
mod settings;
mod traffic;
mod world;

/// What there is to know for a comparison besides the two worlds.
#[derive(Clone, Copy, Default, Debug)]
pub struct Options<'a> {
    /// Whether geography and latency table are the same on both sides: profiles that are alike then need not be
    /// asked. When in doubt, `false`.
    pub same_sources: bool,
    /// Queries counted for each profile, by name. A profile's are taken as spread evenly over its names.
    pub queries: Option<&'a HashMap<String, u64>>,
}

/// What is otherwise.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// What comes, goes and changes in the configuration, by kind and name.
    pub items: Vec<Item>,
    /// How answers move.
    pub traffic: Traffic,
}

/// What an [`Item`] is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A zone.
    Zone,
    /// An owner name.
    Name,
    /// A profile.
    Profile,
    /// An endpoint, `profile/endpoint`.
    Endpoint,
}

/// One thing that is not on both sides, or not alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Item {
    /// What it is.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// What becomes of it.
    pub change: Change,
}

/// What becomes of a thing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// It is new; what it is, in short.
    Added(String),
    /// It is gone; what it was, in short.
    Removed(String),
    /// These settings, at least one, are others.
    Changed(Vec<Setting>),
}

/// A setting that is another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    /// Its key in the configuration.
    pub key: &'static str,
    /// Its value before.
    pub before: String,
    /// Its value after.
    pub after: String,
}

impl Setting {
    fn new(key: &'static str, before: String, after: String) -> Self {
        Self { key, before, after }
    }
}

/// A share by what is asked and where clients are: `[IPv4, IPv6]` clients for each type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shares {
    /// Of answers to A.
    pub a: [Share; 2],
    /// Of answers to AAAA.
    pub aaaa: [Share; 2],
}

impl Default for Shares {
    fn default() -> Self {
        let none = || [Share::zero(), Share::zero()];
        Self { a: none(), aaaa: none() }
    }
}

impl Shares {
    /// The largest of the four: what a limit is held against.
    pub fn largest(&self) -> Share {
        self.a.iter().chain(&self.aaaa).max().cloned().unwrap_or_else(Share::zero)
    }

    /// Whether all four are nothing.
    pub fn is_zero(&self) -> bool {
        self.a.iter().chain(&self.aaaa).all(Share::is_zero)
    }

    fn map(&self, change: impl Fn(&Share) -> Share) -> Self {
        let both = |[ipv4, ipv6]: &[Share; 2]| [change(ipv4), change(ipv6)];
        Self { a: both(&self.a), aaaa: both(&self.aaaa) }
    }

    fn add(&mut self, other: &Self, weight: &Share) {
        let other = other.map(|share| share.mul(weight));
        let sums = self.a.iter_mut().chain(&mut self.aaaa);
        for (sum, share) in sums.zip(other.a.iter().chain(&other.aaaa)) {
            *sum = sum.add(share);
        }
    }

    fn part_of(&self, all: &Share) -> Self {
        self.map(|share| share.part_of(all))
    }
}

/// How answers move. Shares are of the address space that clients have: IPv4 unicast, and the IPv6 blocks that are
/// given to the regional registries.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Share of all answers that are others: other records, whatever their TTL. Every name counts as much as another.
    pub moved: Shares,
    /// The same with every profile weighed by its [`Options::queries`]; `None` when none were counted.
    pub moved_by_queries: Option<Shares>,
    /// Share of the clients for whom anything is otherwise, be it a weight.
    pub clients: Shares,
    /// Share of all answers that are NODATA and were not.
    pub nodata: Shares,
    /// Names with addresses that do not exist any more, nor are covered by a wildcard.
    pub gone: u64,
    /// Profiles that answer otherwise, those that move most first.
    pub steered: Vec<Steered>,
}

/// Names that were answered from one profile, and are answered from it or from another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Steered {
    /// The profile before; `records` for static records.
    pub before: String,
    /// The profile after.
    pub after: String,
    /// The names.
    pub names: Vec<Name>,
    /// Share of the answers that are others.
    pub moved: Shares,
    /// Share of the clients for whom anything is otherwise.
    pub clients: Shares,
    /// Share of the answers that are NODATA and were not.
    pub nodata: Shares,
    /// Whether something is otherwise for clients in no block that counts, private addresses for example.
    pub unseen: bool,
    /// Endpoints whose share of the answers is another, by path; `NODATA` among them.
    pub endpoints: Vec<EndpointShares>,
    /// A few of the largest prefixes whose answer is another.
    pub examples: Vec<Example>,
    /// A few of the largest prefixes that would get NODATA.
    pub nodata_examples: Vec<Example>,
}

/// An endpoint's share of a profile's answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EndpointShares {
    /// `profile/endpoint`, `NODATA` or `records`.
    pub path: String,
    /// Before.
    pub before: Shares,
    /// After.
    pub after: Shares,
}

/// What becomes of the clients in a prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Example {
    /// The prefix; every client in it is answered alike, but for hashes.
    pub prefix: IpNet,
    /// What is asked.
    pub asked: Asked,
    /// The endpoints that they get, with shares when there are several.
    pub before: String,
    /// The same after.
    pub after: String,
}

impl Plan {
    /// Whether nothing is otherwise.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty() && self.traffic.steered.is_empty()
    }

    /// How many things of a kind are new, gone and changed.
    pub fn count(&self, kind: Kind) -> [usize; 3] {
        let mut counts = [0; 3];
        for item in self.items.iter().filter(|item| item.kind == kind) {
            let [added, removed, changed] = &mut counts;
            match item.change {
                Change::Added(_) => *added += 1,
                Change::Removed(_) => *removed += 1,
                Change::Changed(_) => *changed += 1,
            }
        }
        counts
    }
}

/// What would be otherwise. The configurations are compared as they are written, the answers as they are given:
/// with health, and with what operators changed by hand.
pub fn compare(
    (written_before, before): (&Model, &Snapshot),
    (written_after, after): (&Model, &Snapshot),
    options: &Options<'_>,
) -> Plan {
    Plan {
        items: changes::compare(written_before, written_after),
        traffic: traffic::compare(before, after, options),
    }
}

#[cfg(test)]
mod tests;
