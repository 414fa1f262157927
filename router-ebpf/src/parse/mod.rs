//! A packet to a query, or the reason why it is not one for the fast path. The order of the checks is the
//! order of the reasons: a packet that is wrong in two ways is counted by the first.

mod edns;
mod ip;
mod link;
mod name;

use router_common::abi::Generation;
use router_common::counter::Counter;
use router_common::verdict::Verdict;
use router_common::wire::{
    CLASS_IN, DNS_HEADER, DNS_PORT, FLAG_OPCODE, FLAG_QR, MAX_QUERY, QUESTION_TAIL, Sum, TYPE_A, TYPE_AAAA,
    UDP_HEADER, pseudo_header, udp_checksum_is_good,
};

use crate::checksum::sum_datagram;
use crate::packet::Packet;
use crate::scratch::{Edns, Scratch};

/// What the reply must know of the packet, besides what is in the scratch.
pub struct Headers {
    /// IPv6, else IPv4.
    pub ipv6: bool,
    /// Octets before the IP header.
    pub link: u32,
    /// Octets before the UDP header.
    pub udp: u32,
    /// Sum of both addresses.
    pub addresses: Sum,
    /// UDP ports, source first, in the order of memory.
    pub ports: u32,
    /// ID of the query, in the order of memory.
    pub id: u16,
    /// Flags of the query.
    pub flags: u16,
}

/// Reads the packet; the query is left in the scratch.
#[inline(always)]
pub fn read(packet: &Packet, generation: &Generation, scratch: &mut Scratch) -> Result<Headers, Verdict> {
    let (link, ethertype) = link::read(packet, generation)?;
    let link = scratch.forget(link);
    let ip = ip::read(packet, generation, link, ethertype)?;
    scratch.query.source = ip.source;
    let udp_offset = scratch.forget(link.wrapping_add(ip.header));
    let udp_len = scratch.forget(ip.payload);

    if udp_len < UDP_HEADER {
        return Err(Verdict::Pass(Counter::PassShort));
    }
    let udp = packet.at::<{ UDP_HEADER as usize }>(udp_offset).ok_or(Verdict::Pass(Counter::PassShort))?;
    let ports = udp.u32::<0>();
    if udp.number::<2>() != DNS_PORT {
        return Err(Verdict::Pass(Counter::PassNotDns));
    }
    if u32::from(udp.number::<4>()) != udp_len {
        return Err(Verdict::Pass(Counter::PassLength));
    }
    if udp_len > UDP_HEADER + MAX_QUERY {
        return Err(Verdict::Pass(Counter::PassLong));
    }
    let datagram = sum_datagram(packet, udp_offset, udp_len).ok_or(Verdict::Pass(Counter::PassShort))?;
    let pseudo = pseudo_header(ip.addresses, udp_len as u16);
    if !udp_checksum_is_good(ip.ipv6, udp.u16::<6>(), pseudo, datagram) {
        return Err(Verdict::Pass(Counter::PassChecksum));
    }
    if !ip.to_us {
        return Err(Verdict::Pass(Counter::PassAddress));
    }
    if udp_len < UDP_HEADER + DNS_HEADER {
        return Err(Verdict::Pass(Counter::PassShort));
    }

    let dns = udp_offset.wrapping_add(UDP_HEADER);
    let header = packet.at::<{ DNS_HEADER as usize }>(dns).ok_or(Verdict::Pass(Counter::PassShort))?;
    let flags = header.number::<2>();
    if flags & FLAG_QR != 0 {
        return Err(Verdict::Drop(Counter::DropResponse));
    }
    if udp.u16::<0>() == 0 {
        return Err(Verdict::Drop(Counter::DropSourcePort));
    }
    if flags & FLAG_OPCODE != 0 {
        return Err(Verdict::Pass(Counter::PassOpcode));
    }
    let additional = header.number::<10>();
    if header.number::<4>() != 1 || header.u32::<6>() != 0 || additional > 1 {
        return Err(Verdict::Pass(Counter::PassCounts));
    }
    let headers = Headers {
        ipv6: ip.ipv6,
        link,
        udp: udp_offset,
        addresses: ip.addresses,
        ports,
        id: header.u16::<0>(),
        flags,
    };
    read_question(packet, generation, scratch, dns, udp_offset.wrapping_add(udp_len), additional)?;
    Ok(headers)
}

/// Reads what follows the DNS header at `dns`, in a message that ends at `end`.
#[inline(always)]
fn read_question(
    packet: &Packet,
    generation: &Generation,
    scratch: &mut Scratch,
    dns: u32,
    end: u32,
    additional: u16,
) -> Result<(), Verdict> {
    let question = dns.wrapping_add(DNS_HEADER);
    if !name::read(packet, scratch, question, &generation.seed) {
        return Err(Verdict::Pass(Counter::PassName));
    }
    let tail = question.wrapping_add(scratch.query.name_len);
    let after = tail.wrapping_add(QUESTION_TAIL);
    // The name may have been read from padding behind a message that ends inside it.
    if tail > end {
        return Err(Verdict::Pass(Counter::PassName));
    }
    if after > end {
        return Err(Verdict::Pass(Counter::PassShort));
    }
    let kind = packet.at::<{ QUESTION_TAIL as usize }>(tail).ok_or(Verdict::Pass(Counter::PassShort))?;
    if kind.number::<2>() != CLASS_IN {
        return Err(Verdict::Pass(Counter::PassClass));
    }
    scratch.query.aaaa = match kind.number::<0>() {
        TYPE_A => false,
        TYPE_AAAA => true,
        _ => return Err(Verdict::Pass(Counter::PassType)),
    };
    scratch.query.has_ecs = false;
    scratch.edns = Edns::NONE;
    if additional == 1 {
        return edns::read(packet, scratch, after, end, generation);
    }
    if after != end {
        return Err(Verdict::Pass(Counter::PassTrailing));
    }
    Ok(())
}
