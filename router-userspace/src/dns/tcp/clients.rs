//! Who has connections open, on all listen addresses, and which of them must go.
//!
//! Connections stand in the order of their last reply. The longer the list is, the shorter the time that its
//! first may be idle (RFC 7766 §6.2.3, RFC 9210 §4.2.2), and when there is no room the first one is closed for
//! a newcomer: whoever holds connections without asking anything is at the front.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::AbortHandle;

use super::super::Counts;
use super::super::pulse::Heart;
use super::super::server::Shared;
use crate::settings::Tcp;

/// How long a connection may be idle when there is hardly any room left, unless less is configured.
const LEAST_IDLE: Duration = Duration::from_secs(1);
/// How often it is looked for connections that are idle too long, at least and at most.
const LOOKS: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// See the module.
#[derive(Default)]
pub struct Clients {
    open: Mutex<Open>,
    /// Where it is counted who had to go.
    counts: Arc<Counts>,
}

/// The connections; slots that are free form a list of their own.
#[derive(Default)]
struct Open {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// The longest idle one.
    first: Option<u32>,
    last: Option<u32>,
    count: usize,
    by_client: HashMap<IpAddr, u32>,
}

struct Slot {
    /// Of the connection, so that one that comes later to the same slot is not taken for it.
    serial: u32,
    client: IpAddr,
    /// When it was opened, or its last reply was taken.
    since: Instant,
    previous: Option<u32>,
    next: Option<u32>,
    task: Option<AbortHandle>,
}

/// Names one connection for all times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    slot: u32,
    serial: u32,
}

/// One connection of a client; given back when dropped.
pub struct Place {
    clients: Arc<Clients>,
    ticket: Ticket,
}

impl Place {
    /// Its name.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// It is in use: its idle time begins anew.
    pub fn touch(&self) {
        self.clients.open().touch(self.ticket, Instant::now());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.clients.open().release(self.ticket);
    }
}

impl Clients {
    /// None open.
    pub fn new(counts: Arc<Counts>) -> Self {
        Self { open: Mutex::default(), counts }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // Nothing panics while it holds the lock; if something did, the list would still be whole.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection of this client; the longest idle connection goes when all are taken. `None`
    /// when the client has as many as it may.
    pub fn admit(self: &Arc<Self>, ip: IpAddr, limits: &Tcp) -> Option<Place> {
        let client = prefix(ip);
        let mut open = self.open();
        let mine = open.by_client.get(&client).copied().unwrap_or(0);
        if mine as usize >= limits.connections_per_client {
            return None;
        }
        while open.count >= limits.connections {
            open.evict();
            self.counts.census().evicted();
        }
        let ticket = open.push(client, Instant::now());
        Some(Place { clients: Arc::clone(self), ticket })
    }

    /// Tells which task must end for the connection to be closed.
    pub fn belongs_to(&self, ticket: Ticket, task: AbortHandle) {
        match self.open().slot(ticket) {
            Some(slot) => slot.task = Some(task),
            // It has ended, or it had to go before anybody knew how to tell it.
            None => task.abort(),
        }
    }

    /// Closes the longest idle connection; whether there was one.
    pub fn evict(&self) -> bool {
        let evicted = self.open().evict();
        if evicted {
            self.counts.census().evicted();
        }
        evicted
    }

    /// Closes the connections that are idle too long; when to look again.
    fn close_idle(&self, limits: &Tcp, now: Instant) -> Duration {
        let mut open = self.open();
        loop {
            let allowed = allowed_idle(limits, open.count);
            let Some(slot) = open.first.and_then(|first| open.slots.get(first as usize)) else {
                return LOOKS[1];
            };
            let idle = now.saturating_duration_since(slot.since);
            if idle < allowed {
                return (allowed - idle).clamp(LOOKS[0], LOOKS[1]);
            }
            open.evict();
            self.counts.census().idle();
        }
    }
}

/// Closes idle connections until the server is stopped.
pub async fn reap(clients: Arc<Clients>, mut shared: Shared, heart: Heart) {
    loop {
        heart.beat();
        let limits = shared.services.borrow().settings.tcp;
        let pause = clients.close_idle(&limits, Instant::now());
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            _ = shared.stopped.wait_for(|&stopped| stopped) => return,
        }
    }
}

