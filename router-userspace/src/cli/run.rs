//! `xroute run`: wires probes, agent, fast path, userspace server and control socket together.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use router_common::compile::Room;
use router_common::counter::Counter;
use router_common::tables::Tables;
use router_common::view::{Health, HealthView};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::DEFAULT_CONFIG;
use crate::agent::{Agent, Effect, Event};
use crate::control::{self, InterfaceReport, Request, StatusReport};
use crate::datapath::{self, Attached, Datapath, Options, Start};
use crate::dns;
use crate::explain::explain;
use crate::probe::{Engine, Limits, Observed, targets_of, unix_now};
use crate::{config, settings};

/// How long the fast path goes on as usual after the agent's last sign of life.
const LEASE: Duration = Duration::from_secs(15);
/// How often the lease is renewed.
const RENEWAL: Duration = Duration::from_secs(2);
/// Probe results taken in one step at most, so that a burst of verdicts is one recompilation.
const BATCH: usize = 4096;

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
        let loaded = match config::load(&self.config) {
            Ok(loaded) => loaded,
            Err(errors) => bail!("{} is not valid\n{errors}", self.config.display()),
        };
        for warning in &loaded.warnings {
            log::warn!("{warning}");
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.block_on(self.run(loaded))
    }

    async fn run(self, loaded: config::Config) -> anyhow::Result<()> {
        let started = Instant::now();
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let listener = control::bind(&loaded.server.control)?;
        let mut agent = Agent::new(loaded, HealthView::default())?;
        let settings = agent.settings().clone();

        let counts = Arc::new(dns::Counts::default());
        let (serve, services) = watch::channel(Arc::new(agent.service()));
        let server = dns::serve(settings.listen.clone(), services, Arc::clone(&counts)).await?;
        let mut datapath = self.attach(&settings, &mut agent)?;

        let (requests_in, mut requests) = mpsc::channel(64);
        let api = tokio::spawn(axum::serve(listener, control::routes(requests_in.clone())).into_future());
        let http = match settings.http {
            None => None,
            Some(address) => {
                let listener = tokio::net::TcpListener::bind(address)
                    .await
                    .with_context(|| format!("cannot listen on {address} (server.http)"))?;
                Some(tokio::spawn(axum::serve(listener, control::routes(requests_in)).into_future()))
            }
        };

        let (observed_in, mut observed) = mpsc::channel::<Observed>(BATCH);
        let engine = Engine::start(Limits::default(), observed_in);
        engine.set_targets(targets_of(&agent.snapshot().model));
        let mut renewal = tokio::time::interval(RENEWAL);
        let mut batch = Vec::new();
        log::info!("serving {}", describe(&settings));
        loop {
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = renewal.tick() => {
                    // Both wait in the kernel now and then, for milliseconds.
                    if let Some(datapath) = &mut datapath {
                        tokio::task::block_in_place(|| keep_up(datapath, &agent));
                    }
                    if agent.compiled().has_retired() {
                        if let Some(datapath) = &datapath {
                            tokio::task::block_in_place(|| datapath.grace());
                        }
                        agent.handle(Event::GraceOver, unix_now())?;
                    }
                }
                count = observed.recv_many(&mut batch, BATCH) => {
                    if count == 0 {
                        bail!("the probe engine has ended");
                    }
                    let effects = agent.handle(Event::Observed(std::mem::take(&mut batch)), unix_now())?;
                    carry_out(effects, &agent, datapath.as_mut(), &serve)?;
                }
                Some(request) = requests.recv() => match request {
                    Request::Status(reply) => {
                        let report = status(&agent, datapath.as_ref(), &counts, started);
                        // The one who asked may be gone.
                        let _ = reply.send(report);
                    }
                    Request::Explain(question, reply) => {
                        let _ = reply.send(explain(&agent.service(), agent.compiled(), &question));
                    }
                },
            }
        }
        log::info!("ending");
        api.abort();
        if let Some(http) = http {
            http.abort();
        }
        engine.shutdown().await;
        match datapath {
            Some(datapath) if self.keep_attached => datapath.keep(),
            Some(datapath) => datapath.detach()?,
            None => {}
        }
        server.stop().await;
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
        let capacity = datapath.capacity();
        agent.set_room(Room { cells: capacity.cells, lines: capacity.lines });
        Ok(Some(datapath))
    }
}

