//! What happens to a running agent, as one stream: numbered, timed, and the last of it kept in a ring.
//!
//! Whoever tells waits for nobody: readers copy from the ring at their own pace ([`Reader`]), and what one did
//! not fetch before it was overwritten is counted as missed, for this reader and altogether.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use utoipa::ToSchema;

mod event;
mod statuses;

pub use event::{Event, Kind, Notice, OverrideChange};
pub use statuses::Seen;
pub(crate) use statuses::word;

/// Events that are kept.
pub const RING: usize = 4096;
/// Readers at one time, at most.
pub const READERS: usize = 64;
/// Events that a reader takes at once, at most.
const PORTION: usize = 256;

/// One event of the stream.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Told {
    /// Its number, from 1 on since the agent started, without a gap.
    pub sequence: u64,
    /// When it happened, milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// The stream of one run of the agent.
pub struct Stream {
    run: u64,
    ring: Mutex<Ring>,
    /// The newest sequence number; wakes those who wait.
    newest: watch::Sender<u64>,
    readers: AtomicUsize,
    missed: AtomicU64,
}

#[derive(Default)]
struct Ring {
    told: VecDeque<Arc<Told>>,
    /// Events so far.
    count: u64,
    by_kind: [u64; Kind::ALL.len()],
}

/// Figures of a stream.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct EventsReport {
    /// Events since the agent started, by kind.
    pub told: BTreeMap<String, u64>,
    /// Who reads.
    pub readers: usize,
    /// Events that readers were too slow for, summed over all of them.
    pub missed: u64,
}

impl Stream {
    /// An empty one. `now` is the time since the epoch, and names this run.
    pub fn new(now: Duration) -> Self {
        Self {
            run: millis(now),
            ring: Mutex::default(),
            newest: watch::Sender::new(0),
            readers: AtomicUsize::new(0),
            missed: AtomicU64::new(0),
        }
    }

    /// Which run of an agent this is: a number that another run does not have.
    pub fn run(&self) -> u64 {
        self.run
    }

    /// Tells what happened at a time since the epoch. Never waits for a reader.
    pub fn tell(&self, at: Duration, event: Event) {
        let mut ring = self.ring();
        ring.count += 1;
        if let Some(count) = ring.by_kind.get_mut(event.kind() as usize) {
            *count += 1;
        }
        let sequence = ring.count;
        if ring.told.len() >= RING {
            ring.told.pop_front();
        }
        ring.told.push_back(Arc::new(Told { sequence, at_ms: millis(at), event }));
        drop(ring);
        self.newest.send_replace(sequence);
    }

    /// A reader of what comes after a sequence number (0: of all that is kept), or, without one, of what comes
    /// from now on. `None` when there are [`READERS`] already.
    pub fn reader(self: &Arc<Self>, since: Option<u64>) -> Option<Reader> {
        let taken = self.readers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |readers| {
            (readers < READERS).then_some(readers + 1)
        });
        taken.ok()?;
        let newest = self.newest.subscribe();
        let count = self.ring().count;
        // Whoever names a number that does not exist means another run, whose end they have seen.
        let next = since.map_or(count, |since| since.min(count)) + 1;
        // What was gone before the reader came is not missed, it was never promised.
        let next = next.max(self.oldest());
        Some(Reader { stream: Arc::clone(self), newest, next })
    }

    /// The oldest sequence number that is kept, or that of the first event to come.
    pub fn oldest(&self) -> u64 {
        let ring = self.ring();
        ring.told.front().map_or(ring.count + 1, |told| told.sequence)
    }

    /// The newest sequence number, 0 before the first.
    pub fn newest(&self) -> u64 {
        self.ring().count
    }

    /// Its figures.
    pub fn report(&self) -> EventsReport {
        let by_kind = self.ring().by_kind;
        let told = Kind::ALL.iter().zip(by_kind).map(|(kind, count)| (kind.to_string(), count));
        EventsReport {
            told: told.collect(),
            readers: self.readers.load(Ordering::Relaxed),
            missed: self.missed.load(Ordering::Relaxed),
        }
    }

    /// Nothing under this lock can leave the ring half changed, and none holds it for longer than a copy takes.
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One who reads.
pub struct Reader {
    stream: Arc<Stream>,
    newest: watch::Receiver<u64>,
    /// The sequence number to be read next.
    next: u64,
}

