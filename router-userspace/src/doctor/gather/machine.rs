//! Kernel, rights and clocks.

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::super::clock::Clock;
use super::super::kernel::Kernel;
use crate::settings::Server;

/// Descriptors for everything but probes and DNS connections.
const OTHERS: u64 = 1000;

/// What can be seen without trying anything.
pub fn kernel(settings: Option<&Server>) -> Kernel {
    let read = |path: &str| fs::read_to_string(path).ok();
    let capabilities = read("/proc/self/status").and_then(|status| {
        let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
        u64::from_str_radix(line.trim(), 16).ok()
    });
    Kernel {
        release: read("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned(),
        uid: nix::unistd::geteuid().as_raw(),
        capabilities: capabilities.unwrap_or_default(),
        jit: read("/proc/sys/net/core/bpf_jit_enable"),
        unprivileged: read("/proc/sys/kernel/unprivileged_bpf_disabled"),
        lockdown: read("/sys/kernel/security/lockdown"),
        descriptors: most_descriptors(),
        needed: settings
            .map(|settings| settings.probes.in_flight as u64 + settings.dns.tcp.connections as u64 + OTHERS),
        ..Kernel::default()
    }
}

fn most_descriptors() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a whole struct that outlives the call.
    match unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } {
        0 => limit.rlim_max,
        _ => 0,
    }
}

/// The clocks, one right after the other.
pub fn clock() -> Clock {
    /// `STA_UNSYNC`.
    const UNSYNCHRONISED: i32 = 0x40;
    // Coarse first: it never runs ahead of one that is asked later.
    let coarse = nanoseconds(libc::CLOCK_MONOTONIC_COARSE);
    let monotonic = nanoseconds(libc::CLOCK_MONOTONIC);
    let boot = nanoseconds(libc::CLOCK_BOOTTIME);
    // SAFETY: plain data, for which zeros are a value; no modes: it is only asked.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a whole struct that outlives the call.
    let asked = unsafe { libc::adjtimex(&raw mut state) };
    Clock {
        now: (nanoseconds(libc::CLOCK_REALTIME) / 1_000_000_000) as i64,
        synchronised: (asked >= 0).then_some((state.status & UNSYNCHRONISED == 0, state.maxerror)),
        monotonic,
        boot,
        coarse,
    }
}

fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a whole struct that outlives the call.
    match unsafe { libc::clock_gettime(clock, &raw mut time) } {
        0 => (time.tv_sec as u64).saturating_mul(1_000_000_000) + time.tv_nsec as u64,
        _ => 0,
    }
}

/// Whether a path is on a file system that is mounted read-only here.
pub fn is_read_only(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: plain data, for which zeros are a value.
    let mut status: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: reads a terminated string, writes a whole struct.
    let asked = unsafe { libc::statvfs(path.as_ptr(), &raw mut status) };
    asked == 0 && status.f_flag & libc::ST_RDONLY != 0
}

/// Whether this process may write to a path.
pub fn is_writable(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: reads a terminated string.
    unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::W_OK, libc::AT_EACCESS) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_and_its_clocks_are_read() {
        let kernel = kernel(None);
        assert!(kernel.release.starts_with(|c: char| c.is_ascii_digit()), "{kernel:?}");
        assert!(kernel.descriptors > 0);
        let clock = clock();
        assert!(clock.now > 1_700_000_000 && clock.monotonic > 0 && clock.coarse <= clock.monotonic);
        assert!(clock.boot + 1_000_000 > clock.monotonic);
        assert!(!is_read_only(Path::new("/proc/self")) && !is_read_only(Path::new("/nowhere/at/all")));
    }
}
