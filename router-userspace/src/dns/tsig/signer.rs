//! TSIG records of our own messages.

use std::sync::Arc;
use std::time::Duration;

use ring::hmac;
use router_common::name::Name;

use super::{BADTIME, CLASS_ANY, FIXED, Signature, TYPE_TSIG};
use crate::settings::Key;

/// Seconds that clocks may differ by (RFC 8945 §10 recommends them).
const FUDGE: u16 = 300;

/// Signs one message after another, each with the one before it in what is signed.
pub(in crate::dns) struct Signer {
    key: Arc<Key>,
    /// MAC of the message before: the query's, then each of ours. Empty for a query of our own.
    prior: Vec<u8>,
    /// Whether a message of ours was signed: later ones sign less of the record (§5.3.1).
    begun: bool,
    /// Of a query at another time: when that was, and when it came, seconds since the epoch.
    untimely: Option<(u64, u64)>,
}

impl Signer {
    /// For a message that answers none.
    pub fn query(key: Arc<Key>) -> Self {
        Self { key, prior: Vec::new(), begun: false, untimely: None }
    }

    /// For what answers the query with this MAC.
    pub fn reply(key: Arc<Key>, request_mac: &[u8]) -> Self {
        Self { key, prior: request_mac.to_vec(), begun: false, untimely: None }
    }

    /// For the reply that tells the time to somebody whose clock is wrong (§5.2.3): Time Signed is the
    /// query's, so that the client can check the MAC.
    pub fn untimely(self, signed: u64, now: Duration) -> Self {
        Self { untimely: Some((signed, now.as_secs())), ..self }
    }

    /// The key's name.
    pub fn key(&self) -> &Name {
        &self.key.name
    }

    /// MAC of the message signed last.
    pub fn mac(&self) -> &[u8] {
        &self.prior
    }

    /// Octets of a record.
    pub fn len(&self) -> usize {
        let other = if self.untimely.is_some() { 6 } else { 0 };
        let algorithm = self.key.algorithm;
        self.key.name.as_wire().len() + 10 + algorithm.wire().len() + FIXED + algorithm.mac_len() + other
    }

    /// Signs a message, and appends the record to it.
    pub fn sign(&mut self, message: &mut Vec<u8>, now: Duration) {
        let other = self.untimely.map(|(_, now)| time(now));
        let variables = Variables {
            time: self.untimely.map_or(now.as_secs(), |(signed, _)| signed),
            fudge: FUDGE,
            error: if other.is_some() { BADTIME } else { 0 },
            other: other.as_ref().map_or(&[], |other| other.as_slice()),
        };
        let mut hmac = self.key.hmac();
        update_with_mac(&mut hmac, &self.prior);
        hmac.update(message);
        if self.begun {
            hmac.update(&time(variables.time));
            hmac.update(&variables.fudge.to_be_bytes());
        } else {
            update_with_variables(&mut hmac, &self.key, &variables);
        }
        let mac = hmac.sign();
        let id = message.first_chunk().copied().unwrap_or_default();
        let (key, algorithm) = (self.key.name.as_wire(), self.key.algorithm.wire());
        append(message, &record(key, algorithm, &variables, mac.as_ref(), id));
        self.prior = mac.as_ref().to_vec();
        self.begun = true;
    }
}

/// The fields that are signed besides the message.
pub(super) struct Variables<'a> {
    pub time: u64,
    pub fudge: u16,
    pub error: u16,
    pub other: &'a [u8],
}

/// The 48 bits of a time.
fn time(seconds: u64) -> [u8; 6] {
    let [_, _, a, b, c, d, e, f] = seconds.to_be_bytes();
    [a, b, c, d, e, f]
}

/// A MAC that was, with its length (§5.3.1); nothing when there was none.
pub(super) fn update_with_mac(hmac: &mut hmac::Context, mac: &[u8]) {
    if !mac.is_empty() {
        // At most 64 octets.
        hmac.update(&(mac.len() as u16).to_be_bytes());
        hmac.update(mac);
    }
}

/// The TSIG variables (§4.3.3).
pub(super) fn update_with_variables(hmac: &mut hmac::Context, key: &Key, variables: &Variables<'_>) {
    hmac.update(key.name.as_wire());
    hmac.update(&CLASS_ANY.to_be_bytes());
    hmac.update(&0u32.to_be_bytes());
    hmac.update(key.algorithm.wire());
    hmac.update(&time(variables.time));
    hmac.update(&variables.fudge.to_be_bytes());
    hmac.update(&variables.error.to_be_bytes());
    hmac.update(&(variables.other.len() as u16).to_be_bytes());
    hmac.update(variables.other);
}

/// The record of a reply to a signature that is not good, without a MAC (§5.3.2).
pub(in crate::dns) fn unsigned(signature: &Signature<'_>, error: u16) -> Vec<u8> {
    let variables = Variables { time: signature.time, fudge: signature.fudge, error, other: &[] };
    let (key, algorithm) = (signature.key.as_wire(), signature.algorithm.as_wire());
    record(key, algorithm, &variables, &[], signature.original_id)
}

fn record(key: &[u8], algorithm: &[u8], variables: &Variables<'_>, mac: &[u8], id: [u8; 2]) -> Vec<u8> {
    let rdata_len = algorithm.len() + FIXED + mac.len() + variables.other.len();
    let mut wire = Vec::with_capacity(key.len() + 10 + rdata_len);
    wire.extend_from_slice(key);
    // The lengths: a name, a MAC of 64 octets, and a few numbers.
    for number in [TYPE_TSIG, CLASS_ANY, 0, 0, rdata_len as u16] {
        wire.extend_from_slice(&number.to_be_bytes());
    }
    wire.extend_from_slice(algorithm);
    wire.extend_from_slice(&time(variables.time));
    wire.extend_from_slice(&variables.fudge.to_be_bytes());
    wire.extend_from_slice(&(mac.len() as u16).to_be_bytes());
    wire.extend_from_slice(mac);
    wire.extend_from_slice(&id);
    wire.extend_from_slice(&variables.error.to_be_bytes());
    wire.extend_from_slice(&(variables.other.len() as u16).to_be_bytes());
    wire.extend_from_slice(variables.other);
    wire
}

/// Appends a record to a message, which has one more in its additional section then.
pub(super) fn append(message: &mut Vec<u8>, record: &[u8]) {
    if let Some(count) = message.get_mut(10..12) {
        let more = u16::from_be_bytes([count[0], count[1]]).saturating_add(1);
        count.copy_from_slice(&more.to_be_bytes());
    }
    message.extend_from_slice(record);
}
