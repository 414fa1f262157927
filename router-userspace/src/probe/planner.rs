//! Which target is probed next, and when: the engine's plan, with time as an argument.
//!
//! One ordered set of due times serves any number of targets; a target is either in it or in flight, so
//! no target has two probes under way.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use router_common::model::ProbeTarget;

use crate::settings::Probes;

/// How often a target is probed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// From the start of one probe to the start of the next, ±10 %; to the second one 50 to 100 %.
    pub interval: Duration,
    /// Bound on one probe, everything included.
    pub timeout: Duration,
}

/// What the probes of this machine may cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Probes under way at one time; at least 1.
    pub in_flight: usize,
    /// Probes started per second; at least 1.
    pub per_second: u32,
    /// Programs of `exec` monitors running at one time; at least 1.
    pub programs: usize,
    /// Seed of the jitter; `None` draws one, so that several machines do not beat in time.
    pub seed: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self::from(Probes::default())
    }
}

impl From<Probes> for Limits {
    fn from(Probes { per_second, in_flight, programs }: Probes) -> Self {
        Self { in_flight, per_second, programs, seed: None }
    }
}

/// A target for as long as it stays in the plan; never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Key(u64);

/// What there is to do.
#[derive(Debug)]
pub(super) enum Next {
    /// Probe this now; [`Planner::finished`] must follow.
    Start(Start),
    /// Nothing before this moment.
    Wait(Instant),
    /// Nothing until a probe ends or the plan changes.
    Idle,
}

/// A probe to start.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) key: Key,
    pub(super) target: Arc<ProbeTarget>,
    pub(super) timeout: Duration,
    /// Behind its due time; `None` for a target's first probe, which is due at once and paced.
    pub(super) late: Option<Duration>,
}

/// What a new set of targets changed.
#[derive(Debug, Default)]
pub(super) struct Replaced {
    pub(super) added: usize,
    pub(super) kept: usize,
    pub(super) gone: Vec<Key>,
}

struct Slot {
    target: Arc<ProbeTarget>,
    schedule: Schedule,
    /// `None` while in flight.
    due: Option<Instant>,
    started: Option<Instant>,
    /// Whether the first probe is over.
    repeats: bool,
}

/// The plan.
pub(super) struct Planner {
    slots: HashMap<Key, Slot>,
    keys: HashMap<Arc<ProbeTarget>, Key>,
    due: BTreeSet<(Instant, Key)>,
    next_key: u64,
    /// Those of removed targets included, until they have ended.
    in_flight: usize,
    most_in_flight: usize,
    pace: Pace,
    jitter: Jitter,
}

impl Planner {
    pub(super) fn new(limits: Limits, seed: u64) -> Self {
        Self {
            slots: HashMap::new(),
            keys: HashMap::new(),
            due: BTreeSet::new(),
            next_key: 0,
            in_flight: 0,
            most_in_flight: limits.in_flight.max(1),
            pace: Pace::new(limits.per_second),
            jitter: Jitter(seed),
        }
    }

    /// Changes the limits; the seed stays.
    pub(super) fn set_limits(&mut self, limits: Limits) {
        self.most_in_flight = limits.in_flight.max(1);
        self.pace = Pace::new(limits.per_second);
    }

    /// Replaces the set of targets. New ones are due at once; kept ones keep their place in time, or
    /// move forward when their interval became shorter. Of equal targets the smallest interval counts.
    pub(super) fn replace(&mut self, targets: Vec<(ProbeTarget, Schedule)>, now: Instant) -> Replaced {
        let mut wanted: HashMap<ProbeTarget, Schedule> = HashMap::with_capacity(targets.len());
        // In the order given, so that what stands first in the file is probed first.
        let mut order = Vec::with_capacity(targets.len());
        for (target, schedule) in targets {
            match wanted.get_mut(&target) {
                Some(known) if known.interval <= schedule.interval => {}
                Some(known) => *known = schedule,
                None => {
                    wanted.insert(target.clone(), schedule);
                    order.push(target);
                }
            }
        }
        let mut replaced = Replaced::default();
        let gone: Vec<Key> = self
            .slots
            .iter()
            .filter(|(_, slot)| !wanted.contains_key(&*slot.target))
            .map(|(&key, _)| key)
            .collect();
        for &key in &gone {
            self.remove(key);
        }
        replaced.gone = gone;
        for target in order {
            let Some(&schedule) = wanted.get(&target) else { continue };
            match self.keys.get(&target).copied() {
                Some(key) => {
                    replaced.kept += 1;
                    self.reschedule(key, schedule);
                }
                None => {
                    replaced.added += 1;
                    self.insert(target, schedule, now);
                }
            }
        }
        replaced
    }

