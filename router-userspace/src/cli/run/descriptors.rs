//! File descriptors: every probe under way holds one, and every DNS connection.

use crate::settings::Server;

/// Wanted for all that the agent does, unless the configuration allows more; the usual soft limit of 1024 is from
/// the time of `select`.
const WANTED: u64 = 65_536;
/// For everything but probes and DNS connections: sockets, maps, files.
const OTHERS: u64 = 1000;

/// Raises the soft limit towards the hard one, and says so when there are too few for what the configuration
/// allows.
pub(super) fn provide(settings: &Server) {
    let probes = settings.probes.in_flight as u64;
    let connections = settings.dns.tcp.connections as u64;
    let needed = probes + connections + OTHERS;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a whole struct that outlives the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return;
    }
    let wanted = needed.max(WANTED).min(limit.rlim_max);
    let raised = libc::rlimit { rlim_cur: limit.rlim_cur.max(wanted), ..limit };
    // SAFETY: the pointer is to a whole struct that outlives the call.
    let there = match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } {
        0 => raised.rlim_cur,
        _ => limit.rlim_cur,
    };
    if there < needed {
        log::warn!(
            "this process may hold {there} file descriptors, but probes.in_flight is {probes} and \
             tcp.connections is {connections}: raise LimitNOFILE to {needed}, or allow less"
        );
    }
}
