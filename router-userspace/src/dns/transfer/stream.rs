//! A transfer as a sequence of messages, made one at a time from one snapshot.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use router_common::counter::Counter;
use router_common::decide::Asker;
use router_common::model::{ProfileId, Zone, ZoneId, rtype};
use router_common::name::Name;
use tokio::sync::OwnedSemaphorePermit;

use super::content::{Present, holder, present};
use super::{Client, Counts, RecordSet, Service};
use crate::dns::answer::Rcode;
use crate::dns::query::{Query, Question};
use crate::dns::reply::Writer;
use crate::dns::tsig::Signer;

/// Longest message.
const MAX_MESSAGE: usize = u16::MAX as usize;

/// Names that each name is compared with for compression. Most names of a zone have nothing in common but its
/// apex, which is the first.
const TARGETS: usize = 32;

/// The record set that is sent next.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Place {
    /// The SOA at the beginning.
    Opening,
    /// A static record set, by owner and type.
    Static(Name, u16),
    /// The `set`th record set of a profile at the `name`th of its names.
    Profile { profile: u32, name: usize, set: usize },
    /// The SOA at the end.
    Closing,
    /// All are sent.
    Over,
}

/// A transfer under way. It holds the service that it began with, whatever serves meanwhile, and where in
/// it it stands; nothing that grows with the zone.
pub(in crate::dns) struct Transfer {
    service: Arc<Service>,
    zone: ZoneId,
    asker: Asker,
    /// The query's id and RD.
    id: u16,
    recursion_desired: bool,
    /// The query's question, and the OPT record of the reply when it had one; both for the first message.
    question: Option<Vec<u8>>,
    opt: Option<[u8; 11]>,
    signer: Option<Signer>,
    place: Place,
    /// Records of that set that were sent.
    sent: usize,
    /// What the profile at `place` answers with.
    decided: Option<(u32, Vec<Present>)>,
    /// A message with the error was sent.
    failed: bool,
    messages: u64,
    octets: u64,
    held: Option<Held>,
}

/// What is given back and told when a transfer ends.
pub(in crate::dns) struct Held {
    pub place: OwnedSemaphorePermit,
    pub counts: Arc<Counts>,
    /// Zone and secondary, for the log.
    pub whom: String,
}

impl Transfer {
    /// Of a zone, to the client that asked; `signer` when the query was signed.
    pub fn new(
        service: Arc<Service>,
        zone: ZoneId,
        query: &Query<'_>,
        client: &Client,
        signer: Option<Signer>,
    ) -> Self {
        let opt = query.edns.as_ref().map(|edns| {
            let [high, low] = service.settings.edns_size.to_be_bytes();
            [0, 0, 41, high, low, 0, 0, u8::from(edns.dnssec_ok) << 7, 0, 0, 0]
        });
        Self {
            service,
            zone,
            // A secondary is decided for as a resolver at its address is.
            asker: Asker { source: client.source.to_canonical(), ecs: None },
            id: query.id,
            recursion_desired: query.recursion_desired,
            question: query.question.as_ref().map(|question| question.octets.to_vec()),
            opt,
            signer,
            place: Place::Opening,
            sent: 0,
            decided: None,
            failed: false,
            messages: 0,
            octets: 0,
            held: None,
        }
    }

    /// Counts and tells how it ends.
    pub fn held(mut self, held: Held) -> Self {
        self.held = Some(held);
        self
    }

    /// Whether every record was put into a message.
    pub fn is_whole(&self) -> bool {
        self.place == Place::Over
    }

    /// The next message; `now` is the time since the epoch, for its signature. `None`: there is no more,
    /// because the zone is sent, or because an error was.
    pub fn next_message(&mut self, now: Duration) -> Option<Vec<u8>> {
        if self.failed || self.is_whole() {
            return None;
        }
        let octets = self.question.take();
        let question = octets.as_deref().and_then(question_of);
        let opt = self.opt.take();
        let mut writer = Writer::new(question.as_ref(), MAX_MESSAGE, TARGETS);
        let room = MAX_MESSAGE - opt.map_or(0, |opt| opt.len()) - self.signer.as_ref().map_or(0, Signer::len);
        let mut count = 0u16;
        while self.place != Place::Over {
            let (written, whole) = match self.current() {
                Some(set) => {
                    let written = writer.records(&set, self.sent, room);
                    (written, self.sent + usize::from(written) >= set.rdata.len())
                }
                None => (0, true),
            };
            count = count.saturating_add(written);
            self.sent += usize::from(written);
            if !whole {
                break;
            }
            self.advance();
        }
        // A record that no message has room for; a zone without it would be another zone (RFC 5936 §2.2).
        self.failed = count == 0;
        let rcode = if self.failed { Rcode::ServFail } else { Rcode::NoError };
        if let Some(opt) = opt {
            writer.octets.extend_from_slice(&opt);
        }
        let flags = 0x8400 | u16::from(self.recursion_desired) << 8 | u16::from(rcode.low());
        let header = [self.id, flags, u16::from(question.is_some()), count, 0, u16::from(opt.is_some())];
        writer.header(octets_of(header));
        let mut message = writer.octets;
        if let Some(signer) = &mut self.signer {
            signer.sign(&mut message, now);
        }
        self.messages += 1;
        self.octets += message.len() as u64;
        Some(message)
    }