    fn insert(&mut self, target: ProbeTarget, schedule: Schedule, now: Instant) {
        let key = Key(self.next_key);
        self.next_key += 1;
        let target = Arc::new(target);
        self.keys.insert(Arc::clone(&target), key);
        self.slots.insert(key, Slot { target, schedule, due: Some(now), started: None, repeats: false });
        self.due.insert((now, key));
    }

    fn remove(&mut self, key: Key) {
        let Some(slot) = self.slots.remove(&key) else { return };
        self.keys.remove(&slot.target);
        if let Some(due) = slot.due {
            self.due.remove(&(due, key));
        }
    }

    fn reschedule(&mut self, key: Key, schedule: Schedule) {
        let Some(slot) = self.slots.get_mut(&key) else { return };
        slot.schedule = schedule;
        if let (Some(due), Some(started)) = (slot.due, slot.started) {
            let sooner = due.min(started + schedule.interval);
            if sooner != due {
                self.due.remove(&(due, key));
                self.due.insert((sooner, key));
                slot.due = Some(sooner);
            }
        }
    }

    /// What to do at this moment. Call until it is not `Start`.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        let Some(&(due, key)) = self.due.first() else { return Next::Idle };
        if self.in_flight >= self.most_in_flight {
            return Next::Idle;
        }
        let start = self.pace.free_at().map_or(due, |free| due.max(free));
        if start > now {
            return Next::Wait(start);
        }
        self.due.remove(&(due, key));
        let Some(slot) = self.slots.get_mut(&key) else { return Next::Wait(now) };
        let late = slot.started.is_some().then(|| now.saturating_duration_since(due));
        slot.due = None;
        slot.started = Some(now);
        self.in_flight += 1;
        self.pace.spend(now);
        Next::Start(Start { key, target: Arc::clone(&slot.target), timeout: slot.schedule.timeout, late })
    }

    /// A probe has ended, in whatever way; plans the target's next one unless it is gone.
    pub(super) fn finished(&mut self, key: Key, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let Some(slot) = self.slots.get_mut(&key) else { return };
        let started = slot.started.unwrap_or(now);
        // What starts together, after a start of the agent or a reload, is spread once and for all by its
        // second probe; ±10 % alone would let the same wave come back for many rounds.
        let (from, to) = if slot.repeats { (0.9, 1.1) } else { (0.5, 1.0) };
        slot.repeats = true;
        let due = (started + self.jitter.between(slot.schedule.interval, from, to)).max(now);
        slot.due = Some(due);
        self.due.insert((due, key));
    }

    /// Whether the target is still in the plan.
    pub(super) fn has(&self, key: Key) -> bool {
        self.slots.contains_key(&key)
    }

    /// Targets in the plan.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Probes under way.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Targets whose time has come and that a limit keeps waiting.
    pub(super) fn waiting(&self, now: Instant) -> usize {
        self.due.range(..(now, Key(u64::MAX))).count()
    }

    /// When a target is due: `None` when it is not in the plan, `Some(None)` while it is in flight.
    pub(super) fn due(&self, target: &ProbeTarget) -> Option<Option<Instant>> {
        self.keys.get(target).and_then(|key| self.slots.get(key)).map(|slot| slot.due)
    }
}

/// The cap on probes per second (a generic cell rate algorithm). A burst of 10 ms is allowed, because the
/// engine's timer ticks in milliseconds.
struct Pace {
    period: Duration,
    /// When the budget is level again; `None` before the first probe.
    level: Option<Instant>,
    burst: Duration,
}

impl Pace {
    fn new(per_second: u32) -> Self {
        let period = Duration::from_secs(1) / per_second.max(1);
        Self { period, level: None, burst: Duration::from_millis(10).saturating_sub(period) }
    }

    /// From when on the next probe may start; `None` when it may in any case.
    fn free_at(&self) -> Option<Instant> {
        self.level.and_then(|level| level.checked_sub(self.burst))
    }

    fn spend(&mut self, now: Instant) {
        self.level = Some(self.level.unwrap_or(now).max(now) + self.period);
    }
}

/// Uniform jitter (SplitMix64, because it has to be spread and seedable, not secret).
struct Jitter(u64);

impl Jitter {
    /// Between these parts of the interval.
    fn between(&mut self, interval: Duration, from: f64, to: f64) -> Duration {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let unit = (z >> 11) as f64 / (1u64 << 53) as f64;
        interval.mul_f64(from + (to - from) * unit)
    }
}

#[cfg(test)]
mod tests;
