//! A query read in strict terms: header, question, and which of the other records matter.
//!
//! Nothing here decides; [`Query::parse`] says what was asked, or which error is the answer.

use router_common::model::rtype;
use router_common::name::Name;

use super::edns::{Edns, Malformed};
use super::tsig::{Signature, TYPE_TSIG};

/// Octets of a message header (RFC 1035 §4.1.1).
const HEADER: usize = 12;
/// Longest name, root label included (RFC 1035 §2.3.4).
const MAX_NAME: usize = 255;

const TYPE_OPT: u16 = 41;

/// Why a query gets an error before anything is looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// FORMERR.
    Format,
    /// No question in a message that is otherwise sound: FORMERR, unless a cookie is all that is wanted (RFC
    /// 7873 §5.4).
    NoQuestion,
    /// NOTIMP: an opcode other than QUERY.
    Opcode,
    /// BADVERS: EDNS above version 0 (RFC 6891 §6.1.3).
    Version,
    /// NOTAUTH: signed, and the signature is not good (RFC 8945 §5.2).
    Signature,
}

/// What was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Question<'q> {
    /// QNAME, QTYPE and QCLASS as they were sent, letter for letter.
    pub octets: &'q [u8],
    /// QNAME, folded.
    pub name: Name,
    /// QTYPE.
    pub qtype: u16,
    /// QCLASS.
    pub qclass: u16,
}

/// A message that gets a reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Query<'q> {
    /// The octets that it was read from.
    pub message: &'q [u8],
    /// Message id.
    pub id: u16,
    /// OPCODE, 0..=15.
    pub opcode: u8,
    /// RD.
    pub recursion_desired: bool,
    /// The question, when there is exactly one and it can be read.
    pub question: Option<Question<'q>>,
    /// What the OPT record says, when one was there.
    pub edns: Option<Edns<'q>>,
    /// The TSIG record, when every record could be read.
    pub signature: Option<Signature<'q>>,
    /// The serial number of the zone that an IXFR client has, from the SOA record it sends (RFC 1995 §3).
    pub client_serial: Option<u32>,
    /// The error that is the answer, if one is.
    pub fault: Option<Fault>,
}

impl<'q> Query<'q> {
    /// Reads a message. `None`: it must not be answered, because it is a response (answering one makes
    /// two servers talk for ever) or shorter than a header.
    pub fn parse(message: &'q [u8]) -> Option<Self> {
        let mut reader = Reader { message, at: 0 };
        let id = reader.number()?;
        let flags = reader.number()?;
        let counts = [reader.number()?, reader.number()?, reader.number()?, reader.number()?];
        debug_assert_eq!(reader.at, HEADER);
        if flags & 0x8000 != 0 {
            return None;
        }
        let mut query = Query {
            message,
            id,
            opcode: (flags >> 11) as u8 & 0xf,
            recursion_desired: flags & 0x0100 != 0,
            question: None,
            edns: None,
            signature: None,
            client_serial: None,
            fault: None,
        };
        let read = query.read_sections(&mut reader, counts);
        query.fault = if query.opcode == 0 { read.err() } else { Some(Fault::Opcode) };
        Some(query)
    }

    /// Reads what follows the header. The question and the OPT record are kept even when something after
    /// them is broken, because an error reply carries both (RFC 6891 §7). Octets after the last record are
    /// ignored.
    fn read_sections(&mut self, reader: &mut Reader<'q>, counts: [u16; 4]) -> Result<(), Fault> {
        let [questions, answers, authorities, additionals] = counts;
        if questions == 1 {
            self.question = Some(reader.question().ok_or(Fault::Format)?);
        } else {
            for _ in 0..questions {
                reader.question().ok_or(Fault::Format)?;
            }
        }
        let mut broken = questions > 1;
        for _ in 0..u32::from(answers) + u32::from(authorities) {
            let record = self.read_record(reader)?;
            broken |= matches!(record.rtype, TYPE_OPT | TYPE_TSIG);
            if record.rtype == rtype::SOA {
                self.client_serial = serial_of(record.rdata);
            }
        }
        let (mut options, mut signature) = (None, None);
        for _ in 0..additionals {
            // RFC 8945 §5.1: TSIG is the last record.
            broken |= signature.is_some();
            let start = reader.at;
            let record = self.read_record(reader)?;
            match record.rtype {
                TYPE_OPT => broken |= record.owner != [0] || options.replace(record.rdata).is_some(),
                TYPE_TSIG => {
                    signature = name_at(reader.message, start)
                        .and_then(|key| Signature::parse(start, key, record.class, record.ttl, record.rdata));
                    broken |= signature.is_none();
                }
                // Whatever else is there says nothing about the question; so does SIG(0) (RFC 2931) by a
                // key that nobody gave us.
                _ => {}
            }
        }
        if broken {
            return Err(Fault::Format);
        }
        self.signature = signature;
        if let (Some(edns), Some(options)) = (&mut self.edns, options) {
            if edns.version > 0 {
                return Err(Fault::Version);
            }
            *edns = edns.with_options(options).map_err(|Malformed| Fault::Format)?;
        }
        if questions == 0 {
            return Err(Fault::NoQuestion);
        }
        Ok(())
    }

