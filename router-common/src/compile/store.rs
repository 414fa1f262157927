//! What answers hold, each distinct content once, in cells and lines that are never rewritten while a
//! reader may see them.
//!
//! A content that no answer uses any more is *retired*: it stays where it is until
//! [`Store::reclaim`], which the agent calls after a grace period. Until then it can be taken up
//! again as it is (health that flaps writes nothing).

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use crate::abi::{Answer, Cell, INLINE_PIECE, LINE, Line, Pick};
use crate::diff::{Operation, OutOfRoom};

use super::piece::{Piece, sum};

pub(super) type ContentId = u32;
type PieceId = u32;

/// What one cell holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Filling {
    /// A piece of wire.
    Piece(Piece),
    /// Pick again there.
    Further(Content),
    /// Left to userspace.
    Pass,
}

/// What an answer holds: cells with threshold and alias, and how to pick.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Content {
    /// The salt of a hashed pick; a random one has none.
    pub salt: Option<u16>,
    /// 1..=65535 cells.
    pub cells: Vec<(u32, u16, Filling)>,
}

impl Content {
    /// One cell that is always taken.
    pub fn single(filling: Filling) -> Self {
        Self { salt: None, cells: vec![(0, 0, filling)] }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Held {
    Piece(PieceId),
    Further(ContentId),
    Pass,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Kept {
    salt: Option<u16>,
    cells: Vec<(u32, u16, Held)>,
}

#[derive(Clone, Debug)]
struct ContentSlot {
    kept: Arc<Kept>,
    answer: Answer,
    users: u32,
}

#[derive(Clone, Debug)]
struct PieceSlot {
    piece: Arc<Piece>,
    /// Empty when the piece is inside its cells.
    lines: Range<u32>,
    users: u32,
}

/// Things by number, numbers used again after removal.
#[derive(Clone, Debug)]
struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    fn add(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(id) => {
                if let Some(slot) = self.slots.get_mut(id as usize) {
                    *slot = Some(value);
                }
                id
            }
            None => {
                self.slots.push(Some(value));
                self.slots.len() as u32 - 1
            }
        }
    }

    fn get(&self, id: u32) -> Option<&T> {
        self.slots.get(id as usize)?.as_ref()
    }

    fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.slots.get_mut(id as usize)?.as_mut()
    }

