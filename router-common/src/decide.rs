//! The oracle: what every client must be answered with (ROUTING.md §3–§5, §7).
//!
//! [`choose`] decides for a location and leaves open what only the client's address (a hash) or the
//! single query (a random number) settles; [`distribution`] settles the hash for one client. The table
//! compiler calls the first, the userspace server and `explain` the second, so both paths have one
//! decision.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use crate::atlas::{Atlas, Location};
use crate::lookup::{self, Client};
use crate::model::{EndpointId, Model, ProfileId};
use crate::name::Name;
use crate::share::Share;
use crate::view::HealthView;

mod asking;
pub(crate) mod dial;
mod expected;
mod nearest;
mod oracle;
mod settle;
mod why;

use asking::locate;
pub(crate) use asking::stand;
pub use expected::Expectations;
pub(crate) use nearest::{nearest_first, nearness};
pub(crate) use oracle::{Depends, Oracle, Verdict, What};
pub(crate) use settle::{Leaf, Served, Settled, settle};

/// What is asked for; availability is per asked type (ROUTING.md §4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Asked {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// An alias.
    Cname,
    /// Anything: one RRset (RFC 8482).
    Any,
}

/// Who asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asker {
    /// Source address of the query.
    pub source: IpAddr,
    /// A usable client subnet option (RFC 7871): the address, zero beyond the prefix, and SOURCE
    /// PREFIX-LENGTH, above 0.
    pub ecs: Option<(IpAddr, u8)>,
}

/// Everything a decision depends on, at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The configuration.
    pub model: Arc<Model>,
    /// What is known of clients; built from the same model.
    pub atlas: Arc<Atlas>,
    /// What the monitors say.
    pub health: Arc<HealthView>,
}

/// One RRset; never empty, without duplicates.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Records {
    /// IPv4 addresses.
    A(Vec<Ipv4Addr>),
    /// IPv6 addresses.
    Aaaa(Vec<Ipv6Addr>),
    /// An alias.
    Cname(Name),
}

impl Records {
    /// The same set in a fixed order, to compare sets.
    pub fn sorted(&self) -> Self {
        let mut sorted = self.clone();
        match &mut sorted {
            Self::A(addresses) => addresses.sort_unstable(),
            Self::Aaaa(addresses) => addresses.sort_unstable(),
            Self::Cname(_) => {}
        }
        sorted
    }
}

/// Every endpoint that an answer comes by: those that nest a profile on the way, outermost first, then the ones whose
/// records it holds.
pub type Credits = Arc<[EndpointId]>;

/// One possible answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// How often; above 0.
    pub share: Share,
    /// The endpoint that answers, the first of them when several answer alike; `None` for NODATA and
    /// for an RRset that is made of several endpoints' addresses.
    pub endpoint: Option<EndpointId>,
    /// The RRset; `None` is NODATA.
    pub records: Option<Records>,
    /// Seconds, the smallest on the path; 0 for NODATA, whose TTL is the zone's.
    pub ttl: u32,
    /// Whom it comes by, with the part of `share` that each has; none for NODATA. Several when endpoints answer alike.
    pub credits: Vec<(Share, Credits)>,
}

/// What one client is answered with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Distribution {
    /// Answers; those with equal records and TTL are one. Shares add up to exactly one.
    pub outcomes: Vec<Outcome>,
    /// SCOPE PREFIX-LENGTH of positive answers (NODATA carries 0): what the option would carry if the
    /// address that decided had come in one.
    pub scope: u8,
}

impl Distribution {
    /// The outcome of one query by a uniform random number. `None` only without outcomes.
    pub fn pick(&self, random: u64) -> Option<&Outcome> {
        let random = u128::from(random);
        let mut reached = Share::zero();
        for outcome in &self.outcomes {
            reached = reached.add(&outcome.share);
            if random < reached.scaled_up(64) {
                return Some(outcome);
            }
        }
        self.outcomes.last()
    }

    /// [`Self::pick`], and whom the outcome comes by this time.
    pub fn pick_credited(&self, random: u64) -> Option<(&Outcome, Option<&Credits>)> {
        let outcome = self.pick(random)?;
        let [_, _, ..] = outcome.credits.as_slice() else {
            return Some((outcome, outcome.credits.first().map(|(_, credits)| credits)));
        };
        let drawn = self.drawn().take_while(|&(first, ..)| first <= random).last();
        Some(drawn.map_or((outcome, None), |(_, outcome, credits)| (outcome, credits)))
    }

    /// The outcomes, each once for everyone it comes by, with the random numbers for which
    /// [`Self::pick_credited`] gives them: from the first on, up to those of the next. One that no number gives is
    /// left out.
    pub fn drawn(&self) -> impl Iterator<Item = (u64, &Outcome, Option<&Credits>)> {
        let parts = self.outcomes.iter().flat_map(|outcome| {
            let nobody = outcome.credits.is_empty().then_some((&outcome.share, outcome, None));
            let each = outcome.credits.iter().map(move |(share, credits)| (share, outcome, Some(credits)));
            nobody.into_iter().chain(each)
        });
        let mut parts = parts.peekable();
        let mut reached = Share::zero();
        let mut from = Some(0);
        std::iter::from_fn(move || {
            loop {
                let (share, outcome, credits) = parts.next()?;
                reached = reached.add(share);
                let first = from?;
                // Beyond 64 bits there is no number left.
                let next = u64::try_from(reached.scaled_up(64)).ok();
                from = next;
                if next != Some(first) || parts.peek().is_none() {
                    return Some((first, outcome, credits));
                }
            }
        })
    }
}

