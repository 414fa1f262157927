//! Which statuses changed, as events: what is seen is compared with what was seen last.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use router_common::decide::Snapshot;
use router_common::model::{EndpointId, Model, ProfileId};
use router_common::status::{EndpointStatus, ProfileStatus, Statuses};
use router_common::view::Health;

use super::Event;

/// What was seen last of every profile and endpoint.
pub struct Seen {
    model: Arc<Model>,
    /// By position in `model`.
    profiles: Vec<SeenProfile>,
}

#[derive(Clone, PartialEq, Eq)]
struct SeenProfile {
    status: ProfileStatus,
    serving_all: bool,
    endpoints: Vec<SeenEndpoint>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct SeenEndpoint {
    status: EndpointStatus,
    health: Health,
}

/// Says why an endpoint is unhealthy.
pub type Why<'w> = &'w dyn Fn(EndpointId) -> Option<String>;

impl Seen {
    /// Everything as it is now; nothing changed.
    pub fn new(snapshot: &Snapshot) -> Self {
        Self { model: Arc::clone(&snapshot.model), profiles: all(snapshot) }
    }

    /// What changed since the last time: verdicts first, then endpoints, then profiles. `touched` are the
    /// endpoints whose health is another; with another model everything is looked at, by name.
    pub fn follow(&mut self, snapshot: &Snapshot, touched: &[EndpointId], why: Why<'_>) -> Vec<Event> {
        let mut changes = Changes::default();
        if Arc::ptr_eq(&self.model, &snapshot.model) {
            self.look_again(snapshot, touched, why, &mut changes);
        } else {
            self.go_over(snapshot, why, &mut changes);
        }
        let Changes { mut verdicts, endpoints, profiles } = changes;
        verdicts.extend(endpoints);
        verdicts.extend(profiles);
        verdicts
    }

    /// Looks at the profiles that can see these endpoints.
    fn look_again(&mut self, snapshot: &Snapshot, touched: &[EndpointId], why: Why<'_>, to: &mut Changes) {
        let model = &snapshot.model;
        let statuses = Statuses::new(model, &snapshot.health);
        for id in seeing(model, touched) {
            let (Some(before), Some(profile)) =
                (self.profiles.get_mut(id.0 as usize), model.profiles().get(id.0 as usize))
            else {
                continue;
            };
            let now = one(snapshot, &statuses, id);
            for (index, (old, new)) in (0u32..).zip(before.endpoints.iter().zip(&now.endpoints)) {
                let Some(endpoint) = profile.endpoints.get(index as usize) else { continue };
                let at = EndpointId { profile: id, index };
                to.endpoint(&profile.name, &endpoint.name, at, Some(old), Some(new), why);
            }
            to.profile(&profile.name, Some(before), Some(&now));
            *before = now;
        }
    }

