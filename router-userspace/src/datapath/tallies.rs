//! How often each endpoint was answered with, and when last: what the program counts, kept beyond the generation
//! that it was counted in.
//!
//! A tally belongs to one generation, in one half of the maps. When nobody reads that half any more its tallies are
//! **folded** into a ledger by the names of the endpoints, and the half may be filled anew. Credits and tallies stand in
//! pinned maps, so that an agent folds what an earlier one has left, whose tables it knows nothing of.

use std::collections::HashMap;

use anyhow::{Context, Result};
use router_common::abi::{CREDIT_NAMES, Credit, TALLY_ROW, map};
use serde::{Deserialize, Serialize};

use super::instance::Instance;
use super::sys;

/// Generations that are remembered as folded: no more than two can be in maps.
const REMEMBERED: usize = 8;
/// Words of a tally on one CPU.
const WORDS: usize = 2;

/// What was counted for one endpoint. Times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tallied {
    /// Answers.
    pub answers: u64,
    /// The last one.
    pub last: u64,
    /// When the last one that is still valid somewhere ends: each answer's time and its TTL.
    pub until: u64,
}

impl Tallied {
    fn add(&mut self, other: Self) {
        self.answers = self.answers.saturating_add(other.answers);
        self.last = self.last.max(other.last);
        self.until = self.until.max(other.until);
    }
}

/// By [`router_common::abi::endpoint_hash`].
pub type Totals = HashMap<u64, Tallied>;

/// Which generation it is, over all agents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mark {
    /// Of its seed.
    pub seed: u64,
    /// Its serial number.
    pub serial: u64,
}

/// What was folded so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ledger {
    totals: Totals,
    folded: Vec<Mark>,
    lost: bool,
}

/// What was counted, as [`super::Datapath::tallies`] finds it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tallies {
    /// In generations before the one that answers, since this agent began or another left them in the maps.
    pub folded: Totals,
    /// In the one that answers.
    pub live: Totals,
    /// The one that answers.
    pub mark: Option<Mark>,
    /// The last ones before it.
    pub marks: Vec<Mark>,
    /// Whether some could not be read and is missing.
    pub lost: bool,
}

impl Ledger {
    /// Nothing is in it, and these generations are not to be folded: another agent had, and kept it.
    pub fn after(folded: Vec<Mark>) -> Self {
        Self { folded, ..Self::default() }
    }

    /// Takes in what a half holds, once. No run of the program may be in it.
    pub fn fold(&mut self, instance: &Instance, half: u32) {
        let Some(mark) = instance.mark(half) else { return };
        if self.folded.contains(&mark) {
            return;
        }
        match totals(instance, half) {
            Ok(totals) => {
                for (name, tallied) in totals {
                    self.totals.entry(name).or_default().add(tallied);
                }
            }
            Err(error) => {
                log::warn!("answers of generation {} are not counted: {error:#}", mark.serial);
                self.lost = true;
            }
        }
        self.folded.push(mark);
        let surplus = self.folded.len().saturating_sub(REMEMBERED);
        self.folded.drain(..surplus);
    }

    /// With what the generation that answers has counted so far.
    pub fn with_live(&self, instance: &Instance) -> Result<Tallies> {
        let half = u32::from(instance.control().half().min(1));
        Ok(Tallies {
            folded: self.totals.clone(),
            live: totals(instance, half)?,
            mark: instance.mark(half),
            marks: self.folded.clone(),
            lost: self.lost,
        })
    }
}

/// What a half has counted.
fn totals(instance: &Instance, half: u32) -> Result<Totals> {
    let credits = instance.credits(half);
    let used = credits.iter().rposition(|credit| credit.count > 0).map_or(0, |last| last + 1);
    let row = TALLY_ROW * WORDS;
    let words = instance.cpus() * row;
    let first = half * instance.capacity().tallies / TALLY_ROW as u32;
    let mut values = vec![0; used.div_ceil(TALLY_ROW) * words];
    sys::lookup_many(instance.map(map::TALLIES)?, first, &mut values, words)
        .context("cannot read TALLIES")?;
    let mut totals = Totals::new();
    for (index, credit) in credits.iter().enumerate().take(used) {
        // One CPU's row after the other.
        let rows = values.chunks(words).nth(index / TALLY_ROW).unwrap_or_default().chunks(row);
        let each = rows.filter_map(|row| row.chunks(WORDS).nth(index % TALLY_ROW));
        let (mut answers, mut last) = (0u64, 0);
        for tally in each {
            if let [count, time] = *tally {
                answers = answers.wrapping_add(count);
                last = last.max(time);
            }
        }
        if credit.count == 0 || answers == 0 {
            continue;
        }
        let until = last.saturating_add(u64::from(credit.ttl) * 1_000_000_000);
        for name in names(&credits, index) {
            totals.entry(name).or_default().add(Tallied { answers, last, until });
        }
    }
    Ok(totals)
}

/// Whom a credit is for; the rest of a long one stands in those after it.
fn names(credits: &[Credit], index: usize) -> impl Iterator<Item = u64> + '_ {
    let count = credits.get(index).map_or(0, |credit| credit.count as usize);
    let parts = credits.iter().skip(index).take(count.div_ceil(CREDIT_NAMES));
    parts.flat_map(|credit| credit.names).take(count)
}
