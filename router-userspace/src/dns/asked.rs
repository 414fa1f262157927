//! What a message asks, for those who only look on.

use std::net::IpAddr;

use router_common::name::Name;

use super::query::Query;

/// What is asked, as far as it can be read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Asked {
    /// QNAME, folded.
    pub name: Option<Name>,
    /// QTYPE.
    pub rtype: Option<u16>,
    /// The client subnet, when there is one with a SOURCE PREFIX-LENGTH above 0.
    pub subnet: Option<(IpAddr, u8)>,
}

/// Reads a message.
pub fn asked(message: &[u8]) -> Asked {
    let Some(query) = Query::parse(message) else { return Asked::default() };
    let question = query.question.as_ref();
    Asked {
        name: question.map(|question| question.name.clone()),
        rtype: question.map(|question| question.qtype),
        subnet: query.edns.and_then(|edns| edns.client_subnet).and_then(|subnet| subnet.prefix),
    }
}