    /// Goes over to another model.
    fn go_over(&mut self, snapshot: &Snapshot, why: Why<'_>, to: &mut Changes) {
        let now = all(snapshot);
        let mut before: HashMap<&str, usize> =
            self.model.profiles().iter().enumerate().map(|(i, profile)| (&*profile.name, i)).collect();
        for ((i, profile), seen) in (0u32..).zip(snapshot.model.profiles()).zip(&now) {
            let old_at = before.remove(profile.name.as_str());
            let old = old_at.and_then(|at| self.model.profiles().get(at).zip(self.profiles.get(at)));
            let mut gone: HashMap<&str, &SeenEndpoint> = HashMap::new();
            if let Some((old, seen)) = old {
                gone = old.endpoints.iter().map(|endpoint| &*endpoint.name).zip(&seen.endpoints).collect();
            }
            for ((index, endpoint), seen) in (0u32..).zip(&profile.endpoints).zip(&seen.endpoints) {
                let at = EndpointId { profile: ProfileId(i), index };
                let old = gone.remove(endpoint.name.as_str());
                to.endpoint(&profile.name, &endpoint.name, at, old, Some(seen), why);
            }
            let mut gone: Vec<(&str, &SeenEndpoint)> = gone.into_iter().collect();
            gone.sort_unstable_by_key(|(name, _)| *name);
            for (name, old) in gone {
                let nowhere = EndpointId { profile: ProfileId(i), index: u32::MAX };
                to.endpoint(&profile.name, name, nowhere, Some(old), None, why);
            }
            to.profile(&profile.name, old.map(|(_, seen)| seen), Some(seen));
        }
        let mut gone: Vec<(&str, usize)> = before.into_iter().collect();
        gone.sort_unstable();
        for (name, at) in gone {
            to.profile(name, self.profiles.get(at), None);
        }
        self.model = Arc::clone(&snapshot.model);
        self.profiles = now;
    }
}

/// Profiles that can see a change of these endpoints: their own, and those that nest these, at any depth.
fn seeing(model: &Model, touched: &[EndpointId]) -> BTreeSet<ProfileId> {
    let mut profiles = BTreeSet::new();
    let mut next: Vec<ProfileId> = touched.iter().map(|endpoint| endpoint.profile).collect();
    next.retain(|profile| (profile.0 as usize) < model.profiles().len());
    while let Some(profile) = next.pop() {
        if profiles.insert(profile) {
            next.extend(model.parents(profile).iter().map(|parent| parent.profile));
        }
    }
    profiles
}

fn all(snapshot: &Snapshot) -> Vec<SeenProfile> {
    let statuses = Statuses::new(&snapshot.model, &snapshot.health);
    let count = u32::try_from(snapshot.model.profiles().len()).unwrap_or(u32::MAX);
    (0..count).map(|i| one(snapshot, &statuses, ProfileId(i))).collect()
}

fn one(snapshot: &Snapshot, statuses: &Statuses<'_>, id: ProfileId) -> SeenProfile {
    let endpoint = |index| {
        let id = EndpointId { profile: id, index };
        SeenEndpoint { status: statuses.endpoint(id), health: snapshot.health.health(id) }
    };
    let count = u32::try_from(snapshot.model.profile(id).endpoints.len()).unwrap_or(u32::MAX);
    SeenProfile {
        status: statuses.profile(id),
        serving_all: statuses.serving_all(id),
        endpoints: (0..count).map(endpoint).collect(),
    }
}

#[derive(Default)]
struct Changes {
    verdicts: Vec<Event>,
    endpoints: Vec<Event>,
    profiles: Vec<Event>,
}

impl Changes {
    fn endpoint(
        &mut self,
        profile: &str,
        endpoint: &str,
        at: EndpointId,
        old: Option<&SeenEndpoint>,
        new: Option<&SeenEndpoint>,
        why: Why<'_>,
    ) {
        if let (Some(old), Some(new)) = (old, new)
            && old.health != new.health
        {
            self.verdicts.push(Event::Verdict {
                profile: profile.to_owned(),
                endpoint: endpoint.to_owned(),
                from: word(old.health).to_owned(),
                to: word(new.health).to_owned(),
                reason: why(at).filter(|_| new.health == Health::Unhealthy),
            });
        }
        let (from, to) = (old.map(|seen| seen.status), new.map(|seen| seen.status));
        if from != to {
            self.endpoints.push(Event::Endpoint {
                profile: profile.to_owned(),
                endpoint: endpoint.to_owned(),
                from: from.map(|status| status.to_string()),
                to: to.map(|status| status.to_string()),
            });
        }
    }

    fn profile(&mut self, profile: &str, old: Option<&SeenProfile>, new: Option<&SeenProfile>) {
        let what = |seen: Option<&SeenProfile>| seen.map(|seen| (seen.status, seen.serving_all));
        if what(old) != what(new) {
            self.profiles.push(Event::Profile {
                profile: profile.to_owned(),
                from: old.map(|seen| seen.status.to_string()),
                to: new.map(|seen| seen.status.to_string()),
                serving_all: new.is_some_and(|seen| seen.serving_all),
            });
        }
    }
}

/// A verdict as the log and the events call it.
pub(crate) fn word(health: Health) -> &'static str {
    match health {
        Health::Checking => "checking",
        Health::Healthy => "online",
        Health::Unhealthy => "degraded",
    }
}
