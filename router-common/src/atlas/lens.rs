//! What each profile can tell apart, worked out once per distinct way of looking (a *lens*), not per
//! profile.
//!
//! A lens says which facts can lead to different decisions under some health, and no more: a
//! geographic profile sees the endpoint it maps a client to and, beyond it, only what that endpoint's
//! nested profile sees.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use crate::decide::nearest_first;
use crate::model::{AllDown, EndpointId, GeoCode, Method, Model, Profile, ProfileId, Target};
use crate::status::{EndpointStatus, Statuses};
use crate::view::HealthView;

use super::overlay::Needs;
use super::{Location, Partition};

/// Number of a lens; 0 sees nothing.
type LensId = u32;
const BLIND: LensId = 0;

/// What a client that belongs to an endpoint leads to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Pin {
    /// NODATA for certain.
    Nodata,
    /// The endpoint at this position, seen through its lens.
    Endpoint(u32, LensId),
}

/// A way of looking at clients.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Lens {
    /// Sees nothing.
    Blind,
    /// Sees what all of these see.
    All(Vec<LensId>),
    /// Belongs to an endpoint by subnets, else by codes.
    Geographic { map: Option<u32>, codes: u32, pins: Vec<(u32, Pin)> },
    /// Belongs to an endpoint by subnets, else to the rest.
    Subnet { map: Option<u32>, rest: Pin, pins: Vec<(u32, Pin)>, fallback: LensId },
    /// Subnets override an order by nearness; what is below matters with any endpoint.
    Ordered { map: Option<u32>, order: Option<u32>, below: Vec<LensId> },
}

/// Lenses of a model applied to its facts.
#[derive(Clone, Debug)]
pub(super) struct Lenses {
    /// Location of each facts.
    pub location_of: Vec<u32>,
    /// Facts that stand for each location.
    pub representatives: Vec<u32>,
    of_profile: Vec<LensId>,
    looks: Vec<bool>,
    partitions: HashMap<LensId, Partition>,
}

impl Lenses {
    /// `facts` as the overlay found them; number 0 is location 0.
    pub fn build(model: &Model, needs: &Needs, facts: &[Location]) -> Self {
        let mut grinder = Grinder::new(model, needs);
        let of_profile: Vec<LensId> =
            (0..model.profiles().len() as u32).map(|id| grinder.lens(ProfileId(id))).collect();

        // First what the lenses are made of, over all facts; then the lenses over these few classes.
        let mut classes = Classes::new(facts.len());
        for codes in &grinder.codes {
            let mut known = HashMap::new();
            classes.refine(|at| {
                facts
                    .get(at)
                    .map_or(0, |each| *known.entry(each.codes).or_insert_with(|| mapped(codes, each)))
            });
        }
        for map in 0..needs.maps.iter().flatten().max().map_or(0, |&last| last + 1) {
            classes.refine(|at| facts.get(at).and_then(|each| each.member(map)).map_or(0, |index| index + 1));
        }
        for order in &grinder.orders {
            // Rows of the latency table are kept once, so where one is tells which it is.
            let mut known = HashMap::new();
            let mut ids: HashMap<Vec<u32>, u32> = HashMap::new();
            classes.refine(|at| {
                let Some(each) = facts.get(at) else { return 0 };
                let place =
                    each.coordinates.map(|place| (place.latitude.to_bits(), place.longitude.to_bits()));
                *known.entry((each.latency.as_ptr(), place)).or_insert_with(|| {
                    let next = ids.len() as u32;
                    *ids.entry(ordered(order, needs, each)).or_insert(next)
                })
            });
        }
        let representatives: Vec<&Location> =
            classes.representatives.iter().filter_map(|&at| facts.get(at as usize)).collect();
        let views = grinder.views(needs, &representatives);
        let looks: Vec<bool> = views
            .iter()
            .zip(&grinder.hashes)
            .map(|(view, &hashes)| hashes || view.iter().any(|&region| region != 0))
            .collect();

        // Only profiles that can be asked for divide the locations.
        let mut roots: Vec<LensId> = (0..)
            .map(ProfileId)
            .zip(model.profiles())
            .filter(|(id, profile)| {
                profile.enabled && (!profile.names.is_empty() || model.parents(*id).is_empty())
            })
            .filter_map(|(id, _)| of_profile.get(id.0 as usize).copied())
            .filter(|&lens| looks.get(lens as usize).copied().unwrap_or(false))
            .collect();
        roots.sort_unstable();
        roots.dedup();
        let mut locations = Classes::new(representatives.len());
        for &lens in &roots {
            if let Some(view) = views.get(lens as usize) {
                locations.refine(|at| view.get(at).copied().unwrap_or(0));
            }
        }
        let mut shared: HashSet<Arc<[u16]>> = HashSet::new();
        let partitions = roots
            .iter()
            .filter_map(|&lens| {
                let view = views.get(lens as usize)?;
                let regions = locations
                    .representatives
                    .iter()
                    .map(|&class| view.get(class as usize).copied().unwrap_or(0));
                Some((lens, partition(regions, &mut shared)))
            })
            .collect();
        let location_of = classes
            .class_of
            .iter()
            .map(|&class| locations.class_of.get(class as usize).copied().unwrap_or(0))
            .collect();
        let representatives = locations
            .representatives
            .iter()
            .map(|&class| classes.representatives.get(class as usize).copied().unwrap_or(0))
            .collect();
        Self { location_of, representatives, of_profile, looks, partitions }
    }

