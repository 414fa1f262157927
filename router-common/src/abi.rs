//! The tables as bytes: what the agent writes and the XDP program reads.
//!
//! Every type is made of fixed-width integers and byte arrays, has explicit padding and an asserted
//! size. Integers are in host byte order (writer and reader share the machine); addresses, names and
//! record pieces are in network order because they go on the wire as they are.
//!
//! The tables come in two **halves**, one per generation: the agent fills the half that is not
//! active and flips [`Control`]. Indices inside the tables are relative to the start of their half;
//! [`Generation`] holds where each half starts. So an image of tables can be written to either half.

mod location;

pub use location::{LocationEntry, LocationLine, LocationWord, MAX_LOCATION_LINES, MAX_LOCATIONS};

/// Version of everything here. An agent adopts pinned maps only when it is equal.
pub const ABI_VERSION: u32 = 6;

/// Name of the XDP program in the BPF object.
pub const PROGRAM: &str = "xroute";

/// Names of the maps in the BPF object and under the pin directory.
pub mod map {
    /// Array of one `u64`: [`super::Control`]. Mmapable.
    pub const CONTROL: &str = "CONTROL";
    /// Array of two [`super::Generation`]. Mmapable.
    pub const GENERATIONS: &str = "GENERATIONS";
    /// Array of [`super::Owner`], both halves. Mmapable.
    pub const OWNERS: &str = "OWNERS";
    /// Array of `u64` words, the displacements (`u16`) of four buckets each, both halves. Mmapable.
    pub const BUCKETS: &str = "BUCKETS";
    /// Array of `u64` words, four regions (`u16`) each, both halves. Mmapable.
    pub const REGIONS: &str = "REGIONS";
    /// Array of `u64`: [`super::Answer`], both halves. Mmapable.
    pub const ANSWERS: &str = "ANSWERS";
    /// Array of [`super::Cell`], both halves. Mmapable.
    pub const CELLS: &str = "CELLS";
    /// Array of [`super::Line`], both halves: long names and long record pieces. Mmapable.
    pub const LINES: &str = "LINES";
    /// Array of [`super::LocationLine`], both halves: addresses to [`super::LocationEntry`]. Mmapable.
    pub const LOCATIONS: &str = "LOCATIONS";
    /// Array of one [`super::Locals`]. Mmapable; belongs to the machine, not to a generation.
    pub const LOCALS: &str = "LOCALS";
    /// Array of [`super::Credit`], both halves: whom the tally of the same index is for. Mmapable; made by the
    /// agent, since the program does not read it.
    pub const CREDITS: &str = "CREDITS";
    /// Per-CPU array of [`super::Tallies`], both halves.
    pub const TALLIES: &str = "TALLIES";
    /// Per-CPU array of `u64`, indexed by [`crate::counter::Counter`].
    pub const COUNTERS: &str = "COUNTERS";
    /// Per-CPU scratch space of the program.
    pub const SCRATCH: &str = "SCRATCH";
    /// Per-CPU copy of the query whose labels are stripped on the way to a wildcard.
    pub const STRIPPED: &str = "STRIPPED";
    /// Ring buffer of reports, under the name that aya-log gives it.
    pub const REPORTS: &str = "AYA_LOGS";
    /// Array of [`crate::trace::RULES`] [`crate::trace::Rule`]. Mmapable.
    pub const TRACE_RULES: &str = "TRACE_RULES";
    /// Per-CPU array of [`crate::trace::State`], one for each rule.
    pub const TRACE_STATE: &str = "TRACE_STATE";
    /// Per-CPU space in which a [`crate::trace::Record`] is put together.
    pub const TRACE_RECORD: &str = "TRACE_RECORD";
    /// Ring buffer of [`crate::trace::Record`], each as long as its frames.
    pub const TRACE_RING: &str = "TRACE_RING";
}

