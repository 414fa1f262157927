//! Replies that are ready: what was answered once is kept as finished wire for as long as the service stands,
//! and the next query that asks the same gets it with its own id, letters and OPT.
//!
//! One thread's own, so there is nothing to lock. Kept is what is asked of names that the configuration
//! holds. Of names that do not exist, or that a wildcard or a cut covers, there is no end, and whoever asks
//! for random ones must not push out what others ask for.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use foldhash::fast::FixedState;
use router_common::decide::{Asked, Asker, Dependence, Outcome, dependence, distribution, place};
use router_common::model::ProfileId;

use super::account::Account;
use super::answer::{self, Keep};
use super::edns::Edns;
use super::query::{Query, Question};
use super::random::Random;
use super::reply::{Body, Parts};
use super::{Client, Counts, Service, Terms, asker, settle, take_down};

/// Outcomes of a profile that are kept ready, at most.
const MAX_OUTCOMES: usize = 64;
/// What an entry costs besides its octets, about.
const OVERHEAD: usize = 96;
/// Octets of a key: a name, a type and a location.
const MAX_KEY: usize = 255 + 2 + 4;
const CLASS_IN: u16 = 1;

/// A service, and what it was asked lately.
pub struct Ready {
    service: Arc<Service>,
    kept: Shelf,
    hits: u64,
}

/// Replies by question, those that are asked for least being forgotten.
struct Shelf {
    /// What was kept or used last; when it is full it becomes `before`, and what is still asked for comes
    /// back from there.
    now: Table,
    before: Table,
    /// Octets that each of the two may hold.
    room: usize,
}

#[derive(Default)]
struct Table {
    kept: HashMap<Box<[u8]>, Kept, FixedState>,
    octets: usize,
}

/// What is known of a question.
#[derive(Clone)]
enum Kept {
    /// The replies, each for the random numbers from its own on; the first one's is 0.
    Replies(Box<[(u64, Body)]>),
    /// It is this profile's place of the client that decides; replies are kept by that.
    ByPlace(ProfileId),
}

impl Kept {
    fn cost(&self) -> usize {
        match self {
            Self::Replies(replies) => replies.iter().map(|(_, body)| 8 + body.cost()).sum(),
            Self::ByPlace(_) => 0,
        }
    }
}

/// A question as it is looked up: folded name, type, and for some the location.
struct Key {
    octets: [u8; MAX_KEY],
    len: usize,
}

impl Key {
    fn of(question: &Question<'_>) -> Self {
        let mut key = Self { octets: [0; MAX_KEY], len: 0 };
        key.push(question.name.as_wire());
        key.push(&question.qtype.to_be_bytes());
        key
    }

    fn push(&mut self, more: &[u8]) {
        if let Some(to) = self.octets.get_mut(self.len..self.len + more.len()) {
            to.copy_from_slice(more);
            self.len += more.len();
        }
    }

    fn as_slice(&self) -> &[u8] {
        self.octets.get(..self.len).unwrap_or_default()
    }
}

impl Ready {
    /// Nothing is ready at first; later at most about `octets` of memory are held.
    pub fn new(service: Arc<Service>, octets: usize) -> Self {
        let seed = Random::new().next();
        let table = || Table { kept: HashMap::with_hasher(FixedState::with_seed(seed)), octets: 0 };
        Self { service, kept: Shelf { now: table(), before: table(), room: octets / 2 }, hits: 0 }
    }

    /// Another service: nothing of the old one holds any more.
    pub fn replace(&mut self, service: Arc<Service>) {
        self.service = service;
        self.kept.now.clear();
        self.kept.before.clear();
    }

    /// What is answered from.
    pub(super) fn service(&self) -> &Service {
        &self.service
    }

    /// How many replies were ready so far.
    pub fn hits(&self) -> u64 {
        self.hits
    }

    /// How many questions have replies that are ready.
    pub fn held(&self) -> usize {
        self.kept.now.kept.len() + self.kept.before.kept.len()
    }

    /// [`super::respond`], octet for octet, with the reply at the end of `out`. `None`: no reply is due, and
    /// nothing is put there.
    pub fn respond(
        &mut self,
        query: &[u8],
        client: &Client,
        random: &mut dyn FnMut() -> u64,
        counts: &Counts,
        out: &mut Vec<u8>,
    ) -> Option<Replied> {
        let query = take_down(query, counts)?;
        let terms = Terms::of(&self.service, &query, client);
        let plain = terms.wrong.is_none() && is_plain(&query);
        let question = query.question.as_ref().filter(|question| plain && question.qclass == CLASS_IN);
        // A number that was drawn for a reply that does not fit is the one that decides, all the same.
        let mut drawn = None;
        let mut known = false;
        if let Some(question) = question {
            let mut draw = || *drawn.insert(random());
            match find(&mut self.kept, &self.service, &query, question, client, &mut draw) {
                Found::Nothing => {}
                Found::Unsuitable => known = true,
                Found::Reply(body, scope) => {
                    if let Some(parts) = body.write(&query, scope, terms.limit, terms.ours, out) {
                        counts.add(body.counter);
                        self.service.tally(body.credited.as_ref(), client);
                        counts.census().asked(&query, client, terms.cookie, true);
                        self.hits += 1;
                        let account = terms.account(body.account);
                        return Some(Replied { truncated: false, account, parts });
                    }
                    known = true;
                }
            }
        }
        let mut draw = || drawn.take().unwrap_or_else(&mut *random);
        let reply = settle(&self.service, &query, terms, client, &mut draw, counts);
        out.extend_from_slice(&reply.octets);
        if let Some(question) = question.filter(|_| !known) {
            self.keep(reply.keep, &query, question, client);
        }
        Some(Replied { truncated: reply.truncated, account: reply.account, parts: reply.parts })
    }

