//! Summing up a range of the packet.

use router_common::wire::{MAX_QUERY, Sum, UDP_HEADER};

use crate::packet::{Packet, opaque};

/// Sum of at most [`MAX_QUERY`] + 8 octets from `offset` on, with at least 8 before their end in the packet;
/// `None` when they are not all there.
#[inline(always)]
pub fn sum(packet: &Packet, offset: u32, len: u32) -> Option<Sum> {
    let mut left = opaque(len as usize);
    if left > (UDP_HEADER + MAX_QUERY) as usize {
        return None;
    }
    let mut cursor = packet.cursor(offset);
    let mut sum = Sum::ZERO;
    while left >= 16 {
        let octets = cursor.next::<16>()?;
        sum = sum.add32(octets.u32::<0>()).add32(octets.u32::<4>());
        sum = sum.add32(octets.u32::<8>()).add32(octets.u32::<12>());
        left = opaque(left - 16);
    }
    if left >= 8 {
        let octets = cursor.next::<8>()?;
        sum = sum.add32(octets.u32::<0>()).add32(octets.u32::<4>());
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
