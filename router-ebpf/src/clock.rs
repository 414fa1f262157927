//! The time, for the lease and the tallies.

use aya_ebpf::helpers::{bpf_jiffies64, bpf_ktime_get_coarse_ns};
use router_common::abi::Control;

/// The last time that was asked for on this CPU.
///
/// The coarse clock moves with the kernel's tick, so it is asked once a tick. Reading the tick's number is
/// one load, which the kernel puts in place of the call; the clock is a real call.
#[repr(C)]
pub struct Clock {
    jiffies: u64,
    now: u64,
}

impl Clock {
    /// The time when it was asked for last, in the deadline's unit: at the last query that was read whole.
    #[inline(always)]
    pub const fn tick(&self) -> u32 {
        Control::tick(self.now)
    }

    /// Whether the agent's lease has lapsed.
    #[inline(always)]
    pub fn is_stale(&mut self, control: Control) -> bool {
        // SAFETY: a helper without arguments.
        let jiffies = unsafe { bpf_jiffies64() };
        if jiffies != self.jiffies {
            self.jiffies = jiffies;
            // SAFETY: a helper without arguments.
            self.now = unsafe { bpf_ktime_get_coarse_ns() };
        }
        control.deadline() < Control::tick(self.now)
    }

    /// Nanoseconds of `CLOCK_MONOTONIC`, as [`Self::is_stale`] found it in this run.
    #[inline(always)]
    pub const fn now(&self) -> u64 {
        self.now
    }
}
