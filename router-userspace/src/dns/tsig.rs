//! Signed queries (RFC 8945): we have no keys, and say so in the form that the client's library knows.

use super::query::name_len;

/// TYPE of the record.
pub(super) const TYPE_TSIG: u16 = 250;
const CLASS_ANY: u16 = 255;
/// ERROR for a key that is not known.
const BADKEY: u16 = 17;

/// What is sent back of a query's signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Signature<'q> {
    /// The key's name, as sent.
    pub key: &'q [u8],
    /// The algorithm's name, as sent.
    pub algorithm: &'q [u8],
    /// Time signed and fudge, as sent.
    pub time: [u8; 8],
    /// Original id, as sent.
    pub id: [u8; 2],
}

impl<'q> Signature<'q> {
    /// Reads a TSIG record, given its owner and data. `None`: it is malformed. Its MAC is not looked at.
    pub fn parse(key: &'q [u8], rdata: &'q [u8]) -> Option<Self> {
        name_len(key).filter(|&len| len == key.len())?;
        let (algorithm, rest) = rdata.split_at_checked(name_len(rdata)?)?;
        let (time, rest) = rest.split_first_chunk::<8>()?;
        let (mac_len, rest) = rest.split_first_chunk::<2>()?;
        let rest = rest.get(usize::from(u16::from_be_bytes(*mac_len))..)?;
        let (id, rest) = rest.split_first_chunk::<2>()?;
        let (_error, rest) = rest.split_first_chunk::<2>()?;
        let (other_len, other) = rest.split_first_chunk::<2>()?;
        (other.len() == usize::from(u16::from_be_bytes(*other_len))).then_some(())?;
        Some(Self { key, algorithm, time: *time, id: *id })
    }

    /// The unsigned record of the reply: BADKEY (§5.2.1, §5.3.2).
    pub fn to_bad_key(self) -> Vec<u8> {
        // A name, the time, and four numbers: less than 300 octets.
        let rdata_len = (self.algorithm.len() + 16) as u16;
        let mut wire = self.key.to_vec();
        for number in [TYPE_TSIG, CLASS_ANY, 0, 0, rdata_len] {
            wire.extend_from_slice(&number.to_be_bytes());
        }
        wire.extend_from_slice(self.algorithm);
        wire.extend_from_slice(&self.time);
        wire.extend_from_slice(&[0; 2]);
        wire.extend_from_slice(&self.id);
        wire.extend_from_slice(&BADKEY.to_be_bytes());
        wire.extend_from_slice(&[0; 2]);
        wire
    }
}
