//! A packet to a query, or the reason why it is not one for the fast path. The order of the checks is the
//! order of the reasons: a packet that is wrong in two ways is counted by the first.

mod edns;
mod ip;
mod link;
pub mod name;

use aya_ebpf::bindings::xdp_md;
use router_common::abi::Generation;
use router_common::counter::Counter;
use router_common::verdict::Verdict;
use router_common::wire::{
    CLASS_IN, DNS_HEADER, DNS_PORT, FLAG_OPCODE, FLAG_QR, MAX_QUERY, QUESTION_TAIL, Sum, TYPE_A, TYPE_AAAA,
    UDP_HEADER, pseudo_header, udp_checksum_is_good,
};

use crate::checksum::sum;
use crate::packet::{Packet, Window};
use crate::scratch::{Edns, Scratch};
use crate::tables::Half;
use crate::verdict::pass;

/// Octets of the UDP and the DNS header.
pub const MESSAGE: usize = (UDP_HEADER + DNS_HEADER) as usize;

/// What the rest must know of the packet, besides what is in the scratch.
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
    /// Octets of QNAME; 0 when it is not a name.
    pub name_len: u32,
    /// Whether there is an additional record.
    pub additional: bool,
}

impl Headers {
    /// Where QTYPE is.
    #[inline(always)]
    pub const fn tail(&self) -> u32 {
        self.udp.wrapping_add(UDP_HEADER + DNS_HEADER).wrapping_add(self.name_len)
    }
}

/// Reads the packet down to the DNS header, and the name; [`read_question`] goes on.
#[inline(always)]
pub fn read(
    context: *mut xdp_md,
    packet: &Packet,
    half: &Half,
    generation: &Generation,
    scratch: &mut Scratch,
) -> Result<Headers, Verdict> {
    let fog = scratch.fog();
    let (link, ethertype) = link::read(packet, generation, fog)?;
    let ip = ip::read(packet, generation, link, ethertype)?;
    scratch.query.source = ip.source;
    let udp = fog.hide(link.wrapping_add(ip.header));
    let ipv6 = fog.hide(u32::from(ip.ipv6)) != 0;
    let to_us = fog.hide(u32::from(ip.to_us)) != 0;
    let udp_len = fog.hide_len(ip.payload);
    let pseudo = pseudo_header(ip.addresses, udp_len as u16);
    let Some(message) = packet.at::<MESSAGE>(udp).filter(|_| udp_len >= UDP_HEADER + DNS_HEADER) else {
        return Err(without_header(packet, udp, udp_len, ipv6, to_us, pseudo));
    };
    check_udp(message.part::<0, { UDP_HEADER as usize }>(), udp_len)?;
    let end = udp.wrapping_add(udp_len);

    // The name is read before its turn, because that sums it up on the way; whether it is one counts later.
    let name_at = fog.hide(udp + MESSAGE as u32);
    let name = name::read(context, packet, half, generation, scratch, name_at);
    let (name_len, name_sum) = name.unwrap_or((0, Sum::ZERO));
    let mut headers = Headers {
        ipv6,
        link,
        udp,
        end,
        addresses: ip.addresses,
        name_len: fog.hide(name_len),
        additional: false,
    };
    let known = Sum::ZERO
        .add32(message.u32::<0>())
        .add32(message.u32::<4>())
        .add32(message.u32::<8>())
        .add32(message.u32::<12>())
        .add32(message.u32::<16>());
    let Some(datagram) = sum_question(packet, scratch, &headers, name_sum) else {
        return Err(pass(Counter::PassShort));
    };
    check_delivery(ipv6, to_us, message.u16::<6>(), pseudo, known.add_sum(datagram))?;
    check_header(message)?;
    headers.additional = message.u16::<18>() != 0;
    Ok(headers)
}

/// What becomes of a datagram of `len` octets without a whole DNS header.
#[inline(always)]
fn without_header(packet: &Packet, udp: u32, len: u32, ipv6: bool, to_us: bool, pseudo: Sum) -> Verdict {
    let read = || {
        let header = packet.at::<{ UDP_HEADER as usize }>(udp).filter(|_| len >= UDP_HEADER);
        let Some(header) = header else { return Err(pass(Counter::PassShort)) };
        check_udp(header, len)?;
        let Some(datagram) = sum(packet, udp, len) else { return Err(pass(Counter::PassShort)) };
        check_delivery(ipv6, to_us, header.u16::<6>(), pseudo, datagram)
    };
    match read() {
        Err(verdict) => verdict,
        Ok(()) => pass(Counter::PassShort),
    }
}

