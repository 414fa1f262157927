//! `xroute run`: wires probes, agent, fast path, userspace server and control socket together.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};

use super::DEFAULT_CONFIG;
use crate::agent::Agent;
use crate::answers::{Answers, Shares, UNDER_WAY};
use crate::audit::Who;
use crate::clock::unix_now;
use crate::config::Config;
use crate::datapath::{self, Datapath, Options, Start};
use crate::events::Event;
use crate::handing::Taken;
use crate::probe::{Engine, Limits, Observed, targets_of};
use crate::reload::{LoadedFeed, Wanted};
use crate::systemd::{self, Notify};
use crate::{control, dns, privileges, settings};

mod answers;
mod changes;
mod descriptors;
mod failover;
mod feeds;
mod keeping;
mod liveness;
mod reloads;
mod serving;
mod sockets;
mod state;
mod status;
mod take_over;
mod tap;
mod telling;
mod upgrade;

use feeds::Feeds;
use keeping::Keeping;
use liveness::Manager;
use reloads::Reloads;
use serving::{Serving, room};
use sockets::{Given, Sockets};
use state::Keeper;
use take_over::Predecessor;
use tap::Tap;
use telling::Telling;
use upgrade::{Ended, Program, Upgrade};

/// How long the fast path goes on as usual after the agent's last sign of life.
const LEASE: Duration = Duration::from_secs(15);
/// How often the lease is renewed.
const RENEWAL: Duration = Duration::from_secs(2);
/// How often it is looked whether an override has ended.
const ENDS: Duration = Duration::from_millis(500);
/// Probe results taken in one step at most, so that a burst of verdicts is one recompilation.
const BATCH: usize = 4096;
/// How long the end waits for a generation that is being made.
const END: Duration = Duration::from_millis(200);

/// What was made before the agent runs.
struct Begun {
    program: Program,
    config: Config,
    loaded: Vec<LoadedFeed>,
    from: keeping::From,
    sockets: Sockets,
    notify: Notify,
}

/// Arguments of `xroute run`.
#[derive(Args, Debug)]
pub struct Run {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    config: PathBuf,
    /// Leave the XDP program attached and answering when the agent ends
    #[arg(long)]
    keep_attached: bool,
    /// Where program and maps are pinned, on a bpffs [default: chosen by the agent]
    #[arg(long, value_name = "DIR")]
    pin_dir: Option<PathBuf>,
}

impl Run {
    /// Runs until SIGTERM or SIGINT, or until another agent has taken over.
    pub fn execute(self) -> anyhow::Result<()> {
        env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
        let program = Program::find();
        // SAFETY: nothing was opened by its number so far, and this is the one place that takes them.
        let given = unsafe { systemd::given() };
        let mut before = Predecessor::find()?;
        let begun = self.begin(program, given, before.as_mut());
        let ended = begun.and_then(|begun| self.go_on(begun, &mut before));
        if let (Err(error), Some(before)) = (&ended, &before) {
            before.failed(error);
        }
        ended
    }

    /// Does what needs a single thread, or more privileges than the agent has when it runs.
    fn begin(
        &self,
        program: Program,
        given: Vec<systemd::Given>,
        before: Option<&mut Predecessor>,
    ) -> anyhow::Result<Begun> {
        let keeping::Start { config, loaded, from } = keeping::start(&self.config)?;
        for warning in &config.warnings {
            log::warn!("{warning}");
        }
        let settings = &config.server;
        let notify = Notify::from_environment();
        if before.is_some() && !settings.interfaces.is_empty() && !privileges::has(&privileges::FAST_PATH)? {
            bail!(
                "[server] has interfaces now, and the agent that runs has none and has given up the capabilities for \
                 them: restart it"
            );
        }
        let given = match before {
            Some(before) => before.take()?,
            None => Given::of_service_manager(given)?,
        };
        let sockets = Sockets::open(settings, given, &notify)?;
        descriptors::provide(settings);
        if settings.interfaces.is_empty() {
            privileges::keep_only(&privileges::USERSPACE)?;
        } else {
            datapath::prepare(&self.pin_dir())?;
            privileges::keep_only(&privileges::FAST_PATH)?;
        }
        if let Err(error) = std::fs::File::open(&self.config) {
            log::warn!(
                "a reload will fail: {} cannot be read without the privileges of the start: {error}",
                self.config.display()
            );
        }
        Ok(Begun { program, config, loaded, from, sockets, notify })
    }

