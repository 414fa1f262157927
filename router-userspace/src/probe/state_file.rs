//! The probe of a `file` monitor: what another tool wrote about an endpoint.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use router_common::health::{Observation, Outcome, ProbeFault};
use router_common::model::StateFile;
use tokio::sync::Mutex;

use super::fault::Failed;
use super::transcript::Transcript;

/// A look at a file serves all endpoints that are in it for this long.
const FRESH: Duration = Duration::from_millis(100);

/// Most octets of a file.
const MOST: u64 = 16 << 20;

/// What is known of every file, so that one that did not change is not read again.
#[derive(Default)]
pub(super) struct StateFiles {
    files: std::sync::Mutex<HashMap<String, Arc<Mutex<Known>>>>,
}

/// One file as it was found last.
#[derive(Default)]
struct Known {
    looked: Option<Instant>,
    stamp: Option<Stamp>,
    states: Option<Result<Arc<States>, String>>,
}

/// What changes when a file is written or replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    length: u64,
}

/// What a file says.
#[derive(Debug, PartialEq, Eq)]
enum States {
    /// One word for whoever looks.
    One(bool),
    /// By `profile/endpoint`.
    Each(BTreeMap<String, bool>),
}

impl StateFiles {
    /// What the file says of the endpoint at this moment.
    pub(super) async fn look_up(
        &self,
        target: &StateFile,
        transcript: &mut Transcript,
    ) -> Result<Observation, Failed> {
        let blind = |why: String| Failed::new(ProbeFault::Blind, format!("{}: {why}", target.file));
        let online = match self.states(&target.file).await.map_err(blind)?.as_ref() {
            States::One(online) => *online,
            States::Each(states) => match states.get(&target.endpoint) {
                Some(online) => *online,
                None => return Err(blind(format!("no state of {:?} in it", target.endpoint))),
            },
        };
        let word = if online { "online" } else { "degraded" };
        transcript.notes.push(format!("{} says {word} of {}", target.file, target.endpoint));
        Ok(Observation { outcome: Outcome::Stated(online), latency: None })
    }

    async fn states(&self, path: &str) -> Result<Arc<States>, String> {
        let known = {
            let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
            // Nobody else has it: no probe of it is under way, and its time is over.
            files.retain(|_, known| {
                Arc::strong_count(known) > 1
                    || known
                        .try_lock()
                        .is_ok_and(|known| known.looked.is_none_or(|looked| looked.elapsed() < 600 * FRESH))
            });
            Arc::clone(files.entry(path.to_owned()).or_default())
        };
        let mut known = known.lock_owned().await;
        if known.looked.is_none_or(|looked| looked.elapsed() >= FRESH) {
            let path = path.to_owned();
            // In a thread, since a file system may be anywhere; the lock goes along, so that a dead one
            // holds one thread and not more with every probe.
            let looked = tokio::task::spawn_blocking(move || {
                known.look(&path);
                known
            });
            known = looked.await.map_err(|error| error.to_string())?;
        }
        known.states.clone().unwrap_or_else(|| Err("not looked at".to_owned()))
    }
}

impl Known {
    fn look(&mut self, path: &str) {
        let opened = File::open(path).and_then(|file| Ok((Stamp::of(&file)?, file)));
        match opened {
            Ok((stamp, file)) => {
                if self.stamp != Some(stamp) || !matches!(self.states, Some(Ok(_))) {
                    self.states = Some(read(file).map(Arc::new));
                    self.stamp = Some(stamp);
                }
            }
            Err(error) => {
                self.states = Some(Err(error.to_string()));
                self.stamp = None;
            }
        }
        self.looked = Some(Instant::now());
    }
}

impl Stamp {
    fn of(file: &File) -> io::Result<Self> {
        let about = file.metadata()?;
        Ok(Self {
            device: about.dev(),
            inode: about.ino(),
            modified: (about.mtime(), about.mtime_nsec()),
            changed: (about.ctime(), about.ctime_nsec()),
            length: about.len(),
        })
    }
}

fn read(file: File) -> Result<States, String> {
    let about = file.metadata().map_err(|error| error.to_string())?;
    if !about.is_file() {
        return Err("not a file".to_owned());
    }
    let mut text = String::new();
    file.take(MOST + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > MOST {
        return Err(format!("longer than {MOST} octets"));
    }
    parse(&text)
}

/// A word, or a JSON object of words.
fn parse(text: &str) -> Result<States, String> {
    if let Some(online) = state(text.trim()) {
        return Ok(States::One(online));
    }
    let words: BTreeMap<String, String> = serde_json::from_str(text).map_err(|error| {
        format!("{error}; wanted is {{\"profile/endpoint\": \"online\"}}, or one word, online or degraded")
    })?;
    let mut states = BTreeMap::new();
    for (endpoint, word) in words {
        let Some(online) = state(&word) else {
            return Err(format!("{endpoint:?}: found {word:?}; allowed are \"online\" and \"degraded\""));
        };
        states.insert(endpoint, online);
    }
    Ok(States::Each(states))
}

fn state(word: &str) -> Option<bool> {
    match word {
        "online" => Some(true),
        "degraded" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_files_say() {
        assert_eq!(parse("online\n"), Ok(States::One(true)));
        assert_eq!(parse(" degraded"), Ok(States::One(false)));
        let each = BTreeMap::from([("www/eu1".to_owned(), true), ("www/us1".to_owned(), false)]);
        let text = "{ \"www/eu1\": \"online\", \"www/us1\": \"degraded\" }";
        assert_eq!(parse(text), Ok(States::Each(each)));
        assert_eq!(parse("{}"), Ok(States::Each(BTreeMap::new())));
        for (broken, word) in [
            ("", "EOF"),
            ("Online", "expected value"),
            ("{\"a\": \"up\"}", "\"a\": found \"up\""),
            ("{\"a\": 1}", "invalid type"),
            ("{\"a\": \"online\"", "EOF"),
            ("[]", "invalid type"),
        ] {
            let why = parse(broken).unwrap_err();
            assert!(why.contains(word), "{broken}: {why}");
        }
    }
}
