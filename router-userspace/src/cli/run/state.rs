//! Keeps what is known of health, and what was handed out, on disk while the agent runs.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::agent::Agent;
use crate::answers;
use crate::clock::unix_now;
use crate::config::Config;
use crate::overrides::kept;
use crate::probe::Kept;
use crate::state::{self, Saved};

/// At least between two writes, so that a storm of verdicts is no storm of writes.
const PAUSE: Duration = Duration::from_secs(3);
/// Between two writes without a verdict, which keep samples and ages up to date.
const QUIET: Duration = Duration::from_secs(60);

/// Makes the agent with what was kept of health. A file that cannot be used is told of, and left alone until
/// it is replaced.
///
/// # Errors
/// When the overrides cannot be read: what an operator took out of service must not come back unasked. When they
/// and the configuration do not make an agent.
pub(super) fn resume(config: Config) -> anyhow::Result<Agent> {
    let path = kept::path(&config.server.state_dir);
    let overrides = kept::read(&path).with_context(|| {
        format!("{} is not what was written there (remove it to run without overrides)", path.display())
    })?;
    for held in overrides.list() {
        log::info!("override from before: {} {}, by {}", held.target, held.setting, held.by);
    }
    let path = state::path(&config.server.state_dir);
    let saved = state::read(&path).unwrap_or_else(|error| {
        log::warn!("{}: {error}; every endpoint is checked anew", path.display());
        Saved::default()
    });
    let kept = saved.endpoints().len();
    let (agent, taken) = Agent::resume(config, overrides, &saved, unix_now())?;
    if kept > 0 {
        log::info!("health of {taken} endpoints taken up from {} ({kept} in it)", path.display());
    }
    Ok(agent)
}

/// What was kept of what was handed out. Without it a drain takes as long as it can take.
pub(super) fn answers(state_dir: &Path) -> Option<answers::kept::Saved> {
    let path = answers::kept::path(state_dir);
    answers::kept::read(&path).unwrap_or_else(|error| {
        log::warn!("{}: {error}; answers are counted anew", path.display());
        None
    })
}

/// Decides when to write, and writes aside.
pub(super) struct Keeper {
    path: PathBuf,
    answers: PathBuf,
    /// When the last write was begun, or the agent.
    since: Instant,
    written: bool,
    verdict: bool,
    writing: Option<JoinHandle<io::Result<()>>>,
    failing: bool,
}

impl Keeper {
    pub(super) fn new(state_dir: &Path) -> Self {
        let since = Instant::now();
        let (path, answers) = (state::path(state_dir), answers::kept::path(state_dir));
        Self { path, answers, since, written: false, verdict: false, writing: None, failing: false }
    }

    /// A verdict changed, or the generation.
    pub(super) fn verdict(&mut self) {
        self.verdict = true;
    }

    /// Waits until it is time to write. Can be given up and called again.
    pub(super) async fn due(&mut self) {
        self.written().await;
        let pause = match (self.verdict, self.written) {
            (true, false) => Duration::ZERO,
            (true, true) => PAUSE,
            (false, _) => QUIET,
        };
        tokio::time::sleep_until(self.since + pause).await;
    }

    /// Waits for a write that is under way.
    async fn written(&mut self) {
        let Some(writing) = &mut self.writing else { return };
        let ended = writing.await;
        self.writing = None;
        let ended = ended.unwrap_or_else(|error| Err(io::Error::other(error)));
        match ended {
            Ok(()) => self.failing = false,
            Err(error) => {
                if !self.failing {
                    log::warn!(
                        "{} cannot be written: {error}; a restart will check anew",
                        self.path.display()
                    );
                }
                self.failing = true;
            }
        }
    }

    /// Begins to write.
    pub(super) fn write(&mut self, kept: Vec<Kept>, answers: answers::kept::Saved) {
        let (path, beside) = (self.path.clone(), self.answers.clone());
        self.writing = Some(tokio::task::spawn_blocking(move || {
            let written = state::write(&path, &Saved::new(&kept));
            answers::kept::write(&beside, &answers).and(written)
        }));
        self.since = Instant::now();
        self.written = true;
        self.verdict = false;
    }

    /// Writes for the last time.
    pub(super) async fn end(mut self, kept: Vec<Kept>, answers: answers::kept::Saved) {
        self.flush(kept, answers).await;
    }

    /// Writes now, and returns when it is written, or could not be.
    pub(super) async fn flush(&mut self, kept: Vec<Kept>, answers: answers::kept::Saved) {
        self.written().await;
        self.write(kept, answers);
        self.written().await;
    }
}
