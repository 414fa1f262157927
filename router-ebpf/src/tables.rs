//! The maps as the tables that the shared look-up reads.

use aya_ebpf::helpers::bpf_get_prandom_u32;
use aya_ebpf::maps::lpm_trie::Key;
use router_common::abi::{Answer, Cell, Control, Generation, Line, LocationEntry, Owner};
use router_common::lookup::{Client, Miss, Query, Tables};

use crate::maps::{
    ANSWERS, CELLS, CONTROL, GENERATIONS, LINES, LOCATIONS_IPV4, LOCATIONS_IPV6, OWNERS, REGIONS,
};
use crate::wildcard;

/// The control word, read once: the agent flips it with one store.
#[inline(always)]
pub fn control() -> Control {
    // SAFETY: a valid element; volatile because the agent writes it, and it must be one load.
    Control(CONTROL.get_ptr(0).map_or(0, |word| unsafe { word.read_volatile() }))
}

/// [`router_common::abi::LocationKey4`] in words, in memory order on a little-endian machine.
#[repr(C)]
struct Key4 {
    prefix_len: u32,
    address: u32,
}

/// [`router_common::abi::LocationKey6`] likewise.
#[repr(C)]
struct Key6 {
    prefix_len: u32,
    address: [u32; 4],
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
    fn location(&self, client: &Client) -> Option<LocationEntry> {
        // Keys are aligned to 4, unlike aya's packed ones, so that they are made of words.
        if client.family == 4 {
            let key = Key4 { prefix_len: 32, address: client.words()[0] as u32 };
            // SAFETY: an aya key is the same octets, aligned to 1.
            let key = unsafe { &*(&raw const key).cast::<Key<[u8; 4]>>() };
            LOCATIONS_IPV4.get(self.0)?.get(key).copied()
        } else {
            let [high, low] = client.words();
            let address = [high as u32, (high >> 32) as u32, low as u32, (low >> 32) as u32];
            let key = Key6 { prefix_len: 128, address };
            // SAFETY: as above.
            let key = unsafe { &*(&raw const key).cast::<Key<[u8; 16]>>() };
            LOCATIONS_IPV6.get(self.0)?.get(key).copied()
        }
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
