//! Who is connected to the API, and who has to go when it is full.
//!
//! A listener has room for [`CONNECTIONS`], and each peer (a user of this machine, or a network) for [`PER_PEER`] of
//! them. A newcomer is never kept out by connections that wait for nothing: when its peer has no room left, the
//! longest idle connection of that peer is closed for it; when the listener has none, that of the peer that holds
//! the most. So a client that opens thousands costs itself, and nobody else.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::task::AbortHandle;
use utoipa::ToSchema;

/// Most connections of a listener.
pub(super) const CONNECTIONS: usize = 256;
/// Most of them of one peer.
pub(super) const PER_PEER: usize = 64;
/// A connection is not idle before this: its request may be on the way.
const FRESH: Duration = Duration::from_millis(100);

/// What a listener of the API did since the agent started.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ListenerReport {
    /// `control`, or `http`.
    pub listener: String,
    /// Connections open.
    pub connections: usize,
    /// Connections accepted.
    pub accepted: u64,
    /// Requests that came whole enough to be answered.
    pub requests: u64,
    /// What was refused or broken off, by reason.
    pub refused: BTreeMap<String, u64>,
}

impl fmt::Display for ListenerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "api at {}: {} connections, {} accepted, {} requests",
            self.listener, self.connections, self.accepted, self.requests
        )?;
        for (reason, count) in self.refused.iter().filter(|(_, count)| **count > 0) {
            write!(f, ", {count} {reason}")?;
        }
        Ok(())
    }
}

/// Why the API refused something or broke it off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reason {
    /// No room: a newcomer was turned away.
    Full,
    /// No room: an idle connection was closed for a newcomer.
    Displaced,
    /// A new connection without a whole request head in time.
    Idle,
    /// The body did not come in time.
    SlowBody,
    /// The client does not take its reply.
    Stalled,
    /// Not HTTP, or not in a form that is taken.
    Malformed,
    /// Head or body with too many octets.
    TooLarge,
    /// The client may not do this.
    NotPermitted,
    /// A connection could not be taken: no descriptor left.
    NotAccepted,
}

impl Reason {
    const ALL: [Self; 9] = [
        Self::Full,
        Self::Displaced,
        Self::Idle,
        Self::SlowBody,
        Self::Stalled,
        Self::Malformed,
        Self::TooLarge,
        Self::NotPermitted,
        Self::NotAccepted,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Displaced => "displaced",
            Self::Idle => "idle",
            Self::SlowBody => "slow_body",
            Self::Stalled => "stalled",
            Self::Malformed => "malformed",
            Self::TooLarge => "too_large",
            Self::NotPermitted => "not_permitted",
            Self::NotAccepted => "not_accepted",
        }
    }
}

/// Whose a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Key {
    /// A user of this machine, when the kernel says which.
    User(Option<u32>),
    /// An IPv4 address, or the /56 of an IPv6 address.
    Network(IpAddr),
}

impl From<IpAddr> for Key {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let masked = u128::from(address) & !(u128::MAX >> 56);
                Self::Network(Ipv6Addr::from(masked).into())
            }
            IpAddr::V4(address) => Self::Network(address.into()),
        }
    }
}

/// One listener of the API.
pub struct Door {
    name: &'static str,
    opened: Instant,
    accepted: AtomicU64,
    requests: AtomicU64,
    refused: [AtomicU64; Reason::ALL.len()],
    guests: Mutex<HashMap<u64, Arc<Guest>>>,
    next: AtomicU64,
}

/// One connection.
pub(super) struct Guest {
    key: Key,
    since: Instant,
    /// Milliseconds since the door opened when the last reply was out; [`BUSY`] while there is one to be made or sent.
    idle_since: AtomicU64,
    task: OnceLock<AbortHandle>,
}

const BUSY: u64 = u64::MAX;

impl Door {
    /// A door with a name.
    pub fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self {
            name,
            opened: Instant::now(),
            accepted: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            refused: Default::default(),
            guests: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    /// What it did so far.
    pub fn report(&self) -> ListenerReport {
        ListenerReport {
            listener: self.name.to_owned(),
            connections: self.guests().len(),
            accepted: self.accepted.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            refused: Reason::ALL
                .iter()
                .zip(&self.refused)
                .map(|(reason, count)| (reason.name().to_owned(), count.load(Ordering::Relaxed)))
                .collect(),
        }
    }

    pub(super) fn count(&self, reason: Reason) {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn guests(&self) -> MutexGuard<'_, HashMap<u64, Arc<Guest>>> {
        // A map of handles is right after every single step.
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(BUSY - 1)
    }

    /// A place for a new connection; `None` when there is none to be had.
    pub(super) fn enter(self: &Arc<Self>, key: Key) -> Option<Place> {
        let mut guests = self.guests();
        if !self.make_room(&mut guests, key) {
            drop(guests);
            self.count(Reason::Full);
            return None;
        }
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let guest = Arc::new(Guest {
            key,
            since: Instant::now(),
            idle_since: AtomicU64::new(self.now()),
            task: OnceLock::new(),
        });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        guests.insert(number, Arc::clone(&guest));
        Some(Place { door: Arc::clone(self), number, guest })
    }

    fn make_room(&self, guests: &mut HashMap<u64, Arc<Guest>>, newcomer: Key) -> bool {
        let held = guests.values().filter(|guest| guest.key == newcomer).count();
        if held >= PER_PEER {
            return self.displace(guests, newcomer, false);
        }
        if guests.len() < CONNECTIONS {
            return true;
        }
        let mut held: HashMap<Key, usize> = HashMap::new();
        for guest in guests.values() {
            *held.entry(guest.key).or_default() += 1;
        }
        let most = held.iter().max_by_key(|(_, count)| **count).map(|(key, count)| (*key, *count));
        let own = held.get(&newcomer).copied().unwrap_or(0);
        // Who holds much more than the newcomer gives way to it, with a request under way if it must be.
        most.is_some_and(|(key, count)| self.displace(guests, key, count > own + 1))
    }

    /// Closes the longest idle connection of a peer, or when `busy` allows it its oldest.
    fn displace(&self, guests: &mut HashMap<u64, Arc<Guest>>, key: Key, busy: bool) -> bool {
        let of_peer = || guests.iter().filter(|(_, guest)| guest.key == key);
        let idle = of_peer()
            .map(|(number, guest)| (guest.idle_since.load(Ordering::Relaxed), *number, guest))
            .filter(|(idle, _, guest)| *idle != BUSY && guest.since.elapsed() >= FRESH)
            .min_by_key(|(idle, number, _)| (*idle, *number))
            .map(|(_, number, _)| number);
        let chosen = match idle {
            None if busy => of_peer().map(|(number, _)| *number).min(),
            idle => idle,
        };
        let Some(guest) = chosen.and_then(|number| guests.remove(&number)) else { return false };
        if let Some(task) = guest.task.get() {
            task.abort();
        }
        self.count(Reason::Displaced);
        true
    }
}

/// A place behind the door; free again when this is dropped.
pub(super) struct Place {
    door: Arc<Door>,
    number: u64,
    guest: Arc<Guest>,
}

impl Place {
    pub(super) fn door(&self) -> &Arc<Door> {
        &self.door
    }