/// Halves of every table.
pub const HALVES: usize = 2;
/// Service addresses per family that the fast path can answer for.
pub const MAX_ADDRESSES: usize = 16;
/// VLAN ids that the fast path can answer on.
pub const MAX_VLANS: usize = 16;
/// Interfaces that share one set of maps.
pub const MAX_INTERFACES: usize = 8;
/// Addresses that [`Locals`] holds at most.
pub const MAX_LOCALS: usize = 64;
/// Octets of a longest name in wire form (RFC 1035 §2.3.4).
pub const MAX_NAME: usize = 255;
/// Words of 8 octets that hold a longest name.
pub const NAME_WORDS: usize = 32;
/// Octets of a name that fit into its [`Owner`].
pub const INLINE_NAME: usize = 40;
/// Octets of a record piece that fit into its [`Cell`].
pub const INLINE_PIECE: usize = 48;
/// Octets of a [`Line`].
pub const LINE: usize = 64;
/// Octets of the longest record piece the fast path writes; longer answers pass to userspace.
pub const MAX_PIECE: usize = 1024;
/// Labels stripped at most on the way to a closest encloser; names with more pass.
pub const MAX_STRIPPED: u32 = 8;
/// Slot index, partition or wildcard that means "none".
pub const NONE: u32 = u32::MAX;

/// The control word: one aligned `u64`, read once per packet, flipped with one atomic store.
///
/// Bits 0..8 the active half, bits 8..32 flags, bits 32..64 the lease's deadline in units of
/// 2³⁰ ns (about 1.07 s) of `CLOCK_MONOTONIC` (`bpf_ktime_get_coarse_ns`, Linux 5.11).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct Control(pub u64);

impl Control {
    /// Tables are there; without it every packet passes.
    pub const READY: u32 = 1;
    /// When the lease has lapsed: pass instead of serve.
    pub const STALE_PASS: u32 = 2;
    /// Somebody reads samples ([`crate::trace`]).
    pub const TRACE: u32 = 4;

    /// Packs the active half (0 or 1), flags (24 bits) and the deadline.
    pub const fn new(half: u8, flags: u32, deadline: u32) -> Self {
        Self(half as u64 | ((flags as u64 & 0xff_ffff) << 8) | ((deadline as u64) << 32))
    }
    /// The active half.
    pub const fn half(self) -> u8 {
        self.0 as u8
    }
    /// The flags.
    pub const fn flags(self) -> u32 {
        ((self.0 >> 8) & 0xff_ffff) as u32
    }
    /// The deadline, in units of 2³⁰ ns.
    pub const fn deadline(self) -> u32 {
        (self.0 >> 32) as u32
    }
    /// A time of the clock in the deadline's unit.
    pub const fn tick(monotonic_nanoseconds: u64) -> u32 {
        (monotonic_nanoseconds >> 30) as u32
    }
}

/// A network interface the program answers on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Interface {
    /// `ifindex` of the kernel; 0 = unused.
    pub index: u32,
    /// Its hardware address: frames to another one pass.
    pub mac: [u8; 6],
    /// Zero.
    pub pad: [u8; 2],
}

/// IPv4 addresses that nobody else can have as a source (RFC 1122 §3.2.1.3): the machine's own, and the
/// broadcast addresses of its networks. A packet from one passes, so that the kernel decides.
///
/// Changed in place while the program reads it: at any moment each address is there or is not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Locals {
    /// The [`Locals::bit`] of every address: few sources are looked for in the list.
    pub filter: u64,
    /// Places used in `addresses`.
    pub count: u32,
    /// Zero.
    pub pad: u32,
    /// Addresses, network order; 0.0.0.0 is a free place.
    pub addresses: [[u8; 4]; MAX_LOCALS],
}

impl Locals {
    /// None.
    pub const EMPTY: Self = Self { filter: 0, count: 0, pad: 0, addresses: [[0; 4]; MAX_LOCALS] };

    /// The bit of an address, which is a number in host order: broadcast addresses are alike in their last
    /// octet, so that one bit holds most of them.
    #[inline(always)]
    pub const fn bit(address: u32) -> u64 {
        1 << (address & 63)
    }

    /// [`Locals::addresses`] as words in memory order.
    #[inline(always)]
    pub const fn words(&self) -> &[u32; MAX_LOCALS] {
        // SAFETY: same size, every bit pattern is valid, and the field is aligned to 4 (asserted below).
        unsafe { &*(&raw const self.addresses).cast() }
    }
}

