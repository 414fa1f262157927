//! File descriptors: every probe under way holds one.

/// Wanted for all that the agent does; the usual soft limit of 1024 is from the time of `select`.
const WANTED: libc::rlim_t = 65_536;
/// Of these, for everything but probes: TCP clients, sockets, maps.
const OTHERS: u64 = 1000;

/// Raises the soft limit towards the hard one, and says so when there are too few for the probes allowed.
pub(super) fn provide(in_flight: usize) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a whole struct that outlives the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return;
    }
    let raised = libc::rlimit { rlim_cur: limit.rlim_cur.max(WANTED.min(limit.rlim_max)), ..limit };
    // SAFETY: the pointer is to a whole struct that outlives the call.
    let there = match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } {
        0 => raised.rlim_cur,
        _ => limit.rlim_cur,
    };
    if there < in_flight as u64 + OTHERS {
        log::warn!(
            "probes.in_flight is {in_flight}, but this process may hold {there} file descriptors only: \
             raise LimitNOFILE"
        );
    }
}
