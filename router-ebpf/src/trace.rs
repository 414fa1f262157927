//! Copies of sampled queries and their replies, for whoever reads along ([`router_common::trace`]).
//!
//! Everything here is called when [`Control::TRACE`](router_common::abi::Control::TRACE) is set, and only then.
//! Both entries are global functions: the verifier follows them once, not on each way that leads here, and what
//! they do stays out of the main program's registers.

use aya_ebpf::bindings::{BPF_RB_NO_WAKEUP, xdp_md};
use aya_ebpf::helpers::{bpf_get_prandom_u32, bpf_ktime_get_ns, bpf_ringbuf_output, bpf_xdp_load_bytes};
use router_common::abi::{Control, MAX_NAME};
use router_common::counter::Counter;
use router_common::lookup::Query;
use router_common::trace::{Head, QUERY_FRAME, REPLY_FRAME, RULES, Record, Rule, State, WINDOW_BITS};

use crate::maps::{TRACE_RECORD, TRACE_RING, TRACE_RULES, TRACE_STATE};
use crate::packet::opaque;
use crate::scratch::Scratch;

/// Copies the frame of a query that is about to be overwritten by its answer, when a rule asks for it.
#[inline(always)]
pub fn query(context: *mut xdp_md, scratch: &Scratch) {
    // SAFETY: the kernel's context, and a reference.
    unsafe { trace_query(context, &raw const scratch.query, scratch.clock.tick()) };
}

/// Hands out what became of a query: with the copy made before when it was answered, else with a copy of the
/// packet, which is still the query.
#[inline(always)]
pub fn outcome(context: *mut xdp_md, counter: Counter) {
    let Some(scratch) = Scratch::get() else { return };
    // SAFETY: the kernel's context, and a reference.
    unsafe { trace_outcome(context, &raw const scratch.query, scratch.clock.tick(), counter as u32) };
}

/// [`query`]. What it returns means nothing: a global function must.
///
/// # Safety
///
/// `context` is the kernel's; `query` is null or valid.
#[inline(never)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trace_query(context: *mut xdp_md, query: *const Query, tick: u32) -> u32 {
    // SAFETY: the caller's promise.
    let Some(query) = (unsafe { query.as_ref() }) else { return 0 };
    let Some(record) = record() else { return 0 };
    record.head.rules = matching(query, tick, !0, true);
    record.head.query_len = 0;
    if record.head.rules != 0 {
        copy_query(context, record);
    }
    0
}

/// [`outcome`].
///
/// # Safety
///
/// As for [`trace_query`].
#[inline(never)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trace_outcome(
    context: *mut xdp_md,
    query: *const Query,
    tick: u32,
    counter: u32,
) -> u32 {
    // SAFETY: the caller's promise.
    let Some(query) = (unsafe { query.as_ref() }) else { return 0 };
    let Some(record) = record() else { return 0 };
    let answered = counter == Counter::AnswerRecords as u32 || counter == Counter::AnswerNodata as u32;
    let outcome = 1 << (counter & 63);
    if answered {
        record.head.rules = wanted(record.head.rules, outcome);
    } else {
        record.head.rules = matching(query, tick, outcome, false);
        if record.head.rules != 0 {
            copy_query(context, record);
        }
    }
    if record.head.rules == 0 {
        return 0;
    }
    // SAFETY: a helper without arguments.
    let now = unsafe { bpf_ktime_get_ns() };
    record.head.rules = within_limits(record.head.rules, now);
    if record.head.rules == 0 {
        return 0;
    }
    record.head.time = now;
    // SAFETY: the kernel's context.
    record.head.interface = unsafe { (*context).ingress_ifindex };
    record.head.counter = counter as u16;
    record.head.reply_len = 0;
    if answered {
        copy_reply(context, record);
    }
    hand_out(record);
    0
}

/// Whether a query's name is what a rule asks for: 1 or 0.
///
/// # Safety
///
/// `query` is null or valid.
#[inline(never)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn trace_name(query: *const Query, rule: u32) -> u32 {
    // SAFETY: the caller's promise.
    let Some(query) = (unsafe { query.as_ref() }) else { return 0 };
    let Some(rule) = TRACE_RULES.get(rule) else { return 0 };
    let (len, end) = (u32::from(rule.name_len), query.name_len);
    if end < len || rule.exact != 0 && end != len {
        return 0;
    }
    let start = end - len;
    let mut i = 0;
    while i < len {
        if octet(&query.name, start + i).to_ascii_lowercase() != octet(&rule.name, i) {
            return 0;
        }
        i += 1;
    }
    1
}

/// An octet of a name kept as words.
#[inline(always)]
fn octet(name: &[u64; router_common::abi::NAME_WORDS], at: u32) -> u8 {
    let at = opaque(at as usize);
    if at > MAX_NAME {
        return 0;
    }
    // SAFETY: inside the 256 octets.
    unsafe { *(&raw const *name).cast::<u8>().add(at) }
}

/// This CPU's.
#[inline(always)]
fn record() -> Option<&'static mut Record> {
    // SAFETY: this CPU's slot; an XDP program is not preempted by another run on its CPU, and each of the
    // functions that ask does so once.
    TRACE_RECORD.get_ptr_mut(0).map(|record| unsafe { &mut *record })
}

