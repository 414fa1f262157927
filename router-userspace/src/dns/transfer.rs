//! Zone transfers: whole zones to secondaries over TCP (AXFR, RFC 5936; IXFR, RFC 1995, answered in the same
//! way), for those that the configuration names.
//!
//! [`answer`] gives what is said in one message, also every refusal; [`wanted`] the transfers themselves.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use router_common::counter::Counter;
use router_common::model::{ZoneId, rtype};
use router_common::name::Name;
use tokio::sync::Semaphore;

use super::answer::{Answer, CLASS_IN, Rcode, RecordSet, TYPE_AXFR, TYPE_IXFR};
use super::query::{Query, Question};
use super::tsig::Standing;
use super::{Client, Counts, Service, Transport};

mod content;
mod send;
mod stream;

pub(super) use send::Sending;
pub(super) use stream::Transfer;

/// Transfers under way at one time, of all zones to all secondaries.
const MAX_UNDER_WAY: usize = 32;
/// Seconds between two lines in the log about refusals, which anybody can cause.
const REFUSALS_APART: u64 = 10;

/// Room for transfers, shared by all connections.
#[derive(Clone)]
pub(super) struct Places(Arc<Semaphore>);

impl Default for Places {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_UNDER_WAY)))
    }
}

/// Whether a transfer is asked for.
pub(super) fn is_asked(question: &Question<'_>) -> bool {
    question.qclass == CLASS_IN && matches!(question.qtype, TYPE_AXFR | TYPE_IXFR)
}

/// What comes of a question for a transfer.
enum Verdict {
    /// The whole zone, over TCP.
    Whole(ZoneId),
    /// One SOA: the client has this version, or should come by TCP.
    Current(ZoneId),
    /// An IXFR that does not say which version the client has.
    Malformed,
    NotOurs,
    NotAllowed,
}

fn judge(
    service: &Service,
    query: &Query<'_>,
    question: &Question<'_>,
    client: &Client,
    key: Option<&Name>,
) -> Verdict {
    let over_udp = client.transport == Transport::Udp;
    let Some(zone) = service.snapshot.model.zone_at(&question.name) else {
        return if over_udp { Verdict::NotAllowed } else { Verdict::NotOurs };
    };
    let secondaries = service.settings.secondaries.get(&question.name);
    if !secondaries.is_some_and(|secondaries| secondaries.may_transfer(client.source, key)) {
        return Verdict::NotAllowed;
    }
    match (question.qtype, query.client_serial) {
        // AXFR over UDP is not defined (RFC 5936 §4.2).
        (TYPE_AXFR, _) if over_udp => Verdict::NotAllowed,
        (TYPE_AXFR, _) => Verdict::Whole(zone),
        (_, None) => Verdict::Malformed,
        (_, Some(theirs)) if over_udp || !is_newer(service.snapshot.model.zone(zone).soa.serial, theirs) => {
            Verdict::Current(zone)
        }
        _ => Verdict::Whole(zone),
    }
}

/// Whether a serial number comes after another (RFC 1982). Two that are half the circle apart count so:
/// then a transfer too many is made, and none is missing.
fn is_newer(ours: u32, theirs: u32) -> bool {
    let ahead = ours.wrapping_sub(theirs);
    ahead != 0 && ahead <= 1 << 31
}

/// The reply to a question for a transfer, as far as it is one message: all of it except the zone.
pub(super) fn answer<'m>(
    service: &'m Service,
    query: &Query<'_>,
    question: &Question<'_>,
    client: &Client,
    key: Option<&Name>,
    counts: &Counts,
) -> Answer<'m> {
    let verdict = judge(service, query, question, client, key);
    let refuse = |rcode, counter| {
        counts.add(Counter::ServerTransferRefused);
        Answer::bare(rcode, counter)
    };
    match verdict {
        Verdict::Current(zone) => soa(service, zone),
        // The zone itself is sent by whoever has the connection. It comes to this when all places are taken.
        Verdict::Whole(_) => refuse(Rcode::ServFail, Counter::ServerServfail),
        Verdict::Malformed => Answer::bare(Rcode::FormErr, Counter::ServerFormerr),
        Verdict::NotOurs => refuse(Rcode::NotAuth, Counter::ServerOther),
        Verdict::NotAllowed => {
            tell_of_refusal(question, client, key);
            refuse(Rcode::Refused, Counter::ServerRefused)
        }
    }
}

