//! Signed messages (RFC 8945): what a TSIG record says, whether it holds, and what the reply's says.

use std::sync::Arc;
use std::time::Duration;

use router_common::name::Name;
use subtle::ConstantTimeEq;

use super::query::{Fault, Query, name_len};
use crate::settings::Key;

mod signer;

pub(super) use signer::{Signer, unsigned};

/// TYPE of the record.
pub(super) const TYPE_TSIG: u16 = 250;
/// Its CLASS, ANY.
const CLASS_ANY: u16 = 255;
/// Octets of an RDATA besides the algorithm's name, MAC and Other Data.
const FIXED: usize = 16;

/// ERROR of a MAC that does not hold.
const BADSIG: u16 = 16;
/// ERROR for a key that is not known, or not for this algorithm.
const BADKEY: u16 = 17;
/// ERROR of a message of another time.
const BADTIME: u16 = 18;

/// A query's TSIG record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Signature<'q> {
    /// Where in the message the record begins, which is where what it signs ends.
    start: usize,
    /// The key's name.
    key: Name,
    /// The algorithm's name.
    algorithm: Name,
    /// Time Signed, seconds since the epoch.
    time: u64,
    /// Seconds that the clocks may differ by.
    fudge: u16,
    /// The MAC, whole or truncated.
    mac: &'q [u8],
    /// The id that the message had when it was signed; forwarders change it.
    original_id: [u8; 2],
    /// ERROR; set in responses only.
    error: u16,
    /// Other Data.
    other: &'q [u8],
}

impl<'q> Signature<'q> {
    /// Reads a record that begins at `start`. `None`: it is malformed. Its MAC is not looked at.
    pub fn parse(start: usize, key: Name, class: u16, ttl: u32, rdata: &'q [u8]) -> Option<Self> {
        let (algorithm, rest) = rdata.split_at_checked(name_len(rdata)?)?;
        let (time, rest) = rest.split_first_chunk::<6>()?;
        let (fudge, rest) = rest.split_first_chunk::<2>()?;
        let (mac_len, rest) = rest.split_first_chunk::<2>()?;
        let (mac, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*mac_len)))?;
        let (original_id, rest) = rest.split_first_chunk::<2>()?;
        let (error, rest) = rest.split_first_chunk::<2>()?;
        let (other_len, other) = rest.split_first_chunk::<2>()?;
        let sound = other.len() == usize::from(u16::from_be_bytes(*other_len));
        (sound && class == CLASS_ANY && ttl == 0).then_some(())?;
        let [a, b, c, d, e, f] = *time;
        Some(Self {
            start,
            key,
            algorithm: Name::from_wire(algorithm).ok()?,
            time: u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
            fudge: u16::from_be_bytes(*fudge),
            mac,
            original_id: *original_id,
            error: u16::from_be_bytes(*error),
            other,
        })
    }

    /// Whether the MAC is that of the message under a key; `prior`: the MAC of what the message answers.
    fn holds(&self, message: &[u8], key: &Key, prior: &[u8]) -> bool {
        let Some((header, body)) =
            message.get(..self.start).and_then(|signed| signed.split_first_chunk::<12>())
        else {
            return false;
        };
        let mut header = *header;
        header[..2].copy_from_slice(&self.original_id);
        // The record itself was not there when the message was signed.
        let additionals = u16::from_be_bytes([header[10], header[11]]).wrapping_sub(1);
        header[10..].copy_from_slice(&additionals.to_be_bytes());
        let mut hmac = key.hmac();
        signer::update_with_mac(&mut hmac, prior);
        hmac.update(&header);
        hmac.update(body);
        let (time, fudge) = (self.time, self.fudge);
        signer::update_with_variables(
            &mut hmac,
            key,
            &signer::Variables { time, fudge, error: self.error, other: self.other },
        );
        let mac = hmac.sign();
        // A truncated MAC is compared as far as it goes; how short it may be was checked before.
        mac.as_ref().get(..self.mac.len()).is_some_and(|mac| bool::from(mac.ct_eq(self.mac)))
    }

    /// Whether a MAC of this length is one that RFC 8945 §5.2.2.1 has: whole, or cut to no less than half
    /// and ten octets.
    fn has_sound_length(&self, key: &Key) -> bool {
        let whole = key.algorithm.mac_len();
        (whole.div_ceil(2).max(10)..=whole).contains(&self.mac.len())
    }

    fn is_in_time(&self, now: Duration) -> bool {
        self.time.abs_diff(now.as_secs()) <= u64::from(self.fudge)
    }
}

