//! The owner table: every name that exists, found by hash.

use std::collections::{BTreeMap, HashMap};

use crate::abi::{INLINE_NAME, MAX_PROBES, MIN_OWNERS, NAME_WORDS, NONE, Owner};
use crate::authority::{Authority, authority};
use crate::lookup::hash_name;
use crate::model::{Model, ProfileId, ZoneId, rtype};
use crate::name::Name;
use crate::tables::CompileError;

/// Most slots of a half.
const MAX_OWNERS: u64 = 1 << 30;
/// Seeds tried before the table grows.
const TRIES: usize = 4;

/// A name that exists, and the profile that the fast path answers it with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Existing {
    pub zone: ZoneId,
    pub profile: Option<ProfileId>,
}

/// All names that exist in our zones: bound ones, static ones, and empty non-terminals.
pub(super) fn names(model: &Model) -> BTreeMap<Name, Existing> {
    let mut names: BTreeMap<Name, Existing> = BTreeMap::new();
    let mut add = |name: Name, existing: Existing| {
        let known = names.entry(name).or_insert(existing);
        // A name at a cut to a zone of ours is in both: the closer zone counts.
        let len = |zone: ZoneId| model.zone(zone).name.as_wire().len();
        if existing.profile.is_some() || (known.profile.is_none() && len(existing.zone) > len(known.zone)) {
            *known = existing;
        }
    };
    for (id, zone) in (0..).map(ZoneId).zip(model.zones()) {
        for name in zone.nodes.keys() {
            let mut at = Some(name.clone());
            while let Some(here) = at.filter(|here| here.is_within(&zone.name)) {
                at = here.parent();
                add(here, Existing { zone: id, profile: None });
            }
        }
        add(zone.name.clone(), Existing { zone: id, profile: None });
    }
    for (name, binding) in model.bindings() {
        let profile = binding.profile.filter(|_| is_ours(model, name));
        add(name.clone(), Existing { zone: binding.zone, profile });
    }
    names
}

/// Whether the profile alone decides the addresses of a name: no zone cut, redirection or alias.
fn is_ours(model: &Model, name: &Name) -> bool {
    match authority(model, name) {
        Authority::Exists { node, wildcard: false, .. } => node.is_none_or(|node| {
            ![rtype::CNAME, rtype::A, rtype::AAAA].iter().any(|rtype| node.contains_key(rtype))
        }),
        _ => false,
    }
}

/// A name as the look-up reads it.
pub(crate) fn words(name: &Name) -> [u64; NAME_WORDS] {
    let mut words = [0; NAME_WORDS];
    for (word, chunk) in words.iter_mut().zip(name.as_wire().chunks(8)) {
        let mut octets = [0; 8];
        octets.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        *word = u64::from_le_bytes(octets);
    }
    words
}

/// An owner table in place.
pub(super) struct Placed {
    pub seed: [u64; 2],
    pub owners: Vec<Owner>,
    pub mask: u32,
}

/// Places owners (whose hash is still to be set) so that each is within reach of its home, and links
/// wildcards to the names above them.
pub(super) fn place(
    names: &[(Name, Owner)],
    mut seeds: impl FnMut() -> [u64; 2],
) -> Result<Placed, CompileError> {
    let mut slots = (names.len() as u64 * 2).next_power_of_two().max(u64::from(MIN_OWNERS));
    loop {
        if slots > MAX_OWNERS {
            return Err(CompileError::TooLarge("owners"));
        }
        for _ in 0..TRIES {
            let seed = seeds();
            if let Some(owners) = arrange(names, &seed, slots as u32) {
                return Ok(Placed { seed, owners, mask: slots as u32 - 1 });
            }
        }
        slots *= 2;
    }
}

fn arrange(names: &[(Name, Owner)], seed: &[u64; 2], slots: u32) -> Option<Vec<Owner>> {
    let mask = slots - 1;
    let mut table: Vec<Option<usize>> = vec![None; slots as usize];
    let hashes: Vec<u64> =
        names.iter().map(|(name, _)| hash_name(seed, &words(name), name.as_wire().len() as u32)).collect();
    let distance =
        |at: usize, slot: u32| slot.wrapping_sub(hashes.get(at).copied().unwrap_or(0) as u32) & mask;
    // Robin Hood: whoever is farther from home stays, so that no probe is long.
    for (at, &hash) in hashes.iter().enumerate() {
        let mut at = at;
        let mut slot = hash as u32 & mask;
        loop {
            if distance(at, slot) >= MAX_PROBES as u32 {
                return None;
            }
            let place = table.get_mut(slot as usize)?;
            match *place {
                None => {
                    *place = Some(at);
                    break;
                }
                Some(other) if distance(other, slot) < distance(at, slot) => {
                    *place = Some(at);
                    at = other;
                }
                Some(_) => {}
            }
            slot = (slot + 1) & mask;
        }
    }
    let mut slot_of: HashMap<&Name, u32> = HashMap::new();
    for (slot, at) in (0u32..).zip(&table) {
        if let Some((name, _)) = at.and_then(|at| names.get(at)) {
            slot_of.insert(name, slot);
        }
    }
    let owners = table
        .iter()
        .map(|at| {
            let Some((at, (name, owner))) = at.and_then(|at| Some((at, names.get(at)?))) else {
                return Owner::EMPTY;
            };
            let wildcard = name.wildcard_child().ok().and_then(|wildcard| slot_of.get(&wildcard).copied());
            Owner { hash: hashes.get(at).copied().unwrap_or(0), wildcard: wildcard.unwrap_or(NONE), ..*owner }
        })
        .collect();
    Some(owners)
}

/// The field [`Owner::name`] of a name; `first_line` when it is in lines.
pub(super) fn name_field(name: &Name, first_line: Option<u32>) -> [u8; INLINE_NAME] {
    let mut field = [0; INLINE_NAME];
    let index;
    let octets = match first_line {
        Some(first) => {
            // The reader takes the word as little-endian octets.
            index = first.to_le_bytes();
            &index[..]
        }
        None => name.as_wire(),
    };
    field.iter_mut().zip(octets).for_each(|(to, from)| *to = *from);
    field
}
