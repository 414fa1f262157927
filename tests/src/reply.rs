//! Queries of a question, encoded by our own code, and replies, decoded by hickory-proto.

use std::net::IpAddr;

use anyhow::{Context, Result, bail, ensure};
use hickory_proto::op::{Message, MessageType, ResponseCode};
use hickory_proto::rr::rdata::opt::{EdnsCode, EdnsOption};
use hickory_proto::rr::{Name as HickoryName, RData, Record, RecordType};
use router_common::name::Name;
use router_common::share::Share;

use crate::packet::Query;
use crate::rendering;
use crate::subject::{Answer, Question, Rcode};

/// One reply, as far as scenarios look at it.
#[derive(Clone, PartialEq, Debug)]
pub struct Reply {
    rcode: Rcode,
    /// The RRset at the question's name and its TTL.
    records: Option<(String, u32)>,
    soa: bool,
    /// Of the Client Subnet option, when there is one.
    scope: Option<u8>,
}

/// The message that asks a question, with the client subnet of the question or this one.
pub fn query(question: &Question, subnet: Option<(IpAddr, u8)>) -> Vec<u8> {
    let mut query = Query::new("", question.qtype);
    query.name = question.name.as_wire().to_vec();
    match question.asker.ecs.or(subnet) {
        Some((address, bits)) => query.edns(1232).ecs(&format!("{address}/{bits}")).bytes(),
        None => query.bytes(),
    }
}

/// Decodes a reply.
///
/// # Errors
/// When it is not a reply to the question, or holds what scenarios do not know.
pub fn decode(message: &[u8], question: &Question) -> Result<Reply> {
    let message = Message::from_vec(message).context("hickory-proto does not decode the reply")?;
    ensure!(message.metadata.message_type == MessageType::Response, "not a response");
    ensure!(!message.metadata.truncation, "the reply is truncated");
    let name = |name: &HickoryName| -> Result<Name> { Ok(name.to_ascii().parse()?) };
    let [asked] = message.queries.as_slice() else { bail!("{} questions", message.queries.len()) };
    ensure!(name(asked.name())? == question.name, "another question");
    ensure!(u16::from(asked.query_type()) == question.qtype, "another type");
    let rcode = match message.metadata.response_code {
        ResponseCode::NoError => Rcode::NoError,
        ResponseCode::NXDomain => Rcode::NxDomain,
        ResponseCode::Refused => Rcode::Refused,
        other => bail!("RCODE {other}"),
    };
    ensure!(message.metadata.authoritative == (rcode != Rcode::Refused), "AA is wrong");
    let mut records = Vec::new();
    let mut ttls = Vec::new();
    // What a CNAME leads to inside our zones follows it; the decision is the first.
    let at_name = |record: &&Record| name(&record.name).is_ok_and(|owner| owner == question.name);
    for record in message.answers.iter().filter(at_name) {
        records.push(match &record.data {
            RData::A(address) => format!("A {address}"),
            RData::AAAA(address) => format!("AAAA {address}"),
            RData::CNAME(target) => format!("CNAME {}", name(&target.0)?),
            RData::NS(server) => format!("NS {}", name(&server.0)?),
            other => bail!("records of type {}", other.record_type()),
        });
        ttls.push(record.ttl);
    }
    ensure!(records.is_empty() == message.answers.is_empty(), "answers for other names");
    ttls.dedup();
    ensure!(ttls.len() <= 1, "TTLs that differ in one RRset: {ttls:?}");
    let soa = match message.authorities.as_slice() {
        [] => false,
        [record] if record.record_type() == RecordType::SOA => true,
        _ => bail!("authority that is not one SOA"),
    };
    let scope = message.edns.as_ref().and_then(|edns| match edns.option(EdnsCode::Subnet) {
        Some(EdnsOption::Subnet(subnet)) => Some(subnet.scope_prefix()),
        _ => None,
    });
    let records = ttls.first().map(|&ttl| (rendering::joined(records), ttl));
    Ok(Reply { rcode, records, soa, scope })
}

/// What many replies to one question come to; each has the same share.
///
/// # Errors
/// When there are none, or they differ in more than their records.
pub fn gather(replies: &[Reply], scoped: &Reply) -> Result<Answer> {
    let first = replies.first().context("no replies")?;
    ensure!(replies.iter().all(|reply| reply.rcode == first.rcode), "RCODEs differ");
    if first.rcode == Rcode::NxDomain || first.rcode == Rcode::Refused {
        ensure!(replies.iter().all(|reply| reply == first), "negative replies differ");
        ensure!(first.records.is_none(), "records beside {}", first.rcode);
        return Ok(Answer { soa: first.soa, ..Answer::negative(first.rcode) });
    }
    let each = Share::ratio(1, replies.len() as u64);
    for reply in replies {
        ensure!(reply.records.is_some() != reply.soa, "a SOA with records, or neither");
    }
    let parts = replies.iter().map(|reply| match &reply.records {
        Some((records, ttl)) => (Some(records.clone()), *ttl, each.clone()),
        None => (None, 0, each.clone()),
    });
    let mut answer = Answer::of_shares(parts, scoped.scope);
    answer.ttls.sort();
    answer.ttls.dedup();
    Ok(answer)
}