/// What a query's signature is worth, and what becomes of the reply's.
pub(super) enum Standing {
    /// There is none.
    Unsigned,
    /// It holds; replies are signed with the same key.
    Signed(Signer),
    /// NOTAUTH: the key is not known, or the MAC does not hold. The record of the reply, without a MAC.
    Unknown(Vec<u8>),
    /// NOTAUTH: signed at another time; the reply is signed and says what time it is.
    Untimely(Signer),
    /// FORMERR: a MAC of a length that there is not.
    Malformed,
}

impl Standing {
    /// Checks in the order of RFC 8945 §5.2: key, MAC, time.
    pub fn of(query: &Query<'_>, keys: &[Arc<Key>], now: Duration) -> Self {
        let Some(signature) = &query.signature else { return Self::Unsigned };
        let key = keys.iter().find(|key| key.name == signature.key);
        let Some(key) = key.filter(|key| key.algorithm.wire() == signature.algorithm.as_wire()) else {
            return Self::Unknown(unsigned(signature, BADKEY));
        };
        if !signature.has_sound_length(key) {
            return Self::Malformed;
        }
        if !signature.holds(query.message, key, &[]) {
            return Self::Unknown(unsigned(signature, BADSIG));
        }
        let signer = Signer::reply(Arc::clone(key), signature.mac);
        if !signature.is_in_time(now) {
            return Self::Untimely(signer.untimely(signature.time, now));
        }
        Self::Signed(signer)
    }

    /// The error that is the answer, if one is.
    pub fn fault(&self) -> Option<Fault> {
        match self {
            Self::Unsigned | Self::Signed(_) => None,
            Self::Unknown(_) | Self::Untimely(_) => Some(Fault::Signature),
            Self::Malformed => Some(Fault::Format),
        }
    }

    /// The key that the query is known to be signed with.
    pub fn key(&self) -> Option<&Name> {
        match self {
            Self::Signed(signer) => Some(signer.key()),
            _ => None,
        }
    }

    /// Octets that the reply's record takes.
    pub fn len(&self) -> usize {
        match self {
            Self::Unsigned | Self::Malformed => 0,
            Self::Unknown(record) => record.len(),
            Self::Signed(signer) | Self::Untimely(signer) => signer.len(),
        }
    }

    /// Signs a finished reply, or says in it why the query's signature is not good.
    pub fn finish(self, reply: &mut Vec<u8>, now: Duration) {
        match self {
            Self::Unsigned | Self::Malformed => {}
            Self::Unknown(record) => signer::append(reply, &record),
            Self::Signed(mut signer) | Self::Untimely(mut signer) => signer.sign(reply, now),
        }
    }
}

/// Whether a response is signed with `key`, at about `now`, as an answer to the message with this MAC.
pub(super) fn answers(
    response: &[u8],
    signature: Option<&Signature<'_>>,
    key: &Key,
    request_mac: &[u8],
    now: Duration,
) -> bool {
    signature.is_some_and(|signature| {
        signature.key == key.name
            && signature.algorithm.as_wire() == key.algorithm.wire()
            && signature.error == 0
            && signature.has_sound_length(key)
            && signature.holds(response, key, request_mac)
            && signature.is_in_time(now)
    })
}
