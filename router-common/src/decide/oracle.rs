//! One verdict per profile and location, by method; choices are verdicts put together along nesting.

use std::collections::HashSet;
use std::hash::Hash;
use std::time::Duration;

use foldhash::fast::FixedState;

use crate::atlas::Location;
use crate::model::{AllDown, Endpoint, EndpointId, GeoCode, Method, Profile, ProfileId, Target};
use crate::share::Share;
use crate::status::{EndpointStatus, Statuses};

use super::dial::{Walker, walk};
use super::nearest::{Nearness, nearest_first, nearness};
use super::why::Why;
use super::{Asked, Choice, Credits, Records, Snapshot};

/// Deepest nesting followed; the configuration allows 10 levels (ROUTING.md §2).
const MAX_DEPTH: usize = 16;

/// What one profile chooses among its own endpoints (positions).
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum What {
    /// Nothing of the asked type.
    Nodata,
    /// This one.
    One(u32),
    /// One of these at random.
    Shares(Vec<(Share, u32)>),
    /// One of these, evenly, by a hash of the client; two at least.
    Hashed(Vec<u32>),
    /// One of these sets of addresses, each equally often, and the endpoints that they are of.
    Sets(Vec<(Records, Vec<u32>)>),
}

/// What, and why.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Verdict {
    /// What is chosen.
    pub what: What,
    /// The reason.
    pub why: Why,
}

impl Verdict {
    fn nodata(why: Why) -> Self {
        Self { what: What::Nodata, why }
    }

    fn one(index: u32, why: Why) -> Self {
        Self { what: What::One(index), why }
    }

    fn shares(mut shares: Vec<(Share, u32)>, why: Why) -> Self {
        match shares.as_mut_slice() {
            [] => Self::nodata(why),
            [(_, index)] => Self::one(*index, why),
            _ => Self { what: What::Shares(shares), why },
        }
    }
}

/// An endpoint that takes part and can answer the asked type.
#[derive(Clone, Copy)]
struct Candidate {
    index: u32,
    up: bool,
}

/// Why a client belongs to an endpoint.
#[derive(Clone, Copy)]
enum Pin {
    Subnet,
    Code(GeoCode),
    Rest,
}

/// Which endpoints of a profile, with all that they nest, a choice can depend on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Depends {
    /// It stands whatever happens.
    Nothing,
    /// The one at this position.
    One(u32),
    /// All of them.
    Anything,
}

/// The oracle over one snapshot; statuses are worked out once for all its decisions.
pub(crate) struct Oracle<'s> {
    snapshot: &'s Snapshot,
    pub statuses: Statuses<'s>,
}

impl<'s> Oracle<'s> {
    pub fn new(snapshot: &'s Snapshot) -> Self {
        Self { snapshot, statuses: Statuses::new(&snapshot.model, &snapshot.health) }
    }

    /// See [`super::choose`].
    pub fn choose(&self, profile: ProfileId, asked: Asked, location: &Location) -> Choice {
        self.follow(profile, asked, location, u32::MAX, &mut Vec::new())
    }

    /// `path` holds the endpoints that led here.
    fn follow(
        &self,
        profile: ProfileId,
        asked: Asked,
        location: &Location,
        ttl: u32,
        path: &mut Vec<EndpointId>,
    ) -> Choice {
        if path.len() > MAX_DEPTH {
            return Choice::Nodata;
        }
        let ttl = ttl.min(self.snapshot.model.profile(profile).ttl);
        let mut serve = |index: u32| self.serve(EndpointId { profile, index }, asked, location, ttl, path);
        match self.verdict(profile, asked, location).what {
            What::Nodata => Choice::Nodata,
            What::One(index) => serve(index),
            What::Shares(shares) => {
                Choice::Random(shares.into_iter().map(|(share, index)| (share, serve(index))).collect())
            }
            What::Hashed(of) => {
                Choice::Hashed { salt: self.salt(profile), of: of.into_iter().map(serve).collect() }
            }
            What::Sets(sets) => {
                let each = Share::ratio(1, sets.len() as u64);
                let mut parts = sets.into_iter().map(|(records, of)| {
                    let of = of.into_iter().map(|index| EndpointId { profile, index });
                    let credits: Credits = path.iter().copied().chain(of).collect();
                    let endpoint = credits.last().copied().filter(|_| credits.len() == path.len() + 1);
                    Choice::Answer { endpoint, records, ttl, credits }
                });
                if each.is_one() {
                    return parts.next().unwrap_or(Choice::Nodata);
                }
                Choice::Random(parts.map(|part| (each.clone(), part)).collect())
            }
        }
    }

