//! What was counted, on disk: one JSON file in `state_dir`, for the agent alone.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::datapath::Mark;
use crate::state;

/// Name of the file in `state_dir`.
pub const FILE: &str = "answers.json";

/// Version of the format; another one is not read.
pub const VERSION: u32 = 1;

/// Most octets that are read.
const MOST: u64 = 1 << 30;

/// The file. Times are in milliseconds since the Unix epoch.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Saved {
    /// Version of the format.
    pub version: u32,
    /// When it was written.
    pub written: u64,
    /// How the agent ended; none while it runs, and when it was killed.
    pub ended: Option<Ended>,
    /// Nothing is known of the time before.
    pub since: u64,
    /// Generations whose answers are in `fast`, the last ones.
    pub counted: Vec<Mark>,
    /// The generation whose answers are in `serving`.
    pub serving: Option<Mark>,
    /// Endpoints that are being drained, and when they were out of the answers.
    pub out: BTreeMap<String, u64>,
    /// Every endpoint that was ever answered with.
    pub endpoints: Vec<SavedEndpoint>,
}

/// How an agent ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Ended {
    /// Nothing answers after it.
    Detached,
    /// The fast path goes on.
    Attached,
}

/// What was handed out of one endpoint.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SavedEndpoint {
    /// `PROFILE/ENDPOINT`.
    pub endpoint: String,
    /// Answers of the fast path, but for those of the generation that served.
    pub fast: u64,
    /// Those.
    pub serving: u64,
    /// Answers of the userspace server.
    pub userspace: u64,
    /// The last one.
    pub last: Option<u64>,
    /// When the last one that was still valid somewhere ended.
    pub until: Option<u64>,
}

/// Where the file is in a state directory.
pub fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

/// Reads the file; `None` when there is none.
///
/// # Errors
/// Why it cannot be used.
pub fn read(path: &Path) -> io::Result<Option<Saved>> {
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let saved: Saved = serde_json::from_reader(io::BufReader::new(io::Read::take(file, MOST)))?;
    if saved.version != VERSION {
        let why = format!("format {} is not {VERSION}, that of this version", saved.version);
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(Some(saved))
}

/// Replaces the file: after a crash at any moment it is the old one or the new one.
///
/// # Errors
/// Why it stays as it was.
pub fn write(path: &Path, saved: &Saved) -> io::Result<()> {
    state::replace(path, saved)
}
