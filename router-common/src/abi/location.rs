//! The location table as bytes: entries, the words that lead to them, and the lines that words are in.

use super::LINE;

/// What is known of an address: the value of the longest prefix that holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LocationEntry {
    /// Location id: the index into every partition; below [`MAX_LOCATIONS`].
    pub location: u32,
    /// Length of the entry's own prefix, which is the valid ECS scope; 0..=128.
    pub scope: u8,
    /// [`LocationEntry::SPECIAL`].
    pub flags: u8,
}

impl LocationEntry {
    /// A private or otherwise special block that no table mentions (RFC 7871 §10): when the address
    /// came from ECS, the source address decides and the scope is this entry's.
    pub const SPECIAL: u8 = 1;
}

/// Location ids are below: they have 23 bits of a [`LocationWord`].
pub const MAX_LOCATIONS: u32 = 1 << 23;
/// Lines of a half are below: they have 24 bits of a [`LocationWord`].
pub const MAX_LOCATION_LINES: u32 = 1 << 24;

/// A step of the look-up of an address ([`crate::location`]): where it ends, or where it goes on.
///
/// An **entry** has bits 0..23 the location, 23 special, 24..32 the scope plus one (1..=129). A **branch** has
/// bits 30..32 set, 29 *deeper*, 24..29 *width*, 0..24 *first line*: when deeper, [`LocationLine::KEY_BITS`] bits of the
/// address are done with; the next *width* bits choose a line, counted from the first; the bits after them are
/// looked for in it. Zero is neither.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(transparent)]
pub struct LocationWord(pub u32);

impl LocationWord {
    /// Leads nowhere.
    pub const NOWHERE: Self = Self(0);
    const SPECIAL: u32 = MAX_LOCATIONS;
    const BRANCH: u32 = 0b11 << 30;
    const DEEPER: u32 = 1 << 29;
    /// Most bits of the address that choose a line.
    pub const MAX_WIDTH: u32 = 31;

    /// An entry; [`Self::NOWHERE`] when its location or scope is too large.
    pub const fn from_entry(entry: LocationEntry) -> Self {
        if entry.location >= MAX_LOCATIONS || entry.scope > 128 {
            return Self::NOWHERE;
        }
        let special = if entry.flags & LocationEntry::SPECIAL != 0 { Self::SPECIAL } else { 0 };
        Self(entry.location | special | (entry.scope as u32 + 1) << 24)
    }

    /// A branch; `width` is at most [`Self::MAX_WIDTH`], `first_line` below [`MAX_LOCATION_LINES`].
    pub const fn branch(deeper: bool, width: u32, first_line: u32) -> Self {
        let deeper = if deeper { Self::DEEPER } else { 0 };
        Self(Self::BRANCH | deeper | (width & Self::MAX_WIDTH) << 24 | first_line & (MAX_LOCATION_LINES - 1))
    }

    /// Whether the look-up goes on.
    #[inline(always)]
    pub const fn is_branch(self) -> bool {
        self.0 >= Self::BRANCH
    }

    /// The entry, when it is one.
    #[inline(always)]
    pub const fn entry(self) -> Option<LocationEntry> {
        let scope = self.0 >> 24;
        if scope == 0 || scope > 129 {
            return None;
        }
        let flags = if self.0 & Self::SPECIAL != 0 { LocationEntry::SPECIAL } else { 0 };
        Some(LocationEntry { location: self.0 & (MAX_LOCATIONS - 1), scope: (scope - 1) as u8, flags })
    }

    /// Of a branch: whether it is about the bits behind those of the last line's keys.
    #[inline(always)]
    pub const fn is_deeper(self) -> bool {
        self.0 & Self::DEEPER != 0
    }

    /// Of a branch: how many bits choose the line, 0..=31.
    #[inline(always)]
    pub const fn width(self) -> u32 {
        self.0 >> 24 & Self::MAX_WIDTH
    }

    /// Of a branch: the first line, relative to the half.
    #[inline(always)]
    pub const fn first_line(self) -> u32 {
        self.0 & (MAX_LOCATION_LINES - 1)
    }
}

/// A stretch of addresses, one cache line: up to [`LocationLine::WORDS`] parts one after the other.
///
/// A key is the next 15 bits of an address. The first word is for keys from 0 on, word `i + 1` for those from
/// `starts[i]` on. Starts ascend; those beyond the last are [`LocationLine::UNUSED`]. A start has 15 bits so that a few
/// instructions compare four of them at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(64))]
pub struct LocationLine {
    /// Entries and branches.
    pub words: [LocationWord; Self::WORDS],
    /// First keys of all words but the first.
    pub starts: [u16; Self::WORDS - 1],
}

impl LocationLine {
    /// Words of a line.
    pub const WORDS: usize = 11;
    /// Bits of a key.
    pub const KEY_BITS: u32 = 15;
    /// A start that no key reaches.
    pub const UNUSED: u16 = 1 << Self::KEY_BITS;
    /// Leads nowhere.
    pub const EMPTY: Self =
        Self { words: [LocationWord::NOWHERE; Self::WORDS], starts: [Self::UNUSED; Self::WORDS - 1] };

    /// The line as numbers of 32 bits in memory order: the words, then two starts in each.
    #[inline(always)]
    pub const fn as_u32(&self) -> &[u32; LINE / 4] {
        // SAFETY: same size, every bit pattern is valid, and a line is aligned to 64.
        unsafe { &*(&raw const *self).cast() }
    }

    /// The line as numbers of 64 bits in memory order: the last two are starts, and so is the second half of the one before.
    #[inline(always)]
    pub const fn as_u64(&self) -> &[u64; LINE / 8] {
        // SAFETY: same size, every bit pattern is valid, and a line is aligned to 64.
        unsafe { &*(&raw const *self).cast() }
    }
}

const _: () = {
    assert!(size_of::<LocationLine>() == 64);
    assert!(core::mem::offset_of!(LocationLine, starts) == 44);
};
