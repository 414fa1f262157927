//! `[dnstap]`: where sampled queries and replies go.

use std::fmt;
use std::path::PathBuf;

use crate::dnstap::Speaker;
use crate::trace::Path;

/// The `[dnstap]` table. A reload may change all of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dnstap {
    /// Where it goes.
    pub target: DnstapTarget,
    /// Who says it; `None`: the host's name and our version.
    pub speaker: Option<Speaker>,
    /// Every how-manieth query on average, at least 1.
    pub sample: u32,
    /// Most queries per second.
    pub per_second: u32,
    /// Of which path; `None`: of both.
    pub path: Option<Path>,
}

/// Where dnstap goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DnstapTarget {
    /// A unix socket that a collector listens on.
    Socket(PathBuf),
    /// A file.
    File(PathBuf),
}

impl fmt::Display for DnstapTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "socket {}", path.display()),
            Self::File(path) => write!(f, "file {}", path.display()),
        }
    }
}
