//! The XDP program of xroute.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]

mod maps;
mod parse;

use aya_ebpf::bindings::xdp_action::XDP_PASS;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use router_common::counter::Counter;

/// Entry of the program.
#[xdp(frags)]
pub fn xroute(_ctx: XdpContext) -> u32 {
    let key = aya_ebpf::maps::lpm_trie::Key::new(32, [0u8; 4]);
    let key6 = aya_ebpf::maps::lpm_trie::Key::new(128, [0u8; 16]);
    let seen = maps::CONTROL.get(0).copied().unwrap_or(0)
        + maps::GENERATIONS.get(0).map_or(0, |g| g.serial)
        + maps::OWNERS.get(0).map_or(0, |o| o.hash)
        + maps::REGIONS.get(0).copied().unwrap_or(0)
        + maps::ANSWERS.get(0).copied().unwrap_or(0)
        + maps::CELLS.get(0).map_or(0, |c| c.sum as u64)
        + maps::LINES.get(0).map_or(0, |l| l.0[0] as u64)
        + maps::SCRATCH.get(0).map_or(0, |s| s.query.name_len as u64)
        + maps::LOCATIONS_IPV4.get(0).and_then(|t| t.get(&key)).map_or(0, |e| e.location as u64)
        + maps::LOCATIONS_IPV6.get(0).and_then(|t| t.get(&key6)).map_or(0, |e| e.location as u64);
    if let Some(counter) = maps::COUNTERS.get_ptr_mut(Counter::PassNotReady as u32) {
        // SAFETY: this CPU's slot of a per-CPU array.
        unsafe { *counter += 1 + (seen & 0) };
    }
    XDP_PASS
}

#[cfg(not(target_arch = "bpf"))]
fn main() {}

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
