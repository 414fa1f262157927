//! How often each endpoint was answered with, and when last, by both paths and over restarts; and so from when on one
//! that is being drained is in nobody's cache any more.
//!
//! Pure: what was counted and the time are given. State is keyed by names. [`kept`] is what is kept on disk.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use router_common::abi::endpoint_hash;
use router_common::model::Model;

use crate::datapath::{self, Mark};
use crate::dns;

pub mod kept;
mod queries;
mod shares;

#[cfg(test)]
mod tests;

use kept::{Ended, Saved, SavedEndpoint};
pub use queries::queries;
pub use shares::{Shares, Standing};

/// What was handed out of one endpoint. Times are since the epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Total {
    /// Answers of the fast path.
    pub fast: u64,
    /// Answers of the userspace server.
    pub userspace: u64,
    /// The last one by either.
    pub last: Option<Duration>,
    /// When the last one that is still valid somewhere ends: each answer's time and the TTL that it had.
    pub until: Option<Duration>,
}

impl Total {
    /// Answers of both paths.
    pub fn answers(&self) -> u64 {
        self.fast.saturating_add(self.userspace)
    }

    fn at(&mut self, last: Duration, until: Duration) {
        self.last = self.last.max(Some(last));
        self.until = self.until.max(Some(until));
    }
}

/// By `PROFILE/ENDPOINT`.
pub type Totals = BTreeMap<String, Total>;

/// What both paths have counted so far in this process, and when that was read.
pub struct Reading<'a> {
    /// The fast path's, when there is one.
    pub fast: Option<&'a datapath::Tallies>,
    /// The userspace server's.
    pub userspace: &'a dns::Registry,
    /// Since the epoch.
    pub now: Duration,
    /// The same moment in nanoseconds of `CLOCK_MONOTONIC`.
    pub monotonic: u64,
}

impl Reading<'_> {
    /// A time of `CLOCK_MONOTONIC`, since the epoch.
    fn at(&self, nanoseconds: u64) -> Duration {
        if nanoseconds > self.monotonic {
            return self.now.saturating_add(Duration::from_nanos(nanoseconds - self.monotonic));
        }
        self.now.saturating_sub(Duration::from_nanos(self.monotonic - nanoseconds))
    }
}

/// A time in which answers may have been given that nobody counted: an agent was killed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Gap {
    from: Duration,
    to: Duration,
}

/// What is known besides a [`Reading`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Answers {
    /// Counted by agents before.
    base: Totals,
    /// What hashes stand for.
    names: HashMap<u64, String>,
    /// Nothing is known of the time before.
    since: Duration,
    gap: Option<Gap>,
    /// The endpoints that are being drained, and when they were out of the answers.
    out: BTreeMap<String, Duration>,
}

/// From when on an endpoint is in nobody's cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drained {
    /// When it was out of the answers.
    pub out: Duration,
    /// What was handed out of it.
    pub total: Total,
    /// From then on.
    pub safe: Duration,
    /// Whether it was answered with after it should have been out of the answers.
    pub still: bool,
    /// Whether `safe` is so late because not every answer was counted.
    pub unsure: bool,
}

/// What an answer may take to be sent after its endpoint was taken out of the answers.
pub const UNDER_WAY: Duration = Duration::from_secs(3);

impl Answers {
    /// Goes on where an earlier agent has ended, by what it kept and what it left in the maps. `now` is since the epoch.
    pub fn resume(saved: Option<Saved>, fast: Option<&datapath::Tallies>, now: Duration) -> Self {
        let Some(saved) = saved else { return Self { since: now, ..Self::default() } };
        // Its maps were found: they know better what its last generation counted.
        let found = saved.serving.is_some_and(|mark| fast.is_some_and(|fast| fast.marks.contains(&mark)));
        let complete = match saved.ended {
            Some(Ended::Detached) => true,
            Some(Ended::Attached) => found,
            None => false,
        };
        let lost = fast.is_some_and(|fast| fast.lost);
        let from = Duration::from_millis(saved.written);
        let millis = |at: Option<u64>| at.map(Duration::from_millis);
        let base = saved.endpoints.into_iter().map(|held| {
            let fast = held.fast.saturating_add(if found { 0 } else { held.serving });
            let (last, until) = (millis(held.last), millis(held.until));
            (held.endpoint, Total { fast, userspace: held.userspace, last, until })
        });
        Self {
            base: base.collect(),
            names: HashMap::new(),
            since: Duration::from_millis(saved.since),
            gap: (!complete || lost).then_some(Gap { from, to: now }),
            out: saved.out.into_iter().map(|(name, at)| (name, Duration::from_millis(at))).collect(),
        }
    }

