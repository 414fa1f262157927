//! A picked answer to a reply. Its length is worked out, and the packet grown, before the first write; after that
//! nothing can fail.
//!
//! The packet grows at its head, so its old content stands further behind, by `moved` octets. It is taken from there
//! and written to where it belongs part by part, front to back: what is written never reaches what is still to be
//! read.

use router_common::abi::{Answer, Cell, Generation, INLINE_PIECE, LINE, Line, MAX_NAME, MAX_PIECE};
use router_common::counter::Counter;
use router_common::lookup::{Hit, Tables};
use router_common::verdict::Verdict;
use router_common::wire::{
    DNS_HEADER, ETHERNET_HEADER, Ecs, HOP_LIMIT, IPV4_DONT_FRAGMENT, IPV4_FIRST, IPV4_HEADER, IPV6_HEADER,
    MAX_VLAN_TAGS, MIN_PIECE, OPT_HEADER, OPT_WORDS, POINTER, QUESTION_TAIL, Sum, UDP, UDP_HEADER, VLAN_TAG,
    max_payload, pseudo_header, reply_flags, reply_opt,
};

use crate::packet::{Cursor, Packet, Window, opaque};
use crate::parse::{Headers, MESSAGE};
use crate::scratch::{Kept, Scratch};
use crate::tables::Half;
use crate::verdict::pass;

/// Octets of a piece with one A record: what most answers are.
const ONE_ADDRESS: u32 = Answer::RECORD_LEN as u32;

/// A reply, worked out: what differs from the query, and where it goes.
#[repr(C)]
pub struct Plan {
    /// The OPT record.
    opt: [Kept<u64>; OPT_WORDS],
    /// Sum of question, piece and OPT record.
    sum: Kept<Sum>,
    /// Octets of the OPT record; 0 when there is none.
    opt_len: Kept<u32>,
    /// Where the piece goes.
    piece: Kept<u32>,
    /// Octets of the piece.
    piece_len: Kept<u32>,
    /// UDP length.
    udp_len: Kept<u32>,
    /// First two octets of the piece: the owner's pointer.
    owner: Kept<u16>,
    /// Where in a piece names end in the same pointer, 0 for none.
    ends: [Kept<u8>; 2],
}

/// Turns the query into the reply.
#[inline(always)]
pub fn write(
    packet: Packet,
    headers: &Headers,
    generation: &Generation,
    tables: &Half,
    scratch: &Scratch,
    hit: &Hit,
) -> Result<Counter, Verdict> {
    let cell = &scratch.cell;
    plan(headers, generation, tables, scratch, hit)?;
    let len = headers.udp + scratch.plan.udp_len.get();
    let Some((packet, moved)) = packet.resize(len, headers.end) else {
        return Err(pass(Counter::PassNoRoom));
    };
    // Nothing was written; but there is no way back from here, and no way here either.
    if packet.len() != len || write_all(&packet, headers, generation, tables, scratch, cell, moved).is_none()
    {
        return Err(Verdict::Abort(Counter::AbortReply));
    }
    Ok(if cell.kind == Cell::NODATA { Counter::AnswerNodata } else { Counter::AnswerRecords })
}

