//! Sampled queries, for whoever reads along: `xroute trace` and dnstap.
//!
//! Each reader has one of a few **slots**, a [`Filter`], a share of the queries and a limit per second. The fast
//! path evaluates the same rules in the kernel (`router_common::trace`) and copies what they ask for into a ring;
//! the userspace server asks [`Hub::watch`] about each query. Both end in the reader's bounded queue; whatever does
//! not get there is counted: **withheld** is what the limit kept back, **lost** what found a ring or queue full.
//!
//! Nothing of this is kept. Without a reader the fast path has one bit to look at and the server one word, and a
//! rule lapses by itself when the agent does not renew it, so that a dead agent's readers cost nothing for long.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use router_common::counter::Counter;
use router_common::trace::RULES;
use tokio::sync::mpsc;

use crate::datapath::{Datapath, Missed, Tap};
use crate::dns::{Asked, Transport, asked};

mod collect;
mod filter;
mod frame;
mod session;

pub use filter::{Filter, Path};
pub use session::Tally;

use session::Session;

/// Slot of dnstap; the others are for `xroute trace`.
pub const DNSTAP: usize = 0;
/// Queries that wait for a reader, at most.
pub const QUEUE: usize = 4096;

/// A sampled query and what became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// When it was answered, since the epoch.
    pub at: Duration,
    /// Who saw it.
    pub path: Path,
    /// The interface, where that is known.
    pub interface: Option<Arc<str>>,
    /// What became of it.
    pub outcome: Counter,
    /// Where it came from.
    pub client: SocketAddr,
    /// Where it went to.
    pub server: SocketAddr,
    /// What it came over.
    pub transport: Transport,
    /// The message as it came.
    pub query: Vec<u8>,
    /// The message as it left; `None` when nothing was sent, or not by this path.
    pub reply: Option<Vec<u8>>,
    /// What was asked, as far as it can be read.
    pub asked: Asked,
}

/// What a reader asks for.
#[derive(Clone, PartialEq, Debug)]
pub struct Wanted {
    /// Which queries.
    pub filter: Filter,
    /// Every how-manieth of them on average, at least 1.
    pub sample: u32,
    /// Most of them per second.
    pub per_second: u32,
}

/// All readers, and the fast path they read from.
#[derive(Default)]
pub struct Hub {
    /// How many readers want to see what the userspace server does.
    watching: AtomicU32,
    sessions: RwLock<Slots>,
    fast: Mutex<Fast>,
    totals: Totals,
}

type Slots = [Option<Arc<Session>>; RULES];

/// The fast path's side.
#[derive(Default)]
struct Fast {
    tap: Option<Tap>,
    /// What [`Tap::missed`] said last, of each slot.
    missed: [Missed; RULES],
    /// Whether the thread runs that empties the ring and renews rules.
    collecting: bool,
}

/// Of all readers since the agent started.
#[derive(Default)]
struct Totals {
    sampled: AtomicU64,
    withheld: AtomicU64,
    lost: AtomicU64,
}

/// All slots for readers like this are taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Busy;

/// A reader's place; given back when dropped.
pub struct Subscription {
    hub: Arc<Hub>,
    slot: usize,
    session: Arc<Session>,
    /// What it asked for.
    pub events: mpsc::Receiver<Arc<Event>>,
}

impl Subscription {
    /// What it got, and what not.
    pub fn tally(&self) -> Tally {
        self.hub.account(&mut self.hub.fast());
        self.session.tally()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.hub.leave(self.slot);
    }
}

impl Hub {
    /// A place for `xroute trace`.
    ///
    /// # Errors
    /// When all are taken.
    pub fn subscribe(self: &Arc<Self>, wanted: &Wanted) -> Result<Subscription, Busy> {
        self.enter(DNSTAP + 1..RULES, wanted)
    }

    /// The place of dnstap.
    ///
    /// # Errors
    /// When it is taken.
    pub fn subscribe_dnstap(self: &Arc<Self>, wanted: &Wanted) -> Result<Subscription, Busy> {
        self.enter(DNSTAP..DNSTAP + 1, wanted)
    }

    fn enter(self: &Arc<Self>, slots: std::ops::Range<usize>, wanted: &Wanted) -> Result<Subscription, Busy> {
        let (sender, events) = mpsc::channel(QUEUE);
        let session = Arc::new(Session::new(wanted, sender));
        let mut fast = self.fast();
        let slot = {
            let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
            let mut free = slots.filter(|&slot| sessions.get(slot).is_some_and(Option::is_none));
            let slot = free.next().ok_or(Busy)?;
            if let Some(place) = sessions.get_mut(slot) {
                *place = Some(Arc::clone(&session));
            }
            self.watching.store(watching(&sessions), Ordering::Relaxed);
            slot
        };
        fast.begin(slot, &session);
        self.collect(&mut fast);
        Ok(Subscription { hub: Arc::clone(self), slot, session, events })
    }

