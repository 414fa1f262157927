//! The XDP program of xroute: answers A and AAAA queries from the agent's tables, and hands everything
//! else, untouched, up the normal stack.
//!
//! On another target than BPF this is an empty program, so that the workspace builds and clippy sees it.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

mod checksum;
mod clock;
mod location;
mod maps;
mod packet;
mod parse;
mod reply;
mod report;
mod scratch;
mod stats;
mod tables;
mod trace;
mod verdict;
mod wildcard;

use aya_ebpf::bindings::xdp_action::{XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use router_common::abi::{Control, Generation};
use router_common::counter::Counter;
use router_common::lookup::{Hit, lookup};
use router_common::verdict::Verdict;

use crate::packet::{Packet, forget};
use crate::parse::Headers;
use crate::scratch::Scratch;
use crate::stats::count;
use crate::tables::Half;
use crate::verdict::pass;

/// The program. Its name is [`router_common::abi::PROGRAM`].
#[xdp(frags)]
#[inline(always)]
fn xroute(context: XdpContext) -> u32 {
    // SAFETY: the context is the kernel's.
    let packet = unsafe { Packet::new(context.ctx) };
    let control = tables::control();
    let (counter, action) = match answer(packet, control, context.ctx) {
        Verdict::Answer { counter, stale } => {
            if stale {
                count(Counter::AnswerStale);
            }
            (counter, XDP_TX)
        }
        Verdict::Pass(counter) => (counter, XDP_PASS),
        Verdict::Drop(counter) => (counter, XDP_DROP),
        Verdict::Abort(counter) => (counter, XDP_ABORTED),
    };
    count(counter);
    report::mistake(context.ctx, control, counter);
    if control.flags() & Control::TRACE != 0 {
        trace::outcome(context.ctx, counter);
    }
    action
}

#[inline(always)]
fn answer(packet: Packet, control: Control, context: *mut xdp_md) -> Verdict {
    match try_answer(packet, control, context) {
        Ok(verdict) | Err(verdict) => verdict,
    }
}

#[inline(always)]
fn try_answer(packet: Packet, control: Control, context: *mut xdp_md) -> Result<Verdict, Verdict> {
    const BROKEN: Verdict = Verdict::Pass(Counter::PassBroken);
    if control.flags() & Control::READY == 0 {
        return Err(Verdict::Pass(Counter::PassNotReady));
    }
    let half = Half::active(control);
    let generation = half.generation().ok_or(BROKEN)?;
    let scratch = Scratch::get().ok_or(BROKEN)?;
    let headers = parse::read(context, &packet, &half, generation, scratch)?;
    let hit = match find(&packet, control, &half, generation, scratch, &headers) {
        Ok(found) => found,
        Err(Verdict::Pass(counter)) => {
            let counter = parse::name::check(context, &headers, counter);
            return Err(Verdict::Pass(counter));
        }
        Err(other) => return Err(other),
    };
    if control.flags() & Control::TRACE != 0 {
        trace::query(context, scratch);
    }
    let counter = reply::write(packet, &headers, generation, &half, scratch, &hit)?;
    stats::tally(generation, &scratch.cell, scratch.clock.now());
    if scratch.edns.ecs_family() != 0 {
        stats::count_subnet(scratch.edns.ecs_family());
    }
    Ok(Verdict::Answer { counter, stale: scratch.stale.get() })
}

/// The answer to the question; its cell, and whether the lease has lapsed, are in the working memory.
#[inline(always)]
fn find(
    packet: &Packet,
    control: Control,
    half: &Half,
    generation: &Generation,
    scratch: &mut Scratch,
    headers: &Headers,
) -> Result<Hit, Verdict> {
    parse::read_question(packet, generation, scratch, headers)?;
    let stale = scratch.clock.is_stale(control);
    if stale && control.flags() & Control::STALE_PASS != 0 {
        return Err(pass(Counter::PassStale));
    }
    let hit = lookup(half, generation, &scratch.query, scratch.hash, &mut scratch.cell)?;
    forget(&mut scratch.cell);
    scratch.stale.set(stale);
    let scope = scratch.fog().hide(hit.scope.into()) as u8;
    Ok(Hit { scope, ..hit })
}

/// The licence, as the kernel wants to know it.
#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

#[cfg(not(target_arch = "bpf"))]
fn main() {}

/// A reachable panic must make the verifier refuse the program, so this never returns.
#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
