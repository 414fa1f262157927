//! A reply as octets: header, question, record sets with compressed names, OPT, and what is left of it
//! when it does not fit.

use router_common::counter::Counter;
use router_common::model::rtype;

use super::account::Account;
use super::answer::{Answer, Keep, Rcode, RecordSet};
use super::edns::{Ours, ReplyOpt};
use super::query::{Query, Question, name_len};
use super::tallies::Credited;

/// Octets of a header.
const HEADER: usize = 12;
/// Offsets kept for compression: every label of the longest question, since a negative answer points at the
/// zone in it, and some more. Each is compared with every later name.
const MAX_TARGETS: usize = 192;
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
    /// What the limit on replies counts it under.
    pub account: Account,
    /// Where its parts stand.
    pub parts: Parts,
    /// Whether the same question may be given the same records again.
    pub keep: Keep,
}

/// What is left of a reply when it is truncated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Parts {
    /// Octets of header and question.
    question_end: u16,
    /// Where OPT starts.
    opt: u16,
    /// Octets of OPT, 0 without one.
    opt_len: u16,
}

impl Parts {
    /// Leaves header, question and OPT of a reply, and sets TC (RFC 2181 §9, RFC 6891 §7).
    /// The reply begins at `start` and is the last thing in there.
    pub fn truncate(self, start: usize, octets: &mut Vec<u8>) {
        let [end, opt, len] = [self.question_end, self.opt, self.opt_len].map(usize::from);
        if octets.len() < start + opt + len || opt < end {
            return;
        }
        octets.copy_within(start + opt..start + opt + len, start + end);
        octets.truncate(start + end + len);
        let header = octets.get_mut(start..).and_then(|reply| reply.first_chunk_mut::<12>());
        if let Some([_, _, flags, _, _, _, counts @ ..]) = header {
            *flags |= 0x02;
            *counts = [0, 0, 0, 0, 0, u8::from(len > 0)];
        }
    }
}

/// Writes the reply to a query. `limit` is the largest message; `ours` goes into OPT.
pub(super) fn write(query: &Query<'_>, answer: &Answer<'_>, limit: usize, ours: Ours<'_>) -> Reply {
    let opt = query.edns.as_ref().map(|edns| {
        let client_subnet = edns.client_subnet.map(|subnet| (subnet, answer.scope));
        let (rcode_high, dnssec_ok) = (answer.rcode.high(), edns.dnssec_ok);
        let question = query.question.as_ref().map_or(0, |question| question.octets.len());
        let room = limit.saturating_sub(HEADER + question);
        ReplyOpt { ours, rcode_high, dnssec_ok, client_subnet }.to_wire(room)
    });
    let opt = opt.unwrap_or_default();
    let mut writer = Writer::new(query.question.as_ref(), limit.min(512), MAX_TARGETS);
    writer.whole_target = answer.whole_target;
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
    // A message has at most 65,535 octets.
    let parts =
        Parts { question_end: bare as u16, opt: writer.octets.len() as u16, opt_len: opt.len() as u16 };
    if !opt.is_empty() {
        writer.octets.extend_from_slice(&opt);
        counts[2] += 1;
    }

    let flags = Flags { rcode: answer.rcode, authoritative: answer.authoritative, truncated };
    writer.header(header(query, flags, counts));
    Reply { octets: writer.octets, truncated, account: answer.account, parts, keep: answer.keep }
}

/// What the header says of the answer.
#[derive(Clone, Copy)]
struct Flags {
    rcode: Rcode,
    authoritative: bool,
    truncated: bool,
}

