//! What `/v1/status` reports, and how `xroute status` prints it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::feed::FeedKind;

/// The whole status of an agent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
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
    /// Profiles in file order.
    pub profiles: Vec<ProfileReport>,
}

/// What came of reloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
}

impl fmt::Display for ReloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "generation {} serves: {} zones, {} profiles, {} names, {} endpoints; made in {} ms",
            self.generation, self.zones, self.profiles, self.names, self.endpoints, self.milliseconds
        )
    }
}

/// One interface.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct InterfaceReport {
    /// Its name.
    pub name: String,
    /// `native` or `generic`.
    pub mode: String,
    /// Why it is not native, when it is not.
    pub why_not_native: Option<String>,
}

/// One profile.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ProfileReport {
    /// Its name.
    pub name: String,
    /// Its method.
    pub method: String,
    /// Its status (ROUTING.md §2).
    pub status: String,
    /// Whether all its endpoints are down and all of them are served (`all_down = "serve-all"`).
    pub serving_all: bool,
    /// Owner names bound to it.
    pub names: Vec<String>,
    /// Endpoints in file order.
    pub endpoints: Vec<EndpointReport>,
}

/// One endpoint.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct EndpointReport {
    /// Its name.
    pub name: String,
    /// What it answers with.
    pub target: String,
    /// Its status (ROUTING.md §2).
    pub status: String,
    /// Seconds in this state of health.
    pub since_seconds: Option<u64>,
    /// The last samples, oldest first: `+` success, `-` failure.
    pub window: String,
    /// Latency of the last healthy sample.
    pub latency_last_ms: Option<f64>,
    /// Moving average of the latency.
    pub latency_average_ms: Option<f64>,
    /// Why the last failure failed.
    pub last_error: Option<String>,
    /// Changes of state so far.
    pub flaps: u64,
}

impl StatusReport {
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
            write!(f, "interface {}: XDP {}", interface.name, interface.mode)?;
            match &interface.why_not_native {
                Some(why) => writeln!(f, " (not native: {why})")?,
                None => writeln!(f)?,
            }
        }
        let fast = self.counters.get("answer_records").copied().unwrap_or(0)
            + self.counters.get("answer_nodata").copied().unwrap_or(0);
        let beside =
            ["server_truncated", "server_dropped"].iter().filter_map(|name| self.counters.get(*name));
        let server = self.counted("server_").saturating_sub(beside.sum());
        writeln!(f, "answered: fast path {fast}, userspace {server}")?;
        for (name, count) in self.counters.iter().filter(|(_, count)| **count > 0) {
            writeln!(f, "  {name:<24} {count}")?;
        }
        for profile in &self.profiles {
            writeln!(f)?;
            write!(f, "{} ({}) {}", profile.name, profile.method, profile.status)?;
            if profile.serving_all {
                write!(f, ", serving-all: every endpoint is down, all are answered with")?;
            }
            writeln!(f)?;
            for name in &profile.names {
                writeln!(f, "  name {name}")?;
            }
            for endpoint in &profile.endpoints {
                write!(f, "  {:<16} {:<17} {}", endpoint.name, endpoint.status, endpoint.target)?;
                if !endpoint.window.is_empty() {
                    write!(f, "  [{}]", endpoint.window)?;
                }
                if let Some(since) = endpoint.since_seconds {
                    write!(f, "  for {}", ago(since))?;
                }
                if let (Some(last), Some(average)) = (endpoint.latency_last_ms, endpoint.latency_average_ms) {
                    write!(f, "  {last:.1} ms (average {average:.1})")?;
                }
                if let Some(error) = &endpoint.last_error {
                    write!(f, "  last error: {error}")?;
                }
                writeln!(f)?;
            }
        }
        Ok(())
    }
}

/// A time span as people say it.
fn ago(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}