/// Works out the reply; the packet is only passed when it cannot be sent.
#[inline(always)]
fn plan(
    headers: &Headers,
    generation: &Generation,
    tables: &Half,
    scratch: &Scratch,
    hit: &Hit,
) -> Result<(), Verdict> {
    let (cell, plan) = (&scratch.cell, &scratch.plan);
    let piece_len = u32::from(cell.len);
    let zone_is_longer = cell.kind == Cell::NODATA && u32::from(hit.zone_len) > headers.name_len;
    if piece_len < MIN_PIECE || piece_len > MAX_PIECE as u32 || zone_is_longer {
        return Err(pass(Counter::PassBroken));
    }
    // Lines follow one another in one array: when the last is there, so are the others.
    if piece_len > INLINE_PIECE as u32
        && tables.line(first_line(generation, cell).wrapping_add((piece_len - 1) / LINE as u32)).is_none()
    {
        return Err(pass(Counter::PassBroken));
    }
    plan_opt(plan, generation, scratch, hit);
    let opt_len = plan.opt_len.get();
    let question = DNS_HEADER + headers.name_len + QUESTION_TAIL;
    let payload = question + piece_len + opt_len;
    if payload > u32::from(max_payload(opt_len != 0, scratch.edns.payload(), generation.edns_size)) {
        return Err(pass(Counter::PassTooBig));
    }
    plan.piece.set(headers.udp + UDP_HEADER + question);
    plan.piece_len.set(piece_len);
    plan.udp_len.set(UDP_HEADER + payload);

    let [a, b, c, d, e] = &plan.opt;
    let mut opt_sum = Sum::ZERO.add(a.get().to_le()).add(b.get().to_le());
    if opt_len > OPT_HEADER {
        opt_sum = opt_sum.add(c.get().to_le()).add(d.get().to_le()).add(e.get().to_le());
    }
    let known = scratch.question_sum.add_part(opt_sum, question + piece_len);
    plan_piece(plan, headers, cell, hit, known, question);
    Ok(())
}

/// Works out the OPT record.
#[inline(always)]
fn plan_opt(plan: &Plan, generation: &Generation, scratch: &Scratch, hit: &Hit) {
    let edns = scratch.edns;
    let mut opt = ([0; OPT_WORDS], 0);
    if edns.is_present() {
        let ecs = (edns.ecs_family() != 0).then(|| Ecs {
            family: edns.ecs_family(),
            source: scratch.query.ecs_len,
            scope: if scratch.query.has_ecs { hit.scope } else { 0 },
            address: scratch.query.ecs.words(),
        });
        opt = reply_opt(generation.edns_size, edns.dnssec_ok(), ecs);
    }
    for (place, word) in plan.opt.iter().zip(opt.0) {
        place.set(word);
    }
    plan.opt_len.set(opt.1);
}

/// Works out what of the piece depends on the query, and the sum: `known` without the piece, which stands `at` octets
/// behind the UDP header.
#[inline(always)]
fn plan_piece(plan: &Plan, headers: &Headers, cell: &Cell, hit: &Hit, known: Sum, at: u32) {
    let mut sum = Sum::from_folded(cell.sum.to_be());
    if cell.kind == Cell::NODATA {
        // The piece is summed without its owner, and without the ends of names in it that are the same pointer.
        let zone = (headers.name_len as u16).wrapping_sub(u16::from(hit.zone_len));
        let owner = (POINTER | DNS_HEADER as u16).wrapping_add(zone);
        let pointer = Sum::ZERO.add_number(owner);
        sum = sum.add_sum(pointer);
        let ends = cell.ends();
        if ends[0] != 0 {
            sum = sum.add_part(pointer, u32::from(ends[0]));
        }
        if ends[1] != 0 {
            sum = sum.add_part(pointer, u32::from(ends[1]));
        }
        plan.owner.set(owner);
        plan.ends[0].set(ends[0]);
        plan.ends[1].set(ends[1]);
    }
    plan.sum.set(known.add_part(sum, at));
}

/// The line in which a piece begins that its cell does not hold.
#[inline(always)]
fn first_line(generation: &Generation, cell: &Cell) -> u32 {
    generation.lines.wrapping_add(cell.piece_words()[0] as u32)
}

/// Writes the reply into the packet, which has its length.
#[inline(always)]
fn write_all(
    packet: &Packet,
    headers: &Headers,
    generation: &Generation,
    tables: &Half,
    scratch: &Scratch,
    cell: &Cell,
    moved: u32,
) -> Option<()> {
    let plan = &scratch.plan;
    let moved = scratch.fog().hide(moved);
    write_headers(packet, headers, plan, moved)?;
    write_message(packet, headers, plan, moved, cell)?;
    if plan.piece_len.get() > INLINE_PIECE as u32 {
        write_lines(packet, plan, tables, first_line(generation, cell))?;
    } else {
        write_piece(packet, plan, cell)?;
    }
    if cell.kind == Cell::NODATA {
        write_pointers(packet, plan)?;
    }
    write_opt(packet, plan)
}

