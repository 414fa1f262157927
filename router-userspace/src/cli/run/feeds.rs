//! Data files of the serving generation: what was loaded from them, and who watches them.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use crate::control::FeedReport;
use crate::feed::{Feed, FeedKind, Stamp, Watch};
use crate::reload::{BrokenFeed, LoadedFeed};

/// How often files are looked at. A change is taken up at the second look that finds it alike.
const LOOK: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Feeds {
    states: Vec<State>,
    changes: mpsc::Sender<BTreeSet<FeedKind>>,
    watcher: Option<JoinHandle<()>>,
}

struct State {
    loaded: LoadedFeed,
    error: Option<String>,
}

impl Feeds {
    /// Tells changes to `changes`; there are no files until [`Self::replace`].
    pub(super) fn new(changes: mpsc::Sender<BTreeSet<FeedKind>>) -> Self {
        Self { states: Vec::new(), changes, watcher: None }
    }

    /// Takes over the files of another configuration, as they were read for it.
    pub(super) fn replace(&mut self, loaded: Vec<LoadedFeed>) {
        self.stop();
        let watch = Watch::new(loaded.iter().map(|loaded| (loaded.feed.clone(), loaded.stamp)));
        if !loaded.is_empty() {
            self.watcher = Some(tokio::spawn(keep_looking(watch, self.changes.clone())));
        }
        self.states = loaded.into_iter().map(|loaded| State { loaded, error: None }).collect();
    }

    /// Takes note of files that were read again and are in use.
    pub(super) fn refreshed(&mut self, loaded: Vec<LoadedFeed>) {
        for loaded in loaded {
            if let Some(state) = self.states.iter_mut().find(|state| state.loaded.feed == loaded.feed) {
                *state = State { loaded, error: None };
            }
        }
    }

    /// Takes note of a file that cannot be used, and logs it.
    pub(super) fn broken(&mut self, broken: BrokenFeed) {
        log::error!("{}: what was loaded before stays in use:\n{}", broken.kind, broken.why);
        if let Some(state) = self.states.iter_mut().find(|state| state.loaded.feed.kind == broken.kind) {
            state.error = Some(broken.why);
        }
    }

    /// The files.
    pub(super) fn list(&self) -> Vec<Feed> {
        self.states.iter().map(|state| state.loaded.feed.clone()).collect()
    }

    /// For `status`. `now` is the time since the epoch.
    pub(super) fn reports(&self, now: Duration) -> Vec<FeedReport> {
        let report = |State { loaded, error }: &State| FeedReport {
            kind: loaded.feed.kind,
            path: loaded.feed.path.display().to_string(),
            rows: loaded.rows,
            loaded_at: loaded.at.as_secs(),
            age_seconds: now.saturating_sub(loaded.at).as_secs(),
            error: error.clone(),
        };
        self.states.iter().map(report).collect()
    }

    fn stop(&mut self) {
        if let Some(watcher) = self.watcher.take() {
            watcher.abort();
        }
    }
}

impl Drop for Feeds {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Looks until nobody listens.
async fn keep_looking(mut watch: Watch, changes: mpsc::Sender<BTreeSet<FeedKind>>) {
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        // A file system can hang; then only this waits.
        let looked = tokio::task::spawn_blocking(move || {
            let changed = watch.look(|path| Stamp::of(path).ok());
            (watch, changed)
        });
        // An error would be a panic, or the end of the runtime.
        let Ok((again, changed)) = looked.await else { return };
        watch = again;
        if !changed.is_empty() && changes.send(changed).await.is_err() {
            return;
        }
    }
}
