//! The maps as the tables that the shared look-up reads.

use aya_ebpf::helpers::bpf_get_prandom_u32;
use router_common::abi::{Answer, Cell, Control, Generation, Line, LocationEntry, Owner};
use router_common::lookup::{Client, Located, Miss, Query, Tables, is_name_of, pick_further};

use crate::maps::{ANSWERS, BUCKETS, CELLS, CONTROL, GENERATIONS, LINES, OWNERS, REGIONS};
use crate::packet::opaque;
use crate::{location, wildcard};

/// The control word, read once: the agent flips it with one store.
#[inline(always)]
pub fn control() -> Control {
    // SAFETY: a valid element; volatile because the agent writes it, and it must be one load.
    Control(CONTROL.get_ptr(0).map_or(0, |word| unsafe { word.read_volatile() }))
}

/// The tables of one half.
pub struct Half(u32);

impl Half {
    /// The active half.
    #[inline(always)]
    pub const fn active(control: Control) -> Self {
        Self(control.half() as u32 & 1)
    }

    /// The half of this number; 0 or 1.
    #[inline(always)]
    pub const fn numbered(number: u32) -> Self {
        Self(number & 1)
    }

    /// Its number.
    #[inline(always)]
    pub const fn number(&self) -> u32 {
        self.0
    }

    /// What is fixed for its generation.
    #[inline(always)]
    pub fn generation(&self) -> Option<&'static Generation> {
        GENERATIONS.get(self.0)
    }
}

impl Tables for Half {
    #[inline(always)]
    fn owner(&self, slot: u32) -> Option<&Owner> {
        OWNERS.get(slot)
    }

    #[inline(always)]
    fn bucket_word(&self, word: u32) -> Option<u64> {
        BUCKETS.get(word).copied()
    }

    #[inline(always)]
    fn region_word(&self, word: u32) -> Option<u64> {
        REGIONS.get(word).copied()
    }

    #[inline(always)]
    fn answer(&self, index: u32) -> Option<Answer> {
        // SAFETY: a valid element; volatile because the agent flips it, and it must be one load.
        ANSWERS.get_ptr(index).map(|answer| Answer(unsafe { answer.read_volatile() }))
    }

    #[inline(always)]
    fn expect_answer(&self, index: u32) {
        self.answer(index);
    }

    #[inline(always)]
    fn cell(&self, index: u32) -> Option<&Cell> {
        CELLS.get(index)
    }

    #[inline(always)]
    fn line(&self, index: u32) -> Option<&Line> {
        LINES.get(index)
    }

    #[inline(always)]
    fn location(&self, generation: &Generation, client: &Client) -> Option<LocationEntry> {
        location::find(generation, client)
    }

    #[inline(always)]
    fn covering(&self, _: &Generation, query: &Query) -> Result<u32, Miss> {
        wildcard::covering(self, query)
    }

    #[inline(always)]
    fn miss(&self, miss: Miss) -> Miss {
        opaque(0);
        miss
    }

    #[inline(always)]
    fn pick_further(
        &self,
        cells: u32,
        place: u32,
        located: &Located,
        query: &Query,
    ) -> Result<(u32, u8), Miss> {
        let so_far =
            u32::from(located.scope) | u32::from(located.folded) << 8 | u32::from(located.by_ecs) << 16;
        // SAFETY: a reference.
        let picked = unsafe { pick_nested(cells, place, so_far, &raw const *query) };
        if picked == 0 {
            return Err(Miss::Broken);
        }
        Ok((picked as u32, (picked >> 32) as u8))
    }

    #[inline(always)]
    fn is_name_of(&self, slot: u32, lines: u32, query: &Query) -> bool {
        // SAFETY: a reference.
        unsafe { compare_name(slot, lines, &raw const *query) != 0 }
    }

    #[inline(always)]
    fn random(&self) -> u32 {
        // SAFETY: a helper without arguments.
        unsafe { bpf_get_prandom_u32() }
    }
}

/// [`is_name_of`], as a number. A global function: the verifier follows its loop once, not once for each slot.
///
/// # Safety
///
/// `query` is null or valid.
#[inline(never)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn compare_name(slot: u32, lines: u32, query: *const Query) -> u32 {
    // SAFETY: the caller's promise.
    let Some(query) = (unsafe { query.as_ref() }) else { return 0 };
    // Slots and lines are counted over both halves.
    is_name_of(&Half::numbered(0), slot, lines, query).into()
}

/// [`pick_further`]: the place in bits 0..32, the scope in bits 32..40, and bit 63 is set; 0 when an index led nowhere.
/// `so_far` holds the scope in bits 0..8, the bits that folding adds in 8..16, and in 16 whether ECS decides. A global
/// function, since few answers hold another.
///
/// # Safety
///
/// `query` is null or valid.
#[inline(never)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pick_nested(cells: u32, place: u32, so_far: u32, query: *const Query) -> u64 {
    // SAFETY: the caller's promise.
    let Some(query) = (unsafe { query.as_ref() }) else { return 0 };
    let by_ecs = so_far >> 16 & 1 != 0;
    let client = query.client(by_ecs).0;
    let located = Located { region: 0, scope: so_far as u8, folded: (so_far >> 8) as u8, by_ecs, client };
    // Cells are counted over both halves.
    match pick_further(&Half::numbered(0), cells, place, &located) {
        Ok((place, scope)) => u64::from(place) | u64::from(scope) << 32 | 1 << 63,
        Err(_) => 0,
    }
}
