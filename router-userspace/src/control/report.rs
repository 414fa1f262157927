//! What `/v1/status` reports, and how `xroute status` prints it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{ListenerReport, OverrideReport};
use crate::feed::FeedKind;
use crate::plan::Summary;
use crate::trace::Tally;

mod health;

pub use health::{EndpointReport, ProbesReport, ProfileReport};

/// The whole status of an agent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StatusReport {
    /// Version of the agent.
    pub version: String,
    /// Process id of the agent.
    pub pid: u32,
    /// Seconds since the agent started.
    pub uptime_seconds: u64,
    /// Serial number of the serving generation.
    pub generation: u64,
    /// When it came into service, seconds since the epoch.
    pub loaded_at: u64,
    /// Seconds since then. Verdicts change a generation; they do not make it young.
    pub generation_age_seconds: u64,
    /// The configuration file.
    pub config: String,
    /// What is to be known when something else than the configuration file runs.
    #[serde(default)]
    pub held: Option<String>,
    /// Whether a generation is being made.
    pub reloading: bool,
    /// Why the last reload was refused; none when the last one succeeded.
    pub last_reload_error: Option<String>,
    /// Reloads since the agent started.
    pub reloads: ReloadCounts,
    /// Data files, as they were loaded last.
    pub data: Vec<FeedReport>,
    /// Addresses answered on.
    pub listen: Vec<String>,
    /// Interfaces with the XDP program; none = userspace server only.
    pub interfaces: Vec<InterfaceReport>,
    /// Outcomes by name, fast path and userspace server.
    pub counters: BTreeMap<String, u64>,
    /// The probes as a whole.
    pub probes: ProbesReport,
    /// Who reads queries along.
    pub trace: TraceReport,
    /// Who asks the agent: the control socket, and `server.http`.
    pub api: Vec<ListenerReport>,
    /// What operators changed, oldest first.
    pub overrides: Vec<OverrideReport>,
    /// Profiles in file order.
    pub profiles: Vec<ProfileReport>,
}

/// Sampled queries.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct TraceReport {
    /// Readers now: `xroute trace` and dnstap.
    pub readers: usize,
    /// What readers got and missed since the agent started.
    #[serde(flatten)]
    pub tally: Tally,
    /// `[dnstap]`, when it is configured.
    pub dnstap: Option<DnstapReport>,
}

/// Where dnstap goes, and how.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct DnstapReport {
    /// `socket PATH` or `file PATH`.
    pub target: String,
    /// Whether it is being written.
    pub open: bool,
    /// Frames written since it was configured.
    pub frames: u64,
    /// Why it is not written.
    pub error: Option<String>,
}

impl fmt::Display for TraceReport {
    /// Nothing when nobody ever read.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { readers, tally: Tally { sampled, withheld, lost }, dnstap } = self;
        if *readers > 0 || *sampled > 0 {
            writeln!(f, "traced: {readers} readers, {sampled} queries, {withheld} withheld, {lost} lost")?;
        }
        let Some(DnstapReport { target, open, frames, error }) = dnstap else { return Ok(()) };
        write!(f, "dnstap to {target}: {}, {frames} frames", if *open { "open" } else { "not open" })?;
        match error {
            Some(why) => writeln!(f, " ({why})"),
            None => writeln!(f),
        }
    }
}

/// What came of reloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ReloadCounts {
    /// Configurations that came into service, the first not counted.
    pub configuration_ok: u64,
    /// Configurations that were refused.
    pub configuration_failed: u64,
    /// Changes of data files that came into service.
    pub data_ok: u64,
    /// Changes of data files that were refused.
    pub data_failed: u64,
}

/// One data file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct FeedReport {
    /// What it holds.
    pub kind: FeedKind,
    /// Where it is.
    pub path: String,
    /// Rows of it in use: of a geo database, what the profiles can ask for.
    pub rows: usize,
    /// When what is in use was read, seconds since the epoch.
    pub loaded_at: u64,
    /// Seconds since then.
    pub age_seconds: u64,
    /// Why the file as it is now is not in use.
    pub error: Option<String>,
}

