//! What has to be written to turn one state of the serving half into the next, in order.

use crate::abi::{Answer, Cell, Credit, Line};

/// One write. Applied in order, every state in between answers each query as before or as after:
/// lines and cells are written only where no answer leads, answers are flipped whole.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Operation {
    /// Whom a tally counts for that no cell names; it begins at zero.
    WriteCredit {
        /// Place, relative to the half.
        index: u32,
        /// What.
        credit: Credit,
    },
    /// A line nothing leads to.
    WriteLine {
        /// Place, relative to the half.
        index: u32,
        /// What.
        line: Line,
    },
    /// A cell nothing leads to.
    WriteCell {
        /// Place, relative to the half.
        index: u32,
        /// What.
        cell: Cell,
    },
    /// The flip: one atomic store.
    SetAnswer {
        /// Place, relative to the half.
        index: u32,
        /// What.
        answer: Answer,
    },
}
