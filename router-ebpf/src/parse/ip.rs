//! IPv4 and IPv6.

use router_common::abi::{Generation, Locals, MAX_ADDRESSES, MAX_LOCALS};
use router_common::counter::Counter;
use router_common::lookup::Client;
use router_common::verdict::Verdict;
use router_common::wire::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, IPV4_FIRST, IPV4_FRAGMENT, IPV4_HEADER, IPV6_HEADER, Sum, UDP,
    is_extension_header, is_martian_ipv4, is_martian_ipv6,
};

use crate::maps::LOCALS;
use crate::packet::Packet;
use crate::verdict::pass;

/// What the rest must know of the IP header.
pub struct Ip {
    /// IPv6, else IPv4.
    pub ipv6: bool,
    /// Octets of the header.
    pub header: u32,
    /// Octets after it.
    pub payload: u32,
    /// Sum of both addresses.
    pub addresses: Sum,
    /// Source address.
    pub source: Client,
    /// Whether the destination is a service address.
    pub to_us: bool,
}

/// Reads the IP header at `offset`, of a packet that carries UDP from a source that can be reached.
#[inline(always)]
pub fn read(packet: &Packet, generation: &Generation, offset: u32, ethertype: u16) -> Result<Ip, Verdict> {
    match ethertype {
        ETHERTYPE_IPV4 => read_ipv4(packet, generation, offset),
        ETHERTYPE_IPV6 => read_ipv6(packet, generation, offset),
        _ => Err(pass(Counter::PassNotIp)),
    }
}

#[inline(always)]
fn read_ipv4(packet: &Packet, generation: &Generation, offset: u32) -> Result<Ip, Verdict> {
    let Some(ip) = packet.at::<{ IPV4_HEADER as usize }>(offset) else {
        return Err(pass(Counter::PassShort));
    };
    let (source, destination) = (ip.u32::<12>(), ip.u32::<16>());
    let addresses = Sum::ZERO.add32(source).add32(destination);
    let header = addresses.add32(ip.u32::<0>()).add32(ip.u32::<4>()).add32(ip.u32::<8>());
    if ip.u8::<0>() != IPV4_FIRST || !header.is_intact() {
        return Err(pass(Counter::PassIpHeader));
    }
    let len = u32::from(ip.number::<2>());
    if len < IPV4_HEADER || offset + len > packet.len() {
        return Err(pass(Counter::PassShort));
    }
    if ip.number::<6>() & IPV4_FRAGMENT != 0 {
        return Err(pass(Counter::PassFragment));
    }
    if is_martian_ipv4(u32::from_be(source)) || is_service_ipv4(generation, source) || is_local(source) {
        return Err(pass(Counter::PassMartian));
    }
    if ip.u8::<9>() != UDP {
        return Err(pass(Counter::PassNotDns));
    }
    Ok(Ip {
        ipv6: false,
        header: IPV4_HEADER,
        payload: len - IPV4_HEADER,
        addresses,
        source: Client::from_words(4, [u64::from(source.to_le()).to_le(), 0]),
        to_us: is_service_ipv4(generation, destination),
    })
}

#[inline(always)]
fn read_ipv6(packet: &Packet, generation: &Generation, offset: u32) -> Result<Ip, Verdict> {
    let Some(ip) = packet.at::<{ IPV6_HEADER as usize }>(offset) else {
        return Err(pass(Counter::PassShort));
    };
    if ip.u8::<0>() >> 4 != 6 {
        return Err(pass(Counter::PassIpHeader));
    }
    let payload = u32::from(ip.number::<4>());
    if offset + IPV6_HEADER + payload > packet.len() {
        return Err(pass(Counter::PassShort));
    }
    let next_header = ip.u8::<6>();
    if is_extension_header(next_header) {
        return Err(pass(Counter::PassExtension));
    }
    let source = [ip.u64::<8>(), ip.u64::<16>()];
    if is_martian_ipv6(u64::from_be(source[0]), u64::from_be(source[1]))
        || is_service_ipv6(generation, source)
    {
        return Err(pass(Counter::PassMartian));
    }
    if next_header != UDP {
        return Err(pass(Counter::PassNotDns));
    }
    let destination = [ip.u64::<24>(), ip.u64::<32>()];
    Ok(Ip {
        ipv6: true,
        header: IPV6_HEADER,
        payload,
        addresses: Sum::ZERO.add(source[0]).add(source[1]).add(destination[0]).add(destination[1]),
        source: Client::from_words(6, source),
        to_us: is_service_ipv6(generation, destination),
    })
}

/// Whether an address, in the order of memory, is one of ours.
#[inline(always)]
fn is_service_ipv4(generation: &Generation, address: u32) -> bool {
    let mut i = 0;
    while i < MAX_ADDRESSES && i < generation.ipv4_count as usize {
        if generation.ipv4_words()[i] == address {
            return true;
        }
        i += 1;
    }
    false
}

/// Whether an address, in the order of memory, is one of the machine's or a broadcast address of its networks.
#[inline(always)]
fn is_local(address: u32) -> bool {
    let Some(locals) = LOCALS.get(0) else { return false };
    if locals.filter & Locals::bit(u32::from_be(address)) == 0 {
        return false;
    }
    let mut i = 0;
    while i < MAX_LOCALS && i < locals.count as usize {
        if locals.words()[i] == address {
            return true;
        }
        i += 1;
    }
    false
}

#[inline(always)]
fn is_service_ipv6(generation: &Generation, address: [u64; 2]) -> bool {
    let mut i = 0;
    while i < MAX_ADDRESSES && i < generation.ipv6_count as usize {
        if generation.ipv6_words()[i] == address {
            return true;
        }
        i += 1;
    }
    false
}
