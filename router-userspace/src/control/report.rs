//! What `/v1/status` reports, and how `xroute status` prints it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// The whole status of an agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StatusReport {
    /// Version of the agent.
    pub version: String,
    /// Process id of the agent.
    pub pid: u32,
    /// Seconds since the agent started.
    pub uptime_seconds: u64,
    /// Serial number of the serving generation.
    pub generation: u64,
    /// Addresses answered on.
    pub listen: Vec<String>,
    /// Interfaces with the XDP program; none = userspace server only.
    pub interfaces: Vec<InterfaceReport>,
    /// Outcomes by name, fast path and userspace server.
    pub counters: BTreeMap<String, u64>,
    /// Profiles in file order.
    pub profiles: Vec<ProfileReport>,
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
        writeln!(
            f,
            "xroute {}, pid {}, up {}, generation {}",
            self.version,
            self.pid,
            ago(self.uptime_seconds),
            self.generation
        )?;
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
