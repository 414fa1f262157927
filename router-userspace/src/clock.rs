//! The one place that reads the wall clock; everything else is given `now`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Now as the core counts it: since the Unix epoch.
pub fn unix_now() -> Duration {
    // Before 1970 the clock is wrong beyond repair; zero is as good as any answer.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
