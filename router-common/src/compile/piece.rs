//! Ready-made pieces of wire.

use crate::abi::{Cell, MAX_PIECE};
use crate::decide::Records;
use crate::model::{Zone, rtype};

/// A piece and what the header needs to know of it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Piece {
    pub kind: u8,
    pub ancount: u8,
    pub nscount: u8,
    pub octets: Vec<u8>,
}

impl Piece {
    /// Records for the answer section, their owner the pointer to the question; `None` when they are
    /// too long for the fast path.
    pub fn records(records: &Records, ttl: u32) -> Option<Self> {
        let mut octets = Vec::new();
        let ancount = match records {
            Records::A(addresses) => {
                addresses.iter().for_each(|each| record(&mut octets, rtype::A, ttl, &each.octets()));
                addresses.len()
            }
            Records::Aaaa(addresses) => {
                addresses.iter().for_each(|each| record(&mut octets, rtype::AAAA, ttl, &each.octets()));
                addresses.len()
            }
            Records::Cname(target) => {
                record(&mut octets, rtype::CNAME, ttl, target.as_wire());
                1
            }
        };
        let ancount = u8::try_from(ancount).ok().filter(|_| octets.len() <= MAX_PIECE)?;
        Some(Self { kind: Cell::RECORDS, ancount, nscount: 0, octets })
    }

    /// The zone's SOA for the authority section, with its negative TTL (RFC 2308 §3). The owner is
    /// zero: the reader puts the pointer to the zone there.
    pub fn nodata(zone: &Zone) -> Option<Self> {
        let mut octets = Vec::new();
        record(&mut octets, rtype::SOA, zone.negative_ttl(), &zone.soa.to_wire());
        octets.get_mut(..2)?.fill(0);
        (octets.len() <= MAX_PIECE).then_some(Self { kind: Cell::NODATA, ancount: 0, nscount: 1, octets })
    }
}

/// One record of class IN, owned by the name in the question.
fn record(octets: &mut Vec<u8>, rtype: u16, ttl: u32, rdata: &[u8]) {
    octets.extend_from_slice(&[0xc0, 12]);
    octets.extend_from_slice(&rtype.to_be_bytes());
    octets.extend_from_slice(&1u16.to_be_bytes());
    octets.extend_from_slice(&ttl.to_be_bytes());
    octets.extend_from_slice(&(rdata.len() as u16).to_be_bytes());
    octets.extend_from_slice(rdata);
}

/// One's-complement sum (RFC 1071) of octets as big-endian words, folded; an odd one is padded.
pub(super) fn sum(octets: &[u8]) -> u16 {
    let mut sum: u32 = octets
        .chunks(2)
        .map(|pair| match *pair {
            [high, low] => u32::from(u16::from_be_bytes([high, low])),
            [high] => u32::from(high) << 8,
            _ => 0,
        })
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_on_the_wire() {
        let piece = Piece::records(&Records::A(vec![[192, 0, 2, 1].into()]), 30).unwrap();
        assert_eq!(piece.octets, [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 30, 0, 4, 192, 0, 2, 1]);
        assert_eq!((piece.kind, piece.ancount, piece.nscount), (Cell::RECORDS, 1, 0));
    }

    #[test]
    fn too_many_records_are_refused() {
        let many = (0..65u8).map(|last| [192, 0, 2, last].into()).collect();
        assert_eq!(Piece::records(&Records::A(many), 30), None);
        let most = (0..64u8).map(|last| [192, 0, 2, last].into()).collect();
        assert_eq!(Piece::records(&Records::A(most), 30).unwrap().octets.len(), MAX_PIECE);
    }

    #[test]
    fn sums_fold() {
        assert_eq!(sum(&[0xff, 0xff, 0x00, 0x02]), 2);
        assert_eq!(sum(&[0x12, 0x34, 0x56]), 0x1234 + 0x5600);
        assert_eq!(sum(&[]), 0);
    }
}