    fn zone(&self) -> &Zone {
        self.service.snapshot.model.zone(self.zone)
    }

    /// The record set at the place; none where a profile's name has nothing to send.
    fn current(&self) -> Option<RecordSet<'_>> {
        let zone = self.zone();
        let of_zone = |owner: &Name, rtype: u16| {
            let (owner, node) = zone.nodes.get_key_value(owner)?;
            let set = node.get(&rtype)?;
            let rdata = Cow::Borrowed(set.rdata.as_slice());
            Some(RecordSet { owner: Cow::Borrowed(owner), rtype, ttl: set.ttl, rdata })
        };
        match &self.place {
            Place::Opening | Place::Closing => of_zone(&zone.name, rtype::SOA),
            Place::Static(owner, rtype) => of_zone(owner, *rtype),
            Place::Profile { profile, name, set } => {
                let (_, sets) = self.decided.as_ref()?;
                let owner =
                    self.service.snapshot.model.profiles().get(*profile as usize)?.names.get(*name)?;
                match sets.get(*set) {
                    Some(present) => Some(present.at(owner)),
                    None if sets.is_empty() => holder(zone, owner),
                    None => None,
                }
            }
            Place::Over => None,
        }
    }

    /// Goes to the next record set.
    fn advance(&mut self) {
        self.sent = 0;
        let place = std::mem::replace(&mut self.place, Place::Over);
        self.place = match place {
            Place::Opening => self.next_static(None),
            Place::Static(owner, rtype) => self.next_static(Some((&owner, rtype))),
            Place::Profile { profile, name, set } => {
                let sets = self.decided.as_ref().map_or(0, |(_, sets)| sets.len());
                if set + 1 < sets {
                    Place::Profile { profile, name, set: set + 1 }
                } else {
                    self.next_bound(profile, name + 1)
                }
            }
            Place::Closing | Place::Over => Place::Over,
        };
        let Place::Profile { profile, .. } = self.place else { return };
        // Names of one profile have one answer.
        if self.decided.as_ref().is_none_or(|(decided, _)| *decided != profile) {
            self.decided = Some((profile, present(&self.service.snapshot, ProfileId(profile), &self.asker)));
        }
    }

    /// The static record set after one, without the SOA; then the profiles'.
    fn next_static(&self, after: Option<(&Name, u16)>) -> Place {
        let zone = self.zone();
        let begin = after.map_or(Bound::Unbounded, |(owner, _)| Bound::Included(owner));
        for (owner, node) in zone.nodes.range::<Name, _>((begin, Bound::Unbounded)) {
            let above = match after {
                Some((at, rtype)) if at == owner => Bound::Excluded(rtype),
                _ => Bound::Unbounded,
            };
            let mut types = node.range((above, Bound::Unbounded)).map(|(&rtype, _)| rtype);
            if let Some(rtype) = types.find(|&rtype| rtype != rtype::SOA) {
                return Place::Static(owner.clone(), rtype);
            }
        }
        self.next_bound(0, 0)
    }

    /// The first name of the zone that a profile is bound to, from this one on; then the end.
    fn next_bound(&self, profile: u32, name: usize) -> Place {
        let model = &self.service.snapshot.model;
        let mut from = name;
        for (id, bound) in (0u32..).zip(model.profiles()).skip(profile as usize) {
            let ours = |name: &Name| {
                let binding = model.bindings().get(name);
                binding.is_some_and(|at| at.zone == self.zone && at.profile == Some(ProfileId(id)))
            };
            if let Some(at) = bound.names.iter().skip(from).position(ours) {
                return Place::Profile { profile: id, name: from + at, set: 0 };
            }
            from = 0;
        }
        Place::Closing
    }
}

fn octets_of(header: [u16; 6]) -> [u8; 12] {
    let mut octets = [0; 12];
    for (to, from) in octets.iter_mut().zip(header.into_iter().flat_map(u16::to_be_bytes)) {
        *to = from;
    }
    octets
}

/// The question that octets of one are.
fn question_of(octets: &[u8]) -> Option<Question<'_>> {
    let (name, rest) = octets.split_at_checked(octets.len().checked_sub(4)?)?;
    let &[a, b, c, d] = rest else { return None };
    let name = Name::from_wire(name).ok()?;
    Some(Question { octets, name, qtype: u16::from_be_bytes([a, b]), qclass: u16::from_be_bytes([c, d]) })
}

impl Transfer {
    /// The last message was taken by the connection: it counts as finished.
    pub fn finish(mut self) {
        if !self.is_whole() {
            return;
        }
        let Some(held) = self.held.take() else { return };
        held.counts.add(Counter::ServerTransferFinished);
        log::info!(
            "transfer of {}: finished, {} octets in {} messages",
            held.whom,
            self.octets,
            self.messages
        );
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if let Some(held) = self.held.take() {
            held.counts.add(Counter::ServerTransferFailed);
            let why = if self.failed { "a record is too long for a message" } else { "the connection ended" };
            log::warn!("transfer of {}: failed after {} octets, {why}", held.whom, self.octets);
            drop(held.place);
        }
    }
}
