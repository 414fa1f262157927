//! Reports of what means a mistake in the agent or here, with what helps to find it: the agent logs them
//! (aya-log). Never one for each packet: whoever makes such packets must not be able to fill logs.

use aya_ebpf::bindings::xdp_md;
use aya_log_ebpf::error;
use router_common::abi::Control;
use router_common::counter::Counter;

use crate::packet::opaque;
use crate::scratch::Scratch;

/// Reports the outcome, if it is one of those.
#[inline(always)]
pub fn mistake(context: *mut xdp_md, control: Control, counter: Counter) {
    if matches!(counter, Counter::AbortReply | Counter::PassBroken) {
        // SAFETY: the kernel's context.
        unsafe { report(context, control.0, counter as u32) };
    }
}

/// Writes a report, unless this CPU has written one in the same tick (1.07 s). A global function: the verifier
/// follows it once, and it is out of the way of those who never come here.
///
/// # Safety
///
/// `context` is the kernel's.
#[inline(never)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn report(context: *mut xdp_md, control: u64, counter: u32) -> u32 {
    let Some(scratch) = Scratch::get() else { return 0 };
    let tick = scratch.clock.tick();
    if scratch.reported == tick {
        return 0;
    }
    scratch.reported = tick;
    // SAFETY: the caller's promise.
    let interface = unsafe { (*context).ingress_ifindex };
    // SAFETY: as above.
    let frame = unsafe { ((*context).data_end as usize).wrapping_sub((*context).data as usize) };
    // Half a pointer cannot be kept: the difference is taken of whole ones.
    let frame = opaque(frame) as u32;
    let (len, begin, hash) = (scratch.query.name_len, scratch.query.name[0].swap_bytes(), scratch.hash);
    // One text for both: each costs the verifier a few thousand instructions.
    error!(
        context,
        "a table leads nowhere, or a reply was not written (outcome {}): name of {} octets 0x{:x}..., hash 0x{:x}, control 0x{:x}, interface {}, frame of {} octets",
        counter,
        len,
        begin,
        hash,
        control,
        interface,
        frame
    );
    0
}
