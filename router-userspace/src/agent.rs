//! The agent as a state machine: events in, effects out; no socket, no clock, no task.
//!
//! `cli::run` feeds it and carries out what it asks for.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use router_common::compile::{CompileError, Compiled, Room, compile};
use router_common::decide::Snapshot;
use router_common::diff::Operation;
use router_common::model::{EndpointId, Method, Model, ProbeTarget};
use router_common::tables::Frontage;
use router_common::view::{Geography, Health, HealthView, Latency};

use crate::config::Config;
use crate::dns;
use crate::overrides::Overrides;
use crate::probe::{Monitors, Observed, Schedule};
use crate::settings::Server;

mod draft;
mod report;
mod state;

pub(crate) use draft::fixed;
pub use draft::{Basis, Draft, Ground, Refused};

/// Everything that can happen to the agent.
#[derive(Debug)]
pub enum Event {
    /// Probes ended; in the order they did.
    Observed(Vec<Observed>),
    /// Every operation given out was written, and no reader can be in what it replaced.
    GraceOver,
}

/// What is to be done, in this order.
pub enum Effect {
    /// A monitor's verdict on an endpoint changed.
    Verdict(EndpointId, Health),
    /// Write these into the serving half.
    Apply(Vec<Operation>),
    /// The serving half is full: install [`Agent::compiled`]'s tables as a new generation.
    Install,
    /// Answer from this in userspace from now on.
    Serve(Arc<dns::Service>),
    /// Probe these from now on, and nothing else.
    Probe(Vec<(ProbeTarget, Schedule)>),
}

/// Configuration, health and tables of a running agent.
pub struct Agent {
    settings: Server,
    /// The configuration without overrides.
    base: Arc<Model>,
    overrides: Arc<Overrides>,
    frontage: Frontage,
    snapshot: Snapshot,
    geography: Arc<Geography>,
    latency: Arc<Latency>,
    monitors: Monitors,
    compiled: Compiled,
    room: Room,
    /// What the userspace server has answered with, under any model.
    answered: dns::Registry,
    /// Where it counts under this one.
    tallies: Arc<dns::Tallies>,
}

impl Agent {
    /// Compiles a loaded configuration. `health` stands in for the monitors until they have verdicts.
    ///
    /// # Errors
    /// When it does not compile.
    pub fn new(config: Config, health: HealthView) -> Result<Self, Refused> {
        Self::with_overrides(config, Overrides::default(), health)
    }

    /// [`Agent::new`] with overrides laid over the configuration.
    ///
    /// # Errors
    /// When it does not compile, or the overrides make no sound configuration of it.
    pub fn with_overrides(config: Config, overrides: Overrides, health: HealthView) -> Result<Self, Refused> {
        let Config { server, model, geography, latency, .. } = config;
        let ground = Ground {
            settings: server,
            base: Arc::new(model),
            overrides: Arc::new(overrides),
            geography: Arc::new(geography),
            latency: Arc::new(latency),
        };
        let Draft { ground, frontage, snapshot, compiled, .. } = Draft::build(ground, Arc::new(health))?;
        let Ground { settings, base, overrides, geography, latency } = ground;
        let monitors = Monitors::new(&snapshot.model);
        let room = Room::UNBOUNDED;
        let mut answered = dns::Registry::default();
        let tallies = Arc::new(answered.tallies(&snapshot.model));
        Ok(Self {
            settings,
            base,
            overrides,
            frontage,
            snapshot,
            geography,
            latency,
            monitors,
            compiled,
            room,
            answered,
            tallies,
        })
    }

    /// The overrides that are laid over the configuration.
    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// The configuration without overrides.
    pub fn base(&self) -> &Model {
        &self.base
    }

    /// Gives the tables another serial number; to be called before they are anywhere.
    pub fn begin_at(&mut self, serial: u64) {
        self.compiled.tables.generation.serial = serial;
    }

