//! The queue of generations to be made: one at a time, beside the agent's loop.

use std::collections::{BTreeSet, VecDeque};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::changes::{Amended, Asked, amend};
use crate::agent::Basis;
use crate::audit::Who;
use crate::clock::unix_now;
use crate::control::{LoadReport, ReloadCounts};
use crate::feed::{Feed, FeedKind};
use crate::reload::{self, Ready, Refreshed, Standing, Wanted};

/// The way back to one who asked for a reload.
pub(super) type Reply = oneshot::Sender<Result<LoadReport, String>>;

/// One who waits for a reload; a signal waits for no reply.
struct Waiting {
    who: Who,
    reply: Option<Reply>,
}

/// A configuration that is wanted, and those who want it.
struct Job {
    wanted: Wanted,
    waiting: Vec<Waiting>,
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
    /// Of what configuration, and who waits for it.
    asked: Option<Job>,
    /// Configurations that are wanted after that. What is being made may have read the file before it was last
    /// changed, so it does not do.
    jobs: VecDeque<Job>,
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
    /// Wants a configuration. Several who want the same one after another are served together.
    pub(super) fn want_configuration(&mut self, wanted: Wanted, who: Who, reply: Option<Reply>) {
        let waiting = Waiting { who, reply };
        match self.jobs.back_mut() {
            Some(last) if last.wanted == wanted => last.waiting.push(waiting),
            _ => self.jobs.push_back(Job { wanted, waiting: vec![waiting] }),
        }
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
        self.making.is_some() || !self.jobs.is_empty() || !self.changes.is_empty()
    }

    /// Starts what is wanted, when nothing is being made.
    pub(super) fn start(
        &mut self,
        standing: impl FnOnce() -> Standing,
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
        } else if let Some(job) = self.jobs.pop_front() {
            let (wanted, standing, basis) = (job.wanted.clone(), standing(), basis());
            self.asked = Some(job);
            self.making = Some(tokio::task::spawn_blocking(move || {
                Made::Configuration(reload::configuration(&wanted, &standing, &basis))
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

    /// The configuration that was made, and who wanted it, the first first; nobody when none was.
    pub(super) fn asked(&self) -> (Wanted, Vec<Who>) {
        match &self.asked {
            Some(job) => {
                (job.wanted.clone(), job.waiting.iter().map(|waiting| waiting.who.clone()).collect())
            }
            None => (Wanted::own(), Vec::new()),
        }
    }

    /// Tells those who waited for what was made.
    pub(super) fn tell(&mut self, result: &Result<LoadReport, String>) {
        for waiting in self.asked.take().into_iter().flat_map(|job| job.waiting) {
            if let Some(reply) = waiting.reply {
                // The one who asked may be gone.
                let _ = reply.send(result.clone());
            }
        }
    }
}
