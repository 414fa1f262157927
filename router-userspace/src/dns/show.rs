//! What the server answers, as text: for `explain` and `trace`.

use std::net::IpAddr;
use std::time::Duration;

use hickory_proto::op::Message;
use hickory_proto::rr::{Record, RecordType};
use router_common::decide::Asker;
use router_common::name::Name;

use super::{Client, Counts, Service, Transport, respond};

/// A reply as people read it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Shown {
    /// RCODE by its mnemonic.
    pub rcode: String,
    /// `TYPE data` of each record of the answer section.
    pub answers: Vec<String>,
    /// Smallest TTL of the answer section, seconds.
    pub ttl: u32,
    /// `owner TTL TYPE data` of each record of the authority section.
    pub authority: Vec<String>,
}

/// The number of a record type: a mnemonic, or `TYPE123` (RFC 3597 §5).
pub fn record_type(word: &str) -> Option<u16> {
    let upper = word.to_ascii_uppercase();
    match upper.strip_prefix("TYPE") {
        Some(number) => number.parse().ok(),
        None => upper.parse::<RecordType>().ok().map(u16::from),
    }
}

/// The mnemonic of a record type, or `TYPE123`.
pub fn type_name(rtype: u16) -> String {
    match RecordType::from(rtype) {
        RecordType::Unknown(number) => format!("TYPE{number}"),
        known => known.to_string(),
    }
}

/// Asks the server a question as this asker would over TCP, and shows the reply.
pub fn show(service: &Service, name: &Name, rtype: u16, asker: &Asker) -> Shown {
    let query = query(name, rtype, asker);
    let mut random = || 0;
    let client = Client { source: asker.source, transport: Transport::Tcp, now: Duration::ZERO };
    let reply = respond(service, &query, &client, &mut random, &Counts::default());
    reply
        .and_then(|octets| show_reply(&octets))
        .unwrap_or_else(|| Shown { rcode: String::from("SERVFAIL"), ..Shown::default() })
}

/// Shows a reply; `None`: it is none.
pub fn show_reply(octets: &[u8]) -> Option<Shown> {
    let message = Message::from_vec(octets).ok()?;
    let of_type = |record: &Record| format!("{} {}", type_name(record.record_type().into()), record.data);
    Some(Shown {
        rcode: mnemonic(message.metadata.response_code.into()),
        ttl: message.answers.iter().map(|record| record.ttl).min().unwrap_or(0),
        answers: message.answers.iter().map(of_type).collect(),
        authority: message
            .authorities
            .iter()
            .map(|record| format!("{} {} {}", record.name, record.ttl, of_type(record)))
            .collect(),
    })
}

fn mnemonic(rcode: u16) -> String {
    match rcode {
        0 => "NOERROR",
        1 => "FORMERR",
        2 => "SERVFAIL",
        3 => "NXDOMAIN",
        4 => "NOTIMP",
        5 => "REFUSED",
        6 => "YXDOMAIN",
        9 => "NOTAUTH",
        16 => "BADVERS",
        23 => "BADCOOKIE",
        other => return format!("RCODE{other}"),
    }
    .to_string()
}

fn query(name: &Name, rtype: u16, asker: &Asker) -> Vec<u8> {
    // ID 0, QUERY, one question, one additional record.
    let mut query = vec![0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    query.extend_from_slice(name.as_wire());
    query.extend_from_slice(&rtype.to_be_bytes());
    query.extend_from_slice(&1u16.to_be_bytes());
    let mut options = Vec::new();
    if let Some((address, len)) = asker.ecs {
        let (family, octets) = match address {
            IpAddr::V4(address) => (1u16, address.octets().to_vec()),
            IpAddr::V6(address) => (2, address.octets().to_vec()),
        };
        let address = &octets[..octets.len().min(usize::from(len).div_ceil(8))];
        options.extend_from_slice(&8u16.to_be_bytes());
        options.extend_from_slice(&(4 + address.len() as u16).to_be_bytes());
        options.extend_from_slice(&family.to_be_bytes());
        options.extend_from_slice(&[len, 0]);
        options.extend_from_slice(address);
    }
    query.extend_from_slice(&[0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0]);
    query.extend_from_slice(&(options.len() as u16).to_be_bytes());
    query.extend_from_slice(&options);
    query
}
