//! What is at the far end of one lab beside what is at that of another, in the same run.

use anyhow::Result;

use super::flood::{Flood, Load, Outcome, Rule};
use super::lab::Lab;

/// Loads of each side in a round, one after the other in turn.
const TURNS: usize = 8;

/// What came of it.
#[derive(Clone, Debug)]
pub struct Contest {
    /// Answers a second to reflected ones: the median of the rounds.
    pub ratio: f64,
    /// The least of the rounds.
    pub least: f64,
    /// The greatest.
    pub greatest: f64,
    /// Nanoseconds from answer to answer: ours, the reflector's; the median of the rounds.
    pub time: [f64; 2],
    /// What was counted: ours, the reflector's.
    pub tally: [Tally; 2],
    /// What was wrong, by side.
    pub remarks: Vec<[String; 2]>,
}

/// Answers of all rounds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Right ones.
    pub right: u64,
    /// Others.
    pub wrong: u64,
    /// Queries without an answer because a queue of the veth was full.
    pub overflow: u64,
    /// Queries without an answer for another reason.
    pub lost: u64,
}

/// Floods a lab whose far end answers, and one whose far end reflects. Of each round the fastest load of each side
/// counts: the machine does other things too, and no load is faster than what is measured.
///
/// # Errors
/// When the kernel does not run the generator.
pub fn contest(flood: &mut Flood, labs: [&Lab; 2], load: &Load, rounds: usize) -> Result<Contest> {
    const RULES: [Rule; 2] = [Rule::Answered, Rule::Reflected];
    let mut best = Vec::new();
    let mut tally = [Tally::default(); 2];
    let mut remarks = Vec::new();
    for round in 0..rounds {
        let mut fastest = [f64::MAX; 2];
        for turn in 0..TURNS {
            for step in 0..2 {
                // Neither always comes after the other.
                let side = (step + turn + round) % 2;
                let outcome = flood.run(labs[side], RULES[side], load)?;
                fastest[side] = fastest[side].min(outcome.nanoseconds());
                tally[side].add(&outcome);
                if outcome.wrong() + outcome.lost() > 0 && remarks.len() < 10 {
                    remarks.push([format!("{:?}", RULES[side]), format!("{outcome:?}")]);
                }
            }
        }
        best.push(fastest);
    }
    let ratios = sorted(best.iter().map(|[ours, mirror]| mirror / ours));
    let time = [0, 1].map(|side| middle(&sorted(best.iter().map(|fastest| fastest[side]))));
    Ok(Contest {
        ratio: middle(&ratios),
        least: ratios.first().copied().unwrap_or(f64::NAN),
        greatest: ratios.last().copied().unwrap_or(f64::NAN),
        time,
        tally,
        remarks,
    })
}

impl Tally {
    fn add(&mut self, outcome: &Outcome) {
        self.right += outcome.right;
        self.wrong += outcome.wrong();
        self.overflow += outcome.overflow.queries + outcome.overflow.answers;
        self.lost += outcome.lost();
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values
}

fn middle(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
