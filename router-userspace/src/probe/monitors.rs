//! Who watches which target, and what they make of its samples. No clock, no socket.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use router_common::health::{Observation, Outcome, Record, Sample, Strip, Window, judge, step};
use router_common::model::{EndpointId, Model, ProbeTarget, WindowRule};
use router_common::view::{Health, HealthView};

use super::Observed;
use super::targets::watched;

/// The windows of all probed endpoints, by the target they watch.
///
/// Times are since the Unix epoch, as [`unix_now`](crate::clock::unix_now) gives them.
#[derive(Default)]
pub struct Monitors {
    watched: HashMap<Arc<ProbeTarget>, Watched>,
    places: HashMap<EndpointId, (Arc<ProbeTarget>, usize)>,
}

/// What is known of one endpoint's health.
#[derive(Clone, Debug)]
pub struct EndpointHealth {
    /// Its position in the model.
    pub endpoint: EndpointId,
    /// Name of its profile.
    pub profile: String,
    /// Its name in the profile.
    pub name: String,
    /// What is probed.
    pub target: Arc<ProbeTarget>,
    /// When it counts as healthy.
    pub rule: WindowRule,
    /// Least time in a state.
    pub hold: Duration,
    /// State, since when, strip, last sample, last error, average latency, flaps.
    pub record: Record,
    /// Latency of the healthy ones among the last 64 probes; `None` when there is none.
    pub percentiles: Option<Percentiles>,
    /// What was said of the last failure, by the system, a library, a program.
    pub said: Option<Arc<str>>,
    /// Why the newest probe says nothing about the endpoint; `None` when it does.
    pub trouble: Option<Arc<str>>,
    /// Endpoints, this one included, that share the target's probes.
    pub shared_by: usize,
}

/// What is worth keeping of one endpoint's health across a restart.
#[derive(Clone, Debug)]
pub struct Kept {
    /// Its position in the model.
    pub endpoint: EndpointId,
    /// Name of its profile.
    pub profile: String,
    /// Its name in the profile.
    pub name: String,
    /// What is probed.
    pub target: Arc<ProbeTarget>,
    /// Healthy status codes.
    pub expected_status: Vec<(u16, u16)>,
    /// When it counts as healthy.
    pub rule: WindowRule,
    /// Everything its window remembers.
    pub record: Record,
}

/// Latency percentiles (nearest rank).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Percentiles {
    /// Median.
    pub p50: Duration,
    /// 90 %.
    pub p90: Duration,
    /// 99 %.
    pub p99: Duration,
}

/// Probed endpoints by state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Healthy.
    pub up: usize,
    /// Unhealthy.
    pub down: usize,
    /// Without a sample.
    pub checking: usize,
}

#[derive(Default)]
struct Watched {
    /// Oldest first, at most [`Strip::CAPACITY`]; raw, so that whoever joins later can judge them too.
    history: VecDeque<Seen>,
    /// The newest words about a failure, and when they were said.
    said: Option<(Duration, Arc<str>)>,
    /// See [`EndpointHealth::trouble`].
    trouble: Option<Arc<str>>,
    subscribers: Vec<Subscriber>,
}

/// An observation in 20 octets; there may be millions.
#[derive(Clone, Copy)]
struct Seen {
    outcome: Outcome,
    micros: Option<u32>,
    at_millis: u64,
}

struct Subscriber {
    endpoint: EndpointId,
    profile: String,
    name: String,
    expected_status: Vec<(u16, u16)>,
    window: Window,
}

impl Monitors {
    /// The monitors of a model, without samples.
    pub fn new(model: &Model) -> Self {
        let mut monitors = Self::default();
        monitors.rebuild(model, Duration::ZERO);
        monitors
    }

    /// Takes in one probe as the engine reports it, with the words about it. See [`observe`](Self::observe).
    pub fn observed(&mut self, observed: &Observed, now: Duration) -> Vec<(EndpointId, Health)> {
        if let Some(watched) = self.watched.get_mut(&observed.target) {
            let ours = matches!(observed.observation.outcome, Outcome::Fault(fault) if fault.is_ours());
            watched.trouble = observed.said.clone().filter(|_| ours);
            if let Some(said) = observed.said.clone().filter(|_| !ours) {
                watched.said = Some((now, said));
            }
        }
        self.observe(&observed.target, &observed.observation, now)
    }