    fn go_on(&self, begun: Begun, before: &mut Option<Predecessor>) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let ended = runtime.block_on(self.run(begun, before));
        runtime.shutdown_timeout(END);
        ended
    }

    fn pin_dir(&self) -> PathBuf {
        self.pin_dir.clone().unwrap_or_else(datapath::default_directory)
    }

    async fn run(&self, begun: Begun, before: &mut Option<Predecessor>) -> anyhow::Result<()> {
        let Begun { program, config, loaded, from, mut sockets, notify } = begun;
        let started = Instant::now();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let mut agent = state::resume(config)?;
        let store = Keeping::prepare(&mut agent);
        let settings = agent.settings().clone();
        let to_keep = sockets.take_to_keep()?;
        let api_sockets = sockets.of_api()?;
        let Sockets { dns: listening, control: listener, http, control_given, control_stays, .. } = sockets;

        let counts = Arc::new(dns::Counts::default());
        let (serve, services) = watch::channel(Arc::new(agent.serving()));
        let lock = before.as_mut().and_then(|before| before.lock.take());
        let (server, (datapath, answers)) = if before.is_some() {
            // What can fail comes first: the old agent reads from the sockets meanwhile.
            let attached = self.attach(&settings, &mut agent, lock, true)?;
            let services_now = services;
            serve.send_replace(Arc::new(agent.serving()));
            (dns::serve_on(listening, services_now, Arc::clone(&counts)).await?, attached)
        } else {
            let server = dns::serve_on(listening, services, Arc::clone(&counts)).await?;
            let attached = self.attach(&settings, &mut agent, None, false)?;
            (server, attached)
        };
        let mut tap = Tap::new(Arc::clone(counts.readers()));
        if before.is_none() {
            tap.begin(datapath.as_ref(), settings.dnstap.as_ref());
        }

        let (requests_in, mut requests) = mpsc::channel(64);
        let groups =
            control::Groups { control: settings.control_group.clone(), admin: settings.admin_group.clone() };
        let mut doors = vec![control::Door::new("control")];
        let routes = control::routes(requests_in.clone(), groups.clone());
        let listener =
            tokio::net::UnixListener::from_std(listener).context("cannot watch the control socket")?;
        let api = tokio::spawn(control::serve_unix(listener, routes, groups, Arc::clone(&doors[0])));
        let http = match http {
            None => None,
            Some(listener) => {
                let listener =
                    tokio::net::TcpListener::from_std(listener).context("cannot watch a TCP socket")?;
                let routes = control::read_only(requests_in);
                let door = control::Door::new("http");
                doors.push(Arc::clone(&door));
                Some(tokio::spawn(control::serve_tcp(listener, routes, door)))
            }
        };

        let (observed_in, mut observed) = mpsc::channel::<Observed>(BATCH);
        let (changed_in, mut changed) = mpsc::channel(4);
        let engine = Engine::start(Limits::from(settings.probes), observed_in);
        engine.set_targets(targets_of(&agent.snapshot().model));
        let mut feeds = Feeds::new(changed_in);
        feeds.replace(loaded);
        let telling = Telling::new(&agent);
        let (gone_in, mut gone) = oneshot::channel();
        let mut to_keep = Some(to_keep);
        let manager = Manager::new(notify, settings.ready_within, before.is_some());
        match before.take() {
            Some(before) => {
                // Nobody waits for it when this agent is ending.
                let ended = move || {
                    let _ = gone_in.send(());
                };
                before.serving(Taken { control: control_given }, server.arrivals(), ended)?;
            }
            None => {
                if let Some(to_keep) = to_keep.take() {
                    to_keep.tell(&manager.notify);
                }
                drop(gone_in);
            }
        }
        // Not before: until then the old agent may have to go on with what is kept.
        let serial =
            datapath.as_ref().map_or(agent.compiled().tables.generation.serial, Datapath::active_generation);
        let keeping = Keeping::new(store, &agent, from, serial);
        let mut serving = Serving {
            config: self.config.clone(),
            agent,
            datapath,
            serve,
            counts,
            engine,
            feeds,
            reloads: Reloads::default(),
            keeper: Keeper::new(&settings.state_dir),
            keeping,
            answers,
            shares: Shares::default(),
            manager,
            program,
            control_stays,
            upgrade: None,
            tap,
            ends_again: None,
            telling,
            doors,
            started,
            loaded_at: unix_now(),
        };
        serving.answers_from_another();
        let mut renewal = tokio::time::interval(RENEWAL);
        let mut ends = tokio::time::interval(ENDS);
        let mut looks = tokio::time::interval(serving.manager.interval());
        let mut batch = Vec::new();
        log::info!("serving {}", describe(&settings));
        serving.begin();
        let handed = loop {
            tokio::select! {
                _ = terminate.recv() => break None,
                _ = interrupt.recv() => break None,
                _ = hangup.recv() => serving.load(Wanted::own(), Who::agent(), None),
                _ = renewal.tick() => {
                    serving.keep_up()?;
                    serving.follow_shares();
                }
                _ = ends.tick() => serving.end_overrides(),
                _ = looks.tick() => {
                    let generation = status::generation(&serving);
                    serving.manager.look(&serving.agent, generation, &server.beats());
                }
                Ok(()) = &mut gone, if to_keep.is_some() => {
                    // The service manager listens to this process only since the old one is gone.
                    if let Some(to_keep) = to_keep.take() {
                        to_keep.tell(&serving.manager.notify);
                    }
                    serving.begin_tap();
                }
                count = observed.recv_many(&mut batch, BATCH) => {
                    if count == 0 {
                        bail!("the probe engine has ended");
                    }
                    serving.observed(std::mem::take(&mut batch))?;
                }
                Some(request) = requests.recv() => serving.answer(request),
                Some(kinds) = changed.recv() => {
                    serving.reloads.want_feeds(kinds);
                    serving.make_next();
                }
                made = serving.reloads.made() => serving.made(made)?,
                () = serving.telling.clock.due() => serving.first_answers(),
                () = serving.keeper.due() => {
                    let answers = serving.kept_answers();
                    serving.keeper.write(serving.agent.kept(), answers);
                }
                message = Upgrade::hear(&mut serving.upgrade) => {
                    let descriptors = || {
                        let of_api = api_sockets.iter().map(OwnedFd::try_clone);
                        server.descriptors()?.into_iter().map(Ok).chain(of_api).collect()
                    };
                    if let Ended::HandedOver(handed) = serving.heard(message, descriptors, &mut requests).await? {
                        break Some(handed);
                    }
                }
            }
            serving.manager.reloading(serving.reloads.is_busy());
        };
        let keeps_attached = (self.keep_attached || handed.is_some()) && serving.datapath.is_some();
        serving.telling.tell(Event::Ending { keeps_attached });
        api.abort();
        if let Some(http) = http {
            http.abort();
        }
        // Who waits for something is told at once that it will not come, while there is time to send it.
        drop((std::mem::take(&mut serving.reloads), serving.upgrade.take()));
        if let Some(handed) = handed {
            let Serving { engine, datapath, manager, tap, .. } = serving;
            tokio::task::block_in_place(|| tap.end());
            log::info!("process {} serves from now on; ending", handed.pid);
            // Who asks this process now is told so.
            drop(requests);
            manager.handed_over(handed.pid);
            engine.shutdown().await;
            // The new agent has program, maps and pins.
            drop(datapath);
            let (heir, given) = handed.heir();
            server.leave(heir).await;
            // All connections are on their way when nobody can give one any more.
            let _ = given.await;
            if !handed.taken.control && !control_stays {
                let _ = std::fs::remove_file(&settings.control);
            }
            return Ok(());
        }
        log::info!("ending");
        drop(requests);
        serving.manager.stopping();
        let (fast, ended, detached) = match serving.datapath.take() {
            Some(datapath) if self.keep_attached => {
                let fast = datapath.tallies();
                datapath.keep();
                (fast.ok(), answers::Ended::Attached, Ok(()))
            }
            Some(datapath) => {
                let (detached, fast) = datapath.detach_and_count();
                (fast.ok(), answers::Ended::Detached, detached)
            }
            None => (None, answers::Ended::Detached, Ok(())),
        };
        server.stop().await;
        let last = serving.last_answers(fast.as_ref(), ended);
        let Serving { engine, keeper, agent, tap, .. } = serving;
        tokio::task::block_in_place(|| tap.end());
        engine.shutdown().await;
        keeper.end(agent.kept(), last).await;
        detached?;
        if !control_stays {
            // Nobody can connect any more; a file that is gone already is no matter.
            let _ = std::fs::remove_file(&settings.control);
        }
        Ok(())
    }

    /// Starts or adopts the fast path, filled with the agent's tables.
    fn attach(
        &self,
        settings: &settings::Server,
        agent: &mut Agent,
        lock: Option<OwnedFd>,
        handed_over: bool,
    ) -> anyhow::Result<(Option<Datapath>, Answers)> {
        let saved = state::answers(&settings.state_dir);
        // One that hands over goes on answering until this one does.
        let until = || if handed_over { unix_now() + UNDER_WAY } else { unix_now() };
        if settings.interfaces.is_empty() {
            log::info!("no interfaces: the userspace server answers everything");
            return Ok((None, Answers::resume(saved, None, until())));
        }
        let options = Options {
            interfaces: &settings.interfaces,
            mode: settings.xdp_mode,
            pin_dir: self.pin_dir(),
            stale: settings.stale,
            lease: LEASE,
        };
        let counted = saved.as_ref().map(|saved| saved.counted.clone()).unwrap_or_default();
        let (datapath, start) = Datapath::open_after(&options, &agent.compiled().tables, counted, lock)?;
        match start {
            Start::Fresh => log::info!("fast path: started"),
            Start::Adopted => log::info!("fast path: adopted what was running"),
            Start::Replaced(why) => log::info!("fast path: replaced what was running: {why}"),
        }
        for interface in datapath.interfaces() {
            match &interface.why_not_native {
                None => log::info!("interface {}: XDP in {} mode", interface.name, interface.mode),
                Some(why) => {
                    log::warn!(
                        "interface {}: XDP in {} mode, not native: {why}",
                        interface.name,
                        interface.mode
                    );
                }
            }
        }
        agent.set_room(room(&datapath));
        let answers = Answers::resume(saved, datapath.tallies().ok().as_ref(), until());
        Ok((Some(datapath), answers))
    }
}

fn describe(settings: &settings::Server) -> String {
    let listen: Vec<String> = settings.listen.iter().map(ToString::to_string).collect();
    format!("DNS on {}", listen.join(", "))
}