/// Writes everything before the UDP header.
#[inline(always)]
fn write_headers(packet: &Packet, headers: &Headers, plan: &Plan, moved: u32) -> Option<()> {
    const LINK: usize = ETHERNET_HEADER as usize;
    const IPV4: usize = IPV4_HEADER as usize;
    const IPV6: usize = IPV6_HEADER as usize;
    let udp_len = plan.udp_len.get() as u16;
    if headers.link != ETHERNET_HEADER {
        write_ethernet(packet.front()?, packet.at(moved)?);
        write_tags(packet, headers.link, moved)?;
        let old = headers.link.wrapping_add(moved);
        if headers.ipv6 {
            write_ipv6(packet.at(headers.link)?, packet.at(old)?, udp_len);
        } else {
            write_ipv4(packet.at(headers.link)?, packet.at(old)?, udp_len, headers.addresses);
        }
    } else if headers.ipv6 {
        // Both headers at once: two checks, not four.
        let (new, old) = (packet.front::<{ LINK + IPV6 }>()?, packet.at::<{ LINK + IPV6 }>(moved)?);
        write_ethernet(new.part::<0, LINK>(), old.part::<0, LINK>());
        write_ipv6(new.part::<LINK, IPV6>(), old.part::<LINK, IPV6>(), udp_len);
    } else {
        let (new, old) = (packet.front::<{ LINK + IPV4 }>()?, packet.at::<{ LINK + IPV4 }>(moved)?);
        write_ethernet(new.part::<0, LINK>(), old.part::<0, LINK>());
        write_ipv4(new.part::<LINK, IPV4>(), old.part::<LINK, IPV4>(), udp_len, headers.addresses);
    }
    Some(())
}

/// Writes the Ethernet header.
#[inline(always)]
fn write_ethernet(
    frame: Window<'_, { ETHERNET_HEADER as usize }>,
    old: Window<'_, { ETHERNET_HEADER as usize }>,
) {
    let (ours, our_end) = (old.u32::<0>(), old.u16::<4>());
    let (theirs, their_end) = (old.u32::<6>(), old.u16::<10>());
    let ethertype = old.u16::<12>();
    frame.set_u32::<0>(theirs);
    frame.set_u16::<4>(their_end);
    frame.set_u32::<6>(ours);
    frame.set_u16::<10>(our_end);
    frame.set_u16::<12>(ethertype);
}

/// Writes the VLAN tags, up to the IP header at `link`.
#[inline(always)]
fn write_tags(packet: &Packet, link: u32, moved: u32) -> Option<()> {
    let mut tag = ETHERNET_HEADER;
    while tag < ETHERNET_HEADER + MAX_VLAN_TAGS * VLAN_TAG && tag < link {
        let old = packet.at::<{ VLAN_TAG as usize }>(moved.wrapping_add(tag))?.u32::<0>();
        packet.at::<{ VLAN_TAG as usize }>(tag)?.set_u32::<0>(old);
        tag += VLAN_TAG;
    }
    Some(())
}

/// Writes the IPv4 header.
#[inline(always)]
fn write_ipv4(
    ip: Window<'_, { IPV4_HEADER as usize }>,
    old: Window<'_, { IPV4_HEADER as usize }>,
    udp_len: u16,
    addresses: Sum,
) {
    let (source, destination) = (old.u32::<12>(), old.u32::<16>());
    let len = (IPV4_HEADER as u16).wrapping_add(udp_len);
    let first = u16::from_be_bytes([IPV4_FIRST, 0]);
    let hops = u16::from_be_bytes([HOP_LIMIT, UDP]);
    // DF is set, so the ID has no use and is 0 (RFC 6864 §4.1).
    let checksum = addresses
        .add_number(first)
        .add_number(len)
        .add_number(IPV4_DONT_FRAGMENT)
        .add_number(hops)
        .checksum();
    ip.set_u32::<0>(u32::from(first).wrapping_shl(16).wrapping_add(u32::from(len)).to_be());
    ip.set_u32::<4>(u32::from(IPV4_DONT_FRAGMENT).to_be());
    ip.set_u16::<8>(hops.to_be());
    ip.set_u16::<10>(checksum);
    ip.set_u32::<12>(destination);
    ip.set_u32::<16>(source);
}

