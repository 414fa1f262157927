//! Ready-made pieces of wire for the fast path.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::abi::{Cell, INLINE_PIECE, MAX_PIECE};
use crate::decide::Records;
use crate::model::{Zone, rtype};

/// A piece of a reply, without its place in an alias table.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Piece {
    /// [`Cell::RECORDS`], [`Cell::NODATA`] or [`Cell::PASS`].
    pub kind: u8,
    /// ANCOUNT.
    pub ancount: u8,
    /// NSCOUNT.
    pub nscount: u8,
    /// The records.
    pub wire: Wire,
}

/// Octets of records: short ones, which most are, stand here, long ones are shared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wire {
    /// At most [`INLINE_PIECE`] octets, zeros after them.
    Short(u8, [u8; INLINE_PIECE]),
    /// More.
    Long(Arc<[u8]>),
}

impl Wire {
    fn of(octets: &[u8]) -> Self {
        let mut short = [0; INLINE_PIECE];
        match (short.get_mut(..octets.len()), u8::try_from(octets.len())) {
            (Some(held), Ok(len)) => {
                held.copy_from_slice(octets);
                Self::Short(len, short)
            }
            _ => Self::Long(octets.into()),
        }
    }
}

impl Hash for Wire {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self);
    }
}

impl std::ops::Deref for Wire {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Short(len, octets) => octets.get(..usize::from(*len)).unwrap_or_default(),
            Self::Long(octets) => octets,
        }
    }
}

impl Piece {
    /// What the fast path leaves to userspace.
    pub fn pass() -> Self {
        Self { kind: Cell::PASS, ancount: 0, nscount: 0, wire: Wire::of(&[]) }
    }

    /// One RRset for the answer section, its owner a pointer to QNAME; a pass when it is too long.
    pub fn records(records: &Records, ttl: u32) -> Self {
        let mut writer = Writer::default();
        let count = match records {
            Records::A(addresses) => {
                for address in addresses {
                    writer.record(12, rtype::A, ttl, &address.octets());
                }
                addresses.len()
            }
            Records::Aaaa(addresses) => {
                for address in addresses {
                    writer.record(12, rtype::AAAA, ttl, &address.octets());
                }
                addresses.len()
            }
            Records::Cname(target) => {
                writer.record(12, rtype::CNAME, ttl, target.as_wire());
                1
            }
        };
        match u8::try_from(count) {
            Ok(ancount) if writer.len() <= MAX_PIECE && ancount > 0 => {
                Self { kind: Cell::RECORDS, ancount, nscount: 0, wire: writer.finish() }
            }
            _ => Self::pass(),
        }
    }

    /// The SOA of a negative answer; its owner is patched in by the fast path.
    pub fn nodata(zone: &Zone) -> Self {
        let mut writer = Writer::default();
        writer.record(0, rtype::SOA, zone.negative_ttl(), &zone.soa.to_wire());
        let mut octets = writer.into_octets();
        octets[..2].fill(0);
        Self { kind: Cell::NODATA, ancount: 0, nscount: 1, wire: Wire::of(&octets) }
    }
}

/// Octets being written; allocates only what does not fit into a cell.
struct Writer {
    short: [u8; INLINE_PIECE],
    len: usize,
    /// All of them, once they are many.
    long: Vec<u8>,
}

impl Default for Writer {
    fn default() -> Self {
        Self { short: [0; INLINE_PIECE], len: 0, long: Vec::new() }
    }
}

impl Writer {
    /// Appends a record whose owner is a compression pointer to `owner` (RFC 1035 §4.1.4). Record data is
    /// an address, a name or an SOA: at most 530 octets.
    fn record(&mut self, owner: u8, rtype: u16, ttl: u32, rdata: &[u8]) {
        let mut head = [0xc0, owner, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        head[2..4].copy_from_slice(&rtype.to_be_bytes());
        head[6..10].copy_from_slice(&ttl.to_be_bytes());
        head[10..].copy_from_slice(&(rdata.len() as u16).to_be_bytes());
        self.put(&head);
        self.put(rdata);
    }

    fn put(&mut self, octets: &[u8]) {
        let end = self.len() + octets.len();
        if self.long.is_empty() {
            if let Some(place) = self.short.get_mut(self.len..end) {
                place.copy_from_slice(octets);
                self.len = end;
                return;
            }
            self.long.extend_from_slice(&self.short[..self.len]);
        }
        self.long.extend_from_slice(octets);
    }

    fn len(&self) -> usize {
        if self.long.is_empty() { self.len } else { self.long.len() }
    }

    fn into_octets(self) -> Vec<u8> {
        if self.long.is_empty() { self.short[..self.len].to_vec() } else { self.long }
    }

    fn finish(self) -> Wire {
        match u8::try_from(self.len) {
            Ok(len) if self.long.is_empty() => Wire::Short(len, self.short),
            _ => Wire::Long(self.long.into()),
        }
    }
}

/// One's-complement sum of a piece that starts at an even offset, as [`Cell::sum`] holds it.
pub fn sum(wire: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in wire.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
