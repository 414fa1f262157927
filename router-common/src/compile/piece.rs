//! Ready-made pieces of wire for the fast path.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::abi::{Cell, INLINE_PIECE, MAX_PIECE};
use crate::decide::{Credits, Records};
use crate::model::{Zone, rtype};
use crate::name::Name;

/// A piece of a reply, without its place in an alias table.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Piece {
    /// [`Cell::RECORDS`], [`Cell::NODATA`] or [`Cell::PASS`].
    pub kind: u8,
    /// ANCOUNT.
    pub ancount: u8,
    /// [`Cell::ends`].
    pub ends: [u8; 2],
    /// Whom records come by, and their TTL.
    pub credit: Option<(Credits, u32)>,
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
        Self { kind: Cell::PASS, ancount: 0, ends: [0; 2], credit: None, wire: Wire::of(&[]) }
    }

    /// One RRset for the answer section, its owner a pointer to QNAME; a pass when it is too long.
    pub fn records(records: &Records, ttl: u32, credits: &Credits) -> Self {
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
                let credit = Some((Arc::clone(credits), ttl));
                Self { kind: Cell::RECORDS, ancount, ends: [0; 2], credit, wire: writer.finish() }
            }
            _ => Self::pass(),
        }
    }

    /// The address of one A record, when it is nothing else.
    pub fn address(&self) -> Option<[u8; 4]> {
        let (head, address) = self.wire.split_at_checked(RECORD_HEAD)?;
        let is_a = self.kind == Cell::RECORDS && self.ancount == 1 && head[2..4] == rtype::A.to_be_bytes();
        if is_a { address.try_into().ok() } else { None }
    }

    /// The SOA of a negative answer; its owner, and the ends of names in it that lie in the zone, are filled in by
    /// the fast path. A pass when such an end is too far from the start.
    pub fn nodata(zone: &Zone) -> Self {
        let mut ends = [0; 2];
        let mut rdata = Vec::with_capacity(64);
        for (name, end) in [&zone.soa.mname, &zone.soa.rname].into_iter().zip(&mut ends) {
            match head_in(name, &zone.name) {
                Some(head) => {
                    rdata.extend_from_slice(head);
                    let Ok(at) = u8::try_from(RECORD_HEAD + rdata.len()) else { return Self::pass() };
                    *end = at;
                    rdata.extend_from_slice(&[0; 2]);
                }
                None => rdata.extend_from_slice(name.as_wire()),
            }
        }
        rdata.extend_from_slice(&zone.soa.numbers());
        let mut writer = Writer::default();
        writer.record(0, rtype::SOA, zone.negative_ttl(), &rdata);
        let mut octets = writer.into_octets();
        octets[..2].fill(0);
        Self { kind: Cell::NODATA, ancount: 0, ends, credit: None, wire: Wire::of(&octets) }
    }
}

/// Octets of a record before its data, the owner a pointer.
const RECORD_HEAD: usize = 12;

/// The labels of a name before the zone it lies in. `None` outside of the zone, and in the root, whose name is
/// shorter than a pointer to it.
fn head_in<'n>(name: &'n Name, zone: &Name) -> Option<&'n [u8]> {
    let head = name.as_wire().len().checked_sub(zone.as_wire().len())?;
    (zone.as_wire().len() > 1 && name.is_within(zone)).then(|| name.as_wire().get(..head)).flatten()
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::abi::{Answer, MAX_TALLIES};

    #[test]
    fn an_address_in_its_answer_is_what_its_cell_would_be() {
        let credits: Credits = Arc::new([]);
        for octets in [[192, 0, 2, 1], [0; 4], [255; 4], [0, 0, 255, 255]] {
            for ttl in [0, 30, 255, 256, Answer::MAX_TTL] {
                for tally in [0, 1, MAX_TALLIES - 1] {
                    let piece = Piece::records(&Records::A(vec![Ipv4Addr::from(octets)]), ttl, &credits);
                    assert_eq!(piece.address(), Some(octets));
                    let answer = Answer::address(octets, ttl, tally).unwrap();
                    assert!(answer.is_address());
                    let mut cell = Cell::EMPTY;
                    answer.write_address(&mut cell);
                    assert_eq!(cell.piece[..usize::from(cell.len)], piece.wire[..], "{octets:?} {ttl}");
                    assert_eq!((cell.kind, cell.ancount), (piece.kind, piece.ancount));
                    assert_eq!((cell.sum, cell.tally()), (sum(&piece.wire), tally));
                }
            }
        }
        assert_eq!(Answer::address([0; 4], Answer::MAX_TTL + 1, 0), None);
        assert_eq!(Answer::address([0; 4], 0, MAX_TALLIES), None);
        assert!(!Answer::new(u32::MAX, u16::MAX, crate::abi::Pick::Hashed, 0xfff).is_address());
    }

    #[test]
    fn nothing_but_one_a_record_is_an_address() {
        let credits: Credits = Arc::new([]);
        // Four octets of data, like an address.
        let target = "ab".parse::<Name>().unwrap();
        assert_eq!(target.as_wire().len(), 4);
        for records in [
            Records::A(vec![Ipv4Addr::LOCALHOST; 2]),
            Records::Aaaa(vec![std::net::Ipv6Addr::LOCALHOST]),
            Records::Cname(target),
        ] {
            assert_eq!(Piece::records(&records, 30, &credits).address(), None);
        }
        assert_eq!(Piece::pass().address(), None);
    }
}
