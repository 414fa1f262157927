//! How many elements of each table fit, chosen when the maps are made.

use std::fmt;

use router_common::abi::{ANSWERS_LINE, MAX_TALLIES, TALLY_ROW, map};
use router_common::tables::Tables;

/// Elements of each table that fit into one half.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// Owner slots.
    pub owners: u32,
    /// Words of four displacements.
    pub buckets: u32,
    /// Words of four regions.
    pub regions: u32,
    /// Answers, of whole lines: a line does not hold those of both halves.
    pub answers: u32,
    /// Cells.
    pub cells: u32,
    /// Lines.
    pub lines: u32,
    /// Lines of locations.
    pub locations: u32,
    /// Tallies, of whole elements of TALLIES, and credits.
    pub tallies: u32,
}

/// A table that does not fit its maps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfRoom {
    /// Name of the map.
    pub table: &'static str,
    /// Elements asked for.
    pub needed: u64,
    /// Elements there are, per half.
    pub capacity: u32,
}

impl fmt::Display for OutOfRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, needed, capacity } = self;
        write!(f, "{table} has room for {capacity} elements, {needed} are needed")
    }
}

impl std::error::Error for OutOfRoom {}

/// Most elements of a half: both halves, and the regions and buckets of four per word, are counted with `u32`.
const MOST: u32 = u32::MAX / 8;

/// `used` with head-room, in whole and eighths, and `more` on top.
fn head_room(used: usize, eighths: u64, more: u64) -> u32 {
    let wanted = (used as u64).saturating_mul(eighths) / 8 + more;
    u32::try_from(wanted).unwrap_or(u32::MAX).min(MOST)
}

impl Capacity {
    /// Room for tables and what they may become: an eighth more names and locations; half as many regions and answers
    /// again; a quarter more tallies, which cost for every CPU; three quarters more cells and lines, because a change writes new ones
    /// while the old ones are read. (A change of nearly everything goes into the other half.)
    pub fn for_tables(tables: &Tables) -> Self {
        Self {
            owners: head_room(tables.owners.len(), 9, 64),
            buckets: head_room(tables.buckets.len(), 9, 16),
            regions: head_room(tables.regions.len(), 12, 1024),
            answers: head_room(tables.answers.len(), 12, 4096) & !(ANSWERS_LINE as u32 - 1),
            cells: head_room(tables.cells.len(), 14, 4096),
            lines: head_room(tables.lines.len(), 14, 1024),
            locations: head_room(tables.locations.len(), 9, 1024),
            tallies: head_room(tables.credits.len(), 10, 1024)
                .min(MAX_TALLIES)
                .next_multiple_of(TALLY_ROW as u32),
        }
    }

    /// Whether tables fit.
    ///
    /// # Errors
    /// Names the first table that does not.
    pub fn fits(&self, tables: &Tables) -> Result<(), OutOfRoom> {
        let check = |table, used: usize, capacity| {
            let needed = used as u64;
            if needed > u64::from(capacity) { Err(OutOfRoom { table, needed, capacity }) } else { Ok(()) }
        };
        check(map::OWNERS, tables.owners.len(), self.owners)?;
        check(map::BUCKETS, tables.buckets.len(), self.buckets)?;
        check(map::REGIONS, tables.regions.len(), self.regions)?;
        check(map::ANSWERS, tables.answers.len(), self.answers)?;
        check(map::CELLS, tables.cells.len(), self.cells)?;
        check(map::LINES, tables.lines.len(), self.lines)?;
        check(map::LOCATIONS, tables.locations.len(), self.locations)?;
        check(map::TALLIES, tables.credits.len(), self.tallies)
    }
}