/// The rules that sample this query and want one of these outcomes. Those that have lapsed are looked over as
/// early as the time is known: a dead agent's must cost little.
#[inline(always)]
fn matching(query: &Query, tick: u32, outcomes: u64, answered: bool) -> u16 {
    let mut rules = 0;
    let mut i = 0;
    while i < RULES as u32 {
        let Some(rule) = TRACE_RULES.get(i) else { return 0 };
        let threshold = threshold(rule);
        if threshold != 0
            && rule.deadline >= tick
            && rule.outcomes & outcomes != 0
            // SAFETY: a helper without arguments.
            && u64::from(unsafe { bpf_get_prandom_u32() }) < threshold
            && rule.fits_client(query)
            && (!answered || rule.fits_type(query.aaaa))
            // SAFETY: a reference.
            && (rule.name_len == 0 || unsafe { trace_name(&raw const *query, i) } != 0)
        {
            rules |= 1 << i;
        }
        i += 1;
    }
    rules
}

/// [`Rule::threshold`].
#[inline(always)]
fn threshold(rule: &Rule) -> u64 {
    // SAFETY: a reference; volatile because the agent writes it.
    unsafe { (&raw const rule.threshold).read_volatile() }
}

/// Those of the rules that want one of these outcomes.
#[inline(always)]
fn wanted(rules: u16, outcomes: u64) -> u16 {
    let mut left = rules;
    let mut i = 0;
    while i < RULES as u32 {
        if TRACE_RULES.get(i).is_none_or(|rule| rule.outcomes & outcomes == 0) {
            left &= !(1 << i);
        }
        i += 1;
    }
    left
}

/// Those of the rules that have not lapsed and may have another copy now.
#[inline(always)]
fn within_limits(rules: u16, now: u64) -> u16 {
    let mut left = rules;
    let mut i = 0;
    while i < RULES as u32 {
        if rules & 1 << i != 0 && !is_within_limits(i, now) {
            left &= !(1 << i);
        }
        i += 1;
    }
    left
}

#[inline(always)]
fn is_within_limits(i: u32, now: u64) -> bool {
    let (Some(rule), Some(state)) = (TRACE_RULES.get(i), state(i)) else { return false };
    if rule.deadline < Control::tick(now) {
        return false;
    }
    let window = now >> WINDOW_BITS;
    if state.window != window {
        state.window = window;
        state.count = 0;
    }
    if state.count >= u64::from(rule.per_window) {
        state.withheld += 1;
        return false;
    }
    state.count += 1;
    true
}

/// This CPU's.
#[inline(always)]
fn state(i: u32) -> Option<&'static mut State> {
    // SAFETY: this CPU's slot, asked for by one function at a time.
    TRACE_STATE.get_ptr_mut(i).map(|state| unsafe { &mut *state })
}

/// Octets of the first buffer, which is all there is of a query.
#[inline(always)]
fn frame_len(context: *mut xdp_md) -> usize {
    // SAFETY: the kernel's context.
    unsafe { ((*context).data_end as usize).wrapping_sub((*context).data as usize) }
}

/// Copies the frame as that of a query.
#[inline(always)]
fn copy_query(context: *mut xdp_md, record: &mut Record) {
    let mut len = opaque(frame_len(context));
    if len > QUERY_FRAME {
        len = QUERY_FRAME;
    }
    if load(context, &raw mut record.frames, 0, len) {
        record.head.query_len = len as u32;
    }
}

/// Copies the frame as that of a reply, behind the query's.
#[inline(always)]
fn copy_reply(context: *mut xdp_md, record: &mut Record) {
    let mut len = opaque(frame_len(context));
    if len > REPLY_FRAME {
        len = REPLY_FRAME;
    }
    let at = opaque(record.head.query_len as usize);
    if at <= QUERY_FRAME && load(context, &raw mut record.frames, at, len) {
        record.head.reply_len = len as u32;
    }
}

/// Copies the first `len` octets of the packet; `len` and `at` are known to fit.
#[inline(always)]
fn load(context: *mut xdp_md, frames: *mut [u8; QUERY_FRAME + REPLY_FRAME], at: usize, len: usize) -> bool {
    if len == 0 {
        return false;
    }
    // SAFETY: `at + len` is at most the length of the frames, as the callers have seen to.
    unsafe { bpf_xdp_load_bytes(context, 0, frames.cast::<u8>().add(at).cast(), len as u32) == 0 }
}

/// Puts the record into the ring, without waking anybody: the agent looks at it many times a second.
#[inline(always)]
fn hand_out(record: &mut Record) {
    let frames = record.head.query_len as usize + record.head.reply_len as usize;
    let len = opaque(size_of::<Head>() + frames);
    if len > size_of::<Record>() {
        return;
    }
    let data = (&raw mut *record).cast();
    let ring = (&raw const TRACE_RING).cast_mut().cast();
    // SAFETY: the map, and as many octets as the record has.
    if unsafe { bpf_ringbuf_output(ring, data, len as u64, u64::from(BPF_RB_NO_WAKEUP)) } != 0 {
        let rules = record.head.rules;
        let mut i = 0;
        while i < RULES as u32 {
            if rules & 1 << i != 0
                && let Some(state) = state(i)
            {
                state.lost += 1;
            }
            i += 1;
        }
    }
}
