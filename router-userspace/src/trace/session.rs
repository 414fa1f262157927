//! One reader: its share, its limit, its queue.

use std::cell::Cell;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use router_common::trace::{Rule, WINDOW_BITS};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use utoipa::ToSchema;

use super::filter::Filter;
use super::{Event, Wanted};
use crate::datapath;

/// Windows in a second, about.
const WINDOWS: u32 = 8;

/// What a reader got, and what not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Tally {
    /// Queries that were handed to it.
    pub sampled: u64,
    /// Queries that it would have got but for its limit per second.
    pub withheld: u64,
    /// Queries that found a ring or queue full.
    pub lost: u64,
}

/// See the module.
pub(super) struct Session {
    filter: Filter,
    /// A random number of 32 bits below it is a query in the share.
    threshold: u64,
    per_window: u32,
    queue: mpsc::Sender<Arc<Event>>,
    /// The window, and what was handed out in it.
    window: Mutex<(u64, u32)>,
    sampled: AtomicU64,
    withheld: AtomicU64,
    lost: AtomicU64,
}

impl Session {
    pub(super) fn new(wanted: &Wanted, queue: mpsc::Sender<Arc<Event>>) -> Self {
        let one_in = u64::from(wanted.sample.max(1));
        Self {
            filter: wanted.filter.clone(),
            threshold: ((1 << 32) + one_in / 2) / one_in,
            per_window: wanted.per_second.div_ceil(WINDOWS).max(1),
            queue,
            window: Mutex::default(),
            sampled: AtomicU64::new(0),
            withheld: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    pub(super) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Its rule in the fast path.
    pub(super) fn rule(&self) -> Rule {
        Rule { threshold: self.threshold, per_window: self.per_window, ..self.filter.rule() }
    }

    /// Whether a query of the userspace server is in the share.
    pub(super) fn samples(&self, random: u32) -> bool {
        self.filter.wants_userspace() && u64::from(random) < self.threshold
    }

    /// Takes an event, if it fits the filter and the limit. What came of it.
    pub(super) fn offer(&self, event: &Arc<Event>) -> Tally {
        let mut tally = Tally::default();
        if self.filter.fits(event) {
            if !self.is_within_limit() {
                tally.withheld = 1;
            } else if self.queue.try_send(Arc::clone(event)).is_ok() {
                tally.sampled = 1;
            } else {
                tally.lost = 1;
            }
            self.add(tally);
        }
        tally
    }

    fn is_within_limit(&self) -> bool {
        let now = datapath::monotonic() >> WINDOW_BITS;
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if window.0 != now {
            *window = (now, 0);
        }
        window.1 += 1;
        window.1 <= self.per_window
    }

    pub(super) fn add(&self, tally: Tally) {
        self.sampled.fetch_add(tally.sampled, Ordering::Relaxed);
        self.withheld.fetch_add(tally.withheld, Ordering::Relaxed);
        self.lost.fetch_add(tally.lost, Ordering::Relaxed);
    }

    pub(super) fn tally(&self) -> Tally {
        let [sampled, withheld, lost] =
            [&self.sampled, &self.withheld, &self.lost].map(|count| count.load(Ordering::Relaxed));
        Tally { sampled, withheld, lost }
    }
}

/// 32 uniform bits, of a sequence of the thread's own.
pub(super) fn random() -> u32 {
    thread_local! {
        /// Hash maps are keyed by the system's randomness.
        static STATE: Cell<u64> = Cell::new(RandomState::new().build_hasher().finish() | 1);
    }
    STATE.with(|state| {
        // xorshift64* (Vigna 2016).
        let mut word = state.get();
        word ^= word >> 12;
        word ^= word << 25;
        word ^= word >> 27;
        state.set(word);
        (word.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    })
}