    /// Takes in one probe's outcome; the endpoints whose verdict it changed. A target that nobody watches
    /// any more changes nothing.
    pub fn observe(
        &mut self,
        target: &ProbeTarget,
        observation: &Observation,
        now: Duration,
    ) -> Vec<(EndpointId, Health)> {
        let Some(watched) = self.watched.get_mut(target) else { return Vec::new() };
        watched.remember(observation, now);
        let mut changed = Vec::new();
        for subscriber in &mut watched.subscribers {
            let Some(sample) = judge(observation, &subscriber.expected_status) else { continue };
            if let Some(health) = step(&mut subscriber.window, sample, now) {
                changed.push((subscriber.endpoint, health));
            }
        }
        changed
    }

    /// Goes over to another model. Identity is profile name, endpoint name and target, never position:
    /// - the same with the same expected status: the window goes on, under its rule of now;
    /// - the same with another expected status, or a newcomer on a target that is already probed: the window
    ///   is what the target's last samples give by the rules of now;
    /// - anything else has no sample yet.
    pub fn rebuild(&mut self, model: &Model, now: Duration) {
        let mut before = std::mem::take(self);
        let mut known: HashMap<(String, String), Subscriber> = HashMap::new();
        let mut old_targets: HashMap<(String, String), Arc<ProbeTarget>> = HashMap::new();
        for (target, watched) in &mut before.watched {
            for subscriber in watched.subscribers.drain(..) {
                let identity = (subscriber.profile.clone(), subscriber.name.clone());
                old_targets.insert(identity.clone(), Arc::clone(target));
                known.insert(identity, subscriber);
            }
        }
        for (id, endpoint, monitor) in watched(model) {
            let identity = (model.profile(id.profile).name.clone(), endpoint.name.clone());
            let (target, entry) = self.entry(&mut before, &monitor.target);
            let same_target = old_targets.get(&identity).is_some_and(|old| **old == monitor.target);
            let window = match known.remove(&identity) {
                Some(old) if same_target && old.expected_status == monitor.expected_status => {
                    let mut window = old.window.with_hold(monitor.hold);
                    window.set_rule(monitor.window, now);
                    window
                }
                _ => Window::replay(monitor.window, entry.judged(&monitor.expected_status))
                    .with_hold(monitor.hold),
            };
            let (profile, name) = identity;
            let expected_status = monitor.expected_status.clone();
            let place = entry.subscribers.len();
            entry.subscribers.push(Subscriber { endpoint: id, profile, name, expected_status, window });
            self.places.insert(id, (target, place));
        }
    }

    /// The target's entry, with the history it had before.
    fn entry(&mut self, before: &mut Self, target: &ProbeTarget) -> (Arc<ProbeTarget>, &mut Watched) {
        let (key, had) = match self.watched.get_key_value(target) {
            Some((key, _)) => (Arc::clone(key), None),
            None => match before.watched.remove_entry(target) {
                Some((key, had)) => (key, Some(had)),
                None => (Arc::new(target.clone()), None),
            },
        };
        let entry = self.watched.entry(Arc::clone(&key)).or_default();
        if let Some(had) = had {
            *entry = had;
        }
        (key, entry)
    }

    /// All verdicts and average latencies, for decision and compiler.
    pub fn health_view(&self) -> HealthView {
        let mut view = HealthView::default();
        for subscriber in self.watched.values().flat_map(|watched| &watched.subscribers) {
            let record = subscriber.window.record();
            if record.health != Health::Checking {
                view.verdicts.insert(subscriber.endpoint, record.health);
            }
            if let Some(average) = record.average {
                view.latency.insert(subscriber.endpoint, average);
            }
        }
        view
    }

    /// The endpoints that watch a target: those whose latency a new sample may have moved.
    pub fn watching(&self, target: &ProbeTarget) -> impl Iterator<Item = EndpointId> {
        self.watched.get(target).into_iter().flat_map(|w| w.subscribers.iter().map(|s| s.endpoint))
    }

    /// What is known of one endpoint; `None` when it is not probed.
    pub fn endpoint(&self, endpoint: EndpointId) -> Option<EndpointHealth> {
        let (target, place) = self.places.get(&endpoint)?;
        let watched = self.watched.get(target)?;
        let subscriber = watched.subscribers.get(*place)?;
        Some(EndpointHealth {
            endpoint,
            profile: subscriber.profile.clone(),
            name: subscriber.name.clone(),
            target: Arc::clone(target),
            rule: subscriber.window.rule(),
            hold: subscriber.window.hold(),
            record: *subscriber.window.record(),
            percentiles: watched.percentiles(&subscriber.expected_status),
            said: watched.said_at(subscriber.window.record().last_error.map(|(at, _)| at)),
            trouble: watched.trouble.clone(),
            shared_by: watched.subscribers.len(),
        })
    }

