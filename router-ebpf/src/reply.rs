//! A picked answer to a reply. Everything is worked out, and the packet grown, before the first write.

use router_common::abi::{Cell, Generation, INLINE_PIECE, LINE, Line, MAX_NAME, MAX_PIECE};
use router_common::counter::Counter;
use router_common::lookup::{Hit, Tables};
use router_common::verdict::Verdict;
use router_common::wire::{
    DNS_HEADER, DNS_PORT, ETHERNET_HEADER, Ecs, HOP_LIMIT, IPV4_DONT_FRAGMENT, IPV4_FIRST, IPV4_HEADER,
    IPV6_HEADER, MAX_VLAN_TAGS, MIN_PIECE, OPT_WORDS, POINTER, QUESTION_TAIL, Sum, UDP, UDP_HEADER, VLAN_TAG,
    max_payload, pseudo_header, reply_flags, reply_opt,
};

use crate::packet::{Cursor, Packet, opaque};
use crate::parse::Headers;
use crate::scratch::Scratch;
use crate::tables::Half;

/// A reply, worked out: what differs from the query, and where it goes.
struct Plan {
    /// Where the piece goes.
    piece: u32,
    /// Octets of the piece.
    piece_len: u32,
    /// First two octets of the piece, in the order of memory: the owner's pointer.
    owner: u16,
    /// The OPT record, and its octets (0 = none).
    opt: ([u64; OPT_WORDS], u32),
    /// UDP length.
    udp_len: u16,
    /// UDP checksum, in the order of memory.
    checksum: u16,
    /// DNS flags.
    flags: u16,
    /// ARCOUNT.
    additional: u16,
}

/// Turns the query into the reply.
#[inline(always)]
pub fn write(
    packet: Packet,
    headers: &Headers,
    generation: &Generation,
    tables: &Half,
    scratch: &mut Scratch,
    hit: &Hit<'_>,
) -> Result<Counter, Verdict> {
    let cell = hit.cell;
    let plan = plan(headers, generation, scratch, hit)?;
    let first_line = generation.lines.wrapping_add(cell.piece_words()[0] as u32);
    // Lines follow one another in one array: when the last is there, so are the others.
    if plan.piece_len > INLINE_PIECE as u32
        && tables.line(first_line.wrapping_add((plan.piece_len - 1) / LINE as u32)).is_none()
    {
        return Err(Verdict::Pass(Counter::PassBroken));
    }
    let len = headers.udp + u32::from(plan.udp_len);
    let Some((packet, moved)) = packet.resize(len, headers.end) else {
        return Err(Verdict::Pass(Counter::PassNoRoom));
    };
    // Nothing was written; but there is no way back from here, and no way here either.
    if packet.len() != len {
        return Err(Verdict::Abort(Counter::AbortReply));
    }
    let moved = scratch.forget(moved);
    let written = write_headers(&packet, headers, &plan, moved)
        .and_then(|()| move_question(&packet, headers, &plan, moved))
        .and_then(|()| write_counts(&packet, headers, cell, &plan))
        .and_then(|()| {
            // Each way out of a loop knows another length of what was written in it.
            let at = scratch.forget(plan.piece);
            if plan.piece_len > INLINE_PIECE as u32 {
                write_lines(&packet, &plan, at, tables, first_line)
            } else {
                write_piece(&packet, &plan, at, cell)
            }
        })
        .and_then(|()| {
            let at = scratch.forget(plan.piece);
            write_pointers(&packet, &plan, at, cell)
        })
        .and_then(|()| {
            let at = scratch.forget(plan.piece + plan.piece_len);
            write_opt(&packet, &plan, at)
        });
    if written.is_none() {
        return Err(Verdict::Abort(Counter::AbortReply));
    }
    Ok(if cell.kind == Cell::NODATA { Counter::AnswerNodata } else { Counter::AnswerRecords })
}

