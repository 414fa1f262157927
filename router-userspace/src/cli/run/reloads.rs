//! The queue of generations to be made: one at a time, beside the agent's loop.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::changes::{Amended, Asked, amend};
use crate::agent::Basis;
use crate::audit::Who;
use crate::clock::unix_now;
use crate::control::{ReloadCounts, ReloadReport};
use crate::feed::{Feed, FeedKind};
use crate::reload::{self, Ready, Refreshed};

/// The way back to one who asked for a reload.
pub(super) type Reply = oneshot::Sender<Result<ReloadReport, String>>;

/// One who waits for a reload; a signal waits for no reply.
struct Waiting {
    who: Who,
    reply: Option<Reply>,
}

/// What was made, and from what.
pub(super) enum Made {
    /// From the configuration file and all its files.
    Configuration(Result<Ready, String>),
    /// From data files, with the configuration as it runs.
    Feeds(Refreshed),
    /// From what runs, with other overrides.
    Amended(Box<Amended>),
}

/// See the module.
#[derive(Default)]
pub(super) struct Reloads {
    /// What is being made.
    making: Option<JoinHandle<Made>>,
    /// Who waits for it.
    asked: Vec<Waiting>,
    /// Whether the configuration is wanted anew after that. What is being made may have read the file before
    /// it was last changed, so it does not do.
    wanted: bool,
    /// Who waits for that.
    waiting: Vec<Waiting>,
    /// Changes by operators, in the order in which they were asked for.
    changes: VecDeque<Asked>,
    /// Data files that have changed.
    changed: BTreeSet<FeedKind>,
    /// What came of reloads so far.
    pub(super) counts: ReloadCounts,
    /// Why the last reload of the configuration was refused.
    pub(super) last_error: Option<String>,
}

impl Reloads {
    /// Wants the configuration loaded anew.
    pub(super) fn want_configuration(&mut self, who: Who, reply: Option<Reply>) {
        self.wanted = true;
        self.waiting.push(Waiting { who, reply });
    }

    /// Wants other overrides. Those whose time is over need taking away once.
    pub(super) fn want_change(&mut self, asked: Asked) {
        if asked.change.is_some() || self.changes.iter().all(|waiting| waiting.change.is_some()) {
            self.changes.push_back(asked);
        }
    }

    /// Wants these data files loaded anew.
    pub(super) fn want_feeds(&mut self, changed: BTreeSet<FeedKind>) {
        self.changed.extend(changed);
    }

    /// The data files have been read with a configuration.
    pub(super) fn forget_feeds(&mut self) {
        self.changed.clear();
    }

    /// Whether something is being made or wanted.
    pub(super) fn is_busy(&self) -> bool {
        self.making.is_some() || self.wanted || !self.changes.is_empty()
    }

    /// Starts what is wanted, when nothing is being made.
    pub(super) fn start(
        &mut self,
        path: &Path,
        feeds: impl FnOnce() -> Vec<Feed>,
        basis: impl FnOnce() -> Basis,
    ) {
        if self.making.is_some() {
            return;
        }
        if let Some(asked) = self.changes.pop_front() {
            // First, since somebody is waiting and little is to be read.
            let basis = basis();
            self.making = Some(tokio::task::spawn_blocking(move || {
                Made::Amended(Box::new(amend(asked, &basis, unix_now())))
            }));
        } else if std::mem::take(&mut self.wanted) {
            self.asked = std::mem::take(&mut self.waiting);
            let (path, basis): (PathBuf, Basis) = (path.to_path_buf(), basis());
            self.making = Some(tokio::task::spawn_blocking(move || {
                Made::Configuration(reload::configuration(&path, &basis))
            }));
        } else if !self.changed.is_empty() {
            let (feeds, kinds, basis) = (feeds(), std::mem::take(&mut self.changed), basis());
            self.making =
                Some(tokio::task::spawn_blocking(move || Made::Feeds(reload::feeds(&feeds, &kinds, &basis))));
        }
    }

    /// Waits for what is being made. Can be given up and called again.
    pub(super) async fn made(&mut self) -> Made {
        let Some(making) = &mut self.making else { return std::future::pending().await };
        let made = making.await;
        self.making = None;
        made.unwrap_or_else(|error| {
            // A panic; what serves is not touched.
            Made::Configuration(Err(format!("the reload failed, please report it: {error}")))
        })
    }

    /// Tells those who waited for what was made, and says who they are.
    pub(super) fn tell(&mut self, result: &Result<ReloadReport, String>) -> Vec<Who> {
        let tell = |waiting: Waiting| {
            if let Some(reply) = waiting.reply {
                // The one who asked may be gone.
                let _ = reply.send(result.clone());
            }
            waiting.who
        };
        self.asked.drain(..).map(tell).collect()
    }
}
