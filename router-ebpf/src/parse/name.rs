//! QNAME: length, folded words, hash and sum in two passes.

use router_common::abi::{INLINE_NAME, LINE, MAX_NAME};
use router_common::lookup::{fold_case, hash_end, hash_step};
use router_common::wire::{MAX_LABEL, Sum};

use crate::packet::{Cursor, Packet, opaque};
use crate::scratch::{Scratch, forget};

/// Labels of a longest name, the root included.
const MAX_LABELS: u32 = 128;

/// Reads the name at `offset` into `query.name`, `query.name_len`, `hash` and `question_sum`. `None` when it is
/// not a whole uncompressed name (RFC 1035 §3.1).
#[inline(always)]
pub fn read(packet: &Packet, scratch: &mut Scratch, offset: u32, [seed, key]: &[u64; 2]) -> Option<u32> {
    let mut cursor = packet.cursor(offset)?;
    let len = walk_labels(cursor)?;
    // Each way out of the walk knows another range of lengths.
    let len = forget(&mut scratch.query.name_len, len);
    let mut left = opaque(len as usize);
    if left == 0 || left > MAX_NAME {
        return None;
    }

    let mut state = *seed;
    let mut sum = Sum::ZERO;
    let mut words = 0;
    while left >= 8 {
        let word = cursor.next::<8>()?.u64::<0>();
        sum = sum.add(word);
        let folded = fold_case(u64::from_le(word));
        state = hash_step(state, folded);
        *scratch.query.name.get_mut(words)? = folded;
        words += 1;
        left = opaque(left - 8);
    }
    if left > 0 {
        // The word that ends where the name ends, without what stands before the name's last octets: the
        // packet may end after the question, but the DNS header is before the name.
        let word = u64::from_le(packet.before::<8>(offset.wrapping_add(len))?.u64::<0>()) >> (64 - 8 * left);
        sum = sum.add(word.to_le());
        let folded = fold_case(word);
        state = hash_step(state, folded);
        *scratch.query.name.get_mut(words)? = folded;
        words += 1;
    }
    while words < INLINE_NAME / 8 || words % (LINE / 8) != 0 {
        *scratch.query.name.get_mut(words)? = 0;
        words += 1;
    }
    scratch.hash = hash_end(state, *key, len);
    scratch.question_sum = sum;
    Some(len)
}

/// Octets of the name with its root label.
#[inline(always)]
fn walk_labels(cursor: Cursor<'_>) -> Option<u32> {
    let mut at = 0;
    let mut labels = 0;
    while labels < MAX_LABELS {
        let len = usize::from(cursor.at::<1>(at)?.u8::<0>());
        at += 1 + len;
        if len == 0 {
            return Some(at as u32);
        }
        // Above 63 is a pointer or something unknown; the root label must still fit.
        if len > MAX_LABEL as usize || at >= MAX_NAME {
            return None;
        }
        labels += 1;
    }
    None
}