/// Works out the reply; the packet is only passed when it cannot be sent.
#[inline(always)]
fn plan(
    headers: &Headers,
    generation: &Generation,
    scratch: &Scratch,
    hit: &Hit<'_>,
) -> Result<Plan, Verdict> {
    let cell = hit.cell;
    let name_len = scratch.query.name_len;
    let piece_len = u32::from(cell.len);
    if piece_len < MIN_PIECE || piece_len > MAX_PIECE as u32 {
        return Err(Verdict::Pass(Counter::PassBroken));
    }
    let mut owner = POINTER | DNS_HEADER as u16;
    let mut piece_sum = Sum::from_folded(cell.sum.to_be());
    if cell.kind == Cell::NODATA {
        // The piece is summed without its owner, and without the ends of names in it that are the same pointer.
        owner = owner.wrapping_add((name_len as u16).wrapping_sub(u16::from(hit.zone_len)));
        let pointer = Sum::ZERO.add_number(owner);
        piece_sum = piece_sum.add_sum(pointer);
        let ends = cell.ends();
        if ends[0] != 0 {
            piece_sum = piece_sum.add_part(pointer, u32::from(ends[0]));
        }
        if ends[1] != 0 {
            piece_sum = piece_sum.add_part(pointer, u32::from(ends[1]));
        }
        if u32::from(hit.zone_len) > name_len {
            return Err(Verdict::Pass(Counter::PassBroken));
        }
    }

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

    let piece = DNS_HEADER + name_len + QUESTION_TAIL;
    let opt_at = piece + piece_len;
    let payload = opt_at + opt.1;
    if payload > u32::from(max_payload(edns.is_present(), edns.payload(), generation.edns_size)) {
        return Err(Verdict::Pass(Counter::PassTooBig));
    }
    let udp_len = (UDP_HEADER + payload) as u16;
    let flags = reply_flags(headers.flags);
    let additional = u16::from(edns.is_present());

    let [a, b, c, d, e] = opt.0;
    let opt_sum = Sum::ZERO.add(a.to_le()).add(b.to_le()).add(c.to_le()).add(d.to_le()).add(e.to_le());
    let checksum = pseudo_header(headers.addresses, udp_len)
        .add(u64::from(headers.ports))
        .add_number(udp_len)
        .add(u64::from(headers.id))
        .add_number(flags)
        .add_number(1)
        .add_number(u16::from(cell.ancount))
        .add_number(u16::from(cell.nscount()))
        .add_number(additional)
        .add_sum(scratch.question_sum)
        .add_part(piece_sum, piece)
        .add_part(opt_sum, opt_at)
        .udp_checksum();
    let piece = headers.udp + UDP_HEADER + piece;
    Ok(Plan { piece, piece_len, owner: owner.to_be(), opt, udp_len, checksum, flags, additional })
}

