//! The clocks.

use super::Finding;

const TOPIC: &str = "clock";
/// Before this, seconds since the epoch (2025-01-01), this program was not written.
const EARLIEST: i64 = 1_735_689_600;

/// What there is to know.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// CLOCK_REALTIME, seconds since the epoch.
    pub now: i64,
    /// Whether the kernel holds it to be synchronised, and how far off it may be, microseconds; `None` when it
    /// does not say.
    pub synchronised: Option<(bool, i64)>,
    /// CLOCK_MONOTONIC, nanoseconds.
    pub monotonic: u64,
    /// CLOCK_BOOTTIME, nanoseconds.
    pub boot: u64,
    /// CLOCK_MONOTONIC_COARSE, which the program's leases go by, nanoseconds.
    pub coarse: u64,
}

/// Judges.
pub fn judge(clock: &Clock) -> Vec<Finding> {
    let mut findings = Vec::new();
    let remedy = "timedatectl set-ntp true; or install chrony";
    if clock.now < EARLIEST {
        findings.push(
            Finding::failure(
                TOPIC,
                format!("the clock says {} s after 1970, which is long past", clock.now),
                "TLS probes fail, signatures (TSIG) and cookies are refused",
            )
            .remedy(remedy),
        );
    }
    match clock.synchronised {
        Some((true, error)) => {
            findings.push(Finding::ok(TOPIC, format!("synchronised, to within {} ms", error / 1000)));
        }
        Some((false, _)) => findings.push(
            Finding::warning(
                TOPIC,
                "the clock is not synchronised",
                "TSIG allows 5 minutes, cookies from other servers of an anycast address less; health and overrides \
                 are kept with their times",
            )
            .remedy(remedy),
        ),
        None => {}
    }
    let second = 1_000_000_000;
    if clock.boot > clock.monotonic + second {
        findings.push(Finding::note(
            TOPIC,
            format!("this machine slept for {} s since it started", (clock.boot - clock.monotonic) / second),
            "the lease of the fast path does not run while it sleeps: answers of before are served for a moment",
        ));
    }
    if clock.coarse > clock.monotonic || clock.coarse + second < clock.monotonic {
        findings.push(Finding::failure(
            TOPIC,
            "the kernel's coarse clock is not in step with its exact one",
            "the fast path would take a living agent for dead: the timer interrupt stands still",
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    const GOOD: Clock = Clock {
        now: 1_800_000_000,
        synchronised: Some((true, 4000)),
        monotonic: 50_000_000_000,
        boot: 50_000_001_000,
        coarse: 49_997_000_000,
    };

    fn levels(clock: Clock) -> Vec<Level> {
        judge(&clock).iter().map(|finding| finding.level).collect()
    }

    #[test]
    fn clocks_are_judged_one_by_one() {
        assert_eq!(levels(GOOD), [Level::Ok]);
        assert_eq!(levels(Clock { synchronised: None, ..GOOD }), []);
        assert_eq!(levels(Clock { synchronised: Some((false, 0)), ..GOOD }), [Level::Warning]);
        assert_eq!(levels(Clock { now: 3600, ..GOOD }), [Level::Failure, Level::Ok]);
        assert_eq!(levels(Clock { boot: 80_000_000_000, ..GOOD }), [Level::Ok, Level::Note]);
        assert_eq!(levels(Clock { coarse: 40_000_000_000, ..GOOD }), [Level::Ok, Level::Failure]);
        assert_eq!(levels(Clock { coarse: 60_000_000_000, ..GOOD }), [Level::Ok, Level::Failure]);
    }
}
