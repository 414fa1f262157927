//! The owner table: a slot for every name, where its hash leads to and to no other name's.
//!
//! Hashes are put into buckets. Bucket by bucket, those with most names first, a displacement is looked for with which all its
//! names come to free slots. So a look-up reads one slot, and four of five slots are taken.

use std::borrow::Cow;
use std::collections::HashSet;

use super::CompileError;
use crate::abi::{INLINE_NAME, NAME_WORDS, NONE, Owner};
use crate::lookup::{bucket, hash_name, slot};
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

/// Where all names are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The slots.
    pub owners: Vec<Owner>,
    /// The displacement of each bucket.
    pub displacements: Vec<u16>,
    /// The hash key.
    pub seed: [u64; 2],
}

/// Names for each bucket, on average: more make the list of displacements shorter and the search for them longer.
const BUCKET: usize = 5;
/// Slots at least.
const MIN_SLOTS: usize = 16;
/// Hash keys tried with one number of slots before there are more.
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
pub fn place(entries: &[Entry<'_>], mut seeds: impl FnMut() -> [u64; 2]) -> Result<Placed, CompileError> {
    let mut slots = (entries.len() + entries.len() / 4).max(MIN_SLOTS);
    loop {
        let count = u32::try_from(slots).map_err(|_| CompileError::TooManyNames)?;
        for left in (0..TRIES).rev() {
            if let Some(placed) = try_place(entries, count, seeds(), left == 0) {
                return Ok(placed);
            }
        }
        slots += slots / 8;
    }
}

/// Places all entries with this key, or none. `alike_serve`: also when some names hash alike under it.
fn try_place(entries: &[Entry<'_>], slots: u32, seed: [u64; 2], alike_serve: bool) -> Option<Placed> {
    let hash_of = |name: &Name| hash_name(&seed, &words(name), name.as_wire().len() as u32);
    let hashes: Vec<u64> = entries.iter().map(|entry| hash_of(&entry.name)).collect();
    let mut differing = hashes.clone();
    differing.sort_unstable();
    // Names that hash alike under every key differ in nothing but the case bit of octets. Only one of them can be found, and
    // stands for all.
    let alike: HashSet<u64> =
        differing.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    if !alike.is_empty() && !alike_serve {
        return None;
    }
    differing.dedup();
    let displacements = displace(&differing, slots)?;
    let slot_of = |hash| {
        let displacement = displacements[bucket(hash, displacements.len() as u32) as usize];
        slot(hash, displacement, slots) as usize
    };
    let mut owners = vec![Owner::EMPTY; slots as usize];
    for (entry, &hash) in entries.iter().zip(&hashes) {
        let wire = entry.name.as_wire();
        let len = wire.len();
        let mut octets = [0; INLINE_NAME];
        if len <= INLINE_NAME {
            octets[..len].copy_from_slice(wire);
        } else {
            octets[..4].copy_from_slice(&entry.line.to_le_bytes());
        }
        let mut owner = Owner { hash, wildcard: NONE, name_len: len as u8, name: octets, ..entry.owner };
        if alike.contains(&hash) {
            owner.flags |= Owner::PASS;
        }
        owners[slot_of(hash)] = owner;
    }
    for wildcard in entries.iter().map(|entry| &entry.name).filter(|name| name.is_wildcard()) {
        let [at, above] = [hash_of(wildcard), hash_of(&wildcard.parent()?)];
        if !alike.contains(&at) && !alike.contains(&above) {
            owners[slot_of(above)].wildcard = slot_of(at) as u32;
        }
    }
    Some(Placed { owners, displacements, seed })
}

/// A displacement for each bucket, so that no two hashes, which differ, have the same slot; `None` when there are none with this
/// key.
fn displace(hashes: &[u64], slots: u32) -> Option<Vec<u16>> {
    let buckets = hashes.len().div_ceil(BUCKET).max(1);
    // Hashes by bucket, and where each bucket's begin.
    let bucket_of = |hash: u64| bucket(hash, buckets as u32) as usize;
    let mut starts = vec![0u32; buckets + 1];
    hashes.iter().for_each(|&hash| starts[bucket_of(hash) + 1] += 1);
    for at in 0..buckets {
        starts[at + 1] += starts[at];
    }
    let mut sorted = vec![0; hashes.len()];
    let mut next = starts.clone();
    for &hash in hashes {
        let place = &mut next[bucket_of(hash)];
        sorted[*place as usize] = hash;
        *place += 1;
    }
    let members = |bucket: usize| &sorted[starts[bucket] as usize..starts[bucket + 1] as usize];
    let mut order: Vec<usize> = (0..buckets).collect();
    order.sort_by_key(|&bucket| std::cmp::Reverse(members(bucket).len()));

    let mut displacements = vec![0; buckets];
    let mut taken = vec![false; slots as usize];
    let mut chosen = Vec::new();
    for bucket in order {
        displacements[bucket] = (0..=u16::MAX).find(|&displacement| {
            chosen.clear();
            members(bucket).iter().all(|&hash| {
                let slot = slot(hash, displacement, slots) as usize;
                let free = !taken[slot] && !chosen.contains(&slot);
                chosen.push(slot);
                free
            })
        })?;
        chosen.iter().for_each(|&slot| taken[slot] = true);
    }
    Some(displacements)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str) -> Entry<'static> {
        Entry { name: Cow::Owned(name.parse().unwrap()), owner: Owner::EMPTY, line: 0 }
    }

    fn placed(entries: &[Entry<'_>]) -> Placed {
        let mut keys = 0;
        let seeds = || {
            keys += 1;
            [keys, !keys]
        };
        place(entries, seeds).unwrap()
    }

    fn find<'p>(placed: &'p Placed, name: &Name) -> &'p Owner {
        let hash = hash_name(&placed.seed, &words(name), name.as_wire().len() as u32);
        let displacement = placed.displacements[bucket(hash, placed.displacements.len() as u32) as usize];
        &placed.owners[slot(hash, displacement, placed.owners.len() as u32) as usize]
    }

    #[test]
    fn every_name_is_where_its_hash_leads_to() {
        for count in [0, 1, 2, 12, 13, 100, 8000] {
            let entries: Vec<_> = (0..count).map(|at| entry(&format!("n{at}.x.test"))).collect();
            let placed = placed(&entries);
            assert_eq!(placed.owners.len(), (count + count / 4).max(MIN_SLOTS));
            assert_eq!(placed.displacements.len(), count.div_ceil(BUCKET).max(1));
            for Entry { name, .. } in &entries {
                let owner = find(&placed, name);
                assert_eq!(owner.name[..owner.name_len.into()], *name.as_wire(), "{name}");
            }
            assert_eq!(placed.owners.iter().filter(|owner| owner.name_len > 0).count(), count);
        }
    }

    #[test]
    fn the_parent_of_a_wildcard_names_its_slot() {
        let placed = placed(&["x.test", "*.x.test", "a.x.test"].map(entry));
        let [parent, other] = ["x.test", "a.x.test"].map(|name| find(&placed, &name.parse().unwrap()));
        let wildcard = &placed.owners[parent.wildcard as usize];
        assert_eq!(wildcard, find(&placed, &"*.x.test".parse().unwrap()));
        assert_eq!(other.wildcard, NONE);
    }

    #[test]
    fn of_names_that_hash_alike_one_stands_for_all() {
        let names = [&b"\x02a[\x01x\0"[..], b"\x02a{\x01x\0", b"\x01*\x02a[\x01x\0", b"\x01x\0"];
        let names = names.map(|wire| Name::from_wire(wire).unwrap());
        let entries: Vec<_> = names
            .iter()
            .map(|name| Entry { name: Cow::Borrowed(name), owner: Owner::EMPTY, line: 0 })
            .collect();
        let placed = placed(&entries);
        let [one, other, wildcard, apart] = names.each_ref().map(|name| find(&placed, name));
        assert_eq!(one, other);
        assert_eq!((one.flags, one.wildcard), (Owner::PASS, NONE));
        assert_eq!((wildcard.flags, apart.flags), (0, 0));
        assert_eq!(placed.owners.iter().filter(|owner| owner.name_len > 0).count(), 3);
    }

    #[test]
    fn what_does_not_fit_has_no_displacement() {
        assert_eq!(displace(&[7, 8], 1), None);
        assert_eq!(displace(&[], 16), Some(vec![0]));
    }
}
