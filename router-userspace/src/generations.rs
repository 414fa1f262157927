//! The last configurations that served, kept on disk with every file they were made of, so that an operator can
//! return to one.
//!
//! `state_dir/generations/12/` holds `generation.json` and the files' contents. It is written aside and renamed, so
//! after a crash at any moment it is there as a whole or not at all. Data files (geography, latency) are not kept:
//! other programs write them, and the newest is right for every configuration. Their checksums are, so that it can
//! be said when one has changed since.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::audit::Who;

mod held;
mod kept;
mod recorder;

pub use held::Held;
pub use kept::Kept;
pub use recorder::{Recorder, Recording};

/// Name of the folder in `state_dir`.
pub const FOLDER: &str = "generations";
/// How many are kept.
pub const MOST: usize = 10;

/// Version of the format; another one is not read.
const VERSION: u32 = 1;
/// What is known of a generation, in its folder.
const RECORD: &str = "generation.json";
/// How the folder of one that is being written begins.
const ASIDE: &str = ".new-";
/// Most octets of a record that are read.
const MOST_RECORD: u64 = 64 << 20;

/// What is known of a kept generation.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Version of the format.
    pub version: u32,
    /// When it came into service, seconds since the epoch.
    pub at: u64,
    /// Who wanted it.
    pub who: Who,
    /// What brought it: `start`, `reload`, `apply` or `rollback`.
    pub what: String,
    /// Why, as its operator said.
    pub reason: Option<String>,
    /// Its configuration file.
    pub config: PathBuf,
    /// What it was in short when it came, compared with what ran.
    pub summary: Option<String>,
    /// Zones in it.
    pub zones: usize,
    /// Profiles in it.
    pub profiles: usize,
    /// Owner names in it.
    pub names: usize,
    /// Endpoints in it.
    pub endpoints: usize,
    /// Every file that was read, the configuration itself first.
    pub files: Vec<FileRecord>,
}

/// A file that a generation was made of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileRecord {
    /// Where it was.
    pub path: PathBuf,
    /// SHA-256, in hexadecimal digits.
    pub sha256: String,
    /// Its length.
    pub octets: u64,
    /// Name of its content in the generation's folder; none of a data file.
    pub content: Option<String>,
}

impl Record {
    /// What tells configurations apart: the files that were kept, not data files.
    pub fn digest(&self) -> String {
        recorder::digest(&self.files)
    }

    /// When it came into service, since the epoch.
    pub fn since(&self) -> Duration {
        Duration::from_secs(self.at)
    }
}

/// An entry of the store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its number: the serial number of the generation when it came into service.
    pub number: u64,
    /// What is known of it, or why it cannot be used.
    pub record: Result<Record, String>,
}

/// The generations that are kept in a state directory.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    /// In a state directory, which need not be there.
    pub fn new(state_dir: &Path) -> Self {
        Self { folder: state_dir.join(FOLDER) }
    }

    /// All that are there, newest first, damaged ones too.
    pub fn list(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> =
            self.numbers().into_iter().map(|number| Entry { number, record: self.record(number) }).collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.number));
        entries
    }

    /// The highest number there is.
    pub fn newest(&self) -> Option<u64> {
        self.numbers().into_iter().max()
    }

    fn numbers(&self) -> Vec<u64> {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return Vec::new() };
        entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
    }

    fn path(&self, number: u64) -> PathBuf {
        self.folder.join(number.to_string())
    }

    /// What is known of a generation.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn record(&self, number: u64) -> Result<Record, String> {
        let path = self.path(number).join(RECORD);
        let read = || -> io::Result<Record> {
            let file = std::fs::File::open(&path)?;
            Ok(serde_json::from_reader(io::BufReader::new(io::Read::take(file, MOST_RECORD)))?)
        };
        let record = read().map_err(|why| format!("{RECORD}: {why}"))?;
        match record.version {
            VERSION => Ok(record),
            other => Err(format!("{RECORD}: format {other} is not {VERSION}, that of this version")),
        }
    }

    /// A generation with the content of its files.
    ///
    /// # Errors
    /// Why it cannot be used: a file is gone, or is not what was written.
    pub fn load(&self, number: u64) -> Result<Kept, String> {
        let record = self.record(number)?;
        Kept::load(record, &self.path(number))
    }

    /// Keeps a generation under its number, and drops those that are too many. Returns the record.
    ///
    /// # Errors
    /// Why it is not kept.
    pub fn keep(&self, number: u64, mut record: Record, recording: &Recording) -> io::Result<Record> {
        let mut folders = std::fs::DirBuilder::new();
        // Keys and secrets may be in it.
        folders.recursive(true).mode(0o700);
        folders.create(&self.folder)?;
        self.sweep();
        let aside = self.folder.join(format!("{ASIDE}{number}"));
        folders.create(&aside)?;
        record.version = VERSION;
        record.files = recording.files().to_vec();
        for file in &record.files {
            if let (Some(name), Some(content)) = (&file.content, recording.content(&file.path)) {
                write(&aside.join(name), content)?;
            }
        }
        write(&aside.join(RECORD), &serde_json::to_vec_pretty(&record)?)?;
        sync(&aside)?;
        let place = self.path(number);
        if place.exists() {
            std::fs::remove_dir_all(&place)?;
        }
        std::fs::rename(&aside, &place)?;
        sync(&self.folder)?;
        self.prune(number);
        Ok(record)
    }

    /// Gives a generation another number, under which it serves after a restart.
    ///
    /// # Errors
    /// Why it has its old one.
    pub fn renumber(&self, from: u64, to: u64) -> io::Result<()> {
        if from == to {
            return Ok(());
        }
        std::fs::rename(self.path(from), self.path(to))?;
        sync(&self.folder)
    }

    /// Removes what a crash left half written.
    fn sweep(&self) {
        let Ok(entries) = std::fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(ASIDE)) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
    }

    /// Leaves the newest that can be used, [`MOST`] of them; damaged ones go when they are older than all of these.
    fn prune(&self, serves: u64) {
        let mut sound = 0;
        for entry in self.list() {
            if sound >= MOST
                && entry.number != serves
                && let Err(error) = std::fs::remove_dir_all(self.path(entry.number))
            {
                log::warn!("{} cannot be removed: {error}", self.path(entry.number).display());
            }
            sound += usize::from(entry.record.is_ok());
        }
    }
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_data()
}

/// Makes what was done in a folder last.
fn sync(folder: &Path) -> io::Result<()> {
    std::fs::File::open(folder)?.sync_all()
}

/// Contents by path.
type Contents = BTreeMap<PathBuf, Vec<u8>>;

#[cfg(test)]
mod tests;
