//! Programs that measure the one of `../main.rs`, or any DNS server, over a veth pair: a generator of queries, a
//! sink that checks the answers, and a reflector to compare with. Not part of the product.
//!
//! On another target than BPF this is an empty program, so that the workspace builds and clippy sees it.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![cfg_attr(target_arch = "bpf", feature(asm_experimental_arch))]

mod abi;
#[path = "../checksum.rs"]
mod checksum;
#[path = "../packet.rs"]
#[expect(dead_code, reason = "these programs do less with a packet than the one it was written for")]
mod packet;

use aya_ebpf::bindings::xdp_action::{XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX};
use aya_ebpf::bindings::{BPF_F_MMAPABLE, xdp_md};
use aya_ebpf::btf_maps::{Array, PerCpuArray};
use aya_ebpf::helpers::{bpf_ktime_get_ns, bpf_xdp_adjust_tail};
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;
use router_common::wire::{
    DNS_PORT, ETHERNET_HEADER, ETHERTYPE_IPV4, IPV4_FIRST, IPV4_HEADER, Sum, UDP, UDP_HEADER, pseudo_header,
    udp_checksum_is_good,
};

use crate::abi::{
    Config, Counts, HEAD, LONGEST, NEAR_MAC, QUESTION, Query, SHORTEST, State, VERDICTS, Verdict, WORDS,
    number,
};
use crate::packet::{Packet, opaque};

/// The queries, in the order in which they are sent. The loader says how many.
#[btf_map]
static QUERIES: Array<Query, 2, { BPF_F_MMAPABLE as usize }> = Array::new();

/// How the flood runs.
#[btf_map]
static CONFIG: Array<Config, 1> = Array::new();

/// Where the generator is.
#[btf_map]
static STATE: PerCpuArray<State, 1> = PerCpuArray::new();

/// What was counted.
#[btf_map]
static COUNTS: PerCpuArray<Counts, 1> = PerCpuArray::new();

const UDP_AT: u32 = ETHERNET_HEADER + IPV4_HEADER;

/// Makes the frame the next query and sends it out of the interface it is said to have come from; drops it when it is
/// not due.
///
/// A live frame is one that was used before: its content and its length are what the last user left.
#[xdp]
fn generator(context: XdpContext) -> u32 {
    generate(context.ctx).unwrap_or(XDP_ABORTED)
}

#[inline(always)]
fn generate(context: *mut xdp_md) -> Option<u32> {
    let config = CONFIG.get(0)?;
    // SAFETY: this CPU's slot; programs of one kind are not preempted by each other on a CPU.
    let state = unsafe { &mut *STATE.get_ptr_mut(0)? };
    if config.burst != 0 && !due(config, state) {
        return Some(XDP_DROP);
    }
    let query = QUERIES.get(state.next as u32 & config.mask)?;
    state.next = state.next.wrapping_add(1);
    let len = u32::from(query.len);
    // SAFETY: the context is the kernel's.
    let now = unsafe { Packet::new(context) }.len();
    // SAFETY: as above; no window is alive.
    if now != len && unsafe { bpf_xdp_adjust_tail(context, len.wrapping_sub(now) as i32) } != 0 {
        return None;
    }
    // SAFETY: as above.
    write(&unsafe { Packet::new(context) }, query)?;
    // SAFETY: this CPU's slot; what the sink counts at the same time is beside it.
    unsafe { (*COUNTS.get_ptr_mut(0)?).sent += 1 };
    Some(XDP_TX)
}

/// Whether a query may be sent.
#[inline(always)]
fn due(config: &Config, state: &mut State) -> bool {
    if state.left == 0 {
        // SAFETY: reads a clock.
        let now = unsafe { bpf_ktime_get_ns() };
        if now < state.due {
            return false;
        }
        // What was missed is not made up for, beyond one burst.
        let next = state.due.wrapping_add(config.period);
        state.due = if next < now { now } else { next };
        state.left = u64::from(config.burst);
    }
    state.left -= 1;
    true
}

#[inline(always)]
fn write(packet: &Packet, query: &Query) -> Option<()> {
    let words = &query.words;
    let head = packet.front::<SHORTEST>()?;
    head.set_u64::<0>(words[0]);
    head.set_u64::<8>(words[1]);
    head.set_u64::<16>(words[2]);
    head.set_u64::<24>(words[3]);
    head.set_u64::<32>(words[4]);
    head.set_u64::<40>(words[5]);
    head.set_u64::<48>(words[6]);
    head.set_u64::<56>(words[7]);
    head.set_u64::<64>(words[8]);
    let mut cursor = packet.cursor(SHORTEST as u32);
    let mut left = opaque(usize::from(query.len).wrapping_sub(SHORTEST));
    if left > LONGEST - SHORTEST {
        return None;
    }
    let mut at = HEAD;
    while at < WORDS && left >= 8 {
        cursor.next::<8>()?.set_u64::<0>(words[at]);
        at += 1;
        left = opaque(left - 8);
    }
    packet.before::<8>(u32::from(query.len))?.set_u64::<0>(query.last);
    Some(())
}

