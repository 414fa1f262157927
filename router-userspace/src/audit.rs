//! The audit file: one JSON line for each change that somebody made to a running agent. Only ever appended to.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::overrides::Changed;

/// Name of the file in `state_dir`.
pub const FILE: &str = "audit.jsonl";

/// Who did something, as the kernel says of the other end of the control socket.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Who {
    /// Name of the user; of one without a name, `uid 1234`; for the agent's own doing, `xroute`.
    pub user: String,
    /// User id; none for the agent's own doing and for signals.
    pub uid: Option<u32>,
    /// Process id.
    pub pid: Option<i32>,
}

impl Who {
    /// The agent itself: an override has ended, a signal came.
    pub fn agent() -> Self {
        Self { user: String::from("xroute"), uid: None, pid: None }
    }
}

/// One line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Entry {
    /// When, in UTC (RFC 3339).
    pub at: String,
    /// Who.
    pub who: Who,
    /// What: `override`, `drain`, `clear`, `end`, `reload`, `apply` or `rollback`.
    pub what: &'static str,
    /// The change as it was asked for, in words.
    pub asked: String,
    /// Settings that are others now.
    pub changed: Vec<Changed>,
    /// Of a configuration: what it changed, in short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// When it ends by itself (RFC 3339).
    pub until: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// Serial number of the generation that shows it.
    pub generation: u64,
}

/// Where the file is in a state directory.
pub fn path(state_dir: &Path) -> PathBuf {
    state_dir.join(FILE)
}

/// A time since the epoch, in UTC (RFC 3339).
pub fn written(at: Duration) -> String {
    // A time that no calendar has is written as seconds.
    let seconds = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

/// Appends a line, as a whole: two agents cannot mix theirs.
///
/// # Errors
/// Why it is not there.
pub fn append(path: &Path, entry: &Entry) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut line = serde_json::to_vec(entry)?;
    line.push(b'\n');
    let mut file = OpenOptions::new().append(true).create(true).mode(0o640).open(path)?;
    file.write_all(&line)?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_added_and_parse() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = path(&folder.path().join("new"));
        for generation in 1..=3 {
            let entry = Entry {
                at: written(Duration::from_secs(1_700_000_000)),
                who: Who::agent(),
                what: "end",
                asked: String::from("a\n\"quoted\" line"),
                changed: Vec::new(),
                plan: None,
                until: None,
                reason: None,
                generation,
            };
            append(&path, &entry).expect("writable");
        }
        let text = std::fs::read_to_string(&path).expect("readable");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[2]["generation"], 3);
        assert_eq!(lines[0]["at"], "2023-11-14T22:13:20Z");
    }
}
