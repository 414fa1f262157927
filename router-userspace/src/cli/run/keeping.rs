//! Which kept generation runs: at the start, and after each change of the configuration.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::agent::Agent;
use crate::audit::Who;
use crate::clock::unix_now;
use crate::config::{self, Config};
use crate::feed::Stamped;
use crate::generations::{Held, Record, Recorder, Recording, Store};
use crate::reload::{self, LoadedFeed, Made, Standing, Wanted};

/// What the agent starts from.
pub(super) struct Start {
    pub(super) config: Config,
    pub(super) loaded: Vec<LoadedFeed>,
    /// What is found out of it for [`Keeping`].
    pub(super) from: From,
}

/// See [`Start`].
pub(super) struct From {
    path: PathBuf,
    recording: Recording,
    held: Option<Held>,
    own: String,
}

/// Reads the agent's configuration file, or what ran in its place when the agent ended and the file is as it was then.
///
/// # Errors
/// When the file is not valid.
pub(super) fn start(own: &Path) -> anyhow::Result<Start> {
    let at = unix_now();
    let files = Stamped::default();
    let recorder = Recorder::new(&files);
    let config = match config::load_from(own, &recorder) {
        Ok(config) if config.server.listen.is_empty() => {
            bail!("{}: nothing to listen on: [server] needs listen = [\"192.0.2.53:53\"]", own.display())
        }
        Ok(config) => config,
        Err(errors) => bail!("{} is not valid\n{errors}", own.display()),
    };
    let loaded = reload::loaded(&config, |path| files.stamp(path), at);
    let recording = recorder.recording(&config);
    let digest = recording.digest();
    let store = Store::new(&config.server.state_dir);
    let held = store.held().unwrap_or_else(|error| {
        log::warn!("what ran in place of {} cannot be read: {error}", own.display());
        None
    });
    if let Some(held) = held {
        if held.file == digest {
            match taken_up(&held, &store) {
                Ok(start) => {
                    log::warn!("{}", differs(&held, own));
                    return Ok(start);
                }
                Err(why) => {
                    log::error!("generation {} cannot be gone on with: {why}", held.generation);
                }
            }
        } else {
            log::info!("{} was changed since {} ran: starting from the file", own.display(), held.is);
        }
    }
    let from = From { path: own.to_path_buf(), recording, held: None, own: digest };
    Ok(Start { config, loaded, from })
}

/// Goes on with what ran.
fn taken_up(held: &Held, store: &Store) -> Result<Start, String> {
    let at = unix_now();
    let kept = store.load(held.generation)?;
    let recorder = Recorder::new(&kept);
    let path = kept.record().config.clone();
    let config = config::load_from(&path, &recorder).map_err(|errors| errors.to_string())?;
    let loaded = reload::loaded(&config, |path| kept.stamp(path), at);
    let recording = recorder.recording(&config);
    let from = From { path, recording, held: Some(held.clone()), own: held.file.clone() };
    Ok(Start { config, loaded, from })
}

/// What those are told who look at an agent that runs something else than its file.
pub(super) fn differs(held: &Held, own: &Path) -> String {
    format!(
        "{} runs in place of {}: until `xroute reload`, or a restart after the file was changed",
        held.is,
        own.display()
    )
}

/// The generations that are kept, and which of them runs.
pub(super) struct Keeping {
    store: Store,
    runs: Option<u64>,
    /// What the agent's own file was like when it was last loaded.
    own: String,
    held: Option<Held>,
}

impl Keeping {
    /// Gives the agent the number after the newest kept. To be called before its tables are anywhere.
    pub(super) fn prepare(agent: &mut Agent) -> Store {
        let store = Store::new(&agent.settings().state_dir);
        if let Some(newest) = store.newest() {
            agent.begin_at(newest.saturating_add(1));
        }
        store
    }

    /// Keeps what the agent started with, which serves as `generation`.
    pub(super) fn new(store: Store, agent: &Agent, from: From, generation: u64) -> Self {
        let From { path, recording, held, own } = from;
        let mut keeping = Self { store, runs: None, own, held };
        // The same configuration as before the restart is not kept twice.
        let before =
            keeping.store.newest().and_then(|number| Some((number, keeping.store.record(number).ok()?)));
        let kept = match before {
            Some((number, record)) if record.config == path && record.digest() == recording.digest() => {
                keeping.store.renumber(number, generation)
            }
            _ => {
                let record = record(agent, path, Who::agent(), "start", None, None);
                keeping.store.keep(generation, record, &recording).map(drop)
            }
        };
        match kept {
            Ok(()) => keeping.runs = Some(generation),
            Err(error) => log::error!("generation {generation} cannot be kept: {error}"),
        }
        let held = keeping.held.take().map(|held| Held { generation, ..held });
        keeping.hold(held);
        keeping
    }

    /// Keeps a configuration that has come into service. What cannot be kept is told of and stops nothing.
    pub(super) fn keep(
        &mut self,
        agent: &Agent,
        wanted: &Wanted,
        who: Who,
        made: &Made,
        generation: u64,
    ) -> Option<String> {
        let record = record(
            agent,
            made.path.clone(),
            who,
            wanted.what(),
            wanted.reason.clone(),
            Some(made.plan.summary.to_string()),
        );
        self.runs = None;
        let kept = self.store.keep(generation, record, &made.recording);
        let held = match &wanted.source {
            reload::Source::Own => {
                self.own = made.recording.digest();
                None
            }
            _ if made.recording.digest() == self.own => None,
            reload::Source::File(path) => Some(path.display().to_string()),
            reload::Source::Generation(_) => {
                Some(format!("generation {}, to which was returned,", made.kept.unwrap_or_default()))
            }
        };
        match kept {
            Ok(_) => {
                self.runs = Some(generation);
                self.hold(held.map(|is| Held { generation, is, file: self.own.clone() }));
                None
            }
            Err(error) => {
                self.hold(None);
                let why = format!("generation {generation} serves, but cannot be kept: {error}");
                log::error!("{why}");
                Some(why)
            }
        }
    }

    fn hold(&mut self, held: Option<Held>) {
        if let Err(error) = self.store.hold(held.as_ref()) {
            log::error!("what runs cannot be remembered over a restart: {error}");
        }
        self.held = held;
    }

    /// Where the agent stands, with the queries counted for each profile.
    pub(super) fn standing(&self, own: &Path, generation: u64, queries: HashMap<String, u64>) -> Standing {
        Standing { own: own.to_path_buf(), store: self.store.clone(), runs: self.runs, generation, queries }
    }

    /// What runs in place of the agent's file.
    pub(super) fn held(&self) -> Option<&Held> {
        self.held.as_ref()
    }
}

fn record(
    agent: &Agent,
    config: PathBuf,
    who: Who,
    what: &str,
    reason: Option<String>,
    summary: Option<String>,
) -> Record {
    let model = agent.base();
    Record {
        version: 0,
        at: unix_now().as_secs(),
        who,
        what: what.to_owned(),
        reason,
        config,
        summary,
        zones: model.zones().len(),
        profiles: model.profiles().len(),
        names: model.profiles().iter().map(|profile| profile.names.len()).sum(),
        endpoints: model.profiles().iter().map(|profile| profile.endpoints.len()).sum(),
        files: Vec::new(),
    }
}
