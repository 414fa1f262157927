//! The OPT record (RFC 6891) and the options we act on: Client Subnet (RFC 7871), COOKIE (RFC 7873), NSID
//! (RFC 5001) and edns-tcp-keepalive (RFC 7828).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::cookie;

/// Code of the EDNS Client Subnet option.
pub(super) const CLIENT_SUBNET: u16 = 8;
/// Code of the NSID option.
pub(super) const NSID: u16 = 3;
/// Code of the COOKIE option.
pub(super) const COOKIE: u16 = 10;
/// Code of the edns-tcp-keepalive option.
pub(super) const KEEPALIVE: u16 = 11;

/// What a query's OPT record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Edns<'q> {
    /// Largest UDP payload the client takes, as sent.
    pub udp_size: u16,
    /// VERSION.
    pub version: u8,
    /// DO (RFC 3225); the other flag bits are ignored.
    pub dnssec_ok: bool,
    /// The client subnet, when there is one.
    pub client_subnet: Option<ClientSubnet<'q>>,
    /// Payload of the first COOKIE option.
    pub cookie: Option<&'q [u8]>,
    /// Whether the server's identifier is asked for; what the option carries means nothing (RFC 5001 §2.1).
    pub nsid: bool,
    /// Payload of the edns-tcp-keepalive option, which in a query has none.
    pub keepalive: Option<&'q [u8]>,
}

impl<'q> Edns<'q> {
    /// From the CLASS and TTL fields of the record. The upper RCODE bits mean nothing in a query.
    pub fn from_head(class: u16, ttl: u32) -> Self {
        Self {
            udp_size: class,
            version: (ttl >> 16) as u8,
            dnssec_ok: ttl & 0x8000 != 0,
            client_subnet: None,
            cookie: None,
            nsid: false,
            keepalive: None,
        }
    }

    /// With what its options say. Unknown ones are ignored. Two client subnets are an error: RFC 7871 has no
    /// rule, and whichever of them decided, the other would not have been echoed. Of two cookies the first
    /// counts (RFC 7873 §5.2).
    pub fn with_options(mut self, mut options: &'q [u8]) -> Result<Self, Malformed> {
        while !options.is_empty() {
            let (head, rest) = options.split_first_chunk::<4>().ok_or(Malformed)?;
            let code = u16::from_be_bytes([head[0], head[1]]);
            let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
            let (option, rest) = rest.split_at_checked(len).ok_or(Malformed)?;
            options = rest;
            match code {
                CLIENT_SUBNET if self.client_subnet.replace(client_subnet(option)?).is_some() => {
                    return Err(Malformed);
                }
                COOKIE => {
                    self.cookie.get_or_insert(option);
                }
                NSID => self.nsid = true,
                KEEPALIVE => self.keepalive = Some(option),
                _ => {}
            }
        }
        Ok(self)
    }
}

/// A well-formed client subnet option of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClientSubnet<'q> {
    /// FAMILY and SOURCE PREFIX-LENGTH as sent, to be echoed (RFC 7871 §7.2.1).
    pub head: [u8; 3],
    /// ADDRESS as sent, to be echoed.
    pub address: &'q [u8],
    /// The prefix; `None` when SOURCE is 0: the resolver's own address decides (§7.1.2).
    pub prefix: Option<(IpAddr, u8)>,
}

/// Options that run over the record, or a client subnet that breaks RFC 7871 §6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Malformed;

