//! A reply as octets: header, question, record sets with compressed names, OPT, and what is left of it
//! when it does not fit.

use router_common::model::rtype;

use super::answer::{Answer, RecordSet};
use super::edns::ReplyOpt;
use super::query::{Query, Question, name_len};

/// Offsets kept for compression. More would only help messages with many different names, and each is
/// compared with every later name.
const MAX_TARGETS: usize = 64;
/// A pointer has 14 bits (RFC 1035 §4.1.4).
const MAX_POINTER: usize = 0x3fff;
const CLASS_IN: u16 = 1;

const TYPE_PTR: u16 = 12;
const TYPE_MX: u16 = 15;

/// A finished reply.
pub(super) struct Reply {
    /// The message.
    pub octets: Vec<u8>,
    /// Whether TC is set.
    pub truncated: bool,
}

/// Writes the reply to a query. `limit` is the largest message; `udp_size` is told in OPT.
pub(super) fn write(query: &Query<'_>, answer: &Answer<'_>, limit: usize, udp_size: u16) -> Reply {
    let opt = query.edns.as_ref().map(|edns| {
        let client_subnet = edns.client_subnet.map(|subnet| (subnet, answer.scope));
        ReplyOpt { udp_size, rcode_high: answer.rcode.high(), dnssec_ok: edns.dnssec_ok, client_subnet }
            .to_wire()
    });
    let opt = opt.unwrap_or_default();
    let mut writer = Writer::new(query.question.as_ref(), limit.min(512));
    let bare = writer.octets.len();
    let room = limit.saturating_sub(opt.len());

    let mut counts = [0u16; 3];
    let sections = [&answer.answers, &answer.authority, &answer.glue];
    let mut truncated = false;
    for (section, count) in sections.into_iter().zip(&mut counts) {
        truncated = truncated || section.iter().any(|set| writer.record_set(set, room, count).is_err());
    }
    if truncated {
        // Records of which some are missing are no answer, and a cache might take them for one (RFC 2181
        // §9): the client comes back over TCP with nothing but the question.
        writer.octets.truncate(bare);
        counts = [0; 3];
    } else {
        for set in &answer.further {
            let (before, known) = (writer.octets.len(), writer.targets.len());
            let mut more = counts[2];
            if writer.record_set(set, room, &mut more).is_err() {
                writer.octets.truncate(before);
                writer.targets.truncate(known);
                break;
            }
            counts[2] = more;
        }
    }
    if !opt.is_empty() {
        writer.octets.extend_from_slice(&opt);
        counts[2] += 1;
    }

    let mut flags = 0x8000 | u16::from(query.opcode) << 11 | u16::from(answer.rcode.low());
    flags |= u16::from(answer.authoritative) << 10 | u16::from(truncated) << 9;
    // RD is copied, except that an unknown opcode may use the bit for something else.
    flags |= u16::from(query.recursion_desired && query.opcode == 0) << 8;
    let questions = u16::from(query.question.is_some());
    writer.header([query.id, flags, questions, counts[0], counts[1], counts[2]]);
    Reply { octets: writer.octets, truncated }
}

/// A record that does not fit.
struct TooBig;

/// Writes names and records, and remembers where names stand.
pub(super) struct Writer {
    pub octets: Vec<u8>,
    /// Offsets of names, or of ends of names, that a pointer may point at.
    targets: Vec<u16>,
}

impl Writer {
    /// A message without records, its header to be filled in.
    pub fn new(question: Option<&Question<'_>>, capacity: usize) -> Self {
        let mut writer = Self { octets: Vec::with_capacity(capacity), targets: Vec::new() };
        writer.octets.extend_from_slice(&[0; 12]);
        if let Some(question) = question {
            writer.octets.extend_from_slice(question.octets);
            writer.remember(12, question.name.as_wire());
        }
        writer
    }

    /// Writes records of a set from the `from`th on, as many as end within `room`; how many.
    pub fn records(&mut self, set: &RecordSet<'_>, from: usize, room: usize) -> u16 {
        let mut written = 0;
        for rdata in set.rdata.get(from..).unwrap_or_default() {
            let (before, known) = (self.octets.len(), self.targets.len());
            if self.record(set, rdata).is_err() || self.octets.len() > room || written == u16::MAX {
                self.octets.truncate(before);
                self.targets.truncate(known);
                break;
            }
            written += 1;
        }
        written
    }

