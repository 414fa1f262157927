//! One sweep over the boundaries of all prefix sources of a family.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;

use crate::geo_regions::{grouping_of, is_state};
use crate::lookup::Client;
use crate::model::{AddressRange, Coordinates, EndpointId, GeoCode, Method, Model, ProfileId};
use crate::status::{EndpointStatus, Statuses};
use crate::view::{GeoFacts, Geography, HealthView, Latency};

use super::special::{self, FOLDING, folding_block};
use super::track::Track;
use super::{Location, number};

/// What the profiles of a model look at.
pub(super) struct Needs {
    /// Some profile looks at codes.
    codes: bool,
    /// Some profile may need to know where a client is.
    coordinates: bool,
    /// Performance regions that some endpoint is in.
    pub region_ids: HashMap<String, u16>,
    /// Their places.
    pub places: Vec<Option<Coordinates>>,
    /// Distinct maps from ranges to endpoints (position plus one).
    subnet_maps: Vec<Vec<(AddressRange, u32)>>,
    /// Each profile's map.
    pub maps: Vec<Option<u32>>,
}

impl Needs {
    pub fn of(model: &Model) -> Self {
        let health = HealthView::default();
        let statuses = Statuses::new(model, &health);
        let mut needs = Self {
            codes: false,
            coordinates: false,
            region_ids: HashMap::new(),
            places: Vec::new(),
            subnet_maps: Vec::new(),
            maps: Vec::new(),
        };
        let mut map_ids: HashMap<Vec<(AddressRange, u32)>, u32> = HashMap::new();
        for (id, profile) in (0..).map(ProfileId).zip(model.profiles()) {
            let performance = matches!(profile.method, Method::Performance | Method::Fastest { .. });
            needs.codes |= profile.enabled && profile.method == Method::Geographic;
            let mut map = Vec::new();
            for (index, endpoint) in (0u32..).zip(&profile.endpoints) {
                let status = statuses.endpoint(EndpointId { profile: id, index });
                let mapped = match profile.method {
                    Method::Geographic | Method::Subnet => {
                        profile.enabled && status != EndpointStatus::Disabled
                    }
                    _ => performance && status.takes_part(),
                };
                if mapped {
                    map.extend(endpoint.subnets.iter().map(|&range| (range, index + 1)));
                }
                if profile.method == Method::Performance
                    && status.takes_part()
                    && let Some(region) = &endpoint.region
                {
                    needs.region(model, region);
                }
            }
            needs.maps.push((!map.is_empty()).then(|| {
                let next = map_ids.len() as u32;
                *map_ids.entry(map).or_insert(next)
            }));
        }
        let mut subnet_maps: Vec<(u32, Vec<(AddressRange, u32)>)> =
            map_ids.into_iter().map(|(map, id)| (id, map)).collect();
        subnet_maps.sort_unstable_by_key(|&(id, _)| id);
        needs.subnet_maps = subnet_maps.into_iter().map(|(_, map)| map).collect();
        needs
    }

    fn region(&mut self, model: &Model, region: &str) {
        let Ok(next) = u16::try_from(self.places.len()) else { return };
        if !self.region_ids.contains_key(region) {
            self.region_ids.insert(region.to_owned(), next);
            let place = model.regions().get(region).copied();
            self.coordinates |= place.is_some();
            self.places.push(place);
        }
    }
}

/// The sources laid over one another.
pub(super) struct Overlay {
    /// Distinct facts; the first is "nothing known".
    pub facts: Vec<Location>,
    /// Facts of each stretch.
    pub ipv4: Track<u32>,
    /// Facts of each stretch; cut at the folding blocks, inside which nothing is known.
    pub ipv6: Track<u128>,
}

