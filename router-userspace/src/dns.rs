//! The userspace DNS server: whatever the fast path does not answer, and everything when there is none.
//!
//! [`respond`] is the whole server without a socket: octets in, octets out. [`serve`] puts UDP and TCP
//! sockets around it. The decision is `router_common`'s, the same that fills the fast path's tables.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use router_common::counter::Counter;
use router_common::decide::{Asker, Snapshot};

use crate::settings::Dns;
use crate::trace::{Hub, Watch};

mod account;
mod answer;
mod asked;
mod census;
mod chaos;
mod cookie;
mod edns;
mod limit;
mod notify;
pub mod pulse;
mod query;
mod random;
mod ready;
mod reply;
mod server;
mod show;
pub mod sockets;
mod sockopt;
mod tallies;
mod tcp;
mod transfer;
mod tsig;
mod udp;

#[cfg(test)]
mod tests;

use account::Account;
use answer::{Answer, Rcode};
pub use asked::{Asked, asked};
pub use census::{Census, ServerReport};
use chaos::CLASS_CH;
use cookie::{Cookie, Jar};
pub use cookie::{adopt_secret, own_secret};
use edns::Ours;
use query::{Fault, Query};
pub use ready::{Ready, Replied};
use reply::Reply;
pub use server::{Connection, Heir, Server, serve, serve_on};
pub use show::{Shown, record_type, show, show_reply, type_name};
use tallies::Credited;
pub use tallies::{Registry, Tallied, Tallies};
use tsig::Standing;
pub use udp::RECEIVE_BUFFER;

/// What is answered from: immutable, replaced as a whole.
pub struct Service {
    /// Model and views.
    pub snapshot: Snapshot,
    /// How it is answered.
    pub settings: Arc<Dns>,
    /// Makes cookies, when they are configured.
    cookies: Option<Jar>,
    /// Where answers are counted by whom they come; nowhere when nobody gets them.
    tallies: Option<Arc<Tallies>>,
}

impl Service {
    /// Answers from `snapshot` as `settings` say.
    pub fn new(snapshot: Snapshot, settings: Arc<Dns>) -> Self {
        let cookies = settings.cookies.as_ref().and_then(Jar::new);
        Self { snapshot, settings, cookies, tallies: None }
    }

    /// Counts answers by whom they come; of the same model.
    pub fn counting(self, tallies: Arc<Tallies>) -> Self {
        Self { tallies: Some(tallies), ..self }
    }

    /// Counts an answer that is sent.
    fn tally(&self, credited: Option<&Credited>, client: &Client) {
        if let Some((tallies, credited)) = self.tallies.as_ref().zip(credited) {
            tallies.add(credited, client.now);
        }
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

/// What happened to queries, by [`Counter`], and samples of them. Shared by all sockets; also holds the fast
/// path's counters, which stay zero here.
#[derive(Default)]
pub struct Counts {
    shards: [Shard; SHARDS],
    readers: Arc<Hub>,
    census: Census,
}

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
    /// Bit for each counter that moved on this thread since [`Counts::begin`].
    static MOVED: Cell<u128> = const { Cell::new(0) };
    /// Where this thread counts.
    static SHARD: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS
    };
}

impl Counts {
    /// Who reads along.
    pub fn readers(&self) -> &Arc<Hub> {
        &self.readers
    }

