//! What was seen, as a table, and what of it is not as it must be.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::agent::{Counters, Verdicts};
use super::lab::ENDPOINTS;
use super::load::Outcome;
use super::message::Said;
use super::sampler::Sample;
use super::{PROFILES, VICTIM};

/// The least share of answers that the fast path must give.
const FAST: f64 = 0.99;

/// Everything that was seen.
pub struct Evidence {
    /// What each dnsperf says.
    pub loads: Vec<Outcome>,
    /// What the sampler saw.
    pub samples: Vec<Sample>,
    /// The agent's counters before the first query.
    pub before: Counters,
    /// The same after the last.
    pub after: Counters,
    /// How the kernel runs the XDP program.
    pub mode: &'static str,
    /// When what happened.
    pub moments: Moments,
    /// Whether dnsperf still ran at the last verdict.
    pub under_load: bool,
}

/// The turns of the play, ns of `CLOCK_MONOTONIC`.
pub struct Moments {
    /// The endpoint was killed.
    pub killed: u64,
    /// The verdicts that it is degraded.
    pub failed: Verdicts,
    /// The verdicts that it is online again.
    pub healed: Verdicts,
}

/// Between the turns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Before,
    Unnoticed,
    Down,
    After,
}

const PHASES: [Phase; 4] = [Phase::Before, Phase::Unnoticed, Phase::Down, Phase::After];

impl Moments {
    /// The phase that a sample belongs to, by when it was *sent*: an answer to a query that was sent after
    /// a verdict was applied cannot be older than the verdict. `None` for those in flight at a turn.
    fn phase(&self, sample: &Sample) -> Option<Phase> {
        let (failed, healed) = (self.failed.get(sample.name)?, self.healed.get(sample.name)?);
        let received = sample.answered.map_or(sample.sent, |(at, _)| at);
        let within = |from: u64, to: u64| from <= sample.sent && received < to;
        if within(0, self.killed) {
            Some(Phase::Before)
        } else if within(self.killed, failed.reached) {
            Some(Phase::Unnoticed)
        } else if within(failed.applied, healed.reached) {
            Some(Phase::Down)
        } else if within(healed.applied, u64::MAX) {
            Some(Phase::After)
        } else {
            None
        }
    }
}

impl Evidence {
    fn sent(&self) -> u64 {
        self.loads.iter().map(|load| load.sent).sum::<u64>() + self.samples.len() as u64
    }

    fn answered(&self) -> u64 {
        let sampled = self.samples.iter().filter(|sample| sample.answered.is_some()).count();
        self.loads.iter().map(|load| load.answered).sum::<u64>() + sampled as u64
    }

    fn rate(&self) -> f64 {
        self.loads.iter().map(|load| load.rate).sum()
    }

    /// How much the counters grew whose names `counts` picks.
    fn grown(&self, counts: impl Fn(&str) -> bool) -> u64 {
        let sum = |counters: &Counters| {
            counters.iter().filter(|(name, _)| counts(name)).map(|(_, n)| n).sum::<u64>()
        };
        sum(&self.after).saturating_sub(sum(&self.before))
    }

    /// Answers of the fast path.
    fn fast(&self) -> u64 {
        self.grown(|name| name == "answer_records" || name == "answer_nodata")
    }

