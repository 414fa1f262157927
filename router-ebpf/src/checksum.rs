//! Summing up a range of the packet.

use aya_ebpf::bindings::xdp_md;
use router_common::wire::{MAX_QUERY, Sum, UDP_HEADER};

use crate::packet::Packet;

/// What [`sum_range`] returns when the range is not in the packet.
const UNREADABLE: u32 = u32::MAX;

/// Octets summed in one step.
const STEP: u32 = 16;

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
    if len < UDP_HEADER || len > UDP_HEADER + MAX_QUERY {
        return UNREADABLE;
    }
    let mut sum = Sum::ZERO;
    let mut at = 0;
    while at < UDP_HEADER + MAX_QUERY {
        if at + STEP > len {
            break;
        }
        let Some(octets) = packet.at::<{ STEP as usize }>(offset.wrapping_add(at)) else { return UNREADABLE };
        sum = sum.add(octets.u64::<0>()).add(octets.u64::<8>());
        at += STEP;
    }
    let mut rest = len & (STEP - 1);
    if rest >= 8 {
        let Some(octets) = packet.at::<8>(offset.wrapping_add(len & !(STEP - 1))) else { return UNREADABLE };
        sum = sum.add(octets.u64::<0>());
        rest -= 8;
    }
    if rest > 0 {
        // The last octets are the upper ones of the word that ends where they end; the shift drops those
        // before them, which were added already.
        let Some(octets) = packet.at::<8>(offset.wrapping_add(len - 8)) else { return UNREADABLE };
        sum = sum.add(octets.u64::<0>() >> (64 - 8 * rest));
    }
    u32::from(sum.fold())
}