    /// Keeps what a question was answered with, as far as that holds for others.
    fn keep(&mut self, keep: Keep, query: &Query<'_>, question: &Question<'_>, client: &Client) {
        let mut key = Key::of(question);
        let (profile, asked) = match keep {
            Keep::No => return,
            Keep::Everybody => {
                let asker = asker(query, client);
                let answer = answer::answer(&self.service.snapshot, question, &asker, &mut || 0);
                if let Some(body) = Body::of(query, &answer, false) {
                    self.kept.put(key.as_slice().into(), Kept::Replies(Box::new([(0, body)])));
                }
                return;
            }
            Keep::Decided(profile, asked) => (profile, asked),
        };
        let asker = asker(query, client);
        let dependence = dependence(&self.service.snapshot, profile, asked, &asker);
        if dependence == Dependence::Address {
            return;
        }
        let Some(replies) = self.replies(query, question, profile, asked, &asker) else { return };
        if dependence == Dependence::Location {
            self.kept.put(key.as_slice().into(), Kept::ByPlace(profile));
            let place = place(&self.service.snapshot, profile, &asker);
            key.push(&place.location.to_be_bytes());
        }
        self.kept.put(key.as_slice().into(), Kept::Replies(replies));
    }

    /// Every reply that a profile may give to a question, with the first of its random numbers.
    fn replies(
        &self,
        query: &Query<'_>,
        question: &Question<'_>,
        profile: ProfileId,
        asked: Asked,
        asker: &Asker,
    ) -> Option<Box<[(u64, Body)]>> {
        let snapshot = &self.service.snapshot;
        let distribution = distribution(snapshot, profile, asked, asker);
        if distribution.outcomes.len() > MAX_OUTCOMES {
            return None;
        }
        let reply = |(first, outcome): (u64, &Outcome)| {
            let answer = answer::answer(snapshot, question, asker, &mut || first);
            Some((first, Body::of(query, &answer, outcome.records.is_some())?))
        };
        distribution.drawn().map(|(first, outcome, _)| (first, outcome)).map(reply).collect()
    }
}

/// Looks for the reply, and the scope that it tells a client subnet.
fn find<'r>(
    kept: &'r mut Shelf,
    service: &Service,
    query: &Query<'_>,
    question: &Question<'_>,
    client: &Client,
    random: &mut dyn FnMut() -> u64,
) -> Found<'r> {
    let mut key = Key::of(question);
    let mut scope = 0;
    let by_place = match kept.get(&key) {
        None => return Found::Nothing,
        Some(Kept::Replies(_)) => None,
        Some(&Kept::ByPlace(profile)) => Some(profile),
    };
    if let Some(profile) = by_place {
        let asker = asker(query, client);
        let place = place(&service.snapshot, profile, &asker);
        key.push(&place.location.to_be_bytes());
        // What was decided by the source address holds for nobody's subnet.
        scope = if asker.ecs.is_some() { place.scope } else { 0 };
    }
    let Some(Kept::Replies(replies)) = kept.get(&key) else { return Found::Nothing };
    let body = match &**replies {
        [(_, only)] => Some(only),
        several => {
            let drawn = random();
            let after = several.partition_point(|&(first, _)| first <= drawn);
            after.checked_sub(1).and_then(|at| several.get(at)).map(|(_, body)| body)
        }
    };
    body.map_or(Found::Unsuitable, |body| Found::Reply(body, scope))
}

impl Shelf {
    fn get(&mut self, key: &Key) -> Option<&Kept> {
        let key = key.as_slice();
        if !self.now.kept.contains_key(key) {
            let (octets, kept) = self.before.kept.remove_entry(key)?;
            self.put(octets, kept);
        }
        self.now.kept.get(key)
    }

    fn put(&mut self, key: Box<[u8]>, kept: Kept) {
        let cost = OVERHEAD + key.len() + kept.cost();
        if cost > self.room {
            // It would push out everything else.
            return;
        }
        if self.now.octets + cost > self.room {
            mem::swap(&mut self.now, &mut self.before);
            self.now.clear();
        }
        self.now.octets += cost;
        if let Some(replaced) = self.now.kept.insert(key, kept) {
            // Its key and the rest are counted twice; the table is that much smaller for a while.
            self.now.octets -= replaced.cost();
        }
    }
}

impl Table {
    fn clear(&mut self) {
        self.kept.clear();
        self.octets = 0;
    }
}

/// What there is for a query.
enum Found<'r> {
    Nothing,
    /// The question is known, but not how to answer it.
    Unsuitable,
    Reply(&'r Body, u8),
}

/// What was put at the end of the buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Replied {
    /// Whether TC is set.
    pub truncated: bool,
    /// What the limit on replies counts it under.
    pub(super) account: Account,
    /// Where its parts stand.
    pub(super) parts: Parts,
}

/// Whether nothing but the question decides what the reply says, besides the client. All fields are named,
/// so that who adds one has to say what it does to this.
fn is_plain(query: &Query<'_>) -> bool {
    let Query { message: _, id: _, opcode: _, recursion_desired: _, question: _, edns, .. } = query;
    // The serial number is that of an IXFR, whose answers are not kept. A signed reply is signed anew.
    let Query { client_serial: _, signature, fault, .. } = query;
    let edns_is_plain = edns.as_ref().is_none_or(|edns| {
        // All of these are in OPT, which is written anew.
        let Edns {
            udp_size: _,
            version: _,
            dnssec_ok: _,
            client_subnet: _,
            cookie: _,
            nsid: _,
            keepalive: _,
        } = edns;
        true
    });
    fault.is_none() && signature.is_none() && edns_is_plain
}
