//! Model and views to tables: the oracle asked once for every cell, ahead of any query.
//!
//! A *block* holds the answers of one profile in one zone, two (A, AAAA) for each region of the
//! profile's partition; every name bound to the profile in that zone shares it. A changed endpoint
//! touches only the blocks of the profiles that can see it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;

use crate::abi::{Answer, Generation, INLINE_NAME, LocationEntry, LocationKey4, LocationKey6, NONE, Owner};
use crate::atlas::{Atlas, Partition};
use crate::decide::{Asked, Oracle, Snapshot};
use crate::diff::Operation;
use crate::model::{EndpointId, Model, ProfileId, ZoneId, rtype};
use crate::name::Name;
use crate::tables::{Frontage, Tables, TooMany};

mod alias;
mod content;
mod owners;
mod piece;
mod store;

use content::Content;
pub use owners::words;
use store::Store;
pub use store::{OutOfRoom, Room};

/// Why there are no tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompileError {
    /// More names than a table index can name.
    TooManyNames,
    /// More answers, cells or lines than a table index can name.
    TooLarge,
    /// More addresses, VLANs or interfaces than the fast path holds.
    Frontage(TooMany),
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyNames => f.write_str("too many names for the owner table"),
            Self::TooLarge => f.write_str("the answers do not fit into 32-bit indices"),
            Self::Frontage(too_many) => too_many.fmt(f),
        }
    }
}

impl std::error::Error for CompileError {}

impl From<TooMany> for CompileError {
    fn from(too_many: TooMany) -> Self {
        Self::Frontage(too_many)
    }
}

impl From<OutOfRoom> for CompileError {
    fn from(OutOfRoom: OutOfRoom) -> Self {
        Self::TooLarge
    }
}

/// Answers of one profile in one zone.
#[derive(Clone, PartialEq, Debug)]
struct Block {
    profile: ProfileId,
    zone: ZoneId,
    first_answer: u32,
    /// By region: a location that stands for it.
    representatives: Vec<u32>,
    /// By answer: what it holds.
    contents: Vec<Arc<Content>>,
}

/// Tables, and what it takes to change them in place.
#[derive(Clone, PartialEq, Debug)]
pub struct Compiled {
    /// The image of the half, as it is after every operation given out so far.
    pub tables: Tables,
    blocks: Vec<Block>,
    blocks_of: Vec<Vec<u32>>,
    store: Store,
}

/// Compiles everything. `seeds` gives hash keys, more than one when names collide.
pub fn compile(
    snapshot: &Snapshot,
    frontage: &Frontage,
    seeds: impl FnMut() -> [u64; 2],
    serial: u64,
) -> Result<Compiled, CompileError> {
    let model = &snapshot.model;
    let oracle = Oracle::new(snapshot);
    let mut store = Store::default();
    let mut written = Vec::new();
    let (regions, divisions) = regions(snapshot)?;

    let mut blocks: Vec<Block> = Vec::new();
    let mut blocks_of = vec![Vec::new(); model.profiles().len()];
    let mut block_of: HashMap<(ProfileId, ZoneId), u32> = HashMap::new();
    let mut answers: Vec<Answer> = Vec::new();
    let mut entries: BTreeMap<Name, owners::Entry> = BTreeMap::new();
    for (name, place) in places(model) {
        let zone_len = model.zone(place.zone).name.as_wire().len() as u8;
        let mut owner = Owner { zone_len, ..Owner::EMPTY };
        match place.profile {
            Some(profile) if divisions[profile.0 as usize] != Division::TooFine => {
                let block = *block_of.entry((profile, place.zone)).or_insert_with(|| {
                    blocks_of[profile.0 as usize].push(blocks.len() as u32);
                    blocks.push(Block {
                        profile,
                        zone: place.zone,
                        first_answer: 0,
                        representatives: Vec::new(),
                        contents: Vec::new(),
                    });
                    blocks.len() as u32 - 1
                });
                let block = &mut blocks[block as usize];
                if block.contents.is_empty() {
                    block.first_answer = u32::try_from(answers.len()).map_err(|_| CompileError::TooLarge)?;
                    block.representatives = representatives(snapshot, profile);
                    for content in contents(&oracle, snapshot, block) {
                        answers.push(store.place(&content, &Room::UNBOUNDED, &mut written)?);
                        block.contents.push(content);
                    }
                    written.clear();
                }
                owner.first_answer = block.first_answer;
                owner.partition = match divisions[profile.0 as usize] {
                    Division::At(start) => start,
                    Division::None | Division::TooFine => NONE,
                };
                owner.flags = if model.profile(profile).ecs { 0 } else { Owner::ECS_OFF };
            }
            _ => owner.flags = Owner::PASS,
        }
        let mut entry = owners::Entry { owner, line: 0 };
        if name.as_wire().len() > INLINE_NAME {
            entry.line = store.place_lines(name.as_wire(), &Room::UNBOUNDED, &mut written)?.0;
        }
        entries.insert(name, entry);
    }
    let (owners, seed) = owners::place(&entries, seeds)?;
    let mut generation = frontage.generation(seed, serial, owners.len() as u32 - 1)?;
    if entries.keys().any(Name::is_wildcard) {
        generation.flags |= Generation::WILDCARDS;
    }
    let (locations4, locations6) = locations(&snapshot.atlas);
    let tables = Tables {
        generation,
        owners,
        regions,
        answers,
        cells: store.cells.clone(),
        lines: store.lines.clone(),
        locations4,
        locations6,
    };
    Ok(Compiled { tables, blocks, blocks_of, store })
}

