//! The location table: prefixes, one inside the other, to lines that [`crate::location`] reads.
//!
//! Prefixes are flattened to **bounds**: where another entry begins. Bounds of a block of addresses become a branch: some of
//! the next bits choose among lines side by side, and a line tells its bounds apart by 15 bits more. How many bits choose is what costs
//! least (`cost`): more lines take memory, fewer overflow. What is finer than that is a branch of its own, one level deeper.
//! A line that would get more than it holds becomes two levels of lines, or, with still more, leads to a branch that takes
//! further bits.
//!
//! **No way is longer than [`crate::location::MAX_STEPS`].** Each line on it is the first; or deeper by 15 bits; or
//! chosen by at least 3 bits more, where a block branches again on the same level; or the lower of two
//! levels, of which there is one for each 15 bits. With 128 bits that is 45 lines at most.

use super::CompileError;
use crate::abi::{LocationEntry, LocationLine, LocationWord, MAX_LOCATION_LINES, MAX_LOCATIONS};
use crate::atlas::Atlas;

/// A prefix with its entry: first address with the family's bits uppermost, length.
pub type Prefix = (u128, u8, LocationEntry);

/// Where an entry begins; it ends where the next begins.
type Bound = (u128, LocationWord);

/// Bounds for each line at least: more lines would be emptier.
const BOUNDS_PER_LINE: usize = 3;
/// Parts that a line and the lines below it hold.
const TWO_LEVELS: usize = LocationLine::WORDS * LocationLine::WORDS;
/// Bits that choose a line at least, where a branch follows another on the same level.
const AGAIN: u32 = 3;
/// Lines, and where a look-up of an IPv4 address and of an IPv6 address begins.
pub type Lines = (Vec<LocationLine>, [LocationWord; 2]);

/// The table of an atlas.
pub fn of(atlas: &Atlas) -> Result<Lines, CompileError> {
    let entry = |location, scope, special| LocationEntry {
        location,
        scope,
        flags: if special { LocationEntry::SPECIAL } else { 0 },
    };
    let ipv4 = atlas.entries4().map(|(address, len, location, special)| {
        (u128::from(address.to_bits()) << 96, len, entry(location, len, special))
    });
    let ipv6 = atlas
        .entries6()
        .map(|(address, len, location, special)| (address.to_bits(), len, entry(location, len, special)));
    table(ipv4.collect(), ipv6.collect())
}

/// The table of prefixes in any order, each family's by itself. An address that no prefix holds leads nowhere.
///
/// # Errors
/// [`CompileError::TooManyLocations`] for an id that does not fit, [`CompileError::TooLarge`] for too many prefixes.
pub fn table(ipv4: Vec<Prefix>, ipv6: Vec<Prefix>) -> Result<Lines, CompileError> {
    let mut builder = Builder::default();
    let mut roots = [LocationWord::NOWHERE; 2];
    for (root, prefixes) in roots.iter_mut().zip([ipv4, ipv6]) {
        let bounds = flatten(prefixes)?;
        let (first, others) = match bounds.split_first() {
            Some((&(_, first), others)) => (first, others),
            None => (LocationWord::NOWHERE, [].as_slice()),
        };
        *root = builder.block(false, first, others, 0, 0)?;
    }
    Ok((builder.lines, roots))
}

/// Prefixes to bounds, of which the first is address 0.
fn flatten(mut prefixes: Vec<Prefix>) -> Result<Vec<Bound>, CompileError> {
    // All but a few are in order already, which a stable sort takes advantage of.
    prefixes.sort_by_key(|&(first, len, _)| (first, len));
    let mut bounds: Vec<Bound> = Vec::with_capacity(prefixes.len() + 1);
    bounds.push((0, LocationWord::NOWHERE));
    // The prefixes around the next one, from wide to narrow: where they end.
    let mut around: Vec<(u128, LocationWord)> = Vec::new();
    for (first, len, entry) in prefixes {
        let word = LocationWord::from_entry(entry);
        if entry.location >= MAX_LOCATIONS || word == LocationWord::NOWHERE {
            return Err(CompileError::TooManyLocations);
        }
        leave(&mut around, &mut bounds, |last| last < first);
        begin(&mut bounds, first, word);
        around.push((first | low_bits(len), word));
    }
    leave(&mut around, &mut bounds, |_| true);
    Ok(bounds)
}