/// Reads a client subnet option: known family, SCOPE 0, exactly the octets that SOURCE asks for, no bit
/// set beyond it. FAMILY 0 with SOURCE 0 is what `dig +subnet=0` sends, and is taken as "none".
fn client_subnet(option: &[u8]) -> Result<ClientSubnet<'_>, Malformed> {
    let (&[family_high, family, source, scope], address) =
        option.split_first_chunk::<4>().ok_or(Malformed)?;
    let longest = match (family_high, family) {
        (0, 0) => 0,
        (0, 1) => 32,
        (0, 2) => 128,
        _ => return Err(Malformed),
    };
    if scope != 0 || source > longest || address.len() != usize::from(source).div_ceil(8) {
        return Err(Malformed);
    }
    let spare = address.len() * 8 - usize::from(source);
    if address.last().is_some_and(|last| last & !(0xff << spare) != 0) {
        return Err(Malformed);
    }
    let mut octets = [0; 16];
    for (to, from) in octets.iter_mut().zip(address) {
        *to = *from;
    }
    let ip = if family == 1 {
        IpAddr::V4(Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]))
    } else {
        IpAddr::V6(Ipv6Addr::from(octets))
    };
    Ok(ClientSubnet {
        head: [family_high, family, source],
        address,
        prefix: (source > 0).then_some((ip, source)),
    })
}

/// What the server itself puts into the OPT record of a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Ours<'s> {
    /// Our own largest UDP payload.
    pub udp_size: u16,
    /// Client and server cookie.
    pub cookie: Option<cookie::Payload>,
    /// Which server this is, for a client that asked.
    pub nsid: Option<&'s [u8]>,
    /// How long an idle connection stays open, for a client that asked.
    pub keepalive: Option<Duration>,
}

/// What the reply's OPT record carries.
pub(super) struct ReplyOpt<'q> {
    /// What does not come from the query.
    pub ours: Ours<'q>,
    /// RCODE bits 4..12.
    pub rcode_high: u8,
    /// DO, copied.
    pub dnssec_ok: bool,
    /// The client subnet to echo, and its scope.
    pub client_subnet: Option<(ClientSubnet<'q>, u8)>,
}

impl ReplyOpt<'_> {
    /// The whole record, of at most `room` octets: an identifier that does not fit is left out. Without it
    /// there are at most 69 octets, which is less than any reply leaves free.
    pub fn to_wire(&self, room: usize) -> Vec<u8> {
        let mut wire = Vec::with_capacity(35);
        self.write(room, &mut wire);
        wire
    }

    /// Puts the whole record, of at most `room` octets, at the end of `wire`.
    pub fn write(&self, room: usize, wire: &mut Vec<u8>) {
        let start = wire.len();
        wire.extend_from_slice(&[0, 0, 41]);
        wire.extend_from_slice(&self.ours.udp_size.to_be_bytes());
        wire.extend_from_slice(&[self.rcode_high, 0, u8::from(self.dnssec_ok) << 7, 0]);
        let rdata_len = wire.len();
        wire.extend_from_slice(&[0, 0]);
        if let Some((subnet, scope)) = self.client_subnet {
            option(wire, CLIENT_SUBNET, &[&subnet.head, &[scope], subnet.address]);
        }
        if let Some(cookie) = &self.ours.cookie {
            option(wire, COOKIE, &[cookie]);
        }
        if let Some(idle) = self.ours.keepalive {
            // In units of 100 ms.
            let timeout = u16::try_from(idle.as_millis() / 100).unwrap_or(u16::MAX);
            option(wire, KEEPALIVE, &[&timeout.to_be_bytes()]);
        }
        if let Some(nsid) = self.ours.nsid.filter(|nsid| wire.len() - start + 4 + nsid.len() <= room) {
            option(wire, NSID, &[nsid]);
        }
        let len = (wire.len() - rdata_len - 2) as u16;
        if let Some(field) = wire.get_mut(rdata_len..rdata_len + 2) {
            field.copy_from_slice(&len.to_be_bytes());
        }
    }
}

/// Appends an option. Its payload is a few hundred octets at most.
fn option(wire: &mut Vec<u8>, code: u16, payload: &[&[u8]]) {
    let len = payload.iter().map(|part| part.len()).sum::<usize>() as u16;
    wire.extend_from_slice(&code.to_be_bytes());
    wire.extend_from_slice(&len.to_be_bytes());
    for part in payload {
        wire.extend_from_slice(part);
    }
}
