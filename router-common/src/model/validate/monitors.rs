//! The effective monitor of an endpoint: ranges, and what goes together.

use std::time::Duration;

use super::Key;
use crate::model::{Monitor, ProbeDestination, ProbeTarget, WindowRule};

/// Most headers of a probe.
const MAX_HEADERS: usize = 8;
/// Most ranges of healthy status codes.
const MAX_STATUS: usize = 8;

/// Longest time that a state is held.
const MAX_HOLD: Duration = Duration::from_secs(24 * 60 * 60);

/// Every fault, with the key of the `monitor` table that it is about.
pub(super) fn faults(monitor: &Monitor) -> Vec<(Key, String)> {
    let mut faults = Vec::new();
    if let Some(connection) = monitor.target.connection() {
        if connection.port == 0 {
            faults.push(("port", "port is 0; allowed is 1 to 65535".into()));
        }
        if let (ProbeDestination::Address(to), Some(from)) =
            (&connection.destination, connection.source.address)
            && to.is_ipv4() != from.is_ipv4()
        {
            faults.push((
                "source",
                format!("source is {from}; the address probed is {to}, of the other family"),
            ));
        }
    }
    match &monitor.target {
        ProbeTarget::Http(probe) => {
            if !probe.path.starts_with('/') {
                faults.push(("path", format!("path is {:?}; it begins with \"/\"", probe.path)));
            }
            if probe.headers.len() > MAX_HEADERS {
                let found = probe.headers.len();
                faults.push(("headers", format!("{found} headers; allowed are {MAX_HEADERS}")));
            }
        }
        ProbeTarget::Exec(program) if program.file.is_empty() => {
            faults.push(("command", "command names no program".into()));
        }
        ProbeTarget::Tcp(_) | ProbeTarget::Exec(_) | ProbeTarget::File(_) => {}
    }
    if !(1..=MAX_STATUS).contains(&monitor.expected_status.len()) {
        let found = monitor.expected_status.len();
        faults.push(("expected_status", format!("{found} ranges; allowed are 1 to {MAX_STATUS}")));
    }
    for &(low, high) in &monitor.expected_status {
        if low < 100 || high > 599 || low > high {
            let message = format!("status range {low}-{high}; allowed is 100 to 599, the lower one first");
            faults.push(("expected_status", message));
        }
    }
    if monitor.interval < Duration::from_secs(1) {
        faults.push(("interval", format!("interval is {:?}; allowed is 1 s and more", monitor.interval)));
    }
    if monitor.timeout.is_zero() || monitor.timeout >= monitor.interval {
        let message = format!(
            "timeout is {:?}; it must be above 0 and below the interval, {:?}",
            monitor.timeout, monitor.interval
        );
        faults.push(("timeout", message));
    }
    if monitor.hold > MAX_HOLD {
        faults.push(("hold", format!("hold is {:?}; allowed is up to a day", monitor.hold)));
    }
    match monitor.window {
        WindowRule::Samples { size, successful } => {
            if !(1..=64).contains(&size) {
                faults.push(("sample_size", format!("sample_size is {size}; allowed is 1 to 64")));
            } else if !(1..=size).contains(&successful) {
                let message =
                    format!("successful_samples is {successful}; allowed is 1 to {size}, the sample_size");
                faults.push(("successful_samples", message));
            }
        }
        WindowRule::Tolerated { failures } => {
            if failures > 9 {
                let message = format!("tolerated_failures is {failures}; allowed is 0 to 9");
                faults.push(("tolerated_failures", message));
            }
        }
    }
    faults
}