    pub fn looks(&self, profile: ProfileId) -> bool {
        let lens = self.of_profile.get(profile.0 as usize);
        lens.and_then(|&lens| self.looks.get(lens as usize)).copied().unwrap_or(false)
    }

    pub fn partition(&self, profile: ProfileId) -> Partition {
        let lens = self.of_profile.get(profile.0 as usize);
        lens.and_then(|lens| self.partitions.get(lens)).cloned().unwrap_or(Partition::Trivial)
    }
}

/// Numbers regions as they come, so that equal divisions are equal, and keeps these once.
fn partition(regions: impl Iterator<Item = u32>, shared: &mut HashSet<Arc<[u16]>>) -> Partition {
    let mut numbers: HashMap<u32, u16> = HashMap::new();
    let mut of = Vec::new();
    let mut representatives = Vec::new();
    for (location, region) in (0u32..).zip(regions) {
        let number = match numbers.get(&region) {
            Some(&number) => number,
            None => {
                let Ok(next) = u16::try_from(numbers.len()) else { return Partition::TooMany };
                numbers.insert(region, next);
                representatives.push(location);
                next
            }
        };
        of.push(number);
    }
    let of: Arc<[u16]> = of.into();
    let of = match shared.get(&of) {
        Some(known) => known.clone(),
        None => {
            shared.insert(of.clone());
            of
        }
    };
    Partition::Regions { of, representatives }
}

/// A division that is made finer step by step. Classes are numbered by their first member.
struct Classes {
    class_of: Vec<u32>,
    representatives: Vec<u32>,
}

impl Classes {
    fn new(count: usize) -> Self {
        Self { class_of: vec![0; count], representatives: vec![0] }
    }

    fn refine(&mut self, mut value: impl FnMut(usize) -> u32) {
        let mut ids: HashMap<(u32, u32), u32> = HashMap::new();
        let mut representatives = Vec::new();
        for (at, class) in self.class_of.iter_mut().enumerate() {
            let next = ids.len() as u32;
            let id = *ids.entry((*class, value(at))).or_insert(next);
            if id == next {
                representatives.push(at as u32);
            }
            *class = id;
        }
        self.representatives = representatives;
    }
}

/// Endpoint (position plus one) that codes lead to; 0 is none.
fn mapped(codes: &BTreeMap<GeoCode, u32>, facts: &Location) -> u32 {
    facts.codes().find_map(|code| codes.get(&code)).map_or(0, |&index| index + 1)
}

/// Endpoints from near to far.
fn ordered(order: &[(u32, Option<u16>)], needs: &Needs, facts: &Location) -> Vec<u32> {
    let region = |index: u32| {
        order.binary_search_by_key(&index, |&(each, _)| each).ok().and_then(|at| order.get(at)?.1)
    };
    nearest_first(order.iter().map(|&(index, _)| index), |index| {
        let region = region(index);
        crate::decide::nearness(
            region.and_then(|region| facts.latency(region)),
            facts.coordinates,
            region.and_then(|region| needs.places.get(usize::from(region)).copied().flatten()),
        )
    })
}

/// Distinct values of a kind, kept in the order of their numbers.
fn intern<T: Hash + Eq + Clone>(ids: &mut HashMap<T, u32>, list: &mut Vec<T>, value: T) -> u32 {
    if let Some(&known) = ids.get(&value) {
        return known;
    }
    let id = list.len() as u32;
    ids.insert(value.clone(), id);
    list.push(value);
    id
}

/// Makes the lenses of profiles.
struct Grinder<'m> {
    model: &'m Model,
    needs: &'m Needs,
    statuses: Statuses<'m>,
    known: HashMap<ProfileId, LensId>,
    ids: HashMap<Lens, LensId>,
    lenses: Vec<Lens>,
    /// Whether a lens' profiles may hash clients.
    hashes: Vec<bool>,
    codes: Vec<BTreeMap<GeoCode, u32>>,
    code_ids: HashMap<BTreeMap<GeoCode, u32>, u32>,
    orders: Vec<Vec<(u32, Option<u16>)>>,
    order_ids: HashMap<Vec<(u32, Option<u16>)>, u32>,
}