    fn serve(
        &self,
        id: EndpointId,
        asked: Asked,
        location: &Location,
        ttl: u32,
        path: &mut Vec<EndpointId>,
    ) -> Choice {
        let records = match &self.snapshot.model.endpoint(id).target {
            Target::Profile(child) => {
                path.push(id);
                let choice = self.follow(*child, asked, location, ttl, path);
                path.pop();
                return choice;
            }
            Target::Domain(name) => Some(Records::Cname(name.clone())),
            Target::Addresses { ipv4, ipv6 } => match asked {
                Asked::A => records_of(ipv4, Records::A),
                Asked::Aaaa => records_of(ipv6, Records::Aaaa),
                Asked::Cname => None,
                Asked::Any => records_of(ipv4, Records::A).or_else(|| records_of(ipv6, Records::Aaaa)),
            },
        };
        match records {
            Some(records) => {
                let credits = path.iter().copied().chain([id]).collect();
                Choice::Answer { endpoint: Some(id), records, ttl, credits }
            }
            None => Choice::Nodata,
        }
    }

    /// Salt of a profile's even share: 12 bits of FNV-1a over its name, so that profiles do not split
    /// clients alike, every node splits them alike, and a restart changes nothing.
    pub fn salt(&self, profile: ProfileId) -> u16 {
        let name = self.snapshot.model.profile(profile).name.as_bytes();
        let hash = name
            .iter()
            .fold(0x811c_9dc5u32, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        ((hash >> 20) ^ (hash & 0xfff)) as u16
    }

    /// What a profile chooses for a location, and why.
    pub fn verdict(&self, profile: ProfileId, asked: Asked, location: &Location) -> Verdict {
        let found = self.snapshot.model.profile(profile);
        if !found.enabled {
            return Verdict::nodata(Why::ProfileDisabled);
        }
        match found.method {
            Method::Geographic => self.geographic(profile, found, asked, location),
            Method::Subnet => self.subnet(profile, found, asked, location),
            _ => self.pooled(profile, found, asked, location),
        }
    }

    fn status(&self, profile: ProfileId, index: u32) -> EndpointStatus {
        self.statuses.endpoint(EndpointId { profile, index })
    }

    fn can_answer(&self, profile: ProfileId, index: u32, asked: Asked) -> bool {
        self.statuses.can_answer(EndpointId { profile, index }, asked)
    }

    /// Methods that choose among what is available.
    fn pooled(&self, id: ProfileId, profile: &Profile, asked: Asked, location: &Location) -> Verdict {
        let overrides = matches!(profile.method, Method::Performance | Method::Fastest { .. });
        let member = self.snapshot.atlas.member(id, location).filter(|_| overrides);
        if let Some(index) = member.filter(|&index| self.status(id, index).is_up()) {
            return if self.can_answer(id, index, asked) {
                Verdict::one(index, Why::Override)
            } else {
                Verdict::nodata(Why::OverrideUnable)
            };
        }
        let mut candidates: Vec<Candidate> = (0..profile.endpoints.len() as u32)
            .filter_map(|index| {
                let status = self.status(id, index);
                (status.takes_part() && self.can_answer(id, index, asked))
                    .then(|| Candidate { index, up: status.is_up() })
            })
            .collect();
        if candidates.is_empty() {
            return Verdict::nodata(Why::NoneCanAnswer);
        }
        if candidates.iter().any(|candidate| candidate.up) {
            return self.by_method(id, profile, asked, location, &candidates, false);
        }
        match profile.all_down {
            AllDown::Nodata => Verdict::nodata(Why::AllDownNodata),
            AllDown::Fallback(index) => self.fallback(id, index, asked),
            AllDown::ServeAll => {
                for candidate in &mut candidates {
                    candidate.up = true;
                }
                let pinned = member.filter(|&index| candidates.iter().any(|each| each.index == index));
                let Verdict { what, why } = match pinned {
                    Some(index) => Verdict::one(index, Why::Override),
                    None => self.by_method(id, profile, asked, location, &candidates, true),
                };
                Verdict { what, why: Why::ServingAll(Box::new(why)) }
            }
        }
    }

    fn fallback(&self, id: ProfileId, index: u32, asked: Asked) -> Verdict {
        let exists = (index as usize) < self.snapshot.model.profile(id).endpoints.len();
        if exists && self.status(id, index).takes_part() && self.can_answer(id, index, asked) {
            Verdict::one(index, Why::AllDownFallback)
        } else {
            Verdict::nodata(Why::FallbackUnusable)
        }
    }

    fn by_method(
        &self,
        id: ProfileId,
        profile: &Profile,
        asked: Asked,
        location: &Location,
        candidates: &[Candidate],
        all_down: bool,
    ) -> Verdict {
        match profile.method {
            Method::Priority => priority(profile, candidates),
            Method::Weighted => Verdict::shares(by_weight(profile, up(candidates)), Why::Weight),
            Method::Performance => self.performance(profile, location, candidates),
            Method::Fastest { sensitivity } => {
                self.fastest(id, profile, asked, candidates, sensitivity, all_down)
            }
            Method::Multivalue { max_return } => multivalue(profile, asked, candidates, max_return),
            // Decided by other functions: these pin a client to an endpoint.
            Method::Geographic | Method::Subnet => Verdict::nodata(Why::NoneCanAnswer),
        }
    }

    fn performance(&self, profile: &Profile, location: &Location, candidates: &[Candidate]) -> Verdict {
        let atlas = &self.snapshot.atlas;
        let region = |index: u32| profile.endpoints.get(index as usize).and_then(|e| e.region.as_deref());
        let near = |index: u32| {
            let id = region(index).and_then(|name| atlas.region_id(name));
            nearness(
                id.and_then(|id| location.latency(id)),
                location.coordinates,
                id.and_then(|id| atlas.region_place(id)),
            )
        };
        let order = nearest_first(candidates.iter().map(|candidate| candidate.index), near);
        if has_dial(profile, candidates) {
            let order = walkers(profile, candidates, &order);
            return Verdict::shares(walk(&order), Why::NearestDial(order));
        }
        let is_up = |index: &u32| candidates.iter().any(|each| each.index == *index && each.up);
        let Some(first) = order.iter().copied().find(is_up) else {
            return Verdict::nodata(Why::NoneCanAnswer);
        };
        let nearest = region(first);
        let mut alike: Vec<u32> = up(candidates).filter(|&index| region(index) == nearest).collect();
        alike.sort_unstable();
        let why = Why::Nearest { region: nearest.map(str::to_owned), nearness: near(first) };
        if alike.len() == 1 { Verdict::one(first, why) } else { Verdict { what: What::Hashed(alike), why } }
    }

    fn fastest(
        &self,
        id: ProfileId,
        profile: &Profile,
        asked: Asked,
        candidates: &[Candidate],
        sensitivity: Duration,
        all_down: bool,
    ) -> Verdict {
        let latency = |index: u32| self.latency(EndpointId { profile: id, index }, asked, 0);
        if has_dial(profile, candidates) {
            let near = |index: u32| match latency(index) {
                Some(latency) => Nearness::Latency(latency.as_secs_f64() * 1e3),
                None => Nearness::Unknown,
            };
            let order = nearest_first(candidates.iter().map(|candidate| candidate.index), near);
            let order = walkers(profile, candidates, &order);
            return Verdict::shares(walk(&order), Why::FastestDial(order));
        }
        let measured: Vec<(Duration, u32)> =
            up(candidates).filter_map(|index| Some((latency(index)?, index))).collect();
        let Some(&(best, first)) = measured.iter().min() else {
            return Verdict::shares(by_weight(profile, up(candidates)), Why::FastestUnknown);
        };
        if all_down {
            // Front Door: traffic goes round over all of them; what was measured is of another time.
            return Verdict::shares(by_weight(profile, up(candidates)), Why::Weight);
        }
        if sensitivity.is_zero() {
            return Verdict::one(first, Why::Fastest);
        }
        let near = measured
            .iter()
            .filter(|(latency, _)| *latency <= best.saturating_add(sensitivity))
            .map(|&(_, index)| index);
        Verdict::shares(by_weight(profile, near), Why::Fastest)
    }

    /// Measured latency of an endpoint; of a nested one, of its fastest child that is available.
    fn latency(&self, id: EndpointId, asked: Asked, depth: u8) -> Option<Duration> {
        match self.snapshot.model.endpoint(id).target {
            Target::Profile(child) if usize::from(depth) <= MAX_DEPTH => self
                .statuses
                .endpoints(child)
                .filter(|&below| {
                    self.statuses.endpoint(below).is_up() && self.statuses.can_answer(below, asked)
                })
                .filter_map(|below| self.latency(below, asked, depth + 1))
                .min(),
            _ => self.snapshot.health.latency.get(&id).copied(),
        }
    }

    fn geographic(&self, id: ProfileId, profile: &Profile, asked: Asked, location: &Location) -> Verdict {
        match self.pin(id, profile, location) {
            None => Verdict::nodata(Why::NoCode),
            Some((index, Pin::Code(code))) => {
                self.pinned(id, index, asked, Why::Code(code), Why::CodeStopped(code), Why::CodeUnable(code))
            }
            Some((index, _)) => {
                self.pinned(id, index, asked, Why::Override, Why::OverrideStopped, Why::OverrideUnable)
            }
        }
    }

    /// The endpoint that a client belongs to, whatever its health, by the methods that work so.
    fn pin(&self, id: ProfileId, profile: &Profile, location: &Location) -> Option<(u32, Pin)> {
        if let Some(index) = self.snapshot.atlas.member(id, location) {
            return Some((index, Pin::Subnet));
        }
        let find = |wanted: &dyn Fn(&Endpoint) -> bool| {
            (0..profile.endpoints.len() as u32)
                .zip(&profile.endpoints)
                .find(|(index, endpoint)| {
                    wanted(endpoint) && self.status(id, *index) != EndpointStatus::Disabled
                })
                .map(|(index, _)| index)
        };
        match profile.method {
            Method::Geographic => location.codes().find_map(|code| {
                let index = find(&|endpoint: &Endpoint| endpoint.geo.contains(&code))?;
                Some((index, Pin::Code(code)))
            }),
            _ => Some((find(&|endpoint: &Endpoint| endpoint.subnets.is_empty())?, Pin::Rest)),
        }
    }

    /// Whose health a profile's choice for a location can depend on. It does not depend on health itself.
    pub fn depends(&self, profile: ProfileId, location: &Location) -> Depends {
        let found = self.snapshot.model.profile(profile);
        let has_fallback = matches!(found.all_down, AllDown::Fallback(_));
        match found.method {
            _ if !found.enabled => Depends::Nothing,
            Method::Subnet if has_fallback => Depends::Anything,
            Method::Geographic | Method::Subnet => match self.pin(profile, found, location) {
                Some((index, _)) => Depends::One(index),
                None => Depends::Nothing,
            },
            _ => Depends::Anything,
        }
    }

    /// The client belongs to this endpoint whatever its health.
    fn pinned(
        &self,
        id: ProfileId,
        index: u32,
        asked: Asked,
        chosen: Why,
        stopped: Why,
        unable: Why,
    ) -> Verdict {
        if !self.status(id, index).takes_part() {
            Verdict::nodata(stopped)
        } else if !self.can_answer(id, index, asked) {
            Verdict::nodata(unable)
        } else {
            Verdict::one(index, chosen)
        }
    }

    fn subnet(&self, id: ProfileId, profile: &Profile, asked: Asked, location: &Location) -> Verdict {
        let (index, why) = match self.pin(id, profile, location) {
            Some((index, Pin::Rest)) => (index, Why::Rest),
            Some((index, _)) => (index, Why::Subnet),
            None => return Verdict::nodata(Why::NoSubnet),
        };
        let verdict = self.pinned(id, index, asked, why, Why::SubnetStopped, Why::SubnetUnable);
        if verdict.what == What::Nodata || self.status(id, index).is_up() {
            return verdict;
        }
        // Degraded: the all-down policy applies to this endpoint alone.
        match profile.all_down {
            AllDown::ServeAll => Verdict { why: Why::ServingAll(Box::new(verdict.why)), ..verdict },
            AllDown::Nodata => Verdict::nodata(Why::AllDownNodata),
            AllDown::Fallback(index) => self.fallback(id, index, asked),
        }
    }
}

fn up(candidates: &[Candidate]) -> impl Iterator<Item = u32> {
    candidates.iter().filter(|candidate| candidate.up).map(|candidate| candidate.index)
}

fn by_weight(profile: &Profile, among: impl Iterator<Item = u32>) -> Vec<(Share, u32)> {
    let weight =
        |index: u32| profile.endpoints.get(index as usize).map_or(0, |endpoint| u64::from(endpoint.weight));
    let among: Vec<u32> = among.collect();
    // At most 1000 endpoints of 16-bit weights.
    let total = among.iter().map(|&index| weight(index)).sum();
    let shares = among.into_iter().map(|index| (Share::ratio(weight(index), total), index));
    shares.filter(|(share, _)| !share.is_zero()).collect()
}

fn has_dial(profile: &Profile, candidates: &[Candidate]) -> bool {
    candidates
        .iter()
        .any(|candidate| profile.endpoints.get(candidate.index as usize).is_some_and(|e| e.dial < 100))
}

/// The candidates in this order, with their dials.
fn walkers(profile: &Profile, candidates: &[Candidate], order: &[u32]) -> Vec<Walker> {
    order
        .iter()
        .filter_map(|&index| {
            let up = candidates.iter().find(|candidate| candidate.index == index)?.up;
            let dial = profile.endpoints.get(index as usize)?.dial;
            Some(Walker { index, dial, up })
        })
        .collect()
}

fn priority(profile: &Profile, candidates: &[Candidate]) -> Verdict {
    let mut order: Vec<(u16, u32)> = candidates
        .iter()
        .filter_map(|candidate| {
            Some((profile.endpoints.get(candidate.index as usize)?.priority, candidate.index))
        })
        .collect();
    order.sort_unstable();
    if !has_dial(profile, candidates) {
        let is_up = |index: u32| candidates.iter().any(|each| each.index == index && each.up);
        return match order.iter().find(|&&(_, index)| is_up(index)) {
            Some(&(priority, index)) => Verdict::one(index, Why::Priority(priority)),
            None => Verdict::nodata(Why::NoneCanAnswer),
        };
    }
    let order: Vec<u32> = order.into_iter().map(|(_, index)| index).collect();
    let order = walkers(profile, candidates, &order);
    Verdict::shares(walk(&order), Why::PriorityDial(order))
}

/// An RRset without duplicates, in order; `None` when it would be empty.
fn records_of<A: Copy + Eq + Hash>(addresses: &[A], make: impl Fn(Vec<A>) -> Records) -> Option<Records> {
    let distinct = distinct(addresses.iter().copied(), |&address| address);
    (!distinct.is_empty()).then(|| make(distinct))
}

/// Items whose key did not come before.
fn distinct<T, K: Eq + Hash>(items: impl Iterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<T> {
    /// As many are looked through one by one.
    const FEW: usize = 16;
    let mut list: Vec<T> = Vec::with_capacity(items.size_hint().0);
    let mut index: HashSet<K, FixedState> = HashSet::default();
    for item in items {
        let new = if list.len() < FEW {
            list.iter().all(|held| key(held) != key(&item))
        } else {
            if index.is_empty() {
                index.extend(list.iter().map(&key));
            }
            index.insert(key(&item))
        };
        if new {
            list.push(item);
        }
    }
    list
}

fn multivalue(profile: &Profile, asked: Asked, candidates: &[Candidate], max_return: u8) -> Verdict {
    let mut ipv4 = Vec::new();
    let mut ipv6 = Vec::new();
    for index in up(candidates) {
        if let Some(Target::Addresses { ipv4: a, ipv6: aaaa }) =
            profile.endpoints.get(index as usize).map(|endpoint| &endpoint.target)
        {
            ipv4.extend(a.iter().map(|&address| (address, index)));
            ipv6.extend(aaaa.iter().map(|&address| (address, index)));
        }
    }
    let most = usize::from(max_return.max(1));
    let (sets, count) = match asked {
        Asked::A => windows(&ipv4, most, Records::A),
        Asked::Aaaa => windows(&ipv6, most, Records::Aaaa),
        Asked::Cname => return Verdict::nodata(Why::NoneCanAnswer),
        Asked::Any if ipv4.is_empty() => windows(&ipv6, most, Records::Aaaa),
        Asked::Any => windows(&ipv4, most, Records::A),
    };
    if sets.is_empty() {
        return Verdict::nodata(Why::NoneCanAnswer);
    }
    let why = if count > most { Why::Windows(count) } else { Why::Addresses };
    Verdict { what: What::Sets(sets), why }
}

/// All addresses when they are at most `most`, else every run of `most` in a circle, so that each
/// address is in as many sets as any other. Also returns how many addresses there are.
fn windows<A: Copy + Eq + Hash>(
    addresses: &[(A, u32)],
    most: usize,
    make: impl Fn(Vec<A>) -> Records,
) -> (Vec<(Records, Vec<u32>)>, usize) {
    let distinct = distinct(addresses.iter().copied(), |&(address, _)| address);
    let count = distinct.len();
    let set = |window: Vec<(A, u32)>| {
        let mut of: Vec<u32> = window.iter().map(|&(_, index)| index).collect();
        of.sort_unstable();
        of.dedup();
        (make(window.into_iter().map(|(address, _)| address).collect()), of)
    };
    if count == 0 {
        return (Vec::new(), 0);
    }
    if count <= most {
        return (vec![set(distinct)], count);
    }
    let sets = (0..count)
        .map(|start| set(distinct.iter().cycle().skip(start).take(most).copied().collect()))
        .collect();
    (sets, count)
}
