//! Places for contents in the cell and line tables: equal contents share one, freed ones wait. The tables
//! themselves are the image that the look-up reads; only places are kept here.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::content::{Body, Content};
use super::piece;
use super::tallies::Tallies;
use crate::abi::{Answer, Cell, Credit, INLINE_PIECE, LINE, Line, MAX_TALLIES};
use crate::diff::Operation;
use crate::model::Model;

/// How many cells, lines and tallies a half can hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Cells.
    pub cells: u32,
    /// Lines.
    pub lines: u32,
    /// Tallies.
    pub tallies: u32,
}

impl Room {
    /// As many as an index can name.
    pub const UNBOUNDED: Self = Self { cells: u32::MAX - 1, lines: u32::MAX - 1, tallies: MAX_TALLIES };
}

/// A half is full: a new generation is needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfRoom;

impl std::fmt::Display for OutOfRoom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no free cells, lines or tallies are left in this generation")
    }
}

impl std::error::Error for OutOfRoom {}

/// Runs of consecutive places in one table.
#[derive(Clone, PartialEq, Debug, Default)]
struct Runs {
    /// Places never used yet start here.
    next: u32,
    /// Free runs by length.
    free: BTreeMap<u32, Vec<u32>>,
    /// Freed, but a reader may still be in them.
    retired: Vec<(u32, u32)>,
}

impl Runs {
    fn take(&mut self, len: u32, room: u32) -> Result<u32, OutOfRoom> {
        if let Some(first) = self.free.get_mut(&len).and_then(Vec::pop) {
            return Ok(first);
        }
        let first = self.next;
        self.next = first.checked_add(len).filter(|&end| end <= room).ok_or(OutOfRoom)?;
        Ok(first)
    }

    fn reclaim(&mut self) {
        for (first, len) in self.retired.drain(..) {
            self.free.entry(len).or_default().push(first);
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
struct Placed {
    answer: Answer,
    users: u32,
    /// First line and number of lines of each long piece.
    lines: Vec<(u32, u32)>,
}

/// The tables that contents are in, and how much goes into them.
pub struct Shelf<'t> {
    /// The cell table.
    pub cells: &'t mut Vec<Cell>,
    /// The line table.
    pub lines: &'t mut Vec<Line>,
    /// The credit table.
    pub credits: &'t mut Vec<Credit>,
    /// Has the endpoints' names.
    pub model: &'t Model,
    /// How much they may become.
    pub room: Room,
    /// What is written is told here, parts before what refers to them; not while everything is new.
    pub operations: Option<&'t mut Vec<Operation>>,
}

impl Shelf<'_> {
    fn put_cell(&mut self, index: u32, cell: Cell) {
        put(self.cells, index, cell, Cell::EMPTY);
        if let Some(operations) = &mut self.operations {
            operations.push(Operation::WriteCell { index, cell });
        }
    }

    /// Puts a credit into a free place.
    pub fn put_credit(&mut self, index: u32, credit: Credit) {
        put(self.credits, index, credit, Credit::EMPTY);
        if let Some(operations) = &mut self.operations {
            operations.push(Operation::WriteCredit { index, credit });
        }
    }

    fn put_line(&mut self, index: u32, line: Line) {
        put(self.lines, index, line, Line([0; LINE]));
        if let Some(operations) = &mut self.operations {
            operations.push(Operation::WriteLine { index, line });
        }
    }
}

/// Where all contents are.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Store {
    placed: HashMap<Arc<Content>, Placed, FixedState>,
    cell_runs: Runs,
    line_runs: Runs,
    tallies: Tallies,
}

impl Store {
    /// The answer for a content: the address that it is, or where it is put.
    pub fn answer(&mut self, content: &Arc<Content>, shelf: &mut Shelf<'_>) -> Result<Answer, OutOfRoom> {
        if let Some((address, credits, ttl)) = content.address() {
            let tally = self.tallies.tally(credits, ttl, shelf)?;
            if let Some(answer) = Answer::address(address, ttl, tally) {
                return Ok(answer);
            }
        }
        self.place(content, shelf)
    }

