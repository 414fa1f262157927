//! What the programs of the flood share with those who start them. Compiled into both.

/// Words of the longest query.
pub const WORDS: usize = 21;
/// Octets of the longest frame that holds a query.
pub const LONGEST: usize = WORDS * 8;
/// Words that every query has: written without a loop.
pub const HEAD: usize = 9;
/// Octets of the shortest frame that holds a query.
pub const SHORTEST: usize = HEAD * 8;
/// Queries of a set, at most: their number has place in an ID and six bits of a port.
pub const MOST_QUERIES: usize = 1 << 22;

/// Octets of the frame before the question: Ethernet, IPv4, UDP and DNS headers.
pub const QUESTION: usize = 14 + 20 + 8 + 12;

/// The hardware address of the generator's end.
pub const NEAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// The hardware address of the responder's end.
pub const FAR_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A query as it is sent, with what its answer is known by.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Query {
    /// Octets of the frame, [`SHORTEST`] to [`LONGEST`].
    pub len: u16,
    /// Offset in the frame where the question ends.
    pub end: u16,
    /// Records that a right answer has at least.
    pub least: u8,
    /// Records that a right answer has at most.
    pub most: u8,
    /// Zero.
    pub pad: u16,
    /// The last 8 octets of the question, as they lie in memory.
    pub tail: u64,
    /// The last 8 octets of the frame, likewise.
    pub last: u64,
    /// The frame, zeros beyond its end.
    pub words: [u64; WORDS],
}

/// How the flood runs.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Config {
    /// Number of queries, a power of two, minus 1.
    pub mask: u32,
    /// An answer whose number has none of these bits is checked whole, others but for UDP checksum and question.
    pub unsampled: u32,
    /// Bits of the DNS flags that are looked at, in network order.
    pub flags_mask: u16,
    /// And what they must be, in network order.
    pub flags: u16,
    /// 1 when an answer must have the records that its query says, 0 when it must have none.
    pub records: u32,
    /// Queries that are sent at a time; 0 for as many as there is room for.
    pub burst: u32,
    /// Zero.
    pub pad: u32,
    /// Nanoseconds from one burst to the next.
    pub period: u64,
}

/// Where the generator is, on each CPU.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct State {
    /// The query that comes next, counted from the beginning.
    pub next: u64,
    /// When the next burst is due, nanoseconds of `CLOCK_MONOTONIC`.
    pub due: u64,
    /// Queries that are left of this burst.
    pub left: u64,
}

/// What was counted, on each CPU.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Counts {
    /// Queries given to the interface.
    pub sent: u64,
    /// By [`Verdict`].
    pub answers: [u64; VERDICTS],
}

/// What the sink says of a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u32)]
pub enum Verdict {
    /// The answer to a query that was sent.
    Right = 0,
    /// No reply of a DNS server: passed on, not counted as an answer.
    Other = 1,
    /// Lengths in its headers do not agree, or it is not for us.
    Headers = 2,
    /// Nobody asked: ID, port or address are of no query.
    Unasked = 3,
    /// Flags or RCODE.
    Flags = 4,
    /// QDCOUNT or ANCOUNT.
    Counts = 5,
    /// The IPv4 header's or the UDP checksum.
    Checksum = 6,
    /// The question is another.
    Question = 7,
}

/// Number of verdicts.
pub const VERDICTS: usize = 8;

/// The number of a query in what it is sent with, an ID and a source port.
pub const fn number(id: u16, port: u16) -> u32 {
    ((port as u32 >> 8) & ((MOST_QUERIES as u32 >> 16) - 1)) << 16 | id as u32
}

const _: () = assert!(size_of::<Query>() == 192 && size_of::<Config>() == 32 && size_of::<State>() == 24);
