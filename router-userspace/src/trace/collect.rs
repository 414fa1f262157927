//! The thread that empties the fast path's ring and renews its rules while there are readers.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use router_common::counter::Counter;
use router_common::trace::{Head, RULES, Rule};

use super::filter::Path;
use super::frame::datagram;
use super::session::{Session, Tally};
use super::{Event, Fast, Hub};
use crate::clock::unix_now;
use crate::datapath;
use crate::dns::{Transport, asked};

/// How often the ring is looked at. The fast path wakes nobody: that would cost it an interrupt.
const LOOK: Duration = Duration::from_millis(20);
/// How often rules are renewed.
const RENEWAL: Duration = Duration::from_secs(1);
/// How long they hold.
const LEASE: Duration = Duration::from_secs(5);
/// Copies taken out of the ring before others may have the lock.
const BATCH: usize = 256;

fn run(hub: &Weak<Hub>) {
    let mut names = Names::default();
    let mut renewed = Instant::now();
    while let Some(hub) = hub.upgrade() {
        while hub.drain(&mut names) {}
        if renewed.elapsed() >= RENEWAL || hub.readers() == 0 {
            if !hub.renew() {
                return;
            }
            renewed = Instant::now();
            names = Names::default();
        }
        drop(hub);
        thread::sleep(LOOK);
    }
}

impl Fast {
    /// A reader's rule comes into force.
    pub(super) fn begin(&mut self, slot: usize, session: &Session) {
        let Some(tap) = &self.tap else { return };
        if let (Ok(now), Some(missed)) = (tap.missed(slot), self.missed.get_mut(slot)) {
            *missed = now;
        }
        let rule = session.rule();
        if rule.outcomes != 0 {
            tap.set(slot, &rule, LEASE);
            tap.switch(true);
        }
    }

    /// A reader's rule ends.
    pub(super) fn end(&mut self, slot: usize, was_last: bool) {
        let Some(tap) = &self.tap else { return };
        tap.set(slot, &Rule::OFF, Duration::ZERO);
        if was_last {
            tap.switch(false);
        }
    }
}

impl Hub {
    /// Starts the thread, when it is needed and does not run.
    pub(super) fn collect(self: &Arc<Self>, fast: &mut Fast) {
        if fast.collecting || fast.tap.is_none() || self.readers() == 0 {
            return;
        }
        let hub = Arc::downgrade(self);
        match thread::Builder::new().name("trace".into()).spawn(move || run(&hub)) {
            Ok(_) => fast.collecting = true,
            Err(error) => log::warn!("queries of the fast path cannot be traced: no thread: {error}"),
        }
    }

    /// Takes what is in the ring. Whether there may be more.
    fn drain(&self, names: &mut Names) -> bool {
        let boot = unix_now().saturating_sub(Duration::from_nanos(datapath::monotonic()));
        let mut events = Vec::new();
        let mut fast = self.fast();
        let Some(tap) = &mut fast.tap else { return false };
        let count = tap.read(BATCH, |record| events.extend(event(record, boot, names)));
        drop(fast);
        for (event, slots) in events {
            self.deliver(event, slots);
        }
        count == BATCH
    }

    /// Renews the rules, and counts what was missed. `false`: there is nothing to do any more, and the thread
    /// ends.
    fn renew(&self) -> bool {
        let mut fast = self.fast();
        let sessions = self.sessions();
        if fast.tap.is_none() || sessions.iter().all(Option::is_none) {
            fast.collecting = false;
            return false;
        }
        for (slot, session) in sessions.iter().enumerate() {
            if let (Some(tap), Some(session)) = (&fast.tap, session) {
                let rule = session.rule();
                if rule.outcomes != 0 {
                    tap.set(slot, &rule, LEASE);
                }
            }
        }
        self.account(&mut fast);
        true
    }

    /// Counts what the fast path did not hand out.
    pub(super) fn account(&self, fast: &mut Fast) {
        let Fast { tap: Some(tap), missed, .. } = fast else { return };
        for (slot, (session, missed)) in self.sessions().iter().zip(missed).enumerate() {
            if let (Some(session), Ok(now)) = (session, tap.missed(slot)) {
                let tally = Tally {
                    sampled: 0,
                    withheld: now.withheld.wrapping_sub(missed.withheld),
                    lost: now.lost.wrapping_sub(missed.lost),
                };
                session.add(tally);
                self.add(tally);
                *missed = now;
            }
        }
    }
}

/// Names of interfaces by index, asked for once in a while.
#[derive(Default)]
struct Names(Vec<(u32, Option<Arc<str>>)>);

impl Names {
    fn of(&mut self, index: u32) -> Option<Arc<str>> {
        if let Some((_, name)) = self.0.iter().find(|(known, _)| *known == index) {
            return name.clone();
        }
        let name: Option<Arc<str>> = datapath::interface_name(index).map(Into::into);
        self.0.push((index, name.clone()));
        name
    }
}

/// Takes a copy apart; `boot` is when the machine's monotonic clock began, since the epoch.
fn event(record: &[u8], boot: Duration, names: &mut Names) -> Option<(Event, [bool; RULES])> {
    let (head, frames) = head(record)?;
    let query = frames.get(..head.query_len as usize)?;
    let reply = frames.get(query.len()..)?.get(..head.reply_len as usize)?;
    let question = datagram(query)?;
    let mut slots = [false; RULES];
    for (bit, slot) in slots.iter_mut().enumerate() {
        *slot = head.rules >> bit & 1 != 0;
    }
    let event = Event {
        at: boot.saturating_add(Duration::from_nanos(head.time)),
        path: Path::Fast,
        interface: names.of(head.interface),
        outcome: Counter::ALL.get(usize::from(head.counter)).copied()?,
        client: question.source,
        server: question.destination,
        transport: Transport::Udp,
        query: question.payload.to_vec(),
        reply: datagram(reply).map(|reply| reply.payload.to_vec()),
        asked: asked(question.payload),
    };
    Some((event, slots))
}

/// Reads what a copy begins with.
fn head(record: &[u8]) -> Option<(Head, &[u8])> {
    let (octets, frames) = record.split_at_checked(size_of::<Head>())?;
    let word = |at: usize| Some(u32::from_ne_bytes(octets.get(at..at + 4)?.try_into().ok()?));
    let half = |at: usize| Some(u16::from_ne_bytes(octets.get(at..at + 2)?.try_into().ok()?));
    let head = Head {
        time: u64::from_ne_bytes(octets.first_chunk().copied()?),
        interface: word(8)?,
        counter: half(12)?,
        rules: half(14)?,
        query_len: word(16)?,
        reply_len: word(20)?,
    };
    Some((head, frames))
}