/// The twelve octets.
fn header(query: &Query<'_>, flags: Flags, counts: [u16; 3]) -> [u8; 12] {
    let Flags { rcode, authoritative, truncated } = flags;
    let mut flags = 0x8000 | u16::from(query.opcode) << 11 | u16::from(rcode.low());
    flags |= u16::from(authoritative) << 10 | u16::from(truncated) << 9;
    // RD is copied, except that an unknown opcode may use the bit for something else.
    flags |= u16::from(query.recursion_desired && query.opcode == 0) << 8;
    let questions = u16::from(query.question.is_some());
    let mut octets = [0; 12];
    let words = [query.id, flags, questions, counts[0], counts[1], counts[2]];
    for (to, from) in octets.iter_mut().zip(words.into_iter().flat_map(u16::to_be_bytes)) {
        *to = from;
    }
    octets
}

/// A reply but for what differs between queries that ask the same: id, RD, the letters' case, OPT.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Body {
    /// The records behind the question. Pointers in them point into a question of the same length.
    octets: Box<[u8]>,
    counts: [u16; 3],
    rcode: Rcode,
    authoritative: bool,
    /// How a reply is counted.
    pub counter: Counter,
    /// What the limit on replies counts it under.
    pub account: Account,
    /// Whether a client subnet is told a scope; else it is 0.
    scoped: bool,
    /// Whom the records of a profile come by.
    pub credited: Option<Credited>,
}

impl Body {
    /// What [`write()`] makes of an answer when there is room for all of it. `None` when there never is.
    pub fn of(query: &Query<'_>, answer: &Answer<'_>, scoped: bool) -> Option<Self> {
        let question = query.question.as_ref()?;
        let plain = Query { edns: None, signature: None, question: Some(question.clone()), ..*query };
        let Reply { octets, truncated, .. } = write(&plain, answer, usize::from(u16::MAX), Ours::default());
        let records = octets.get(HEADER + question.octets.len()..).filter(|_| !truncated)?;
        let count = |at: usize| Some(u16::from_be_bytes([*octets.get(at)?, *octets.get(at + 1)?]));
        Some(Self {
            octets: records.into(),
            counts: [count(6)?, count(8)?, count(10)?],
            rcode: answer.rcode,
            authoritative: answer.authoritative,
            counter: answer.counter,
            account: answer.account,
            scoped,
            credited: answer.credited.clone(),
        })
    }

    /// Octets of memory.
    pub fn cost(&self) -> usize {
        size_of::<Self>() + self.octets.len()
    }

    /// Puts the reply at the end of `out`, with this scope where it has one. Where its parts stand; `None`, and
    /// nothing is put there, when it does not fit into `limit`.
    pub fn write(
        &self,
        query: &Query<'_>,
        scope: u8,
        limit: usize,
        ours: Ours<'_>,
        out: &mut Vec<u8>,
    ) -> Option<Parts> {
        let question = query.question.as_ref()?;
        let start = out.len();
        let mut counts = self.counts;
        counts[2] = counts[2].saturating_add(u16::from(query.edns.is_some()));
        let flags = Flags { rcode: self.rcode, authoritative: self.authoritative, truncated: false };
        out.extend_from_slice(&header(query, flags, counts));
        out.extend_from_slice(question.octets);
        let question_end = out.len() - start;
        out.extend_from_slice(&self.octets);
        let opt = out.len() - start;
        if let Some(edns) = &query.edns {
            let scope = if self.scoped { scope } else { 0 };
            let client_subnet = edns.client_subnet.map(|subnet| (subnet, scope));
            let (rcode_high, dnssec_ok) = (self.rcode.high(), edns.dnssec_ok);
            let room = limit.saturating_sub(question_end);
            ReplyOpt { ours, rcode_high, dnssec_ok, client_subnet }.write(room, out);
        }
        let len = out.len() - start;
        if len > limit {
            out.truncate(start);
            return None;
        }
        // A message has at most 65,535 octets.
        Some(Parts { question_end: question_end as u16, opt: opt as u16, opt_len: (len - opt) as u16 })
    }
}

/// A record that does not fit.
struct TooBig;

/// Writes names and records, and remembers where names stand.
pub(super) struct Writer {
    pub octets: Vec<u8>,
    /// Offsets of names, or of ends of names, that a pointer may point at.
    targets: Vec<u16>,
    /// Whether the target of a CNAME is not compressed.
    whole_target: bool,
    /// How many of them are kept.
    most: usize,
    /// CLASS of every record.
    class: u16,
}

