//! Growth where the packet has no room behind it: its front part moves into the headroom.
//!
//! A veth copies what a local socket sends into a buffer that ends at most 63 octets behind the packet
//! (`skb_pp_cow_data`, Linux 6.6 on), so that about half of all queries cannot grow at the tail; but XDP
//! has up to 256 octets of headroom everywhere.

use aya_ebpf::bindings::xdp_md;
use router_common::wire::{DNS_HEADER, ETHERNET_HEADER, IPV6_HEADER, QUESTION_TAIL, UDP_HEADER};

use crate::packet::{Packet, opaque};

/// Octets of the longest front part: two VLAN tags, IPv6, and a longest name.
const MAX_FRONT: usize =
    (ETHERNET_HEADER + 8 + IPV6_HEADER + UDP_HEADER + DNS_HEADER + 255 + QUESTION_TAIL) as usize;
/// Octets of the shortest one are more than these.
const WORD: u32 = 8;
/// Growth that is never tried: more than the headroom can be.
const MAX_GROWTH: u32 = 256;
/// Success of [`move_front`].
const MOVED: u32 = 0;

/// Why the packet could not grow.
pub enum Refused {
    /// It is as it was.
    Unchanged,
    /// It is in pieces: an impossible state.
    Spoilt,
}

/// Makes the packet `len` octets long, more than it is, with its first `front` octets in front again. What
/// was behind them is anything.
#[inline(always)]
pub fn grow(packet: Packet, len: u32, front: u32) -> Result<Packet, Refused> {
    let by = len.wrapping_sub(packet.len());
    if by > MAX_GROWTH {
        return Err(Refused::Unchanged);
    }
    let Ok(packet) = packet.grow_at_head(by) else { return Err(Refused::Unchanged) };
    // SAFETY: the context is the kernel's.
    match unsafe { move_front(packet.context(), front, by) } {
        MOVED => Ok(packet),
        _ => Err(Refused::Spoilt),
    }
}

/// Moves `front` octets that begin at `by` to the beginning. Returns [`MOVED`], or something else when they
/// are not there.
///
/// A global function, so that the verifier follows its loop once.
///
/// # Safety
///
/// `context` is the kernel's.
#[inline(never)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn move_front(context: *mut xdp_md, front: u32, by: u32) -> u32 {
    // SAFETY: the caller's promise.
    let packet = unsafe { Packet::new(context) };
    match try_move(&packet, front, by) {
        Some(()) => MOVED,
        None => 1,
    }
}

#[inline(always)]
fn try_move(packet: &Packet, front: u32, by: u32) -> Option<()> {
    let mut left = opaque(front as usize);
    if left > MAX_FRONT || front < WORD {
        return None;
    }
    // The last word overlaps the one before, and is read before anything is written over it.
    let last = packet.before::<8>(front.wrapping_add(by))?.u64::<0>();
    let mut from = packet.cursor(by)?;
    let mut to = packet.cursor(0)?;
    while left >= 8 {
        let word = from.next::<8>()?.u64::<0>();
        to.next::<8>()?.set_u64::<0>(word);
        left = opaque(left - 8);
    }
    packet.before::<8>(front)?.set_u64::<0>(last);
    Some(())
}
