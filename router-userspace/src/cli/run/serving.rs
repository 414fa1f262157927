//! A running agent with everything it works on; one method for each thing that can happen.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use router_common::compile::Room;
use router_common::counter::Counter;
use router_common::tables::Tables;
use tokio::sync::watch;

use super::failover::Received;
use super::feeds::Feeds;
use super::keeping::Keeping;
use super::liveness::Manager;
use super::reloads::{Made, Reloads, Reply};
use super::state::Keeper;
use super::tap::Tap;
use super::telling::Telling;
use super::upgrade::{Program, Upgrade};
use super::{LEASE, changes, status};
use crate::agent::{Agent, Draft, Effect, Event};
use crate::answers::{Answers, Shares};
use crate::audit::{self, Entry, Who};
use crate::clock::unix_now;
use crate::control::{Door, LoadReport, OverridesReport, ReloadReport, Request};
use crate::datapath::{self, Datapath};
use crate::dns;
use crate::events;
use crate::explain::explain;
use crate::plan::PlanReport;
use crate::probe::{Engine, Limits, Observed};
use crate::reload::{BrokenFeed, Ready, Source, Wanted};

/// See the module.
pub(super) struct Serving {
    pub(super) config: PathBuf,
    pub(super) agent: Agent,
    /// `None`: the userspace server answers everything.
    pub(super) datapath: Option<Datapath>,
    pub(super) serve: watch::Sender<Arc<dns::Service>>,
    pub(super) counts: Arc<dns::Counts>,
    pub(super) engine: Engine,
    pub(super) feeds: Feeds,
    pub(super) reloads: Reloads,
    pub(super) keeper: Keeper,
    /// The generations that are kept.
    pub(super) keeping: Keeping,
    /// What was handed out of endpoints.
    pub(super) answers: Answers,
    /// What each is to have of it.
    pub(super) shares: Shares,
    pub(super) manager: Manager,
    pub(super) program: Program,
    /// Whether the file of the control socket stays when the agent ends.
    pub(super) control_stays: bool,
    /// An upgrade that is under way.
    pub(super) upgrade: Option<Upgrade>,
    pub(super) tap: Tap,
    /// Not before this is it tried again to end overrides.
    pub(super) ends_again: Option<Instant>,
    pub(super) telling: Telling,
    /// Listeners of the API.
    pub(super) doors: Vec<Arc<Door>>,
    pub(super) started: Instant,
    /// When the serving generation came into service, since the epoch.
    pub(super) loaded_at: Duration,
}

impl Serving {
    /// Renews the lease, follows interfaces that changed, and frees what nobody reads any more.
    pub(super) fn keep_up(&mut self) -> anyhow::Result<()> {
        self.telling.look_at_notifies(&self.counts);
        let Some(datapath) = &mut self.datapath else {
            if self.agent.compiled().has_retired() {
                self.agent.handle(Event::GraceOver, unix_now())?;
            }
            return Ok(());
        };
        // All of it waits in the kernel now and then, for milliseconds.
        tokio::task::block_in_place(|| {
            datapath.renew_lease(LEASE);
            self.telling.renewed();
            let refreshed = datapath.refresh().and_then(|changed| match changed {
                true => install(datapath, &self.agent.compiled().tables, &mut self.telling),
                false => Ok(()),
            });
            self.telling.look_at_interfaces(datapath);
            self.telling.tell_written();
            if let Err(error) = refreshed {
                log::warn!("interfaces: {error:#}");
            }
            self.tap.follow(Some(datapath));
            self.agent.set_room(room(datapath));
            if self.agent.compiled().has_retired() {
                datapath.grace();
                self.agent.handle(Event::GraceOver, unix_now())?;
            }
            Ok(())
        })
    }

    /// No agent before this one reads from the fast path's ring any more.
    pub(super) fn begin_tap(&mut self) {
        let Self { tap, datapath, agent, .. } = self;
        tokio::task::block_in_place(|| tap.begin(datapath.as_ref(), agent.settings().dnstap.as_ref()));
    }

