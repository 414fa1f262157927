//! What two configurations say otherwise: zones, names, profiles, endpoints, with the settings that differ.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::alike::by_name;
use super::names::{at, owners};
use super::settings;
use super::{Change, Item, Kind, Setting};
use crate::model::{Model, Profile, ProfileId, Zone, rtype};
use crate::name::Name;

/// Everything that differs, by kind and name.
pub(super) fn compare(before: &Model, after: &Model) -> Vec<Item> {
    let mut items = Vec::new();
    zones(before, after, &mut items);
    profiles(before, after, &mut items);
    names(before, after, &mut items);
    items.sort_by(|one, other| (one.kind, &one.name).cmp(&(other.kind, &other.name)));
    items
}

/// What is in one list, in the other or in both, by a key.
fn paired<'a, T, K: Ord>(
    before: impl IntoIterator<Item = &'a T>,
    after: impl IntoIterator<Item = &'a T>,
    key: impl Fn(&'a T) -> K,
) -> BTreeMap<K, (Option<&'a T>, Option<&'a T>)> {
    let mut pairs: BTreeMap<K, (Option<&T>, Option<&T>)> = BTreeMap::new();
    for one in before {
        pairs.entry(key(one)).or_default().0 = Some(one);
    }
    for other in after {
        pairs.entry(key(other)).or_default().1 = Some(other);
    }
    pairs
}

/// An item for a thing that is on one side or on both; none when nothing differs.
fn item<T>(
    kind: Kind,
    name: String,
    pair: (Option<&T>, Option<&T>),
    about: impl Fn(&T) -> String,
    differ: impl Fn(&T, &T) -> Vec<Setting>,
) -> Option<Item> {
    let change = match pair {
        (None, Some(new)) => Change::Added(about(new)),
        (Some(old), None) => Change::Removed(about(old)),
        (Some(old), Some(new)) => Change::Changed(differ(old, new)),
        (None, None) => return None,
    };
    match &change {
        Change::Changed(settings) if settings.is_empty() => None,
        _ => Some(Item { kind, name, change }),
    }
}

fn zones(before: &Model, after: &Model, items: &mut Vec<Item>) {
    for (name, pair) in paired(before.zones(), after.zones(), |zone: &Zone| zone.name.to_string()) {
        items.extend(item(Kind::Zone, name, pair, |_| String::new(), settings::zone));
    }
}

fn profiles(before: &Model, after: &Model, items: &mut Vec<Item>) {
    let (old_ids, new_ids) = (by_name(before), by_name(after));
    let all = paired(before.profiles(), after.profiles(), |profile: &Profile| profile.name.as_str());
    for (name, pair) in all {
        let method = |profile: &Profile| profile.method.as_str().to_owned();
        let (mut of_profile, mut of_endpoints) = (Vec::new(), Vec::new());
        let ids = (old_ids.get(name), new_ids.get(name));
        if let (Some(&old), Some(&new)) = ids {
            endpoints(before, after, (old, new), &mut of_profile, &mut of_endpoints);
        } else {
            // Its endpoints come or go with it.
            for (model, id) in [(before, ids.0), (after, ids.1)] {
                let Some(profile) = id.map(|&id| model.profile(id)) else { continue };
                of_endpoints.extend(profile.endpoints.iter().map(|endpoint| {
                    let about = settings::target(model, &endpoint.target);
                    let change = if ids.0.is_some() { Change::Removed(about) } else { Change::Added(about) };
                    Item { kind: Kind::Endpoint, name: format!("{name}/{}", endpoint.name), change }
                }));
            }
        }
        items.extend(item(Kind::Profile, name.to_owned(), pair, method, |old, new| {
            let mut settings = settings::profile(old, new);
            settings.extend(of_profile.iter().cloned());
            settings
        }));
        items.append(&mut of_endpoints);
    }
}

