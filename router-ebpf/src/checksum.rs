//! Summing up a range of the packet.

use aya_ebpf::bindings::xdp_md;
use router_common::wire::{MAX_QUERY, Sum, UDP_HEADER};

use crate::packet::{Packet, opaque};

/// What [`sum_range`] returns when the range is not in the packet.
const UNREADABLE: u32 = u32::MAX;

/// Sum of a UDP datagram, 8..=[`MAX_QUERY`] + 8 octets from `offset` on; `None` when it is not in the
/// packet.
#[inline(always)]
pub fn sum_datagram(packet: &Packet, offset: u32, len: u32) -> Option<Sum> {
    // SAFETY: the context is the kernel's.
    match unsafe { sum_range(packet.context(), offset, len) } {
        UNREADABLE => None,
        folded => Some(Sum::from_folded(folded as u16)),
    }
}

/// The folded sum, or [`UNREADABLE`]. `len` is at least 8.
///
/// A global function: the verifier checks it by itself, once, for all arguments, instead of following each
/// way out of its loop through the rest of the program.
///
/// # Safety
///
/// `context` is the kernel's.
#[inline(never)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sum_range(context: *mut xdp_md, offset: u32, len: u32) -> u32 {
    // SAFETY: the caller's promise.
    let packet = unsafe { Packet::new(context) };
    match sum(&packet, offset, len) {
        Some(sum) => u32::from(sum.fold()),
        None => UNREADABLE,
    }
}

#[inline(always)]
fn sum(packet: &Packet, offset: u32, len: u32) -> Option<Sum> {
    let mut left = opaque(len as usize);
    if left > (UDP_HEADER + MAX_QUERY) as usize {
        return None;
    }
    let mut cursor = packet.cursor(offset)?;
    let mut sum = Sum::ZERO;
    while left >= 16 {
        let octets = cursor.next::<16>()?;
        sum = sum.add(octets.u64::<0>()).add(octets.u64::<8>());
        left = opaque(left - 16);
    }
    if left >= 8 {
        sum = sum.add(cursor.next::<8>()?.u64::<0>());
        left -= 8;
    }
    if left > 0 {
        // The last octets are the upper ones of the word that ends where they end; the shift drops those
        // before them, which were added already.
        let last = packet.before::<8>(offset.wrapping_add(len))?.u64::<0>();
        sum = sum.add(last >> (64 - 8 * left));
    }
    Some(sum)
}