/// Goes out of the prefixes that end there.
fn leave(around: &mut Vec<(u128, LocationWord)>, bounds: &mut Vec<Bound>, ended: impl Fn(u128) -> bool) {
    while let Some(&(last, _)) = around.last().filter(|&&(last, _)| ended(last)) {
        around.pop();
        if let Some(after) = last.checked_add(1) {
            begin(bounds, after, around.last().map_or(LocationWord::NOWHERE, |&(_, word)| word));
        }
    }
}

/// From here on it is another entry.
fn begin(bounds: &mut Vec<Bound>, at: u128, word: LocationWord) {
    if bounds.last().is_some_and(|&(last, _)| last == at) {
        bounds.pop();
    }
    if bounds.last().is_none_or(|&(_, last)| last != word) {
        bounds.push((at, word));
    }
}

/// The addresses of a prefix above its first.
fn low_bits(len: u8) -> u128 {
    u128::MAX.checked_shr(len.into()).unwrap_or(0)
}

/// Without the first `by` bits; zeros come from behind.
fn without(address: u128, by: u32) -> u128 {
    address.checked_shl(by).unwrap_or(0)
}

/// The `count` bits from `position` on, 0..=31 of them.
fn bits(address: u128, position: u32, count: u32) -> u32 {
    without(address, position).checked_shr(128 - count).unwrap_or(0) as u32
}

/// The key of an address in a line that tells the bits from `position` on apart.
fn key(address: u128, position: u32) -> u16 {
    bits(address, position, LocationLine::KEY_BITS) as u16
}

/// Whether the address is the first of its key.
fn is_exact(address: u128, position: u32) -> bool {
    without(address, position + LocationLine::KEY_BITS) == 0
}

#[derive(Default)]
struct Builder {
    lines: Vec<LocationLine>,
}

impl Builder {
    /// The word for a block of addresses that agree up to `position`: it begins with `word`, and other entries begin
    /// at the bounds, all behind the block's first address. `least` bits at least choose its lines.
    fn block(
        &mut self,
        deeper: bool,
        word: LocationWord,
        bounds: &[Bound],
        position: u32,
        least: u32,
    ) -> Result<LocationWord, CompileError> {
        if bounds.is_empty() {
            return Ok(word);
        }
        let width = width(bounds, position, least);
        let first_line = self.reserve(1 << width)?;
        let (mut word, mut rest) = (word, bounds);
        for chosen in 0..1u32 << width {
            let count = rest.partition_point(|&(at, _)| bits(at, position, width) <= chosen);
            let (mut inside, after) = rest.split_at(count);
            rest = after;
            if let Some((&(at, begins), others)) = inside.split_first()
                && without(at, position + width) == 0
            {
                (word, inside) = (begins, others);
            }
            self.fill(first_line + chosen, word, inside, position + width)?;
            word = inside.last().map_or(word, |&(_, last)| last);
        }
        Ok(LocationWord::branch(deeper, width, first_line))
    }

    /// Fills a line, as [`Self::block`].
    fn fill(
        &mut self,
        line: u32,
        word: LocationWord,
        bounds: &[Bound],
        position: u32,
    ) -> Result<(), CompileError> {
        if count(bounds, position).0 > TWO_LEVELS {
            let branch = self.block(false, word, bounds, position, AGAIN)?;
            self.put(line, &[(0, branch)]);
            return Ok(());
        }
        let parts = self.parts(word, bounds, position)?;
        if parts.len() <= LocationLine::WORDS {
            self.put(line, &parts);
            return Ok(());
        }
        let each = parts.len().div_ceil(parts.len().div_ceil(LocationLine::WORDS));
        let mut upper = Vec::with_capacity(LocationLine::WORDS);
        for lower in parts.chunks(each) {
            let at = self.reserve(1)?;
            self.put(at, lower);
            upper.push((lower.first().map_or(0, |&(start, _)| start), LocationWord::branch(false, 0, at)));
        }
        self.put(line, &upper);
        Ok(())
    }

