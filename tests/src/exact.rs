//! What a query must be answered with, down to flags and scope, and whether a reply is that.

use std::net::IpAddr;

use hickory_proto::op::Message;
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_proto::rr::{Name as HickoryName, RData, Record};
use router_common::authority::{Authority, authority};
use router_common::decide::{Asked, Snapshot, distribution};
use router_common::model::{Soa, ZoneId, rtype};
use router_common::name::Name;
use router_common::share::Share;

use crate::random::Tuple;
use crate::rendering;

/// One RRset, or NODATA.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// How often; above 0.
    pub share: Share,
    /// As [`rendering`] writes it; `None` is NODATA.
    pub records: Option<String>,
    /// Seconds; 0 for NODATA.
    pub ttl: u32,
}

/// Everything the oracle says of a query.
#[derive(Clone, PartialEq, Debug)]
pub struct Expected {
    /// RCODE.
    pub rcode: u8,
    /// Possible answers; several only when a profile decides.
    pub outcomes: Vec<Outcome>,
    /// Scope of those with records.
    pub scope: u8,
    /// The zone, whose SOA stands in negative answers; `None` is REFUSED.
    pub zone: Option<ZoneId>,
    /// A profile decides, for an address type: what the fast path is for.
    pub fast: bool,
}

/// What the oracle says; `None` where it has no say (several types at a name asked for with ANY).
pub fn expect(snapshot: &Snapshot, tuple: &Tuple) -> Option<Expected> {
    let one = |records: Option<String>, ttl| vec![Outcome { share: Share::one(), records, ttl }];
    let plain = |rcode, outcomes, zone| Expected { rcode, outcomes, scope: 0, zone, fast: false };
    let (zone, profile, node) = match authority(&snapshot.model, &tuple.name) {
        Authority::Outside => return Some(plain(5, one(None, 0), None)),
        Authority::Absent { zone } => return Some(plain(3, one(None, 0), Some(zone))),
        Authority::Delegated { .. } | Authority::Redirected { .. } => return None,
        Authority::Exists { zone, profile, node, .. } => (zone, profile, node),
    };
    if node.is_some() && tuple.qtype == rtype::ANY {
        return None;
    }
    let asked = match tuple.qtype {
        rtype::A => Some(Asked::A),
        rtype::AAAA => Some(Asked::Aaaa),
        rtype::CNAME => Some(Asked::Cname),
        rtype::ANY => Some(Asked::Any),
        _ => None,
    };
    if let (Some(profile), Some(asked)) = (profile, asked) {
        let found = distribution(snapshot, profile, asked, &tuple.asker());
        let total: Share = found.outcomes.iter().map(|outcome| &outcome.share).sum();
        assert_eq!(total, Share::one(), "shares add up to one");
        let outcomes = found.outcomes.into_iter().map(|outcome| Outcome {
            share: outcome.share,
            records: outcome.records.as_ref().map(rendering::of_records),
            ttl: outcome.ttl,
        });
        return Some(Expected {
            rcode: 0,
            outcomes: outcomes.collect(),
            scope: found.scope,
            zone: Some(zone),
            fast: matches!(asked, Asked::A | Asked::Aaaa),
        });
    }
    let set = node.and_then(|node| node.get(&tuple.qtype));
    let outcomes = match set {
        None => one(None, 0),
        Some(set) => {
            let records = set.rdata.iter().map(|rdata| rendering::of_rdata(tuple.qtype, rdata));
            one(Some(rendering::joined(records.collect::<anyhow::Result<_>>().ok()?)), set.ttl)
        }
    };
    Some(plain(0, outcomes, Some(zone)))
}

impl Expected {
    /// Which outcome a reply is.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn outcome_of(&self, snapshot: &Snapshot, tuple: &Tuple, reply: &[u8]) -> Result<usize, String> {
        let query = tuple.query();
        let check = |what: &str, holds: bool| if holds { Ok(()) } else { Err(what.to_owned()) };
        let message = Message::from_vec(reply).map_err(|error| format!("hickory-proto: {error}"))?;
        check("the id is another", reply[..2] == query[..2])?;
        let authoritative = if self.zone.is_some() { 0x0400 } else { 0 };
        let flags = 0x8000 | authoritative | (tuple.flags & 0x0100) | u16::from(self.rcode);
        let found = u16::from_be_bytes([reply[2], reply[3]]);
        check(&format!("flags {found:#06x}, not {flags:#06x}"), found == flags)?;
        let question = 12..12 + tuple.name.as_wire().len() + 4;
        check("the question is another", reply.get(question.clone()) == query.get(question))?;

