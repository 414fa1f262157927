//! Working memory of one run, one copy per CPU: too large for the 512 octets of a BPF stack.

use router_common::lookup::Query;
use router_common::wire::Sum;

use crate::maps::SCRATCH;

/// What the parser found.
#[repr(C)]
pub struct Scratch {
    /// The query as the look-up wants it.
    pub query: Query,
    /// Hash of the name.
    pub hash: u64,
    /// Sum of QNAME.
    pub name_sum: Sum,
    /// The query's OPT record.
    pub edns: Edns,
    /// See [`forget`].
    forgotten: u32,
}

/// What the reply must know of the query's OPT record.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Edns {
    /// UDP payload size that the client takes.
    pub payload: u16,
    /// FAMILY of the Client Subnet option; 0 = there is none.
    pub ecs_family: u16,
    /// Whether there is an OPT record.
    pub present: bool,
    /// DO.
    pub dnssec_ok: bool,
}

impl Scratch {
    /// This CPU's.
    #[inline(always)]
    pub fn get() -> Option<&'static mut Self> {
        // SAFETY: this CPU's slot; an XDP program is not preempted by another run on its CPU, and one run
        // asks once.
        SCRATCH.get_ptr_mut(0).map(|scratch| unsafe { &mut *scratch })
    }

    /// Takes a number through memory. The verifier follows a packet without a VLAN tag, with one and with
    /// two as three different programs as long as it knows the number; after this it knows nothing, and
    /// follows one.
    #[inline(always)]
    pub fn forget(&mut self, number: u32) -> u32 {
        forget(&mut self.forgotten, number)
    }
}

/// Takes a number through a place in memory; see [`Scratch::forget`].
#[inline(always)]
pub fn forget(place: &mut u32, number: u32) -> u32 {
    let place = &raw mut *place;
    // SAFETY: a valid reference; volatile so that the compiler does not keep the number in a register.
    unsafe {
        place.write_volatile(number);
        place.read_volatile()
    }
}
