//! What is shown: the last status, what it says about the time since the one before, and the last events.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use crate::control::{EndpointReport, StatusReport};

/// Rates that are kept for the curve.
pub(super) const HISTORY: usize = 512;
/// Events that are kept.
const EVENTS: usize = 500;

/// Parts of the screen that have rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    Endpoints,
    Outcomes,
    Events,
}

impl Part {
    const ALL: [Self; 3] = [Self::Endpoints, Self::Outcomes, Self::Events];
}

/// Where rows go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Direction {
    Up,
    Down,
}

/// By what endpoints are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum EndpointOrder {
    /// As in the file, below their profiles.
    File,
    Status,
    Latency,
    Flaps,
}

/// By what outcomes are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OutcomeOrder {
    Rate,
    Count,
    Name,
}

/// An outcome and how often it happens.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct OutcomeRow<'v> {
    pub name: &'v str,
    pub count: u64,
    /// A second; none before the second look.
    pub rate: Option<f64>,
}

/// A row about a profile, or one of its endpoints.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct EndpointRow<'v> {
    pub profile: &'v str,
    /// None: it is about the profile.
    pub endpoint: Option<&'v EndpointReport>,
    pub status: &'v str,
    /// Of a profile: its method.
    pub method: &'v str,
    pub serving_all: bool,
}

/// See the module.
pub(super) struct View {
    pub interval: Duration,
    pub report: Option<StatusReport>,
    /// Why there is no newer one.
    pub lost: Option<String>,
    /// Answers a second, fast path and userspace, oldest first.
    pub history: VecDeque<[f64; 2]>,
    pub events: VecDeque<String>,
    pub focus: Part,
    pub endpoint_order: EndpointOrder,
    pub outcome_order: OutcomeOrder,
    at: Option<Instant>,
    rates: BTreeMap<String, f64>,
    /// First row shown of each part; of the events counted from the newest.
    offsets: [usize; 3],
}

