//! How the answers of names move between two worlds: every pair of decisions is compared once for each class of
//! clients that the two tell apart, and weighed by the class's addresses.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::alike::Alike;
use super::classes::{Class, Classes, Weight, universe};
use super::distance::Distance;
use super::names::{Answering, Side, Steering};
use super::world::{World, listed, region};
use super::{EndpointShares, Example, Options, Shares, Steered, Traffic};
use crate::decide::{Asked, Choice, Snapshot};
use crate::share::Share;

/// Examples kept of each kind for a pair of decisions.
const EXAMPLES: usize = 3;
/// What is asked, in the order of [`Shares`].
const TYPES: [Asked; 2] = [Asked::A, Asked::Aaaa];

/// Compares what is answered to every name that has addresses or an alias before and exists after.
pub(super) fn compare(before: &Snapshot, after: &Snapshot, options: &Options<'_>) -> Traffic {
    let Answering { steerings, gone, unmoved } = Answering::of(&before.model, &after.model);
    let mut alike = Alike::new(before, after, options.same_sources);
    let mut compared = None;
    let mut all = Share::ratio(unmoved, 1);
    let mut sums = [Shares::default(), Shares::default(), Shares::default()];
    let mut queries = Share::zero();
    let mut by_queries = Shares::default();
    let mut steered = Vec::new();
    for steering in &steerings {
        let weight = Share::ratio(steering.names.len() as u64, 1);
        let counted = counted(before, steering, options);
        all = all.add(&weight);
        queries = queries.add(&counted);
        if let (Side::Profile(old), Side::Profile(new)) = (steering.before, steering.after)
            && alike.profiles(old, new)
        {
            continue;
        }
        let compared = compared.get_or_insert_with(|| Compared::new(before, after));
        let one = compared.steering(steering);
        if one.clients.is_zero() && !one.unseen {
            continue;
        }
        for (sum, part) in sums.iter_mut().zip([&one.moved, &one.clients, &one.nodata]) {
            sum.add(part, &weight);
        }
        by_queries.add(&one.moved, &counted);
        steered.push(one);
    }
    let [moved, clients, nodata] = sums.map(|sum| sum.part_of(&all));
    steered.sort_by_cached_key(|one| (std::cmp::Reverse(one.moved.largest()), one.before.clone()));
    let moved_by_queries = (!queries.is_zero()).then(|| by_queries.part_of(&queries));
    Traffic { moved, moved_by_queries, clients, nodata, gone, steered }
}

/// The queries that were counted for the names of a pair of decisions.
fn counted(before: &Snapshot, steering: &Steering<'_>, options: &Options<'_>) -> Share {
    let (Some(queries), Side::Profile(profile)) = (options.queries, steering.before) else {
        return Share::zero();
    };
    let profile = before.model.profile(profile);
    let count = queries.get(&profile.name).copied().unwrap_or(0);
    Share::ratio(count, 1).mul(&Share::ratio(steering.names.len() as u64, profile.names.len() as u64))
}

/// Shares of addresses as counts, added up exactly at the end.
#[derive(Default)]
struct Mass(HashMap<Share, u128, FixedState>);

impl Mass {
    fn add(&mut self, share: &Share, weight: u128) {
        if weight == 0 || share.is_zero() {
            return;
        }
        match self.0.get_mut(share) {
            Some(sum) => *sum = sum.saturating_add(weight),
            None => drop(self.0.insert(share.clone(), weight)),
        }
    }

    fn part_of(&self, all: u128) -> Share {
        self.0.iter().map(|(share, &weight)| share.mul(&Share::of_counts(weight, all))).sum()
    }
}

/// A [`Mass`] for each type and family.
#[derive(Default)]
struct Masses([[Mass; 2]; 2]);

impl Masses {
    fn add(&mut self, asked: usize, share: &Share, weight: Weight) {
        if let Some(families) = self.0.get_mut(asked) {
            for (mass, weight) in families.iter_mut().zip(weight) {
                mass.add(share, weight);
            }
        }
    }

    fn shares(&self, [all4, all6]: Weight) -> Shares {
        let of = |[ipv4, ipv6]: &[Mass; 2]| [ipv4.part_of(all4), ipv6.part_of(all6)];
        let [a, aaaa] = &self.0;
        Shares { a: of(a), aaaa: of(aaaa) }
    }
}

/// A class of clients as an example, largest first.
type Kept = (u128, usize, usize, usize);

/// Both worlds laid over one another.
struct Compared<'s> {
    before: World<'s>,
    after: World<'s>,
    classes: Classes,
    universe: Weight,
}

impl<'s> Compared<'s> {
    fn new(before: &'s Snapshot, after: &'s Snapshot) -> Self {
        Self {
            before: World::new(before),
            after: World::new(after),
            classes: Classes::new(&before.atlas, &after.atlas),
            universe: universe(),
        }
    }

