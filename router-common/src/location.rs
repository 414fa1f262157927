//! From an address to its location: the look-up in lines of 64 octets.
//!
//! What it replaces is a longest-prefix search. Prefixes are flattened beforehand: an address family is a sequence
//! of stretches with one entry each ([`crate::compile`] makes the table). A look-up begins at a root word and follows branches
//! ([`LocationWord`]) through lines ([`LocationLine`]) until it is at an entry. The next bits of the address
//! choose a line among those of a branch, the 15 bits after them are compared with the starts in the line. Mostly the first line has
//! the entry: one cache miss, for IPv4 addresses, in a table of any size.

use crate::abi::{LINE, LocationEntry, LocationLine, LocationWord};
use crate::lookup::Client;

/// Lines that a look-up visits at most; no table has a longer way (`compile/locations.rs` says why).
pub const MAX_STEPS: u32 = 64;

/// A client's address from its first bit on, zeros behind it, in two words.
#[inline(always)]
pub fn bits(client: &Client) -> [u64; 2] {
    let (high, low) = client.numbers();
    [high, low]
}

/// Which of a generation's roots is a client's.
#[inline(always)]
pub const fn root(client: &Client, roots: &[LocationWord; 2]) -> LocationWord {
    if client.family == 4 { roots[0] } else { roots[1] }
}

/// The entry of an address, as a word that is an entry or not even that, when the table is broken. `line` gives the line of
/// a number that is relative to the half.
#[inline(always)]
pub fn find<'t>(
    root: LocationWord,
    bits: [u64; 2],
    line: impl Fn(u32) -> Option<&'t LocationLine>,
) -> LocationWord {
    let [mut high, mut low] = bits;
    let mut word = root;
    let mut steps = 0;
    while steps < MAX_STEPS {
        if !word.is_branch() {
            return word;
        }
        if word.is_deeper() {
            high = high << LocationLine::KEY_BITS | low >> (64 - LocationLine::KEY_BITS);
            low <<= LocationLine::KEY_BITS;
        }
        let width = word.width();
        // Twice, since a word cannot be shifted by all of its bits.
        let chosen = high >> 1 >> (63 - width);
        let Some(line) = line(word.first_line().wrapping_add(chosen as u32)) else {
            return LocationWord::NOWHERE;
        };
        high = high << width | low >> 1 >> (63 - width);
        low <<= width;
        word = LocationWord(line.as_u32()[place(line, high >> (64 - LocationLine::KEY_BITS))]);
        steps += 1;
    }
    LocationWord::NOWHERE
}

/// The entry of a client in lines of which the first belongs to the half.
pub fn find_entry(
    lines: &[LocationLine],
    roots: &[LocationWord; 2],
    client: &Client,
) -> Option<LocationEntry> {
    find(root(client, roots), bits(client), |number| lines.get(number as usize)).entry()
}

/// Which word of a line is for a key of 15 bits: the number of starts that are not above it, 0..=10.
///
/// Four starts are compared at once. In each 16 bits of a word, `0x8000 + key - start` keeps its highest bit when the start
/// is not above the key; nothing is borrowed from the next 16 bits, since a start is at most 0x8000.
#[inline(always)]
fn place(line: &LocationLine, key: u64) -> usize {
    const ONES: u64 = 0x0001_0001_0001_0001;
    const HIGHEST: u64 = ONES << 15;
    let keys = key.wrapping_mul(ONES) | HIGHEST;
    let first = keys.wrapping_sub(line.as_u32()[11].into()) & (HIGHEST >> 32);
    let second = keys.wrapping_sub(line.as_u64()[6]) & HIGHEST;
    let third = keys.wrapping_sub(line.as_u64()[7]) & HIGHEST;
    let each = (first >> 15).wrapping_add(second >> 15).wrapping_add(third >> 15);
    // At most 10 anyway, which nothing but the whole arithmetic tells; below 16 is inside the line.
    (each.wrapping_mul(ONES) >> 48) as usize & (LINE / 4 - 1)
}