    /// The parts that a line would have to hold: first keys and words.
    fn parts(
        &mut self,
        word: LocationWord,
        bounds: &[Bound],
        position: u32,
    ) -> Result<Vec<(u16, LocationWord)>, CompileError> {
        let mut parts = vec![(0, word)];
        let mut put = |start: u16, word: LocationWord| match parts.last_mut() {
            Some(last) if last.0 == start => last.1 = word,
            _ => parts.push((start, word)),
        };
        let mut word = word;
        for group in bounds.chunk_by(|one, other| key(one.0, position) == key(other.0, position)) {
            let (Some(&(at, begins)), Some(&(_, ends))) = (group.first(), group.last()) else { continue };
            let start = key(at, position);
            let (begins, inside) = if is_exact(at, position) { (begins, &group[1..]) } else { (word, group) };
            put(start, self.block(true, begins, inside, position + LocationLine::KEY_BITS, 0)?);
            if !inside.is_empty() && start + 1 < LocationLine::UNUSED {
                put(start + 1, ends);
            }
            word = ends;
        }
        Ok(parts)
    }

    /// New lines one after the other; the number of the first.
    fn reserve(&mut self, count: usize) -> Result<u32, CompileError> {
        let first = self.lines.len();
        if first + count > MAX_LOCATION_LINES as usize {
            return Err(CompileError::TooLarge);
        }
        self.lines.resize(first + count, LocationLine::EMPTY);
        Ok(first as u32)
    }

    /// Writes a line's parts, of which the first starts at 0 or is what the line is reached for.
    fn put(&mut self, line: u32, parts: &[(u16, LocationWord)]) {
        let Some(line) = self.lines.get_mut(line as usize) else { return };
        for (to, &(_, word)) in line.words.iter_mut().zip(parts) {
            *to = word;
        }
        for (to, &(start, _)) in line.starts.iter_mut().zip(parts.iter().skip(1)) {
            *to = start;
        }
    }
}

/// How many parts [`Builder::parts`] gives, and how many of them are branches, together with the bounds in those.
fn count(bounds: &[Bound], position: u32) -> (usize, usize) {
    let (mut count, mut next, mut deeper) = (1, 1, 0);
    for group in bounds.chunk_by(|one, other| key(one.0, position) == key(other.0, position)) {
        let Some(&(at, _)) = group.first() else { continue };
        let start = key(at, position);
        // `next` is the first key without a part of its own.
        if start >= next {
            count += 1;
            next = start + 1;
        }
        if group.len() > 1 || !is_exact(at, position) {
            deeper += 1 + group.len();
            if start + 1 < LocationLine::UNUSED {
                count += 1;
                next = start + 2;
            }
        }
    }
    (count, deeper)
}

/// How many bits of the address choose a line, at least `least`: those that cost least.
fn width(bounds: &[Bound], position: u32, least: u32) -> u32 {
    let most = (bounds.len() / BOUNDS_PER_LINE).max(1).ilog2() + 1;
    let most = most.clamp(least, LocationWord::MAX_WIDTH);
    // A single line that only leads to a branch is for nothing.
    let least = least.max(u32::from(count(bounds, position).0 > TWO_LEVELS));
    let mut best = (usize::MAX, least);
    for width in least..=most {
        if 2 << width >= best.0 {
            break;
        }
        best = best.min((cost(bounds, position, width), width));
    }
    best.1
}

/// What a width costs, in half lines: its own lines; and what a look-up gets to only from them, by how many bounds that concerns,
/// since it takes longer and takes lines too.
fn cost(bounds: &[Bound], position: u32, width: u32) -> usize {
    let further: usize = bounds
        .chunk_by(|one, other| bits(one.0, position, width) == bits(other.0, position, width))
        .map(|inside| match count(inside, position + width) {
            (parts, deeper) if parts <= LocationLine::WORDS => deeper,
            (parts, deeper) if parts <= TWO_LEVELS => deeper + parts / 2,
            (parts, deeper) => deeper + parts,
        })
        .sum();
    (2 << width) + further
}

#[cfg(test)]
mod tests;
