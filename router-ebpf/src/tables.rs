//! The maps as the tables that the shared look-up reads.

use aya_ebpf::helpers::bpf_get_prandom_u32;
use router_common::abi::{Answer, Cell, Control, Generation, Line, LocationEntry, Owner};
use router_common::lookup::{Client, Miss, Query, Tables};

use crate::maps::{ANSWERS, CELLS, CONTROL, GENERATIONS, LINES, OWNERS, REGIONS};
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
    fn region_word(&self, word: u32) -> Option<u64> {
        REGIONS.get(word).copied()
    }

    #[inline(always)]
    fn answer(&self, index: u32) -> Option<Answer> {
        // SAFETY: a valid element; volatile because the agent flips it, and it must be one load.
        ANSWERS.get_ptr(index).map(|answer| Answer(unsafe { answer.read_volatile() }))
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
    fn random(&self) -> u32 {
        // SAFETY: a helper without arguments.
        unsafe { bpf_get_prandom_u32() }
    }
}