/// To the port of DNS, and as long as the IP payload of `len` octets.
#[inline(always)]
fn check_udp(udp: Window<'_, { UDP_HEADER as usize }>, len: u32) -> Result<(), Verdict> {
    if udp.number::<2>() != DNS_PORT {
        return Err(pass(Counter::PassNotDns));
    }
    if u32::from(udp.number::<4>()) != len {
        return Err(pass(Counter::PassLength));
    }
    if len > UDP_HEADER + MAX_QUERY {
        return Err(pass(Counter::PassLong));
    }
    Ok(())
}

/// Intact, and to one of our addresses.
#[inline(always)]
fn check_delivery(ipv6: bool, to_us: bool, checksum: u16, pseudo: Sum, datagram: Sum) -> Result<(), Verdict> {
    if !udp_checksum_is_good(ipv6, checksum, pseudo, datagram) {
        return Err(pass(Counter::PassChecksum));
    }
    if !to_us {
        return Err(pass(Counter::PassAddress));
    }
    Ok(())
}

/// A query with one question, and at most one additional record.
#[inline(always)]
fn check_header(message: Window<'_, MESSAGE>) -> Result<(), Verdict> {
    // Flags, QDCOUNT and ANCOUNT in one word, with the ID that may be anything; then NSCOUNT and ARCOUNT.
    const LOOKED_AT: u64 = 0xffff_ffff << 32 | ((FLAG_QR | FLAG_OPCODE).swap_bytes() as u64) << 16;
    const ONE_QUESTION: u64 = (1u16.swap_bytes() as u64) << 32;
    const MORE: u32 = !((1u16.swap_bytes() as u32) << 16);
    let first = u64::from_le(message.u64::<8>());
    let last = u32::from_le(message.u32::<16>());
    if first & LOOKED_AT == ONE_QUESTION && last & MORE == 0 && message.u16::<0>() != 0 {
        return Ok(());
    }
    let flags = message.number::<10>();
    if flags & FLAG_QR != 0 {
        return Err(Verdict::Drop(Counter::DropResponse));
    }
    if message.u16::<0>() == 0 {
        return Err(Verdict::Drop(Counter::DropSourcePort));
    }
    Err(pass(if flags & FLAG_OPCODE != 0 { Counter::PassOpcode } else { Counter::PassCounts }))
}

/// Sum of what follows the DNS header, of which the name was summed up before; the question's is left in the
/// scratch.
#[inline(always)]
fn sum_question(packet: &Packet, scratch: &mut Scratch, headers: &Headers, name: Sum) -> Option<Sum> {
    let mut known = Sum::ZERO;
    let mut rest = headers.udp.wrapping_add(MESSAGE as u32);
    let tail = headers.tail();
    // (The name may have been read from padding behind a message that ends inside it.)
    if headers.name_len != 0 && tail.wrapping_add(QUESTION_TAIL) <= headers.end {
        let kind = packet.at::<{ QUESTION_TAIL as usize }>(tail)?;
        let kind = Sum::ZERO.add32(kind.u32::<0>());
        known = name.add_part(kind, headers.name_len);
        scratch.question_sum = known;
        rest = tail.wrapping_add(QUESTION_TAIL);
    }
    let rest = scratch.fog().hide(rest);
    let rest_sum = sum(packet, rest, headers.end.wrapping_sub(rest))?;
    Some(known.add_part(rest_sum, rest.wrapping_sub(headers.udp)))
}

/// Reads QTYPE and what follows it; the query is left in the scratch.
#[inline(always)]
pub fn read_question(
    packet: &Packet,
    generation: &Generation,
    scratch: &mut Scratch,
    headers: &Headers,
) -> Result<(), Verdict> {
    let tail = headers.tail();
    if headers.name_len == 0 || tail > headers.end {
        return Err(pass(Counter::PassName));
    }
    let end = tail.wrapping_add(QUESTION_TAIL);
    let kind = packet.at::<{ QUESTION_TAIL as usize }>(tail).filter(|_| end <= headers.end);
    let Some(kind) = kind else { return Err(pass(Counter::PassShort)) };
    if kind.number::<2>() != CLASS_IN {
        return Err(pass(Counter::PassClass));
    }
    let qtype = kind.number::<0>();
    if qtype != TYPE_A && qtype != TYPE_AAAA {
        return Err(pass(Counter::PassType));
    }
    scratch.query.aaaa = qtype == TYPE_AAAA;
    scratch.query.has_ecs = false;
    scratch.edns = Edns::NONE;
    if headers.additional {
        return edns::read(packet, scratch, end, headers.end, generation.flags);
    }
    if end != headers.end {
        return Err(pass(Counter::PassTrailing));
    }
    Ok(())
}
