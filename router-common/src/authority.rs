//! What we are authoritative for at a name: the first half of an answer, before any decision.

use std::ops::Bound;

use crate::model::{Model, Node, ProfileId, ZoneId, rtype};
use crate::name::Name;

/// What exists at a name (RFC 1034 §4.3.2, RFC 4592).
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Authority<'m> {
    /// In none of our zones: REFUSED.
    Outside,
    /// At or below a zone cut: a referral (or, at the cut itself, our DS side).
    Delegated {
        /// The zone above the cut.
        zone: ZoneId,
        /// The name of the cut, its NS records in its node.
        cut: &'m Name,
        /// Records at the cut.
        node: &'m Node,
    },
    /// Below a DNAME (RFC 6672): the name is rewritten.
    Redirected {
        /// The zone.
        zone: ZoneId,
        /// Owner of the DNAME.
        owner: &'m Name,
        /// Records at the owner.
        node: &'m Node,
    },
    /// The name exists: by a profile, by static records, both, or neither (an empty non-terminal).
    Exists {
        /// The zone.
        zone: ZoneId,
        /// The profile bound to the name, or to the wildcard that covers it.
        profile: Option<ProfileId>,
        /// Static records at the name, or at the wildcard that covers it.
        node: Option<&'m Node>,
        /// Whether a wildcard covers it.
        wildcard: bool,
    },
    /// Absent: NXDOMAIN.
    Absent {
        /// The zone.
        zone: ZoneId,
    },
}

/// Finds what exists at a name.
pub fn authority<'m>(model: &'m Model, name: &Name) -> Authority<'m> {
    let Some(zone) = enclosing_zone(model, name) else {
        return Authority::Outside;
    };
    let apex = &model.zone(zone).name;
    let nodes = &model.zone(zone).nodes;
    // A cut or a DNAME hides everything below it, so the one nearest to the apex, found last, counts.
    let mut hidden = None;
    let mut at = Some(name.clone());
    while let Some(here) = at {
        if let Some((owner, node)) = nodes.get_key_value(&here) {
            if here != *apex && node.contains_key(&rtype::NS) {
                hidden = Some(Authority::Delegated { zone, cut: owner, node });
            } else if here != *name && node.contains_key(&rtype::DNAME) {
                hidden = Some(Authority::Redirected { zone, owner, node });
            }
        }
        at = if here == *apex { None } else { here.parent() };
    }
    if let Some(found) = hidden.or_else(|| exact(model, zone, name, false)) {
        return found;
    }
    // The closest encloser is the first name above that exists; only its own wildcard counts.
    let mut at = if name == apex { None } else { name.parent() };
    while let Some(here) = at {
        if exact(model, zone, &here, false).is_some() {
            let covering = here.wildcard_child().ok();
            return covering
                .and_then(|wildcard| exact(model, zone, &wildcard, true))
                .unwrap_or(Authority::Absent { zone });
        }
        at = if here == *apex { None } else { here.parent() };
    }
    Authority::Absent { zone }
}

fn enclosing_zone(model: &Model, name: &Name) -> Option<ZoneId> {
    let mut at = Some(name.clone());
    while let Some(here) = at {
        if let Some(zone) = model.zone_at(&here) {
            return Some(zone);
        }
        at = here.parent();
    }
    None
}

fn exact<'m>(model: &'m Model, zone: ZoneId, name: &Name, wildcard: bool) -> Option<Authority<'m>> {
    let binding = model.bindings().get(name).filter(|binding| binding.zone == zone);
    let nodes = &model.zone(zone).nodes;
    let node = nodes.get(name);
    let exists = binding.is_some()
        || node.is_some()
        || nodes
            .range((Bound::Included(name), Bound::Unbounded))
            .next()
            .is_some_and(|(below, _)| below.is_within(name));
    exists.then_some(Authority::Exists {
        zone,
        profile: binding.and_then(|binding| binding.profile),
        node,
        wildcard,
    })
}
