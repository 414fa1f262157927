//! Random numbers for picking answers: uniform, fast, and seeded from the system; not for secrets.

use std::hash::{BuildHasher, Hasher, RandomState};

/// SplitMix64 (Steele, Lea, Flood 2014): passes the usual statistical tests with one word of state.
pub(super) struct Random(u64);

impl Random {
    /// A sequence of its own.
    pub fn new() -> Self {
        // Hash maps are keyed by the system's randomness.
        Self(RandomState::new().build_hasher().finish())
    }

    /// Uniform 64 bits.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
