//! Who asks what: queries by transport, type and client subnet, cookies, and TCP connections. Besides the
//! outcomes ([`Counts`]), for metrics.
//!
//! A query costs one addition: transport, type, client subnet and whether its reply was ready choose one
//! cell of a table that the thread has to itself.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use router_common::counter::Counter;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::Rcode;
use super::cookie::Cookie;
use super::query::Query;
use super::{Client, Counts, SHARD, SHARDS, Transport};

/// Types that are counted by name; all others are `other`.
const TYPES: [(u16, &str); 19] = [
    (1, "A"),
    (28, "AAAA"),
    (2, "NS"),
    (5, "CNAME"),
    (6, "SOA"),
    (12, "PTR"),
    (15, "MX"),
    (16, "TXT"),
    (33, "SRV"),
    (35, "NAPTR"),
    (43, "DS"),
    (48, "DNSKEY"),
    (52, "TLSA"),
    (64, "SVCB"),
    (65, "HTTPS"),
    (251, "IXFR"),
    (252, "AXFR"),
    (255, "ANY"),
    (257, "CAA"),
];
/// One for `other`, one for a query without a question.
const KINDS: usize = TYPES.len() + 2;
/// What the client subnet of a query is.
const SUBNETS: [&str; 3] = ["none", "ipv4", "ipv6"];
const TRANSPORTS: [&str; 2] = ["udp", "tcp"];
/// Ready or not, transport, subnet, type.
const CELLS: usize = 2 * TRANSPORTS.len() * SUBNETS.len() * KINDS;

/// What is counted besides.
#[derive(Clone, Copy)]
enum Extra {
    CookieNew,
    CookieGood,
    CookieBad,
    CookieMalformed,
    /// Among the outcomes "other".
    YxDomain,
    /// Among the outcomes "cookie".
    BadCookie,
    /// Replies over UDP that the kernel did not take.
    Unsent,
}
const EXTRAS: usize = Extra::Unsent as usize + 1;

/// See the module.
#[derive(Default)]
pub struct Census {
    shards: [Shard; SHARDS],
    connections: Connections,
}

#[repr(align(128))]
struct Shard {
    queries: [AtomicU64; CELLS],
    extras: [AtomicU64; EXTRAS],
}

impl Default for Shard {
    fn default() -> Self {
        Self { queries: [const { AtomicU64::new(0) }; CELLS], extras: [const { AtomicU64::new(0) }; EXTRAS] }
    }
}

#[derive(Default)]
struct Connections {
    open: AtomicI64,
    accepted: AtomicU64,
    refused: AtomicU64,
    evicted: AtomicU64,
    idle: AtomicU64,
}

/// Counts a TCP connection as open while it lives.
pub(super) struct OpenConnection(std::sync::Arc<Counts>);