impl Writer {
    /// A message without records, its header to be filled in. Each name is compared with at most this many
    /// names before it.
    pub fn new(question: Option<&Question<'_>>, capacity: usize, targets: usize) -> Self {
        // Records are of the class that was asked for.
        let class = question.map_or(CLASS_IN, |question| question.qclass);
        let mut writer = Self {
            octets: Vec::with_capacity(capacity),
            targets: Vec::new(),
            most: targets,
            class,
            whole_target: false,
        };
        writer.octets.extend_from_slice(&[0; HEADER]);
        if let Some(question) = question {
            writer.octets.extend_from_slice(question.octets);
            writer.remember(HEADER, question.name.as_wire());
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
    pub fn header(&mut self, header: [u8; HEADER]) {
        for (to, from) in self.octets.iter_mut().zip(header) {
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
        let owner_at = self.octets.len();
        self.name(set.owner.as_wire());
        self.octets.extend_from_slice(&set.rtype.to_be_bytes());
        self.octets.extend_from_slice(&self.class.to_be_bytes());
        self.octets.extend_from_slice(&set.ttl.to_be_bytes());
        let at = self.octets.len();
        self.octets.extend_from_slice(&[0; 2]);
        match set.rtype {
            rtype::SOA => self.soa(set.owner.as_wire(), owner_at, rdata),
            record_type => self.rdata(record_type, rdata),
        }
        let len = u16::try_from(self.octets.len() - at - 2).map_err(|_| TooBig)?;
        if let Some(field) = self.octets.get_mut(at..at + 2) {
            field.copy_from_slice(&len.to_be_bytes());
        }
        Ok(())
    }

    /// Record data; names in it are compressed only where every resolver knows the type (RFC 3597 §4).
    fn rdata(&mut self, record_type: u16, rdata: &[u8]) {
        let (fixed, names) = match record_type {
            rtype::CNAME if self.whole_target => (rdata.len(), 0),
            rtype::NS | rtype::CNAME | TYPE_PTR => (0, 1),
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

    /// The data of a SOA whose owner was just written. Names in the zone end with a pointer to its name, others stand
    /// in full: the fast path, which sends the same record after names of any length, can do no more, and
    /// who answers is not to be seen.
    fn soa(&mut self, zone: &[u8], zone_at: usize, rdata: &[u8]) {
        let pointer = match self.octets.get(zone_at..zone_at + 2) {
            Some(&[high @ 0xc0..=0xff, low]) => Some(u16::from_be_bytes([high, low])),
            _ => {
                u16::try_from(zone_at).ok().filter(|&at| usize::from(at) <= MAX_POINTER).map(|at| 0xc000 | at)
            }
        };
        let mut rest = rdata;
        for _ in 0..2 {
            let Some((name, after)) = name_len(rest).and_then(|len| rest.split_at_checked(len)) else {
                break;
            };
            match (pointer, head_in(name, zone)) {
                (Some(pointer), Some(head)) => {
                    self.octets.extend_from_slice(head);
                    self.octets.extend_from_slice(&pointer.to_be_bytes());
                }
                _ => self.octets.extend_from_slice(name),
            }
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
            if at > MAX_POINTER || self.targets.len() >= self.most {
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

/// The labels of a name before the zone it lies in. `None` outside of the zone, and in the root, whose name is
/// shorter than a pointer to it.
fn head_in<'n>(name: &'n [u8], zone: &[u8]) -> Option<&'n [u8]> {
    let mut rest = name;
    while rest.len() > zone.len() {
        let (&len, _) = rest.split_first()?;
        rest = rest.get(1 + usize::from(len)..)?;
    }
    let within = zone.len() > 1 && rest.eq_ignore_ascii_case(zone);
    within.then(|| name.get(..name.len() - rest.len())).flatten()
}