/// What a reload did.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReloadReport {
    /// Serial number of the generation that serves now.
    pub generation: u64,
    /// Zones in it.
    pub zones: usize,
    /// Profiles in it.
    pub profiles: usize,
    /// Owner names in it.
    pub names: usize,
    /// Endpoints in it.
    pub endpoints: usize,
    /// What reading, compiling and installing took.
    pub milliseconds: u64,
    /// What is probably not meant, with file and line.
    pub warnings: Vec<String>,
    /// What it changed, in short.
    #[serde(default)]
    pub summary: Option<Summary>,
}

impl fmt::Display for ReloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "generation {} serves: {} zones, {} profiles, {} names, {} endpoints; made in {} ms",
            self.generation, self.zones, self.profiles, self.names, self.endpoints, self.milliseconds
        )?;
        match &self.summary {
            Some(summary) => writeln!(f, "changed: {summary}"),
            None => Ok(()),
        }
    }
}

/// One interface.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct InterfaceReport {
    /// Its name.
    pub name: String,
    /// `native` or `generic`.
    pub mode: String,
    /// Why it is not native, when it is not.
    pub why_not_native: Option<String>,
    /// Whether it is not there at present.
    #[serde(default)]
    pub away: bool,
}

/// How the counters of the userspace server begin that count no replies.
const BESIDE: [&str; 6] = [
    "server_truncated",
    "server_dropped",
    "server_transfer_",
    "server_notify_",
    "server_rate_",
    // Each reply that the rate limit dropped is counted as what it was, too.
    "server_rate_dropped",
];

impl StatusReport {
    /// Replies of the fast path, and of the userspace server.
    pub fn answered(&self) -> (u64, u64) {
        let fast =
            ["answer_records", "answer_nodata"].iter().filter_map(|name| self.counters.get(*name)).sum();
        let beside: u64 = BESIDE.iter().map(|name| self.counted(name)).sum();
        (fast, self.counted("server_").saturating_sub(beside))
    }

    /// Sum of the counters whose names begin so.
    pub fn counted(&self, prefix: &str) -> u64 {
        self.counters.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, count)| count).sum()
    }
}

impl fmt::Display for StatusReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "xroute {}, pid {}, up {}", self.version, self.pid, ago(self.uptime_seconds))?;
        writeln!(
            f,
            "generation {} of {}, loaded {} ago{}",
            self.generation,
            self.config,
            ago(self.generation_age_seconds),
            if self.reloading { ", another is being made" } else { "" }
        )?;
        if let Some(held) = &self.held {
            writeln!(f, "{held}")?;
        }
        if let Some(why) = &self.last_reload_error {
            writeln!(f, "the last reload was refused:")?;
            for line in why.lines() {
                writeln!(f, "  {line}")?;
            }
        }
        for feed in &self.data {
            writeln!(
                f,
                "{} {}: {} rows, loaded {} ago",
                feed.kind,
                feed.path,
                feed.rows,
                ago(feed.age_seconds)
            )?;
            for line in feed.error.iter().flat_map(|why| why.lines()) {
                writeln!(f, "  not in use as it is now: {line}")?;
            }
        }
        writeln!(
            f,
            "listening on {}",
            if self.listen.is_empty() { "nothing".into() } else { self.listen.join(", ") }
        )?;
        if self.interfaces.is_empty() {
            writeln!(f, "no interface: the userspace server answers everything")?;
        }
        for interface in &self.interfaces {
            if interface.away {
                writeln!(f, "interface {}: not there; attached to when it comes back", interface.name)?;
                continue;
            }
            write!(f, "interface {}: XDP {}", interface.name, interface.mode)?;
            match &interface.why_not_native {
                Some(why) => writeln!(f, " (not native: {why})")?,
                None => writeln!(f)?,
            }
        }
        let (fast, server) = self.answered();
        writeln!(f, "answered: fast path {fast}, userspace {server}")?;
        for (name, count) in self.counters.iter().filter(|(_, count)| **count > 0) {
            writeln!(f, "  {name:<24} {count}")?;
        }
        write!(f, "{}", self.trace)?;
        if self.probes.targets > 0 {
            write!(f, "{}", self.probes)?;
        }
        for listener in &self.api {
            writeln!(f, "{listener}")?;
        }
        if !self.overrides.is_empty() {
            writeln!(f, "overrides:")?;
        }
        for report in &self.overrides {
            writeln!(f, "  {report}")?;
        }
        for profile in &self.profiles {
            write!(f, "\n{profile}")?;
        }
        Ok(())
    }
}

/// A time span as people say it.
pub(super) fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}
