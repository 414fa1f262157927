//! Model and views to tables: the oracle asked once for every cell, ahead of any query.
//!
//! A *block* holds the answers of one profile in one zone, two (A, AAAA) for each region of the
//! profile's partition; every name bound to the profile in that zone shares it. A changed endpoint
//! touches only the blocks of the profiles that can see it.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::abi::{ANSWERS_LINE, Answer, Credit, Generation, INLINE_NAME, MAX_LOCATIONS, NONE, Owner};
use crate::atlas::Partition;
use crate::decide::{Asked, Depends, Oracle, Snapshot};
use crate::diff::Operation;
use crate::model::{EndpointId, Model, ProfileId, ZoneId};
use crate::tables::{Frontage, Tables, TooMany};

mod alias;
mod content;
pub mod locations;
mod owners;
mod piece;
mod places;
mod store;
mod tallies;

use content::{Content, Encoder};
pub use owners::words;
use places::{Place, places};
pub use store::{OutOfRoom, Room};
use store::{Shelf, Store};

/// Why there are no tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompileError {
    /// More names than a table index can name.
    TooManyNames,
    /// More answers, cells or lines than a table index can name.
    TooLarge,
    /// More locations than have a number ([`MAX_LOCATIONS`]).
    TooManyLocations,
    /// More addresses, VLANs or interfaces than the fast path holds.
    Frontage(TooMany),
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyNames => f.write_str("too many names for the owner table"),
            Self::TooLarge => f.write_str("the answers or the prefixes do not fit into the tables' indices"),
            Self::TooManyLocations => write!(
                f,
                "the profiles tell more kinds of clients apart than the fast path holds (allowed: {MAX_LOCATIONS})"
            ),
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
    /// By region: a location that stands for it, and whose health its answers can depend on.
    regions: Vec<(u32, Depends)>,
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
    let encoders = encoders(model);
    let (regions, divisions) = regions(snapshot)?;
    let mut store = Store::default();
    let (mut cells, mut lines, mut credits) = (Vec::new(), Vec::new(), vec![Credit::EMPTY]);
    let mut shelf = Shelf {
        cells: &mut cells,
        lines: &mut lines,
        credits: &mut credits,
        model,
        room: Room::UNBOUNDED,
        operations: None,
    };

    let mut blocks: Vec<Block> = Vec::new();
    let mut blocks_of = vec![Vec::new(); model.profiles().len()];
    let mut block_of: HashMap<(ProfileId, ZoneId), u32, FixedState> = HashMap::default();
    let mut answers: Vec<Answer> = Vec::new();
    let mut entries: Vec<owners::Entry<'_>> = Vec::new();
    for Place { name, zone, profile } in places(model) {
        let zone_len = model.zone(zone).name.as_wire().len() as u8;
        let mut owner = Owner { zone_len, ..Owner::EMPTY };
        match profile.map(|profile| (profile, divisions.get(profile.0 as usize))) {
            Some((profile, Some(&division))) if division != Division::TooFine => {
                let first_answer = match block_of.get(&(profile, zone)) {
                    Some(&block) => blocks[block as usize].first_answer,
                    None => {
                        let block = blocks.len() as u32;
                        block_of.insert((profile, zone), block);
                        blocks_of[profile.0 as usize].push(block);
                        let regions = divided(snapshot, &oracle, profile);
                        keep_in_line(&mut answers, 2 * regions.len());
                        let first_answer =
                            u32::try_from(answers.len()).map_err(|_| CompileError::TooLarge)?;
                        let mut contents = Vec::with_capacity(regions.len() * 2);
                        for (location, asked, _) in questions(&regions) {
                            let choice = oracle.choose(profile, asked, snapshot.atlas.location(location));
                            let content = encoders[zone.0 as usize].encode(choice);
                            answers.push(store.answer(&content, &mut shelf)?);
                            contents.push(content);
                        }
                        blocks.push(Block { profile, zone, first_answer, regions, contents });
                        first_answer
                    }
                };
                owner.first_answer = first_answer;
                owner.partition = match division {
                    Division::At(start) => start,
                    Division::None | Division::TooFine => NONE,
                };
                owner.flags = if model.profile(profile).ecs { 0 } else { Owner::ECS_OFF };
            }
            _ => owner.flags = Owner::PASS,
        }
        let long = name.as_wire().len() > INLINE_NAME;
        let line = if long { store.place_lines(name.as_wire(), &mut shelf)?.0 } else { 0 };
        entries.push(owners::Entry { name, owner, line });
    }
    let placed = owners::place(&entries, seeds)?;
    let mut generation = frontage.generation(placed.seed, serial)?;
    generation.owner_slots = placed.owners.len() as u32;
    generation.bucket_count = placed.displacements.len() as u32;
    if entries.iter().any(|entry| entry.name.is_wildcard()) {
        generation.flags |= Generation::WILDCARDS;
    }
    let (locations, roots) = locations::of(&snapshot.atlas)?;
    generation.location_roots = roots;
    let (owners, buckets) = (placed.owners, words_of(&placed.displacements));
    let tables = Tables { generation, owners, buckets, regions, answers, cells, lines, credits, locations };
    Ok(Compiled { tables, blocks, blocks_of, store })
}