fn carry_out(
    effects: Vec<Effect>,
    agent: &Agent,
    mut datapath: Option<&mut Datapath>,
    serve: &watch::Sender<Arc<dns::Service>>,
) -> anyhow::Result<()> {
    for effect in effects {
        match effect {
            Effect::Verdict(endpoint, health) => {
                let word = match health {
                    Health::Checking => "checking",
                    Health::Healthy => "online",
                    Health::Unhealthy => "degraded",
                };
                let path = agent.snapshot().model.endpoint_path(endpoint);
                log::info!("verdict {path} {word} at_ns={}", monotonic());
            }
            Effect::Apply(operations) => {
                if let Some(datapath) = datapath.as_deref_mut() {
                    datapath.apply(&operations)?;
                    log::info!("applied {} operations at_ns={}", operations.len(), monotonic());
                }
            }
            Effect::Install => {
                if let Some(datapath) = datapath.as_deref_mut() {
                    install(datapath, &agent.compiled().tables)?;
                    log::info!("installed a new generation at_ns={}", monotonic());
                }
            }
            Effect::Serve(service) => {
                serve.send_replace(service);
            }
        }
    }
    Ok(())
}

fn status(
    agent: &Agent,
    datapath: Option<&Datapath>,
    counts: &dns::Counts,
    started: Instant,
) -> StatusReport {
    let fast = datapath.map(Datapath::counters).and_then(Result::ok).unwrap_or_default();
    let counters: BTreeMap<String, u64> = Counter::ALL
        .iter()
        .enumerate()
        .map(|(i, &counter)| {
            (counter.name().to_string(), fast.get(i).copied().unwrap_or(0) + counts.get(counter))
        })
        .collect();
    let settings = agent.settings();
    StatusReport {
        version: env!("CARGO_PKG_VERSION").to_string(),
        pid: std::process::id(),
        uptime_seconds: started.elapsed().as_secs(),
        generation: datapath.map_or(agent.compiled().tables.generation.serial, Datapath::active_generation),
        listen: settings.listen.iter().map(ToString::to_string).collect(),
        interfaces: datapath
            .map(|datapath| datapath.interfaces().iter().map(interface).collect())
            .unwrap_or_default(),
        counters,
        profiles: agent.profiles(unix_now()),
    }
}

fn interface(attached: &Attached) -> InterfaceReport {
    InterfaceReport {
        name: attached.name.clone(),
        mode: attached.mode.to_string(),
        why_not_native: attached.why_not_native.clone(),
    }
}

fn describe(settings: &settings::Server) -> String {
    let listen: Vec<String> = settings.listen.iter().map(ToString::to_string).collect();
    format!("DNS on {}", listen.join(", "))
}

/// Renews the lease, and follows interfaces that changed their address or were made anew.
fn keep_up(datapath: &mut Datapath, agent: &Agent) {
    datapath.renew_lease(LEASE);
    let refreshed = datapath.refresh().and_then(|changed| match changed {
        true => install(datapath, &agent.compiled().tables),
        false => Ok(()),
    });
    if let Err(error) = refreshed {
        log::warn!("interfaces: {error:#}");
    }
}

/// Installs in the other half, or in larger maps when it does not fit.
fn install(datapath: &mut Datapath, tables: &Tables) -> anyhow::Result<()> {
    match datapath.install(tables) {
        Err(datapath::Error::OutOfRoom(_)) => datapath.replace(tables),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(()),
    }
}

/// Nanoseconds of the clock that log lines and tests compare.
fn monotonic() -> u64 {
    datapath::monotonic()
}
