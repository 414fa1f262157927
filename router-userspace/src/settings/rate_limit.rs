//! The `[rate_limit]` table: how many like responses a network of clients gets.

use router_common::model::AddressRange;

/// Response rate limiting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RateLimit {
    /// Positive answers per second for one name, 0 = without limit.
    pub responses_per_second: u32,
    /// NODATA answers per second out of one zone, 0 = without limit.
    pub nodata_per_second: u32,
    /// NXDOMAIN answers per second out of one zone, 0 = without limit.
    pub nxdomains_per_second: u32,
    /// Referrals per second to one delegation, 0 = without limit.
    pub referrals_per_second: u32,
    /// Errors per second, 0 = without limit.
    pub errors_per_second: u32,
    /// Seconds, 1..=3600, of replies that an account can be in debt with; silence for as long pays it all.
    pub window: u32,
    /// Every how-manieth of the responses over the limit is sent truncated instead of dropped: 0 = none,
    /// 1 = all, at most 10.
    pub slip: u32,
    /// Bits of an IPv4 address, 1..=32, that make a network.
    pub ipv4_prefix: u8,
    /// Bits of an IPv6 address, 1..=128, that make a network.
    pub ipv6_prefix: u8,
    /// Clients without a limit.
    pub exempt: Vec<AddressRange>,
    /// Counts what it would do, and sends everything.
    pub dry_run: bool,
    /// Accounts kept, about.
    pub table_size: u32,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self {
            responses_per_second: 0,
            nodata_per_second: 0,
            nxdomains_per_second: 0,
            referrals_per_second: 0,
            errors_per_second: 0,
            window: 15,
            slip: 2,
            ipv4_prefix: 24,
            ipv6_prefix: 56,
            exempt: Vec::new(),
            dry_run: false,
            table_size: 1 << 17,
        }
    }
}
