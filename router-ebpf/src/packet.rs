//! The packet: the only raw pointers of the program.
//!
//! A [`Window`] is a part of the packet whose bounds were checked once; what is read and written in it is
//! checked by the compiler. It borrows the packet, and [`Packet::resize`] consumes it, so no window
//! outlives a change of the packet's size.

use core::marker::PhantomData;

use aya_ebpf::bindings::xdp_md;
use aya_ebpf::helpers::{bpf_xdp_adjust_head, bpf_xdp_adjust_tail, bpf_xdp_get_buff_len};

/// Largest offset that meets a pointer: the verifier wants to know that an offset is small. A power of two minus
/// one, so that it is a mask, not a branch. What is looked for lies within two VLAN tags, IPv6, UDP and the
/// largest reply, well below.
pub const MAX_OFFSET: u32 = 0x7ff;

/// A packet that is being looked at, or (after [`Packet::resize`]) written.
pub struct Packet {
    context: *mut xdp_md,
    start: usize,
    end: usize,
}

impl Packet {
    /// The packet of this run.
    ///
    /// # Safety
    ///
    /// `context` is what the kernel handed to the program.
    #[inline(always)]
    pub unsafe fn new(context: *mut xdp_md) -> Self {
        // SAFETY: the kernel's context lives as long as the program runs.
        let (start, end) = unsafe { ((*context).data as usize, (*context).data_end as usize) };
        // The kernel puts pointers of full width where the fields have half of it.
        Self { context, start: opaque(start), end: opaque(end) }
    }

    /// Index of the interface it came in on.
    #[inline(always)]
    pub fn interface(&self) -> u32 {
        // SAFETY: the kernel's context lives as long as the program runs.
        unsafe { (*self.context).ingress_ifindex }
    }

    /// Octets in the first buffer.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        (self.end - self.start) as u32
    }

    /// The first `N` octets; `None` when they are not all in the first buffer.
    #[inline(always)]
    pub fn front<const N: usize>(&self) -> Option<Window<'_, N>> {
        self.window(self.start)
    }

    /// The `N` octets at `offset`, at most [`MAX_OFFSET`]; `None` when they are not all in the first buffer.
    #[inline(always)]
    pub fn at<const N: usize>(&self, offset: u32) -> Option<Window<'_, N>> {
        self.window(self.address(offset))
    }

    /// The `N` octets before `end`; `None` when they are not all in the first buffer.
    ///
    /// Not a step back from a pointer: the verifier wants offsets, not pointers, to be subtracted from.
    #[inline(always)]
    pub fn before<const N: usize>(&self, end: u32) -> Option<Window<'_, N>> {
        self.at(end.wrapping_sub(N as u32))
    }

    /// A walk that begins at `offset`, at most [`MAX_OFFSET`].
    #[inline(always)]
    pub fn cursor(&self, offset: u32) -> Cursor<'_> {
        Cursor { address: opaque(self.address(offset)), end: self.end, packet: PhantomData }
    }

    #[inline(always)]
    fn address(&self, offset: u32) -> usize {
        self.start + (offset & MAX_OFFSET) as usize
    }

    #[inline(always)]
    fn window<const N: usize>(&self, address: usize) -> Option<Window<'_, N>> {
        // Written `p + n > end`: some verifiers miscompute other forms.
        if address + N > self.end {
            return None;
        }
        Some(Window { address, packet: PhantomData })
    }

    /// Makes the packet `len` octets long; `end` is where its IP packet ends. When that fails the packet is
    /// as it was.
    ///
    /// It grows at the head: returned is by how much, which is where its old content begins now. That costs a
    /// third of growth at the tail, which the kernel fills with zeros, and there is room: up to 256 octets
    /// in front of every packet, while a veth copies what a local socket sends into a buffer that often ends
    /// right behind it (`skb_pp_cow_data`, Linux 6.6 on). What does not fit there is tried at the tail.
    ///
    /// It fails for a packet in several buffers, whose tail is elsewhere. They are counted only when the
    /// first does not end with the IP packet, that is, hardly ever: what may be in further ones is then no
    /// more than padding behind the reply, too.
    #[inline(always)]
    pub fn resize(self, len: u32, end: u32) -> Option<(Self, u32)> {
        let now = self.len();
        // SAFETY: the context is the kernel's.
        if now != end && unsafe { bpf_xdp_get_buff_len(self.context) } != u64::from(now) {
            return None;
        }
        let delta = len.wrapping_sub(now) as i32;
        // SAFETY: the context is the kernel's; every window borrowed `self` and is gone.
        let moved = if delta > 0 && unsafe { bpf_xdp_adjust_head(self.context, -delta) } == 0 {
            delta as u32
        // SAFETY: as above.
        } else if delta != 0 && unsafe { bpf_xdp_adjust_tail(self.context, delta) } != 0 {
            return None;
        } else {
            0
        };
        // SAFETY: the kernel's context still.
        Some((unsafe { Self::new(self.context) }, moved))
    }
}

/// A walk over the packet.
#[derive(Clone, Copy)]
pub struct Cursor<'p> {
    address: usize,
    end: usize,
    packet: PhantomData<&'p Packet>,
}

