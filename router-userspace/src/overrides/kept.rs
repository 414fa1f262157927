//! Overrides on disk: one JSON file in `state_dir`, replaced as a whole.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Override, Overrides};
use crate::state;

/// Name of the file in `state_dir`.
pub const FILE: &str = "overrides.json";

/// Version of the format; another one is not read.
const VERSION: u32 = 1;

/// Most octets that are read.
const MOST: u64 = 64 << 20;

#[derive(Serialize, Deserialize)]
struct Saved {
    version: u32,
    overrides: Vec<Override>,
}

/// Where the file is in a state directory.
pub fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

/// Reads the file; there are no overrides when there is none.
///
/// # Errors
/// Why it cannot be used. What an operator took out of service must not come back because of that.
pub fn read(path: &Path) -> io::Result<Overrides> {
    let file = match std::fs::File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Overrides::default()),
        opened => opened?,
    };
    let saved: Saved = serde_json::from_reader(io::BufReader::new(io::Read::take(file, MOST)))?;
    if saved.version != VERSION {
        let why = format!("format {} is not {VERSION}, that of this version", saved.version);
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(Overrides(saved.overrides))
}

/// Replaces the file: after a crash at any moment it is the old one or the new one.
///
/// # Errors
/// Why it stays as it was.
pub fn write(path: &Path, overrides: &Overrides) -> io::Result<()> {
    state::replace(path, &Saved { version: VERSION, overrides: overrides.0.clone() })
}
