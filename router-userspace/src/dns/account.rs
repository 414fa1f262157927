//! What a reply is counted under when the rate of replies is limited: alike for all replies that an
//! attacker could use in place of one another.

use router_common::lookup::hash_step;
use router_common::name::Name;

/// The kind of a reply, each with a rate of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Class {
    /// Records.
    Answer,
    /// NODATA.
    Nodata,
    /// NXDOMAIN.
    Nxdomain,
    /// A referral.
    Referral,
    /// Every other RCODE.
    Error,
    /// Never limited: the client has shown that its address is its own.
    Exempt,
}

/// What a reply is counted under, besides the network it goes to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Account {
    /// The kind of the reply.
    pub class: Class,
    /// Hash of the name it is about: for records the owner that was asked for; for what a client can get
    /// under names without end (made from a wildcard or a DNAME, NXDOMAIN, NODATA) the zone; for a
    /// referral the delegated name.
    pub subject: u64,
}

impl Account {
    /// Never limited.
    pub const EXEMPT: Self = Self { class: Class::Exempt, subject: 0 };
    /// An error that is about no zone.
    pub const ERROR: Self = Self { class: Class::Error, subject: 0 };

    /// A reply of this kind about this name.
    pub fn new(class: Class, name: &Name) -> Self {
        // Without a key: whoever finds two names with one hash could as well ask for one name twice.
        let octets = name.as_wire();
        let subject = octets.chunks(8).fold(octets.len() as u64, |state, chunk| {
            let mut word = [0; 8];
            for (to, from) in word.iter_mut().zip(chunk) {
                *to = *from;
            }
            hash_step(state, u64::from_le_bytes(word))
        });
        Self { class, subject }
    }
}
