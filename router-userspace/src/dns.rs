//! The userspace DNS server: whatever the fast path does not answer, and everything when there is none.
//!
//! [`respond`] is the whole server without a socket: octets in, octets out. [`serve`] puts UDP and TCP
//! sockets around it. The decision is `router_common`'s, the same that fills the fast path's tables.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use router_common::counter::Counter;
use router_common::decide::{Asker, Snapshot};

use crate::settings::Dns;

mod answer;
mod edns;
mod notify;
mod query;
mod random;
mod reply;
mod server;
mod show;
mod tcp;
mod transfer;
mod tsig;
mod udp;

#[cfg(test)]
mod tests;

use answer::Answer;
use query::Query;
pub use server::{Limits, Server, serve, serve_within};
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
pub struct Counts([AtomicU64; Counter::COUNT]);

impl Default for Counts {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; Counter::COUNT])
    }
}

impl Counts {
    /// Counts one.
    pub fn add(&self, counter: Counter) {
        if let Some(count) = self.0.get(counter as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often it happened.
    pub fn get(&self, counter: Counter) -> u64 {
        self.0.get(counter as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

/// Answers one message. `None`: no reply is due (a response, or less than a header).
///
/// `random` gives uniform 64-bit numbers. Exactly one `Server…` counter moves, and `ServerTruncated` besides
/// when TC is set. Takes any octets.
pub fn respond(
    service: &Service,
    message: &[u8],
    client: &Client,
    random: &mut dyn FnMut() -> u64,
    counts: &Counts,
) -> Option<Vec<u8>> {
    let Some(query) = Query::parse(message) else {
        counts.add(Counter::ServerDropped);
        return None;
    };
    let standing = Standing::of(message, query.signature.as_ref(), &service.settings.keys, client.now);
    let answer = match (standing.fault().or(query.fault), &query.question) {
        (None, Some(question)) if transfer::is_asked(question) => {
            transfer::answer(service, &query, question, client, standing.key(), counts)
        }
        (None, Some(question)) => {
            let subnet = query.edns.as_ref().and_then(|edns| edns.client_subnet);
            let ecs = subnet.and_then(|subnet| subnet.prefix);
            let asker = Asker { source: client.source.to_canonical(), ecs };
            let mut answer = answer::answer(&service.snapshot, question, &asker, random);
            if ecs.is_none() {
                // What was decided by the source address holds for nobody's subnet (RFC 7871 §7.1.2).
                answer.scope = 0;
            }
            answer
        }
        (fault, _) => Answer::to_fault(fault.unwrap_or(query::Fault::Format)),
    };
    let limit = match (client.transport, &query.edns) {
        (Transport::Tcp, _) => usize::from(u16::MAX),
        (Transport::Udp, None) => 512,
        (Transport::Udp, Some(edns)) => usize::from(edns.udp_size.min(service.settings.edns_size).max(512)),
    };
    // What is signed is the whole reply, so that there must be room for the signature from the start.
    let room = limit.saturating_sub(standing.len());
    let mut reply = reply::write(&query, &answer, room, service.settings.edns_size);
    if reply.octets.len() + standing.len() <= limit {
        standing.finish(&mut reply.octets, client.now);
    }
    counts.add(answer.counter);
    if reply.truncated {
        counts.add(Counter::ServerTruncated);
    }
    Some(reply.octets)
}