    /// Reads one record; an OPT's fixed part is kept as soon as it is seen.
    fn read_record(&mut self, reader: &mut Reader<'q>) -> Result<Record<'q>, Fault> {
        let mut record = reader.record_head().ok_or(Fault::Format)?;
        if record.rtype == TYPE_OPT && self.edns.is_none() {
            self.edns = Some(Edns::from_head(record.class, record.ttl));
        }
        record.rdata = reader.take(usize::from(record.rdata_len)).ok_or(Fault::Format)?;
        Ok(record)
    }
}

/// A record that is not a question.
struct Record<'q> {
    /// As sent: a pointer may end it.
    owner: &'q [u8],
    rtype: u16,
    class: u16,
    ttl: u32,
    rdata_len: u16,
    rdata: &'q [u8],
}

/// Octets of the uncompressed name that some octets start with.
pub(super) fn name_len(octets: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match octets.get(at)? {
            0 => return (at < MAX_NAME).then_some(at + 1),
            &len @ 1..=63 => at += 1 + usize::from(len),
            _ => return None,
        }
    }
}

/// The name at an offset. Pointers are followed, each further back than the one before, so that this ends.
fn name_at(message: &[u8], start: usize) -> Option<Name> {
    let mut wire = Vec::with_capacity(32);
    let (mut at, mut bound) = (start, start);
    loop {
        match *message.get(at)? {
            0 => {
                wire.push(0);
                return Name::from_wire(&wire).ok();
            }
            len @ 1..=63 => {
                wire.extend_from_slice(message.get(at..at + 1 + usize::from(len))?);
                at += 1 + usize::from(len);
            }
            high @ 0xc0.. => {
                let low = *message.get(at + 1)?;
                at = usize::from(high & 0x3f) << 8 | usize::from(low);
                (at < bound).then_some(())?;
                bound = at;
            }
            _ => return None,
        }
        (wire.len() < MAX_NAME).then_some(())?;
    }
}

/// SERIAL of a SOA record's data: the five numbers stand at its end, whether its names are compressed or not.
fn serial_of(rdata: &[u8]) -> Option<u32> {
    let numbers = rdata.last_chunk::<20>().filter(|_| rdata.len() >= 22)?;
    numbers.first_chunk::<4>().copied().map(u32::from_be_bytes)
}

/// Reads forward through a message; every step ends with `None` at its end.
struct Reader<'q> {
    message: &'q [u8],
    at: usize,
}

impl<'q> Reader<'q> {
    fn take(&mut self, len: usize) -> Option<&'q [u8]> {
        let taken = self.message.get(self.at..self.at.checked_add(len)?)?;
        self.at += len;
        Some(taken)
    }

    fn number(&mut self) -> Option<u16> {
        self.take(2).and_then(|octets| octets.try_into().ok()).map(u16::from_be_bytes)
    }

    /// A question with a plain name: there is nothing before it that a pointer could mean.
    fn question(&mut self) -> Option<Question<'q>> {
        let start = self.at;
        let name_len = name_len(self.message.get(start..)?)?;
        let name = Name::from_wire(self.take(name_len)?).ok()?;
        let (qtype, qclass) = (self.number()?, self.number()?);
        Some(Question { octets: self.message.get(start..self.at)?, name, qtype, qclass })
    }

    /// A record up to its data.
    fn record_head(&mut self) -> Option<Record<'q>> {
        let owner = self.owner()?;
        let (rtype, class) = (self.number()?, self.number()?);
        let ttl = u32::from(self.number()?) << 16 | u32::from(self.number()?);
        Some(Record { owner, rtype, class, ttl, rdata_len: self.number()?, rdata: &[] })
    }

    /// An owner name as it stands; a pointer ends it and is not followed.
    fn owner(&mut self) -> Option<&'q [u8]> {
        let start = self.at;
        loop {
            match self.take(1)? {
                [0] => break,
                &[len @ 1..=63] => self.take(usize::from(len))?,
                [0xc0..=0xff] => {
                    self.take(1)?;
                    break;
                }
                _ => return None,
            };
        }
        self.message.get(start..self.at).filter(|owner| owner.len() <= MAX_NAME)
    }
}
