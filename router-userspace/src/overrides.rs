//! Overrides: what an operator changed while the agent runs. They are laid over the configuration, survive
//! reloads and restarts, and some end by themselves.
//!
//! Pure: `now` is given, nothing is read or written. [`kept`] keeps them on disk.

use std::fmt;
use std::time::Duration;

use router_common::model::{AdminStatus, EndpointId, Method, Model, ProfileId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::pattern;

pub mod kept;

#[cfg(test)]
mod tests;

/// Admin state in an override.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Takes part.
    Enabled,
    /// Takes no part.
    Disabled,
    /// Takes no part, but keeps its place; endpoints only.
    Stopped,
}

impl From<State> for AdminStatus {
    fn from(state: State) -> Self {
        match state {
            State::Enabled => Self::Enabled,
            State::Disabled => Self::Disabled,
            State::Stopped => Self::Stopped,
        }
    }
}

impl From<AdminStatus> for State {
    fn from(status: AdminStatus) -> Self {
        match status {
            AdminStatus::Enabled => Self::Enabled,
            AdminStatus::Disabled => Self::Disabled,
            AdminStatus::Stopped => Self::Stopped,
        }
    }
}

/// What is set to what. The names are the keys of the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Setting {
    /// `status` of an endpoint or a profile.
    Status(State),
    /// `weight` of an endpoint, 1..=1000.
    Weight(u16),
    /// `dial` of an endpoint, 0..=100 percent.
    Dial(u8),
}

impl Setting {
    /// The key.
    pub fn key(self) -> &'static str {
        match self {
            Self::Status(_) => "status",
            Self::Weight(_) => "weight",
            Self::Dial(_) => "dial",
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(State::Enabled) => f.write_str("status enabled"),
            Self::Status(State::Disabled) => f.write_str("status disabled"),
            Self::Status(State::Stopped) => f.write_str("status stopped"),
            Self::Weight(weight) => write!(f, "weight {weight}"),
            Self::Dial(dial) => write!(f, "dial {dial}"),
        }
    }
}

/// One override. Times are in seconds since the Unix epoch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Override {
    /// What it is on: `PROFILE`, or `PROFILE/ENDPOINT`.
    pub target: String,
    /// What is set.
    pub setting: Setting,
    /// When it began.
    pub since: u64,
    /// When it ends by itself.
    pub until: Option<u64>,
    /// Who made it.
    pub by: String,
    /// Why.
    pub reason: Option<String>,
    /// Whether it drains: it is counted down to when the endpoint is in nobody's cache any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub drain: bool,
}

/// All overrides of an agent, in the order in which they were made.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Overrides(Vec<Override>);

/// What is wanted: the same setting on everything that the patterns name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Wanted {
    /// Patterns of `PROFILE`, or of `PROFILE/ENDPOINT`; `*` and `?` do not reach over the `/`.
    pub targets: Vec<String>,
    /// What is set.
    pub setting: Setting,
    /// Seconds until it ends by itself.
    pub seconds: Option<u64>,
    /// Why.
    pub reason: Option<String>,
}

/// What an override changed, or its end: the setting before and after.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Changed {
    /// `PROFILE`, or `PROFILE/ENDPOINT`.
    pub target: String,
    /// What was in force.
    pub before: Setting,
    /// What is in force now.
    pub after: Setting,
}

/// A profile, or one of its endpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Profile(ProfileId),
    Endpoint(EndpointId),
}

/// Longest `reason`, characters: it is shown in one line.
const MAX_REASON: usize = 500;

impl Overrides {
    /// The overrides, oldest first.
    pub fn list(&self) -> &[Override] {
        &self.0
    }

    /// Adds what is wanted, made by `by` at `now` since the epoch. An older override of the same setting on
    /// the same target is replaced. All or nothing.
    ///
    /// # Errors
    /// A pattern that names nothing, a setting that the target does not have, a value out of range.
    pub fn add(&mut self, model: &Model, wanted: &Wanted, by: &str, now: Duration) -> Result<(), String> {
        self.put(model, wanted, by, now, false)
    }

    /// [`Self::add`] of what takes endpoints out of the answers, to be counted down.
    ///
    /// # Errors
    /// As there; and what is no endpoint to be disabled.
    pub fn drain(&mut self, model: &Model, wanted: &Wanted, by: &str, now: Duration) -> Result<(), String> {
        if wanted.setting != Setting::Status(State::Disabled) {
            return Err(String::from("to drain is to set the status disabled"));
        }
        if let Some(odd) = wanted.targets.iter().find(|target| !target.contains('/')) {
            return Err(format!("{odd:?}: endpoints are drained: PROFILE/ENDPOINT"));
        }
        self.put(model, wanted, by, now, true)
    }