/// What is fixed for one generation: bases of its half, hash key, and where we answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Generation {
    /// Key of [`crate::lookup::hash_name`].
    pub seed: [u64; 2],
    /// Serial number of the generation, for people; grows by one with each reload.
    pub serial: u64,
    /// First slot of this half in OWNERS.
    pub owners: u32,
    /// Slots that names are in.
    pub owner_slots: u32,
    /// First *bucket* (not word) of this half in BUCKETS; a multiple of four.
    pub buckets: u32,
    /// Buckets that names are in.
    pub bucket_count: u32,
    /// First *region* (not word) of this half in REGIONS; a multiple of four.
    pub regions: u32,
    /// First answer of this half in ANSWERS.
    pub answers: u32,
    /// First cell of this half in CELLS.
    pub cells: u32,
    /// First line of this half in LINES.
    pub lines: u32,
    /// First tally of this half in TALLIES, and first credit in CREDITS.
    pub tallies: u32,
    /// First line of this half in LOCATIONS.
    pub locations: u32,
    /// Where a look-up of an IPv4 address and of an IPv6 address begins.
    pub location_roots: [LocationWord; 2],
    /// Largest UDP payload we send, 512..=1232.
    pub edns_size: u16,
    /// [`Generation::PASS_COOKIE`] and others.
    pub flags: u16,
    /// Entries used in `ipv4`.
    pub ipv4_count: u8,
    /// Entries used in `ipv6`.
    pub ipv6_count: u8,
    /// Entries used in `vlans`.
    pub vlan_count: u8,
    /// Entries used in `interfaces`.
    pub interface_count: u8,
    /// IPv4 service addresses, network order.
    pub ipv4: [[u8; 4]; MAX_ADDRESSES],
    /// IPv6 service addresses.
    pub ipv6: [[u8; 16]; MAX_ADDRESSES],
    /// VLAN ids (host order) answered on, besides untagged frames.
    pub vlans: [u16; MAX_VLANS],
    /// Interfaces answered on.
    pub interfaces: [Interface; MAX_INTERFACES],
}

impl Generation {
    /// Queries with a COOKIE option (RFC 7873) pass.
    pub const PASS_COOKIE: u16 = 1;
    /// Queries with an NSID option (RFC 5001) pass.
    pub const PASS_NSID: u16 = 2;
    /// Some name is a wildcard: a name without a slot may be covered.
    pub const WILDCARDS: u16 = 4;

    /// [`Generation::ipv4`] as words in memory order.
    #[inline(always)]
    pub const fn ipv4_words(&self) -> &[u32; MAX_ADDRESSES] {
        // SAFETY: same size, every bit pattern is valid, and the field is aligned to 4 (asserted below).
        unsafe { &*(&raw const self.ipv4).cast() }
    }

    /// [`Generation::ipv6`] as words in memory order.
    #[inline(always)]
    pub const fn ipv6_words(&self) -> &[[u64; 2]; MAX_ADDRESSES] {
        // SAFETY: same size, every bit pattern is valid, and the field is aligned to 8 (asserted below).
        unsafe { &*(&raw const self.ipv6).cast() }
    }
}

/// An owner name: one cache line, found by hash and confirmed by comparing the name itself.
///
/// A name has one place where it can be: its hash gives a bucket, the bucket's displacement and the hash give the slot
/// ([`crate::lookup::bucket`], [`crate::lookup::slot`]). The compiler chooses displacements so that no two names meet
/// (hash and displace: Belazzougui, Botelho, Dietzfelbinger 2009).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(64))]
pub struct Owner {
    /// Keyed hash of the name ([`crate::lookup::hash_name`]).
    pub hash: u64,
    /// First answer of the name's block: `first_answer + 2 * region + (1 for AAAA)`.
    pub first_answer: u32,
    /// First region of the name's partition (`partition + location`), or [`NONE`]: the client does
    /// not matter, the region is 0 and no location is looked up.
    pub partition: u32,
    /// Slot of the wildcard `*.name`, or [`NONE`].
    pub wildcard: u32,
    /// Octets of the name in wire form with the root; 0 = empty slot.
    pub name_len: u8,
    /// Octets of the zone's name in wire form; the zone stands at `name_len - zone_len` in the name.
    pub zone_len: u8,
    /// [`Owner::PASS`] and others.
    pub flags: u16,
    /// The folded name padded with zeros when it fits; else the index of its first [`Line`] in the
    /// first four octets (host order).
    pub name: [u8; INLINE_NAME],
}

impl Owner {
    /// The name exists but is not ours to answer here (static data, zone cut): pass.
    pub const PASS: u16 = 1;
    /// The profile ignores ECS: the source address decides, scope 0.
    pub const ECS_OFF: u16 = 2;
    /// [`Owner::name`] as words in memory order. (The kernel's code loads words; from octets of unknown
    /// alignment the compiler would load one by one.)
    #[inline(always)]
    pub const fn name_words(&self) -> &[u64; INLINE_NAME / 8] {
        // SAFETY: same size, every bit pattern is valid, and the field is aligned to 8 (asserted below).
        unsafe { &*(&raw const self.name).cast() }
    }