    /// Whether somebody wants to see a query that is about to be answered on this thread.
    #[inline]
    fn begin(&self) -> Option<Watch<'_>> {
        let watch = self.readers.watch()?;
        MOVED.set(0);
        Some(watch)
    }

    /// What has become of a query since [`Self::begin`].
    fn outcome() -> Counter {
        let moved = MOVED.get();
        let limited = [Counter::ServerRateDropped, Counter::ServerRateSlipped];
        let mut candidates = limited.iter().chain(Counter::ALL);
        candidates
            .find(|&&counter| moved >> counter as u32 & 1 != 0)
            .copied()
            .unwrap_or(Counter::ServerDropped)
    }

    /// Counts one.
    pub fn add(&self, counter: Counter) {
        MOVED.set(MOVED.get() | 1 << counter as u32);
        let shard = SHARD.with(|&shard| shard);
        if let Some(count) = self.shards.get(shard).and_then(|shard| shard.0.get(counter as usize)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What was asked.
    pub fn census(&self) -> &Census {
        &self.census
    }

    /// How often it happened.
    pub fn get(&self, counter: Counter) -> u64 {
        let counts = self.shards.iter().filter_map(|shard| shard.0.get(counter as usize));
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
    reply_to(service, query, client, random, counts).map(|reply| reply.octets)
}

/// [`respond`], with what the limit on replies needs to know.
fn reply_to(
    service: &Service,
    query: &[u8],
    client: &Client,
    random: &mut dyn FnMut() -> u64,
    counts: &Counts,
) -> Option<Reply> {
    let query = take_down(query, counts)?;
    let terms = Terms::of(service, &query, client);
    Some(settle(service, &query, terms, client, random, counts))
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

/// What a reply has by its query and the settings, whatever the answer.
struct Terms<'s> {
    /// Why nothing is looked up.
    wrong: Option<Wrong>,
    /// Octets of the longest reply.
    limit: usize,
    /// What goes into OPT.
    ours: Ours<'s>,
    /// Whether the client has shown that its address is its own, or who it is.
    known: bool,
    /// What becomes of the query's signature.
    standing: Standing,
    /// What the query's cookie is, where cookies are configured.
    cookie: Option<Cookie>,
}

impl<'s> Terms<'s> {
    fn of(service: &'s Service, query: &Query<'_>, client: &Client) -> Self {
        let settings = &service.settings;
        let standing = Standing::of(query, &settings.keys, client.now);
        let edns = query.edns.as_ref();
        let cookie = service.cookies.as_ref().zip(edns.and_then(|edns| edns.cookie));
        let cookie = cookie.map(|(jar, option)| jar.read(option, client.source, client.now.as_secs()));
        let keepalive =
            edns.is_some_and(|edns| edns.keepalive.is_some()) && client.transport == Transport::Tcp;
        Self {
            wrong: match standing.fault() {
                Some(fault) => Some(Wrong::Fault(fault)),
                None => fault(service, query, client, cookie),
            },
            limit: match (client.transport, edns) {
                (Transport::Tcp, _) => usize::from(u16::MAX),
                (Transport::Udp, None) => 512,
                (Transport::Udp, Some(edns)) => usize::from(edns.udp_size.min(settings.edns_size).max(512)),
            },
            ours: Ours {
                udp_size: settings.edns_size,
                cookie: cookie.and_then(|cookie| cookie.payload()),
                nsid: settings.nsid.as_deref().filter(|_| edns.is_some_and(|edns| edns.nsid)),
                keepalive: keepalive.then_some(settings.tcp.idle),
            },
            known: matches!(cookie, Some(Cookie::Good(_))) || standing.key().is_some(),
            standing,
            cookie,
        }
    }

    /// What the limit on replies counts a reply under.
    fn account(&self, account: Account) -> Account {
        if self.known { Account::EXEMPT } else { account }
    }
}

/// Answers a query that was read, and counts how.
fn settle(
    service: &Service,
    query: &Query<'_>,
    terms: Terms<'_>,
    client: &Client,
    random: &mut dyn FnMut() -> u64,
    counts: &Counts,
) -> Reply {
    let answer = match (&query.question, &terms.wrong) {
        (Some(question), None) if question.qclass == CLASS_CH => chaos::answer(&service.settings, question),
        (Some(question), None) if transfer::is_asked(question) => {
            transfer::answer(service, query, question, client, terms.standing.key(), counts)
        }
        (Some(question), None) => {
            let asker = asker(query, client);
            let mut answer = answer::answer(&service.snapshot, question, &asker, random);
            if asker.ecs.is_none() {
                // What was decided by the source address holds for nobody's subnet (RFC 7871 §7.1.2).
                answer.scope = 0;
            }
            answer
        }
        (_, &Some(Wrong::Fault(fault))) => Answer::to_fault(fault),
        (_, Some(Wrong::Cookie)) => Answer::bare(Rcode::BadCookie, Counter::ServerCookie),
        (None, None) => Answer::bare(Rcode::NoError, Counter::ServerCookie),
    };
    // What is signed is the whole reply, so that there must be room for the signature from the start.
    let signature = terms.standing.len();
    let mut reply = reply::write(query, &answer, terms.limit.saturating_sub(signature), terms.ours);
    reply.account = terms.account(reply.account);
    if reply.octets.len() + signature <= terms.limit {
        terms.standing.finish(&mut reply.octets, client.now);
    }
    counts.add(answer.counter);
    counts.census().asked(query, client, terms.cookie, false);
    counts.census().replied(answer.rcode);
    if reply.truncated {
        counts.add(Counter::ServerTruncated);
    } else {
        service.tally(answer.credited.as_ref(), client);
    }
    reply
}

/// Why a query is not looked at further.
enum Wrong {
    Fault(Fault),
    /// BADCOOKIE.
    Cookie,
}

/// What is wrong with a query, as its options and our settings have it.
fn fault(service: &Service, query: &Query<'_>, client: &Client, cookie: Option<Cookie>) -> Option<Wrong> {
    let format = Some(Wrong::Fault(Fault::Format));
    let keepalive = query.edns.as_ref().and_then(|edns| edns.keepalive);
    match (query.fault, cookie) {
        (None | Some(Fault::NoQuestion), Some(Cookie::Malformed)) => format,
        // RFC 7873 §5.4: the cookie is all there is to answer.
        (Some(Fault::NoQuestion), Some(Cookie::Bad(_))) => Some(Wrong::Cookie),
        (Some(Fault::NoQuestion), Some(_)) => None,
        (Some(fault), _) => Some(Wrong::Fault(fault)),
        // RFC 7828 §3.2.1: clients have nothing to say in it, and over UDP it means nothing.
        _ if client.transport == Transport::Tcp && keepalive.is_some_and(|told| !told.is_empty()) => format,
        (None, Some(Cookie::New(_) | Cookie::Bad(_)))
            if client.transport == Transport::Udp
                && service.cookies.as_ref().is_some_and(|jar| jar.require) =>
        {
            Some(Wrong::Cookie)
        }
        _ => None,
    }
}