impl View {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            report: None,
            lost: None,
            history: VecDeque::new(),
            events: VecDeque::new(),
            focus: Part::Endpoints,
            endpoint_order: EndpointOrder::File,
            outcome_order: OutcomeOrder::Rate,
            at: None,
            rates: BTreeMap::new(),
            offsets: [0; 3],
        }
    }

    /// A status came.
    pub(super) fn status(&mut self, report: StatusReport, now: Instant) {
        let since = self.at.map(|at| now.saturating_duration_since(at).as_secs_f64());
        if let (Some(before), Some(since)) = (&self.report, since.filter(|since| *since > 0.0)) {
            // Counters of another agent may begin anew, and then say nothing about the time between.
            let rate = |before: u64, now: u64| now.checked_sub(before).map(|more| more as f64 / since);
            self.rates = report
                .counters
                .iter()
                .filter_map(|(name, &now)| {
                    let before = before.counters.get(name).copied().unwrap_or(0);
                    Some((name.clone(), rate(before, now)?))
                })
                .collect();
            let ((fast_before, server_before), (fast, server)) = (before.answered(), report.answered());
            let rates = [rate(fast_before, fast), rate(server_before, server)];
            self.history.push_back(rates.map(|rate| rate.unwrap_or(0.0)));
            if self.history.len() > HISTORY {
                self.history.pop_front();
            }
        }
        self.report = Some(report);
        self.at = Some(now);
        self.lost = None;
    }

    /// There was no status.
    pub(super) fn lost(&mut self, why: String) {
        self.lost = Some(why);
    }

    /// An event came.
    pub(super) fn event(&mut self, line: String) {
        if self.events.len() >= EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(line);
        // Whoever has scrolled back goes on seeing the same ones.
        let offset = &mut self.offsets[Part::Events as usize];
        if *offset > 0 {
            *offset = (*offset + 1).min(self.events.len());
        }
    }

    /// Answers a second by now, fast path and userspace.
    pub(super) fn rates(&self) -> Option<[f64; 2]> {
        self.history.back().copied()
    }

    /// Outcomes that ever happened, sorted.
    pub(super) fn outcomes(&self) -> Vec<OutcomeRow<'_>> {
        let Some(report) = &self.report else { return Vec::new() };
        let mut rows: Vec<OutcomeRow<'_>> = report
            .counters
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(name, &count)| OutcomeRow { name, count, rate: self.rates.get(name).copied() })
            .collect();
        let by_rate = |one: &OutcomeRow<'_>, other: &OutcomeRow<'_>| {
            other.rate.unwrap_or(0.0).total_cmp(&one.rate.unwrap_or(0.0))
        };
        match self.outcome_order {
            OutcomeOrder::Rate => {
                rows.sort_by(|one, other| by_rate(one, other).then(other.count.cmp(&one.count)));
            }
            OutcomeOrder::Count => rows.sort_by_key(|row| std::cmp::Reverse(row.count)),
            OutcomeOrder::Name => {}
        }
        rows
    }

    /// Profiles and endpoints, sorted.
    pub(super) fn endpoints(&self) -> Vec<EndpointRow<'_>> {
        let Some(report) = &self.report else { return Vec::new() };
        let mut rows = Vec::new();
        for profile in &report.profiles {
            let about = EndpointRow {
                profile: &profile.name,
                endpoint: None,
                status: &profile.status,
                method: &profile.method,
                serving_all: profile.serving_all,
            };
            if self.endpoint_order == EndpointOrder::File {
                rows.push(about.clone());
            }
            rows.extend(profile.endpoints.iter().map(|endpoint| EndpointRow {
                endpoint: Some(endpoint),
                status: &endpoint.status,
                ..about.clone()
            }));
        }
        let of = |row: &EndpointRow<'_>, what: fn(&EndpointReport) -> f64| row.endpoint.map_or(0.0, what);
        let most = |what: fn(&EndpointReport) -> f64| {
            move |one: &EndpointRow<'_>, other: &EndpointRow<'_>| of(other, what).total_cmp(&of(one, what))
        };
        match self.endpoint_order {
            EndpointOrder::File => {}
            EndpointOrder::Status => {
                rows.sort_by_key(|row| std::cmp::Reverse(gravity(row.status)));
            }
            EndpointOrder::Latency => rows.sort_by(most(|of| of.latency_average_ms.unwrap_or(0.0))),
            EndpointOrder::Flaps => rows.sort_by(most(|of| of.flaps as f64)),
        }
        rows
    }

    /// First row of a part to show, so that `room` rows are filled as far as there are so many.
    pub(super) fn offset(&self, part: Part, rows: usize, room: usize) -> usize {
        self.offsets[part as usize].min(rows.saturating_sub(room))
    }

    /// The next part, or the one before, takes the arrow keys.
    pub(super) fn next_part(&mut self, forward: bool) {
        let step = if forward { 1 } else { Part::ALL.len() - 1 };
        let next = (self.focus as usize + step) % Part::ALL.len();
        self.focus = Part::ALL.get(next).copied().unwrap_or(Part::Endpoints);
    }

    /// Scrolls the part that has the arrow keys.
    pub(super) fn scroll(&mut self, direction: Direction, rows: usize) {
        let most = match self.focus {
            Part::Endpoints => self.endpoints().len(),
            Part::Outcomes => self.outcomes().len(),
            Part::Events => self.events.len(),
        };
        // The newest event is the last, so that there "up" goes away from the offset's zero.
        let up = (direction == Direction::Up) != (self.focus == Part::Events);
        let offset = &mut self.offsets[self.focus as usize];
        let moved = if up { offset.saturating_sub(rows) } else { offset.saturating_add(rows) };
        *offset = moved.min(most.saturating_sub(1));
    }

    /// Sorts the part that has the arrow keys by something else.
    pub(super) fn sort_next(&mut self) {
        match self.focus {
            Part::Endpoints => {
                self.endpoint_order = match self.endpoint_order {
                    EndpointOrder::File => EndpointOrder::Status,
                    EndpointOrder::Status => EndpointOrder::Latency,
                    EndpointOrder::Latency => EndpointOrder::Flaps,
                    EndpointOrder::Flaps => EndpointOrder::File,
                };
            }
            Part::Outcomes => {
                self.outcome_order = match self.outcome_order {
                    OutcomeOrder::Rate => OutcomeOrder::Count,
                    OutcomeOrder::Count => OutcomeOrder::Name,
                    OutcomeOrder::Name => OutcomeOrder::Rate,
                };
            }
            Part::Events => {}
        }
    }
}

/// How much a status needs to be looked at.
fn gravity(status: &str) -> u8 {
    match status {
        "Degraded" => 4,
        "CheckingEndpoint" | "CheckingEndpoints" => 3,
        "Stopped" | "Disabled" | "Inactive" => 2,
        "Unmonitored" => 1,
        _ => 0,
    }
}