    /// An empty slot.
    pub const EMPTY: Self = Self {
        hash: 0,
        first_answer: 0,
        partition: NONE,
        wildcard: NONE,
        name_len: 0,
        zone_len: 0,
        flags: 0,
        name: [0; INLINE_NAME],
    };
}

/// How a cell of an answer is picked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pick {
    /// By one random number, through the alias table (Vose 1991).
    Random,
    /// By a hash of the masked client subnet (/24, /56); every cell equally likely.
    Hashed,
}

/// One entry of ANSWERS: an address, or which cells and how to pick one. Flipped with one atomic store.
///
/// What most answers are, one A record, stands here and nowhere else, which saves a cache miss: bits 0..32 the address
/// in memory order, 32..49 the tally ([`Cell::tally`]), 49..62 the TTL, bit 63 set and 62 not.
///
/// Otherwise bits 0..32 are the first cell (relative to the half), bits 32..48 the number of cells (0 = nothing here:
/// pass), bits 48..60 the salt of a hashed pick, bit 62 the [`Pick`], bit 63 is not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct Answer(pub u64);

impl Answer {
    /// Longest TTL of an address that stands in its answer, seconds.
    pub const MAX_TTL: u32 = (1 << 13) - 1;
    const HASHED: u64 = 1 << 62;
    const ADDRESS: u64 = 1 << 63;
    /// Where the TTL of an address begins.
    const TTL: u32 = 49;

    /// Packs an answer in cells; `salt` has 12 bits.
    pub const fn new(first_cell: u32, cells: u16, pick: Pick, salt: u16) -> Self {
        let pick = match pick {
            Pick::Random => 0,
            Pick::Hashed => Self::HASHED,
        };
        Self(first_cell as u64 | ((cells as u64) << 32) | (((salt & 0xfff) as u64) << 48) | pick)
    }

    /// Packs one A record; `None` when its TTL is above [`Self::MAX_TTL`] or the tally not below [`MAX_TALLIES`].
    pub const fn address(address: [u8; 4], ttl: u32, tally: u32) -> Option<Self> {
        if ttl > Self::MAX_TTL || tally >= MAX_TALLIES {
            return None;
        }
        let address = u32::from_ne_bytes(address) as u64;
        Some(Self(address | (tally as u64) << 32 | (ttl as u64) << Self::TTL | Self::ADDRESS))
    }

    /// Whether it is one A record, and not in a cell.
    #[inline(always)]
    pub const fn is_address(self) -> bool {
        self.0 & Self::ADDRESS != 0
    }

    /// Of an address: writes what its cell would hold, but for [`Cell::threshold`] and [`Cell::alias`], and octets
    /// beyond the piece.
    #[inline(always)]
    pub const fn write_address(self, cell: &mut Cell) {
        let address = u32::from_be(self.0 as u32) as u64;
        let ttl = self.0 >> Self::TTL & Self::MAX_TTL as u64;
        let words = cell.piece_words_mut();
        words[0] = Self::RECORD.to_be();
        words[1] = (ttl << 48 | 4 << 32 | address).to_be();
        // Six words are the same in each, and two carries are as many as there can be.
        let sum = Self::RECORD_SUM + ttl + (address >> 16) + (address & 0xffff);
        let sum = (sum & 0xffff) + (sum >> 16);
        cell.sum = ((sum & 0xffff) + (sum >> 16)) as u16;
        cell.len = Self::RECORD_LEN;
        cell.kind = Cell::RECORDS;
        cell.ancount = 1;
        cell.detail = (self.0 >> 32) as u32 & (MAX_TALLIES - 1);
    }

    /// Octets of an A record whose owner is a pointer.
    pub const RECORD_LEN: u16 = 16;
    /// Its beginning: a pointer to QNAME, type, class, and the upper half of a TTL that has 13 bits.
    const RECORD: u64 = 0xc00c_0001_0001_0000;
    /// What all A records with such a TTL add to their sums, RDLENGTH included.
    const RECORD_SUM: u64 = 0xc00c + 1 + 1 + 4;