    fn put(
        &mut self,
        model: &Model,
        wanted: &Wanted,
        by: &str,
        now: Duration,
        drain: bool,
    ) -> Result<(), String> {
        check(wanted)?;
        let mut added: Vec<Override> = Vec::new();
        for pattern in &wanted.targets {
            let places = matching(model, pattern)?;
            for (target, place) in places {
                applicable(model, &target, place, wanted.setting)?;
                if added.iter().all(|held| held.target != target) {
                    added.push(Override {
                        target,
                        setting: wanted.setting,
                        since: now.as_secs(),
                        until: wanted.seconds.map(|seconds| now.as_secs().saturating_add(seconds)),
                        by: by.to_owned(),
                        reason: wanted.reason.clone(),
                        drain,
                    });
                }
            }
        }
        let key = wanted.setting.key();
        self.0.retain(|held| held.setting.key() != key || added.iter().all(|new| new.target != held.target));
        self.0.extend(added);
        Ok(())
    }

    /// Takes away those whose target fits one of the patterns; a profile's name stands for its endpoints too.
    ///
    /// # Errors
    /// A pattern that fits none.
    pub fn clear(&mut self, patterns: &[String]) -> Result<(), String> {
        for pattern in patterns {
            if !self.0.iter().any(|held| covers(pattern, &held.target)) {
                return Err(format!("{pattern:?}: there is no override on it"));
            }
        }
        self.0.retain(|held| !patterns.iter().any(|pattern| covers(pattern, &held.target)));
        Ok(())
    }

    /// Takes away those that have ended, and returns them.
    pub fn expire(&mut self, now: Duration) -> Vec<Override> {
        self.0.extract_if(.., |held| held.until.is_some_and(|until| until <= now.as_secs())).collect()
    }

    /// When the next one ends, since the epoch.
    pub fn next_end(&self) -> Option<Duration> {
        self.0.iter().filter_map(|held| held.until).min().map(Duration::from_secs)
    }

    /// What is being drained, oldest first.
    pub fn drains(&self) -> impl Iterator<Item = &Override> {
        self.0.iter().filter(|held| held.drain)
    }

    /// The configuration with the overrides laid over it. Overrides on what it does not have rest: another
    /// configuration may have it again.
    ///
    /// # Errors
    /// Together they make no sound configuration.
    pub fn over(&self, model: &Model) -> Result<Model, String> {
        let mut parts = model.parts().clone();
        for held in &self.0 {
            let Some(place) = place(model, &held.target) else { continue };
            if applicable(model, &held.target, place, held.setting).is_err() {
                continue;
            }
            match (place, held.setting) {
                (Place::Profile(id), Setting::Status(state)) => {
                    if let Some(profile) = parts.profiles.get_mut(id.0 as usize) {
                        profile.enabled = state == State::Enabled;
                    }
                }
                (Place::Endpoint(id), setting) => {
                    let profile = parts.profiles.get_mut(id.profile.0 as usize);
                    let endpoint = profile.and_then(|profile| profile.endpoints.get_mut(id.index as usize));
                    let Some(endpoint) = endpoint else { continue };
                    match setting {
                        Setting::Status(state) => endpoint.status = state.into(),
                        Setting::Weight(weight) => endpoint.weight = weight,
                        Setting::Dial(dial) => endpoint.dial = dial,
                    }
                }
                (Place::Profile(_), Setting::Weight(_) | Setting::Dial(_)) => {}
            }
        }
        Model::new(parts).map_err(|faults| {
            let lines: Vec<String> = faults.into_iter().map(|fault| fault.message).collect();
            lines.join("\n")
        })
    }

    /// Whether an override rests because its target is not there, or has no such setting.
    pub fn rests(held: &Override, model: &Model) -> bool {
        place(model, &held.target)
            .is_none_or(|place| applicable(model, &held.target, place, held.setting).is_err())
    }
}

/// What differs between two models with the same profiles, where `targets` (an override's) can differ.
pub fn changed(before: &Model, after: &Model, touched: &[Override]) -> Vec<Changed> {
    let mut changed: Vec<Changed> = Vec::new();
    for held in touched {
        let settings = place(before, &held.target).zip(place(after, &held.target));
        let Some((old, new)) = settings else { continue };
        let (Some(old), Some(new)) = (setting(before, old, held.setting), setting(after, new, held.setting))
        else {
            continue;
        };
        let one = Changed { target: held.target.clone(), before: old, after: new };
        if old != new && !changed.contains(&one) {
            changed.push(one);
        }
    }
    changed
}

