//! What every owner name is to the fast path: answered from a profile, or there but left to userspace.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::FixedState;

use crate::model::{Model, ProfileId, ZoneId, rtype};
use crate::name::Name;

/// An owner name.
pub struct Place<'m> {
    /// The name.
    pub name: Cow<'m, Name>,
    /// Its zone.
    pub zone: ZoneId,
    /// The profile that the fast path answers from.
    pub profile: Option<ProfileId>,
}

/// Every name that exists, each once, in an order that depends on the model alone.
pub fn places(model: &Model) -> Vec<Place<'_>> {
    let mut places = Places { list: Vec::new(), known: HashMap::default() };
    for profile in model.profiles().iter().filter(|profile| profile.enabled) {
        for name in &profile.names {
            let Some(binding) = model.bindings().get(name) else { continue };
            let node = model.zone(binding.zone).nodes.get(name);
            let alias = node.is_some_and(|node| node.contains_key(&rtype::CNAME));
            let profile = binding.profile.filter(|_| !alias);
            places.add(Cow::Borrowed(name), binding.zone, profile);
        }
    }
    for profile in model.profiles().iter().filter(|profile| profile.enabled) {
        for name in &profile.names {
            if let Some(binding) = model.bindings().get(name) {
                places.add_above(name, binding.zone, model);
            }
        }
    }
    for (id, zone) in (0..).map(ZoneId).zip(model.zones()) {
        for name in zone.nodes.keys() {
            places.add(Cow::Borrowed(name), id, None);
            places.add_above(name, id, model);
        }
    }
    places.list
}

struct Places<'m> {
    list: Vec<Place<'m>>,
    known: HashMap<Cow<'m, Name>, (), FixedState>,
}

impl<'m> Places<'m> {
    /// Adds a name unless it is there already; whether it was new.
    fn add(&mut self, name: Cow<'m, Name>, zone: ZoneId, profile: Option<ProfileId>) -> bool {
        match self.known.entry(name) {
            Entry::Occupied(_) => false,
            Entry::Vacant(vacant) => {
                let name = vacant.key().clone();
                vacant.insert(());
                self.list.push(Place { name, zone, profile });
                true
            }
        }
    }

    /// Adds the names between this one and the apex. What is above a name that was there is there too.
    fn add_above(&mut self, name: &Name, zone: ZoneId, model: &Model) {
        let apex = &model.zone(zone).name;
        let mut at = if name == apex { None } else { name.parent() };
        while let Some(here) = at {
            at = if here == *apex { None } else { here.parent() };
            if !self.add(Cow::Owned(here), zone, None) {
                return;
            }
        }
    }
}