/// Health plays no part in what a profile can tell apart.
static ANY_HEALTH: std::sync::LazyLock<HealthView> = std::sync::LazyLock::new(HealthView::default);

impl<'m> Grinder<'m> {
    fn new(model: &'m Model, needs: &'m Needs) -> Self {
        Self {
            model,
            needs,
            statuses: Statuses::new(model, &ANY_HEALTH),
            known: HashMap::new(),
            ids: HashMap::from([(Lens::Blind, BLIND)]),
            lenses: vec![Lens::Blind],
            hashes: vec![false],
            codes: Vec::new(),
            code_ids: HashMap::new(),
            orders: Vec::new(),
            order_ids: HashMap::new(),
        }
    }

    /// The lens of a profile and of all it nests.
    fn lens(&mut self, id: ProfileId) -> LensId {
        if let Some(&known) = self.known.get(&id) {
            return known;
        }
        // What comes back to itself (which cannot be loaded) adds nothing.
        self.known.insert(id, BLIND);
        let profile = self.model.profile(id);
        let lens = if profile.enabled { self.grind(id, profile) } else { BLIND };
        self.known.insert(id, lens);
        lens
    }

    fn grind(&mut self, id: ProfileId, profile: &Profile) -> LensId {
        let map = self.needs.maps.get(id.0 as usize).copied().flatten();
        match profile.method {
            Method::Geographic => {
                let mut codes = BTreeMap::new();
                let mut pins = Vec::new();
                for (index, endpoint) in self.matchable(id, profile) {
                    for &code in &endpoint.geo {
                        codes.entry(code).or_insert(index);
                    }
                    pins.push((index, self.pin(id, index)));
                }
                let codes = intern(&mut self.code_ids, &mut self.codes, codes);
                let hashes = self.any_hashes(pins.iter().map(|&(_, pin)| pin));
                self.add(Lens::Geographic { map, codes, pins }, hashes)
            }
            Method::Subnet => {
                let mut pins = Vec::new();
                let mut rest = Pin::Nodata;
                let mut has_rest = false;
                for (index, endpoint) in self.matchable(id, profile) {
                    let pin = self.pin(id, index);
                    if endpoint.subnets.is_empty() && !has_rest {
                        (rest, has_rest) = (pin, true);
                    }
                    pins.push((index, pin));
                }
                let fallback = match profile.all_down {
                    AllDown::Fallback(index) if (index as usize) < profile.endpoints.len() => {
                        match self.pin(id, index) {
                            Pin::Endpoint(_, lens) => lens,
                            Pin::Nodata => BLIND,
                        }
                    }
                    _ => BLIND,
                };
                let hashes =
                    self.any_hashes(pins.iter().map(|&(_, pin)| pin).chain([Pin::Endpoint(0, fallback)]));
                self.add(Lens::Subnet { map, rest, pins, fallback }, hashes)
            }
            Method::Performance => {
                let mut order = Vec::new();
                let mut regions: HashMap<Option<&str>, u32> = HashMap::new();
                for (index, endpoint) in (0u32..).zip(&profile.endpoints) {
                    if self.takes_part(id, index) {
                        let region = endpoint.region.as_deref();
                        *regions.entry(region).or_insert(0) += 1;
                        order.push((index, region.and_then(|name| self.needs.region_ids.get(name).copied())));
                    }
                }
                let below = self.below(id, profile);
                let hashes = regions.values().any(|&count| count > 1) || self.all_hash(&below);
                let order = intern(&mut self.order_ids, &mut self.orders, order);
                self.add(Lens::Ordered { map, order: Some(order), below }, hashes)
            }
            Method::Fastest { .. } if map.is_some() => {
                let below = self.below(id, profile);
                let hashes = self.all_hash(&below);
                self.add(Lens::Ordered { map, order: None, below }, hashes)
            }
            Method::Priority | Method::Weighted | Method::Fastest { .. } | Method::Multivalue { .. } => {
                match self.below(id, profile).as_slice() {
                    [] => BLIND,
                    [one] => *one,
                    several => {
                        let hashes = self.all_hash(several);
                        self.add(Lens::All(several.to_vec()), hashes)
                    }
                }
            }
        }
    }

    fn add(&mut self, lens: Lens, hashes: bool) -> LensId {
        let id = intern(&mut self.ids, &mut self.lenses, lens);
        match self.hashes.get_mut(id as usize) {
            Some(known) => *known |= hashes,
            None => self.hashes.push(hashes),
        }
        id
    }

    fn hashes(&self, lens: LensId) -> bool {
        self.hashes.get(lens as usize).copied().unwrap_or(false)
    }

