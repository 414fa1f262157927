//! What a kernel hands from a frame to a DNS server's socket: a second opinion on what the fast path may
//! answer, written from the RFCs and from DNS.md §3, and compared with a real kernel in `it/mutation.rs`.
//!
//! It refuses more than Linux does where the fast path must pass all the same ([`Refusal::Unusual`]).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::packet::internet_sum;

/// A host with a DNS server.
#[derive(Clone, Debug)]
pub struct Host {
    /// MAC address of its interface.
    pub mac: [u8; 6],
    /// VLAN ids it has devices for.
    pub vlans: Vec<u16>,
    /// Its addresses.
    pub addresses: Vec<IpAddr>,
    /// Other IPv4 addresses of this host, and the broadcast addresses of its networks.
    pub locals: Vec<Ipv4Addr>,
    /// The port that the server listens on.
    pub port: u16,
}

/// What reaches the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// Source port; 0 cannot be answered.
    pub source_port: u16,
    /// The message.
    pub payload: Vec<u8>,
    /// The checksum is that of the pseudo-header alone: good only when the sender is on this machine.
    pub offloaded: bool,
}

/// Why a kernel delivers nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Ethernet or VLAN: not for this host.
    Link,
    /// Neither IPv4 nor IPv6.
    Protocol,
    /// An IP header that is cut short, or says something impossible.
    Header,
    /// Not looked at further, and a kernel may deliver it: a fragment, IPv4 options, IPv6 extension headers, a
    /// source in 0/8, 240/4 or `::ffff:0:0/96`, the source `::` or our own IPv6 address.
    Unusual,
    /// A source that nobody has (RFC 1122 §3.2.1.3, RFC 4291 §2.5 and §2.7), or that is ours. A kernel without
    /// `rp_filter` delivers what comes from the broadcast address of its network, and cannot answer it.
    Source,
    /// An address of somebody else.
    Destination,
    /// Not UDP, or another port.
    Port,
    /// A UDP length that does not fit.
    Length,
    /// A wrong checksum, of UDP.
    Checksum,
}

/// Delivers a frame.
///
/// # Errors
/// Why it is not.
pub fn deliver(host: &Host, frame: &[u8]) -> Result<Datagram, Refusal> {
    let (to, rest) = take::<6>(frame, Refusal::Link)?;
    let (_from, rest) = take::<6>(rest, Refusal::Link)?;
    // A group's address: an interface may filter by it, IP does not look at it.
    if to != host.mac && to[0] & 1 == 0 {
        return Err(Refusal::Link);
    }
    let (mut ethertype, mut rest) = take::<2>(rest, Refusal::Link)?;
    while matches!(ethertype, [0x81, 0x00] | [0x88, 0xa8]) {
        let (tag, after) = take::<2>(rest, Refusal::Link)?;
        let id = u16::from_be_bytes(tag) & 0xfff;
        // Id 0 is priority only (IEEE 802.1Q), and means no VLAN.
        if id != 0 && !host.vlans.contains(&id) {
            return Err(Refusal::Link);
        }
        (ethertype, rest) = take::<2>(after, Refusal::Link)?;
    }
    match ethertype {
        [0x08, 0x00] => deliver_ipv4(host, rest),
        [0x86, 0xdd] => deliver_ipv6(host, rest),
        _ => Err(Refusal::Protocol),
    }
}

