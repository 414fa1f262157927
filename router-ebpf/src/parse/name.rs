//! QNAME: length, words, hash and sum in one pass.
//!
//! The name is taken to end at its first zero octet, and labels are not looked at. That is enough to answer: owner
//! names that have a slot hold no other zero octet, and octets that equal a name of the tables are that name. Only
//! when a query is not answered [`check`] walks over the labels, for the reason.

use aya_ebpf::bindings::xdp_md;
use router_common::abi::{Generation, INLINE_NAME, MAX_NAME, NAME_WORDS};
use router_common::counter::Counter;
use router_common::lookup::{hash_end, hash_word};
use router_common::wire::{DNS_HEADER, MAX_LABEL, Sum, UDP_HEADER};

use crate::packet::{Packet, opaque};
use crate::parse::Headers;
use crate::scratch::Scratch;
use crate::tables::Half;

/// Labels of a longest name, the root included.
const MAX_LABELS: u32 = 128;

/// Reads the name at `offset` into `query.name`, `query.name_len` and `hash`, up to its first zero octet. Returns its
/// length and sum; `None` when there is no such octet in the packet, or in the 255 that a name may have.
///
/// Most names fit into their owner's slot, and are read without a loop.
#[inline(always)]
pub fn read(
    context: *mut xdp_md,
    packet: &Packet,
    half: &Half,
    generation: &Generation,
    scratch: &mut Scratch,
    offset: u32,
) -> Option<(u32, Sum)> {
    let cursor = packet.cursor(offset);
    let [seed, key] = generation.seed;
    let mut state = seed;
    let mut sum = Sum::ZERO;
    // What is compared of a short name is zero beyond its end.
    let name: &mut [u64; SHORT] = scratch.query.name.first_chunk_mut()?;
    for word in &mut *name {
        // SAFETY: a valid reference; volatile because the compiler would call a function that writes octets.
        unsafe { (&raw mut *word).write_volatile(0) };
    }
    macro_rules! word {
        ($at:literal, $last:lifetime) => {{
            let Some(window) = cursor.ahead::<{ 8 * $at }, 8>() else {
                break $last($at, cursor.rest::<{ 8 * $at }>(packet)?);
            };
            let word = u64::from_le(window.u64::<0>());
            if zeros(word) != 0 {
                break $last($at, word);
            }
            (window, word)
        }};
    }
    macro_rules! words {
        ($($at:literal)* and $end:literal) => {
            'last: {
                $(
                    let (window, word) = word!($at, 'last);
                    sum = sum.add32(window.u32::<0>()).add32(window.u32::<4>());
                    state = hash_word(state, word);
                    name[$at] = word;
                )*
                word!($end, 'last);
                // SAFETY: the kernel's context.
                return found(unsafe { read_long_name(context, half.number(), offset) });
            }
        };
    }
    let (words, last): (u32, u64) = words!(0 1 2 3 and 4);
    let words = scratch.fog().hide(words);
    let (octets, last) = cut(last)?;
    state = hash_word(state, last);
    scratch.query.name[opaque(words as usize) % 8] = last;
    let len = words * 8 + octets + 1;
    scratch.query.name_len = len;
    scratch.hash = hash_end(state, key, len);
    Some((len, sum.add(last.to_le())))
}

/// Words of a name that fits into its owner's slot.
const SHORT: usize = INLINE_NAME / 8;

/// What [`read_long_name`] returns: the length in bits 0..16, the sum folded in bits 16..32; 0 when it is no name.
#[inline(always)]
fn found(found: u32) -> Option<(u32, Sum)> {
    if found == 0 {
        return None;
    }
    Some((found & 0xffff, Sum::from_folded((found >> 16) as u16)))
}

/// [`read`] for any name, as [`found`] takes it. A global function: the verifier follows its loop once.
///
/// # Safety
///
/// `context` is the kernel's.
#[inline(never)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn read_long_name(context: *mut xdp_md, half: u32, offset: u32) -> u32 {
    let Some(scratch) = Scratch::get() else { return 0 };
    let Some(generation) = Half::numbered(half).generation() else { return 0 };
    // SAFETY: the caller's promise.
    let packet = unsafe { Packet::new(context) };
    let mut cursor = packet.cursor(offset);
    let [mut state, key] = generation.seed;
    let mut sum = Sum::ZERO;
    let mut words = 0;
    let last = loop {
        let Some(window) = cursor.next::<8>() else {
            match cursor.rest::<0>(&packet) {
                Some(rest) => break rest,
                None => return 0,
            }
        };
        let word = u64::from_le(window.u64::<0>());
        if zeros(word) != 0 {
            break word;
        }
        if words == NAME_WORDS - 1 {
            return 0;
        }
        sum = sum.add32(window.u32::<0>()).add32(window.u32::<4>());
        state = hash_word(state, word);
        scratch.query.name[opaque(words) % NAME_WORDS] = word;
        words += 1;
    };
    let Some((octets, last)) = cut(last) else { return 0 };
    state = hash_word(state, last);
    scratch.query.name[opaque(words) % NAME_WORDS] = last;
    let len = words as u32 * 8 + octets + 1;
    if len > MAX_NAME as u32 {
        return 0;
    }
    scratch.query.name_len = len;
    scratch.hash = hash_end(state, key, len);
    len | u32::from(sum.add(last.to_le()).fold()) << 16
}

/// The octets before the first zero octet of a word, and how many they are; `None` without a zero octet.
#[inline(always)]
fn cut(word: u64) -> Option<(u32, u64)> {
    let zeros = zeros(word);
    if zeros == 0 {
        return None;
    }
    // Bit 0 of the zero octet; below it is what stands before. The product's highest octet is its place.
    let zero = (zeros & zeros.wrapping_neg()) >> 7;
    Some(((zero.wrapping_mul(0x0001_0203_0405_0607) >> 56) as u32, word & zero.wrapping_sub(1)))
}

/// Not zero when one of the octets is; then the lowest set bit is bit 7 of the first that is.
#[inline(always)]
const fn zeros(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    word.wrapping_sub(ONES) & !word & (0x80 * ONES)
}

/// Why a query that is not answered, for the reason `counter`, is not: because of its name, if that is not one.
#[inline(always)]
pub fn check(context: *mut xdp_md, headers: &Headers, counter: Counter) -> Counter {
    let at = headers.udp.wrapping_add(UDP_HEADER + DNS_HEADER);
    // SAFETY: the kernel's context.
    let len = unsafe { length_of_name(context, at) };
    if len == 0 || at.wrapping_add(len) > headers.end {
        return Counter::PassName;
    }
    // A zero octet in a label: no name of the tables has one.
    if len == headers.name_len { counter } else { Counter::PassUnknownName }
}

/// Octets of the name at `offset` with its root label, 0 when it is not a whole uncompressed name (RFC 1035 §3.1).
/// A global function: the verifier follows its loop once.
///
/// # Safety
///
/// `context` is the kernel's.
#[inline(never)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn length_of_name(context: *mut xdp_md, offset: u32) -> u32 {
    // SAFETY: the caller's promise.
    let packet = unsafe { Packet::new(context) };
    let mut at = 0;
    let mut labels = 0;
    while labels < MAX_LABELS {
        let Some(label) = packet.at::<1>(offset.wrapping_add(at)) else { return 0 };
        let len = u32::from(label.u8::<0>());
        at += 1 + len;
        if len == 0 {
            return at;
        }
        // Above 63 is a pointer or something unknown; the root label must still fit.
        if len > MAX_LABEL || at >= MAX_NAME as u32 {
            return 0;
        }
        labels += 1;
    }
    0
}
