//! The engine: carries out the plan, one task for the schedule and one for each probe in flight.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use router_common::health::{Observation, Outcome, ProbeFault};
use router_common::model::{HttpProbe, ProbeTarget};
use tokio::sync::{Notify, mpsc};
use tokio::task::{AbortHandle, Id, JoinHandle, JoinSet};

use super::planner::{Key, Limits, Next, Planner, Schedule, Start};
use super::prober::{Prober, Settings, SharedProber};
use crate::metrics::{Distributions, probe_durations};

/// One probe's outcome, before any monitor judged it.
#[derive(Clone, Debug)]
pub struct Observed {
    /// What was probed.
    pub target: Arc<ProbeTarget>,
    /// What was seen.
    pub observation: Observation,
    /// The words of whoever reported a failure: the system, a library, the program that was run.
    pub said: Option<Arc<str>>,
    /// When the probe ended.
    pub at: Instant,
}

/// What a call of [`Engine::set_targets`] changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Applied {
    /// Probed from now on.
    pub added: usize,
    /// Probed before and after.
    pub kept: usize,
    /// Not probed any more.
    pub removed: usize,
}

/// When a target is probed next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NextProbe {
    /// A probe is under way.
    Now,
    /// In this time; zero when it is due and a limit keeps it waiting.
    In(Duration),
}

/// Figures of an engine, since its start where they are counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Targets.
    pub targets: usize,
    /// Probes under way.
    pub in_flight: usize,
    /// Targets whose time has come and that a limit keeps waiting.
    pub waiting: usize,
    /// Probes started.
    pub started: u64,
    /// Probes that ended with an answer: a response, a connection, an exit status, a state.
    pub answered: u64,
    /// Probes that ended without one.
    pub failed: u64,
    /// Those of the failed that this machine is to blame for (no descriptor, port, memory), or the monitor
    /// itself (a program that does not start, a broken file).
    pub local_faults: u64,
    /// Repeated probes started within each of [`Stats::LATENESS`] of their due time, and, last, later.
    pub lateness: [u64; 7],
}

impl Stats {
    /// Upper bounds of [`Stats::lateness`].
    pub const LATENESS: [Duration; 6] = [
        Duration::from_millis(2),
        Duration::from_millis(10),
        Duration::from_millis(50),
        Duration::from_millis(100),
        Duration::from_millis(500),
        Duration::from_secs(1),
    ];
}

/// Probes a set of targets until it is shut down or dropped, or until nobody receives the events any more.
///
/// Events are sent with back-pressure: while the receiver is slow, ended probes keep their place among those
/// in flight, so that memory stays bounded and the rate falls.
pub struct Engine {
    shared: Arc<Shared>,
    scheduler: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// The plan changed, or the engine is to stop.
    wake: Notify,
    prober: SharedProber,
    events: mpsc::Sender<Observed>,
    counts: Counts,
    durations: Distributions,
}

struct State {
    planner: Planner,
    flights: HashMap<Key, AbortHandle>,
    stopping: bool,
}

#[derive(Default)]
struct Counts {
    started: AtomicU64,
    answered: AtomicU64,
    failed: AtomicU64,
    local_faults: AtomicU64,
    lateness: [AtomicU64; 7],
}

impl Engine {
    /// Starts an engine without targets on the current tokio runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime, as [`tokio::spawn`] does.
    pub fn start(limits: Limits, events: mpsc::Sender<Observed>) -> Self {
        Self::start_with(Arc::new(Prober::new(Settings::default())), limits, events)
    }

    /// As [`start`](Self::start), with a prober of one's own settings.
    pub fn start_with(prober: Arc<Prober>, limits: Limits, events: mpsc::Sender<Observed>) -> Self {
        prober.set_programs(limits.programs);
        let seed = limits.seed.unwrap_or_else(drawn_seed);
        let state = State { planner: Planner::new(limits, seed), flights: HashMap::new(), stopping: false };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            wake: Notify::new(),
            prober,
            events,
            counts: Counts::default(),
            durations: probe_durations(),
        });
        let scheduler = tokio::spawn(schedule(Arc::clone(&shared)));
        Self { shared, scheduler: Some(scheduler) }
    }

    /// Replaces the set of targets. When this returns, no probe of a removed target starts any more, and one
    /// under way is being given up. New targets are probed at once, as the limits allow; kept ones keep their
    /// place in time. An outcome that was already on its way may still arrive.
    pub fn set_targets(&self, targets: Vec<(ProbeTarget, Schedule)>) -> Applied {
        self.shared.prober.prepare(targets.iter().map(|(target, _)| target));
        let mut state = self.shared.state();
        let replaced = state.planner.replace(targets, Instant::now());
        for key in &replaced.gone {
            if let Some(flight) = state.flights.get(key) {
                flight.abort();
            }
        }
        drop(state);
        self.shared.wake.notify_one();
        Applied { added: replaced.added, kept: replaced.kept, removed: replaced.gone.len() }
    }

    /// Changes what probes may cost, from now on.
    pub fn set_limits(&self, limits: Limits) {
        self.shared.prober.set_programs(limits.programs);
        self.shared.state().planner.set_limits(limits);
        self.shared.wake.notify_one();
    }

    /// When a target is probed next; `None` when it is not one of the targets.
    pub fn next_probe(&self, target: &ProbeTarget) -> Option<NextProbe> {
        let due = self.shared.state().planner.due(target)?;
        Some(due.map_or(NextProbe::Now, |due| NextProbe::In(due.saturating_duration_since(Instant::now()))))
    }

    /// The figures at this moment.
    pub fn stats(&self) -> Stats {
        let state = self.shared.state();
        let counts = &self.shared.counts;
        Stats {
            targets: state.planner.len(),
            in_flight: state.planner.in_flight(),
            waiting: state.planner.waiting(Instant::now()),
            started: counts.started.load(Ordering::Relaxed),
            answered: counts.answered.load(Ordering::Relaxed),
            failed: counts.failed.load(Ordering::Relaxed),
            local_faults: counts.local_faults.load(Ordering::Relaxed),
            lateness: counts.lateness.each_ref().map(|count| count.load(Ordering::Relaxed)),
        }
    }

    /// How long probes take, by `protocol`, whatever their result.
    pub fn durations(&self) -> Distributions {
        self.shared.durations.clone()
    }

    /// Stops probing. When this returns, no task and no connection of the engine is left.
    pub async fn shutdown(mut self) {
        self.shared.state().stopping = true;
        self.shared.wake.notify_one();
        if let Some(scheduler) = self.scheduler.take() {
            // An error would be a panic of the scheduler, which has ended it as well.
            let _ = scheduler.await;
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(scheduler) = &self.scheduler {
            // Takes the set of flights with it, which aborts them.
            scheduler.abort();
        }
    }
}

