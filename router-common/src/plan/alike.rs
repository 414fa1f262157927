//! Which profiles decide alike in both worlds, without asking: nothing of theirs, of what they nest, and of what is
//! known of endpoints and clients differs.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::decide::Snapshot;
use crate::model::{AllDown, Endpoint, EndpointId, Method, Model, Profile, ProfileId, Target};

/// Deepest nesting followed.
const MAX_DEPTH: u8 = 16;

/// See the module.
pub(super) struct Alike<'s> {
    before: &'s Snapshot,
    after: &'s Snapshot,
    /// Whether what is known of clients is the same.
    sources: bool,
    known: HashMap<(ProfileId, ProfileId), bool, FixedState>,
}

impl<'s> Alike<'s> {
    pub fn new(before: &'s Snapshot, after: &'s Snapshot, same_sources: bool) -> Self {
        let sources = same_sources && before.model.regions() == after.model.regions();
        Self { before, after, sources, known: HashMap::default() }
    }

    /// Whether every client gets the same from both.
    pub fn profiles(&mut self, one: ProfileId, other: ProfileId) -> bool {
        self.sources && self.compare(one, other, 0)
    }

    fn compare(&mut self, one: ProfileId, other: ProfileId, depth: u8) -> bool {
        if let Some(&known) = self.known.get(&(one, other)) {
            return known;
        }
        let (old, new) = (self.before.model.profile(one), self.after.model.profile(other));
        let same = depth <= MAX_DEPTH
            && settings(old) == settings(new)
            && old.endpoints.len() == new.endpoints.len()
            && (0..).zip(old.endpoints.iter().zip(&new.endpoints)).all(|(index, (old, new))| {
                plain(old) == plain(new)
                    && self.health(EndpointId { profile: one, index }, EndpointId { profile: other, index })
                    && match (&old.target, &new.target) {
                        (&Target::Profile(one), &Target::Profile(other)) => {
                            self.compare(one, other, depth + 1)
                        }
                        (one, other) => one == other,
                    }
            });
        self.known.insert((one, other), same);
        same
    }

    fn health(&self, one: EndpointId, other: EndpointId) -> bool {
        let (old, new) = (&self.before.health, &self.after.health);
        old.health(one) == new.health(other) && old.latency.get(&one) == new.latency.get(&other)
    }
}

/// What decides of a profile itself. Its name salts the hashes of its clients.
fn settings(profile: &Profile) -> (&str, Method, bool, AllDown) {
    (&profile.name, profile.method, profile.enabled, profile.all_down)
}

/// What decides of an endpoint, besides health and target.
fn plain(endpoint: &Endpoint) -> impl PartialEq + '_ {
    (
        (&endpoint.name, endpoint.status, endpoint.always_serve, endpoint.monitor.is_some()),
        (endpoint.priority, endpoint.weight, endpoint.dial, endpoint.min_children),
        (&endpoint.region, &endpoint.geo, &endpoint.subnets),
    )
}

/// Profiles by name.
pub(super) fn by_name(model: &Model) -> HashMap<&str, ProfileId> {
    (0..).map(ProfileId).zip(model.profiles()).map(|(id, profile)| (profile.name.as_str(), id)).collect()
}