/// Writes everything before the question; what the query had there begins `moved` octets further behind.
/// `None` before the first write when the packet is too short.
#[inline(always)]
fn write_headers(packet: &Packet, headers: &Headers, plan: &Plan, moved: u32) -> Option<()> {
    const MESSAGE: usize = (UDP_HEADER + DNS_HEADER) as usize;
    let frame = packet.front::<{ ETHERNET_HEADER as usize }>()?;
    let message = packet.at::<MESSAGE>(headers.udp)?;
    let old = packet.at::<{ ETHERNET_HEADER as usize }>(moved)?;
    let (ours, our_end) = (old.u32::<0>(), old.u16::<4>());
    let (theirs, their_end) = (old.u32::<6>(), old.u16::<10>());
    let ethertype = old.u16::<12>();
    let tag = |number: u32| packet.at::<{ VLAN_TAG as usize }>(moved + ETHERNET_HEADER + number * VLAN_TAG);
    let mut tags = [0; MAX_VLAN_TAGS as usize];
    if headers.link > ETHERNET_HEADER {
        tags[0] = tag(0)?.u32::<0>();
    }
    if headers.link > ETHERNET_HEADER + VLAN_TAG {
        tags[1] = tag(1)?.u32::<0>();
    }
    let old_ip = headers.link.wrapping_add(moved);
    if headers.ipv6 {
        let ip = packet.at::<{ IPV6_HEADER as usize }>(headers.link)?;
        let old = packet.at::<{ IPV6_HEADER as usize }>(old_ip)?;
        let source = [old.u64::<8>(), old.u64::<16>()];
        let destination = [old.u64::<24>(), old.u64::<32>()];
        // Flow label 0: the client's label says nothing about the way back (RFC 6437 §3).
        ip.set_u32::<0>(0x6000_0000u32.to_be());
        ip.set_u16::<4>(plan.udp_len.to_be());
        ip.set_u16::<6>(u16::from_be_bytes([UDP, HOP_LIMIT]).to_be());
        ip.set_u64::<8>(destination[0]);
        ip.set_u64::<16>(destination[1]);
        ip.set_u64::<24>(source[0]);
        ip.set_u64::<32>(source[1]);
    } else {
        let ip = packet.at::<{ IPV4_HEADER as usize }>(headers.link)?;
        let old = packet.at::<{ IPV4_HEADER as usize }>(old_ip)?;
        let (source, destination) = (old.u32::<12>(), old.u32::<16>());
        let len = (IPV4_HEADER as u16).wrapping_add(plan.udp_len);
        let first = u16::from_be_bytes([IPV4_FIRST, 0]);
        let hops = u16::from_be_bytes([HOP_LIMIT, UDP]);
        // DF is set, so the ID has no use and is 0 (RFC 6864 §4.1).
        let checksum = headers
            .addresses
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
    frame.set_u32::<0>(theirs);
    frame.set_u16::<4>(their_end);
    frame.set_u32::<6>(ours);
    frame.set_u16::<10>(our_end);
    frame.set_u16::<12>(ethertype);
    let tag = |number: u32| packet.at::<{ VLAN_TAG as usize }>(ETHERNET_HEADER + number * VLAN_TAG);
    if headers.link > ETHERNET_HEADER {
        tag(0)?.set_u32::<0>(tags[0]);
    }
    if headers.link > ETHERNET_HEADER + VLAN_TAG {
        tag(1)?.set_u32::<0>(tags[1]);
    }

    message.set_u16::<0>(DNS_PORT.to_be());
    message.set_u16::<2>((headers.ports.to_le() as u16).to_le());
    message.set_u16::<4>(plan.udp_len.to_be());
    message.set_u16::<6>(plan.checksum);
    message.set_u16::<8>(headers.id);
    message.set_u16::<10>(plan.flags.to_be());
    Some(())
}

/// Moves the question to where it belongs, when the packet has grown at its head.
#[inline(always)]
fn move_question(packet: &Packet, headers: &Headers, plan: &Plan, moved: u32) -> Option<()> {
    if moved == 0 {
        return Some(());
    }
    let question = headers.udp.wrapping_add(UDP_HEADER + DNS_HEADER);
    // The last word overlaps the one before, and is read before anything is written over it.
    let last = packet.before::<8>(plan.piece.wrapping_add(moved))?.u64::<0>();
    let mut from = packet.cursor(question.wrapping_add(moved))?;
    let mut to = packet.cursor(question)?;
    let mut left = opaque(plan.piece.wrapping_sub(question) as usize);
    if left > MAX_NAME + QUESTION_TAIL as usize {
        return None;
    }
    while left >= 8 {
        to.next::<8>()?.set_u64::<0>(from.next::<8>()?.u64::<0>());
        left = opaque(left - 8);
    }
    packet.before::<8>(plan.piece)?.set_u64::<0>(last);
    Some(())
}

/// Writes QDCOUNT, ANCOUNT, NSCOUNT and ARCOUNT.
///
/// Not with the other headers: moving the shortest questions by whole words brings the end of the old
/// header along.
#[inline(always)]
fn write_counts(packet: &Packet, headers: &Headers, cell: &Cell, plan: &Plan) -> Option<()> {
    let counts = 1 << 48
        | u64::from(cell.ancount) << 32
        | u64::from(cell.nscount()) << 16
        | u64::from(plan.additional);
    packet.before::<8>(headers.udp.wrapping_add(UDP_HEADER + DNS_HEADER))?.set_u64::<0>(counts.to_be());
    Some(())
}

/// Writes a piece that its cell holds.
#[inline(always)]
fn write_piece(packet: &Packet, plan: &Plan, at: u32, cell: &Cell) -> Option<()> {
    let mut writer = Writer::new(packet, at, plan.piece_len)?;
    let words = cell.piece_words();
    let mut i = 0;
    while i < words.len() && writer.left > 0 {
        writer.word(words[i])?;
        i += 1;
    }
    Some(())
}

/// Writes the owner of a piece's first record, and the same pointer where names of an SOA end in the zone.
#[inline(always)]
fn write_pointers(packet: &Packet, plan: &Plan, at: u32, cell: &Cell) -> Option<()> {
    packet.at::<2>(at)?.set_u16::<0>(plan.owner);
    let ends = cell.ends();
    if ends[0] != 0 {
        packet.at::<2>(at.wrapping_add(u32::from(ends[0])))?.set_u16::<0>(plan.owner);
    }
    if ends[1] != 0 {
        packet.at::<2>(at.wrapping_add(u32::from(ends[1])))?.set_u16::<0>(plan.owner);
    }
    Some(())
}

/// Writes a piece that stands in lines.
#[inline(always)]
fn write_lines(packet: &Packet, plan: &Plan, at: u32, tables: &Half, first_line: u32) -> Option<()> {
    let mut writer = Writer::new(packet, at, plan.piece_len)?;
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

/// Writes the OPT record, when there is one.
#[inline(always)]
fn write_opt(packet: &Packet, plan: &Plan, at: u32) -> Option<()> {
    let ([a, b, c, d, e], len) = plan.opt;
    if len == 0 {
        return Some(());
    }
    let mut writer = Writer::new(packet, at, len)?;
    writer.word(a.to_le())?;
    writer.word(b.to_le())?;
    if writer.left > 0 {
        writer.word(c.to_le())?;
    }
    if writer.left > 0 {
        writer.word(d.to_le())?;
    }
    if writer.left > 0 {
        writer.word(e.to_le())?;
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
    fn new(packet: &'p Packet, at: u32, len: u32) -> Option<Self> {
        Some(Self {
            packet,
            end: at.wrapping_add(len),
            cursor: packet.cursor(at)?,
            left: opaque(len as usize),
            before: 0,
        })
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
