//! The failover clock: how long it takes from the end of a probe until the world gets another answer.
//!
//! What is measured: **received**, from the end of the probe (that of the oldest one, when several changed
//! verdicts at once) until the loop takes its result up; **decided**, until the verdict is found, decided by
//! and compiled; **written**, until the last store into the tables; **answered**, until the first answer after
//! that. The last is seen by the counters of answers growing: they are read every millisecond in the first
//! 100 ms, then every 10 ms, after a second every 100 ms. It is the first answer of *any* name, and so the
//! least that the first answer from a changed table can have taken.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use router_common::model::{EndpointId, Model, ProbeTarget};

use crate::agent::Effect;
use crate::metrics::{FailoverReport, Figures, Step};
use crate::probe::Observed;

/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// Changes that wait for their first answer, at most; of more the oldest are given up.
const WAITING: usize = 256;

/// See the module.
pub(super) struct Clock {
    figures: Arc<Figures>,
    change: Option<Change>,
    waiting: VecDeque<Waiting>,
    /// When the counters are read next.
    look: Option<Instant>,
    pub(super) report: FailoverReport,
}

/// A change on its way to the tables.
struct Change {
    probed: Instant,
    received: Instant,
    decided: Instant,
    written: Option<Instant>,
}

/// A change in the tables, which nobody was seen to be told of.
struct Waiting {
    probed: Instant,
    written: Instant,
    /// Answers counted right after it.
    answers: u64,
}

/// Results of probes as they were taken up.
pub(super) struct Received {
    at: Instant,
    ended: Vec<(Arc<ProbeTarget>, Instant)>,
}

impl Received {
    /// Taken up now.
    pub(super) fn now(observed: &[Observed]) -> Self {
        let ended = observed.iter().map(|one| (Arc::clone(&one.target), one.at)).collect();
        Self { at: Instant::now(), ended }
    }
}

impl Clock {
    pub(super) fn new(figures: Arc<Figures>) -> Self {
        let report = FailoverReport::default();
        Self { figures, change: None, waiting: VecDeque::new(), look: None, report }
    }

    /// It is decided what is to be done about what was received; now it will be carried out. Without a change of
    /// the tables there is no failover, and nothing is measured.
    pub(super) fn decided(&mut self, received: &Received, effects: &[Effect], model: &Model) {
        self.change = None;
        if !effects.iter().any(|effect| matches!(effect, Effect::Apply(_) | Effect::Install)) {
            return;
        }
        let ended: HashMap<&ProbeTarget, Instant> =
            received.ended.iter().map(|(target, at)| (&**target, *at)).collect();
        let of = |&endpoint: &EndpointId| ended.get(&model.endpoint(endpoint).monitor.as_ref()?.target);
        let verdicts = effects.iter().filter_map(|effect| match effect {
            Effect::Verdict(endpoint, _) => of(endpoint).copied(),
            _ => None,
        });
        // Without a verdict it is an average of latencies that moved, which fails nobody over.
        let Some(probed) = verdicts.min() else { return };
        self.change = Some(Change { probed, received: received.at, decided: Instant::now(), written: None });
    }

    /// The last store was made, as far as is known.
    pub(super) fn wrote(&mut self) {
        if let Some(change) = &mut self.change {
            change.written = Some(Instant::now());
        }
    }

    /// Everything was carried out; `answers` counts the answers of both paths so far.
    pub(super) fn carried_out(&mut self, answers: impl FnOnce() -> Option<u64>) {
        let Some(Change { probed, received, decided, written }) = self.change.take() else { return };
        // Without a fast path it is the service that was exchanged.
        let written = written.unwrap_or_else(Instant::now);
        let steps = [(Step::Received, probed, received), (Step::Decided, received, decided)];
        for (step, from, to) in steps.into_iter().chain([(Step::Written, decided, written)]) {
            self.figures.step(step, to.saturating_duration_since(from));
        }
        let took = written.saturating_duration_since(probed);
        self.figures.failover.observe(took.as_secs_f64());
        self.report.changes += 1;
        self.report.last_ms = Some(took.as_secs_f64() * 1000.0);
        let Some(answers) = answers() else { return };
        if self.waiting.len() >= WAITING && self.waiting.pop_front().is_some() {
            self.report.unanswered += 1;
        }
        self.waiting.push_back(Waiting { probed, written, answers });
        self.look = Some(written + pause(Duration::ZERO));
    }