    /// An answer less that holds a content; its places wait for [`Store::reclaim`] when there is no other.
    pub fn withdraw(&mut self, content: &Arc<Content>) {
        if content.address().is_none() {
            self.release(content);
        }
    }

    /// The cells for a content, put in place when it is new.
    fn place(&mut self, content: &Arc<Content>, shelf: &mut Shelf<'_>) -> Result<Answer, OutOfRoom> {
        if let Some(placed) = self.placed.get_mut(content) {
            placed.users += 1;
            return Ok(placed.answer);
        }
        let count = content.cells.len() as u32;
        let first = self.cell_runs.take(count, shelf.room.cells)?;
        let mut lines = Vec::new();
        for (index, part) in (first..).zip(&content.cells) {
            let mut cell = Cell { threshold: part.column.threshold, alias: part.column.alias, ..Cell::EMPTY };
            match &part.body {
                Body::Further(further) => {
                    cell.kind = Cell::FURTHER;
                    let answer = self.place(further, shelf)?;
                    cell.piece[..8].copy_from_slice(&answer.0.to_le_bytes());
                }
                Body::Piece(piece) => {
                    cell.kind = piece.kind;
                    cell.ancount = piece.ancount;
                    cell.detail = match &piece.credit {
                        Some((credits, ttl)) => self.tallies.tally(credits, *ttl, shelf)?,
                        None => Cell::ends_detail(piece.ends),
                    };
                    cell.sum = piece::sum(&piece.wire);
                    cell.len = piece.wire.len() as u16;
                    if piece.wire.len() <= INLINE_PIECE {
                        cell.piece[..piece.wire.len()].copy_from_slice(&piece.wire);
                    } else {
                        let run = self.place_lines(&piece.wire, shelf)?;
                        cell.piece[..4].copy_from_slice(&run.0.to_le_bytes());
                        lines.push(run);
                    }
                }
            }
            shelf.put_cell(index, cell);
        }
        let answer = Answer::new(first, count as u16, content.pick, content.salt);
        self.placed.insert(Arc::clone(content), Placed { answer, users: 1, lines });
        Ok(answer)
    }

    /// Places octets in lines of their own.
    pub fn place_lines(&mut self, octets: &[u8], shelf: &mut Shelf<'_>) -> Result<(u32, u32), OutOfRoom> {
        let count = octets.len().div_ceil(LINE) as u32;
        let first = self.line_runs.take(count, shelf.room.lines)?;
        for (index, chunk) in (first..).zip(octets.chunks(LINE)) {
            let mut line = Line([0; LINE]);
            line.0[..chunk.len()].copy_from_slice(chunk);
            shelf.put_line(index, line);
        }
        Ok((first, count))
    }

    /// One user less; the places of a content without users wait for [`Store::reclaim`].
    fn release(&mut self, content: &Arc<Content>) {
        let Entry::Occupied(mut held) = self.placed.entry(Arc::clone(content)) else { return };
        let users = &mut held.get_mut().users;
        *users = users.saturating_sub(1);
        if *users == 0 {
            let placed = held.remove();
            self.cell_runs.retired.push((placed.answer.first_cell(), u32::from(placed.answer.cells())));
            self.line_runs.retired.extend(placed.lines);
            for part in &content.cells {
                if let Body::Further(further) = &part.body {
                    self.release(further);
                }
            }
        }
    }

    /// Whether answers are not counted because they are credited in more ways than there are tallies.
    pub fn is_out_of_tallies(&self) -> bool {
        self.tallies.is_full()
    }

    /// Makes what was released usable again: no reader can be in it any more.
    pub fn reclaim(&mut self) {
        self.cell_runs.reclaim();
        self.line_runs.reclaim();
    }

    /// Whether anything waits for [`Store::reclaim`].
    pub fn has_retired(&self) -> bool {
        !self.cell_runs.retired.is_empty() || !self.line_runs.retired.is_empty()
    }
}

fn put<T: Copy>(table: &mut Vec<T>, index: u32, value: T, empty: T) {
    let index = index as usize;
    if index >= table.len() {
        table.resize(index + 1, empty);
    }
    table[index] = value;
}