/// How long a connection may be idle when `open` are: as configured until half of the room is taken, then less
/// and less.
fn allowed_idle(limits: &Tcp, open: usize) -> Duration {
    let left = limits.connections.saturating_sub(open) as f64;
    let half = (limits.connections as f64 / 2.0).max(1.0);
    limits.idle.mul_f64((left / half).min(1.0)).max(LEAST_IDLE.min(limits.idle))
}

/// What counts as one client: an IPv4 address, or the network that one customer is given (RFC 6177).
fn prefix(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 72 << 72)),
    }
}

impl Open {
    fn slot(&mut self, ticket: Ticket) -> Option<&mut Slot> {
        // A free slot's serial is the next connection's.
        self.slots.get_mut(ticket.slot as usize).filter(|slot| slot.serial == ticket.serial)
    }

    fn push(&mut self, client: IpAddr, now: Instant) -> Ticket {
        self.count += 1;
        *self.by_client.entry(client).or_insert(0) += 1;
        let at = match self.free.pop() {
            Some(at) => at,
            None => {
                // There are no more connections than descriptors, which are 32-bit numbers.
                let at = self.slots.len() as u32;
                let slot = Slot { serial: 0, client, since: now, previous: None, next: None, task: None };
                self.slots.push(slot);
                at
            }
        };
        self.append(at);
        let Some(slot) = self.slots.get_mut(at as usize) else { return Ticket { slot: at, serial: 0 } };
        (slot.client, slot.since) = (client, now);
        Ticket { slot: at, serial: slot.serial }
    }

    fn touch(&mut self, ticket: Ticket, now: Instant) {
        let Some(slot) = self.slot(ticket) else { return };
        slot.since = now;
        self.unlink(ticket.slot);
        self.append(ticket.slot);
    }

    fn release(&mut self, ticket: Ticket) -> Option<AbortHandle> {
        let slot = self.slot(ticket)?;
        slot.serial = slot.serial.wrapping_add(1);
        let (client, task) = (slot.client, slot.task.take());
        self.unlink(ticket.slot);
        self.free.push(ticket.slot);
        self.count -= 1;
        if let Some(mine) = self.by_client.get_mut(&client) {
            *mine -= 1;
            if *mine == 0 {
                self.by_client.remove(&client);
            }
        }
        task
    }

    fn evict(&mut self) -> bool {
        let Some(at) = self.first else { return false };
        let Some(slot) = self.slots.get(at as usize) else { return false };
        let ticket = Ticket { slot: at, serial: slot.serial };
        if let Some(task) = self.release(ticket) {
            task.abort();
        }
        true
    }

    fn append(&mut self, at: u32) {
        let before = self.last.replace(at);
        if let Some(slot) = self.slots.get_mut(at as usize) {
            (slot.previous, slot.next) = (before, None);
        }
        self.link(before, Some(at));
    }

    fn unlink(&mut self, at: u32) {
        let Some(slot) = self.slots.get(at as usize) else { return };
        let (previous, next) = (slot.previous, slot.next);
        self.link(previous, next);
        match next.and_then(|next| self.slots.get_mut(next as usize)) {
            Some(slot) => slot.previous = previous,
            None => self.last = previous,
        }
    }