fn deliver_ipv4(host: &Host, packet: &[u8]) -> Result<Datagram, Refusal> {
    let (header, _) = take::<20>(packet, Refusal::Header)?;
    let header_len = usize::from(header[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let whole = packet.get(..header_len).ok_or(Refusal::Header)?;
    let lengths = header_len >= 20 && (header_len..=packet.len()).contains(&total);
    if header[0] >> 4 != 4 || !lengths || internet_sum(whole) != 0xffff {
        return Err(Refusal::Header);
    }
    // MF or an offset; the reserved bit and DF do not matter.
    if header[6] & 0x3f != 0 || header[7] != 0 || header_len > 20 {
        return Err(Refusal::Unusual);
    }
    let [source, destination] =
        [12, 16].map(|at| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]));
    let nobody =
        matches!(source.octets()[0], 127 | 224..=239) || source.is_broadcast() || source.is_unspecified();
    // Linux routes these since 2.6.25 and 5.3.
    if matches!(source.octets()[0], 0 | 240..) && !nobody {
        return Err(Refusal::Unusual);
    }
    if nobody || host.addresses.contains(&source.into()) || host.locals.contains(&source) {
        return Err(Refusal::Source);
    }
    if !host.addresses.contains(&destination.into()) {
        return Err(Refusal::Destination);
    }
    if header[9] != 17 {
        return Err(Refusal::Port);
    }
    deliver_udp(host, source.into(), destination.into(), &header[12..], &packet[header_len..total])
}

fn deliver_ipv6(host: &Host, packet: &[u8]) -> Result<Datagram, Refusal> {
    let (header, rest) = take::<40>(packet, Refusal::Header)?;
    let len = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let payload = rest.get(..len).ok_or(Refusal::Header)?;
    if header[0] >> 4 != 6 {
        return Err(Refusal::Header);
    }
    let [source, destination] = [8, 24].map(|at| {
        let mut octets = [0; 16];
        octets.copy_from_slice(&header[at..at + 16]);
        Ipv6Addr::from(octets)
    });
    // The answer to nobody, or to ourselves, never leaves, but the query does arrive.
    let nowhere = source.is_unspecified()
        || source.to_ipv4_mapped().is_some()
        || host.addresses.contains(&source.into());
    if nowhere {
        return Err(Refusal::Unusual);
    }
    if source.is_multicast() || source.is_loopback() {
        return Err(Refusal::Source);
    }
    if !host.addresses.contains(&destination.into()) {
        return Err(Refusal::Destination);
    }
    match header[6] {
        17 => deliver_udp(host, source.into(), destination.into(), &header[8..], payload),
        0 | 43 | 44 | 50 | 51 | 60 | 135 | 139 | 140 | 253 | 254 => Err(Refusal::Unusual),
        _ => Err(Refusal::Port),
    }
}

fn deliver_udp(
    host: &Host,
    source: IpAddr,
    destination: IpAddr,
    addresses: &[u8],
    segment: &[u8],
) -> Result<Datagram, Refusal> {
    let (header, _) = take::<8>(segment, Refusal::Length)?;
    let field = u16::from_be_bytes([header[4], header[5]]);
    // RFC 2675 §4: 0 is "see the jumbogram", which Linux takes as "all of it".
    let len = if field == 0 && source.is_ipv6() { segment.len() } else { usize::from(field) };
    if len < 8 || len > segment.len() {
        return Err(Refusal::Length);
    }
    let datagram = &segment[..len];
    let checksum = u16::from_be_bytes([header[6], header[7]]);
    let mut pseudo = addresses.to_vec();
    pseudo.extend([0, 17]);
    pseudo.extend((len as u16).to_be_bytes());
    let offloaded = checksum == internet_sum(&pseudo);
    // RFC 768 and RFC 8200 §8.1.
    let none = checksum == 0 && source.is_ipv4();
    pseudo.extend(datagram);
    let good = none || (checksum != 0 && internet_sum(&pseudo) == 0xffff);
    if !good && !offloaded {
        return Err(Refusal::Checksum);
    }
    if u16::from_be_bytes([header[2], header[3]]) != host.port {
        return Err(Refusal::Port);
    }
    Ok(Datagram {
        source,
        destination,
        source_port: u16::from_be_bytes([header[0], header[1]]),
        payload: datagram[8..].to_vec(),
        offloaded: offloaded && !good,
    })
}

fn take<const N: usize>(octets: &[u8], refusal: Refusal) -> Result<([u8; N], &[u8]), Refusal> {
    octets.split_first_chunk::<N>().map(|(head, rest)| (*head, rest)).ok_or(refusal)
}