    fn leave(&self, slot: usize) {
        let mut fast = self.fast();
        let mut sessions = self.sessions.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = sessions.get_mut(slot) {
            *place = None;
        }
        self.watching.store(watching(&sessions), Ordering::Relaxed);
        fast.end(slot, sessions.iter().all(Option::is_none));
    }

    /// Reads from this fast path from now on, or from none. Cheap when it is the one already.
    pub fn follow(self: &Arc<Self>, datapath: Option<&Datapath>) {
        let mut fast = self.fast();
        let now = datapath.map(Datapath::program_id);
        if fast.tap.as_ref().map(Tap::program_id) == now {
            return;
        }
        // The old one first: it switches off what it leaves.
        fast.tap = None;
        fast.missed = Default::default();
        match datapath.map(Datapath::tap).transpose() {
            Ok(tap) => fast.tap = tap,
            Err(error) => log::warn!("queries of the fast path cannot be traced: {error:#}"),
        }
        for (slot, session) in self.sessions().iter().enumerate() {
            if let Some(session) = session {
                fast.begin(slot, session);
            }
        }
        self.collect(&mut fast);
    }

    /// Readers now.
    pub fn readers(&self) -> usize {
        self.sessions().iter().flatten().count()
    }

    /// What all readers got and did not get since the agent started.
    pub fn totals(&self) -> Tally {
        let Totals { sampled, withheld, lost } = &self.totals;
        let [sampled, withheld, lost] = [sampled, withheld, lost].map(|total| total.load(Ordering::Relaxed));
        Tally { sampled, withheld, lost }
    }

    /// Whether a query that the userspace server is about to answer is sampled, and for whom.
    #[inline]
    pub fn watch(&self) -> Option<Watch<'_>> {
        if self.watching.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let random = session::random();
        let sessions = self.sessions.read().unwrap_or_else(PoisonError::into_inner);
        let mut slots = [false; RULES];
        for (slot, session) in slots.iter_mut().zip(sessions.iter()) {
            *slot = session.as_ref().is_some_and(|session| session.samples(random));
        }
        slots.contains(&true).then_some(Watch { hub: self, slots })
    }

    /// Gives an event to the readers of these slots that want it.
    fn deliver(&self, event: Event, slots: [bool; RULES]) {
        let event = Arc::new(event);
        for (session, wanted) in self.sessions().iter().zip(slots) {
            if let (Some(session), true) = (session, wanted) {
                self.add(session.offer(&event));
            }
        }
    }

    fn add(&self, tally: Tally) {
        self.totals.sampled.fetch_add(tally.sampled, Ordering::Relaxed);
        self.totals.withheld.fetch_add(tally.withheld, Ordering::Relaxed);
        self.totals.lost.fetch_add(tally.lost, Ordering::Relaxed);
    }

    fn sessions(&self) -> Slots {
        self.sessions.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn fast(&self) -> MutexGuard<'_, Fast> {
        self.fast.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Readers that want what the userspace server does.
fn watching(sessions: &Slots) -> u32 {
    sessions.iter().flatten().filter(|session| session.filter().wants_userspace()).count() as u32
}

/// A query of the userspace server that some reader's share takes in.
pub struct Watch<'h> {
    hub: &'h Hub,
    slots: [bool; RULES],
}

/// What the userspace server knows of a query that it has answered.
pub struct Answered<'q> {
    /// When, since the epoch.
    pub at: Duration,
    /// What became of it.
    pub outcome: Counter,
    /// Where it came from.
    pub client: SocketAddr,
    /// Where it went to.
    pub server: SocketAddr,
    /// What it came over.
    pub transport: Transport,
    /// The message.
    pub query: &'q [u8],
    /// The reply; `None`: none was sent.
    pub reply: Option<&'q [u8]>,
}

impl Watch<'_> {
    /// Hands it to the readers whose filter it fits.
    pub fn answered(self, seen: Answered<'_>) {
        let Answered { at, outcome, client, server, transport, query, reply } = seen;
        let event = Event {
            at,
            path: Path::Userspace,
            interface: None,
            outcome,
            client,
            server,
            transport,
            query: query.to_vec(),
            reply: reply.map(<[u8]>::to_vec),
            asked: asked(query),
        };
        self.hub.deliver(event, self.slots);
    }
}
