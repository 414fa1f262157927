//! `xroute probe`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use router_common::health::{Observation, Outcome, Strip, judge};
use router_common::model::{AdminStatus, Endpoint, Model, Monitor, Target};
use serde::Serialize;

use super::exit::Exit;
use super::{DEFAULT_CONFIG, Format};
use crate::config;
use crate::fault::nearest;
use crate::probe::probe_once;

/// Arguments of `xroute probe`.
#[derive(Args, Debug)]
pub struct Probe {
    /// The endpoint, as PROFILE/ENDPOINT
    #[arg(value_name = "PROFILE/ENDPOINT")]
    endpoint: String,
    /// One probe, then end: what is done unless --watch is given
    #[arg(long)]
    once: bool,
    /// Go on at the monitor's interval until interrupted
    #[arg(long, conflicts_with = "once")]
    watch: bool,
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_CONFIG)]
    config: PathBuf,
    /// How to print: JSON is one object, with --watch one a line for each probe
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// One probe as a program wants it.
#[derive(Serialize)]
struct Probed<'a> {
    endpoint: &'a str,
    /// What is probed.
    probe: String,
    /// Why the agent does not probe it.
    left_out: Option<&'static str>,
    /// None when the probe says nothing about the endpoint.
    healthy: Option<bool>,
    result: &'a str,
    latency_ms: Option<f64>,
    /// What was sent and got, line by line.
    transcript: Vec<&'a str>,
    /// Samples so far, oldest first.
    samples: String,
}

impl Probe {
    /// Probes from this process, whether an agent runs or not, and prints what is sent and got. Exit status:
    /// 0 healthy, 1 not.
    pub fn execute(self) -> anyhow::Result<Exit> {
        let loaded = match config::load(&self.config) {
            Ok(loaded) => loaded,
            Err(errors) => bail!("{} is not valid\n{errors}", self.config.display()),
        };
        let (endpoint, monitor) = find(&loaded.model, &self.endpoint)?;
        if self.format == Format::Text {
            super::print(&describe(&self.endpoint, endpoint, monitor))?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut strip = Strip::default();
        let healthy = loop {
            let began = std::time::Instant::now();
            let (observation, transcript) = runtime.block_on(probe_once(&monitor.target, monitor.timeout));
            let (healthy, result) = result(&observation, monitor);
            if let Some(healthy) = healthy {
                strip.push(healthy);
            }
            let transcript = transcript.to_string();
            match self.format {
                Format::Text => super::print(&format!("{transcript}{result}\n"))?,
                Format::Json => {
                    let probed = Probed {
                        endpoint: &self.endpoint,
                        probe: monitor.target.to_string(),
                        left_out: left_out(endpoint),
                        healthy,
                        result: &result,
                        latency_ms: observation.latency.map(|latency| latency.as_secs_f64() * 1000.0),
                        transcript: transcript.lines().collect(),
                        samples: strip.to_string(),
                    };
                    let text = match self.watch {
                        true => serde_json::to_string(&probed)?,
                        false => serde_json::to_string_pretty(&probed)?,
                    };
                    super::print(&(text + "\n"))?;
                }
            }
            if !self.watch {
                break healthy == Some(true);
            }
            if self.format == Format::Text {
                super::print(&format!("samples [{strip}]\n\n"))?;
            }
            runtime.block_on(tokio::time::sleep(monitor.interval.saturating_sub(began.elapsed())));
        };
        runtime.shutdown_timeout(Duration::ZERO);
        Ok(if healthy { Exit::Done } else { Exit::Failed })
    }
}

/// The endpoint of this path, and its monitor.
fn find<'m>(model: &'m Model, path: &str) -> anyhow::Result<(&'m Endpoint, &'m Monitor)> {
    let profiles = model.profiles();
    let paths = || {
        profiles.iter().flat_map(|profile| {
            profile
                .endpoints
                .iter()
                .map(move |endpoint| (format!("{}/{}", profile.name, endpoint.name), endpoint))
        })
    };
    let Some((_, endpoint)) = paths().find(|(known, _)| known == path) else {
        let known: Vec<String> = paths().map(|(path, _)| path).collect();
        let hint = nearest(path, known.iter().map(String::as_str));
        let hint = hint.map_or_else(String::new, |near| format!("; did you mean {near}?"));
        bail!("there is no endpoint {path}; it is written PROFILE/ENDPOINT{hint}");
    };
    if let Target::Profile(child) = endpoint.target {
        let child = &model.profile(child).name;
        bail!(
            "{path} is the nested profile {child}, which is never probed itself; probe one of its endpoints"
        );
    }
    let monitor = endpoint.monitor.as_ref();
    Ok((
        endpoint,
        monitor.with_context(|| format!("{path} is not monitored: its profile has monitor = \"off\""))?,
    ))
}

/// What is about to be done.
fn describe(path: &str, endpoint: &Endpoint, monitor: &Monitor) -> String {
    let what = format!("* {path}: {}, timeout {:?}\n", monitor.target, monitor.timeout);
    match left_out(endpoint) {
        Some(why) => format!("{what}* the agent does not probe it: {why}\n"),
        None => what,
    }
}

/// Why the agent does not probe it.
fn left_out(endpoint: &Endpoint) -> Option<&'static str> {
    match (endpoint.status, endpoint.always_serve) {
        (AdminStatus::Enabled, false) => None,
        (AdminStatus::Enabled, true) => Some("always_serve = true"),
        (AdminStatus::Disabled, _) => Some("status = \"disabled\""),
        (AdminStatus::Stopped, _) => Some("status = \"stopped\""),
    }
}

/// Whether this sample is healthy, when it is one, and why.
fn result(observation: &Observation, monitor: &Monitor) -> (Option<bool>, String) {
    let latency = observation.latency.map_or_else(String::new, |latency| format!(" in {latency:.1?}"));
    let what = match observation.outcome {
        Outcome::Status(code) => format!("status {code}"),
        Outcome::Connected => "connected".into(),
        Outcome::Exited(status) => format!("exit status {status}"),
        Outcome::Stated(true) => "online".into(),
        Outcome::Stated(false) => "degraded".into(),
        Outcome::Fault(fault) => fault.to_string(),
    };
    match judge(observation, &monitor.expected_status) {
        None => (None, format!("no result: {what}{latency}")),
        Some(sample) if sample.ok => (Some(true), format!("healthy: {what}{latency}")),
        Some(_) => {
            let ranges: Vec<String> = monitor
                .expected_status
                .iter()
                .map(|(low, high)| if low == high { low.to_string() } else { format!("{low}-{high}") })
                .collect();
            let expected = match observation.outcome {
                Outcome::Status(_) => format!("; expected is {}", ranges.join(", ")),
                _ => String::new(),
            };
            (Some(false), format!("unhealthy: {what}{latency}{expected}"))
        }
    }
}
