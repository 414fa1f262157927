//! Changes of tables as ordered operations, none of which shows a reader a mixture.

use std::fmt;
use std::ops::Range;

use crate::abi::{Answer, Cell, Line};
use crate::tables::Tables;

/// One step of a change. Indices are relative to the half.
///
/// Lines and cells are written while nothing leads to them; [`Operation::SetAnswer`] is one atomic
/// store that shows them. So after each operation every answer is the old one or the new one.
#[derive(Clone, PartialEq, Debug)]
pub enum Operation {
    /// Writes a line that no reader sees.
    WriteLine {
        /// Where.
        index: u32,
        /// What.
        line: Line,
    },
    /// Writes a cell that no reader sees.
    WriteCell {
        /// Where.
        index: u32,
        /// What.
        cell: Cell,
    },
    /// The flip.
    SetAnswer {
        /// Where.
        index: u32,
        /// What.
        answer: Answer,
    },
    /// Nothing leads here any more; it is used again only after `Compiled::reclaim`.
    Retire {
        /// Cells.
        cells: Range<u32>,
        /// Lines.
        lines: Range<u32>,
    },
}

impl Operation {
    /// Carries it out on an image, which grows as needed.
    pub fn apply(&self, tables: &mut Tables) {
        match self {
            Self::WriteLine { index, line } => put(&mut tables.lines, *index, *line, Line([0; 64])),
            Self::WriteCell { index, cell } => put(&mut tables.cells, *index, *cell, Cell::EMPTY),
            Self::SetAnswer { index, answer } => {
                put(&mut tables.answers, *index, *answer, Answer::default());
            }
            Self::Retire { .. } => {}
        }
    }
}

fn put<T: Clone>(list: &mut Vec<T>, index: u32, value: T, empty: T) {
    let at = index as usize;
    if at >= list.len() {
        list.resize(at + 1, empty);
    }
    if let Some(slot) = list.get_mut(at) {
        *slot = value;
    }
}

/// A table is full: larger maps have to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutOfRoom {
    /// Of cells.
    Cells,
    /// Of lines.
    Lines,
}

impl fmt::Display for OutOfRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cells => "the table of cells is full",
            Self::Lines => "the table of lines is full",
        })
    }
}

impl std::error::Error for OutOfRoom {}
