//! The owner table: a place for every name, each within reach of its hash.

use std::borrow::Cow;

use super::CompileError;
use crate::abi::{INLINE_NAME, MAX_PROBES, MIN_OWNERS, NAME_WORDS, NONE, Owner};
use crate::lookup::hash_name;
use crate::name::Name;

/// A name that is to be found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry<'m> {
    /// The name.
    pub name: Cow<'m, Name>,
    /// The owner without `hash`, `name` and `wildcard`.
    pub owner: Owner,
    /// First line of a name that does not fit into the slot.
    pub line: u32,
}

/// Fraction of slots that stay empty: names take at most one in this many.
const SPARSENESS: usize = 2;
/// Hash keys tried with one size of table before a larger one is.
const TRIES: u32 = 4;

/// The folded name as the words that the fast path compares.
pub fn words(name: &Name) -> [u64; NAME_WORDS] {
    let mut octets = [0; NAME_WORDS * 8];
    octets[..name.as_wire().len()].copy_from_slice(name.as_wire());
    let mut words = [0; NAME_WORDS];
    for (word, chunk) in words.iter_mut().zip(octets.chunks_exact(8)) {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(chunk);
        *word = u64::from_le_bytes(bytes);
    }
    words
}

/// Places all entries, whose names differ; `seeds` gives hash keys until one serves.
pub fn place(
    entries: &[Entry<'_>],
    mut seeds: impl FnMut() -> [u64; 2],
) -> Result<(Vec<Owner>, [u64; 2]), CompileError> {
    let least = (entries.len() * SPARSENESS).max(MIN_OWNERS as usize);
    let mut slots = u32::try_from(least.next_power_of_two()).map_err(|_| CompileError::TooManyNames)?;
    loop {
        for _ in 0..TRIES {
            let seed = seeds();
            if let Some(owners) = try_place(entries, slots, &seed) {
                return Ok((owners, seed));
            }
        }
        slots = slots.checked_mul(2).ok_or(CompileError::TooManyNames)?;
    }
}

fn try_place(entries: &[Entry<'_>], slots: u32, seed: &[u64; 2]) -> Option<Vec<Owner>> {
    let hash_of = |name: &Name| hash_name(seed, &words(name), name.as_wire().len() as u32);
    let hashes: Vec<u64> = entries.iter().map(|entry| hash_of(&entry.name)).collect();
    // Two configured names of one hash would cost a comparison each time: another key.
    let mut sorted = hashes.clone();
    sorted.sort_unstable();
    if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
        return None;
    }
    let mut owners = vec![Owner::EMPTY; slots as usize];
    for (entry, hash) in entries.iter().zip(hashes) {
        let wire = entry.name.as_wire();
        let len = wire.len();
        let mut octets = [0; INLINE_NAME];
        if len <= INLINE_NAME {
            octets[..len].copy_from_slice(wire);
        } else {
            octets[..4].copy_from_slice(&entry.line.to_le_bytes());
        }
        let owner = Owner { hash, wildcard: NONE, name_len: len as u8, name: octets, ..entry.owner };
        insert(&mut owners, owner)?;
    }
    for wildcard in entries.iter().map(|entry| &entry.name).filter(|name| name.is_wildcard()) {
        let at = find(&owners, hash_of(wildcard))?;
        let above = find(&owners, hash_of(&wildcard.parent()?))?;
        owners[above].wildcard = at as u32;
    }
    Some(owners)
}

/// Inserts by Robin Hood hashing: whoever is farther from home stays, the other moves on. So no name
/// is much farther than the others, and a table half full still has all within reach.
fn insert(owners: &mut [Owner], mut owner: Owner) -> Option<()> {
    let mask = owners.len() as u32 - 1;
    let mut slot = owner.hash as u32 & mask;
    loop {
        let distance = |owner: &Owner| slot.wrapping_sub(owner.hash as u32) & mask;
        if distance(&owner) >= MAX_PROBES as u32 {
            return None;
        }
        let held = owners.get_mut(slot as usize)?;
        if held.name_len == 0 {
            *held = owner;
            return Some(());
        }
        if distance(held) < distance(&owner) {
            std::mem::swap(held, &mut owner);
        }
        slot = (slot + 1) & mask;
    }
}

/// The slot that holds a hash.
fn find(owners: &[Owner], hash: u64) -> Option<usize> {
    let mask = owners.len() - 1;
    (0..MAX_PROBES)
        .map(|probe| (hash as usize).wrapping_add(probe) & mask)
        .find(|&slot| owners[slot].name_len != 0 && owners[slot].hash == hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_half_full_has_every_name_within_reach() {
        let entries: Vec<Entry<'_>> = (0..8000)
            .map(|at| {
                let name: Name = format!("n{at}.x.test").parse().unwrap();
                Entry { name: Cow::Owned(name), owner: Owner::EMPTY, line: 0 }
            })
            .collect();
        let mut keys = 0;
        let (owners, seed) = place(&entries, || {
            keys += 1;
            [keys, !keys]
        })
        .unwrap();
        assert_eq!(owners.len(), 16384);
        for Entry { name, .. } in &entries {
            let hash = hash_name(&seed, &words(name), name.as_wire().len() as u32);
            assert!(find(&owners, hash).is_some(), "{name}");
        }
    }
}