    /// What is known of every probed endpoint, in the order of the model.
    pub fn endpoints(&self) -> Vec<EndpointHealth> {
        let mut ids: Vec<EndpointId> = self.places.keys().copied().collect();
        ids.sort();
        ids.into_iter().filter_map(|id| self.endpoint(id)).collect()
    }

    /// How many probed endpoints are in which state.
    pub fn tally(&self) -> Tally {
        let mut tally = Tally::default();
        for subscriber in self.watched.values().flat_map(|watched| &watched.subscribers) {
            match subscriber.window.record().health {
                Health::Checking => tally.checking += 1,
                Health::Healthy => tally.up += 1,
                Health::Unhealthy => tally.down += 1,
            }
        }
        tally
    }

    /// What is worth keeping of every probed endpoint, in the order of the model.
    pub fn kept(&self) -> Vec<Kept> {
        let mut kept: Vec<Kept> = Vec::with_capacity(self.places.len());
        for (target, watched) in &self.watched {
            kept.extend(watched.subscribers.iter().map(|subscriber| Kept {
                endpoint: subscriber.endpoint,
                profile: subscriber.profile.clone(),
                name: subscriber.name.clone(),
                target: Arc::clone(target),
                expected_status: subscriber.expected_status.clone(),
                rule: subscriber.window.rule(),
                record: *subscriber.window.record(),
            }));
        }
        kept.sort_unstable_by_key(|kept| kept.endpoint);
        kept
    }

    /// Gives an endpoint what was saved of it, if it still watches this target and has no sample of its own.
    /// A window of another rule judges the saved samples anew. Whether it was taken.
    pub fn restore(
        &mut self,
        endpoint: EndpointId,
        target: &ProbeTarget,
        rule: WindowRule,
        record: Record,
        now: Duration,
    ) -> bool {
        let Some((watches, place)) = self.places.get(&endpoint) else { return false };
        if **watches != *target {
            return false;
        }
        let subscriber = self.watched.get_mut(target).and_then(|watched| watched.subscribers.get_mut(*place));
        let Some(subscriber) = subscriber else { return false };
        if !subscriber.window.record().strip.is_empty() {
            return false;
        }
        let mut window = Window::restore(rule, record).with_hold(subscriber.window.hold());
        window.set_rule(subscriber.window.rule(), now);
        subscriber.window = window;
        true
    }
}

impl Watched {
    /// The words said at this time.
    fn said_at(&self, at: Option<Duration>) -> Option<Arc<str>> {
        self.said.as_ref().filter(|(said, _)| Some(*said) == at).map(|(_, words)| Arc::clone(words))
    }

    fn remember(&mut self, observation: &Observation, now: Duration) {
        if self.history.len() >= usize::from(Strip::CAPACITY) {
            self.history.pop_front();
        }
        self.history.push_back(Seen {
            outcome: observation.outcome,
            micros: observation.latency.map(|latency| u32::try_from(latency.as_micros()).unwrap_or(u32::MAX)),
            at_millis: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        });
    }

    /// The samples there are, judged by these ranges, oldest first.
    fn judged<'a>(&'a self, expected: &'a [(u16, u16)]) -> impl Iterator<Item = (Duration, Sample)> + 'a {
        self.history.iter().filter_map(move |seen| {
            let latency = seen.micros.map(|micros| Duration::from_micros(micros.into()));
            let sample = judge(&Observation { outcome: seen.outcome, latency }, expected)?;
            Some((Duration::from_millis(seen.at_millis), sample))
        })
    }

    fn percentiles(&self, expected: &[(u16, u16)]) -> Option<Percentiles> {
        let mut latencies: Vec<Duration> = self
            .judged(expected)
            .filter(|(_, sample)| sample.ok)
            .filter_map(|(_, sample)| sample.latency)
            .collect();
        latencies.sort();
        let rank = |percent: usize| {
            let rank = (latencies.len() * percent).div_ceil(100);
            latencies.get(rank.checked_sub(1)?).copied()
        };
        Some(Percentiles { p50: rank(50)?, p90: rank(90)?, p99: rank(99)? })
    }
}

#[cfg(test)]
pub(super) mod tests;
