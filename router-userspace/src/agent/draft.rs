//! A generation that is being made while another one serves.
//!
//! [`Agent::basis`] says what to start from; a [`Draft`] is made of it aside, in as long as it takes. Verdicts
//! that come meanwhile go into the serving generation; [`Agent::align`] brings the draft up to them, and
//! after its tables are in the fast path, [`Agent::adopt`] makes it the serving one.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use router_common::abi::Generation;
use router_common::atlas::Atlas;
use router_common::compile::{CompileError, Compiled, Room, compile};
use router_common::decide::Snapshot;
use router_common::model::{EndpointId, Method, Model, ProfileId};
use router_common::tables::{Frontage, Tables};
use router_common::view::{Geography, HealthView, Latency};

use super::{Agent, Effect, seed};
use crate::config::Config;
use crate::overrides::Overrides;
use crate::probe::targets_of;
use crate::settings::{Dns, Server};

/// What a generation is made of, besides health. Cheap to clone.
#[derive(Clone)]
pub struct Ground {
    /// How it runs.
    pub settings: Server,
    /// The configuration without overrides.
    pub base: Arc<Model>,
    /// What operators changed.
    pub overrides: Arc<Overrides>,
    /// Where clients are.
    pub geography: Arc<Geography>,
    /// The latency table.
    pub latency: Arc<Latency>,
}

/// What a draft starts from: the generation that serves. Cheap to make.
#[derive(Clone)]
pub struct Basis {
    /// What it is made of.
    pub ground: Ground,
    /// What decisions are made from.
    pub snapshot: Snapshot,
}

/// A generation that does not serve (any more, or ever).
pub struct Draft {
    pub(super) ground: Ground,
    pub(super) frontage: Frontage,
    pub(super) snapshot: Snapshot,
    pub(super) compiled: Compiled,
    /// The health that was carried over, to see whether there was more since.
    carried: Option<Arc<HealthView>>,
}