/// The setting of the same key that is in force at a place.
fn setting(model: &Model, place: Place, like: Setting) -> Option<Setting> {
    Some(match (place, like) {
        (Place::Profile(id), Setting::Status(_)) => {
            Setting::Status(if model.profile(id).enabled { State::Enabled } else { State::Disabled })
        }
        (Place::Endpoint(id), Setting::Status(_)) => Setting::Status(model.endpoint(id).status.into()),
        (Place::Endpoint(id), Setting::Weight(_)) => Setting::Weight(model.endpoint(id).weight),
        (Place::Endpoint(id), Setting::Dial(_)) => Setting::Dial(model.endpoint(id).dial),
        (Place::Profile(_), _) => return None,
    })
}

fn check(wanted: &Wanted) -> Result<(), String> {
    match wanted.setting {
        Setting::Weight(weight @ (0 | 1001..)) => {
            return Err(format!("weight: found {weight}; allowed is 1 to 1000"));
        }
        Setting::Dial(dial @ 101..) => return Err(format!("dial: found {dial}; allowed is 0 to 100")),
        _ => {}
    }
    if wanted.seconds == Some(0) {
        return Err("an override of no time at all; allowed is 1 s and more".into());
    }
    if let Some(reason) = &wanted.reason
        && (reason.chars().count() > MAX_REASON || reason.chars().any(char::is_control))
    {
        return Err(format!("reason: allowed is one line of at most {MAX_REASON} characters"));
    }
    if wanted.targets.is_empty() { Err("nothing is named".into()) } else { Ok(()) }
}

/// Whether the setting means anything at the place.
fn applicable(model: &Model, target: &str, place: Place, setting: Setting) -> Result<(), String> {
    let method = match place {
        Place::Profile(_) => {
            return match setting {
                Setting::Status(State::Enabled | State::Disabled) => Ok(()),
                _ => Err(format!("{target} is a profile: it can be enabled and disabled")),
            };
        }
        Place::Endpoint(id) => model.profile(id.profile).method,
    };
    let used = match setting {
        Setting::Status(_) => true,
        Setting::Weight(_) => matches!(method, Method::Weighted | Method::Fastest { .. }),
        Setting::Dial(_) => {
            matches!(method, Method::Priority | Method::Performance | Method::Fastest { .. })
        }
    };
    if used {
        return Ok(());
    }
    Err(format!("{target}: {} is not used by the method {:?}", setting.key(), method.as_str()))
}

/// Everything that a pattern names.
fn matching(model: &Model, pattern: &str) -> Result<Vec<(String, Place)>, String> {
    let fits = |pattern: &str, name: &str| pattern::matches(pattern.as_bytes(), name.as_bytes());
    let mut found = Vec::new();
    let (of_profile, of_endpoint) = match pattern.split_once('/') {
        Some((profile, endpoint)) => (profile, Some(endpoint)),
        None => (pattern, None),
    };
    for (i, profile) in (0u32..).zip(model.profiles()).filter(|(_, profile)| fits(of_profile, &profile.name))
    {
        let id = ProfileId(i);
        let Some(of_endpoint) = of_endpoint else {
            found.push((profile.name.clone(), Place::Profile(id)));
            continue;
        };
        for (index, endpoint) in (0u32..).zip(&profile.endpoints) {
            if fits(of_endpoint, &endpoint.name) {
                let place = Place::Endpoint(EndpointId { profile: id, index });
                found.push((format!("{}/{}", profile.name, endpoint.name), place));
            }
        }
    }
    if found.is_empty() {
        let kind = if of_endpoint.is_some() { "endpoint" } else { "profile" };
        return Err(format!("{pattern:?} names no {kind}; `xroute status` lists them"));
    }
    Ok(found)
}

/// The endpoint that a target names.
pub fn endpoint_named(model: &Model, target: &str) -> Option<EndpointId> {
    match place(model, target)? {
        Place::Endpoint(id) => Some(id),
        Place::Profile(_) => None,
    }
}

fn place(model: &Model, target: &str) -> Option<Place> {
    let Some((profile, endpoint)) = target.split_once('/') else {
        return model.profile_named(target).map(Place::Profile);
    };
    let id = model.profile_named(profile)?;
    let index = model.profile(id).endpoints.iter().position(|found| found.name == endpoint)?;
    Some(Place::Endpoint(EndpointId { profile: id, index: index as u32 }))
}

/// Whether a pattern fits a target, or the profile that a target is in.
pub fn covers(pattern: &str, target: &str) -> bool {
    let fits = |pattern: &str, name: &str| pattern::matches(pattern.as_bytes(), name.as_bytes());
    let (profile, endpoint) = match target.split_once('/') {
        Some((profile, endpoint)) => (profile, Some(endpoint)),
        None => (target, None),
    };
    match (pattern.split_once('/'), endpoint) {
        (Some((of_profile, of_endpoint)), Some(endpoint)) => {
            fits(of_profile, profile) && fits(of_endpoint, endpoint)
        }
        (Some(_), None) => false,
        (None, _) => fits(pattern, profile),
    }
}
