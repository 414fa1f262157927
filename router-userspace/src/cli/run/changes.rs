//! Changes by operators: the overrides, from asking for them until the fast path shows them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::serving::Serving;
use super::status;
use crate::agent::{Agent, Basis, Draft};
use crate::audit::{self, Entry, Who};
use crate::clock::unix_now;
use crate::control::{Change, ChangeReport, OverrideReport};
use crate::drain;
use crate::overrides::{self, Override, Overrides, kept};

/// When ending an override is tried again.
const AGAIN: Duration = Duration::from_secs(60);

/// The way back to one who asked for a change.
pub(super) type Reply = oneshot::Sender<Result<ChangeReport, String>>;

/// A change that waits for its turn.
pub(super) struct Asked {
    pub(super) who: Who,
    /// None: the overrides whose time is over are taken away.
    pub(super) change: Option<Change>,
    pub(super) reply: Option<Reply>,
}

/// A generation with other overrides, or why there is none.
pub(super) struct Amended {
    asked: Asked,
    /// Overrides that are new, or gone.
    touched: Vec<Override>,
    draft: Result<Draft, String>,
    began: Instant,
}

/// Makes the generation; takes as long as compiling does.
pub(super) fn amend(asked: Asked, basis: &Basis, now: Duration) -> Amended {
    let began = Instant::now();
    let before = &*basis.ground.overrides;
    let mut after = before.clone();
    let changed = match &asked.change {
        None => {
            after.expire(now);
            Ok(())
        }
        Some(Change::Add(wanted)) => after.add(&basis.ground.base, wanted, &asked.who.user, now),
        Some(Change::Drain { wanted, .. }) => after.drain(&basis.ground.base, wanted, &asked.who.user, now),
        Some(Change::Clear(patterns)) => after.clear(patterns),
    };
    let touched = differing(before, &after);
    let draft = changed.and_then(|()| basis.with_overrides(after).map_err(|refused| refused.to_string()));
    let draft = match &asked.change {
        Some(Change::Drain { force: false, .. }) => draft.and_then(|draft| harmless(basis, draft, &touched)),
        _ => draft,
    };
    Amended { asked, touched, draft, began }
}

/// Refuses what does harm to clients.
fn harmless(basis: &Basis, draft: Draft, touched: &[Override]) -> Result<Draft, String> {
    let model = &draft.snapshot().model;
    let changed = touched.iter().filter_map(|held| overrides::endpoint_named(model, &held.target));
    let harm = drain::harm(&basis.snapshot, draft.snapshot(), &changed.collect::<Vec<_>>());
    if harm.is_empty() {
        return Ok(draft);
    }
    Err(format!(
        "not drained, since clients would notice (--force does it all the same):\n  {}",
        harm.join("\n  ")
    ))
}

fn differing(before: &Overrides, after: &Overrides) -> Vec<Override> {
    let gone = before.list().iter().filter(|held| !after.list().contains(held));
    let new = after.list().iter().filter(|held| !before.list().contains(held));
    gone.chain(new).cloned().collect()
}

impl Serving {
    /// Somebody wants other overrides.
    pub(super) fn change(&mut self, who: Who, change: Change, reply: Reply) {
        self.reloads.want_change(Asked { who, change: Some(change), reply: Some(reply) });
        self.make_next();
    }

    /// Takes away overrides whose time is over. What cannot be taken away now is tried again later.
    pub(super) fn end_overrides(&mut self) {
        let over = self.agent.overrides().next_end().is_some_and(|end| end <= unix_now());
        let waits = self.ends_again.is_some_and(|at| Instant::now() < at);
        if over && !waits && !self.reloads.is_busy() {
            self.reloads.want_change(Asked { who: Who::agent(), change: None, reply: None });
            self.make_next();
        }
    }

