//! How often, and when last, the userspace server has answered with each endpoint.
//!
//! A place belongs to a name for as long as the process lives: whatever model a thread still answers from, what it
//! counts is for the same endpoint.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use router_common::decide::Credits;
use router_common::model::{EndpointId, Model, ProfileId};

use super::{SHARD, SHARDS};

/// Places of the first chunk; each further one holds twice as many, so that none ever moves.
const FIRST: usize = 1 << 10;
/// Chunks; together four billion places.
const CHUNKS: usize = 22;

/// Who is answered with, and how long others may keep it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Credited {
    /// Every endpoint that the answer comes by.
    pub credits: Credits,
    /// Seconds.
    pub ttl: u32,
}

/// What was counted for one endpoint. Times are since the epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tallied {
    /// Answers.
    pub answers: u64,
    /// The last one.
    pub last: Duration,
    /// When the last one that is still valid somewhere ends: each answer's time and its TTL.
    pub until: Duration,
}

/// What was counted, by endpoint. As with [`super::Counts`] threads count in places of their own.
#[derive(Default)]
pub struct Registry {
    places: HashMap<String, usize>,
    store: Arc<Store>,
}

/// Where the endpoints of one model are counted.
pub struct Tallies {
    /// Place of each endpoint of each profile.
    places: Vec<Vec<usize>>,
    store: Arc<Store>,
}

#[derive(Default)]
struct Store([Shard; SHARDS]);

/// A thread's; made as far as it answers with something.
#[derive(Default)]
struct Shard([OnceLock<Box<[Slot]>>; CHUNKS]);

/// Times in milliseconds since the epoch.
#[derive(Default)]
struct Slot {
    answers: AtomicU64,
    last: AtomicU64,
    until: AtomicU64,
}

impl Registry {
    /// For a server that answers from this model.
    pub fn tallies(&mut self, model: &Model) -> Tallies {
        let mut places = Vec::with_capacity(model.profiles().len());
        for (id, profile) in (0..).map(ProfileId).zip(model.profiles()) {
            let of = (0..profile.endpoints.len() as u32).map(|index| {
                let next = self.places.len();
                *self.places.entry(model.endpoint_path(EndpointId { profile: id, index })).or_insert(next)
            });
            places.push(of.collect());
        }
        Tallies { places, store: Arc::clone(&self.store) }
    }

    /// What was counted for every endpoint that ever was, as `PROFILE/ENDPOINT`.
    pub fn all(&self) -> impl Iterator<Item = (&str, Tallied)> {
        self.places.iter().map(|(name, &place)| (name.as_str(), self.store.get(place)))
    }
}

impl Tallies {
    /// Counts an answer.
    pub(super) fn add(&self, Credited { credits, ttl }: &Credited, now: Duration) {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let until = now.saturating_add(u64::from(*ttl) * 1000);
        for endpoint in &**credits {
            let of = self.places.get(endpoint.profile.0 as usize);
            if let Some(&place) = of.and_then(|of| of.get(endpoint.index as usize)) {
                self.store.add(place, now, until);
            }
        }
    }
}

impl Store {
    fn add(&self, place: usize, now: u64, until: u64) {
        let (chunk, at) = chunk_of(place);
        let Some(shard) = SHARD.with(|&shard| self.0.get(shard)) else { return };
        let Some(chunk) = shard.0.get(chunk).map(|held| held.get_or_init(|| slots(chunk))) else { return };
        let Some(slot) = chunk.get(at) else { return };
        slot.answers.fetch_add(1, Ordering::Relaxed);
        slot.last.fetch_max(now, Ordering::Relaxed);
        slot.until.fetch_max(until, Ordering::Relaxed);
    }

    fn get(&self, place: usize) -> Tallied {
        let (chunk, at) = chunk_of(place);
        let mut all = Tallied::default();
        for slot in self.0.iter().filter_map(|shard| shard.0.get(chunk)?.get()?.get(at)) {
            all.answers += slot.answers.load(Ordering::Relaxed);
            all.last = all.last.max(Duration::from_millis(slot.last.load(Ordering::Relaxed)));
            all.until = all.until.max(Duration::from_millis(slot.until.load(Ordering::Relaxed)));
        }
        all
    }
}

/// Which chunk a place is in, and where in it.
const fn chunk_of(place: usize) -> (usize, usize) {
    let chunk = (place / FIRST + 1).ilog2() as usize;
    (chunk, place - FIRST * ((1 << chunk) - 1))
}

fn slots(chunk: usize) -> Box<[Slot]> {
    (0..FIRST << chunk).map(|_| Slot::default()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_has_one_in_a_chunk() {
        let mut expected = (0, 0);
        for place in 0..FIRST * 20 {
            assert_eq!(chunk_of(place), expected);
            expected = if expected.1 + 1 == FIRST << expected.0 {
                (expected.0 + 1, 0)
            } else {
                (expected.0, expected.1 + 1)
            };
        }
    }

    #[test]
    fn what_threads_count_adds_up() {
        let store = Store::default();
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let store = &store;
                scope.spawn(move || (0..500).for_each(|_| store.add(2000, 100 + thread, 900 - thread)));
            }
        });
        let all = store.get(2000);
        assert_eq!(all.answers, 2000);
        assert_eq!((all.last, all.until), (Duration::from_millis(103), Duration::from_millis(900)));
        assert_eq!(store.get(1999), Tallied::default());
    }
}