    /// Takes note of the names of a model that is answered from.
    pub fn learn(&mut self, model: &Model) {
        for profile in model.profiles() {
            for endpoint in &profile.endpoints {
                self.names
                    .entry(endpoint_hash(&profile.name, &endpoint.name))
                    .or_insert_with(|| format!("{}/{}", profile.name, endpoint.name));
            }
        }
    }

    /// These are being drained and are out of the answers since `now`, the ones known before since then.
    pub fn draining<'n>(&mut self, names: impl Iterator<Item = &'n str>, now: Duration) {
        let before = std::mem::take(&mut self.out);
        self.out = names.map(|name| (name.to_owned(), before.get(name).copied().unwrap_or(now))).collect();
    }

    /// Everything that was ever counted.
    pub fn totals(&self, reading: &Reading<'_>) -> Totals {
        let mut totals = self.base.clone();
        let fast = reading.fast.into_iter().flat_map(|fast| fast.folded.iter().chain(&fast.live));
        for (hash, tallied) in fast {
            // A name that is in no model since this agent began, and that nobody asks for.
            let Some(name) = self.names.get(hash) else { continue };
            let total = totals.entry(name.clone()).or_default();
            total.fast = total.fast.saturating_add(tallied.answers);
            total.at(reading.at(tallied.last), reading.at(tallied.until));
        }
        for (name, tallied) in reading.userspace.all().filter(|(_, tallied)| tallied.answers > 0) {
            let total = totals.entry(name.to_owned()).or_default();
            total.userspace = total.userspace.saturating_add(tallied.answers);
            total.at(tallied.last, tallied.until);
        }
        totals
    }

    /// From when on an endpoint that is being drained is in nobody's cache; `None` when it is not drained. `ttl` is the
    /// longest TTL that it can have been answered with; `counted`: whether each answer is.
    pub fn drained(&self, name: &str, totals: &Totals, ttl: Duration, counted: bool) -> Option<Drained> {
        let out = *self.out.get(name)?;
        let total = totals.get(name).copied().unwrap_or_default();
        let gap = self.gap.filter(|gap| out > gap.from).map(|gap| gap.to.min(out));
        let uncounted = (!counted).then_some(out);
        // It may have been answered with until then.
        let unknown = [Some(self.since.min(out)), gap, uncounted].into_iter().flatten().max();
        let assumed = unknown.map(|at| at.saturating_add(ttl));
        let known = total.until.max(Some(out)).unwrap_or(out);
        let safe = assumed.map_or(known, |assumed| assumed.max(known));
        let still = total.last.is_some_and(|last| last > out.saturating_add(UNDER_WAY));
        Some(Drained { out, total, safe, still, unsure: safe > known })
    }

    /// What is to be kept. `ended`: how the agent ends, when it does.
    pub fn kept(&self, reading: &Reading<'_>, ended: Option<Ended>) -> Saved {
        let mut serving: HashMap<&str, u64> = HashMap::new();
        let (mut mark, mut counted): (Option<Mark>, Vec<Mark>) = (None, Vec::new());
        if let Some(fast) = reading.fast {
            for (hash, tallied) in &fast.live {
                if let Some(name) = self.names.get(hash) {
                    serving.insert(name, tallied.answers);
                }
            }
            (mark, counted) = (fast.mark, fast.marks.clone());
        }
        let millis = |at: Duration| u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        let endpoints = self.totals(reading).into_iter().map(|(name, total)| {
            let serving = serving.get(name.as_str()).copied().unwrap_or_default();
            SavedEndpoint {
                endpoint: name,
                fast: total.fast.saturating_sub(serving),
                serving,
                userspace: total.userspace,
                last: total.last.map(millis),
                until: total.until.map(millis),
            }
        });
        Saved {
            version: kept::VERSION,
            written: millis(reading.now),
            ended,
            since: millis(self.since),
            counted,
            serving: mark,
            out: self.out.iter().map(|(name, &at)| (name.clone(), millis(at))).collect(),
            endpoints: endpoints.collect(),
        }
    }
}
