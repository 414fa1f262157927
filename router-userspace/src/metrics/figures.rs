//! What is measured while the agent runs and cannot be read from a status report: distributions of times.

use std::time::Duration;

use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::Histogram;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One label that a distribution is kept by.
pub type Label = [(&'static str, &'static str); 1];
/// Distributions by a label.
pub type Distributions = Family<Label, Histogram, Bounds>;

/// Upper bounds of a distribution's buckets, in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Bounds(&'static [f64]);

impl MetricConstructor<Histogram> for Bounds {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied())
    }
}

/// From the microseconds of a store to the seconds of a storm.
const FAILOVER: Bounds = Bounds(&[
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1,
    0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
]);
/// From a few profiles to a geo database of the whole world.
const GENERATION: Bounds =
    Bounds(&[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0]);
/// From a machine beside us to the longest time-out.
const PROBE: Bounds = Bounds(&[
    0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
]);

/// Steps of the failover clock, in their order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// From the end of the probe until the agent's loop takes its result up.
    Received,
    /// From there until the verdict is found, decided by and compiled.
    Decided,
    /// From there until the tables show it: its last store.
    Written,
    /// From there until the first answer that was counted after it.
    Answered,
}

impl Step {
    /// Its label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Received => "received",
            Self::Decided => "decided",
            Self::Written => "written",
            Self::Answered => "answered",
        }
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Time of each step of a failover, by `step`.
    pub steps: Distributions,
    /// From the end of the probe until the tables show the change.
    pub failover: Histogram,
    /// From the end of the probe until the first answer after the change.
    pub failover_answered: Histogram,
    /// Making a generation and putting it into service, by `what` made it necessary.
    pub generations: Distributions,
}

impl Default for Figures {
    fn default() -> Self {
        let figures = Self {
            steps: Family::new_with_constructor(FAILOVER),
            failover: FAILOVER.new_metric(),
            failover_answered: FAILOVER.new_metric(),
            generations: Family::new_with_constructor(GENERATION),
        };
        // All are there from the start, so that a rate over the first change is not lost.
        for step in [Step::Received, Step::Decided, Step::Written, Step::Answered] {
            drop(figures.steps.get_or_create(&[("step", step.as_str())]));
        }
        for what in ["configuration", "data", "override"] {
            drop(figures.generations.get_or_create(&[("what", what)]));
        }
        figures
    }
}

impl Figures {
    /// A step of a failover took so long.
    pub fn step(&self, step: Step, took: Duration) {
        self.steps.get_or_create(&[("step", step.as_str())]).observe(took.as_secs_f64());
    }

    /// A generation took so long, for this reason: `configuration`, `data` or `override`.
    pub fn generation(&self, what: &'static str, took: Duration) {
        self.generations.get_or_create(&[("what", what)]).observe(took.as_secs_f64());
    }
}

/// Distributions of how long probes take, by protocol.
pub fn probe_durations() -> Distributions {
    let durations = Family::new_with_constructor(PROBE);
    for protocol in ["http", "https", "tcp", "exec", "file"] {
        drop(durations.get_or_create(&[("protocol", protocol)]));
    }
    durations
}

/// The failover clock in a status report.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct FailoverReport {
    /// Changes of tables that verdicts of probes made, since the agent started.
    pub changes: u64,
    /// Changes that nobody asked for within a minute.
    pub unanswered: u64,
    /// From the end of the probe until the tables showed the last of them, in milliseconds.
    pub last_ms: Option<f64>,
    /// From the end of the probe until the first answer after it, in milliseconds.
    pub last_answered_ms: Option<f64>,
}
