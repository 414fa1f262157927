//! Counting outcomes.

use router_common::counter::Counter;

use crate::maps::COUNTERS;

/// Adds one on this CPU.
#[inline(always)]
pub fn count(counter: Counter) {
    if let Some(slot) = COUNTERS.get_ptr_mut(counter as u32) {
        // SAFETY: this CPU's slot of a per-CPU array; nothing else runs this program on this CPU now.
        unsafe { *slot += 1 };
    }
}
