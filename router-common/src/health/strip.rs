//! The last samples as bits.

use std::fmt;

/// Success or failure of the last 64 samples: what every window rule is a function of, and what status
/// shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Strip {
    /// Bit 0 is the newest sample; 1 is success. Bits at and above `len` are 0.
    bits: u64,
    /// Samples held, 0..=64.
    len: u8,
}

impl Strip {
    /// Most samples held.
    pub const CAPACITY: u8 = 64;

    /// A strip as saved: bit 0 is the newest, 1 is success; `len` above 64 counts as 64.
    pub fn from_bits(bits: u64, len: u8) -> Self {
        let len = len.min(Self::CAPACITY);
        Self { bits: bits & mask(len), len }
    }

    /// The bits to save; bit 0 is the newest, 1 is success.
    pub fn bits(self) -> u64 {
        self.bits
    }

    /// Samples held, 0..=64.
    pub fn len(self) -> u8 {
        self.len
    }

    /// Whether there was no sample at all.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Adds the newest sample; the 65th pushes the oldest out.
    pub fn push(&mut self, ok: bool) {
        self.bits = self.bits << 1 | u64::from(ok);
        self.len = (self.len + 1).min(Self::CAPACITY);
    }

    /// Successes among the newest `size` samples, the missing ones counted as successes.
    pub fn successes(self, size: u8) -> u8 {
        let seen = size.min(self.len);
        let missing = size - seen;
        missing + (self.bits & mask(seen)).count_ones() as u8
    }

    /// Failures since the last success.
    pub fn consecutive_failures(self) -> u8 {
        (self.bits.trailing_zeros() as u8).min(self.len)
    }

    /// The samples, newest first.
    pub fn newest_first(self) -> impl Iterator<Item = bool> {
        (0..self.len).map(move |i| self.bits >> i & 1 == 1)
    }
}

/// The lowest `len` bits, `len` 0..=64.
fn mask(len: u8) -> u64 {
    if len >= 64 { u64::MAX } else { (1 << len) - 1 }
}

impl fmt::Display for Strip {
    /// Oldest first, `+` success, `-` failure.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text: Vec<char> = self.newest_first().map(|ok| if ok { '+' } else { '-' }).collect();
        text.reverse();
        f.pad(&text.into_iter().collect::<String>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strip(text: &str) -> Strip {
        let mut strip = Strip::default();
        text.chars().for_each(|c| strip.push(c == '+'));
        strip
    }

    #[test]
    fn shows_what_was_pushed() {
        for text in ["", "+", "-", "+-", "-+", "+++--+"] {
            assert_eq!(strip(text).to_string(), text);
            assert_eq!(usize::from(strip(text).len()), text.len());
        }
        let long = "+".to_owned() + &"-".repeat(64);
        assert_eq!(strip(&long).to_string(), "-".repeat(64));
        assert_eq!(format!("{:>4}", strip("+-")), "  +-");
    }

    #[test]
    fn counts_missing_ones_as_successes() {
        assert_eq!(strip("").successes(4), 4);
        assert_eq!(strip("-").successes(4), 3);
        assert_eq!(strip("---+-").successes(4), 1);
        assert_eq!(strip(&"-".repeat(70)).successes(64), 0);
        assert_eq!(strip(&"+".repeat(70)).successes(64), 64);
    }

    #[test]
    fn counts_failures_since_the_last_success() {
        assert_eq!(strip("").consecutive_failures(), 0);
        assert_eq!(strip("--").consecutive_failures(), 2);
        assert_eq!(strip("-+---").consecutive_failures(), 3);
        assert_eq!(strip("--+").consecutive_failures(), 0);
        assert_eq!(strip(&"-".repeat(70)).consecutive_failures(), 64);
    }

    #[test]
    fn survives_being_saved() {
        let strip = strip("+--+-");
        assert_eq!(Strip::from_bits(strip.bits(), strip.len()), strip);
        assert_eq!(Strip::from_bits(u64::MAX, 2).to_string(), "++");
        assert_eq!(Strip::from_bits(0, 200).len(), 64);
    }
}