    /// First cell, relative to the half.
    pub const fn first_cell(self) -> u32 {
        self.0 as u32
    }
    /// Number of cells.
    pub const fn cells(self) -> u16 {
        (self.0 >> 32) as u16
    }
    /// How to pick.
    pub const fn pick(self) -> Pick {
        if self.0 & Self::HASHED == 0 { Pick::Random } else { Pick::Hashed }
    }
    /// Salt of a hashed pick.
    pub const fn salt(self) -> u16 {
        (self.0 >> 48) as u16 & 0xfff
    }
}

/// A ready-made piece of answer, one cache line of the map, with its place in the alias table. (A copy need not be a line:
/// values for each CPU are aligned to 8.)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(8))]
pub struct Cell {
    /// This cell is taken when the low 32 bits of `random * cells` are below; else the alias is.
    /// 0 with `alias` = this cell's own index means "always this one".
    pub threshold: u32,
    /// The other cell, relative to the answer's first.
    pub alias: u16,
    /// One's-complement sum of the piece, as big-endian 16-bit words from an even offset, in host
    /// order, folded.
    pub sum: u16,
    /// Octets of the piece: 12..=[`MAX_PIECE`] for records and NODATA (a record is not shorter).
    pub len: u16,
    /// [`Cell::RECORDS`] and others.
    pub kind: u8,
    /// ANCOUNT of the reply.
    pub ancount: u8,
    /// Of records, their tally, see [`Cell::tally`]; of NODATA, bits 0..8 and 8..16 are [`Cell::ends`]; else zero.
    pub detail: u32,
    /// The piece when it fits; else the index of its first [`Line`] (relative to the half) in the
    /// first four octets (host order). For [`Cell::FURTHER`] an [`Answer`] in the first eight.
    pub piece: [u8; INLINE_PIECE],
}

impl Cell {
    /// Records for the answer section; the owner is the pointer `C0 0C`.
    pub const RECORDS: u8 = 0;
    /// NODATA: one SOA for the authority section. Its first two octets (the owner) are zero in the
    /// piece and become the pointer to the zone inside QNAME. Scope is 0.
    pub const NODATA: u8 = 1;
    /// Not an answer: pick again in the answer held by `piece`.
    pub const FURTHER: u8 = 2;
    /// This share cannot be answered in the fast path: pass.
    pub const PASS: u8 = 3;
    /// NSCOUNT of the reply.
    #[inline(always)]
    pub const fn nscount(&self) -> u8 {
        (self.kind == Self::NODATA) as u8
    }

    /// Where in the piece MNAME and RNAME of a NODATA's SOA end in a pointer to the zone inside QNAME, which is
    /// zero in the piece and in its sum, like the owner; 0: the name stands in full.
    #[inline(always)]
    pub const fn ends(&self) -> [u8; 2] {
        if self.kind == Self::NODATA { [self.detail as u8, (self.detail >> 8) as u8] } else { [0; 2] }
    }

    /// [`Cell::detail`] of a NODATA.
    #[inline(always)]
    pub const fn ends_detail(ends: [u8; 2]) -> u32 {
        ends[0] as u32 | (ends[1] as u32) << 8
    }

    /// The tally of an answer with these records, relative to the half; 0: it is not counted.
    #[inline(always)]
    pub const fn tally(&self) -> u32 {
        if self.kind == Self::RECORDS { self.detail } else { 0 }
    }

    /// [`Cell::piece`] as words in memory order.
    #[inline(always)]
    pub const fn piece_words(&self) -> &[u64; INLINE_PIECE / 8] {
        // SAFETY: same size, every bit pattern is valid, and the field is aligned to 8 (asserted below).
        unsafe { &*(&raw const self.piece).cast() }
    }

    /// The same, to be written.
    #[inline(always)]
    const fn piece_words_mut(&mut self) -> &mut [u64; INLINE_PIECE / 8] {
        // SAFETY: as above, and every word is a valid piece of octets.
        unsafe { &mut *(&raw mut self.piece).cast() }
    }