impl Compiled {
    /// Recompiles the blocks that can see a changed endpoint. `snapshot` differs from the compiled one
    /// only in the health of `changed`. The operations leave `room` for what is there; on
    /// [`OutOfRoom`] this value is spent and everything has to be compiled anew.
    pub fn update(
        &mut self,
        snapshot: &Snapshot,
        changed: &[EndpointId],
        room: &Room,
    ) -> Result<Vec<Operation>, OutOfRoom> {
        let oracle = Oracle::new(snapshot);
        let mut operations = Vec::new();
        for profile in seeing(&snapshot.model, changed) {
            let Some(blocks) = self.blocks_of.get(profile.0 as usize) else { continue };
            for &block in blocks {
                let block = &mut self.blocks[block as usize];
                for (i, content) in contents(&oracle, snapshot, block).into_iter().enumerate() {
                    if block.contents[i] == content {
                        continue;
                    }
                    let index = block.first_answer + i as u32;
                    let answer = self.store.place(&content, room, &mut operations)?;
                    operations.push(Operation::SetAnswer { index, answer });
                    self.tables.answers[index as usize] = answer;
                    let old = std::mem::replace(&mut block.contents[i], content);
                    self.store.release(&old);
                }
            }
        }
        for operation in &operations {
            match *operation {
                Operation::WriteLine { index, line } => {
                    let index = index as usize;
                    if index >= self.tables.lines.len() {
                        self.tables.lines.resize(index + 1, line);
                    }
                    self.tables.lines[index] = line;
                }
                Operation::WriteCell { index, cell } => {
                    let index = index as usize;
                    if index >= self.tables.cells.len() {
                        self.tables.cells.resize(index + 1, cell);
                    }
                    self.tables.cells[index] = cell;
                }
                Operation::SetAnswer { .. } => {}
            }
        }
        Ok(operations)
    }

    /// Whether places wait for [`Compiled::reclaim`].
    pub fn has_retired(&self) -> bool {
        self.store.has_retired()
    }

    /// Makes the places retired so far usable again; to be called when every operation given out was
    /// written and no reader can still be in the old places.
    pub fn reclaim(&mut self) {
        self.store.reclaim();
    }
}

/// The profiles whose answers can depend on these endpoints: their own, and all above.
fn seeing(model: &Model, changed: &[EndpointId]) -> BTreeSet<ProfileId> {
    let mut profiles = BTreeSet::new();
    let known = |profile: &ProfileId| (profile.0 as usize) < model.profiles().len();
    let mut next: Vec<ProfileId> = changed.iter().map(|endpoint| endpoint.profile).filter(known).collect();
    while let Some(profile) = next.pop() {
        if profiles.insert(profile) {
            next.extend(model.parents(profile).iter().map(|endpoint| endpoint.profile));
        }
    }
    profiles
}

/// What an owner name is to the fast path.
struct Place {
    zone: ZoneId,
    profile: Option<ProfileId>,
}