    /// Fills in the header.
    pub fn header(&mut self, header: [u16; 6]) {
        for (to, from) in self.octets.iter_mut().zip(header.into_iter().flat_map(u16::to_be_bytes)) {
            *to = from;
        }
    }

    fn record_set(&mut self, set: &RecordSet<'_>, room: usize, count: &mut u16) -> Result<(), TooBig> {
        for rdata in set.rdata.iter() {
            self.record(set, rdata)?;
            *count = count.checked_add(1).ok_or(TooBig)?;
            if self.octets.len() > room {
                return Err(TooBig);
            }
        }
        Ok(())
    }

    fn record(&mut self, set: &RecordSet<'_>, rdata: &[u8]) -> Result<(), TooBig> {
        self.name(set.owner.as_wire());
        self.octets.extend_from_slice(&set.rtype.to_be_bytes());
        self.octets.extend_from_slice(&CLASS_IN.to_be_bytes());
        self.octets.extend_from_slice(&set.ttl.to_be_bytes());
        let at = self.octets.len();
        self.octets.extend_from_slice(&[0; 2]);
        self.rdata(set.rtype, rdata);
        let len = u16::try_from(self.octets.len() - at - 2).map_err(|_| TooBig)?;
        if let Some(field) = self.octets.get_mut(at..at + 2) {
            field.copy_from_slice(&len.to_be_bytes());
        }
        Ok(())
    }

    /// Record data; names in it are compressed only where every resolver knows the type (RFC 3597 §4).
    fn rdata(&mut self, record_type: u16, rdata: &[u8]) {
        let (fixed, names) = match record_type {
            rtype::NS | rtype::CNAME | TYPE_PTR => (0, 1),
            rtype::SOA => (0, 2),
            TYPE_MX => (2, 1),
            _ => (rdata.len(), 0),
        };
        let (head, mut rest) = rdata.split_at_checked(fixed).unwrap_or((rdata, &[]));
        self.octets.extend_from_slice(head);
        for _ in 0..names {
            let Some((name, after)) = name_len(rest).and_then(|len| rest.split_at_checked(len)) else {
                break;
            };
            self.name(name);
            rest = after;
        }
        self.octets.extend_from_slice(rest);
    }

    /// A name in wire form, its longest known end as a pointer.
    fn name(&mut self, name: &[u8]) {
        let start = self.octets.len();
        let mut rest = name;
        while let Some((&len @ 1.., _)) = rest.split_first() {
            if let Some(&target) = self.targets.iter().find(|&&target| self.stands_at(target, rest)) {
                self.octets.extend_from_slice(&(0xc000 | target).to_be_bytes());
                self.remember(start, &name[..name.len() - rest.len()]);
                return;
            }
            let Some((label, after)) = rest.split_at_checked(1 + usize::from(len)) else { break };
            self.octets.extend_from_slice(label);
            rest = after;
        }
        self.octets.push(0);
        self.remember(start, name);
    }

    /// Notes that labels were written out at an offset.
    fn remember(&mut self, start: usize, mut labels: &[u8]) {
        let mut at = start;
        while let Some((&len @ 1.., _)) = labels.split_first() {
            if at > MAX_POINTER || self.targets.len() >= MAX_TARGETS {
                return;
            }
            self.targets.push(at as u16);
            at += 1 + usize::from(len);
            labels = labels.get(1 + usize::from(len)..).unwrap_or_default();
        }
    }

    /// Whether the name written at an offset is this one, whatever the case of its letters.
    fn stands_at(&self, target: u16, mut name: &[u8]) -> bool {
        let mut at = usize::from(target);
        // Pointers of ours only point back, so this ends.
        loop {
            match (self.octets.get(at), name.first()) {
                (Some(&high @ 0xc0..), _) => {
                    let Some(&low) = self.octets.get(at + 1) else { return false };
                    at = usize::from(high & 0x3f) << 8 | usize::from(low);
                }
                (Some(0), Some(0)) => return true,
                (Some(here), Some(there)) if here == there => {
                    let len = 1 + usize::from(*here);
                    match (self.octets.get(at..at + len), name.split_at_checked(len)) {
                        (Some(mine), Some((label, rest))) if mine.eq_ignore_ascii_case(label) => {
                            at += len;
                            name = rest;
                        }
                        _ => return false,
                    }
                }
                _ => return false,
            }
        }
    }
}
