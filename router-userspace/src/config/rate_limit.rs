//! `[rate_limit]`: response rate limiting.

use super::reader::{Table, truth, whole};
use super::values::subnet;
use super::warnings::Warnings;
use crate::settings::{RateLimit, Server};

/// Most replies per second that can be set.
const MAX_RATE: i64 = 1_000_000;

/// Reads the table. `server` is read before.
pub(super) fn read(table: Table<'_>, server: &Server, warnings: &mut Warnings) -> RateLimit {
    let usual = RateLimit::default();
    let rate = |key| table.take(key, |value| whole(value, 0..=MAX_RATE));
    if !table.has("responses_per_second") {
        table.missing("responses_per_second", "20");
    }
    let all: u32 = rate("responses_per_second").unwrap_or(usual.responses_per_second);
    let number = |key, allowed, usual: u32| table.take(key, |value| whole(value, allowed)).unwrap_or(usual);
    let prefix = |key, most, usual: u8| table.take(key, |value| whole(value, 1..=most)).unwrap_or(usual);
    let limit = RateLimit {
        responses_per_second: all,
        nodata_per_second: rate("nodata_per_second").unwrap_or(all),
        nxdomains_per_second: rate("nxdomains_per_second").unwrap_or(all),
        referrals_per_second: rate("referrals_per_second").unwrap_or(all),
        errors_per_second: rate("errors_per_second").unwrap_or(all),
        window: number("window", 1..=3600, usual.window),
        slip: number("slip", 0..=10, usual.slip),
        ipv4_prefix: prefix("ipv4_prefix", 32, usual.ipv4_prefix),
        ipv6_prefix: prefix("ipv6_prefix", 128, usual.ipv6_prefix),
        exempt: table.items("exempt", subnet).unwrap_or_default(),
        dry_run: table.take("dry_run", truth).unwrap_or(usual.dry_run),
        table_size: number("table_size", 512..=1 << 24, usual.table_size),
    };
    if !server.interfaces.is_empty() {
        warnings.add(
            &table.spot(),
            "[rate_limit]: the fast path has no limit; only what the userspace server answers is limited"
                .into(),
        );
    }
    table.finish();
    limit
}