/// Every name that exists, with the profile that the fast path answers from.
fn places(model: &Model) -> BTreeMap<Name, Place> {
    let mut places = BTreeMap::new();
    for (i, zone) in model.zones().iter().enumerate() {
        let id = ZoneId(i as u32);
        for name in zone.nodes.keys() {
            let mut at = Some(name.clone());
            while let Some(here) = at.filter(|here| here.is_within(&zone.name)) {
                at = here.parent();
                places.entry(here).or_insert(Place { zone: id, profile: None });
            }
        }
    }
    for (name, binding) in model.bindings() {
        let node = model.zone(binding.zone).nodes.get(name);
        let alias = node.is_some_and(|node| node.contains_key(&rtype::CNAME));
        let profile = binding.profile.filter(|_| !alias);
        places.insert(name.clone(), Place { zone: binding.zone, profile });
    }
    places
}

/// Where a profile's regions start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Division {
    /// It ignores the client.
    None,
    /// Here.
    At(u32),
    /// It has more regions than a table can name: userspace answers.
    TooFine,
}

/// The region words, and each profile's place in them. Equal partitions are one.
fn regions(snapshot: &Snapshot) -> Result<(Vec<u64>, Vec<Division>), CompileError> {
    let mut flat: Vec<u16> = Vec::new();
    let mut starts: HashMap<*const u16, u32> = HashMap::new();
    let mut divisions = Vec::with_capacity(snapshot.model.profiles().len());
    for i in 0..snapshot.model.profiles().len() {
        divisions.push(match snapshot.atlas.partition(ProfileId(i as u32)) {
            Partition::Trivial => Division::None,
            Partition::TooMany => Division::TooFine,
            Partition::Regions { of, .. } => match starts.get(&of.as_ptr()) {
                Some(&start) => Division::At(start),
                None => {
                    let start = u32::try_from(flat.len()).ok().filter(|&start| start != NONE);
                    let start = start.ok_or(CompileError::TooLarge)?;
                    flat.extend_from_slice(&of);
                    // The atlas keeps every partition alive, so a pointer names one.
                    starts.insert(of.as_ptr(), start);
                    Division::At(start)
                }
            },
        });
    }
    let words = flat
        .chunks(4)
        .map(|chunk| chunk.iter().rev().fold(0u64, |word, &region| (word << 16) | u64::from(region)))
        .collect();
    Ok((words, divisions))
}

fn representatives(snapshot: &Snapshot, profile: ProfileId) -> Vec<u32> {
    match snapshot.atlas.partition(profile) {
        Partition::Regions { representatives, .. } => representatives,
        Partition::Trivial | Partition::TooMany => vec![0],
    }
}

type Locations<K> = Vec<(K, LocationEntry)>;

/// The location tables, in order of address and then of length.
fn locations(atlas: &Atlas) -> (Locations<LocationKey4>, Locations<LocationKey6>) {
    let entry = |location, scope, special| LocationEntry {
        location,
        scope,
        flags: if special { LocationEntry::SPECIAL } else { 0 },
        pad: [0; 2],
    };
    let mut ipv4: Locations<LocationKey4> = atlas
        .entries4()
        .map(|(address, len, location, special)| {
            let key = LocationKey4 { prefix_len: u32::from(len), address: address.octets() };
            (key, entry(location, len, special))
        })
        .collect();
    let mut ipv6: Locations<LocationKey6> = atlas
        .entries6()
        .map(|(address, len, location, special)| {
            let key = LocationKey6 { prefix_len: u32::from(len), address: address.octets() };
            (key, entry(location, len, special))
        })
        .collect();
    ipv4.sort_unstable_by_key(|(key, _)| (key.address, key.prefix_len));
    ipv6.sort_unstable_by_key(|(key, _)| (key.address, key.prefix_len));
    (ipv4, ipv6)
}

/// What a block's answers hold, in their order.
fn contents(oracle: &Oracle<'_>, snapshot: &Snapshot, block: &Block) -> Vec<Arc<Content>> {
    let mut contents = Vec::with_capacity(block.representatives.len() * 2);
    for &location in &block.representatives {
        for asked in [Asked::A, Asked::Aaaa] {
            let choice = oracle.choose(block.profile, asked, snapshot.atlas.location(location));
            contents.push(Content::of(&choice, &snapshot.model, block.zone));
        }
    }
    contents
}

#[cfg(test)]
mod tests;
