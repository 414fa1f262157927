//! The maps as the tables that the shared look-up reads.

use aya_ebpf::helpers::{bpf_get_prandom_u32, bpf_ktime_get_coarse_ns};
use aya_ebpf::maps::lpm_trie::Key;
use router_common::abi::{Answer, Cell, Control, Generation, Line, LocationEntry, Owner};
use router_common::lookup::{Client, Tables};

use crate::maps::{
    ANSWERS, CELLS, CONTROL, GENERATIONS, LINES, LOCATIONS_IPV4, LOCATIONS_IPV6, OWNERS, REGIONS,
};

/// The control word, read once: the agent flips it with one store.
#[inline(always)]
pub fn control() -> Control {
    // SAFETY: a valid element; volatile because the agent writes it, and it must be one load.
    Control(CONTROL.get_ptr(0).map_or(0, |word| unsafe { word.read_volatile() }))
}

/// Whether the agent's lease has lapsed.
#[inline(always)]
pub fn is_stale(control: Control) -> bool {
    // SAFETY: a helper without arguments.
    let now = unsafe { bpf_ktime_get_coarse_ns() };
    control.deadline() < Control::tick(now)
}

/// The tables of one half.
pub struct Half(u32);

impl Half {
    /// The active half.
    #[inline(always)]
    pub const fn active(control: Control) -> Self {
        Self(control.half() as u32 & 1)
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
    fn location(&self, client: &Client) -> Option<LocationEntry> {
        let octets = client.octets;
        if client.family == 4 {
            let key = Key::new(32, [octets[0], octets[1], octets[2], octets[3]]);
            LOCATIONS_IPV4.get(self.0)?.get(&key).copied()
        } else {
            LOCATIONS_IPV6.get(self.0)?.get(&Key::new(128, octets)).copied()
        }
    }

    #[inline(always)]
    fn random(&self) -> u32 {
        // SAFETY: a helper without arguments.
        unsafe { bpf_get_prandom_u32() }
    }
}