    fn all_hash(&self, lenses: &[LensId]) -> bool {
        lenses.iter().any(|&lens| self.hashes(lens))
    }

    fn any_hashes(&self, mut pins: impl Iterator<Item = Pin>) -> bool {
        pins.any(|pin| match pin {
            Pin::Nodata => false,
            Pin::Endpoint(_, lens) => self.hashes(lens),
        })
    }

    fn takes_part(&self, profile: ProfileId, index: u32) -> bool {
        self.statuses.endpoint(EndpointId { profile, index }).takes_part()
    }

    /// Endpoints that methods which pin clients match.
    fn matchable(&self, id: ProfileId, profile: &'m Profile) -> Vec<(u32, &'m crate::model::Endpoint)> {
        let disabled = |index: u32| {
            self.statuses.endpoint(EndpointId { profile: id, index }) == EndpointStatus::Disabled
        };
        (0u32..).zip(&profile.endpoints).filter(|&(index, _)| !disabled(index)).collect()
    }

    fn pin(&mut self, profile: ProfileId, index: u32) -> Pin {
        if !self.takes_part(profile, index) {
            return Pin::Nodata;
        }
        let lens = match self.model.endpoint(EndpointId { profile, index }).target {
            Target::Profile(child) => self.lens(child),
            _ => BLIND,
        };
        Pin::Endpoint(index, lens)
    }

    /// Lenses below a profile, in order, each once.
    fn below(&mut self, id: ProfileId, profile: &Profile) -> Vec<LensId> {
        let mut lenses: Vec<LensId> = (0u32..)
            .zip(&profile.endpoints)
            .filter_map(|(index, endpoint)| match endpoint.target {
                Target::Profile(child) if self.takes_part(id, index) => Some(child),
                _ => None,
            })
            .collect::<Vec<_>>()
            .into_iter()
            .map(|child| self.lens(child))
            .filter(|&lens| lens != BLIND)
            .collect();
        lenses.sort_unstable();
        lenses.dedup();
        lenses
    }

    /// What each lens sees of each of some facts: numbers that differ where it sees a difference.
    fn views(&self, needs: &Needs, facts: &[&Location]) -> Vec<Vec<u32>> {
        let mut views: Vec<Vec<u32>> = Vec::with_capacity(self.lenses.len());
        // A lens comes after those it is made of.
        for lens in &self.lenses {
            let below = |lens: LensId, at: usize| {
                views.get(lens as usize).and_then(|view| view.get(at)).copied().unwrap_or(0)
            };
            let through = |pin: Option<&Pin>, at: usize| match pin {
                None | Some(Pin::Nodata) => [0, 0],
                Some(&Pin::Endpoint(index, lens)) => [index + 1, below(lens, at)],
            };
            let member = |map: &Option<u32>, at: usize| facts.get(at)?.member((*map)?);
            let find = |pins: &[(u32, Pin)], index: u32| {
                let at = pins.binary_search_by_key(&index, |&(each, _)| each).ok()?;
                pins.get(at).map(|(_, pin)| *pin)
            };
            let mut ids: HashMap<Vec<u32>, u32> = HashMap::new();
            let mut number = |seen: Vec<u32>| {
                let next = ids.len() as u32;
                *ids.entry(seen).or_insert(next)
            };
            let view = (0..facts.len())
                .map(|at| match lens {
                    Lens::Blind => 0,
                    Lens::All(lenses) => number(lenses.iter().map(|&lens| below(lens, at)).collect()),
                    Lens::Geographic { map, codes, pins } => {
                        let index = member(map, at).or_else(|| {
                            mapped(self.codes.get(*codes as usize)?, facts.get(at)?).checked_sub(1)
                        });
                        let pin = index.and_then(|index| find(pins, index));
                        number(through(pin.as_ref(), at).to_vec())
                    }
                    Lens::Subnet { map, rest, pins, fallback } => {
                        let pin = match member(map, at) {
                            Some(index) => find(pins, index),
                            None => Some(*rest),
                        };
                        let [index, inner] = through(pin.as_ref(), at);
                        // The fallback stands in for an endpoint that is there, only.
                        let stand_in = if index == 0 { 0 } else { below(*fallback, at) };
                        number(vec![index, inner, stand_in])
                    }
                    Lens::Ordered { map, order, below: lenses } => {
                        let mut seen = vec![member(map, at).map_or(0, |index| index + 1)];
                        seen.extend(lenses.iter().map(|&lens| below(lens, at)));
                        let order = order.and_then(|order| self.orders.get(order as usize));
                        if let (Some(order), Some(each)) = (order, facts.get(at)) {
                            seen.extend(ordered(order, needs, each));
                        }
                        number(seen)
                    }
                })
                .collect();
            views.push(view);
        }
        views
    }
}
