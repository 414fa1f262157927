//! Profiles, endpoints and probes in a status report.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::ago;
use crate::control::DrainReport;

/// One profile.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
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
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct EndpointReport {
    /// Its name.
    pub name: String,
    /// What it answers with.
    pub target: String,
    /// Its status (ROUTING.md §2).
    pub status: String,
    /// What is probed; none when nothing is.
    pub probe: Option<String>,
    /// Endpoints that share the probe, this one included; 0 when nothing is probed.
    pub probe_shared_by: usize,
    /// Milliseconds until the next probe starts; 0 while one is under way, or waits for a limit.
    pub next_probe_ms: Option<u64>,
    /// Seconds in this state of health.
    pub since_seconds: Option<u64>,
    /// Least seconds in a state (`hold`).
    pub hold_seconds: f64,
    /// The last samples, oldest first: `+` success, `-` failure.
    pub window: String,
    /// Latency of the last sample, when it is healthy and has one.
    pub latency_last_ms: Option<f64>,
    /// Moving average of the latency of healthy samples.
    pub latency_average_ms: Option<f64>,
    /// Median of the healthy ones among the last 64 probes.
    pub latency_p50_ms: Option<f64>,
    /// 90 % of them were as fast.
    pub latency_p90_ms: Option<f64>,
    /// 99 % of them were as fast.
    pub latency_p99_ms: Option<f64>,
    /// Why the last failure failed.
    pub last_error: Option<String>,
    /// Seconds since then.
    pub last_error_seconds: Option<u64>,
    /// Why the newest probe says nothing about the endpoint, when it does not.
    pub trouble: Option<String>,
    /// Changes of state so far.
    pub flaps: u64,
    /// Answers with it by the fast path; those of a nested profile count for it and for what nests it.
    pub answers_fast: u64,
    /// Answers with it by the userspace server.
    pub answers_userspace: u64,
    /// When it was answered with last, milliseconds since the epoch.
    pub last_answer: Option<u64>,
    /// Seconds since then.
    pub last_answer_seconds: Option<u64>,
    /// Its part of the profile's answers since the expected parts last changed, 0..=1; none without answers.
    pub share: Option<f64>,
    /// The part that it is to have; none where that depends on who asks.
    pub expected_share: Option<f64>,
    /// How far it is on its way out of service.
    pub drain: Option<DrainReport>,
}

/// Figures of the probes, since the agent started where they are counts.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ProbesReport {
    /// What is probed, each counted once.
    pub targets: usize,
    /// Under way.
    pub in_flight: usize,
    /// Due, and kept waiting by a limit.
    pub waiting: usize,
    /// Started.
    pub started: u64,
    /// Ended with an answer, whatever it was.
    pub answered: u64,
    /// Ended without one.
    pub failed: u64,
    /// Those of the failed that say nothing about an endpoint.
    pub local_faults: u64,
    /// Repeated probes by how late they started: up to so many milliseconds, and how many; none is later.
    pub lateness: Vec<(Option<u64>, u64)>,
}

impl ProbesReport {
    /// Part of the repeated probes that started within so many milliseconds, 0..=1; the bound is one of
    /// [`lateness`](Self::lateness).
    pub fn within(&self, milliseconds: u64) -> f64 {
        let all: u64 = self.lateness.iter().map(|(_, count)| count).sum();
        let within =
            self.lateness.iter().filter(|(bound, _)| bound.is_some_and(|bound| bound <= milliseconds));
        let within: u64 = within.map(|(_, count)| count).sum();
        if all == 0 { 1.0 } else { within as f64 / all as f64 }
    }
}

impl fmt::Display for ProbesReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "probes: {} targets, {} under way, {} waiting, {} started, {} answered, {} failed",
            self.targets, self.in_flight, self.waiting, self.started, self.answered, self.failed
        )?;
        if self.local_faults > 0 {
            write!(f, " ({} of them say nothing about an endpoint)", self.local_faults)?;
        }
        writeln!(f, ", {:.1} % on time", self.within(100) * 100.0)
    }
}

impl fmt::Display for ProfileReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}) {}", self.name, self.method, self.status)?;
        if self.serving_all {
            write!(f, ", serving-all: every endpoint is down, all are answered with")?;
        }
        writeln!(f)?;
        for name in &self.names {
            writeln!(f, "  name {name}")?;
        }
        self.endpoints.iter().try_for_each(|endpoint| endpoint.fmt(f))
    }
}