    pub(super) fn guest(&self) -> Arc<Guest> {
        Arc::clone(&self.guest)
    }

    /// A request is there; the connection is busy until what is returned is dropped.
    pub(super) fn request(&self) -> Busy {
        self.door.requests.fetch_add(1, Ordering::Relaxed);
        self.guest.idle_since.store(BUSY, Ordering::Relaxed);
        Busy { door: Arc::clone(&self.door), guest: Arc::clone(&self.guest) }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.door.guests().remove(&self.number);
    }
}

impl Guest {
    /// What ends the connection.
    pub(super) fn is_task(&self, task: AbortHandle) {
        // Set once, by the one who started it.
        let _ = self.task.set(task);
    }
}

/// A request under way, until its reply is out.
pub(super) struct Busy {
    door: Arc<Door>,
    guest: Arc<Guest>,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.guest.idle_since.store(self.door.now(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Key = Key::User(Some(1));
    const TWO: Key = Key::User(Some(2));

    fn refused(door: &Door, reason: Reason) -> u64 {
        door.report().refused[reason.name()]
    }

    #[test]
    fn the_longest_idle_of_a_peer_gives_way_to_its_next() {
        let door = Door::new("control");
        let places: Vec<Place> = (0..PER_PEER).filter_map(|_| door.enter(ONE)).collect();
        assert_eq!(places.len(), PER_PEER);
        assert!(door.enter(ONE).is_none(), "requests of fresh ones may be on the way");
        assert!(door.enter(TWO).is_some(), "another peer does not feel it");
        std::thread::sleep(FRESH);
        let busy = places[0].request();
        drop(places[1].request());
        std::thread::sleep(Duration::from_millis(2));
        let newcomer = door.enter(ONE).expect("an idle one gives way");
        assert_eq!(door.report().connections, PER_PEER);
        let guests = door.guests();
        assert!(guests.contains_key(&0), "busy");
        assert!(guests.contains_key(&1), "idle for a moment only");
        assert!(!guests.contains_key(&2), "the longest idle");
        drop(guests);
        assert_eq!((refused(&door, Reason::Full), refused(&door, Reason::Displaced)), (1, 1));
        drop((newcomer, busy, places));
        assert_eq!(door.report().connections, 0);
    }

    #[test]
    fn a_full_house_is_made_room_in_by_those_who_hold_most() {
        let door = Door::new("control");
        let keys = (0..4).map(|user| Key::User(Some(100 + user)));
        let places: Vec<Place> =
            keys.flat_map(|key| (0..PER_PEER).map(move |_| key)).filter_map(|key| door.enter(key)).collect();
        assert_eq!(places.len(), CONNECTIONS);
        let busy: Vec<Busy> = places.iter().map(Place::request).collect();
        let newcomer =
            door.enter(Key::User(Some(0))).expect("a busy one of many gives way to the first of another");
        assert_eq!(door.report().connections, CONNECTIONS);
        assert!(door.enter(Key::User(Some(100))).is_none(), "not to one more of the same");
        drop((newcomer, busy, places));
        assert_eq!(door.report().connections, 0);
    }

    #[test]
    fn networks_of_one_host_are_one_peer() {
        let key = |text: &str| Key::from(text.parse::<IpAddr>().expect("an address"));
        assert_eq!(key("2001:db8:1:2ff::1"), key("2001:db8:1:200:ffff::2"));
        assert_ne!(key("2001:db8:1:2ff::1"), key("2001:db8:1:3ff::1"));
        assert_eq!(key("::ffff:192.0.2.1"), key("192.0.2.1"));
        assert_ne!(key("192.0.2.2"), key("192.0.2.1"));
    }

    #[test]
    fn every_reason_has_its_own_count() {
        let door = Door::new("http");
        for (i, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, i);
            door.count(reason);
        }
        let refused = door.report().refused;
        assert_eq!(refused.len(), Reason::ALL.len());
        assert!(refused.values().all(|count| *count == 1));
    }
}