        let (records, ttl) = answers(&message.answers, &tuple.name)?;
        let at = self.outcomes.iter().position(|it| it.records == records && it.ttl == ttl);
        let at = at.ok_or_else(|| format!("{records:?} with TTL {ttl} is none of {:#?}", self.outcomes))?;
        let soa = self.zone.filter(|_| records.is_none());
        authorities(&message.authorities, soa.map(|zone| snapshot.model.zone(zone)))?;
        check("additional records", message.additionals.is_empty())?;
        self.options(&message, tuple, records.is_some())?;
        Ok(at)
    }

    fn options(&self, message: &Message, tuple: &Tuple, positive: bool) -> Result<(), String> {
        let Some(edns) = &message.edns else {
            return if tuple.edns.is_none() { Ok(()) } else { Err("no OPT".into()) };
        };
        let Some(asked) = &tuple.edns else { return Err("an OPT that nobody asked for".into()) };
        let found = (edns.version(), edns.rcode_high(), edns.max_payload(), edns.flags().dnssec_ok);
        if found != (0, 0, 1232, asked.dnssec_ok) || edns.flags().z != 0 {
            return Err(format!("OPT with {found:?} and Z {:#x}", edns.flags().z));
        }
        let count = edns.options().as_ref().len();
        if count != usize::from(asked.subnet.is_some()) {
            return Err(format!("{count} options"));
        }
        let Some((address, len)) = asked.subnet else { return Ok(()) };
        let scope = if positive && len > 0 { self.scope } else { 0 };
        match edns.option(EdnsCode::Subnet) {
            Some(EdnsOption::Subnet(subnet)) => {
                let found: (IpAddr, u8, u8) = (subnet.addr(), subnet.source_prefix(), subnet.scope_prefix());
                let right = found == (address, len, scope);
                if right { Ok(()) } else { Err(format!("ECS {found:?}, not {:?}", (address, len, scope))) }
            }
            other => Err(format!("{other:?} instead of ECS")),
        }
    }
}

fn own(name: &HickoryName) -> Result<Name, String> {
    name.to_ascii().parse().map_err(|error| format!("{name}: {error}"))
}

/// The RRset of the answer section, all at one name and with one TTL.
fn answers(records: &[Record], owner: &Name) -> Result<(Option<String>, u32), String> {
    let Some(first) = records.first() else { return Ok((None, 0)) };
    let mut shown = Vec::new();
    for record in records {
        if own(&record.name)? != *owner || record.ttl != first.ttl {
            return Err(format!("{record} is of another RRset than {first}"));
        }
        shown.push(match &record.data {
            RData::A(address) => format!("A {address}"),
            RData::AAAA(address) => format!("AAAA {address}"),
            RData::CNAME(target) => format!("CNAME {}", own(&target.0)?),
            RData::NS(server) => format!("NS {}", own(&server.0)?),
            other => return Err(format!("a record of type {}", other.record_type())),
        });
    }
    Ok((Some(rendering::joined(shown)), first.ttl))
}

/// Nothing, or the SOA of a zone.
fn authorities(records: &[Record], zone: Option<&router_common::model::Zone>) -> Result<(), String> {
    let (record, zone) = match (records, zone) {
        ([], None) => return Ok(()),
        ([record], Some(zone)) => (record, zone),
        _ => return Err(format!("authority {records:?}")),
    };
    let RData::SOA(found) = &record.data else { return Err(format!("{record} instead of a SOA")) };
    let held = Soa {
        mname: own(&found.mname)?,
        rname: own(&found.rname)?,
        serial: found.serial,
        refresh: found.refresh as u32,
        retry: found.retry as u32,
        expire: found.expire as u32,
        minimum: found.minimum,
    };
    if own(&record.name)? != zone.name || record.ttl != zone.negative_ttl() || held != zone.soa {
        return Err(format!("{record} is not the SOA of {}", zone.name));
    }
    Ok(())
}