impl fmt::Display for EndpointReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {:<16} {:<17} {}", self.name, self.status, self.target)?;
        if !self.window.is_empty() {
            write!(f, "  [{}]", self.window)?;
        }
        if let Some(since) = self.since_seconds {
            write!(f, "  for {}", ago(since))?;
        }
        writeln!(f)?;
        if let Some(drain) = &self.drain {
            writeln!(f, "  {:<16} draining, {}", "", drain.progress())?;
            if drain.still_answered {
                writeln!(f, "  {:<16} STILL answered with: the time counts from the last answer", "")?;
            }
        }
        if self.answers_fast + self.answers_userspace > 0 {
            write!(
                f,
                "  {:<16} answers {} fast, {} userspace",
                "", self.answers_fast, self.answers_userspace
            )?;
            if let (Some(share), Some(expected)) = (self.share, self.expected_share) {
                write!(f, ", {:.1} % of {:.1} %", share * 100.0, expected * 100.0)?;
            }
            if let Some(last) = self.last_answer_seconds {
                write!(f, ", last {} ago", ago(last))?;
            }
            writeln!(f)?;
        }
        let Some(probe) = &self.probe else { return Ok(()) };
        write!(f, "  {:<16} {probe}", "")?;
        match self.next_probe_ms {
            Some(0) => write!(f, ", now")?,
            Some(next) => write!(f, ", next in {:.1} s", next as f64 / 1000.0)?,
            None => {}
        }
        if self.hold_seconds > 0.0 {
            write!(f, ", hold {} s", self.hold_seconds)?;
        }
        if self.flaps > 0 {
            write!(f, ", {} changes", self.flaps)?;
        }
        writeln!(f)?;
        if let Some(average) = self.latency_average_ms {
            write!(f, "  {:<16} latency", "")?;
            if let Some(last) = self.latency_last_ms {
                write!(f, " {last:.1} ms,")?;
            }
            write!(f, " average {average:.1}")?;
            if let (Some(p50), Some(p90), Some(p99)) =
                (self.latency_p50_ms, self.latency_p90_ms, self.latency_p99_ms)
            {
                write!(f, ", p50 {p50:.1}, p90 {p90:.1}, p99 {p99:.1}")?;
            }
            writeln!(f)?;
        }
        if let Some(error) = &self.last_error {
            let when = self.last_error_seconds.map_or_else(String::new, |at| format!(" {} ago", ago(at)));
            writeln!(f, "  {:<16} last error{when}: {error}", "")?;
        }
        if let Some(trouble) = &self.trouble {
            writeln!(f, "  {:<16} not probed, the state stays: {trouble}", "")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_says_all_it_knows() {
        let bare = EndpointReport {
            name: "eu1".into(),
            target: "192.0.2.1".into(),
            status: "Unmonitored".into(),
            ..EndpointReport::default()
        };
        assert_eq!(bare.to_string(), "  eu1              Unmonitored       192.0.2.1\n");
        let full = EndpointReport {
            status: "Online".into(),
            probe: Some("TCP 192.0.2.1:80".into()),
            probe_shared_by: 1,
            next_probe_ms: Some(12_340),
            since_seconds: Some(75),
            hold_seconds: 60.0,
            window: "++-+".into(),
            latency_last_ms: Some(1.0),
            latency_average_ms: Some(1.25),
            latency_p50_ms: Some(1.1),
            latency_p90_ms: Some(2.0),
            latency_p99_ms: Some(3.0),
            last_error: Some("connection refused".into()),
            last_error_seconds: Some(90),
            trouble: Some("too many open files".into()),
            flaps: 2,
            answers_fast: 741,
            answers_userspace: 9,
            last_answer_seconds: Some(3),
            share: Some(0.747),
            expected_share: Some(0.75),
            ..bare
        };
        assert_eq!(
            full.to_string(),
            "  eu1              Online            192.0.2.1  [++-+]  for 1 min 15 s\n  \
             \u{20}                answers 741 fast, 9 userspace, 74.7 % of 75.0 %, last 3 s ago\n  \
             \u{20}                TCP 192.0.2.1:80, next in 12.3 s, hold 60 s, 2 changes\n  \
             \u{20}                latency 1.0 ms, average 1.2, p50 1.1, p90 2.0, p99 3.0\n  \
             \u{20}                last error 1 min 30 s ago: connection refused\n  \
             \u{20}                not probed, the state stays: too many open files\n"
        );
    }

    #[test]
    fn lateness_in_parts() {
        let lateness = vec![(Some(2), 90), (Some(100), 5), (Some(500), 4), (None, 1)];
        let probes = ProbesReport { lateness, ..ProbesReport::default() };
        assert_eq!((probes.within(100), probes.within(500)), (0.95, 0.99));
        assert_eq!(ProbesReport::default().within(2), 1.0);
    }
}
