//! Which names are answered from what, before and after.

use std::collections::{HashMap, HashSet};

use foldhash::fast::FixedState;

use crate::authority::{Authority, authority};
use crate::model::{Model, Node, ProfileId, rtype};
use crate::name::Name;

/// What a name is answered from.
#[derive(Clone, Copy, Debug)]
pub(super) enum Side<'m> {
    /// A profile.
    Profile(ProfileId),
    /// Static records, addresses or an alias among them.
    Records(&'m Node),
}

/// Names with the same two sides.
pub(super) struct Steering<'m> {
    pub before: Side<'m>,
    pub after: Side<'m>,
    pub names: Vec<&'m Name>,
}

/// All names that are answered from a profile, or have addresses or an alias.
pub(super) struct Answering<'m> {
    /// Those that are answered after as well, and may be answered otherwise.
    pub steerings: Vec<Steering<'m>>,
    /// How many do not exist any more.
    pub gone: u64,
    /// How many have the same static records.
    pub unmoved: u64,
}

/// Owner names that are answered from a profile or from static records, with the wildcards themselves; each once,
/// in the order of the file.
pub(super) fn owners(model: &Model) -> Vec<&Name> {
    let mut seen: HashSet<&Name, FixedState> = HashSet::default();
    let profiles = model.profiles().iter().filter(|profile| profile.enabled);
    let bound = profiles.flat_map(|profile| &profile.names);
    let fixed = model.zones().iter().flat_map(|zone| zone.nodes.keys());
    bound.chain(fixed).filter(|name| seen.insert(name)).collect()
}

/// Static records and profile at exactly this name.
pub(super) fn at<'m>(model: &'m Model, name: &Name) -> Option<(Option<ProfileId>, Option<&'m Node>)> {
    let binding = model.bindings().get(name);
    let zone = binding.map(|binding| binding.zone).or_else(|| {
        let mut at = Some(name.clone());
        while let Some(here) = at {
            if let Some(zone) = model.zone_at(&here) {
                return Some(zone);
            }
            at = here.parent();
        }
        None
    })?;
    let (profile, node) = (binding.and_then(|binding| binding.profile), model.zone(zone).nodes.get(name));
    (profile.is_some() || node.is_some()).then_some((profile, node))
}

fn side<'m>(profile: Option<ProfileId>, node: Option<&'m Node>) -> Option<Side<'m>> {
    let alias = node.filter(|node| node.contains_key(&rtype::CNAME));
    let addresses = node.filter(|node| node.contains_key(&rtype::A) || node.contains_key(&rtype::AAAA));
    match (alias, profile) {
        (Some(node), _) => Some(Side::Records(node)),
        (None, Some(profile)) => Some(Side::Profile(profile)),
        (None, None) => addresses.map(Side::Records),
    }
}

impl<'m> Answering<'m> {
    pub fn of(before: &'m Model, after: &'m Model) -> Self {
        let mut answering = Self { steerings: Vec::new(), gone: 0, unmoved: 0 };
        let mut known: HashMap<(ProfileId, ProfileId), usize, FixedState> = HashMap::default();
        for name in owners(before) {
            let Some(old) = at(before, name).and_then(|(profile, node)| side(profile, node)) else {
                continue;
            };
            let exact = at(after, name).map(|(profile, node)| (profile, node, true));
            // What is gone may be covered by a wildcard.
            let found = exact.or_else(|| match authority(after, name) {
                Authority::Exists { profile, node, .. } => Some((profile, node, false)),
                _ => None,
            });
            let Some((profile, node, _)) = found else {
                answering.gone += 1;
                continue;
            };
            // A name that has nothing of the kind any more answers NODATA.
            static EMPTY: Node = Node::new();
            let new = side(profile, node).unwrap_or(Side::Records(&EMPTY));
            match (old, new) {
                (Side::Profile(one), Side::Profile(other)) => {
                    let next = answering.steerings.len();
                    let place = *known.entry((one, other)).or_insert(next);
                    match answering.steerings.get_mut(place) {
                        Some(steering) => steering.names.push(name),
                        None => {
                            answering.steerings.push(Steering { before: old, after: new, names: vec![name] });
                        }
                    }
                }
                (Side::Records(one), Side::Records(other)) if one == other => answering.unmoved += 1,
                _ => answering.steerings.push(Steering { before: old, after: new, names: vec![name] }),
            }
        }
        answering
    }
}
