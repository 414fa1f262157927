//! `xroute doctor`: what of this machine stands in the way of answering, or makes it slower, and what to do.
//!
//! Facts are gathered at the edge ([`gather`]) and judged by functions that look at nothing else: one module
//! for each topic. What cannot be seen, for want of rights, is not judged.

use std::fmt;

use serde::Serialize;

pub mod agent;
pub mod clock;
pub mod configuration;
pub mod gather;
pub mod interface;
pub mod kernel;
pub mod network;
pub mod pins;
mod trial;

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// To be known.
    Note,
    /// Works, but not as well as it could, or not under all circumstances.
    Warning,
    /// Keeps the agent from starting, or clients from being answered.
    Failure,
}

impl Level {
    const ALL: [Self; 4] = [Self::Failure, Self::Warning, Self::Note, Self::Ok];

    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Failure => "failure",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What it is about: `kernel`, `interface eth0`, …
    pub topic: String,
    /// What was found.
    pub found: String,
    /// Why it matters; empty when all is well.
    pub why: String,
    /// What to do, where something can be done: a command wherever one does it.
    pub remedy: Option<String>,
}

impl Finding {
    fn new(level: Level, topic: &str, found: impl Into<String>, why: &str) -> Self {
        Self { level, topic: topic.to_owned(), found: found.into(), why: why.to_owned(), remedy: None }
    }

    /// Something that is well.
    pub fn ok(topic: &str, found: impl Into<String>) -> Self {
        Self::new(Level::Ok, topic, found, "")
    }

    /// Something to be known.
    pub fn note(topic: &str, found: impl Into<String>, why: &str) -> Self {
        Self::new(Level::Note, topic, found, why)
    }

    /// Something that could be better.
    pub fn warning(topic: &str, found: impl Into<String>, why: &str) -> Self {
        Self::new(Level::Warning, topic, found, why)
    }

    /// Something that does not work.
    pub fn failure(topic: &str, found: impl Into<String>, why: &str) -> Self {
        Self::new(Level::Failure, topic, found, why)
    }

    /// With what to do about it.
    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// No worse than a note, when nobody wants what it stands in the way of.
    #[must_use]
    fn unless(mut self, wanted: bool) -> Self {
        if !wanted {
            self.level = self.level.min(Level::Note);
        }
        self
    }
}

/// Everything that was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// Whether the findings were made with all rights.
    pub privileged: bool,
    /// How many findings there are of each level.
    pub failures: usize,
    /// See `failures`.
    pub warnings: usize,
    /// See `failures`.
    pub notes: usize,
    /// By topic.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Counts.
    pub fn new(privileged: bool, findings: Vec<Finding>) -> Self {
        let count = |level| findings.iter().filter(|finding| finding.level == level).count();
        Self {
            privileged,
            failures: count(Level::Failure),
            warnings: count(Level::Warning),
            notes: count(Level::Note),
            findings,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut topic = "";
        for finding in &self.findings {
            if finding.topic != topic {
                topic = &finding.topic;
                writeln!(f, "{topic}")?;
            }
            writeln!(f, "  {:<8} {}", finding.level.name(), finding.found)?;
            if !finding.why.is_empty() {
                writeln!(f, "           why: {}", finding.why)?;
            }
            if let Some(remedy) = &finding.remedy {
                writeln!(f, "           do:  {remedy}")?;
            }
        }
        let counts: Vec<String> = Level::ALL
            .iter()
            .map(|&level| {
                let count = self.findings.iter().filter(|finding| finding.level == level).count();
                let plural = if count == 1 || level == Level::Ok { "" } else { "s" };
                format!("{count} {}{plural}", level.name())
            })
            .collect();
        writeln!(f, "\n{}", counts.join(", "))?;
        if !self.privileged {
            writeln!(f, "as root it sees more: sudo xroute doctor")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_counts_and_names_what_to_do() {
        let report = Report::new(
            false,
            vec![
                Finding::ok("kernel", "Linux 6.18"),
                Finding::warning("kernel", "no JIT", "slow").remedy("sysctl -w net.core.bpf_jit_enable=1"),
                Finding::failure("interface eth0", "down", "no packets"),
            ],
        );
        assert_eq!((report.failures, report.warnings, report.notes), (1, 1, 0));
        assert_eq!(
            report.to_string(),
            "kernel\n  ok       Linux 6.18\n  warning  no JIT\n           why: slow\n           do:  sysctl -w \
             net.core.bpf_jit_enable=1\ninterface eth0\n  failure  down\n           why: no packets\n\n1 failure, \
             1 warning, 0 notes, 1 ok\nas root it sees more: sudo xroute doctor\n"
        );
        let json = serde_json::to_value(&report).expect("JSON");
        assert_eq!(json["findings"][1]["level"], "warning");
        assert_eq!(json["findings"][0]["remedy"], serde_json::Value::Null);
    }

    #[test]
    fn what_nobody_wants_is_no_worse_than_a_note() {
        assert_eq!(Finding::failure("k", "f", "w").unless(false).level, Level::Note);
        assert_eq!(Finding::ok("k", "f").unless(false).level, Level::Ok);
        assert_eq!(Finding::failure("k", "f", "w").unless(true).level, Level::Failure);
    }
}
