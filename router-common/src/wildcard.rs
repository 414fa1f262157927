//! Names that only a wildcard covers (RFC 4592): the closest encloser by stripping labels from the left.
//!
//! Every name that exists has an owner slot, what the fast path leaves to userspace included, so the first
//! name on the way up that has a slot is the closest encloser, and only its own wildcard counts.

use crate::abi::{Generation, LINE, MAX_STRIPPED, NAME_WORDS, NONE};
use crate::lookup::{Miss, Query, Tables, find_slot, hash_name};

/// Takes the first label off a query's name, in place: `name` stays padded with zeros as the comparison
/// wants it. `false` for the root, and for octets that are not a name.
#[inline(always)]
pub fn strip_label(query: &mut Query) -> bool {
    let label = (query.name[0] & 0xff) as u32;
    let len = query.name_len;
    if label == 0 || label > 63 || label + 1 >= len {
        return false;
    }
    let by = label + 1;
    let (skipped, bits) = ((by / 8) as usize, (by % 8) * 8);
    let left = len - by;
    // The comparison reads whole lines.
    let end = (left as usize).div_ceil(LINE) * (LINE / 8);
    let mut i = 0;
    while i < NAME_WORDS && i < end {
        let low = word(&query.name, i + skipped, len);
        let high = word(&query.name, i + skipped + 1, len);
        query.name[i] = if bits == 0 { low } else { low >> bits | high << (64 - bits) };
        i += 1;
    }
    query.name_len = left;
    true
}

/// Word `i` of a name of so many octets; zero beyond it.
#[inline(always)]
fn word(name: &[u64; NAME_WORDS], i: usize, len: u32) -> u64 {
    if i < NAME_WORDS && (i as u32) * 8 < len { name[i] } else { 0 }
}

/// One name on the way up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It does not exist: go on.
    Up,
    /// It is the closest encloser, and this slot (relative to its half) is its wildcard's.
    Covered(u32),
    /// It is the closest encloser, and has no wildcard, or none that is known here; or there is nothing above.
    Unknown,
    /// The tables lead nowhere.
    Broken,
}

/// Goes one name up: strips a label off the query's name, and looks at what is there.
#[inline(always)]
pub fn step<T: Tables>(tables: &T, generation: &Generation, query: &mut Query) -> Step {
    if !strip_label(query) {
        return Step::Unknown;
    }
    let hash = hash_name(&generation.seed, &query.name, query.name_len);
    match find_slot(tables, generation, query, hash) {
        Ok(encloser) if encloser.wildcard == NONE => Step::Unknown,
        Ok(encloser) => Step::Covered(encloser.wildcard),
        Err(Miss::UnknownName) => Step::Up,
        Err(Miss::Deferred) => Step::Unknown,
        Err(_) => Step::Broken,
    }
}

/// The slot, relative to its half, of the wildcard that covers a name without a slot of its own. `step` is
/// [`step`] on a copy of the query.
#[inline(always)]
pub fn find_covering(mut step: impl FnMut() -> Step) -> Result<u32, Miss> {
    let mut stripped = 0;
    while stripped < MAX_STRIPPED {
        match step() {
            Step::Up => stripped += 1,
            Step::Covered(slot) => return Ok(slot),
            Step::Unknown => return Err(Miss::UnknownName),
            Step::Broken => return Err(Miss::Broken),
        }
    }
    // More labels than are followed here.
    Err(Miss::Deferred)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup::Client;

    fn query(octets: &[u8]) -> Query {
        let mut padded = [0; NAME_WORDS * 8];
        padded[..octets.len()].copy_from_slice(octets);
        let mut name = [0; NAME_WORDS];
        for (word, chunk) in name.iter_mut().zip(padded.chunks_exact(8)) {
            *word = u64::from_le_bytes(chunk.try_into().unwrap());
        }
        Query {
            name,
            name_len: octets.len() as u32,
            aaaa: false,
            source: Client::default(),
            has_ecs: false,
            ecs_len: 0,
            ecs: Client::default(),
        }
    }

    #[test]
    fn every_length_of_label_is_stripped() {
        for label in 1..=63usize {
            for rest in [
                &b"\0"[..],
                b"\x01a\0",
                b"\x07example\x03com\0",
                &[&[63u8; 1][..], &[b'x'; 63], b"\0"].concat(),
            ] {
                let octets = [&[label as u8][..], &vec![b'l'; label], rest].concat();
                let mut stripped = query(&octets);
                assert!(strip_label(&mut stripped));
                assert_eq!(stripped.name_len as usize, rest.len());
                let lines = rest.len().div_ceil(LINE) * (LINE / 8);
                assert_eq!(stripped.name[..lines], query(rest).name[..lines], "label of {label}");
            }
        }
    }

    #[test]
    fn what_is_stale_beyond_the_name_does_not_come_in() {
        let mut stale = query(b"\x03abc\x02de\0");
        stale.name[1..].fill(u64::MAX);
        assert!(strip_label(&mut stale));
        assert_eq!(stale.name[..8], query(b"\x02de\0").name[..8]);
    }

    #[test]
    fn the_root_and_nonsense_have_no_label() {
        assert!(!strip_label(&mut query(b"\0")));
        assert!(!strip_label(&mut query(b"\x05ab\0")));
        assert!(!strip_label(&mut query(&[0xc0, 12])));
    }
}