impl<'p> Cursor<'p> {
    /// The next `N` octets; `None` when they are not all there.
    #[inline(always)]
    pub fn next<const N: usize>(&mut self) -> Option<Window<'p, N>> {
        let address = self.address;
        if address + N > self.end {
            return None;
        }
        self.address = opaque(address + N);
        Some(Window { address, packet: PhantomData })
    }

    /// The `N` octets that begin `OFFSET` octets ahead; `None` when they are not all there.
    #[inline(always)]
    pub fn ahead<const OFFSET: usize, const N: usize>(&self) -> Option<Window<'p, N>> {
        if self.address + (OFFSET + N) > self.end {
            return None;
        }
        Some(Window { address: self.address + OFFSET, packet: PhantomData })
    }

    /// The octets from `OFFSET` octets ahead on, when they are fewer than 8, as the lower ones of a little-endian
    /// word, zero above; `None` when there is none. `packet` is what the walk is over, at its ninth octet or beyond.
    #[inline(always)]
    pub fn rest<const OFFSET: usize>(&self, packet: &Packet) -> Option<u64> {
        let left = self.end.wrapping_sub(self.address + OFFSET) as u32;
        if left == 0 || left > 7 {
            return None;
        }
        let word = packet.before::<8>(packet.len())?.u64::<0>();
        Some(u64::from_le(word) >> (64 - 8 * left))
    }
}

/// `N` octets of a packet, known to be there.
#[derive(Clone, Copy)]
pub struct Window<'p, const N: usize> {
    address: usize,
    packet: PhantomData<&'p Packet>,
}

/// A load of some width: one instruction, whatever the alignment. (`read_unaligned` becomes one load
/// per octet on BPF, and a plain access through a misaligned pointer is undefined.)
macro_rules! load {
    ($load:ident, $type:ty, $width:literal, $octets:literal) => {
        #[doc = concat!("Reads ", $octets, " octets in the order of memory.")]
        #[inline(always)]
        pub fn $load<const OFFSET: usize>(self) -> $type {
            const { assert!(fits(OFFSET, $octets, N)) };
            #[cfg(target_arch = "bpf")]
            {
                let value: u64;
                // SAFETY: inside the window (asserted above), which was checked when it was made.
                unsafe {
                    core::arch::asm!(
                        concat!("{value} = *(", $width, " *)({address} + {offset})"),
                        value = lateout(reg) value,
                        address = in(reg) self.address,
                        offset = const OFFSET,
                        options(nostack, readonly, preserves_flags),
                    );
                }
                // SAFETY: that is what a load of this width does.
                unsafe { core::hint::assert_unchecked(value <= <$type>::MAX as u64) };
                value as $type
            }
            #[cfg(not(target_arch = "bpf"))]
            {
                // SAFETY: inside the window (asserted above), which was checked when it was made.
                unsafe { ((self.address + OFFSET) as *const $type).read_unaligned() }
            }
        }
    };
}

/// A store, likewise.
macro_rules! store {
    ($store:ident, $type:ty, $width:literal, $octets:literal) => {
        #[doc = concat!("Writes ", $octets, " octets in the order of memory.")]
        #[inline(always)]
        pub fn $store<const OFFSET: usize>(self, value: $type) {
            const { assert!(fits(OFFSET, $octets, N)) };
            #[cfg(target_arch = "bpf")]
            // SAFETY: inside the window (asserted above), which was checked when it was made.
            unsafe {
                core::arch::asm!(
                    concat!("*(", $width, " *)({address} + {offset}) = {value}"),
                    value = in(reg) u64::from(value),
                    address = in(reg) self.address,
                    offset = const OFFSET,
                    options(nostack, preserves_flags),
                );
            }
            #[cfg(not(target_arch = "bpf"))]
            // SAFETY: inside the window (asserted above), which was checked when it was made.
            unsafe {
                ((self.address + OFFSET) as *mut $type).write_unaligned(value);
            }
        }
    };
}

impl<'p, const N: usize> Window<'p, N> {
    load!(u8, u8, "u8", 1);
    load!(u16, u16, "u16", 2);
    load!(u32, u32, "u32", 4);
    load!(u64, u64, "u64", 8);
    store!(set_u16, u16, "u16", 2);
    store!(set_u32, u32, "u32", 4);
    store!(set_u64, u64, "u64", 8);

    /// `M` octets of it from `OFFSET` on.
    #[inline(always)]
    pub fn part<const OFFSET: usize, const M: usize>(self) -> Window<'p, M> {
        const { assert!(fits(OFFSET, M, N)) };
        Window { address: self.address + OFFSET, packet: PhantomData }
    }

    /// Reads a 16-bit number in network order.
    #[inline(always)]
    pub fn number<const OFFSET: usize>(self) -> u16 {
        u16::from_be(self.u16::<OFFSET>())
    }
}

/// Whether an access is inside a window of `window` octets.
const fn fits(offset: usize, octets: usize, window: usize) -> bool {
    offset + octets <= window
}

/// Hides where a number comes from. The compiler would compute the same one twice, once for the check and
/// once for the access, and the verifier would not see that they are equal. And it would count a loop's
/// rounds in another way than by the condition that is written, of which the verifier knows the bound.
#[inline(always)]
pub fn opaque(number: usize) -> usize {
    #[cfg(target_arch = "bpf")]
    {
        let mut number = number;
        // An instruction that does nothing: an empty string gets a line number of its own, at the place of
        // the next instruction's, which the kernel refuses.
        // SAFETY: a register is moved to itself.
        unsafe {
            core::arch::asm!("{0} = {0}", inout(reg) number, options(nomem, nostack, preserves_flags));
        }
        number
    }
    #[cfg(not(target_arch = "bpf"))]
    number
}

/// Makes the compiler forget what is in memory, so that it is read from there. What was written on one of several ways is
/// known there, and the verifier would follow what comes after once for each way.
#[inline(always)]
pub fn forget<T>(memory: &mut T) {
    let address = &raw mut *memory;
    // SAFETY: a register is moved to itself.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!("{0} = {0}", inout(reg) address => _, options(nostack, preserves_flags));
    }
    let _ = address;
}
