//! The userspace DNS server: whatever the fast path does not answer, and everything when there is none.
//!
//! [`respond`] is the whole server without a socket: octets in, octets out. [`serve`] puts UDP and TCP
//! sockets around it. The decision is `router_common`'s, the same that fills the fast path's tables.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use router_common::counter::Counter;
use router_common::decide::{Asker, Snapshot};

use crate::settings::Dns;

mod answer;
mod edns;
mod notify;
mod query;
mod random;
mod ready;
mod reply;
mod server;
mod show;
mod sockopt;
mod tcp;
mod transfer;
mod tsig;
mod udp;

#[cfg(test)]
mod tests;

use answer::Answer;
use query::Query;
pub use ready::{Ready, Replied};
use reply::Reply;
pub use server::{Server, serve};
pub use show::{Shown, record_type, show, type_name};
use tsig::Standing;

/// What is answered from: immutable, replaced as a whole.
pub struct Service {
    /// Model and views.
    pub snapshot: Snapshot,
    /// How it is answered.
    pub settings: Arc<Dns>,
}

impl Service {
    /// Answers from `snapshot` as `settings` say.
    pub fn new(snapshot: Snapshot, settings: Arc<Dns>) -> Self {
        Self { snapshot, settings }
    }
}

/// Who sent a message, and how and when it came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Client {
    /// Where it came from: decides when the query brings no client subnet.
    pub source: IpAddr,
    /// What it came over.
    pub transport: Transport,
    /// When, since the epoch.
    pub now: Duration,
}

/// Where a query came from, which decides how long its reply may be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// 512 octets, or what the client and we agree on by EDNS.
    Udp,
    /// 65,535 octets.
    Tcp,
}

/// What happened to queries, by [`Counter`]. Shared by all sockets; also holds the fast path's counters,
/// which stay zero here.
#[derive(Default)]
pub struct Counts([Shard; SHARDS]);

/// Threads count in places of their own, as far as there are enough, so that they do not take the same line of
/// the cache from each other with every query.
const SHARDS: usize = 16;

#[repr(align(128))]
struct Shard([AtomicU64; Counter::COUNT]);

impl Default for Shard {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; Counter::COUNT])
    }
}

thread_local! {
    /// Where this thread counts.
    static SHARD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS
    };
}

impl Counts {
    /// Counts one.
    pub fn add(&self, counter: Counter) {
        let shard = SHARD.with(|&shard| shard);
        if let Some(count) = self.0.get(shard).and_then(|shard| shard.0.get(counter as usize)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often it happened.
    pub fn get(&self, counter: Counter) -> u64 {
        let counts = self.0.iter().filter_map(|shard| shard.0.get(counter as usize));
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// Answers one message. `None`: no reply is due (a response, or less than a header).
///
/// `random` gives uniform 64-bit numbers. Exactly one `Server…` counter moves, and `ServerTruncated` besides
/// when TC is set. Takes any octets.
pub fn respond(
    service: &Service,
    query: &[u8],
    client: &Client,
    random: &mut dyn FnMut() -> u64,
    counts: &Counts,
) -> Option<Vec<u8>> {
    let query = take_down(query, counts)?;
    Some(settle(service, &query, client, random, counts).octets)
}

/// Reads a query, or counts that it gets no reply.
fn take_down<'q>(query: &'q [u8], counts: &Counts) -> Option<Query<'q>> {
    let query = Query::parse(query);
    if query.is_none() {
        counts.add(Counter::ServerDropped);
    }
    query
}

/// Who asks, as decisions see it.
fn asker(query: &Query<'_>, client: &Client) -> Asker {
    let subnet = query.edns.as_ref().and_then(|edns| edns.client_subnet);
    Asker { source: client.source.to_canonical(), ecs: subnet.and_then(|subnet| subnet.prefix) }
}

/// The longest reply to a query.
fn limit(settings: &Dns, query: &Query<'_>, client: &Client) -> usize {
    match (client.transport, &query.edns) {
        (Transport::Tcp, _) => usize::from(u16::MAX),
        (Transport::Udp, None) => 512,
        (Transport::Udp, Some(edns)) => usize::from(edns.udp_size.min(settings.edns_size).max(512)),
    }
}

/// Answers a query that was read, and counts how.
fn settle(
    service: &Service,
    query: &Query<'_>,
    client: &Client,
    random: &mut dyn FnMut() -> u64,
    counts: &Counts,
) -> Reply {
    let standing = Standing::of(query, &service.settings.keys, client.now);
    let answer = match (standing.fault().or(query.fault), &query.question) {
        (None, Some(question)) if transfer::is_asked(question) => {
            transfer::answer(service, query, question, client, standing.key(), counts)
        }
        (None, Some(question)) => {
            let asker = asker(query, client);
            let mut answer = answer::answer(&service.snapshot, question, &asker, random);
            if asker.ecs.is_none() {
                // What was decided by the source address holds for nobody's subnet (RFC 7871 §7.1.2).
                answer.scope = 0;
            }
            answer
        }
        (fault, _) => Answer::to_fault(fault.unwrap_or(query::Fault::Format)),
    };
    let limit = limit(&service.settings, query, client);
    // What is signed is the whole reply, so that there must be room for the signature from the start.
    let room = limit.saturating_sub(standing.len());
    let mut reply = reply::write(query, &answer, room, service.settings.edns_size);
    if reply.octets.len() + standing.len() <= limit {
        standing.finish(&mut reply.octets, client.now);
    }
    counts.add(answer.counter);
    if reply.truncated {
        counts.add(Counter::ServerTruncated);
    }
    reply
}
