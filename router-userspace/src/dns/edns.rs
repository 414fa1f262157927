//! The OPT record (RFC 6891) and the one option we act on, EDNS Client Subnet (RFC 7871).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Code of the EDNS Client Subnet option.
pub(super) const CLIENT_SUBNET: u16 = 8;

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
}

impl Edns<'_> {
    /// From the CLASS and TTL fields of the record. The upper RCODE bits mean nothing in a query.
    pub fn from_head(class: u16, ttl: u32) -> Self {
        Self {
            udp_size: class,
            version: (ttl >> 16) as u8,
            dnssec_ok: ttl & 0x8000 != 0,
            client_subnet: None,
        }
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

/// Walks the options. Unknown ones are ignored. Two client subnets are an error: RFC 7871 has no rule, and
/// whichever of them decided, the other would not have been echoed.
pub(super) fn read_options(mut options: &[u8]) -> Result<Option<ClientSubnet<'_>>, Malformed> {
    let mut found = None;
    while !options.is_empty() {
        let (head, rest) = options.split_first_chunk::<4>().ok_or(Malformed)?;
        let code = u16::from_be_bytes([head[0], head[1]]);
        let len = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let (option, rest) = rest.split_at_checked(len).ok_or(Malformed)?;
        options = rest;
        if code == CLIENT_SUBNET && found.replace(client_subnet(option)?).is_some() {
            return Err(Malformed);
        }
    }
    Ok(found)
}

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

/// What the reply's OPT record carries.
pub(super) struct ReplyOpt<'q> {
    /// Our own largest UDP payload.
    pub udp_size: u16,
    /// RCODE bits 4..12.
    pub rcode_high: u8,
    /// DO, copied.
    pub dnssec_ok: bool,
    /// The client subnet to echo, and its scope.
    pub client_subnet: Option<(ClientSubnet<'q>, u8)>,
}

impl ReplyOpt<'_> {
    /// The whole record.
    pub fn to_wire(&self) -> Vec<u8> {
        let mut wire = Vec::with_capacity(35);
        self.write(&mut wire);
        wire
    }

    /// Puts the whole record at the end of `wire`.
    pub fn write(&self, wire: &mut Vec<u8>) {
        wire.extend_from_slice(&[0, 0, 41]);
        wire.extend_from_slice(&self.udp_size.to_be_bytes());
        wire.extend_from_slice(&[self.rcode_high, 0, u8::from(self.dnssec_ok) << 7, 0]);
        let Some((subnet, scope)) = self.client_subnet else {
            wire.extend_from_slice(&[0, 0]);
            return;
        };
        // At most 16 octets of address: it was read from a well-formed option.
        let len = 4 + subnet.address.len() as u16;
        wire.extend_from_slice(&(len + 4).to_be_bytes());
        wire.extend_from_slice(&CLIENT_SUBNET.to_be_bytes());
        wire.extend_from_slice(&len.to_be_bytes());
        wire.extend_from_slice(&subnet.head);
        wire.push(scope);
        wire.extend_from_slice(subnet.address);
    }
}
