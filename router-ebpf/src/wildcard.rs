//! The walk to the wildcard that covers a name, as a global function: the verifier follows its loops once.

use router_common::abi::Generation;
use router_common::lookup::{Miss, Query};
use router_common::wildcard::find_covering;

use crate::maps::STRIPPED;
use crate::tables::Half;

/// No wildcard covers the name.
const UNKNOWN: u32 = u32::MAX;
/// The name has more labels than are followed.
const DEFERRED: u32 = u32::MAX - 1;
/// The tables lead nowhere.
const BROKEN: u32 = u32::MAX - 2;

/// The slot of the wildcard that covers the query's name.
#[inline(always)]
pub fn covering(half: &Half, query: &Query) -> Result<u32, Miss> {
    // SAFETY: this CPU's slot; an XDP program is not preempted by another run on its CPU.
    let stripped = STRIPPED.get_ptr_mut(0).map(|stripped| unsafe { &mut *stripped }).ok_or(Miss::Broken)?;
    *stripped = *query;
    // SAFETY: a reference.
    match unsafe { covering_slot(stripped, half.number()) } {
        UNKNOWN => Err(Miss::UnknownName),
        DEFERRED => Err(Miss::Deferred),
        BROKEN => Err(Miss::Broken),
        slot => Ok(slot),
    }
}

/// The slot, or one of the numbers above.
///
/// # Safety
///
/// `stripped` is null or valid.
#[inline(never)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn covering_slot(stripped: *mut Query, half: u32) -> u32 {
    // SAFETY: the caller's promise.
    let Some(stripped) = (unsafe { stripped.as_mut() }) else { return BROKEN };
    let half = Half::numbered(half);
    let Some(generation) = half.generation() else { return BROKEN };
    match find_covering::<Half>(&half, generation as &Generation, stripped) {
        Ok(slot) => slot,
        Err(Miss::UnknownName) => UNKNOWN,
        Err(Miss::Deferred) => DEFERRED,
        Err(_) => BROKEN,
    }
}
