//! `xroute run`: wires probes, agent, fast path, userspace server and control socket together.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::DEFAULT_CONFIG;
use crate::agent::Agent;
use crate::audit::Who;
use crate::clock::unix_now;
use crate::config::{self, Config};
use crate::datapath::{self, Datapath, Options, Start};
use crate::events::Event;
use crate::feed::Stamped;
use crate::probe::{Engine, Limits, Observed, targets_of};
use crate::reload::LoadedFeed;
use crate::{control, dns, reload, settings};

mod changes;
mod descriptors;
mod failover;
mod feeds;
mod reloads;
mod serving;
mod state;
mod status;
mod telling;

use feeds::Feeds;
use reloads::Reloads;
use serving::{Serving, room};
use state::Keeper;
use telling::Telling;

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
    /// Runs until SIGTERM or SIGINT.
    pub fn execute(self) -> anyhow::Result<()> {
        env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("info")).init();
        let (config, loaded) = self.load()?;
        for warning in &config.warnings {
            log::warn!("{warning}");
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let ended = runtime.block_on(self.run(config, loaded));
        runtime.shutdown_timeout(END);
        ended
    }

    fn load(&self) -> anyhow::Result<(Config, Vec<LoadedFeed>)> {
        let files = Stamped::default();
        let at = unix_now();
        match config::load_from(&self.config, &files) {
            Ok(config) if config.server.listen.is_empty() => bail!(
                "{}: nothing to listen on: [server] needs listen = [\"192.0.2.53:53\"]",
                self.config.display()
            ),
            Ok(config) => {
                let loaded = reload::loaded(&config, &files, at);
                Ok((config, loaded))
            }
            Err(errors) => bail!("{} is not valid\n{errors}", self.config.display()),
        }
    }

    async fn run(self, config: Config, loaded: Vec<LoadedFeed>) -> anyhow::Result<()> {
        let started = Instant::now();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let listener = control::bind(&config.server)?;
        let mut agent = state::resume(config)?;
        let settings = agent.settings().clone();
        descriptors::provide(&settings);

        let counts = Arc::new(dns::Counts::default());
        let (serve, services) = watch::channel(Arc::new(agent.service()));
        let server = dns::serve(settings.listen.clone(), services, Arc::clone(&counts)).await?;
        let datapath = self.attach(&settings, &mut agent)?;

        let (requests_in, mut requests) = mpsc::channel(64);
        let routes = control::routes(requests_in.clone(), settings.admin_group.clone());
        let routes = routes.into_make_service_with_connect_info::<control::Peer>();
        let api = tokio::spawn(axum::serve(listener, routes).into_future());
        let http = match settings.http {
            None => None,
            Some(address) => {
                let listener = tokio::net::TcpListener::bind(address)
                    .await
                    .with_context(|| format!("cannot listen on {address} (server.http)"))?;
                let routes = control::read_only(requests_in);
                Some(tokio::spawn(axum::serve(listener, routes).into_future()))
            }
        };

        let (observed_in, mut observed) = mpsc::channel::<Observed>(BATCH);
        let (changed_in, mut changed) = mpsc::channel(4);
        let engine = Engine::start(Limits::from(settings.probes), observed_in);
        engine.set_targets(targets_of(&agent.snapshot().model));
        let mut feeds = Feeds::new(changed_in);
        feeds.replace(loaded);
        let telling = Telling::new(&agent);
        let mut serving = Serving {
            config: self.config.clone(),
            agent,
            datapath,
            serve,
            counts,
            engine,
            feeds,
            reloads: Reloads::default(),
            keeper: Keeper::new(crate::state::path(&settings.state_dir)),
            ends_again: None,
            telling,
            started,
            loaded_at: unix_now(),
        };
        let mut renewal = tokio::time::interval(RENEWAL);
        let mut ends = tokio::time::interval(ENDS);
        let mut batch = Vec::new();
        log::info!("serving {}", describe(&settings));
        serving.begin();
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = hangup.recv() => serving.reload(Who::agent(), None),
                _ = renewal.tick() => serving.keep_up()?,
                _ = ends.tick() => serving.end_overrides(),
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
                () = serving.keeper.due() => serving.keeper.write(serving.agent.kept()),
            }
        }
        log::info!("ending");
        let keeps_attached = self.keep_attached && serving.datapath.is_some();
        serving.telling.tell(Event::Ending { keeps_attached });
        api.abort();
        if let Some(http) = http {
            http.abort();
        }
        let Serving { engine, datapath, keeper, agent, .. } = serving;
        engine.shutdown().await;
        match datapath {
            Some(datapath) if self.keep_attached => datapath.keep(),
            Some(datapath) => datapath.detach()?,
            None => {}
        }
        server.stop().await;
        keeper.end(agent.kept()).await;
        // Nobody can connect any more; a file that is gone already is no matter.
        let _ = std::fs::remove_file(&settings.control);
        Ok(())
    }

    /// Starts or adopts the fast path, filled with the agent's tables.
    fn attach(&self, settings: &settings::Server, agent: &mut Agent) -> anyhow::Result<Option<Datapath>> {
        if settings.interfaces.is_empty() {
            log::info!("no interfaces: the userspace server answers everything");
            return Ok(None);
        }
        let options = Options {
            interfaces: &settings.interfaces,
            mode: settings.xdp_mode,
            pin_dir: self.pin_dir.clone().unwrap_or_else(datapath::default_directory),
            stale: settings.stale,
            lease: LEASE,
        };
        let (datapath, start) = Datapath::open(&options, &agent.compiled().tables)?;
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
        Ok(Some(datapath))
    }
}

fn describe(settings: &settings::Server) -> String {
    let listen: Vec<String> = settings.listen.iter().map(ToString::to_string).collect();
    format!("DNS on {}", listen.join(", "))
}