/// Writes the IPv6 header.
#[inline(always)]
fn write_ipv6(
    ip: Window<'_, { IPV6_HEADER as usize }>,
    old: Window<'_, { IPV6_HEADER as usize }>,
    udp_len: u16,
) {
    let source = [old.u64::<8>(), old.u64::<16>()];
    let destination = [old.u64::<24>(), old.u64::<32>()];
    // Flow label 0: the client's label says nothing about the way back (RFC 6437 §3).
    ip.set_u32::<0>(0x6000_0000u32.to_be());
    ip.set_u16::<4>(udp_len.to_be());
    ip.set_u16::<6>(u16::from_be_bytes([UDP, HOP_LIMIT]).to_be());
    ip.set_u64::<8>(destination[0]);
    ip.set_u64::<16>(destination[1]);
    ip.set_u64::<24>(source[0]);
    ip.set_u64::<32>(source[1]);
}

/// Writes the UDP and the DNS header, and moves the question.
#[inline(always)]
fn write_message(packet: &Packet, headers: &Headers, plan: &Plan, moved: u32, cell: &Cell) -> Option<()> {
    let message = packet.at::<MESSAGE>(headers.udp)?;
    let old = packet.at::<MESSAGE>(headers.udp.wrapping_add(moved))?;
    let ports = old.u32::<0>();
    let id = old.u16::<8>();
    let flags = reply_flags(old.number::<10>());
    if moved != 0 {
        // Before the header is written: the shortest questions bring the end of the old one along.
        move_question(packet, headers, plan, moved)?;
    }
    let counts = 1 << 48
        | u64::from(cell.ancount) << 32
        | u64::from(cell.nscount()) << 16
        | u64::from(plan.opt_len.get() != 0);
    let udp_len = plan.udp_len.get() as u16;
    let checksum = pseudo_header(headers.addresses, udp_len)
        .add32(ports)
        .add_number(udp_len)
        .add32(u32::from(id))
        .add_number(flags)
        .add(counts.to_be())
        .add_sum(plan.sum.get())
        .udp_checksum();
    message.set_u32::<0>(ports.rotate_left(16));
    message.set_u16::<4>(udp_len.to_be());
    message.set_u16::<6>(checksum);
    message.set_u16::<8>(id);
    message.set_u16::<10>(flags.to_be());
    message.set_u64::<12>(counts.to_be());
    Some(())
}

/// Moves the question to where it belongs in the packet that has grown at its head.
#[inline(always)]
fn move_question(packet: &Packet, headers: &Headers, plan: &Plan, moved: u32) -> Option<()> {
    let question = headers.udp.wrapping_add(MESSAGE as u32);
    let end = plan.piece.get();
    // The last words overlap those before, and are read before anything is written over them.
    let last = packet.before::<16>(end.wrapping_add(moved))?;
    let last = [last.u64::<0>(), last.u64::<8>()];
    let mut from = packet.cursor(question.wrapping_add(moved));
    let mut to = packet.cursor(question);
    let mut left = opaque(end.wrapping_sub(question) as usize);
    if left > MAX_NAME + QUESTION_TAIL as usize {
        return None;
    }
    while left > 16 {
        let (from, to) = (from.next::<16>()?, to.next::<16>()?);
        to.set_u64::<0>(from.u64::<0>());
        to.set_u64::<8>(from.u64::<8>());
        left = opaque(left - 16);
    }
    let to = packet.before::<16>(end)?;
    to.set_u64::<0>(last[0]);
    to.set_u64::<8>(last[1]);
    Some(())
}