    /// Waits until it is time to look for first answers. Can be given up and called again.
    pub(super) async fn due(&self) {
        match self.look {
            Some(look) => tokio::time::sleep_until(look.into()).await,
            None => std::future::pending().await,
        }
    }

    /// So many answers have been counted by now.
    pub(super) fn answers(&mut self, answers: Option<u64>) {
        let now = Instant::now();
        let Self { figures, waiting, report, .. } = self;
        waiting.retain(|one| {
            let after = now.saturating_duration_since(one.written);
            match answers {
                Some(answers) if answers > one.answers => {
                    let took = now.saturating_duration_since(one.probed);
                    figures.step(Step::Answered, after);
                    figures.failover_answered.observe(took.as_secs_f64());
                    report.last_answered_ms = Some(took.as_secs_f64() * 1000.0);
                    false
                }
                Some(_) if after < PATIENCE => true,
                _ => {
                    report.unanswered += 1;
                    false
                }
            }
        });
        let youngest = waiting.back().map(|one| now.saturating_duration_since(one.written));
        self.look = youngest.map(|age| now + pause(age));
    }
}

/// Until the next look, so long after a change.
fn pause(age: Duration) -> Duration {
    match age.as_millis() {
        0..100 => Duration::from_millis(1),
        100..1000 => Duration::from_millis(10),
        _ => Duration::from_millis(100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::StatusReport;
    use crate::metrics::{Format, Scrape, probe_durations};

    fn change(clock: &mut Clock, ago: Duration) {
        let now = Instant::now();
        clock.change =
            Some(Change { probed: now - ago, received: now - ago / 2, decided: now, written: None });
        clock.wrote();
    }

    /// A sample as it is rendered.
    fn sample(figures: &Arc<Figures>, name: &str) -> f64 {
        let (report, probes) = (StatusReport::default(), probe_durations());
        let text = Scrape { report, figures: Arc::clone(figures), probes }.render(Format::Text);
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().expect("a number")
    }

    #[test]
    fn a_change_is_measured_step_by_step_until_somebody_is_answered() {
        let figures = Arc::new(Figures::default());
        let mut clock = Clock::new(Arc::clone(&figures));
        change(&mut clock, Duration::from_millis(40));
        clock.carried_out(|| Some(7));
        assert_eq!((sample(&figures, "xroute_failover_seconds_count"), clock.report.changes), (1.0, 1));
        let took = sample(&figures, "xroute_failover_seconds_sum");
        assert!((0.04..10.0).contains(&took), "{took}");
        let step = |what: &str, step: Step| {
            sample(&figures, &format!("xroute_failover_step_seconds_{what}{{step=\"{}\"}}", step.as_str()))
        };
        assert!(step("sum", Step::Received) >= 0.019, "half of it");
        assert!(step("sum", Step::Decided) >= 0.019, "the other half");
        assert_eq!((step("count", Step::Written), step("count", Step::Answered)), (1.0, 0.0));
        assert!(clock.look.is_some());
        // Nobody has asked.
        clock.answers(Some(7));
        assert_eq!((step("count", Step::Answered), clock.look.is_some()), (0.0, true));
        clock.answers(Some(8));
        assert_eq!((step("count", Step::Answered), clock.look), (1.0, None));
        assert_eq!(sample(&figures, "xroute_failover_answered_seconds_count"), 1.0);
        assert!(clock.report.last_answered_ms > clock.report.last_ms, "{:?}", clock.report);
        assert_eq!(clock.report.unanswered, 0);
    }

    #[test]
    fn nothing_is_measured_of_what_changes_no_table() {
        let mut clock = Clock::new(Arc::default());
        clock.wrote();
        clock.carried_out(|| Some(1));
        assert_eq!((clock.report, clock.look), (FailoverReport::default(), None));
    }

    #[test]
    fn what_waits_is_bounded_and_ends() {
        let mut clock = Clock::new(Arc::default());
        for _ in 0..WAITING + 3 {
            change(&mut clock, Duration::ZERO);
            clock.carried_out(|| Some(1));
        }
        assert_eq!((clock.waiting.len(), clock.report.unanswered), (WAITING, 3));
        // The counters cannot be read.
        clock.answers(None);
        assert_eq!((clock.waiting.len(), clock.report.unanswered, clock.look), (0, WAITING as u64 + 3, None));
    }
}