    /// Probes ended.
    pub(super) fn observed(&mut self, observed: Vec<Observed>) -> anyhow::Result<()> {
        let received = Received::now(&observed);
        let effects = self.agent.handle(Event::Observed(observed), unix_now())?;
        self.telling.clock.decided(&received, &effects, &self.agent.snapshot().model);
        self.carry_out(effects)?;
        let Self { telling, datapath, counts, .. } = self;
        telling.clock.carried_out(|| answers(datapath.as_ref(), counts));
        Ok(())
    }

    /// The agent serves.
    pub(super) fn begin(&mut self) {
        let generation = status::generation(self);
        let version = env!("CARGO_PKG_VERSION").to_owned();
        self.telling.tell(events::Event::Started { version, pid: std::process::id(), generation });
        if let Some(datapath) = &self.datapath {
            self.telling.look_at_interfaces(datapath);
        }
    }

    /// Looks whether somebody was answered since the tables changed.
    pub(super) fn first_answers(&mut self) {
        self.telling.clock.answers(answers(self.datapath.as_ref(), &self.counts));
    }

    /// Somebody asks.
    pub(super) fn answer(&mut self, request: Request) {
        match request {
            Request::Load(who, wanted, reply) => self.load(wanted, who, Some(reply)),
            Request::Change(who, change, reply) => self.change(who, change, reply),
            Request::Upgrade(who, reply) => self.upgrade(who, reply),
            request => {
                if matches!(request, Request::Status(_)) {
                    self.follow_shares();
                }
                self.tell(request);
            }
        }
    }

    /// Somebody wants to know something. Requests for changes are not answered here.
    pub(super) fn tell(&self, request: Request) {
        // Whoever asked may be gone, which is no matter.
        match request {
            Request::Status(reply) => drop(reply.send(status::report(self))),
            Request::Metrics(reply) => drop(reply.send(status::scrape(self))),
            Request::Events(reply) => drop(reply.send(Arc::clone(&self.telling.stream))),
            Request::Explain(question, reply) => {
                drop(reply.send(explain(&self.agent.service(), self.agent.compiled(), &question)));
            }
            Request::Readers(reply) => drop(reply.send(Arc::clone(self.counts.readers()))),
            Request::Service(reply) => drop(reply.send(Arc::new(self.agent.service()))),
            Request::Overrides(reply) => {
                let overrides = changes::report(&self.agent, unix_now());
                drop(reply.send(OverridesReport { overrides }));
            }
            Request::Drains(reply) => drop(reply.send(self.drains())),
            Request::Standing(reply) => {
                let standing = self.keeping.standing(&self.config, status::generation(self), self.queries());
                drop(reply.send((standing, self.agent.basis())));
            }
            Request::Load(..) | Request::Change(..) | Request::Upgrade(..) => {}
        }
    }

    /// A configuration is wanted in place of what runs.
    pub(super) fn load(&mut self, wanted: Wanted, who: Who, reply: Option<Reply>) {
        self.reloads.want_configuration(wanted, who, reply);
        self.make_next();
    }

    /// Starts making the next generation, when one is wanted and none is being made.
    pub(super) fn make_next(&mut self) {
        let mut reloads = std::mem::take(&mut self.reloads);
        let standing = || self.keeping.standing(&self.config, status::generation(self), self.queries());
        reloads.start(standing, || self.feeds.list(), || self.agent.basis());
        self.reloads = reloads;
    }

    /// A generation was made, or could not be.
    ///
    /// # Errors
    /// What the agent cannot go on with. A generation that cannot be used is none of it.
    pub(super) fn made(&mut self, made: Made) -> anyhow::Result<()> {
        match made {
            Made::Configuration(made) => self.configuration_made(made)?,
            Made::Amended(amended) => self.amended(*amended)?,
            Made::Feeds(refreshed) => {
                for broken in refreshed.broken {
                    self.reloads.counts.data_failed += 1;
                    self.telling.data_broken(&broken);
                    self.feeds.broken(broken);
                }
                if let Some(ready) = refreshed.ready {
                    self.feeds_made(ready)?;
                }
            }
        }
        self.make_next();
        Ok(())
    }