    /// A generation with other overrides was made, or could not be.
    ///
    /// # Errors
    /// What the agent cannot go on with.
    pub(super) fn amended(&mut self, amended: Amended) -> anyhow::Result<()> {
        let Amended { mut asked, touched, draft, began } = amended;
        let result = match draft {
            Err(why) => Err(why),
            Ok(draft) => self.put_amended_into_service(draft, &touched, began)?,
        };
        match &result {
            Ok(report) => {
                let by = asked.change.is_some().then_some(asked.who.user.as_str());
                self.telling.overrides(&touched, &self.agent, by);
                self.telling.figures.generation("override", began.elapsed());
                for changed in &report.changed {
                    let (target, user) = (&changed.target, &asked.who.user);
                    log::info!("{target}: {} -> {} by {user}", changed.before, changed.after);
                }
                self.note(entry(&asked, &touched, report));
            }
            Err(why) if asked.change.is_none() => {
                self.ends_again = Some(Instant::now() + AGAIN);
                log::error!("overrides whose time is over cannot end: {why}");
            }
            Err(why) => log::warn!("change by {} refused, what runs goes on: {why}", asked.who.user),
        }
        if let Some(reply) = asked.reply.take() {
            // The one who asked may be gone.
            let _ = reply.send(result);
        }
        Ok(())
    }

    /// On disk first: what was taken out of service must not come back with a restart.
    fn put_amended_into_service(
        &mut self,
        draft: Draft,
        touched: &[Override],
        began: Instant,
    ) -> anyhow::Result<Result<ChangeReport, String>> {
        let path = kept::path(&self.agent.settings().state_dir);
        let before = self.agent.overrides().clone();
        let old = std::sync::Arc::clone(&self.agent.snapshot().model);
        if let Err(error) = tokio::task::block_in_place(|| kept::write(&path, draft.overrides())) {
            return Ok(Err(format!("{} cannot be written: {error}", path.display())));
        }
        if let Err(why) = self.put_into_service(draft)? {
            if let Err(error) = tokio::task::block_in_place(|| kept::write(&path, &before)) {
                log::error!("{} cannot be put back: {error}", path.display());
            }
            return Ok(Err(why));
        }
        Ok(Ok(ChangeReport {
            generation: status::generation(self),
            changed: overrides::changed(&old, &self.agent.snapshot().model, touched),
            overrides: self.agent.overrides().list().len(),
            milliseconds: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        }))
    }

    /// Appends to the audit file. That it cannot be written stops nothing that an operator has to do.
    pub(super) fn note(&self, entry: Entry) {
        let path: PathBuf = audit::path(&self.agent.settings().state_dir);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = audit::append(&path, &entry) {
                log::error!("{} cannot be written: {error}; {entry:?}", path.display());
            }
        });
    }
}

fn entry(asked: &Asked, touched: &[Override], report: &ChangeReport) -> Entry {
    let (what, wanted) = match &asked.change {
        None => ("end", None),
        Some(Change::Add(wanted)) => ("override", Some(wanted)),
        Some(Change::Drain { wanted, .. }) => ("drain", Some(wanted)),
        Some(Change::Clear(_)) => ("clear", None),
    };
    let words: Vec<String> = match &asked.change {
        Some(Change::Drain { wanted, force }) => {
            let mut words = wanted.targets.clone();
            words.extend(force.then(|| String::from("--force")));
            words
        }
        Some(Change::Add(wanted)) => {
            let mut words = vec![wanted.setting.to_string()];
            words.extend(wanted.targets.iter().cloned());
            words
        }
        Some(Change::Clear(patterns)) => patterns.clone(),
        None => touched.iter().map(|held| format!("{} {}", held.target, held.setting)).collect(),
    };
    let now = unix_now();
    let until = wanted.and_then(|wanted| wanted.seconds);
    Entry {
        at: audit::written(now),
        who: asked.who.clone(),
        what,
        asked: words.join(" "),
        changed: report.changed.clone(),
        plan: None,
        until: until.map(|seconds| audit::written(now + Duration::from_secs(seconds))),
        reason: wanted.and_then(|wanted| wanted.reason.clone()),
        generation: report.generation,
    }
}

/// The overrides as they are.
pub(super) fn report(agent: &Agent, now: Duration) -> Vec<OverrideReport> {
    let one = |held: &Override| OverrideReport {
        held: held.clone(),
        age_seconds: now.as_secs().saturating_sub(held.since),
        left_seconds: held.until.map(|until| until.saturating_sub(now.as_secs())),
        rests: Overrides::rests(held, agent.base()),
    };
    agent.overrides().list().iter().map(one).collect()
}