    fn remove(&mut self, id: u32) -> Option<T> {
        let value = self.slots.get_mut(id as usize)?.take()?;
        self.free.push(id);
        Some(value)
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

/// Free entries of a table.
#[derive(Clone, Debug, Default)]
struct Space {
    /// Free ranges below `end`: first to length.
    free: BTreeMap<u32, u32>,
    end: u32,
}

impl Space {
    fn take(&mut self, count: u32, limit: u32) -> Option<u32> {
        if let Some((&first, &len)) = self.free.iter().find(|&(_, &len)| len >= count) {
            self.free.remove(&first);
            if len > count {
                self.free.insert(first + count, len - count);
            }
            return Some(first);
        }
        let first = self.end;
        self.end = first.checked_add(count).filter(|&end| end <= limit)?;
        Some(first)
    }

    fn give(&mut self, range: Range<u32>) {
        if range.is_empty() {
            return;
        }
        let mut range = range;
        if let Some((&first, &len)) = self.free.range(..range.start).next_back()
            && first + len == range.start
        {
            self.free.remove(&first);
            range.start = first;
        }
        if let Some(len) = self.free.remove(&range.end) {
            range.end += len;
        }
        self.free.insert(range.start, range.end - range.start);
    }
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Store {
    contents: Slab<ContentSlot>,
    content_ids: HashMap<Arc<Kept>, ContentId>,
    pieces: Slab<PieceSlot>,
    piece_ids: HashMap<Arc<Piece>, PieceId>,
    cells: Space,
    lines: Space,
    retired_contents: Vec<ContentId>,
    retired_pieces: Vec<PieceId>,
    /// Made since [`Store::begin`].
    fresh_contents: Vec<ContentId>,
    fresh_pieces: Vec<PieceId>,
    cell_limit: u32,
    line_limit: u32,
    operations: Vec<Operation>,
}

impl Store {
    /// Begins a change with this many cells and lines to live in.
    pub fn begin(&mut self, cells: u32, lines: u32) {
        (self.cell_limit, self.line_limit) = (cells, lines);
        self.fresh_contents.clear();
        self.fresh_pieces.clear();
        self.operations.clear();
    }

    /// The writes that the change needs before its answers can be set.
    pub fn operations(&mut self) -> Vec<Operation> {
        std::mem::take(&mut self.operations)
    }

    /// Undoes what was made since [`Self::begin`]; users must have been released.
    pub fn abandon(&mut self) {
        self.operations.clear();
        for id in std::mem::take(&mut self.fresh_contents) {
            self.free_content(id);
        }
        for id in std::mem::take(&mut self.fresh_pieces) {
            self.free_piece(id);
        }
    }

    /// The answer of a content.
    pub fn answer(&self, id: ContentId) -> Answer {
        self.contents.get(id).map_or(Answer::default(), |slot| slot.answer)
    }

    /// Takes lines that stay for good: long owner names.
    pub fn fixed_lines(&mut self, octets: &[u8]) -> Result<u32, OutOfRoom> {
        let count = octets.len().div_ceil(LINE) as u32;
        let first = self.lines.take(count, self.line_limit).ok_or(OutOfRoom::Lines)?;
        self.write_lines(first, octets);
        Ok(first)
    }

    /// The number of a content, with one user more. On an error nothing is used more than before.
    pub fn acquire(&mut self, content: &Content) -> Result<ContentId, OutOfRoom> {
        let mut cells = Vec::with_capacity(content.cells.len());
        for (threshold, alias, filling) in &content.cells {
            let held = match filling {
                Filling::Pass => Ok(Held::Pass),
                Filling::Piece(piece) => self.acquire_piece(piece).map(Held::Piece),
                Filling::Further(content) => self.acquire(content).map(Held::Further),
            };
            match held {
                Ok(held) => cells.push((*threshold, *alias, held)),
                Err(error) => {
                    self.release_held(&cells);
                    return Err(error);
                }
            }
        }
        let kept = Kept { salt: content.salt, cells };
        if let Some(&id) = self.content_ids.get(&kept) {
            let was_used = self.contents.get_mut(id).is_some_and(|slot| {
                slot.users += 1;
                slot.users > 1
            });
            if was_used {
                // It holds its parts already.
                self.release_held(&kept.cells);
            }
            return Ok(id);
        }
        let count = kept.cells.len() as u32;
        let Some(first) = self.cells.take(count, self.cell_limit) else {
            self.release_held(&kept.cells);
            return Err(OutOfRoom::Cells);
        };
        for (index, (threshold, alias, held)) in (first..).zip(&kept.cells) {
            let cell = self.cell(*threshold, *alias, held);
            self.operations.push(Operation::WriteCell { index, cell });
        }
        let pick = if kept.salt.is_some() { Pick::Hashed } else { Pick::Random };
        let answer = Answer::new(first, count as u16, pick, kept.salt.unwrap_or(0));
        let kept = Arc::new(kept);
        let id = self.contents.add(ContentSlot { kept: kept.clone(), answer, users: 1 });
        self.content_ids.insert(kept, id);
        self.fresh_contents.push(id);
        Ok(id)
    }

    /// Gives up one use of a content; tells what is retired by it.
    pub fn release(&mut self, id: ContentId) -> Vec<Operation> {
        let mut retired = Vec::new();
        self.let_go(id, &mut retired);
        retired
    }

    fn let_go(&mut self, id: ContentId, retired: &mut Vec<Operation>) {
        let Some(slot) = self.contents.get_mut(id) else { return };
        slot.users = slot.users.saturating_sub(1);
        if slot.users > 0 {
            return;
        }
        let (kept, answer) = (slot.kept.clone(), slot.answer);
        self.retired_contents.push(id);
        let first = answer.first_cell();
        retired.push(Operation::Retire { cells: first..first + u32::from(answer.cells()), lines: 0..0 });
        for (_, _, held) in &kept.cells {
            match held {
                Held::Further(id) => self.let_go(*id, retired),
                Held::Piece(id) => self.let_go_piece(*id, retired),
                Held::Pass => {}
            }
        }
    }

    fn let_go_piece(&mut self, id: PieceId, retired: &mut Vec<Operation>) {
        let Some(slot) = self.pieces.get_mut(id) else { return };
        slot.users = slot.users.saturating_sub(1);
        if slot.users == 0 {
            if !slot.lines.is_empty() {
                retired.push(Operation::Retire { cells: 0..0, lines: slot.lines.clone() });
            }
            self.retired_pieces.push(id);
        }
    }

    fn release_held(&mut self, cells: &[(u32, u16, Held)]) {
        let mut retired = Vec::new();
        for (_, _, held) in cells {
            match held {
                Held::Further(id) => self.let_go(*id, &mut retired),
                Held::Piece(id) => self.let_go_piece(*id, &mut retired),
                Held::Pass => {}
            }
        }
    }

    /// Frees all that was retired before; no reader may see it any more.
    pub fn reclaim(&mut self) {
        for id in std::mem::take(&mut self.retired_contents) {
            self.free_content(id);
        }
        for id in std::mem::take(&mut self.retired_pieces) {
            self.free_piece(id);
        }
    }

    fn free_content(&mut self, id: ContentId) {
        if self.contents.get(id).is_none_or(|slot| slot.users > 0) {
            return;
        }
        if let Some(slot) = self.contents.remove(id) {
            self.content_ids.remove(&slot.kept);
            let first = slot.answer.first_cell();
            self.cells.give(first..first + u32::from(slot.answer.cells()));
        }
    }

    fn free_piece(&mut self, id: PieceId) {
        if self.pieces.get(id).is_none_or(|slot| slot.users > 0) {
            return;
        }
        if let Some(slot) = self.pieces.remove(id) {
            self.piece_ids.remove(&slot.piece);
            self.lines.give(slot.lines);
        }
    }

    fn acquire_piece(&mut self, piece: &Piece) -> Result<PieceId, OutOfRoom> {
        if let Some(&id) = self.piece_ids.get(piece) {
            if let Some(slot) = self.pieces.get_mut(id) {
                slot.users += 1;
            }
            return Ok(id);
        }
        let mut lines = 0..0;
        if piece.octets.len() > INLINE_PIECE {
            let count = piece.octets.len().div_ceil(LINE) as u32;
            let first = self.lines.take(count, self.line_limit).ok_or(OutOfRoom::Lines)?;
            lines = first..first + count;
            self.write_lines(first, &piece.octets);
        }
        let piece = Arc::new(piece.clone());
        let id = self.pieces.add(PieceSlot { piece: piece.clone(), lines, users: 1 });
        self.piece_ids.insert(piece, id);
        self.fresh_pieces.push(id);
        Ok(id)
    }

    fn write_lines(&mut self, first: u32, octets: &[u8]) {
        for (index, chunk) in (first..).zip(octets.chunks(LINE)) {
            let mut line = Line([0; LINE]);
            line.0.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.operations.push(Operation::WriteLine { index, line });
        }
    }

    fn cell(&self, threshold: u32, alias: u16, held: &Held) -> Cell {
        let mut cell = Cell { threshold, alias, ..Cell::EMPTY };
        match held {
            Held::Pass => {}
            Held::Further(id) => {
                cell.kind = Cell::FURTHER;
                // The reader takes the word as little-endian octets.
                fill(&mut cell.piece, &self.answer(*id).0.to_le_bytes());
            }
            Held::Piece(id) => {
                let Some(slot) = self.pieces.get(*id) else { return cell };
                let piece = &slot.piece;
                cell.kind = piece.kind;
                cell.ancount = piece.ancount;
                cell.nscount = piece.nscount;
                cell.len = piece.octets.len() as u16;
                cell.sum = sum(&piece.octets);
                if slot.lines.is_empty() {
                    fill(&mut cell.piece, &piece.octets);
                } else {
                    fill(&mut cell.piece, &slot.lines.start.to_ne_bytes());
                }
            }
        }
        cell
    }
}

fn fill(to: &mut [u8; INLINE_PIECE], from: &[u8]) {
    to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_joined_again() {
        let mut space = Space::default();
        assert_eq!(space.take(4, 10), Some(0));
        assert_eq!(space.take(4, 10), Some(4));
        assert_eq!(space.take(4, 10), None);
        space.give(4..8);
        space.give(0..4);
        assert_eq!(space.free, BTreeMap::from([(0, 8)]));
        assert_eq!(space.take(6, 10), Some(0));
        assert_eq!(space.take(2, 10), Some(6));
        assert_eq!(space.take(2, 10), Some(8));
    }
}