    fn configuration_made(&mut self, made: Result<Ready, String>) -> anyhow::Result<()> {
        let (wanted, who) = self.reloads.asked();
        let result = match made {
            Err(why) => Err(why),
            Ok(Ready { draft, warnings, loaded, took, configuration }) => {
                let began = Instant::now();
                match self.put_into_service(draft)? {
                    Err(why) => Err(why),
                    Ok(()) => {
                        self.feeds.replace(loaded);
                        self.reloads.forget_feeds();
                        let mut reload = self.reloaded(warnings, took + began.elapsed());
                        let mut plan = PlanReport::default();
                        if let Some(made) = configuration {
                            let first = who.first().cloned().unwrap_or_else(Who::agent);
                            let (agent, generation) = (&self.agent, reload.generation);
                            let keep = || self.keeping.keep(agent, &wanted, first, &made, generation);
                            reload.warnings.extend(tokio::task::block_in_place(keep));
                            reload.summary = Some(made.plan.summary.clone());
                            plan = made.plan;
                        }
                        Ok(LoadReport { plan, reload })
                    }
                }
            }
        };
        let name = match &wanted.source {
            Source::Own => self.config.display().to_string(),
            Source::File(path) => path.display().to_string(),
            Source::Generation(Some(number)) => format!("generation {number}"),
            Source::Generation(None) => String::from("the generation before"),
        };
        match &result {
            Ok(LoadReport { plan, reload }) => {
                self.telling.reloaded(reload);
                self.reloads.counts.configuration_ok += 1;
                self.reloads.last_error = None;
                for warning in &reload.warnings {
                    log::warn!("{warning}");
                }
                for beyond in &plan.exceeded {
                    log::warn!("limit exceeded: {beyond}");
                }
                log::info!("reloaded {name}: {}", reload.to_string().trim_end().replace('\n', "; "));
            }
            Err(why) => {
                self.telling.refused(status::generation(self), why);
                self.reloads.counts.configuration_failed += 1;
                self.reloads.last_error = Some(why.clone());
                log::error!("reload of {name} refused, what runs goes on:\n{why}");
            }
        }
        self.reloads.tell(&result);
        if let Ok(LoadReport { plan, reload }) = &result {
            for who in who {
                self.note(Entry {
                    at: audit::written(unix_now()),
                    who,
                    what: wanted.what(),
                    asked: if wanted.force { format!("{name} --force") } else { name.clone() },
                    changed: Vec::new(),
                    plan: Some(plan.summary.to_string()),
                    until: None,
                    reason: wanted.reason.clone(),
                    generation: reload.generation,
                });
            }
        }
        Ok(())
    }

    fn feeds_made(&mut self, ready: Ready) -> anyhow::Result<()> {
        let Ready { draft, loaded, took, .. } = ready;
        let began = Instant::now();
        match self.put_into_service(draft)? {
            Ok(()) => {
                self.reloads.counts.data_ok += 1;
                self.telling.figures.generation("data", took + began.elapsed());
                let generation = status::generation(self);
                for loaded in &loaded {
                    self.telling.data_taken(loaded);
                    let (kind, path) = (loaded.feed.kind, loaded.feed.path.display());
                    log::info!(
                        "{kind} {path}: {} rows loaded, generation {generation} serves, made in {} ms",
                        loaded.rows,
                        took.as_millis()
                    );
                }
                self.feeds.refreshed(loaded);
            }
            Err(why) => {
                for loaded in loaded {
                    self.reloads.counts.data_failed += 1;
                    let broken = BrokenFeed { kind: loaded.feed.kind, why: why.clone() };
                    self.telling.data_broken(&broken);
                    self.feeds.broken(broken);
                }
            }
        }
        Ok(())
    }

