//! Whether what runs is something else than the agent's configuration file, over a restart.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Store;
use crate::state;

/// Name of the file among the generations.
const FILE: &str = "held.json";

/// A kept generation that runs in place of the agent's configuration file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Held {
    /// The generation.
    pub generation: u64,
    /// What brought it, for people: `a return to generation 5`, `/etc/xroute/new.toml`.
    pub is: String,
    /// What the agent's configuration file and all that it names were like when they were last loaded. When they are
    /// others at a start, an operator has changed them since, and they count.
    pub file: String,
}

impl Store {
    /// What runs in place of the agent's configuration file.
    ///
    /// # Errors
    /// Why it cannot be said.
    pub fn held(&self) -> io::Result<Option<Held>> {
        match std::fs::read(self.held_path()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => Ok(Some(serde_json::from_slice(&read?)?)),
        }
    }

    /// Remembers it over a restart, or that the file itself runs.
    ///
    /// # Errors
    /// Why it is as it was.
    pub fn hold(&self, held: Option<&Held>) -> io::Result<()> {
        match held {
            Some(held) => state::replace(&self.held_path(), held),
            None => match std::fs::remove_file(self.held_path()) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        }
    }

    fn held_path(&self) -> PathBuf {
        self.folder.join(FILE)
    }
}
