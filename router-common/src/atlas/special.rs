//! Address blocks that say nothing of where a client is.

use super::prefix::low_bits;

/// A prefix as a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    /// First address.
    pub first: u128,
    /// Prefix length.
    pub len: u8,
    bits: u8,
}

impl Block {
    const fn ipv4(octets: [u8; 4], len: u8) -> Self {
        Self { first: u32::from_be_bytes(octets) as u128, len, bits: 32 }
    }

    const fn ipv6(groups: [u16; 8], len: u8) -> Self {
        let mut first = 0;
        let mut i = 0;
        while i < 8 {
            first = first << 16 | groups[i] as u128;
            i += 1;
        }
        Self { first, len, bits: 128 }
    }

    fn last(self) -> u128 {
        self.first | low_bits(self.bits - self.len)
    }

    /// Whether an address of the family is in it.
    pub fn contains(self, address: u128) -> bool {
        (self.first..=self.last()).contains(&address)
    }

    /// Whether it is exactly this prefix.
    pub fn is(self, first: u128, len: u8) -> bool {
        self.first == first && self.len == len
    }
}

/// Private (RFC 1918), shared (RFC 6598), loopback and link-local addresses: a client subnet option
/// with one of them comes from behind a NAT (RFC 7871 §11.3).
pub(super) const IPV4: [Block; 6] = [
    Block::ipv4([10, 0, 0, 0], 8),
    Block::ipv4([100, 64, 0, 0], 10),
    Block::ipv4([127, 0, 0, 0], 8),
    Block::ipv4([169, 254, 0, 0], 16),
    Block::ipv4([172, 16, 0, 0], 12),
    Block::ipv4([192, 168, 0, 0], 16),
];

/// Loopback, unique local (RFC 4193) and link-local addresses.
pub(super) const IPV6: [Block; 3] = [
    Block::ipv6([0, 0, 0, 0, 0, 0, 0, 1], 128),
    Block::ipv6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7),
    Block::ipv6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10),
];

/// Blocks that are looked up as IPv4: v4-mapped (RFC 4291) and NAT64 (RFC 6052).
pub(super) const FOLDING: [Block; 2] =
    [Block::ipv6([0, 0, 0, 0, 0, 0xffff, 0, 0], 96), Block::ipv6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96)];

/// First addresses after each folding block.
pub(super) fn folding_ends() -> [u128; 2] {
    FOLDING.map(|block| block.last() + 1)
}

/// Which folding block an IPv6 address is in; 0 is none.
pub(super) fn folding_block(address: u128) -> u8 {
    FOLDING.iter().position(|block| block.contains(address)).map_or(0, |at| at as u8 + 1)
}

/// The blocks of which nothing is known, by a question about a range.
pub(super) fn unmentioned(blocks: &[Block], nothing_known: impl Fn(u128, u128) -> bool) -> Vec<Block> {
    blocks.iter().filter(|block| nothing_known(block.first, block.last())).copied().collect()
}