impl OpenConnection {
    /// One was accepted.
    pub fn new(counts: std::sync::Arc<Counts>) -> Self {
        let connections = &counts.census().connections;
        connections.accepted.fetch_add(1, Ordering::Relaxed);
        connections.open.fetch_add(1, Ordering::Relaxed);
        Self(counts)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.census().connections.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Census {
    /// A query was answered; `ready` says whether the reply was at hand.
    pub(super) fn asked(&self, query: &Query<'_>, client: &Client, cookie: Option<Cookie>, ready: bool) {
        let subnet = query.edns.as_ref().and_then(|edns| edns.client_subnet.as_ref());
        let cell = cell(
            ready,
            client.transport == Transport::Tcp,
            // The FAMILY, as sent: 0 is what is sent for "none".
            subnet.map_or(0, |subnet| usize::from(subnet.head[1]).min(2)),
            query.question.as_ref().map(|question| question.qtype),
        );
        let Some(shard) = self.shard() else { return };
        if let Some(count) = shard.queries.get(cell) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let Some(cookie) = cookie else { return };
        self.extra(match cookie {
            Cookie::New(_) => Extra::CookieNew,
            Cookie::Good(_) => Extra::CookieGood,
            Cookie::Bad(_) => Extra::CookieBad,
            Cookie::Malformed => Extra::CookieMalformed,
        });
    }

    /// A reply has this RCODE. Most follow from the outcome and are not counted twice.
    pub(super) fn replied(&self, rcode: Rcode) {
        match rcode {
            Rcode::YxDomain => self.extra(Extra::YxDomain),
            Rcode::BadCookie => self.extra(Extra::BadCookie),
            _ => {}
        }
    }

    /// A reply over UDP could not be sent.
    pub(super) fn unsent(&self) {
        self.extra(Extra::Unsent);
    }

    /// A connection was refused: its client has as many as it may.
    pub(super) fn refused(&self) {
        self.connections.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection was closed for another one.
    pub(super) fn evicted(&self) {
        self.connections.evicted.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection was closed because it was idle too long.
    pub(super) fn idle(&self) {
        self.connections.idle.fetch_add(1, Ordering::Relaxed);
    }

    fn shard(&self) -> Option<&Shard> {
        self.shards.get(SHARD.with(|&shard| shard))
    }

    fn extra(&self, extra: Extra) {
        if let Some(count) = self.shard().and_then(|shard| shard.extras.get(extra as usize)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn extras(&self, extra: Extra) -> u64 {
        let counts = self.shards.iter().filter_map(|shard| shard.extras.get(extra as usize));
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn queries(&self, cell: usize) -> u64 {
        let counts = self.shards.iter().filter_map(|shard| shard.queries.get(cell));
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// Where a query is counted.
fn cell(ready: bool, tcp: bool, subnet: usize, qtype: Option<u16>) -> usize {
    let kind = match qtype {
        None => TYPES.len() + 1,
        Some(qtype) => TYPES.iter().position(|(number, _)| *number == qtype).unwrap_or(TYPES.len()),
    };
    ((usize::from(ready) * TRANSPORTS.len() + usize::from(tcp)) * SUBNETS.len() + subnet) * KINDS + kind
}

/// What the userspace server was asked, since the agent started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ServerReport {
    /// Queries by transport (`udp`, `tcp`) and type (`A`, …, `other`, `none`: without a question); those that
    /// never came leave no entry.
    pub queries: BTreeMap<String, BTreeMap<String, u64>>,
    /// Queries by their client subnet: `none`, `ipv4`, `ipv6`.
    pub client_subnet: BTreeMap<String, u64>,
    /// Queries whose reply was at hand.
    pub ready: u64,
    /// Replies by RCODE, transfers aside.
    pub rcodes: BTreeMap<String, u64>,
    /// Queries by their cookie, where cookies are configured: `new`, `good`, `bad`, `malformed`.
    pub cookies: BTreeMap<String, u64>,
    /// Replies over UDP that the system did not send.
    pub unsent: u64,
    /// TCP connections that are open.
    pub connections_open: u64,
    /// TCP connections so far: `accepted`, `refused` (the client had as many as it may), `evicted` (closed
    /// for a newcomer), `idle` (closed after the idle time).
    pub connections: BTreeMap<String, u64>,
}

impl ServerReport {
    /// As it is now.
    pub fn of(counts: &Counts) -> Self {
        let census = counts.census();
        let mut report = Self {
            client_subnet: SUBNETS.iter().map(|&family| (family.to_owned(), 0)).collect(),
            queries: TRANSPORTS.iter().map(|&transport| (transport.to_owned(), BTreeMap::new())).collect(),
            ..Self::default()
        };
        let kinds: Vec<(Option<u16>, &str)> = TYPES
            .iter()
            .map(|&(number, name)| (Some(number), name))
            // A type that nobody has registered stands for all that are not listed (RFC 6895 §3.1).
            .chain([(Some(0), "other"), (None, "none")])
            .collect();
        for ready in [false, true] {
            for (tcp, transport) in [false, true].into_iter().zip(TRANSPORTS) {
                for (subnet, family) in SUBNETS.iter().enumerate() {
                    for &(qtype, kind) in &kinds {
                        let count = census.queries(cell(ready, tcp, subnet, qtype));
                        if count == 0 {
                            continue;
                        }
                        if ready {
                            report.ready += count;
                        }
                        *report.client_subnet.entry((*family).to_owned()).or_default() += count;
                        let of_transport = report.queries.entry(transport.to_owned()).or_default();
                        *of_transport.entry(kind.to_owned()).or_default() += count;
                    }
                }
            }
        }
        report.rcodes = rcodes(counts);
        let cookies = [
            ("new", Extra::CookieNew),
            ("good", Extra::CookieGood),
            ("bad", Extra::CookieBad),
            ("malformed", Extra::CookieMalformed),
        ];
        report.cookies =
            cookies.into_iter().map(|(what, extra)| (what.to_owned(), census.extras(extra))).collect();
        report.unsent = census.extras(Extra::Unsent);
        let Connections { open, accepted, refused, evicted, idle } = &census.connections;
        report.connections_open = u64::try_from(open.load(Ordering::Relaxed)).unwrap_or(0);
        report.connections =
            [("accepted", accepted), ("refused", refused), ("evicted", evicted), ("idle", idle)]
                .into_iter()
                .map(|(what, count)| (what.to_owned(), count.load(Ordering::Relaxed)))
                .collect();
        report
    }
}

/// Replies by RCODE, by the outcomes; two outcomes have two each, of which one is counted.
fn rcodes(counts: &Counts) -> BTreeMap<String, u64> {
    let census = counts.census();
    let (yxdomain, badcookie) = (census.extras(Extra::YxDomain), census.extras(Extra::BadCookie));
    let bare = counts.get(Counter::ServerCookie).saturating_sub(badcookie);
    let noerror = [Counter::ServerRecords, Counter::ServerNodata, Counter::ServerReferral];
    let noerror: u64 = noerror.into_iter().map(|counter| counts.get(counter)).sum();
    let of = [
        ("NOERROR", noerror + bare),
        ("FORMERR", counts.get(Counter::ServerFormerr)),
        ("SERVFAIL", counts.get(Counter::ServerServfail)),
        ("NXDOMAIN", counts.get(Counter::ServerNxdomain)),
        ("NOTIMP", counts.get(Counter::ServerNotimp)),
        ("REFUSED", counts.get(Counter::ServerRefused)),
        ("YXDOMAIN", yxdomain),
        ("NOTAUTH", counts.get(Counter::ServerOther).saturating_sub(yxdomain)),
        ("BADVERS", counts.get(Counter::ServerBadvers)),
        ("BADCOOKIE", badcookie),
    ];
    of.into_iter().map(|(rcode, count)| (rcode.to_owned(), count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_has_a_cell_of_its_own() {
        let mut cells = std::collections::BTreeSet::new();
        let kinds = TYPES.iter().map(|&(number, _)| Some(number)).chain([Some(0), None]);
        for qtype in kinds {
            for ready in [false, true] {
                for tcp in [false, true] {
                    for subnet in 0..SUBNETS.len() {
                        assert!(cells.insert(cell(ready, tcp, subnet, qtype)));
                    }
                }
            }
        }
        assert_eq!((cells.len(), cells.last().copied()), (CELLS, Some(CELLS - 1)));
        assert_eq!(cell(false, false, 0, Some(65_280)), cell(false, false, 0, Some(0)), "unlisted types");
    }
}
