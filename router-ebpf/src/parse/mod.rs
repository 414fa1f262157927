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

use crate::checksum::sum;
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
    /// Where the IP packet ends.
    pub end: u32,
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
    let ipv6 = scratch.forget(u32::from(ip.ipv6)) != 0;

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
    let dns = udp_offset.wrapping_add(UDP_HEADER);
    let end = udp_offset.wrapping_add(udp_len);
    // The name is read before its turn, because that sums it up on the way; whether it is one counts later.
    let name_len = name::read(packet, scratch, dns.wrapping_add(DNS_HEADER), &generation.seed);
    let name_len = scratch.forget(name_len.unwrap_or(0));
    let question = Question::new(dns.wrapping_add(DNS_HEADER), name_len);
    let datagram =
        sum_datagram(packet, scratch, udp_offset, end, &question).ok_or(Verdict::Pass(Counter::PassShort))?;
    let pseudo = pseudo_header(ip.addresses, udp_len as u16);
    if !udp_checksum_is_good(ipv6, udp.u16::<6>(), pseudo, datagram) {
        return Err(Verdict::Pass(Counter::PassChecksum));
    }
    if !ip.to_us {
        return Err(Verdict::Pass(Counter::PassAddress));
    }
    if udp_len < UDP_HEADER + DNS_HEADER {
        return Err(Verdict::Pass(Counter::PassShort));
    }

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
        ipv6,
        link,
        udp: udp_offset,
        end,
        addresses: ip.addresses,
        ports,
        id: header.u16::<0>(),
        flags,
    };
    read_question(packet, generation, scratch, &question, end, additional)?;
    Ok(headers)
}

/// Where the question stands.
struct Question {
    /// Octets of QNAME; 0 when it is not a name.
    name_len: u32,
    /// Where QTYPE is.
    tail: u32,
    /// Where the question ends.
    end: u32,
}

impl Question {
    #[inline(always)]
    const fn new(at: u32, name_len: u32) -> Self {
        let tail = at.wrapping_add(name_len);
        Self { name_len, tail, end: tail.wrapping_add(QUESTION_TAIL) }
    }

    /// Whether it is whole in a message that ends at `end`. (The name may have been read from padding behind
    /// a message that ends inside it.)
    #[inline(always)]
    const fn is_whole(&self, end: u32) -> bool {
        self.name_len != 0 && self.end <= end
    }
}

/// Sum of the UDP datagram from `udp` to `end`, of which the name was summed up before; the question's is
/// left in the scratch.
#[inline(always)]
fn sum_datagram(
    packet: &Packet,
    scratch: &mut Scratch,
    udp: u32,
    end: u32,
    question: &Question,
) -> Option<Sum> {
    const HEADERS: usize = (UDP_HEADER + DNS_HEADER) as usize;
    let mut known = Sum::ZERO;
    let mut rest = udp;
    if question.is_whole(end) {
        let headers = packet.at::<HEADERS>(udp)?;
        let kind = packet.at::<{ QUESTION_TAIL as usize }>(question.tail)?;
        let kind = Sum::ZERO.add(u64::from(kind.u32::<0>()));
        scratch.question_sum = scratch.question_sum.add_part(kind, question.name_len);
        known = scratch.question_sum.add(headers.u64::<0>()).add(headers.u64::<8>());
        known = known.add(u64::from(headers.u32::<16>()));
        rest = question.end;
    }
    let rest = scratch.forget(rest);
    Some(known.add_part(sum(packet, rest, end.wrapping_sub(rest))?, rest.wrapping_sub(udp)))
}

/// Reads QTYPE and what follows it, in a message that ends at `end`.
#[inline(always)]
fn read_question(
    packet: &Packet,
    generation: &Generation,
    scratch: &mut Scratch,
    question: &Question,
    end: u32,
    additional: u16,
) -> Result<(), Verdict> {
    if question.name_len == 0 || question.tail > end {
        return Err(Verdict::Pass(Counter::PassName));
    }
    if question.end > end {
        return Err(Verdict::Pass(Counter::PassShort));
    }
    let kind =
        packet.at::<{ QUESTION_TAIL as usize }>(question.tail).ok_or(Verdict::Pass(Counter::PassShort))?;
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
        return edns::read(packet, scratch, question.end, end, generation.flags).map_err(Verdict::Pass);
    }
    if question.end != end {
        return Err(Verdict::Pass(Counter::PassTrailing));
    }
    Ok(())
}