/// Endpoints of a profile that is in both. What all of them have changed alike in their monitors is the profile's.
fn endpoints(
    before: &Model,
    after: &Model,
    (old, new): (ProfileId, ProfileId),
    of_profile: &mut Vec<Setting>,
    items: &mut Vec<Item>,
) {
    let (old, new) = (before.profile(old), after.profile(new));
    let pairs = paired(&old.endpoints, &new.endpoints, |endpoint| endpoint.name.as_str());
    let monitors: Vec<Vec<Setting>> =
        pairs.values().filter_map(|&(one, other)| Some(settings::monitor(one?, other?))).collect();
    if let [first, rest @ ..] = monitors.as_slice()
        && !rest.is_empty()
        && rest.iter().all(|other| other == first)
    {
        of_profile.extend(first.iter().cloned());
    }
    for (name, pair) in pairs {
        let about = |endpoint: &_| {
            let model = if pair.0.is_some() { before } else { after };
            settings::about(model, endpoint)
        };
        items.extend(item(Kind::Endpoint, format!("{}/{name}", old.name), pair, about, |one, other| {
            let mut settings = settings::endpoint((before, one), (after, other));
            let monitor = settings::monitor(one, other);
            settings.extend(monitor.into_iter().filter(|setting| !of_profile.contains(setting)));
            settings
        }));
    }
    let order = |profile: &Profile, other: &Profile| {
        let known: Vec<&str> = other.endpoints.iter().map(|endpoint| endpoint.name.as_str()).collect();
        let names = profile.endpoints.iter().map(|endpoint| endpoint.name.clone());
        names.filter(|name| known.contains(&name.as_str())).collect::<Vec<_>>()
    };
    if old.endpoints.len() <= 256 && new.endpoints.len() <= 256 {
        let (one, other) = (order(old, new), order(new, old));
        if one != other {
            of_profile.push(Setting::new("order", one.join(" "), other.join(" ")));
        }
    }
}

fn names(before: &Model, after: &Model, items: &mut Vec<Item>) {
    let mut all: HashMap<&Name, ()> = HashMap::new();
    for name in owners(before).into_iter().chain(owners(after)) {
        if all.insert(name, ()).is_some() {
            continue;
        }
        let sides = (held(before, name), held(after, name));
        let pair = (sides.0.as_ref(), sides.1.as_ref());
        let about = |held: &Held<'_>| held.to_string();
        items.extend(item(Kind::Name, name.to_string(), pair, about, Held::differ));
    }
}

/// What is held at a name.
struct Held<'m> {
    profile: Option<&'m str>,
    node: Option<&'m crate::model::Node>,
}

fn held<'m>(model: &'m Model, name: &Name) -> Option<Held<'m>> {
    let (profile, node) = at(model, name)?;
    Some(Held { profile: profile.map(|id| model.profile(id).name.as_str()), node })
}

impl Held<'_> {
    fn differ(&self, other: &Self) -> Vec<Setting> {
        let mut settings = Vec::new();
        let profile = |held: &Held<'_>| held.profile.map_or_else(|| "none".to_owned(), str::to_owned);
        if self.profile != other.profile {
            settings.push(Setting::new("profile", profile(self), profile(other)));
        }
        let empty = crate::model::Node::new();
        let (old, new) = (self.node.unwrap_or(&empty), other.node.unwrap_or(&empty));
        let mut types: Vec<u16> = old.keys().chain(new.keys()).copied().collect();
        types.sort_unstable();
        types.dedup();
        // The SOA is told of with its zone.
        for rtype in types.into_iter().filter(|&rtype| rtype != rtype::SOA) {
            let (one, other) = (old.get(&rtype), new.get(&rtype));
            if one != other {
                let shown = |set| settings::records(rtype, set);
                settings.push(Setting::new("records", shown(one), shown(other)));
            }
        }
        settings
    }
}

impl fmt::Display for Held<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.profile, self.node) {
            (Some(profile), _) => write!(f, "profile {profile}"),
            (None, Some(node)) => {
                let types: Vec<String> = node.keys().map(|&rtype| settings::type_name(rtype)).collect();
                f.write_str(&types.join(" "))
            }
            (None, None) => Ok(()),
        }
    }
}
