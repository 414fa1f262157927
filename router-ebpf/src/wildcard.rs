//! The walk to the wildcard that covers a name. Each step is a call of a global function: the verifier follows
//! its loops once, not once for each step.

use router_common::lookup::{Miss, Query};
use router_common::wildcard::{Step, find_covering, step};

use crate::maps::STRIPPED;
use crate::tables::Half;

/// [`Step::Up`] as a number; a slot is a smaller one.
const UP: u32 = u32::MAX;
/// [`Step::Unknown`] as a number.
const UNKNOWN: u32 = u32::MAX - 1;
/// [`Step::Broken`] as a number.
const BROKEN: u32 = u32::MAX - 2;

/// The slot of the wildcard that covers the query's name.
#[inline(always)]
pub fn covering(half: &Half, query: &Query) -> Result<u32, Miss> {
    // SAFETY: this CPU's slot; an XDP program is not preempted by another run on its CPU.
    let stripped = STRIPPED.get_ptr_mut(0).map(|stripped| unsafe { &mut *stripped }).ok_or(Miss::Broken)?;
    *stripped = *query;
    find_covering(|| {
        // SAFETY: a reference.
        match unsafe { step_up(stripped, half.number()) } {
            UP => Step::Up,
            UNKNOWN => Step::Unknown,
            BROKEN => Step::Broken,
            slot => Step::Covered(slot),
        }
    })
}

/// One step, as a number.
///
/// # Safety
///
/// `stripped` is null or valid.
#[inline(never)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn step_up(stripped: *mut Query, half: u32) -> u32 {
    // SAFETY: the caller's promise.
    let Some(stripped) = (unsafe { stripped.as_mut() }) else { return BROKEN };
    let half = Half::numbered(half);
    let Some(generation) = half.generation() else { return BROKEN };
    match step(&half, generation, stripped) {
        Step::Up => UP,
        Step::Covered(slot) => slot,
        Step::Unknown => UNKNOWN,
        Step::Broken => BROKEN,
    }
}
