//! Sampling: which queries the fast path copies out, and in what form. Bytes that the agent writes and the XDP
//! program reads, and the other way round, under the rules of [`crate::abi`].
//!
//! Nothing of it is looked at while [`crate::abi::Control::TRACE`] is not set. A copy is the frame that came in
//! and the frame that left; whoever reads it takes them apart, so the program has nothing to work out.

use crate::abi::NAME_WORDS;
use crate::counter::Counter;
use crate::lookup::Query;

/// Rules at a time: one for each reader.
pub const RULES: usize = 4;
/// Octets of an incoming frame that are copied at most: two VLAN tags, IPv6, UDP and the longest query that the
/// fast path answers are fewer. What passes up and is longer is cut short.
pub const QUERY_FRAME: usize = 592;
/// Octets of an outgoing frame that are copied at most: the largest reply (1,232 octets of payload) is shorter.
pub const REPLY_FRAME: usize = 1304;
/// Octets of the ring that copies are put into. When it is full they are lost and counted.
pub const RING: usize = 1 << 20;
/// A window of [`Rule::per_window`] is 2²⁷ ns long, about an eighth of a second.
pub const WINDOW_BITS: u32 = 27;

/// Which queries one reader wants. Written by the agent while the program reads: [`Rule::threshold`] is
/// 0 as long as the rest is being written, and readers check again what they get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Rule {
    /// A query is sampled when a uniform 32-bit random number is below: 0 = the rule is off, 2³² = every one.
    pub threshold: u64,
    /// Bit for each [`Counter`] of the fast path that is of interest.
    pub outcomes: u64,
    /// When the rule ends unless the agent renews it, in the unit of [`crate::abi::Control::deadline`].
    pub deadline: u32,
    /// Copies that each CPU makes in a window ([`WINDOW_BITS`]); what is over it is counted as withheld.
    pub per_window: u32,
    /// Family of `client`, 4 or 6; 0 = every client.
    pub family: u8,
    /// [`Rule::A`], [`Rule::AAAA`]: types of answered queries.
    pub types: u8,
    /// Not 0: the name must be the one given, else it may also be below.
    pub exact: u8,
    /// Octets of `name`; 0 = every name.
    pub name_len: u8,
    /// Zero.
    pub pad: [u8; 4],
    /// Network that the source or the client subnet must be in, as [`crate::lookup::Client::words`].
    pub client: [u64; 2],
    /// Its mask likewise.
    pub mask: [u64; 2],
    /// The name, folded, as [`Query::name`].
    pub name: [u64; NAME_WORDS],
}

impl Rule {
    /// Queries for A.
    pub const A: u8 = 1;
    /// Queries for AAAA.
    pub const AAAA: u8 = 2;
    /// Samples nothing.
    pub const OFF: Self = Self {
        threshold: 0,
        outcomes: 0,
        deadline: 0,
        per_window: 0,
        family: 0,
        types: 0,
        exact: 0,
        name_len: 0,
        pad: [0; 4],
        client: [0; 2],
        mask: [0; 2],
        name: [0; NAME_WORDS],
    };

    /// Whether the outcome is of interest.
    #[inline(always)]
    pub const fn wants(&self, counter: u32) -> bool {
        self.outcomes >> (counter & 63) & 1 != 0
    }

    /// Whether the client is of interest: the source of a query, or its client subnet.
    #[inline(always)]
    pub fn fits_client(&self, query: &Query) -> bool {
        if self.family == 0 {
            return true;
        }
        let inside = |family: u8, words: [u64; 2]| {
            family == self.family
                && words[0] & self.mask[0] == self.client[0]
                && words[1] & self.mask[1] == self.client[1]
        };
        inside(query.source.family, query.source.words())
            || query.has_ecs && inside(query.ecs.family, query.ecs.words())
    }

    /// Whether the type of an answered query is of interest.
    #[inline(always)]
    pub const fn fits_type(&self, aaaa: bool) -> bool {
        self.types & (if aaaa { Self::AAAA } else { Self::A }) != 0
    }
}

/// What the program keeps of a rule, on each CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct State {
    /// The window that copies are being counted in.
    pub window: u64,
    /// Copies in it.
    pub count: u64,
    /// Queries that were sampled and not copied, over [`Rule::per_window`]; never reset.
    pub withheld: u64,
    /// Copies that found the ring full; never reset.
    pub lost: u64,
}

/// What a copy begins with; `query_len` octets of the incoming frame and `reply_len` of the outgoing one follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Head {
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub time: u64,
    /// Index of the interface.
    pub interface: u32,
    /// The [`Counter`].
    pub counter: u16,
    /// Bit for each rule that it was copied for.
    pub rules: u16,
    /// Octets of the incoming frame, at most [`QUERY_FRAME`].
    pub query_len: u32,
    /// Octets of the outgoing frame, at most [`REPLY_FRAME`]; 0 when nothing was sent.
    pub reply_len: u32,
}

/// Room for the largest copy.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Record {
    /// See there.
    pub head: Head,
    /// Both frames.
    pub frames: [u8; QUERY_FRAME + REPLY_FRAME],
}

const _: () = {
    assert!(Counter::FAST <= 64);
    assert!(size_of::<Rule>() == 8 + 8 + 4 + 4 + 8 + 32 + 256);
    assert!(size_of::<State>() == 32);
    assert!(size_of::<Head>() == 24);
    assert!(size_of::<Record>() == 24 + QUERY_FRAME + REPLY_FRAME);
    assert!(core::mem::offset_of!(Rule, name) % 8 == 0);
};
