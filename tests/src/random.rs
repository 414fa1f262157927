//! Random configurations, states and queries, each world from one seed: what the differential run asks.
//!
//! Everything is drawn from few values that are close to one another, so that prefixes nest and touch,
//! answers coincide and ties are common.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use ipnet::IpNet;
use router_common::model::{EndpointId, Model, Parts, Profile, ProfileId};
use router_common::name::Name;
use router_common::view::{Geography, Health, HealthView, Latency};

mod clients;
mod prefixes;
mod profiles;
mod sources;

pub use clients::{Edns, Tuple};
pub use prefixes::Prefixes;

/// SplitMix64 (Steele, Lea, Flood 2014): small, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 uniform bits.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 0..count.
    pub fn below(&mut self, count: usize) -> usize {
        ((u128::from(self.draw()) * count as u128) >> 64) as usize
    }

    /// True one time in `count`.
    pub fn once_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// One of a list, which is not empty.
    pub fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

/// A configuration with its sources.
pub struct World {
    /// What it is made from.
    pub seed: u64,
    /// The configuration.
    pub model: Model,
    /// Geography.
    pub geography: Geography,
    /// Latency.
    pub latency: Latency,
    /// Names to ask for: bound ones first.
    names: Vec<Name>,
    bound: usize,
    prefixes: Prefixes,
    rng: Rng,
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for profile in self.model.profiles() {
            writeln!(f, "{profile:#?}")?;
        }
        writeln!(f, "{:?}", self.model.regions())?;
        writeln!(f, "{:?}", self.geography)?;
        write!(f, "{:?}", self.latency)
    }
}

impl World {
    /// The world of a seed; the same seed gives the same world, states and tuples.
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let prefixes = Prefixes::new(&mut rng);
        let profiles = profiles::profiles(&mut rng, &prefixes);
        let zones = sources::zones(&mut rng);
        let regions = sources::regions(&mut rng);
        let parts = Parts { zones, profiles, regions };
        let names = names(&mut rng, &parts);
        let bound = parts.profiles.iter().filter(|profile| profile.enabled).map(|it| it.names.len()).sum();
        let model = Model::new(parts).unwrap_or_else(|faults| panic!("seed {seed:#x}: {faults:#?}"));
        let geography = sources::geography(&mut rng, &prefixes);
        let latency = sources::latency(&mut rng, &prefixes);
        Self { seed, model, geography, latency, names, bound, prefixes, rng }
    }

    /// The next state of health.
    pub fn health(&mut self) -> HealthView {
        let mut health = HealthView::default();
        let mood = self.rng.below(4);
        for (id, profile) in (0..).map(ProfileId).zip(self.model.profiles()) {
            let all_down = self.rng.once_in(6);
            for endpoint in endpoints(id, profile) {
                let verdict = match (all_down, mood) {
                    (true, _) => Health::Unhealthy,
                    (_, 0) => Health::Healthy,
                    (_, 1) => self.rng.of(&[Health::Healthy, Health::Healthy, Health::Unhealthy]),
                    _ => self.rng.of(&[Health::Healthy, Health::Unhealthy, Health::Checking]),
                };
                health.verdicts.insert(endpoint, verdict);
                if !self.rng.once_in(3) {
                    let latency = Duration::from_millis(self.rng.below(6) as u64 * 10);
                    health.latency.insert(endpoint, latency);
                }
            }
        }
        health
    }

    /// The next tuple.
    pub fn tuple(&mut self) -> Tuple {
        clients::tuple(&mut self.rng, &self.names, self.bound, &self.prefixes)
    }
}

/// Endpoints that differ between two states.
pub fn changed(before: &HealthView, after: &HealthView) -> Vec<EndpointId> {
    let differs = |id: &EndpointId| {
        before.health(*id) != after.health(*id) || before.latency.get(id) != after.latency.get(id)
    };
    let all: HashMap<EndpointId, ()> = [&before.verdicts, &after.verdicts]
        .into_iter()
        .flat_map(|verdicts| verdicts.keys().map(|&id| (id, ())))
        .collect();
    let mut ids: Vec<EndpointId> = all.into_keys().filter(differs).collect();
    ids.sort_unstable();
    ids
}

fn endpoints(id: ProfileId, profile: &Profile) -> impl Iterator<Item = EndpointId> {
    (0..profile.endpoints.len() as u32).map(move |index| EndpointId { profile: id, index })
}

/// Names of enabled profiles, then others that exist, that a wildcard covers, and that do not exist.
fn names(rng: &mut Rng, parts: &Parts) -> Vec<Name> {
    let mut names: Vec<Name> = parts
        .profiles
        .iter()
        .filter(|profile| profile.enabled)
        .flat_map(|profile| profile.names.iter().cloned())
        .collect();
    let others = [
        "x.test",
        "static.x.test",
        "below.ent.x.test",
        "ent.x.test",
        "absent.x.test",
        "covered.w.x.test",
        "deep.covered.w.x.test",
        "1.2.3.4.5.6.7.covered.w.x.test",
        "sub.w.x.test",
        "other.sub.w.x.test",
        "below.*.w.x.test",
        "covered.y.test",
        "y.test",
        "in.x.test",
        "elsewhere.example",
        "test",
    ];
    names.extend(others.iter().map(|text| name(text)));
    if rng.once_in(4) {
        // More labels than the fast path takes off.
        names.push(name("1.2.3.4.5.6.7.8.9.10.w.x.test"));
    }
    names.extend(
        parts.profiles.iter().filter(|it| !it.enabled).flat_map(|profile| profile.names.iter().cloned()),
    );
    names
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn net(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}