/// Why there is no draft.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refused {
    /// These keys of `[server]` differ from what runs: key, value that runs, value asked for.
    Restart(Vec<(&'static str, String, String)>),
    /// It does not compile.
    Compile(CompileError),
    /// The overrides make no sound configuration of it: why, one a line.
    Overrides(String),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Restart(keys) => {
                for (i, (key, runs, asked)) in keys.iter().enumerate() {
                    if i > 0 {
                        f.write_str("\n")?;
                    }
                    write!(
                        f,
                        "server.{key} cannot change while the agent runs, restart it: {runs} runs, the file \
                         says {asked}"
                    )?;
                }
                Ok(())
            }
            Self::Compile(error) => error.fmt(f),
            Self::Overrides(why) => {
                for (i, line) in why.lines().enumerate() {
                    let next = if i > 0 { "\n" } else { "" };
                    write!(f, "{next}with the overrides in force (`xroute override list`): {line}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for Refused {}

impl From<CompileError> for Refused {
    fn from(error: CompileError) -> Self {
        Self::Compile(error)
    }
}

impl Basis {
    /// Another configuration. What is known of endpoints that are in both goes over.
    ///
    /// # Errors
    /// When it asks for what only a restart can change, or does not compile.
    pub fn with_configuration(&self, config: Config) -> Result<Draft, Refused> {
        let fixed = fixed(&self.ground.settings, &config.server);
        if !fixed.is_empty() {
            return Err(Refused::Restart(fixed));
        }
        self.planned(config)
    }

    /// As [`Basis::with_configuration`], for a draft that is only looked at: it may ask for what needs a restart.
    ///
    /// # Errors
    /// When it does not compile.
    pub fn planned(&self, config: Config) -> Result<Draft, Refused> {
        let health = Arc::new(carried(&self.snapshot, &config.model));
        let Config { server, model, geography, latency, .. } = config;
        let ground = Ground {
            settings: server,
            base: Arc::new(model),
            overrides: Arc::clone(&self.ground.overrides),
            geography: Arc::new(geography),
            latency: Arc::new(latency),
        };
        let mut draft = Draft::build(ground, health)?;
        draft.carried = Some(Arc::clone(&self.snapshot.health));
        Ok(draft)
    }

    /// The same configuration with other views of the world.
    ///
    /// # Errors
    /// When it does not compile.
    pub fn with_views(&self, geography: Geography, latency: Latency) -> Result<Draft, Refused> {
        let (geography, latency) = (Arc::new(geography), Arc::new(latency));
        self.on(Ground { geography, latency, ..self.ground.clone() })
    }

    /// The same configuration with other overrides.
    ///
    /// # Errors
    /// When it does not compile, or they make no sound configuration of it.
    pub fn with_overrides(&self, overrides: Overrides) -> Result<Draft, Refused> {
        self.on(Ground { overrides: Arc::new(overrides), ..self.ground.clone() })
    }

    /// A draft with the same profiles and endpoints.
    fn on(&self, ground: Ground) -> Result<Draft, Refused> {
        let health = &self.snapshot.health;
        let mut draft = Draft::build(ground, Arc::clone(health))?;
        draft.carried = Some(Arc::clone(health));
        Ok(draft)
    }
}

impl Draft {
    pub(super) fn build(ground: Ground, health: Arc<HealthView>) -> Result<Self, Refused> {
        let Ground { settings, base, overrides, geography, latency } = &ground;
        let model = if overrides.list().is_empty() {
            Arc::clone(base)
        } else {
            Arc::new(overrides.over(base).map_err(Refused::Overrides)?)
        };
        let atlas = Arc::new(Atlas::build(&model, geography, latency));
        let frontage = Frontage {
            addresses: settings.listen.iter().map(|address| address.ip()).collect(),
            vlans: settings.vlans.clone(),
            // The datapath knows them and puts them in.
            interfaces: Vec::new(),
            edns_size: settings.dns.edns_size,
            flags: passed_options(&settings.dns),
        };
        let snapshot = Snapshot { model, atlas, health };
        let compiled = compile(&snapshot, &frontage, seed, 1)?;
        Ok(Self { ground, frontage, snapshot, compiled, carried: None })
    }

    /// What it is made of.
    pub fn ground(&self) -> &Ground {
        &self.ground
    }

    /// The settings it asks for.
    pub fn settings(&self) -> &Server {
        &self.ground.settings
    }

    /// The overrides in it.
    pub fn overrides(&self) -> &Overrides {
        &self.ground.overrides
    }

    /// What decisions are made from in it.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Its tables, for the fast path.
    pub fn tables(&self) -> &Tables {
        &self.compiled.tables
    }
}

impl Agent {
    /// What a draft starts from.
    pub fn basis(&self) -> Basis {
        Basis {
            ground: Ground {
                settings: self.settings.clone(),
                base: Arc::clone(&self.base),
                overrides: Arc::clone(&self.overrides),
                geography: Arc::clone(&self.geography),
                latency: Arc::clone(&self.latency),
            },
            snapshot: self.snapshot.clone(),
        }
    }

    /// Brings a draft up to the verdicts that came while it was made, and gives it the next serial number.
    /// To be called right before its tables go into the fast path.
    ///
    /// # Errors
    /// When it does not compile; the draft is of no use then.
    pub fn align(&self, draft: &mut Draft) -> Result<(), CompileError> {
        let unchanged =
            draft.carried.as_ref().is_some_and(|before| Arc::ptr_eq(before, &self.snapshot.health));
        if !unchanged {
            let health = carried(&self.snapshot, &draft.snapshot.model);
            let changed = differing(&draft.snapshot.model, &draft.snapshot.health, &health);
            draft.snapshot.health = Arc::new(health);
            if draft.compiled.update(&draft.snapshot, &changed, &Room::UNBOUNDED).is_err() {
                draft.compiled = compile(&draft.snapshot, &draft.frontage, seed, 1)?;
            }
            // Nobody reads these tables, so what was replaced is free at once.
            draft.compiled.reclaim();
            draft.carried = Some(Arc::clone(&self.snapshot.health));
        }
        draft.compiled.tables.generation.serial = self.compiled.tables.generation.serial.saturating_add(1);
        Ok(())
    }

    /// Makes a draft the serving generation; its tables are in the fast path. `now` is the time since the
    /// epoch.
    ///
    /// # Errors
    /// When what the monitors make of the new configuration does not compile.
    pub fn adopt(&mut self, draft: Draft, now: Duration) -> Result<Vec<Effect>, CompileError> {
        let Draft { ground, frontage, snapshot, compiled, .. } = draft;
        let Ground { settings, base, overrides, geography, latency } = ground;
        let before = Arc::clone(&snapshot.health);
        self.monitors.rebuild(&snapshot.model, now);
        self.tallies = Arc::new(self.answered.tallies(&snapshot.model));
        self.settings = settings;
        self.base = base;
        self.overrides = overrides;
        self.frontage = frontage;
        self.snapshot = snapshot;
        self.geography = geography;
        self.latency = latency;
        self.compiled = compiled;
        // Newcomers on a target that is probed already have a verdict at once.
        let view = self.monitors.health_view();
        let changed = differing(&self.snapshot.model, &before, &view);
        let mut effects: Vec<Effect> = changed
            .iter()
            .filter(|&&endpoint| before.health(endpoint) != view.health(endpoint))
            .map(|&endpoint| Effect::Verdict(endpoint, view.health(endpoint)))
            .collect();
        self.snapshot.health = Arc::new(view);
        effects.extend(self.write(&changed)?);
        effects.push(Effect::Serve(Arc::new(self.serving())));
        effects.push(Effect::Probe(targets_of(&self.snapshot.model)));
        Ok(effects)
    }
}

/// The keys of `[server]` that are set up once, at the start, and differ.
pub(crate) fn fixed(runs: &Server, asked: &Server) -> Vec<(&'static str, String, String)> {
    let keys = [
        ("interfaces", format!("{:?}", runs.interfaces), format!("{:?}", asked.interfaces)),
        ("xdp_mode", mode(runs), mode(asked)),
        ("listen", format!("{:?}", runs.listen), format!("{:?}", asked.listen)),
        ("control", format!("{:?}", runs.control), format!("{:?}", asked.control)),
        ("control_group", format!("{:?}", runs.control_group), format!("{:?}", asked.control_group)),
        ("admin_group", format!("{:?}", runs.admin_group), format!("{:?}", asked.admin_group)),
        ("http", address(runs), address(asked)),
        ("state_dir", format!("{:?}", runs.state_dir), format!("{:?}", asked.state_dir)),
    ];
    keys.into_iter().filter(|(_, runs, asked)| runs != asked).collect()
}

/// Which EDNS options only the userspace server acts on, as flags of a [`Generation`].
fn passed_options(dns: &Dns) -> u16 {
    let cookie = dns.cookies.as_ref().map_or(0, |_| Generation::PASS_COOKIE);
    let nsid = dns.nsid.as_ref().map_or(0, |_| Generation::PASS_NSID);
    cookie | nsid
}

fn mode(server: &Server) -> String {
    format!("{:?}", server.xdp_mode).to_lowercase()
}

fn address(server: &Server) -> String {
    server.http.map_or_else(|| String::from("none"), |address| address.to_string())
}

/// What is known of the endpoints of `model`, from a snapshot of another model. Identity is profile name,
/// endpoint name and probe target, as for the monitors, never position.
fn carried(before: &Snapshot, model: &Model) -> HealthView {
    let old = &before.model;
    let profiles: HashMap<&str, ProfileId> =
        (0u32..).zip(old.profiles()).map(|(i, profile)| (profile.name.as_str(), ProfileId(i))).collect();
    let mut view = HealthView::default();
    for (i, profile) in (0u32..).zip(model.profiles()) {
        let Some(&old_profile) = profiles.get(profile.name.as_str()) else { continue };
        let places: HashMap<&str, u32> = (0u32..)
            .zip(&old.profile(old_profile).endpoints)
            .map(|(index, endpoint)| (endpoint.name.as_str(), index))
            .collect();
        for (index, endpoint) in (0u32..).zip(&profile.endpoints) {
            let Some(&old_index) = places.get(endpoint.name.as_str()) else { continue };
            let from = EndpointId { profile: old_profile, index: old_index };
            let to = EndpointId { profile: ProfileId(i), index };
            let target = |monitor: &router_common::model::Monitor| monitor.target.clone();
            if endpoint.monitor.as_ref().map(target) != old.endpoint(from).monitor.as_ref().map(target) {
                continue;
            }
            if let Some(&verdict) = before.health.verdicts.get(&from) {
                view.verdicts.insert(to, verdict);
            }
            if let Some(&average) = before.health.latency.get(&from) {
                view.latency.insert(to, average);
            }
        }
    }
    view
}

/// The endpoints whose decisions can differ between two views of a model's health.
fn differing(model: &Model, before: &HealthView, now: &HealthView) -> Vec<EndpointId> {
    let fastest =
        |endpoint: &EndpointId| matches!(model.profile(endpoint.profile).method, Method::Fastest { .. });
    let verdicts = before.verdicts.keys().chain(now.verdicts.keys());
    let verdicts = verdicts.filter(|&&endpoint| before.health(endpoint) != now.health(endpoint));
    let latencies = before.latency.keys().chain(now.latency.keys()).filter(|endpoint| fastest(endpoint));
    let latencies = latencies.filter(|endpoint| before.latency.get(endpoint) != now.latency.get(endpoint));
    let mut changed: Vec<EndpointId> = verdicts.chain(latencies).copied().collect();
    changed.sort_unstable();
    changed.dedup();
    changed
}
