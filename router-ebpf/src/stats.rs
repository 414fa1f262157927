//! Counting outcomes, and answers by whom they come.

use router_common::abi::{Cell, Generation, TALLY_ROW, Tally};
use router_common::counter::Counter;

use crate::maps::{COUNTERS, TALLIES};

/// Counts an outcome, on this CPU.
#[inline(always)]
pub fn count(counter: Counter) {
    add(counter as u32);
}

/// Counts an answer to a query with a client subnet of this FAMILY, on this CPU.
#[inline(always)]
pub fn count_subnet(family: u16) {
    add(Counter::subnet_slot(family));
}

#[inline(always)]
fn add(index: u32) {
    if let Some(slot) = COUNTERS.get_ptr_mut(index) {
        // SAFETY: this CPU's slot of a per-CPU array; nothing else runs this program on this CPU now.
        unsafe { *slot += 1 };
    }
}

/// Counts an answer that was sent, and notes when, on this CPU.
#[inline(always)]
pub fn tally(generation: &Generation, cell: &Cell, now: u64) {
    let tally = cell.tally();
    if tally == 0 {
        return;
    }
    let index = generation.tallies.wrapping_add(tally);
    if let Some(row) = TALLIES.get_ptr_mut(index / TALLY_ROW as u32) {
        let row: *mut Tally = row.cast();
        // SAFETY: as above; the remainder is inside of the row.
        unsafe {
            let slot = row.add(index as usize % TALLY_ROW);
            (*slot).answers += 1;
            (*slot).last = now;
        }
    }
}