    /// Puts `next` behind `previous`, or in front.
    fn link(&mut self, previous: Option<u32>, next: Option<u32>) {
        match previous.and_then(|previous| self.slots.get_mut(previous as usize)) {
            Some(slot) => slot.next = next,
            None => self.first = next,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(connections: usize, connections_per_client: usize) -> Tcp {
        Tcp { connections, connections_per_client, ..Tcp::default() }
    }

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    /// Clients from the longest idle to the last, by walking the list both ways.
    fn order(clients: &Clients) -> Vec<IpAddr> {
        let open = clients.open();
        let mut forward = Vec::new();
        let mut at = open.first;
        while let Some(here) = at {
            forward.push(open.slots[here as usize].client);
            at = open.slots[here as usize].next;
        }
        let mut backward = Vec::new();
        let mut at = open.last;
        while let Some(here) = at {
            backward.push(open.slots[here as usize].client);
            at = open.slots[here as usize].previous;
        }
        backward.reverse();
        assert_eq!(forward, backward);
        assert_eq!(forward.len(), open.count);
        assert_eq!(open.by_client.values().sum::<u32>() as usize, open.count);
        forward
    }

    #[test]
    fn the_longest_idle_one_goes_for_a_newcomer() {
        let clients = Arc::new(Clients::default());
        let limits = limits(3, 2);
        let [one, two, three] = [1, 2, 3].map(|last| clients.admit(ip(last), &limits).unwrap());
        assert_eq!(order(&clients), [ip(1), ip(2), ip(3)]);
        one.touch();
        assert_eq!(order(&clients), [ip(2), ip(3), ip(1)]);
        three.touch();
        let four = clients.admit(ip(4), &limits).unwrap();
        assert_eq!(order(&clients), [ip(1), ip(3), ip(4)]);
        // Its slot is the newcomer's; what it still does is nothing to anybody.
        two.touch();
        drop(two);
        assert_eq!(order(&clients), [ip(1), ip(3), ip(4)]);
        drop(three);
        four.touch();
        assert_eq!(order(&clients), [ip(1), ip(4)]);
        assert!(clients.evict() && clients.evict() && !clients.evict());
        drop((one, four));
        assert_eq!(order(&clients), Vec::<IpAddr>::new());
    }

    #[test]
    fn a_client_is_an_ipv4_address_or_an_ipv6_network() {
        let clients = Arc::new(Clients::default());
        let limits = limits(10, 2);
        let v6 = |text: &str| -> IpAddr { text.parse().unwrap() };
        let _held: Vec<Place> = ["192.0.2.1", "192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8:0:ff::1"]
            .map(|text| clients.admit(v6(text), &limits).unwrap())
            .into();
        assert!(clients.admit(v6("192.0.2.1"), &limits).is_none());
        assert!(clients.admit(v6("2001:db8:0:1::9"), &limits).is_none());
        assert!(clients.admit(v6("2001:db8:0:100::1"), &limits).is_some());
    }

    #[test]
    fn the_fuller_it_is_the_shorter_one_may_be_idle() {
        let limits = Tcp { idle: Duration::from_secs(10), ..limits(100, 100) };
        for (open, seconds) in
            [(0, 10.0), (50, 10.0), (75, 5.0), (90, 2.0), (99, 1.0), (100, 1.0), (200, 1.0)]
        {
            assert_eq!(allowed_idle(&limits, open).as_secs_f64(), seconds, "{open} open");
        }
        let short = Tcp { idle: Duration::from_millis(300), ..limits };
        assert_eq!(allowed_idle(&short, 100), short.idle);
    }

    #[test]
    fn whoever_is_idle_too_long_is_closed() {
        let clients = Arc::new(Clients::default());
        let limits = Tcp { idle: Duration::from_secs(10), ..limits(100, 100) };
        let quiet = clients.admit(ip(1), &limits).unwrap();
        let busy = clients.admit(ip(2), &limits).unwrap();
        let start = Instant::now();
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(clients.close_idle(&limits, after(2)), LOOKS[1]);
        clients.open().touch(busy.ticket(), after(8));
        clients.close_idle(&limits, after(11));
        assert_eq!(order(&clients), [ip(2)]);
        clients.close_idle(&limits, after(17));
        assert_eq!(order(&clients), [ip(2)]);
        clients.close_idle(&limits, after(18));
        assert_eq!(order(&clients), Vec::<IpAddr>::new());
        drop((quiet, busy));
    }
}
