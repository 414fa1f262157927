//! The window over the last samples: the state machine behind every verdict.

use std::time::Duration;

use super::{ProbeFault, Sample, Strip};
use crate::model::WindowRule;
use crate::view::Health;

/// Weight of a new healthy sample in the moving average of the latency: one eighth, as for TCP's
/// smoothed round-trip time (RFC 6298 §2.3). One slow reply moves the average little, and after
/// eight samples two thirds of a lasting change have arrived.
pub const LATENCY_WEIGHT: u32 = 8;

/// One endpoint's view of its target: a rule, and what it remembers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Window {
    rule: WindowRule,
    hold: Duration,
    record: Record,
}

/// All that a window remembers; plain, so that it can be saved and shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// The last samples.
    pub strip: Strip,
    /// The verdict; `Checking` before the first sample.
    pub health: Health,
    /// When the verdict was reached, since the Unix epoch; `None` before the first sample.
    pub since: Option<Duration>,
    /// Changes between healthy and unhealthy that samples brought.
    pub flaps: u32,
    /// Moving average of the latency over healthy samples.
    pub average: Option<Duration>,
    /// The newest sample.
    pub last: Option<LastSample>,
    /// The newest failure: when, since the Unix epoch, and why.
    pub last_error: Option<(Duration, ProbeFault)>,
}

/// A sample and its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastSample {
    /// Since the Unix epoch.
    pub at: Duration,
    /// The sample.
    pub sample: Sample,
}

impl Window {
    /// A window without samples.
    pub fn new(rule: WindowRule) -> Self {
        Self::restore(rule, Record::default())
    }

    /// A window that goes on from what was saved.
    pub fn restore(rule: WindowRule, record: Record) -> Self {
        Self { rule, hold: Duration::ZERO, record }
    }

    /// A window that has seen these samples, oldest first, with their times.
    pub fn replay(rule: WindowRule, samples: impl IntoIterator<Item = (Duration, Sample)>) -> Self {
        let mut window = Self::new(rule);
        for (at, sample) in samples {
            step(&mut window, sample, at);
        }
        window
    }

    /// The same window with a least time in a state, against flapping. The first verdict is not held.
    pub fn with_hold(self, hold: Duration) -> Self {
        Self { hold, ..self }
    }

    /// The rule.
    pub fn rule(&self) -> WindowRule {
        self.rule
    }

    /// What it remembers.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The verdict; `Checking` before the first sample.
    pub fn health(&self) -> Health {
        self.record.health
    }

    /// The least time in a state.
    pub fn hold(&self) -> Duration {
        self.hold
    }

    /// Puts another rule on the samples there are. The new verdict when it differs; it is the operator's
    /// change, so it is not held and no flap. The rule of before changes nothing, a held verdict stays.
    pub fn set_rule(&mut self, rule: WindowRule, now: Duration) -> Option<Health> {
        if rule == self.rule {
            return None;
        }
        self.rule = rule;
        let wanted = verdict(rule, self.record.strip);
        if wanted == self.record.health {
            return None;
        }
        self.record.health = wanted;
        self.record.since = Some(now);
        Some(wanted)
    }
}

/// Takes in one sample. The new verdict when it changed.
pub fn step(window: &mut Window, sample: Sample, now: Duration) -> Option<Health> {
    let record = &mut window.record;
    record.strip.push(sample.ok);
    record.last = Some(LastSample { at: now, sample });
    if let Some(error) = sample.error {
        record.last_error = Some((now, error));
    }
    if let (true, Some(latency)) = (sample.ok, sample.latency) {
        record.average = Some(smooth(record.average, latency));
    }
    let wanted = verdict(window.rule, record.strip);
    if wanted == record.health {
        return None;
    }
    if record.health != Health::Checking {
        // After the clock was set back the time in the state counts from now: a hold ends all the same.
        record.since = record.since.map(|since| since.min(now));
        let held = record.since.is_some_and(|since| now.saturating_sub(since) < window.hold);
        if held {
            return None;
        }
        record.flaps = record.flaps.saturating_add(1);
    }
    record.health = wanted;
    record.since = Some(now);
    Some(wanted)
}

/// What a rule says of a strip. Pure: the strip is all the state a rule needs.
pub fn verdict(rule: WindowRule, strip: Strip) -> Health {
    if strip.is_empty() {
        return Health::Checking;
    }
    let healthy = match rule {
        WindowRule::Samples { size, successful } => strip.successes(size) >= successful,
        WindowRule::Tolerated { failures } => strip.consecutive_failures() <= failures,
    };
    if healthy { Health::Healthy } else { Health::Unhealthy }
}

/// The moving average after one more healthy sample (see [`LATENCY_WEIGHT`]); the first one is taken whole.
pub fn smooth(average: Option<Duration>, latency: Duration) -> Duration {
    match average {
        None => latency,
        Some(average) if latency >= average => average.saturating_add((latency - average) / LATENCY_WEIGHT),
        Some(average) => average.saturating_sub((average - latency) / LATENCY_WEIGHT),
    }
}

#[cfg(test)]
mod tests;