    /// Why the fast path passed packets up, and how many; those that are no DNS at all are left out.
    fn passed(&self) -> Vec<(&str, u64)> {
        let passed = self.after.keys().filter(|name| name.starts_with("pass_"));
        let passed = passed.filter(|name| !matches!(name.as_str(), "pass_not_ip" | "pass_not_dns"));
        passed
            .map(|name| (name.as_str(), self.grown(|other| other == name)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    fn fast_share(&self) -> f64 {
        self.fast() as f64 / self.answered().max(1) as f64
    }

    /// Answers that named this address, by phase.
    fn by_phase(&self, profile: usize, address: &str) -> BTreeMap<Phase, usize> {
        let mut counts = BTreeMap::new();
        for sample in self.samples.iter().filter(|sample| sample.name == profile) {
            if let (Some((_, Said::Address(said))), Some(phase)) =
                (sample.answered, self.moments.phase(sample))
                && said.to_string() == address
            {
                *counts.entry(phase).or_default() += 1;
            }
        }
        counts
    }

    fn victims(&self, phase: Phase) -> usize {
        let addresses =
            ENDPOINTS.iter().filter(|endpoint| endpoint.name == VICTIM).map(|endpoint| endpoint.ipv4);
        addresses
            .flat_map(|address| (0..PROFILES.len()).map(move |profile| (profile, address)))
            .map(|(profile, address)| self.by_phase(profile, address).get(&phase).copied().unwrap_or(0))
            .sum()
    }

    /// From the failing verdict to the first answer that only the new state can give, ns; for profiles
    /// that always chose the victim before.
    fn first_new(&self, profile: usize) -> Option<u64> {
        let reached = self.moments.failed.get(profile)?.reached;
        let victim = ENDPOINTS.iter().find(|endpoint| endpoint.name == VICTIM)?;
        let first = self
            .samples
            .iter()
            .filter(|sample| sample.name == profile)
            .filter_map(|sample| sample.answered)
            .filter(|(at, said)| {
                *at >= reached && matches!(said, Said::Address(address) if address.to_string() != victim.ipv4)
            })
            .map(|(at, _)| at)
            .min()?;
        Some(first - reached)
    }
}

/// The table.
pub fn table(evidence: &Evidence) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_table(&mut text, evidence);
    text
}

fn write_table(text: &mut String, evidence: &Evidence) -> std::fmt::Result {
    writeln!(text, "\n{:40} {:>10} {:>10} {:>6} {:>12}", "", "sent", "answered", "lost", "queries/s")?;
    for load in &evidence.loads {
        let title = format!("dnsperf {}", load.title);
        writeln!(
            text,
            "{title:40.40} {:>10} {:>10} {:>6} {:>12.0}",
            load.sent, load.answered, load.lost, load.rate
        )?;
    }
    let sent = evidence.samples.len();
    let answered = evidence.samples.iter().filter(|sample| sample.answered.is_some()).count();
    writeln!(text, "{:40} {sent:>10} {answered:>10} {:>6}", "sampler", sent - answered)?;
    let (sent, answered) = (evidence.sent(), evidence.answered());
    writeln!(
        text,
        "{:40} {sent:>10} {answered:>10} {:>6} {:>12.0}",
        "all",
        sent - answered,
        evidence.rate()
    )?;

    writeln!(text, "\nAnswers per endpoint, by when the query was sent")?;
    writeln!(text, "{:40} {:>10} {:>12} {:>10} {:>10}", "", "before", "unnoticed", "down", "revived")?;
    for (profile, name) in PROFILES.iter().enumerate() {
        for endpoint in &ENDPOINTS {
            let counts = evidence.by_phase(profile, endpoint.ipv4);
            let [before, unnoticed, down, after] =
                PHASES.map(|phase| counts.get(&phase).copied().unwrap_or(0));
            let title = format!("{name}: {} {}", endpoint.name, endpoint.ipv4);
            writeln!(text, "{title:40} {before:>10} {unnoticed:>12} {down:>10} {after:>10}")?;
        }
    }

    writeln!(text)?;
    writeln!(
        text,
        "{:44} {:.3} % ({} of {answered}; userspace {})",
        "answered by the fast path",
        evidence.fast_share() * 100.0,
        evidence.fast(),
        evidence.grown(|name| name.starts_with("server_"))
    )?;
    for (reason, count) in evidence.passed() {
        writeln!(text, "  {reason:42} {count}")?;
    }
    writeln!(text, "{:44} {}", "XDP mode", evidence.mode)?;
    for (profile, name) in PROFILES.iter().enumerate() {
        if *name == "www" {
            continue; // it names the other endpoints at all times
        }
        if let (Some(new), Some(failed)) = (evidence.first_new(profile), evidence.moments.failed.get(profile))
        {
            let applied = failed.applied.saturating_sub(failed.reached) as f64 / 1e6;
            let title = format!("failing verdict to first new answer, {name}");
            writeln!(text, "{title:44} {:.2} ms (applied after {applied:.2} ms)", new as f64 / 1e6)?;
        }
    }
    writeln!(
        text,
        "{:44} {}",
        format!("answers with {VICTIM} after that was applied"),
        evidence.victims(Phase::Down)
    )?;
    if !evidence.under_load {
        writeln!(text, "dnsperf had ended when the last verdict came: give it more --seconds")?;
    }
    Ok(())
}

/// What is not as it must be; empty when the demo showed what it is meant to.
pub fn faults(evidence: &Evidence) -> Vec<String> {
    let mut faults = Vec::new();
    let (sent, answered) = (evidence.sent(), evidence.answered());
    if answered < sent {
        faults.push(format!("{} of {sent} queries were lost", sent - answered));
    }
    let wrong =
        evidence.loads.iter().map(|load| load.answered - load.noerror.min(load.answered)).sum::<u64>()
            + evidence.samples.iter().filter(|s| matches!(s.answered, Some((_, Said::Nothing(_))))).count()
                as u64;
    if wrong > 0 {
        faults.push(format!("{wrong} answers were errors or held no address"));
    }
    if evidence.fast_share() < FAST {
        faults.push(format!("only {:.2} % were answered by the fast path", evidence.fast_share() * 100.0));
    }
    if evidence.mode != "native" {
        faults.push(format!("the XDP mode is {}, not native", evidence.mode));
    }
    let late = evidence.victims(Phase::Down);
    if late > 0 {
        faults.push(format!("{late} answers named the dead endpoint after the verdict was applied"));
    }
    // Without these the line before would hold of an agent that never names the endpoint at all.
    for (phase, when) in [(Phase::Before, "before it was killed"), (Phase::After, "after it was revived")] {
        if evidence.victims(phase) == 0 {
            faults.push(format!("no answer named endpoint {VICTIM} {when}"));
        }
    }
    let down = |sample: &&Sample| evidence.moments.phase(sample) == Some(Phase::Down);
    if evidence.samples.iter().filter(down).count() == 0 {
        faults.push("no query was asked while the endpoint was down".to_owned());
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::super::agent::Verdict;
    use super::*;

    const A: [u8; 4] = [192, 0, 2, 10];
    const B: [u8; 4] = [192, 0, 2, 20];

    fn sample(sent: u64, address: [u8; 4]) -> Sample {
        Sample { sent, answered: Some((sent + 1, Said::Address(address.into()))), name: 1 }
    }

    /// Killed at 100, verdict 200, applied 210; healed 300, applied 310.
    fn evidence(samples: Vec<Sample>) -> Evidence {
        let load = Outcome { title: "x", sent: 1000, answered: 1000, lost: 0, noerror: 1000, rate: 1.0 };
        let fast = 1000 + samples.len() as u64;
        Evidence {
            loads: vec![load],
            samples,
            before: Counters::from([("answer_records".to_owned(), 7)]),
            after: Counters::from([("answer_records".to_owned(), 7 + fast)]),
            mode: "native",
            moments: Moments {
                killed: 100,
                failed: [Verdict { reached: 200, applied: 210 }; 3],
                healed: [Verdict { reached: 300, applied: 310 }; 3],
            },
            under_load: true,
        }
    }

    fn good() -> Vec<Sample> {
        // The one sent before the tables changed may hold either; it is in no phase.
        vec![sample(50, A), sample(150, A), sample(205, A), sample(209, B), sample(220, B), sample(320, A)]
    }

    #[test]
    fn a_good_run_has_no_fault_and_measures_from_the_verdict() {
        let evidence = evidence(good());
        assert_eq!(faults(&evidence), [""; 0]);
        assert_eq!(evidence.first_new(1), Some(10));
        assert!(table(&evidence).contains("100.000 %"));
    }

    #[test]
    fn every_shortcoming_is_a_fault() {
        let fault_of = |change: &dyn Fn(&mut Evidence)| {
            let mut evidence = evidence(good());
            change(&mut evidence);
            faults(&evidence).join("; ")
        };
        assert!(fault_of(&|e| e.samples.push(sample(211, A))).contains("1 answers named the dead endpoint"));
        assert!(fault_of(&|e| e.samples[0].answered = None).contains("1 of 1006 queries were lost"));
        assert!(fault_of(&|e| e.loads[0].answered = 990).contains("10 of 1006"));
        assert!(fault_of(&|e| e.loads[0].noerror = 999).contains("1 answers were errors"));
        assert!(fault_of(&|e| e.mode = "generic").contains("generic, not native"));
        assert!(fault_of(&|e| e.after.clear()).contains("only 0.00 %"));
        assert!(fault_of(&|e| e.samples.retain(|s| s.sent < 300)).contains("after it was revived"));
        assert!(fault_of(&|e| e.samples.retain(|s| s.sent != 220)).contains("while the endpoint was down"));
    }
}