/// Leaves places free so that the next `count` answers are in one cache line, when one holds them.
fn keep_in_line(answers: &mut Vec<Answer>, count: usize) {
    let used = answers.len() % ANSWERS_LINE;
    if count <= ANSWERS_LINE && used + count > ANSWERS_LINE {
        answers.resize(answers.len() + ANSWERS_LINE - used, Answer::default());
    }
}

/// What a block's answers are asked about, in their order: a location and a type; and whose health they
/// can depend on.
fn questions(regions: &[(u32, Depends)]) -> impl Iterator<Item = (u32, Asked, Depends)> {
    regions
        .iter()
        .flat_map(|&(location, depends)| [(location, Asked::A, depends), (location, Asked::Aaaa, depends)])
}

/// What makes contents, for each zone.
fn encoders(model: &Model) -> Vec<Encoder> {
    model.zones().iter().map(Encoder::new).collect()
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
        let Tables { answers, cells, lines, credits, .. } = &mut self.tables;
        let model: &Model = &snapshot.model;
        let mut encoders: HashMap<ZoneId, Encoder, FixedState> = HashMap::default();
        let seeing = Seeing::new(&snapshot.model, changed);
        for &profile in &seeing.profiles {
            let Some(blocks) = self.blocks_of.get(profile.0 as usize) else { continue };
            for &block in blocks {
                let Some(block) = self.blocks.get_mut(block as usize) else { continue };
                let zone = block.zone;
                let encoder = encoders.entry(zone).or_insert_with(|| Encoder::new(snapshot.model.zone(zone)));
                for (index, (held, (location, asked, depends))) in
                    (block.first_answer..).zip(block.contents.iter_mut().zip(questions(&block.regions)))
                {
                    if !seeing.concerns(profile, depends) {
                        continue;
                    }
                    let choice = oracle.choose(profile, asked, snapshot.atlas.location(location));
                    let content = encoder.encode(choice);
                    if *held == content {
                        continue;
                    }
                    let told = Some(&mut operations);
                    let mut shelf = Shelf { cells, lines, credits, model, room: *room, operations: told };
                    let answer = self.store.answer(&content, &mut shelf)?;
                    operations.push(Operation::SetAnswer { index, answer });
                    if let Some(word) = answers.get_mut(index as usize) {
                        *word = answer;
                    }
                    let old = std::mem::replace(held, content);
                    self.store.withdraw(&old);
                }
            }
        }
        Ok(operations)
    }

    /// Whether answers are not counted because they are credited in more ways than [`crate::abi::MAX_TALLIES`].
    pub fn is_out_of_tallies(&self) -> bool {
        self.store.is_out_of_tallies()
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

/// What can depend on changed endpoints.
struct Seeing {
    /// They themselves, and those that nest them at any depth.
    endpoints: HashSet<EndpointId, FixedState>,
    /// Whose endpoints these are, ascending.
    profiles: Vec<ProfileId>,
}

impl Seeing {
    fn new(model: &Model, changed: &[EndpointId]) -> Self {
        let mut endpoints: HashSet<EndpointId, FixedState> = HashSet::default();
        let mut profiles: HashSet<ProfileId, FixedState> = HashSet::default();
        let known = |endpoint: &EndpointId| (endpoint.profile.0 as usize) < model.profiles().len();
        let mut next: Vec<EndpointId> = changed.iter().copied().filter(known).collect();
        while let Some(endpoint) = next.pop() {
            if endpoints.insert(endpoint) && profiles.insert(endpoint.profile) {
                next.extend(model.parents(endpoint.profile));
            }
        }
        let mut profiles: Vec<ProfileId> = profiles.into_iter().collect();
        profiles.sort_unstable();
        Self { endpoints, profiles }
    }

    /// Whether an answer of a profile that can see a change depends on it.
    fn concerns(&self, profile: ProfileId, depends: Depends) -> bool {
        match depends {
            Depends::Nothing => false,
            Depends::One(index) => self.endpoints.contains(&EndpointId { profile, index }),
            Depends::Anything => true,
        }
    }
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
    Ok((words_of(&flat), divisions))
}

/// Four numbers a word, the first lowest.
fn words_of(numbers: &[u16]) -> Vec<u64> {
    let word = |four: &[u16]| four.iter().rev().fold(0, |word, &number| word << 16 | u64::from(number));
    numbers.chunks(4).map(word).collect()
}

/// A profile's regions: a location that stands for each, and whose health decides there.
fn divided(snapshot: &Snapshot, oracle: &Oracle<'_>, profile: ProfileId) -> Vec<(u32, Depends)> {
    let representatives = match snapshot.atlas.partition(profile) {
        Partition::Regions { representatives, .. } => representatives,
        Partition::Trivial | Partition::TooMany => vec![0],
    };
    let depends = |location| oracle.depends(profile, snapshot.atlas.location(location));
    representatives.into_iter().map(|location| (location, depends(location))).collect()
}

#[cfg(test)]
mod tests;
