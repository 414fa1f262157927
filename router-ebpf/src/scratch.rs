//! Working memory of one run, one copy per CPU: too large for the 512 octets of a BPF stack.

use core::cell::UnsafeCell;

use router_common::abi::Cell;
use router_common::lookup::Query;
use router_common::wire::Sum;

use crate::clock::Clock;
use crate::maps::SCRATCH;
use crate::packet::MAX_OFFSET;
use crate::reply::Plan;

/// What the parser found.
#[repr(C)]
pub struct Scratch {
    /// The query as the look-up wants it.
    pub query: Query,
    /// The picked answer.
    pub cell: Cell,
    /// Hash of the name.
    pub hash: u64,
    /// Sum of QNAME; after [`crate::parse`] of the whole question.
    pub question_sum: Sum,
    /// The query's OPT record.
    pub edns: Edns,
    /// Whether the lease has lapsed.
    pub stale: Kept<bool>,
    /// The reply, worked out.
    pub plan: Plan,
    /// See [`crate::clock`].
    pub clock: Clock,
    /// Never written: see [`Fog`].
    zero: u32,
    /// Tick of the last report ([`crate::report`]).
    pub reported: u32,
}

/// What the reply must know of the query's OPT record, in one word so that it is written at once.
///
/// Bits 0..16 UDP payload size that the client takes, 16..32 FAMILY of the Client Subnet option (0 = there
/// is none), 32 whether there is an OPT record, 33 DO.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Edns(u64);

impl Edns {
    /// No OPT record.
    pub const NONE: Self = Self(0);

    /// An OPT record without a Client Subnet option.
    #[inline(always)]
    pub const fn new(payload: u16, dnssec_ok: bool) -> Self {
        Self(payload as u64 | 1 << 32 | (dnssec_ok as u64) << 33)
    }

    /// With a Client Subnet option.
    #[inline(always)]
    pub const fn with_ecs(self, family: u16) -> Self {
        Self(self.0 | (family as u64) << 16)
    }

    /// UDP payload size that the client takes.
    #[inline(always)]
    pub const fn payload(self) -> u16 {
        self.0 as u16
    }

    /// FAMILY of the Client Subnet option; 0 = there is none.
    #[inline(always)]
    pub const fn ecs_family(self) -> u16 {
        (self.0 >> 16) as u16
    }

    /// Whether there is an OPT record.
    #[inline(always)]
    pub const fn is_present(self) -> bool {
        self.0 >> 32 != 0
    }

    /// DO.
    #[inline(always)]
    pub const fn dnssec_ok(self) -> bool {
        self.0 >> 33 != 0
    }
}

impl Scratch {
    /// This CPU's.
    #[inline(always)]
    pub fn get() -> Option<&'static mut Self> {
        // SAFETY: this CPU's slot; an XDP program is not preempted by another run on its CPU, and one run
        // asks once.
        SCRATCH.get_ptr_mut(0).map(|scratch| unsafe { &mut *scratch })
    }

    /// See [`Fog`].
    #[inline(always)]
    pub fn fog(&self) -> Fog {
        // SAFETY: a valid reference; volatile so that the compiler does not find out what it always is.
        Fog(unsafe { (&raw const self.zero).read_volatile() })
    }
}

/// A value kept in working memory. What the verifier knows of it is lost there: after a branch it goes on once, not
/// once for each way.
#[repr(transparent)]
pub struct Kept<T>(UnsafeCell<T>);

impl<T: Copy> Kept<T> {
    /// What was put there last.
    #[inline(always)]
    pub fn get(&self) -> T {
        // SAFETY: nobody else uses this CPU's working memory; volatile so that it is read from there.
        unsafe { self.0.get().read_volatile() }
    }

    /// Puts a value there.
    #[inline(always)]
    pub fn set(&self, value: T) {
        // SAFETY: as above.
        unsafe { self.0.get().write_volatile(value) }
    }
}

/// Makes the verifier forget a number. It follows a packet without a VLAN tag, with one and with two as three
/// different programs as long as it knows the number. So something that it does not know, and that is zero, is
/// added: after that there is one program.
#[derive(Clone, Copy)]
pub struct Fog(u32);

impl Fog {
    /// The number, at most [`MAX_OFFSET`].
    #[inline(always)]
    pub fn hide(self, number: u32) -> u32 {
        number.wrapping_add(self.0) & MAX_OFFSET
    }

    /// A length, at most 65,535.
    #[inline(always)]
    pub fn hide_len(self, len: u32) -> u32 {
        len.wrapping_add(self.0) & 0xffff
    }
}