/// Checks an answer, counts it, and drops it. What is no answer passes.
#[xdp]
fn sink(context: XdpContext) -> u32 {
    // SAFETY: the context is the kernel's.
    let packet = unsafe { Packet::new(context.ctx) };
    let verdict = judge(&packet).err().unwrap_or(Verdict::Right);
    let Some(counts) = COUNTS.get_ptr_mut(0) else { return XDP_ABORTED };
    // The verifier wants to see the bound.
    let index = opaque(verdict as usize);
    if index >= VERDICTS {
        return XDP_ABORTED;
    }
    // SAFETY: as in the generator.
    unsafe { (*counts).answers[index] += 1 };
    if verdict == Verdict::Other { XDP_PASS } else { XDP_DROP }
}

#[inline(always)]
fn judge(packet: &Packet) -> Result<(), Verdict> {
    let config = CONFIG.get(0).ok_or(Verdict::Headers)?;
    let head = packet.front::<QUESTION>().ok_or(Verdict::Other)?;
    let is_dns = head.number::<12>() == ETHERTYPE_IPV4
        && head.u8::<23>() == UDP
        && head.u8::<14>() == IPV4_FIRST
        && head.number::<34>() == DNS_PORT;
    if !is_dns {
        return Err(Verdict::Other);
    }
    let [a, b, c, d, e, f] = NEAR_MAC;
    let udp_len = head.number::<38>();
    if head.u32::<0>() != u32::from_ne_bytes([a, b, c, d])
        || head.u16::<4>() != u16::from_ne_bytes([e, f])
        || head.number::<16>() != udp_len.wrapping_add(IPV4_HEADER as u16)
        || packet.len() < u32::from(udp_len) + UDP_AT
        || u32::from(udp_len) < QUESTION as u32 - UDP_AT
    {
        return Err(Verdict::Headers);
    }
    let port = head.u16::<36>();
    let number = number(head.number::<42>(), u16::from_be(port));
    let query = QUERIES.get(number).ok_or(Verdict::Unasked)?;
    let asked_from = (query.words[3] >> 16) as u32;
    if number > config.mask || head.u32::<30>() != asked_from || port != (query.words[4] >> 16) as u16 {
        return Err(Verdict::Unasked);
    }
    if head.u16::<44>() & config.flags_mask != config.flags {
        return Err(Verdict::Flags);
    }
    let (least, most) = if config.records == 0 { (0, 0) } else { (query.least, query.most) };
    let records = head.number::<48>();
    if head.number::<46>() != 1 || records < u16::from(least) || records > u16::from(most) {
        return Err(Verdict::Counts);
    }
    let ip = Sum::ZERO.add(head.u64::<14>()).add(head.u64::<22>()).add(u64::from(head.u32::<30>()));
    if !ip.is_intact() {
        return Err(Verdict::Checksum);
    }
    if number & config.unsampled == 0 {
        let datagram = checksum::sum(packet, UDP_AT, udp_len.into()).ok_or(Verdict::Headers)?;
        let pseudo = pseudo_header(Sum::ZERO.add(head.u64::<26>()), udp_len);
        if !udp_checksum_is_good(false, head.u16::<40>(), pseudo, datagram) {
            return Err(Verdict::Checksum);
        }
        same_question(packet, query).ok_or(Verdict::Question)?;
    }
    Ok(())
}

/// Whether the packet asks what the query does.
#[inline(always)]
fn same_question(packet: &Packet, query: &Query) -> Option<()> {
    const FIRST: usize = QUESTION / 8 + 1;
    let end = u32::from(query.end);
    let mut cursor = packet.cursor(FIRST as u32 * 8);
    let mut at = FIRST;
    while at < WORDS && (at as u32 + 1) * 8 <= end {
        if cursor.next::<8>()?.u64::<0>() != query.words[at] {
            return None;
        }
        at += 1;
    }
    let head = packet.at::<2>(QUESTION as u32)?;
    let same = head.u16::<0>() == (query.words[FIRST - 1] >> 48) as u16
        && packet.before::<8>(end)?.u64::<0>() == query.tail;
    same.then_some(())
}

/// Sends what comes in back to where it came from. What is not UDP over IPv4 passes.
#[xdp]
fn reflector(context: XdpContext) -> u32 {
    // SAFETY: the context is the kernel's.
    reflect(&unsafe { Packet::new(context.ctx) }).unwrap_or(XDP_PASS)
}

#[inline(always)]
fn reflect(packet: &Packet) -> Option<u32> {
    let head = packet.front::<{ (UDP_AT + UDP_HEADER) as usize }>()?;
    if head.number::<12>() != ETHERTYPE_IPV4 || head.u8::<23>() != UDP {
        return None;
    }
    let (to, to_end, from, from_end) = (head.u32::<0>(), head.u16::<4>(), head.u32::<6>(), head.u16::<10>());
    head.set_u32::<0>(from);
    head.set_u16::<4>(from_end);
    head.set_u32::<6>(to);
    head.set_u16::<10>(to_end);
    let (source, destination) = (head.u32::<26>(), head.u32::<30>());
    head.set_u32::<26>(destination);
    head.set_u32::<30>(source);
    let (source, destination) = (head.u16::<34>(), head.u16::<36>());
    head.set_u16::<34>(destination);
    head.set_u16::<36>(source);
    Some(XDP_TX)
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