    /// Fast path first, then userspace: afterwards both answer from the draft. The inner error says why the
    /// serving generation stays; the outer one is what the agent cannot go on with.
    pub(super) fn put_into_service(&mut self, mut draft: Draft) -> anyhow::Result<Result<(), String>> {
        tokio::task::block_in_place(|| {
            if let Err(error) = self.agent.align(&mut draft) {
                return Ok(Err(error.to_string()));
            }
            if let Some(datapath) = &mut self.datapath {
                // Large tables take seconds to write.
                datapath.renew_lease(LEASE);
                if let Err(error) = install(datapath, draft.tables(), &mut self.telling) {
                    return Ok(Err(format!("the fast path does not take it: {error:#}")));
                }
                datapath.set_stale(draft.settings().stale);
                datapath.renew_lease(LEASE);
                self.tap.follow(Some(datapath));
                self.agent.set_room(room(datapath));
            }
            self.tap.configure(draft.settings().dnstap.as_ref());
            let effects = self.agent.adopt(draft, unix_now())?;
            self.loaded_at = unix_now();
            self.carry_out(effects)?;
            self.answers_from_another();
            Ok(Ok(()))
        })
    }

    fn reloaded(&self, warnings: Vec<String>, took: Duration) -> ReloadReport {
        let model = &self.agent.snapshot().model;
        ReloadReport {
            generation: status::generation(self),
            zones: model.zones().len(),
            profiles: model.profiles().len(),
            names: model.profiles().iter().map(|profile| profile.names.len()).sum(),
            endpoints: model.profiles().iter().map(|profile| profile.endpoints.len()).sum(),
            milliseconds: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            warnings,
            summary: None,
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>) -> anyhow::Result<()> {
        let mut touched = Vec::new();
        for effect in effects {
            match effect {
                Effect::Verdict(endpoint, health) => {
                    let word = events::word(health);
                    self.keeper.verdict();
                    touched.push(endpoint);
                    let path = self.agent.snapshot().model.endpoint_path(endpoint);
                    log::info!("verdict {path} {word} at_ns={}", datapath::monotonic());
                }
                Effect::Apply(operations) => {
                    if let Some(datapath) = &mut self.datapath {
                        let began = Instant::now();
                        datapath.apply(&operations)?;
                        self.telling.wrote(datapath, Some(operations.len()), began);
                        log::info!("applied {} operations at_ns={}", operations.len(), datapath::monotonic());
                    }
                }
                Effect::Install => {
                    if let Some(datapath) = &mut self.datapath {
                        install(datapath, &self.agent.compiled().tables, &mut self.telling)?;
                        self.tap.follow(Some(datapath));
                        self.agent.set_room(room(datapath));
                        log::info!("installed a new generation at_ns={}", datapath::monotonic());
                    }
                }
                Effect::Serve(service) => {
                    self.serve.send_replace(service);
                }
                Effect::Probe(targets) => {
                    self.engine.set_limits(Limits::from(self.agent.settings().probes));
                    let changed = self.engine.set_targets(targets);
                    if changed.added + changed.removed > 0 {
                        log::info!(
                            "probe targets: {} added, {} kept, {} removed",
                            changed.added,
                            changed.kept,
                            changed.removed
                        );
                    }
                }
            }
        }
        self.telling.carried_out(&self.agent, &touched);
        Ok(())
    }
}

/// Answers of both paths so far, whatever the name; `None` when the fast path's cannot be read.
fn answers(datapath: Option<&Datapath>, counts: &dns::Counts) -> Option<u64> {
    let server = counts.get(Counter::ServerRecords) + counts.get(Counter::ServerNodata);
    let Some(datapath) = datapath else { return Some(server) };
    let fast = [Counter::AnswerRecords, Counter::AnswerNodata].map(|counter| datapath.counter(counter).ok());
    fast.into_iter().try_fold(server, |sum, count| Some(sum.wrapping_add(count?)))
}

/// What one half of the fast path holds.
pub(super) fn room(datapath: &Datapath) -> Room {
    let capacity = datapath.capacity();
    Room { cells: capacity.cells, lines: capacity.lines, tallies: capacity.tallies }
}

/// Installs in the other half, or in larger maps when it does not fit.
fn install(datapath: &mut Datapath, tables: &Tables, telling: &mut Telling) -> anyhow::Result<()> {
    let began = Instant::now();
    match datapath.install(tables) {
        Err(datapath::Error::OutOfRoom(_)) => datapath.replace(tables)?,
        installed => installed?,
    }
    telling.wrote(datapath, None, began);
    Ok(())
}