    /// Becomes the same as another cell. (One word after the other: the compiler makes a call of an assignment, and for the kernel
    /// a loop over octets.)
    #[inline(always)]
    pub const fn copy_from(&mut self, other: &Self) {
        // SAFETY: same size, no padding, every bit pattern is valid both ways, and a cell is aligned to 8.
        let (to, from): (&mut [u64; LINE / 8], &[u64; LINE / 8]) =
            unsafe { (&mut *(&raw mut *self).cast(), &*(&raw const *other).cast()) };
        let [a, b, c, d, e, f, g, h] = *from;
        to[0] = a;
        to[1] = b;
        to[2] = c;
        to[3] = d;
        to[4] = e;
        to[5] = f;
        to[6] = g;
        to[7] = h;
    }

    /// Nothing: passes.
    pub const EMPTY: Self = Self {
        threshold: 0,
        alias: 0,
        sum: 0,
        len: 0,
        kind: Self::PASS,
        ancount: 0,
        detail: 0,
        piece: [0; INLINE_PIECE],
    };
}

/// Answers in a cache line. A block of no more than these does not reach over a line's end.
pub const ANSWERS_LINE: usize = LINE / 8;

/// How many answers may be followed through [`Cell::FURTHER`]; what is nested deeper is compiled to
/// [`Cell::PASS`].
pub const MAX_PICKS: usize = 4;

/// 64 octets of a long name or a long piece; consecutive lines follow one another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(64))]
pub struct Line(pub [u8; LINE]);

impl Line {
    /// The octets as words in memory order.
    #[inline(always)]
    pub const fn words(&self) -> &[u64; LINE / 8] {
        // SAFETY: same size, every bit pattern is valid, and a line is aligned to 64.
        unsafe { &*(&raw const self.0).cast() }
    }
}

/// How often answers were sent that are credited alike, and when last: one CPU's part.
///
/// Never set back while its credit stands, so it is read without a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Tally {
    /// Answers.
    pub answers: u64,
    /// The last one, in nanoseconds of `CLOCK_MONOTONIC` (the coarse clock, so up to 10 ms early).
    pub last: u64,
}

/// Tallies in one element of TALLIES.
pub const TALLY_ROW: usize = 256;

/// An element of TALLIES. The kernel has a list of where elements are: it stays in the nearest cache when they are few.
pub type Tallies = [Tally; TALLY_ROW];

/// Names in one [`Credit`].
pub const CREDIT_NAMES: usize = 7;
/// Tallies of a half at most; answers beyond are not counted. Each takes 16 octets for every CPU.
pub const MAX_TALLIES: u32 = 1 << 17;

/// Whom a tally counts for. More than [`CREDIT_NAMES`] endpoints go on in the next credits, whose `count` is 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C, align(64))]
pub struct Credit {
    /// TTL of the answers, seconds.
    pub ttl: u32,
    /// Endpoints; 0: unused, or the rest of the one before.
    pub count: u32,
    /// [`endpoint_hash`] of each.
    pub names: [u64; CREDIT_NAMES],
}

impl Credit {
    /// Unused.
    pub const EMPTY: Self = Self { ttl: 0, count: 0, names: [0; CREDIT_NAMES] };
}

/// What an endpoint is called where there is no room for names: FNV-1a of `PROFILE/ENDPOINT`, 64 bits. The same in
/// every agent of one [`ABI_VERSION`].
pub fn endpoint_hash(profile: &str, endpoint: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for part in [profile.as_bytes(), b"/", endpoint.as_bytes()] {
        for &octet in part {
            hash = (hash ^ octet as u64).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
    hash
}

const _: () = {
    assert!(size_of::<Owner>() == 64);
    assert!(size_of::<Cell>() == 64);
    assert!(size_of::<Line>() == 64);
    assert!(size_of::<Credit>() == 64);
    assert!(size_of::<Tally>() == 16);
    assert!(size_of::<Interface>() == 12);
    assert!(size_of::<Generation>() == 16 + 8 + 40 + 8 + 4 + 4 + 64 + 256 + 32 + 96);
    assert!(core::mem::offset_of!(Owner, name) == 24);
    assert!(core::mem::offset_of!(Cell, piece) == 16);
    assert!(core::mem::offset_of!(Cell, detail) == 12);
    assert!(core::mem::offset_of!(Generation, ipv4) % 4 == 0);
    assert!(core::mem::offset_of!(Generation, ipv6) % 8 == 0);
    assert!(core::mem::offset_of!(Generation, interfaces) == 432);
    assert!(size_of::<Generation>().is_multiple_of(8));
    assert!(size_of::<Locals>() == 16 + 4 * MAX_LOCALS);
    assert!(core::mem::offset_of!(Locals, addresses) % 4 == 0);
};