    fn steering(&mut self, steering: &Steering<'_>) -> Steered {
        let partitions = [self.before.partition(steering.before), self.after.partition(steering.after)];
        let [old, new] = &partitions;
        let classes = self.classes.of(old, new);
        let mut sides =
            [Decided::new(&self.before, steering.before), Decided::new(&self.after, steering.after)];
        let mut distances: HashMap<(u32, u32, usize), Distance, FixedState> = HashMap::default();
        let [mut moved, mut clients, mut nodata] = [Masses::default(), Masses::default(), Masses::default()];
        let (mut elsewhere, mut dark): (Vec<Kept>, Vec<Kept>) = (Vec::new(), Vec::new());
        let mut unseen = false;
        for (index, class) in classes.iter().enumerate() {
            let regions = [region(old, class.before), region(new, class.after)];
            for ((side, region), location) in sides.iter_mut().zip(regions).zip([class.before, class.after]) {
                side.weigh(region, location, class.weight);
            }
            let [one, other] = &mut sides;
            for (at, asked) in TYPES.into_iter().enumerate() {
                let distance = distances.entry((regions[0], regions[1], at)).or_insert_with(|| {
                    Distance::between(
                        &one.choice(regions[0], class.before, asked),
                        &other.choice(regions[1], class.after, asked),
                    )
                });
                if distance.moved.is_zero() {
                    continue;
                }
                moved.add(at, &distance.moved, class.weight);
                nodata.add(at, &distance.nodata, class.weight);
                clients.add(at, &Share::one(), class.weight);
                unseen |= class.weight == [0, 0];
                keep(&mut elsewhere, class, index, at);
                if !distance.nodata.is_zero() {
                    keep(&mut dark, class, index, at);
                }
            }
        }
        let [one, other] = &mut sides;
        let mut examples = |kept: Vec<Kept>| -> Vec<Example> {
            let example = |(_, index, family, at): Kept| {
                let class = classes.get(index)?;
                let asked = *TYPES.get(at)?;
                let before = one.choice(region(old, class.before), class.before, asked);
                let after = other.choice(region(new, class.after), class.after, asked);
                let prefix = class.example(family)?;
                let shown = (one.shown(&before), other.shown(&after));
                // The same endpoints with other addresses.
                let (before, after) = match shown.0 == shown.1 {
                    true => (one.world.records(&before), other.world.records(&after)),
                    false => shown,
                };
                Some(Example { prefix, asked, before, after })
            };
            kept.into_iter().filter_map(example).collect()
        };
        let (examples, nodata_examples) = (examples(elsewhere), examples(dark));
        let shares = |masses: &Masses| masses.shares(self.universe);
        let mut endpoints: BTreeMap<String, [Masses; 2]> = BTreeMap::new();
        one.endpoints(0, &mut endpoints);
        other.endpoints(1, &mut endpoints);
        let endpoints = endpoints
            .into_iter()
            .map(|(path, [before, after])| EndpointShares {
                path,
                before: shares(&before),
                after: shares(&after),
            })
            .filter(|endpoint| endpoint.before != endpoint.after)
            .collect();
        Steered {
            before: self.before.name(steering.before),
            after: self.after.name(steering.after),
            names: steering.names.iter().map(|&name| name.clone()).collect(),
            moved: shares(&moved),
            clients: shares(&clients),
            nodata: shares(&nodata),
            unseen,
            endpoints,
            examples,
            nodata_examples,
        }
    }
}

/// Keeps a class as an example for each of its families when it is among the largest.
fn keep(kept: &mut Vec<Kept>, class: &Class, index: usize, at: usize) {
    for family in [0, 1] {
        if let Some(size) = class.size(family) {
            kept.push((size, index, family, at));
        }
    }
    // Of equal ones the first: the order does not depend on chance.
    kept.sort_by_key(|&(weight, index, family, at)| (std::cmp::Reverse(weight), family, index, at));
    // One class is one example, whatever was asked.
    kept.dedup_by_key(|&mut (_, index, family, _)| (index, family));
    kept.truncate(EXAMPLES);
}

/// One side's decisions on one owner's queries.
struct Decided<'w, 's> {
    world: &'w World<'s>,
    side: Side<'s>,
    /// By region and type.
    choices: HashMap<(u32, Asked), Arc<Choice>, FixedState>,
    /// A location of each region, and the region's addresses.
    regions: HashMap<u32, (u32, Weight), FixedState>,
}

impl<'w, 's> Decided<'w, 's> {
    fn new(world: &'w World<'s>, side: Side<'s>) -> Self {
        Self { world, side, choices: HashMap::default(), regions: HashMap::default() }
    }

    fn choice(&mut self, region: u32, location: u32, asked: Asked) -> Arc<Choice> {
        let decide = || Arc::new(self.world.choose(self.side, asked, location));
        Arc::clone(self.choices.entry((region, asked)).or_insert_with(decide))
    }

    fn weigh(&mut self, region: u32, location: u32, weight: Weight) {
        let (_, sum) = self.regions.entry(region).or_insert((location, [0; 2]));
        for (sum, weight) in sum.iter_mut().zip(weight) {
            *sum = sum.saturating_add(weight);
        }
    }

    /// Adds each endpoint's share of the answers to the masses of this side.
    fn endpoints(&mut self, at: usize, masses: &mut BTreeMap<String, [Masses; 2]>) {
        let regions: Vec<(u32, u32, Weight)> =
            self.regions.iter().map(|(&region, &(location, weight))| (region, location, weight)).collect();
        for (region, location, weight) in regions {
            for (kind, asked) in TYPES.into_iter().enumerate() {
                let choice = self.choice(region, location, asked);
                for (path, share) in self.world.endpoints(self.side, &choice) {
                    if let Some(masses) = masses.entry(path).or_default().get_mut(at) {
                        masses.add(kind, &share, weight);
                    }
                }
            }
        }
    }

    fn shown(&self, choice: &Choice) -> String {
        listed(&self.world.endpoints(self.side, choice))
    }
}