/// What of a client its answer depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dependence {
    /// Nothing: every client has the same distribution, of scope 0.
    Nothing,
    /// Its place: every client of [`Place::location`] has the same distribution but for the scope.
    Location,
    /// Its address, which is hashed.
    Address,
}

/// Where an asker is, as far as a profile looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Location id.
    pub location: u32,
    /// Scope of positive answers that do not depend on the address itself.
    pub scope: u8,
}

/// A decision for a location: what is left open is settled by the client's address and by chance.
#[derive(Clone, PartialEq, Debug)]
pub enum Choice {
    /// These records.
    Answer {
        /// The endpoint, when it is one.
        endpoint: Option<EndpointId>,
        /// The RRset.
        records: Records,
        /// Seconds.
        ttl: u32,
        /// Whom it comes by.
        credits: Credits,
    },
    /// No record of the asked type.
    Nodata,
    /// One of these at random, for each query anew. Shares add up to one.
    Random(Vec<(Share, Choice)>),
    /// One of these (two at least) by [`lookup::hash_client`] with this salt, evenly.
    Hashed {
        /// 12 bits.
        salt: u16,
        /// The choices.
        of: Vec<Choice>,
    },
}

impl Choice {
    /// Whether the client's address settles a part of it, so that the scope covers the hashed bits.
    pub fn is_hashed(&self) -> bool {
        match self {
            Self::Answer { .. } | Self::Nodata => false,
            Self::Random(parts) => parts.iter().any(|(_, part)| part.is_hashed()),
            Self::Hashed { .. } => true,
        }
    }

    /// Settles for one client and adds what remains to chance to `outcomes`.
    fn spread(&self, share: &Share, client: &Client, outcomes: &mut Outcomes) {
        match self {
            Self::Answer { endpoint, records, ttl, credits } => {
                outcomes.add(share, *endpoint, Some((records, credits)), *ttl);
            }
            Self::Nodata => outcomes.add(share, None, None, 0),
            Self::Random(parts) => {
                for (part, choice) in parts {
                    choice.spread(&share.mul(part), client, outcomes);
                }
            }
            Self::Hashed { of, .. } => {
                if let Some(choice) = self.hashed_to(client).and_then(|index| of.get(index)) {
                    choice.spread(share, client, outcomes);
                }
            }
        }
    }

    /// Which of the hashed choices a client gets.
    fn hashed_to(&self, client: &Client) -> Option<usize> {
        let Self::Hashed { salt, of } = self else { return None };
        hashed_index(client, *salt, of.len())
    }
}

/// Index that a client hashes to among `count`; `None` when they are none or more than a table holds.
pub(crate) fn hashed_index(client: &Client, salt: u16, count: usize) -> Option<usize> {
    let count = u16::try_from(count).ok().filter(|&count| count > 0)?;
    Some(lookup::scale(lookup::hash_client(client, salt), count).0 as usize)
}

/// Outcomes in the order found, equal ones merged.
#[derive(Default)]
struct Outcomes {
    list: Vec<Outcome>,
    index: HashMap<(Option<Records>, u32), usize>,
}

impl Outcomes {
    fn add(
        &mut self,
        share: &Share,
        endpoint: Option<EndpointId>,
        answer: Option<(&Records, &Credits)>,
        ttl: u32,
    ) {
        if share.is_zero() {
            return;
        }
        let records = answer.map(|(records, _)| records);
        let next = self.list.len();
        let at = *self.index.entry((records.map(Records::sorted), ttl)).or_insert(next);
        match self.list.get_mut(at) {
            Some(outcome) => {
                outcome.share = outcome.share.add(share);
                let Some((_, credits)) = answer else { return };
                match outcome.credits.iter_mut().find(|(_, held)| held == credits) {
                    Some((held, _)) => *held = held.add(share),
                    None => outcome.credits.push((share.clone(), Arc::clone(credits))),
                }
            }
            None => {
                let credits = answer.map(|(_, credits)| (share.clone(), Arc::clone(credits)));
                let (share, records, credits) =
                    (share.clone(), records.cloned(), credits.into_iter().collect());
                self.list.push(Outcome { share, endpoint, records, ttl, credits });
            }
        }
    }
}

/// The decision for a location.
pub fn choose(snapshot: &Snapshot, profile: ProfileId, asked: Asked, location: &Location) -> Choice {
    Oracle::new(snapshot).choose(profile, asked, location)
}

/// What a client is answered with.
pub fn distribution(snapshot: &Snapshot, profile: ProfileId, asked: Asked, asker: &Asker) -> Distribution {
    let standing = stand(&snapshot.model, &snapshot.atlas, profile, asker);
    let choice = choose(snapshot, profile, asked, standing.location);
    let mut outcomes = Outcomes::default();
    choice.spread(&Share::one(), &standing.client, &mut outcomes);
    Distribution { outcomes: outcomes.list, scope: standing.scope_of(&choice) }
}

/// What of this asker its [`distribution`] depends on.
pub fn dependence(snapshot: &Snapshot, profile: ProfileId, asked: Asked, asker: &Asker) -> Dependence {
    if !snapshot.atlas.looks_at_client(profile) {
        return Dependence::Nothing;
    }
    let standing = stand(&snapshot.model, &snapshot.atlas, profile, asker);
    match choose(snapshot, profile, asked, standing.location).is_hashed() {
        true => Dependence::Address,
        false => Dependence::Location,
    }
}

/// Where an asker is; the cheap part of a decision.
pub fn place(snapshot: &Snapshot, profile: ProfileId, asker: &Asker) -> Place {
    let found = locate(&snapshot.model, &snapshot.atlas, profile, asker);
    Place { location: found.id, scope: found.scope }
}

#[cfg(test)]
mod tests;