fn soa(service: &Service, zone: ZoneId) -> Answer<'_> {
    let zone = service.snapshot.model.zone(zone);
    let held = zone.nodes.get(&zone.name).and_then(|apex| apex.get(&rtype::SOA));
    let record = RecordSet {
        owner: Cow::Borrowed(&zone.name),
        rtype: rtype::SOA,
        ttl: zone.ttl,
        rdata: held
            .map_or_else(|| Cow::Owned(vec![zone.soa.to_wire()]), |set| Cow::Borrowed(set.rdata.as_slice())),
    };
    Answer {
        authoritative: true,
        answers: vec![record],
        ..Answer::bare(Rcode::NoError, Counter::ServerRecords)
    }
}

/// The transfer that a message over TCP asks for and may have. `None`: [`super::respond`] answers it.
pub(super) fn wanted(
    service: &Arc<Service>,
    message: &[u8],
    client: &Client,
    places: &Places,
    counts: &Arc<Counts>,
) -> Option<Transfer> {
    // Most messages ask for something else, and are not looked at twice.
    may_ask(message).then_some(())?;
    let query = Query::parse(message)?;
    let question = query.question.as_ref().filter(|question| is_asked(question))?;
    let standing = Standing::of(&query, &service.settings.keys, client.now);
    if standing.fault().or(query.fault).is_some() {
        return None;
    }
    let Verdict::Whole(zone) = judge(service, &query, question, client, standing.key()) else { return None };
    let to = Peer { zone: &question.name, client, key: standing.key() };
    let Ok(place) = Arc::clone(&places.0).try_acquire_owned() else {
        log::warn!("transfer of {to}: refused, {MAX_UNDER_WAY} are under way");
        return None;
    };
    log::info!("transfer of {to}: serial {}", service.snapshot.model.zone(zone).soa.serial);
    counts.add(Counter::ServerTransfer);
    let whom = to.to_string();
    let signer = match standing {
        Standing::Signed(signer) => Some(signer),
        _ => None,
    };
    Some(Transfer::new(Arc::clone(service), zone, &query, client, signer).held(stream::Held {
        place,
        counts: Arc::clone(counts),
        whom,
    }))
}

/// Whether QTYPE can be that of a transfer, by a look at the octets alone.
fn may_ask(message: &[u8]) -> bool {
    let Some(body) = message.get(12..) else { return false };
    let Some(len) = super::query::name_len(body) else { return false };
    body.get(len..len + 2).is_some_and(|qtype| matches!(qtype, [0, 251 | 252]))
}

/// Who wants a zone, as the log says it.
struct Peer<'a> {
    zone: &'a Name,
    client: &'a Client,
    key: Option<&'a Name>,
}

impl fmt::Display for Peer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.zone, self.client.source)?;
        self.key.map_or(Ok(()), |key| write!(f, " by key {key}"))
    }
}

fn tell_of_refusal(question: &Question<'_>, client: &Client, key: Option<&Name>) {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = client.now.as_secs();
    let due = NEXT.load(Ordering::Relaxed);
    if now >= due
        && NEXT.compare_exchange(due, now + REFUSALS_APART, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        let to = Peer { zone: &question.name, client, key };
        log::info!(
            "transfer of {to}: refused (said once in {REFUSALS_APART} s; server_transfer_refused counts them)"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::is_newer;

    #[test]
    fn serial_numbers_go_round() {
        for (ours, theirs, newer) in [
            (2, 1, true),
            (1, 1, false),
            (1, 2, false),
            (0, u32::MAX, true),
            (u32::MAX, 0, false),
            (0x8000_0000, 0, true),
            (0, 0x8000_0000, true),
            (0x8000_0001, 0, false),
        ] {
            assert_eq!(is_newer(ours, theirs), newer, "{ours} {theirs}");
        }
    }
}
