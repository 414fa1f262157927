//! Signs of life: whatever must be alive for queries to be answered counts its rounds, and somebody else looks
//! whether the counts move.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Counts the rounds of one thread or task.
#[derive(Clone, Debug, Default)]
pub struct Heart(Arc<AtomicU64>);

impl Heart {
    /// One more round.
    pub fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Where one thread or task is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beat {
    /// Whose.
    pub name: String,
    /// Rounds so far.
    pub rounds: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Pulse(Mutex<Vec<(String, Heart)>>);

impl Pulse {
    /// One more that must be alive.
    pub fn heart(&self, name: &str) -> Heart {
        let heart = Heart::default();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((name.to_owned(), heart.clone()));
        heart
    }

    /// Where they are.
    pub fn beats(&self) -> Vec<Beat> {
        let hearts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let beat = |(name, heart): &(String, Heart)| Beat {
            name: name.clone(),
            rounds: heart.0.load(Ordering::Relaxed),
        };
        hearts.iter().map(beat).collect()
    }
}