impl Overlay {
    pub fn build(needs: &Needs, geography: &Geography, latency: &Latency) -> Self {
        let mut book = Book::new(needs);
        let mut places = Vec::new();
        if needs.codes || needs.coordinates {
            places.extend(geography.database.iter().map(|(net, facts)| (*net, book.place(facts))));
        }
        let mut overrides = Vec::new();
        if needs.codes {
            overrides.extend(geography.overrides.iter().map(|(net, code)| (*net, book.overriding(*code))));
        }
        let mut rows: Vec<Vec<(IpNet, u32)>> = vec![Vec::new(); needs.places.len()];
        for (net, region, milliseconds) in &latency.rows {
            if let Some(list) = needs.region_ids.get(region).and_then(|&id| rows.get_mut(usize::from(id))) {
                list.push((*net, book.milliseconds(*milliseconds)));
            }
        }
        let mut layers = vec![places, overrides];
        layers.append(&mut rows);
        let ipv4 = sweep(needs, &layers, &mut book, Family::Ipv4);
        let ipv6 = sweep(needs, &layers, &mut book, Family::Ipv6);
        Self {
            facts: book.list,
            ipv4: Track::new(ipv4.into_iter().map(|(first, facts)| (first as u32, facts)).collect()),
            ipv6: Track::new(ipv6),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    Ipv4,
    Ipv6,
}

impl Family {
    fn last(self) -> u128 {
        match self {
            Self::Ipv4 => u32::MAX.into(),
            Self::Ipv6 => u128::MAX,
        }
    }

    /// A prefix of this family as a range; one inside a folding block is the IPv4 prefix it means.
    fn prefix(self, net: &IpNet) -> Option<(u128, u128)> {
        self.range(&AddressRange { first: net.network(), last: net.broadcast() })
    }

    fn range(self, range: &AddressRange) -> Option<(u128, u128)> {
        let fold = |address: IpAddr| {
            let client = match address {
                IpAddr::V4(address) => Client::ipv4(address.octets()),
                IpAddr::V6(address) => Client::ipv6(address.octets()).fold(128).0,
            };
            number(&client)
        };
        let bits = |address: IpAddr| if address.is_ipv4() { 32 } else { 128 };
        let (mut first, mut last) = (fold(range.first), fold(range.last));
        let same_block = match (range.first, range.last) {
            (IpAddr::V6(a), IpAddr::V6(b)) => folding_block(a.to_bits()) == folding_block(b.to_bits()),
            _ => true,
        };
        if first.1 != last.1 || !same_block {
            // It reaches beyond a folding block: taken as it is; the block itself stays out of it.
            let plain = |address: IpAddr| match address {
                IpAddr::V4(address) => u128::from(address.to_bits()),
                IpAddr::V6(address) => address.to_bits(),
            };
            first = (plain(range.first), bits(range.first));
            last = (plain(range.last), bits(range.last));
        }
        let mine = if self == Self::Ipv4 { 32 } else { 128 };
        (first.1 == mine && last.1 == mine && first.0 <= last.0).then_some((first.0, last.0))
    }
}

/// Changes of a layer's value along the family: position, value from there on (0 is none).
type Changes = Vec<(u128, u32)>;

/// The boundaries of all layers in one pass: facts of each stretch.
fn sweep(needs: &Needs, layers: &[Vec<(IpNet, u32)>], book: &mut Book, family: Family) -> Vec<(u128, u32)> {
    let mut events: Vec<(u128, u32, u32)> = Vec::new();
    let mut layer_id = 0u32;
    let mut add = |changes: Changes| {
        events.extend(changes.into_iter().map(|(at, value)| (at, layer_id, value)));
        layer_id += 1;
    };
    for layer in layers {
        let prefixes = layer
            .iter()
            .filter_map(|(net, value)| family.prefix(net).map(|(first, last)| (first, last, *value)));
        add(longest_prefix(prefixes.collect(), family.last()));
    }
    for map in &needs.subnet_maps {
        let ranges = map
            .iter()
            .filter_map(|(range, value)| family.range(range).map(|(first, last)| (first, last, *value)));
        add(first_in_file(ranges.collect(), family.last()));
    }
    // Where the folding blocks begin and end; the value does not matter.
    if family == Family::Ipv6 {
        events.extend(FOLDING.iter().map(|block| (block.first, u32::MAX, 0)));
        events.extend(special::folding_ends().map(|at| (at, u32::MAX, 0)));
    }
    events.sort_unstable();

    let first_map = layers.len() as u32;
    let mut current = Current::default();
    let mut stretches = vec![(0, 0)];
    let mut compartment = 0;
    let mut at = 0;
    while let Some(&(position, ..)) = events.get(at) {
        while let Some(&(_, layer, value)) = events.get(at).filter(|event| event.0 == position) {
            match layer {
                0 => current.place = value,
                1 => current.overriding = value,
                u32::MAX => {}
                _ if layer < first_map => current.set_latency(layer - 2, value),
                _ => current.set_member(layer - first_map, value),
            }
            at += 1;
        }
        let block = if family == Family::Ipv6 { folding_block(position) } else { 0 };
        let facts = if block == 0 { book.facts(&mut current) } else { 0 };
        match stretches.last_mut() {
            Some(last) if last.0 == position => last.1 = facts,
            Some(last) if last.1 == facts && compartment == block => {}
            _ => stretches.push((position, facts)),
        }
        compartment = block;
    }
    stretches
}

/// Changes of the longest matching prefix; of equal ones the last of the list counts.
fn longest_prefix(mut prefixes: Vec<(u128, u128, u32)>, end: u128) -> Changes {
    // Wide before narrow; the sort is stable, so the last of equal ones ends on top.
    prefixes.sort_by_key(|&(first, last, _)| (first, std::cmp::Reverse(last)));
    let mut changes = Changes::new();
    let mut open: Vec<(u128, u32)> = Vec::new();
    let close = |open: &mut Vec<(u128, u32)>, changes: &mut Changes, before: Option<u128>| {
        while let Some(&(last, _)) = open.last().filter(|(last, _)| before.is_none_or(|at| *last < at)) {
            open.pop();
            if last < end {
                change(changes, last + 1, open.last().map_or(0, |&(_, value)| value));
            }
        }
    };
    for (first, last, value) in prefixes {
        close(&mut open, &mut changes, Some(first));
        change(&mut changes, first, value);
        open.push((last, value));
    }
    close(&mut open, &mut changes, None);
    changes
}

/// Changes along ranges that do not overlap; where they do, the smaller value counts.
fn first_in_file(ranges: Vec<(u128, u128, u32)>, end: u128) -> Changes {
    let mut events: Vec<(u128, bool, u32)> = Vec::new();
    for (first, last, value) in ranges {
        events.push((first, true, value));
        if last < end {
            events.push((last + 1, false, value));
        }
    }
    events.sort_unstable();
    let mut changes = Changes::new();
    let mut open: BTreeMap<u32, u32> = BTreeMap::new();
    for (at, opens, value) in events {
        let count = open.entry(value).or_insert(0);
        *count = if opens { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            open.remove(&value);
        }
        change(&mut changes, at, open.keys().next().copied().unwrap_or(0));
    }
    changes
}

fn change(changes: &mut Changes, at: u128, value: u32) {
    match changes.last_mut() {
        Some(last) if last.0 == at => last.1 = value,
        _ => changes.push((at, value)),
    }
}

/// Values of all layers at the sweep's position.
#[derive(Default)]
struct Current {
    place: u32,
    overriding: u32,
    latency: Vec<(u32, u32)>,
    members: Vec<(u32, u32)>,
    /// Interned form of `latency` and `members` until they change.
    latency_id: Option<u32>,
    members_id: Option<u32>,
}

impl Current {
    fn set_latency(&mut self, region: u32, value: u32) {
        set(&mut self.latency, region, value);
        self.latency_id = None;
    }

    fn set_member(&mut self, map: u32, value: u32) {
        set(&mut self.members, map, value);
        self.members_id = None;
    }
}

/// Sets the value of a key in a sorted list that holds no zeros.
fn set(list: &mut Vec<(u32, u32)>, key: u32, value: u32) {
    match (list.binary_search_by_key(&key, |&(each, _)| each), value) {
        (Ok(at), 0) => {
            list.remove(at);
        }
        (Ok(at), _) => {
            if let Some(slot) = list.get_mut(at) {
                slot.1 = value;
            }
        }
        (Err(_), 0) => {}
        (Err(at), _) => list.insert(at, (key, value)),
    }
}

/// Distinct values, numbered as they come.
struct Interned<T> {
    ids: HashMap<T, u32>,
}

impl<T: Hash + Eq> Interned<T> {
    fn new() -> Self {
        Self { ids: HashMap::new() }
    }

    /// The number of a value, and whether it is new.
    fn id(&mut self, value: T) -> (u32, bool) {
        let next = self.ids.len() as u32;
        let id = *self.ids.entry(value).or_insert(next);
        (id, id == next)
    }
}

/// A place of the database by its bits.
type PlaceKey = (Option<[u8; 2]>, Option<[u8; 3]>, Option<(u64, u64)>);

/// Codes and coordinates, the latter by their bits.
type GroundKey = ([Option<GeoCode>; 3], Option<(u64, u64)>);

/// Hash-consed facts.
struct Book {
    codes: bool,
    coordinates: bool,
    places: Interned<PlaceKey>,
    place_list: Vec<([Option<GeoCode>; 3], Option<Coordinates>)>,
    overriding: Interned<GeoCode>,
    overriding_list: Vec<[Option<GeoCode>; 3]>,
    milliseconds: Interned<u64>,
    milliseconds_list: Vec<f64>,
    /// Codes and coordinates by database value and override.
    grounds: HashMap<(u32, u32), u32>,
    ground_ids: Interned<GroundKey>,
    ground_list: Vec<([Option<GeoCode>; 3], Option<Coordinates>)>,
    latencies: Interned<Box<[(u32, u32)]>>,
    latency_list: Vec<Arc<[(u16, f64)]>>,
    members: Interned<Box<[(u32, u32)]>>,
    member_list: Vec<Arc<[(u32, u32)]>>,
    ids: Interned<(u32, u32, u32)>,
    list: Vec<Location>,
}

impl Book {
    fn new(needs: &Needs) -> Self {
        let mut book = Self {
            codes: needs.codes,
            coordinates: needs.coordinates,
            places: Interned::new(),
            place_list: Vec::new(),
            overriding: Interned::new(),
            overriding_list: Vec::new(),
            milliseconds: Interned::new(),
            milliseconds_list: Vec::new(),
            grounds: HashMap::new(),
            ground_ids: Interned::new(),
            ground_list: Vec::new(),
            latencies: Interned::new(),
            latency_list: Vec::new(),
            members: Interned::new(),
            member_list: Vec::new(),
            ids: Interned::new(),
            list: Vec::new(),
        };
        // Nothing known is number 0 everywhere.
        book.facts(&mut Current::default());
        book
    }

    /// Layer value of what the database says; 0 when no profile looks at any of it.
    fn place(&mut self, facts: &GeoFacts) -> u32 {
        let country = facts.country.filter(|_| self.codes);
        let state = facts.state.filter(|&state| country.is_some_and(|country| is_state(country, state)));
        let coordinates = facts.coordinates.filter(|_| self.coordinates);
        if country.is_none() && coordinates.is_none() {
            return 0;
        }
        let (id, new) = self.places.id((country, state, coordinates.map(bits)));
        if new {
            let codes = country.map_or([None; 3], |country| codes_of_country(country, state));
            self.place_list.push((codes, coordinates));
        }
        id + 1
    }

    /// Layer value of an override. `WORLD` is an override too: it hides what the database says.
    fn overriding(&mut self, code: GeoCode) -> u32 {
        let (id, new) = self.overriding.id(code);
        if new {
            self.overriding_list.push(match code {
                GeoCode::World => [None; 3],
                GeoCode::Grouping(_) => [None, None, Some(code)],
                GeoCode::Country(country) => codes_of_country(country, None),
                GeoCode::State(country, state) => codes_of_country(country, Some(state)),
            });
        }
        id + 1
    }

    fn milliseconds(&mut self, milliseconds: f64) -> u32 {
        let milliseconds = milliseconds + 0.0; // one zero only
        let (id, new) = self.milliseconds.id(milliseconds.to_bits());
        if new {
            self.milliseconds_list.push(milliseconds);
        }
        id + 1
    }

    fn ground(&mut self, place: u32, overriding: u32) -> u32 {
        if let Some(&known) = self.grounds.get(&(place, overriding)) {
            return known;
        }
        let nth = |value: u32| value.checked_sub(1).map(|at| at as usize);
        let (mut codes, coordinates) =
            nth(place).and_then(|at| self.place_list.get(at)).copied().unwrap_or_default();
        if let Some(&instead) = nth(overriding).and_then(|at| self.overriding_list.get(at)) {
            codes = instead;
        }
        let (id, new) = self.ground_ids.id((codes, coordinates.map(bits)));
        if new {
            self.ground_list.push((codes, coordinates));
        }
        self.grounds.insert((place, overriding), id);
        id
    }

    /// Number of the facts at a position.
    fn facts(&mut self, current: &mut Current) -> u32 {
        let ground = self.ground(current.place, current.overriding);
        let latency = match current.latency_id {
            Some(id) => id,
            None => {
                let (id, new) = self.latencies.id(current.latency.clone().into_boxed_slice());
                if new {
                    let row = |&(region, value): &(u32, u32)| {
                        let at = value.checked_sub(1)? as usize;
                        Some((region as u16, *self.milliseconds_list.get(at)?))
                    };
                    self.latency_list.push(current.latency.iter().filter_map(row).collect());
                }
                id
            }
        };
        current.latency_id = Some(latency);
        let members = match current.members_id {
            Some(id) => id,
            None => {
                let (id, new) = self.members.id(current.members.clone().into_boxed_slice());
                if new {
                    self.member_list.push(current.members.clone().into());
                }
                id
            }
        };
        current.members_id = Some(members);
        let (id, new) = self.ids.id((ground, latency, members));
        if new {
            let (codes, coordinates) = self.ground_list.get(ground as usize).copied().unwrap_or_default();
            self.list.push(Location {
                codes,
                coordinates,
                latency: self.latency_list.get(latency as usize).cloned().unwrap_or_default(),
                members: self.member_list.get(members as usize).cloned().unwrap_or_default(),
            });
        }
        id
    }
}

fn bits(place: Coordinates) -> (u64, u64) {
    (place.latitude.to_bits(), place.longitude.to_bits())
}

/// Codes of a country and one of its states, narrowest first.
fn codes_of_country(country: [u8; 2], state: Option<[u8; 3]>) -> [Option<GeoCode>; 3] {
    [state.map(|state| GeoCode::State(country, state)), Some(GeoCode::Country(country)), grouping_of(country)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_counts_and_of_equal_ones_the_last() {
        let changes = longest_prefix(vec![(0, 15, 1), (4, 7, 2), (6, 6, 3), (4, 7, 4), (8, 15, 5)], 255);
        assert_eq!(changes, [(0, 1), (4, 4), (6, 3), (7, 4), (8, 5), (16, 0)]);
        assert_eq!(longest_prefix(vec![(0, 255, 1), (128, 255, 2)], 255), [(0, 1), (128, 2)]);
    }

    #[test]
    fn ranges_may_touch() {
        let changes = first_in_file(vec![(4, 7, 2), (8, 9, 1), (250, 255, 3)], 255);
        assert_eq!(changes, [(4, 2), (8, 1), (10, 0), (250, 3)]);
    }
}
