//! `dnstap.proto` (version of 2023), as far as an authoritative server speaks it.
//!
//! <https://github.com/dnstap/dnstap.pb>; the wire is that of Protocol Buffers: each field is a tag, made of its
//! number and one of a few forms, and a value.

use std::net::IpAddr;

use super::{Exchange, Speaker};
use crate::dns::Transport;

/// `Message.Type`.
const AUTH_QUERY: u64 = 1;
const AUTH_RESPONSE: u64 = 2;
/// `Dnstap.Type`.
const MESSAGE: u64 = 1;

/// A query as the server got it.
pub fn auth_query(exchange: &Exchange<'_>, speaker: &Speaker) -> Vec<u8> {
    let mut message = Fields::default();
    message.parties(AUTH_QUERY, exchange);
    message.number(8, exchange.at.as_secs());
    message.fixed(9, exchange.at.subsec_nanos());
    message.octets(10, exchange.query);
    envelope(&message, speaker)
}

/// The reply. Sent at the time of the query, as far as can be told: answering takes well under a millisecond.
pub fn auth_response(exchange: &Exchange<'_>, speaker: &Speaker) -> Vec<u8> {
    let mut message = Fields::default();
    message.parties(AUTH_RESPONSE, exchange);
    message.number(8, exchange.at.as_secs());
    message.fixed(9, exchange.at.subsec_nanos());
    message.number(12, exchange.at.as_secs());
    message.fixed(13, exchange.at.subsec_nanos());
    message.octets(14, exchange.reply.unwrap_or_default());
    envelope(&message, speaker)
}

/// `Dnstap`.
fn envelope(message: &Fields, speaker: &Speaker) -> Vec<u8> {
    let mut dnstap = Fields::default();
    dnstap.octets(1, speaker.identity.as_bytes());
    dnstap.octets(2, speaker.version.as_bytes());
    dnstap.octets(14, &message.0);
    dnstap.number(15, MESSAGE);
    dnstap.0
}

/// Fields in the order in which they are written.
#[derive(Default)]
struct Fields(Vec<u8>);

impl Fields {
    /// Type, socket family and protocol, addresses and ports.
    fn parties(&mut self, kind: u64, exchange: &Exchange<'_>) {
        let (client, server) = (exchange.client, exchange.server);
        // A client of an IPv6 socket that is mapped is an IPv4 one.
        let (from, to) = (client.ip().to_canonical(), server.ip().to_canonical());
        self.number(1, kind);
        self.number(2, if from.is_ipv4() { 1 } else { 2 });
        self.number(3, if exchange.transport == Transport::Udp { 1 } else { 2 });
        self.address(4, from);
        self.address(5, to);
        self.number(6, client.port().into());
        self.number(7, server.port().into());
    }

    fn address(&mut self, field: u64, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.octets(field, &address.octets()),
            IpAddr::V6(address) => self.octets(field, &address.octets()),
        }
    }

    /// A `varint`.
    fn number(&mut self, field: u64, number: u64) {
        self.varint(field << 3);
        self.varint(number);
    }

    /// A `fixed32`.
    fn fixed(&mut self, field: u64, number: u32) {
        self.varint(field << 3 | 5);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    /// `bytes`, or a message.
    fn octets(&mut self, field: u64, octets: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(octets.len() as u64);
        self.0.extend_from_slice(octets);
    }

    fn varint(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_query_is_written_field_by_field() {
        let exchange = Exchange {
            at: Duration::new(300, 7),
            client: "192.0.2.1:5353".parse().unwrap(),
            server: "[::ffff:192.0.2.53]:53".parse().unwrap(),
            transport: Transport::Tcp,
            query: b"abc",
            reply: None,
        };
        let speaker = Speaker { identity: "me".into(), version: "v".into() };
        let message: &[&[u8]] = &[
            &[0x08, 1],                   // AUTH_QUERY
            &[0x10, 1],                   // INET
            &[0x18, 2],                   // TCP
            &[0x22, 4, 192, 0, 2, 1],     // query_address
            &[0x2a, 4, 192, 0, 2, 53],    // response_address
            &[0x30, 0xe9, 0x29],          // query_port
            &[0x38, 53],                  // response_port
            &[0x40, 0xac, 0x02],          // query_time_sec
            &[0x4d, 7, 0, 0, 0],          // query_time_nsec
            &[0x52, 3, b'a', b'b', b'c'], // query_message
        ];
        let message = message.concat();
        let expected =
            [b"\x0a\x02me\x12\x01v\x72".as_slice(), &[message.len() as u8], &message, &[0x78, 1]].concat();
        assert_eq!(auth_query(&exchange, &speaker), expected);
    }
}