/// Writes a piece that its cell holds.
#[inline(always)]
fn write_piece(packet: &Packet, plan: &Plan, cell: &Cell) -> Option<()> {
    let words = cell.piece_words();
    if plan.piece_len.get() == ONE_ADDRESS {
        let window = packet.at::<{ ONE_ADDRESS as usize }>(plan.piece.get())?;
        window.set_u64::<0>(words[0]);
        window.set_u64::<8>(words[1]);
        return Some(());
    }
    let mut writer = Writer::new(packet, plan.piece.get(), plan.piece_len.get());
    let mut i = 0;
    while i < words.len() && writer.left > 0 {
        writer.word(words[i])?;
        i += 1;
    }
    Some(())
}

/// Writes a piece that stands in lines.
#[inline(always)]
fn write_lines(packet: &Packet, plan: &Plan, tables: &Half, first_line: u32) -> Option<()> {
    let mut writer = Writer::new(packet, plan.piece.get(), plan.piece_len.get());
    let mut line = 0;
    while line < (MAX_PIECE / LINE) as u32 && writer.left > 0 {
        let words: &[u64; LINE / 8] = tables.line(first_line.wrapping_add(line)).map(Line::words)?;
        let mut i = 0;
        while i < words.len() && writer.left > 0 {
            writer.word(words[i])?;
            i += 1;
        }
        line += 1;
    }
    Some(())
}

/// Writes the owner of a SOA, and the same pointer where names in it end in the zone.
#[inline(always)]
fn write_pointers(packet: &Packet, plan: &Plan) -> Option<()> {
    let (at, owner) = (plan.piece.get(), plan.owner.get().to_be());
    packet.at::<2>(at)?.set_u16::<0>(owner);
    let ends = [plan.ends[0].get(), plan.ends[1].get()];
    if ends[0] != 0 {
        packet.at::<2>(at.wrapping_add(u32::from(ends[0])))?.set_u16::<0>(owner);
    }
    if ends[1] != 0 {
        packet.at::<2>(at.wrapping_add(u32::from(ends[1])))?.set_u16::<0>(owner);
    }
    Some(())
}

/// Writes the OPT record, when there is one.
#[inline(always)]
fn write_opt(packet: &Packet, plan: &Plan) -> Option<()> {
    let len = plan.opt_len.get();
    if len == 0 {
        return Some(());
    }
    let at = plan.piece.get().wrapping_add(plan.piece_len.get());
    let [a, b, c, d, e] = &plan.opt;
    if len == OPT_HEADER {
        let window = packet.at::<{ OPT_HEADER as usize }>(at)?;
        window.set_u64::<0>(a.get().to_le());
        // The last eight octets, of which five are written already.
        window.set_u64::<3>((a.get() >> 24 | b.get() << 40).to_le());
        return Some(());
    }
    let mut writer = Writer::new(packet, at, len);
    writer.word(a.get().to_le())?;
    writer.word(b.get().to_le())?;
    writer.word(c.get().to_le())?;
    if writer.left > 0 {
        writer.word(d.get().to_le())?;
    }
    if writer.left > 0 {
        writer.word(e.get().to_le())?;
    }
    Some(())
}

/// Writes words one after the other, and exactly as many octets as there are.
struct Writer<'p> {
    packet: &'p Packet,
    end: u32,
    cursor: Cursor<'p>,
    left: usize,
    before: u64,
}

impl<'p> Writer<'p> {
    /// `len` is 0 or at least 8.
    #[inline(always)]
    fn new(packet: &'p Packet, at: u32, len: u32) -> Self {
        Self {
            packet,
            end: at.wrapping_add(len),
            cursor: packet.cursor(at),
            left: opaque(len as usize),
            before: 0,
        }
    }

    /// Writes the next word, or what is left of it: then as the upper octets of a word that ends where
    /// they end, and begins in the one before.
    #[inline(always)]
    fn word(&mut self, word: u64) -> Option<()> {
        if self.left >= 8 {
            self.cursor.next::<8>()?.set_u64::<0>(word);
            self.left = opaque(self.left - 8);
            self.before = word;
            return Some(());
        }
        let (before, word) = (u64::from_le(self.before), u64::from_le(word));
        let bits = 8 * self.left;
        let joined = before >> bits | word << (64 - bits);
        self.packet.before::<8>(self.end)?.set_u64::<0>(joined.to_le());
        self.left = 0;
        Some(())
    }
}
