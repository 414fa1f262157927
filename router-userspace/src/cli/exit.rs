//! How a command ends: its exit status, and its last words on standard error.
//!
//! Both are an interface: scripts go by the status, and by `kind` of the JSON that takes the place of the words
//! with `--format json`. New ones may come; the meaning of these stays.

use std::ffi::OsString;
use std::fmt;
use std::process::ExitCode;

use serde::Serialize;

/// Exit statuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exit {
    /// Done; of a change: the fast path shows it.
    Done = 0,
    /// Failed: a configuration with mistakes, a refusal of the agent, an unhealthy probe.
    Failed = 1,
    /// The command line is not understood.
    Usage = 2,
    /// No agent is there.
    Unreachable = 3,
    /// An agent is there, and this user may not ask it, or not change it.
    NotPermitted = 4,
    /// The agent was asked, and no reply came.
    Unanswered = 5,
    /// `plan --exit-code`: something would change.
    Changes = 6,
}

impl Exit {
    /// All, in order.
    pub const ALL: [Self; 7] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::Unreachable,
        Self::NotPermitted,
        Self::Unanswered,
        Self::Changes,
    ];

    /// What it means, in one sentence of help and manual pages.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done; after a change: the fast path shows it; `probe`: healthy",
            Self::Failed => {
                "failed, or refused by the agent; nothing is changed; `check`: not valid; `probe`: not healthy; `doctor`: a failure was found"
            }
            Self::Usage => "the command line is not understood",
            Self::Unreachable => "no agent listens on the control socket",
            Self::NotPermitted => "this user may not ask the agent, or change nothing",
            Self::Unanswered => "the agent did not reply in time or broke off: a change may have been made",
            Self::Changes => "`plan --exit-code`: something would change",
        }
    }

    /// The word for it in JSON, where a failure has none of its own.
    fn kind(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Unreachable => "unreachable",
            Self::NotPermitted => "not_permitted",
            Self::Unanswered => "unanswered",
            Self::Changes => "changes",
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The statuses as a table for `--help`.
pub fn table() -> String {
    let mut text = String::from("Exit status:\n");
    for exit in Exit::ALL {
        text += &format!("  {}  {}\n", exit as u8, exit.meaning());
    }
    text + "\nWith `--format json` a failure is one JSON object on standard error: {\"error\": {\"exit\", \"kind\", \
            \"message\"}}."
}

/// A failure with an exit status other than 1, or with a kind of its own.
#[derive(Debug)]
pub(super) struct Failure {
    exit: Exit,
    kind: String,
    message: String,
}

impl Failure {
    pub(super) fn new(exit: Exit, message: String) -> Self {
        Self { exit, kind: exit.kind().to_owned(), message }
    }

    /// One that the API told, by the kind that it gave.
    pub(super) fn told(exit: Exit, kind: &str, message: String) -> Self {
        Self { exit, kind: kind.to_owned(), message }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The last words as JSON.
#[derive(Serialize)]
struct Words<'a> {
    error: Detail<'a>,
}

#[derive(Serialize)]
struct Detail<'a> {
    exit: u8,
    kind: &'a str,
    message: &'a str,
}

/// Tells a failure, and what to exit with.
pub(super) fn failed(error: &anyhow::Error, json: bool) -> ExitCode {
    let failure = error.downcast_ref::<Failure>();
    let exit = failure.map_or(Exit::Failed, |failure| failure.exit);
    let message = format!("{error:#}");
    if json {
        tell(exit, failure.map_or(exit.kind(), |failure| &failure.kind), &message);
    } else {
        eprintln!("xroute: {message}");
    }
    exit.into()
}

/// Tells what is wrong with a part of the input; the command goes on.
pub(super) fn complain(message: &str, json: bool) {
    if json {
        tell(Exit::Failed, "bad_input", message);
    } else {
        eprintln!("xroute: {message}");
    }
}

/// Tells what is wrong with a command line, or gives the help that was asked for, and what to exit with.
pub(super) fn misused(error: &clap::Error, json: bool) -> ExitCode {
    if json && error.use_stderr() {
        let message = error.render().to_string();
        tell(Exit::Usage, Exit::Usage.kind(), message.trim_start_matches("error: ").trim_end());
    } else {
        // Nobody to tell it to.
        let _ = error.print();
    }
    if error.use_stderr() { Exit::Usage.into() } else { Exit::Done.into() }
}

fn tell(exit: Exit, kind: &str, message: &str) {
    let words = Words { error: Detail { exit: exit as u8, kind, message } };
    // Strings and a number are always JSON.
    if let Ok(text) = serde_json::to_string(&words) {
        eprintln!("{text}");
    }
}

/// Whether a command line wants JSON, as far as that can be said before it is understood.
pub(super) fn wants_json(arguments: impl IntoIterator<Item = OsString>) -> bool {
    let mut before_is_format = false;
    for argument in arguments {
        if argument == "--" {
            return false;
        }
        if argument == "--format=json" || (before_is_format && argument == "json") {
            return true;
        }
        before_is_format = argument == "--format";
    }
    false
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn statuses_are_what_scripts_know() {
        assert_eq!(Exit::ALL.map(|exit| exit as u8), [0, 1, 2, 3, 4, 5, 6]);
        let table = table();
        for exit in Exit::ALL {
            assert!(table.contains(&format!("  {}  {}", exit as u8, exit.meaning())), "{table}");
        }
    }

    #[test]
    fn a_failure_keeps_its_status_below_a_context() {
        let error: anyhow::Result<()> = Err(Failure::new(Exit::Unreachable, String::from("nobody")).into());
        let error = error.context("looking").expect_err("an error");
        assert_eq!(error.downcast_ref::<Failure>().map(|failure| failure.exit), Some(Exit::Unreachable));
        assert_eq!(format!("{error:#}"), "looking: nobody");
    }

    #[test]
    fn json_is_wanted_in_both_ways_to_write_it() {
        let wants = |line: &str| wants_json(line.split(' ').map(OsString::from));
        assert!(wants("xroute status --format json"));
        assert!(wants("xroute --format=json status --nonsense"));
        assert!(!wants("xroute status --format text json"));
        assert!(!wants("xroute explain -- --format json"));
    }
}
