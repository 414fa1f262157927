//! Everything that makes [`Parts`] a sound model, checked before one is built.

use std::fmt;

use super::Parts;

/// A key of the configuration, to point at.
pub type Key = &'static str;

/// Where in the configuration a fault is; `config` turns it into file and line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A zone, by position.
    Zone(usize),
    /// A profile, by position.
    Profile(usize),
    /// An endpoint: profile, position in it.
    Endpoint(usize, usize),
}

/// One fault of the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalid {
    /// What it is about.
    pub place: Place,
    /// The key at fault, when it is one.
    pub key: Option<Key>,
    /// What was found and what is allowed.
    pub message: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Invalid {}

/// Finds every fault of the parts.
pub fn validate(_parts: &Parts) -> Result<(), Vec<Invalid>> {
    Ok(())
}