impl Shared {
    /// Nothing under this lock can leave the state half changed, so a poisoned lock is as good as any.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One probe, from start to the report.
    async fn fly(self: Arc<Self>, start: Start) {
        let began = Instant::now();
        let (observation, said) = self.prober.probe_with_words(&start.target, start.timeout).await;
        let took = began.elapsed().as_secs_f64();
        self.durations.get_or_create(&[("protocol", protocol(&start.target))]).observe(took);
        self.counts.count(&start.target, &observation, said.as_deref().unwrap_or_default());
        let said = said.map(Arc::from);
        let observed = Observed { target: start.target, observation, said, at: Instant::now() };
        if self.state().planner.has(start.key) {
            // An error means that nobody listens; the scheduler sees that as well, and ends.
            let _ = self.events.send(observed).await;
        }
    }
}

/// Starts probes when they are due, and plans the next when they end.
async fn schedule(shared: Arc<Shared>) {
    let mut flights: JoinSet<()> = JoinSet::new();
    let mut keys: HashMap<Id, Key> = HashMap::new();
    while let Some(wait) = start_due(&shared, &mut flights, &mut keys) {
        let ended = tokio::select! {
            () = shared.wake.notified() => None,
            () = sleep_until(wait) => None,
            () = shared.events.closed() => break,
            Some(ended) = flights.join_next_with_id() => Some(ended),
        };
        let mut next = ended;
        while let Some(ended) = next {
            // Aborted flights and such as panicked are over like any other.
            let id = match &ended {
                Ok((id, ())) => *id,
                Err(error) => error.id(),
            };
            if let Some(key) = keys.remove(&id) {
                let mut state = shared.state();
                state.flights.remove(&key);
                state.planner.finished(key, Instant::now());
            }
            if let Err(error) = ended
                && error.is_panic()
            {
                log::error!("a health probe panicked, please report it: {error}");
            }
            next = flights.try_join_next_with_id();
        }
    }
    flights.shutdown().await;
}

/// Starts everything that may start now. Returns until when there is nothing more to start (`Some(None)`: until
/// something happens), `None` when the engine is to stop.
fn start_due(
    shared: &Arc<Shared>,
    flights: &mut JoinSet<()>,
    keys: &mut HashMap<Id, Key>,
) -> Option<Option<Instant>> {
    loop {
        // Plan and flight change under one lock: a target removed in between would fly on.
        let mut state = shared.state();
        if state.stopping {
            return None;
        }
        match state.planner.next(Instant::now()) {
            Next::Start(start) => {
                shared.counts.start(start.late);
                let key = start.key;
                let flight = flights.spawn(Arc::clone(shared).fly(start));
                keys.insert(flight.id(), key);
                state.flights.insert(key, flight);
            }
            Next::Wait(until) => return Some(Some(until)),
            Next::Idle => return Some(None),
        }
    }
}

async fn sleep_until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

impl Counts {
    fn start(&self, late: Option<Duration>) {
        self.started.fetch_add(1, Ordering::Relaxed);
        let Some(late) = late else { return };
        let bucket = Stats::LATENESS.iter().position(|bound| late <= *bound).unwrap_or(Stats::LATENESS.len());
        if let Some(count) = self.lateness.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn count(&self, target: &ProbeTarget, observation: &Observation, said: &str) {
        let count = match observation.outcome {
            Outcome::Status(_) | Outcome::Connected | Outcome::Exited(_) | Outcome::Stated(_) => {
                &self.answered
            }
            Outcome::Fault(fault) => {
                if fault.is_ours() {
                    self.ours(target, fault, said);
                }
                &self.failed
            }
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a fault that is not the endpoint's, and tells the first of each thousand.
    fn ours(&self, target: &ProbeTarget, fault: ProbeFault, said: &str) {
        if self.local_faults.fetch_add(1, Ordering::Relaxed).is_multiple_of(1000) {
            log::error!(
                "cannot probe {target}: {fault}: {said}; the endpoint's state stays as it is (told once in \
                 1000 times)"
            );
        }
    }
}

/// What a target is probed by, as a label.
fn protocol(target: &ProbeTarget) -> &'static str {
    match target {
        ProbeTarget::Http(HttpProbe { tls: None, .. }) => "http",
        ProbeTarget::Http(_) => "https",
        ProbeTarget::Tcp(_) => "tcp",
        ProbeTarget::Exec(_) => "exec",
        ProbeTarget::File(_) => "file",
    }
}

/// A seed that differs between machines and runs; the standard library's hasher is keyed at random.
fn drawn_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