    /// The settings it runs with.
    pub fn settings(&self) -> &Server {
        &self.settings
    }

    /// The tables as they are after every effect given out.
    pub fn compiled(&self) -> &Compiled {
        &self.compiled
    }

    /// What decisions are made from at present.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// What the userspace server answers from at present. Answers are not counted as handed out.
    pub fn service(&self) -> dns::Service {
        dns::Service::new(self.snapshot.clone(), Arc::clone(&self.settings.dns))
    }

    /// The same, and answers count.
    pub fn serving(&self) -> dns::Service {
        self.service().counting(Arc::clone(&self.tallies))
    }

    /// What the userspace server has answered with so far.
    pub fn answered(&self) -> &dns::Registry {
        &self.answered
    }

    /// How much one half of the fast path's maps holds.
    pub fn set_room(&mut self, room: Room) {
        self.room = room;
    }

    /// Takes one event. `now` is the time since the epoch.
    pub fn handle(&mut self, event: Event, now: Duration) -> Result<Vec<Effect>, CompileError> {
        match event {
            Event::GraceOver => {
                self.compiled.reclaim();
                Ok(Vec::new())
            }
            Event::Observed(observed) => self.observe(&observed, now),
        }
    }

    fn observe(&mut self, observed: &[Observed], now: Duration) -> Result<Vec<Effect>, CompileError> {
        let mut verdicts = Vec::new();
        let mut changed = Vec::new();
        for one in observed {
            verdicts.extend(self.monitors.observed(one, now));
            changed.extend(self.faster_or_slower(&one.target));
        }
        if verdicts.is_empty() && changed.is_empty() {
            return Ok(Vec::new());
        }
        let health = Arc::make_mut(&mut self.snapshot.health);
        for &(endpoint, verdict) in &verdicts {
            health.verdicts.insert(endpoint, verdict);
            changed.push((endpoint, None));
        }
        for &(endpoint, average) in &changed {
            if let Some(average) = average {
                health.latency.insert(endpoint, average);
            }
        }
        let changed: Vec<EndpointId> = changed.into_iter().map(|(endpoint, _)| endpoint).collect();
        let mut effects: Vec<Effect> =
            verdicts.into_iter().map(|(endpoint, health)| Effect::Verdict(endpoint, health)).collect();
        effects.extend(self.write(&changed)?);
        effects.push(Effect::Serve(Arc::new(self.serving())));
        Ok(effects)
    }

    /// Recompiles what can see these endpoints.
    fn write(&mut self, changed: &[EndpointId]) -> Result<Option<Effect>, CompileError> {
        match self.compiled.update(&self.snapshot, changed, &self.room) {
            Ok(operations) if operations.is_empty() => Ok(None),
            Ok(operations) => Ok(Some(Effect::Apply(operations))),
            Err(_) => {
                let serial = self.compiled.tables.generation.serial + 1;
                self.compiled = compile(&self.snapshot, &self.frontage, seed, serial)?;
                Ok(Some(Effect::Install))
            }
        }
    }

    /// Endpoints on this target whose profile chooses by our own probes' latency, when it moved.
    fn faster_or_slower(&self, target: &ProbeTarget) -> Vec<(EndpointId, Option<Duration>)> {
        let model = &self.snapshot.model;
        let mut moved = Vec::new();
        for endpoint in self.monitors.watching(target) {
            if !matches!(model.profile(endpoint.profile).method, Method::Fastest { .. }) {
                continue;
            }
            let average = self.monitors.endpoint(endpoint).and_then(|health| health.record.average);
            if average.is_some() && average.as_ref() != self.snapshot.health.latency.get(&endpoint) {
                moved.push((endpoint, average));
            }
        }
        moved
    }
}

/// A hash key that nobody outside can know: the standard library seeds this from the system.
fn seed() -> [u64; 2] {
    let state = RandomState::new();
    [state.hash_one(0u8), state.hash_one(1u8)]
}

#[cfg(test)]
mod tests;
