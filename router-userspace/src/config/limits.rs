//! `[limits]`: what a new configuration may change at once.

use toml::de::DeValue;

use super::reader::{Table, number, whole};
use crate::settings::ChangeLimits;

/// Largest count that can be set.
const MOST: i64 = 1_000_000_000;

/// Reads the table.
pub(super) fn read(table: Table<'_>) -> ChangeLimits {
    let share = |key| table.take(key, share);
    let count = |key| table.take(key, |value| whole(value, 0..=MOST));
    let limits = ChangeLimits {
        moved_max: share("moved_max"),
        profile_moved_max: share("profile_moved_max"),
        nodata_max: share("nodata_max"),
        removed_names_max: count("removed_names_max"),
        removed_endpoints_max: count("removed_endpoints_max"),
    };
    table.finish();
    limits
}

/// A share of everything.
fn share(value: &DeValue<'_>) -> Result<f64, String> {
    number(value, 0.0..=1.0).map_err(|why| format!("{why}; it is a share: a quarter is 0.25"))
}