/// What a reader gets at once.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Portion {
    /// Events before these that are gone, because the reader was too slow.
    pub missed: u64,
    /// In their order.
    pub told: Vec<Arc<Told>>,
}

impl Reader {
    /// What there is, without waiting; nothing when everything was read.
    pub fn take(&mut self) -> Portion {
        let ring = self.stream.ring();
        let oldest = ring.told.front().map_or(ring.count + 1, |told| told.sequence);
        let missed = oldest.saturating_sub(self.next);
        self.next += missed;
        let from = usize::try_from(self.next - oldest).unwrap_or(usize::MAX);
        let told: Vec<Arc<Told>> = ring.told.iter().skip(from).take(PORTION).cloned().collect();
        drop(ring);
        self.next += told.len() as u64;
        self.stream.missed.fetch_add(missed, Ordering::Relaxed);
        Portion { missed, told }
    }

    /// Waits until there is something. Can be given up and called again.
    pub async fn read(&mut self) -> Portion {
        loop {
            self.newest.borrow_and_update();
            let portion = self.take();
            if !portion.told.is_empty() {
                return portion;
            }
            if self.newest.changed().await.is_err() {
                // The stream lives as long as its readers, so that this is never seen.
                std::future::pending::<()>().await;
            }
        }
    }

    /// The stream that is read.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.stream.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_millis(1_700_000_000_123);

    fn stream(events: u64) -> Arc<Stream> {
        let stream = Arc::new(Stream::new(NOW));
        for generation in 1..=events {
            stream.tell(NOW, event(generation));
        }
        stream
    }

    fn event(generation: u64) -> Event {
        Event::Started { version: String::from("1"), pid: 1, generation }
    }

    fn numbers(portion: &Portion) -> Vec<u64> {
        portion.told.iter().map(|told| told.sequence).collect()
    }

    #[test]
    fn a_reader_gets_what_it_asked_for() {
        let stream = stream(5);
        let mut from_now = stream.reader(None).expect("room");
        let mut later = stream.reader(Some(3)).expect("room");
        let mut all = stream.reader(Some(0)).expect("room");
        let mut of_another_run = stream.reader(Some(1000)).expect("room");
        assert_eq!(numbers(&from_now.take()), [0; 0]);
        assert_eq!(numbers(&later.take()), [4, 5]);
        assert_eq!(numbers(&all.take()), [1, 2, 3, 4, 5]);
        stream.tell(NOW, event(6));
        for reader in [&mut from_now, &mut later, &mut all, &mut of_another_run] {
            let portion = reader.take();
            assert_eq!((numbers(&portion), portion.missed), (vec![6], 0));
            assert_eq!(reader.take(), Portion::default());
        }
        assert_eq!(stream.report().readers, 4);
        drop((from_now, later, all, of_another_run));
        assert_eq!(stream.report().readers, 0);
    }

    #[test]
    fn a_slow_reader_is_told_what_it_missed_and_a_late_one_missed_nothing() {
        let stream = stream(1);
        let mut slow = stream.reader(Some(0)).expect("room");
        for generation in 0..RING as u64 + 9 {
            stream.tell(NOW, event(generation));
        }
        let mut late = stream.reader(Some(0)).expect("room");
        let portion = slow.take();
        assert_eq!((portion.missed, portion.told.len()), (10, PORTION));
        assert_eq!(portion.told[0].sequence, 11);
        let portion = late.take();
        assert_eq!((portion.missed, portion.told[0].sequence), (0, 11));
        let report = stream.report();
        assert_eq!((report.missed, report.told["started"]), (10, RING as u64 + 10));
        assert_eq!((stream.oldest(), stream.newest()), (11, RING as u64 + 10));
    }

    #[test]
    fn readers_are_bounded() {
        let stream = stream(0);
        let readers: Vec<Reader> = (0..READERS).filter_map(|_| stream.reader(None)).collect();
        assert_eq!(readers.len(), READERS);
        assert!(stream.reader(None).is_none());
        drop(readers);
        assert!(stream.reader(None).is_some());
    }

    #[tokio::test]
    async fn one_who_waits_is_woken() {
        let stream = stream(0);
        let mut reader = stream.reader(None).expect("room");
        let waiting = tokio::spawn(async move { reader.read().await });
        tokio::task::yield_now().await;
        stream.tell(NOW, event(1));
        let portion = tokio::time::timeout(Duration::from_secs(10), waiting).await.expect("woken");
        assert_eq!(numbers(&portion.expect("no panic")), [1]);
    }
}
