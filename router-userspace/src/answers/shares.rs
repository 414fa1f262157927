//! Which part of a profile's answers each endpoint has, against the part that it is to have.
//!
//! Parts are of the answers since they were last expected otherwise: a weight, a verdict or an override begins anew.

use std::collections::HashMap;

use router_common::decide::{Expectations, Snapshot};
use router_common::model::{Model, ProfileId};

use super::Totals;

/// What is expected of each profile, and what had been counted when that began.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Shares(HashMap<String, Expected>);

#[derive(Clone, PartialEq, Debug)]
struct Expected {
    names: Vec<String>,
    parts: Vec<f64>,
    before: Vec<u64>,
}

/// Where an endpoint stands.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Standing {
    /// The part of its profile's answers that it is to have, 0..=1.
    pub expected: f64,
    /// The part that it has; none without answers.
    pub share: Option<f64>,
}

impl Shares {
    /// Takes up what is expected now; what has changed is counted from these totals on. They are asked for only then.
    pub fn expect(&mut self, snapshot: &Snapshot, totals: impl FnOnce() -> Totals) {
        let model: &Model = &snapshot.model;
        let expectations = Expectations::new(snapshot);
        let mut changed = Vec::new();
        let mut kept = HashMap::new();
        for (id, profile) in (0..).map(ProfileId).zip(model.profiles()) {
            let Some(parts) = expectations.of(id) else { continue };
            let names: Vec<String> = profile.endpoints.iter().map(|endpoint| endpoint.name.clone()).collect();
            match self.0.remove(&profile.name) {
                Some(held) if held.names == names && held.parts == parts => {
                    kept.insert(profile.name.clone(), held);
                }
                _ => changed.push((profile.name.clone(), names, parts)),
            }
        }
        self.0 = kept;
        if changed.is_empty() {
            return;
        }
        let totals = totals();
        for (profile, names, parts) in changed {
            let before = names.iter().map(|name| answers(&totals, &profile, name)).collect();
            self.0.insert(profile, Expected { names, parts, before });
        }
    }

    /// Where the endpoints of a profile stand, in the order of the model; none where nothing is expected.
    pub fn standings(&self, profile: &str, totals: &Totals) -> Vec<Standing> {
        let Some(Expected { names, parts, before }) = self.0.get(profile) else { return Vec::new() };
        let counted = names.iter().zip(before);
        let counted = counted.map(|(name, before)| answers(totals, profile, name).saturating_sub(*before));
        let counted: Vec<u64> = counted.collect();
        let all: u64 = counted.iter().sum();
        let share = |count: u64| (all > 0).then(|| count as f64 / all as f64);
        parts
            .iter()
            .zip(counted)
            .map(|(&expected, count)| Standing { expected, share: share(count) })
            .collect()
    }
}

fn answers(totals: &Totals, profile: &str, endpoint: &str) -> u64 {
    totals.get(&format!("{profile}/{endpoint}")).map_or(0, super::Total::answers)
}
