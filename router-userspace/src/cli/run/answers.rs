//! What was handed out of endpoints, and those that are on their way out of service.

use std::collections::HashMap;
use std::time::Duration;

use super::serving::Serving;
pub(super) use crate::answers::kept::Ended;
use crate::answers::kept::Saved;
use crate::answers::{Reading, Totals, queries};
use crate::clock::unix_now;
use crate::control::{DrainReport, DrainsReport, ProfileReport};
use crate::datapath::{self, Tallies};
use crate::drain;
use crate::overrides;

impl Serving {
    /// What the fast path has counted; nothing when there is none.
    fn tallies(&self) -> Option<Tallies> {
        let tallies = self.datapath.as_ref()?.tallies();
        tallies.inspect_err(|error| log::warn!("answers of the fast path: {error:#}")).ok()
    }

    fn read<R>(&self, with: impl FnOnce(&Reading<'_>) -> R) -> R {
        let fast = tokio::task::block_in_place(|| self.tallies());
        let (now, monotonic) = (unix_now(), datapath::monotonic());
        with(&Reading { fast: fast.as_ref(), userspace: self.agent.answered(), now, monotonic })
    }

    /// Everything that was counted.
    pub(super) fn totals(&self) -> Totals {
        self.read(|reading| self.answers.totals(reading))
    }

    /// Queries for each profile, as far as answers tell.
    pub(super) fn queries(&self) -> HashMap<String, u64> {
        queries(&self.agent.snapshot().model, &self.totals())
    }

    /// What is to be kept of it.
    pub(super) fn kept_answers(&self) -> Saved {
        self.read(|reading| self.answers.kept(reading, None))
    }

    /// The same at the end; `fast` was read after the last answer.
    pub(super) fn last_answers(&self, fast: Option<&Tallies>, ended: Ended) -> Saved {
        let (now, monotonic) = (unix_now(), datapath::monotonic());
        let reading = Reading { fast, userspace: self.agent.answered(), now, monotonic };
        self.answers.kept(&reading, Some(ended))
    }

    /// Another model is answered from.
    pub(super) fn answers_from_another(&mut self) {
        self.answers.learn(&self.agent.snapshot().model);
        let drains = self.agent.overrides().drains().map(|held| held.target.as_str());
        self.answers.draining(drains, unix_now());
        self.keeper.verdict();
        if self.agent.compiled().is_out_of_tallies() {
            log::warn!("more ways to an answer than tallies: some answers are not counted by endpoint");
        }
        self.follow_shares();
    }

    /// Weights, verdicts and overrides change what each endpoint is to have of the answers.
    pub(super) fn follow_shares(&mut self) {
        let mut shares = std::mem::take(&mut self.shares);
        shares.expect(self.agent.snapshot(), || self.totals());
        self.shares = shares;
    }

    /// What is being drained, and how far it is.
    pub(super) fn drains(&self) -> DrainsReport {
        if self.agent.overrides().drains().next().is_none() {
            return DrainsReport::default();
        }
        DrainsReport { drains: self.drained(&self.totals()) }
    }

    fn drained(&self, totals: &Totals) -> Vec<DrainReport> {
        let now = unix_now();
        let (agent, answers) = (&self.agent, &self.answers);
        let model = &agent.snapshot().model;
        let counted = !agent.compiled().is_out_of_tallies();
        let is_drained = |path: &str| agent.overrides().drains().any(|held| held.target == path);
        let millis = |at: Duration| u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        let report = |held: &overrides::Override| {
            let id = overrides::endpoint_named(model, &held.target);
            let ttl = id.map_or(0, |id| model.profile(id.profile).ttl);
            let drained = answers.drained(&held.target, totals, Duration::from_secs(ttl.into()), counted)?;
            let mut notes = match id {
                Some(id) => drain::elsewhere(model, &agent.settings().dns, id, &is_drained),
                None => vec![String::from("the configuration has no such endpoint (any more)")],
            };
            let left = drained.safe.saturating_sub(now);
            if drained.unsure && !left.is_zero() {
                notes.insert(0, String::from(
                    "not every answer was counted (an agent was killed or its state was lost): assumed is the longest \
                     time that there can be",
                ));
            }
            Some(DrainReport {
                target: held.target.clone(),
                by: held.by.clone(),
                reason: held.reason.clone(),
                ends_seconds: held.until.map(|until| until.saturating_sub(now.as_secs())),
                out_at: millis(drained.out),
                last_answer: drained.total.last.map(millis),
                answers: drained.total.answers(),
                safe_at: millis(drained.safe),
                // Rounded up: 0 is for what is over.
                left: u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX),
                still_answered: drained.still,
                notes,
            })
        };
        agent.overrides().drains().filter_map(report).collect()
    }

    /// Adds to a status what was handed out.
    pub(super) fn add_answers(&self, profiles: &mut [ProfileReport]) {
        let totals = self.totals();
        let mut drains = self.drained(&totals);
        let now = unix_now();
        for profile in profiles {
            let standings = self.shares.standings(&profile.name, &totals);
            let mut standings = standings.into_iter();
            for endpoint in &mut profile.endpoints {
                let path = format!("{}/{}", profile.name, endpoint.name);
                if let Some(standing) = standings.next() {
                    endpoint.share = standing.share;
                    endpoint.expected_share = Some(standing.expected);
                }
                if let Some(total) = totals.get(&path) {
                    endpoint.answers_fast = total.fast;
                    endpoint.answers_userspace = total.userspace;
                    let last = total.last.map(|last| last.as_millis());
                    endpoint.last_answer = last.and_then(|last| u64::try_from(last).ok());
                    endpoint.last_answer_seconds = total.last.map(|last| now.saturating_sub(last).as_secs());
                }
                if let Some(at) = drains.iter().position(|drain| drain.target == path) {
                    endpoint.drain = Some(drains.swap_remove(at));
                }
            }
        }
    }
}
