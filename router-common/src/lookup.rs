//! Query to answer, over any memory that holds the tables: the kernel's maps, or the agent's image.
//!
//! Three steps, each usable by itself: [`find_owner`], [`locate`], [`pick`]; [`lookup`] is all three.
//! No step allocates, panics or loops without a bound.

use crate::abi::{
    Answer, Cell, Generation, INLINE_NAME, LINE, Line, LocationEntry, MAX_PICKS, NAME_WORDS, NONE, Owner,
    Pick,
};

/// A client address: IPv4 in the first four octets, or IPv6. Network order.
///
/// The layout is fixed and aligned so that the kernel's code moves words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C, align(8))]
pub struct Client {
    /// The address; octets beyond the family's are zero.
    pub octets: [u8; 16],
    /// 4 or 6.
    pub family: u8,
}

const _: () = assert!(core::mem::offset_of!(Client, octets) == 0);

/// The first 64 bits of the NAT64 prefix `64:ff9b::/96` (RFC 6052).
const NAT64: u64 = 0x0064_ff9b_0000_0000;

impl Client {
    /// An IPv4 client.
    pub const fn ipv4(address: [u8; 4]) -> Self {
        let mut octets = [0; 16];
        octets[0] = address[0];
        octets[1] = address[1];
        octets[2] = address[2];
        octets[3] = address[3];
        Self { family: 4, octets }
    }

    /// An IPv6 client, as it is (not folded).
    pub const fn ipv6(octets: [u8; 16]) -> Self {
        Self { family: 6, octets }
    }

    /// From an address as two words in memory order, zero beyond the family's octets.
    #[inline(always)]
    pub const fn from_words(family: u8, words: [u64; 2]) -> Self {
        // SAFETY: same size, and every bit pattern is valid.
        Self { octets: unsafe { core::mem::transmute::<[u64; 2], [u8; 16]>(words) }, family }
    }

    /// The address as two words in memory order.
    #[inline(always)]
    pub const fn words(&self) -> [u64; 2] {
        // SAFETY: same size, every bit pattern is valid, and the octets are the first field of a structure
        // that is aligned to 8.
        unsafe { *(&raw const self.octets).cast() }
    }

    /// The address as two numbers, first octet highest.
    #[inline(always)]
    pub const fn numbers(&self) -> (u64, u64) {
        let [high, low] = self.words();
        (u64::from_be(high), u64::from_be(low))
    }

    /// Folds a v4-mapped or NAT64 address, of which `known` bits are given, to the IPv4 address in it.
    /// Returns the client and the bits to add to a scope (96 when folded, else 0).
    #[inline(always)]
    pub fn fold(self, known: u8) -> (Self, u8) {
        if self.family != 6 || known < 96 {
            return (self, 0);
        }
        let (high, low) = self.numbers();
        let mapped = high == 0 && low >> 32 == 0xffff;
        let nat64 = high == NAT64 && low >> 32 == 0;
        if mapped || nat64 {
            return (Self::from_words(4, [(low << 32).to_be(), 0]), 96);
        }
        (self, 0)
    }
}

/// What a look-up needs to know of a query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Query {
    /// QNAME in wire form, in the case it came in, as little-endian words. Zero beyond its end at least up to
    /// [`INLINE_NAME`] and the next multiple of 8: as far as names are compared.
    pub name: [u64; NAME_WORDS],
    /// Octets of QNAME with the root, 1..=255.
    pub name_len: u32,
    /// AAAA instead of A.
    pub aaaa: bool,
    /// Source address of the packet.
    pub source: Client,
    /// Whether `ecs` is there and usable: family 1 or 2 and SOURCE PREFIX-LENGTH above 0.
    pub has_ecs: bool,
    /// SOURCE PREFIX-LENGTH.
    pub ecs_len: u8,
    /// The client subnet's address.
    pub ecs: Client,
}

impl Query {
    /// The client that decides, folded, and the bits that folding adds to a scope.
    #[inline(always)]
    pub fn client(&self, by_ecs: bool) -> (Client, u8) {
        if by_ecs { self.ecs.fold(self.ecs_len) } else { self.source.fold(128) }
    }
}

/// Why there is no answer here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Miss {
    /// No such owner name in the tables.
    UnknownName,
    /// The name is there but left to userspace ([`Owner::PASS`]); or may be there: another one hashes alike ([`CASE`]).
    Deferred,
    /// The picked share is left to userspace ([`Cell::PASS`], or nested too deep).
    DeferredShare,
    /// An index led nowhere: the tables are broken or not filled.
    Broken,
}

/// What belongs to a picked answer besides its cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    /// SCOPE PREFIX-LENGTH for the ECS option of the reply.
    pub scope: u8,
    /// Octets of the zone's name: the zone stands at `name_len - zone_len` inside QNAME.
    pub zone_len: u8,
}

/// Where the tables are. Indices are absolute (base of the half already added).
pub trait Tables {
    /// An owner slot.
    fn owner(&self, slot: u32) -> Option<&Owner>;
    /// Displacements of four buckets; the first is that of number `4 * word`.
    fn bucket_word(&self, word: u32) -> Option<u64>;
    /// Four regions; the first is number `4 * word`.
    fn region_word(&self, word: u32) -> Option<u64>;
    /// An answer.
    fn answer(&self, index: u32) -> Option<Answer>;
    /// An answer in this line will be asked for. (In the kernel its load begins while the client's region is not known yet.)
    #[inline(always)]
    fn expect_answer(&self, _index: u32) {}
    /// A cell.
    fn cell(&self, index: u32) -> Option<&Cell>;
    /// A line.
    fn line(&self, index: u32) -> Option<&Line>;
    /// The location of an address that was folded before, in the half looked at.
    fn location(&self, generation: &Generation, client: &Client) -> Option<LocationEntry>;
    /// A uniform random number.
    fn random(&self) -> u32;
    /// The slot of the wildcard that covers a name without a slot: [`crate::wildcard::find_covering`].
    fn covering(&self, generation: &Generation, query: &Query) -> Result<u32, Miss>;
    /// The reason for a miss, as it is given. (In the kernel this is an instruction of its own, without which the
    /// compiler would have every reason at hand before it is known that there is none.)
    #[inline(always)]
    fn miss(&self, miss: Miss) -> Miss {
        miss
    }
    /// [`pick_further`]; `query` is whose client was located.
    #[inline(always)]
    fn pick_further(
        &self,
        cells: u32,
        place: u32,
        located: &Located,
        _query: &Query,
    ) -> Result<(u32, u8), Miss>
    where
        Self: Sized,
    {
        pick_further(self, cells, place, located)
    }
    /// [`is_name_of`].
    #[inline(always)]
    fn is_name_of(&self, slot: u32, lines: u32, query: &Query) -> bool
    where
        Self: Sized,
    {
        is_name_of(self, slot, lines, query)
    }
}

/// Folds ASCII upper case in eight octets at once (RFC 4343 §3); other octets stay. Length octets are
/// at most 63, below `A`, and stay too.
#[inline(always)]
pub const fn fold_case(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let low = word & (0x7f * ONES);
    let at_least_a = low + ONES * (0x80 - b'A' as u64);
    let beyond_z = low + ONES * (0x7f - b'Z' as u64);
    let upper = at_least_a & !beyond_z & !word & (0x80 * ONES);
    word | (upper >> 2)
}

/// The bit in which upper and lower case of a letter differ, in every octet.
///
/// Names are hashed with it set, which costs less than to fold them: names that differ in their letters' case hash
/// alike, a few others do too, and whoever hashes alike is compared. When two names that are there do, both are left to
/// userspace.
pub const CASE: u64 = 0x2020_2020_2020_2020;

/// Takes a word into a keyed hash.
#[inline(always)]
pub fn hash_step(state: u64, word: u64) -> u64 {
    let mixed = (state ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

/// Takes a word of [`Query::name`] into the hash of a name; the last one is padded with zeros.
#[inline(always)]
pub fn hash_word(state: u64, word: u64) -> u64 {
    hash_step(state, word | CASE)
}

/// Finishes [`hash_word`].
#[inline(always)]
pub fn hash_end(state: u64, key: u64, name_len: u32) -> u64 {
    let mixed = (state ^ key ^ name_len as u64).wrapping_mul(0xd6e8_feb8_6659_fd93);
    mixed ^ (mixed >> 29)
}

/// Hash of a whole name under a generation's seed.
#[inline(always)]
pub fn hash_name(seed: &[u64; 2], name: &[u64; NAME_WORDS], name_len: u32) -> u64 {
    let mut state = seed[0];
    let mut i = 0;
    while i < NAME_WORDS && (i as u32) * 8 < name_len {
        state = hash_word(state, name[i]);
        i += 1;
    }
    hash_end(state, seed[1], name_len)
}

/// Which of `count` buckets a name's hash is in; 0 when there is none.
#[inline(always)]
pub const fn bucket(hash: u64, count: u32) -> u32 {
    ((hash >> 32).wrapping_mul(count as u64) >> 32) as u32
}

/// Which of `slots` a name's hash has with its bucket's displacement; 0 when there is none.
#[inline(always)]
pub const fn slot(hash: u64, displacement: u16, slots: u32) -> u32 {
    let displaced = hash ^ (displacement as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = displaced.wrapping_mul(0xd6e8_feb8_6659_fd93);
    ((mixed >> 32).wrapping_mul(slots as u64) >> 32) as u32
}

/// Hash that shares clients evenly: the folded client masked to /24 or /56, and the answer's salt.
/// Returns 32 uniform bits.
#[inline(always)]
pub fn hash_client(client: &Client, salt: u16) -> u32 {
    let (high, _) = client.numbers();
    let masked = if client.family == 4 { 4 << 56 | high >> 40 } else { 6 << 56 | high >> 8 };
    let state = hash_step(hash_step(0x5851_f42d_4c95_7f2d ^ salt as u64, masked), salt as u64);
    (hash_step(state, masked) >> 32) as u32
}

/// Bits of the client subnet that [`hash_client`] looks at.
#[inline(always)]
pub const fn hashed_bits(family: u8) -> u8 {
    if family == 4 { 24 } else { 56 }
}

/// Which of `count` cells a hash or a random number chooses, and the 32 bits left for the threshold.
#[inline(always)]
pub const fn scale(number: u32, count: u16) -> (u32, u32) {
    let product = number as u64 * count as u64;
    ((product >> 32) as u32, product as u32)
}

/// Compares a query's name with that of the owner in a slot.
#[inline(always)]
fn same_name<T: Tables>(
    tables: &T,
    generation: &Generation,
    slot: u32,
    owner: &Owner,
    query: &Query,
) -> bool {
    if owner.name_len as u32 != query.name_len {
        return false;
    }
    // Most names are short, and most queries in lower case.
    let mut differences = u64::from(owner.name_len as usize > INLINE_NAME);
    let mut i = 0;
    while i < INLINE_NAME / 8 {
        differences |= u64::from_le(owner.name_words()[i]) ^ query.name[i];
        i += 1;
    }
    differences == 0 || tables.is_name_of(slot, generation.lines, query)
}

/// Whether a query's name, in any case, is that of the owner in a slot, which is as long. `lines` is where the half's
/// lines begin.
#[inline(always)]
pub fn is_name_of<T: Tables>(tables: &T, slot: u32, lines: u32, query: &Query) -> bool {
    let Some(owner) = tables.owner(slot) else { return false };
    let len = owner.name_len as usize;
    if len <= INLINE_NAME {
        let mut i = 0;
        while i < INLINE_NAME / 8 && i * 8 < len {
            if !is_word_of(owner.name_words()[i], query.name[i]) {
                return false;
            }
            i += 1;
        }
        return true;
    }
    const WORDS: usize = LINE / 8;
    let first = lines.wrapping_add(owner.name_words()[0] as u32);
    let mut line = 0;
    while line < NAME_WORDS / WORDS && line * LINE < len {
        let Some(held) = tables.line(first.wrapping_add(line as u32)) else { return false };
        let mut i = 0;
        while i < WORDS && (line * WORDS + i) * 8 < len {
            if !is_word_of(held.words()[i], query.name[line * WORDS + i]) {
                return false;
            }
            i += 1;
        }
        line += 1;
    }
    true
}

/// Whether a word of a query's name, in any case, is that of the tables.
#[inline(always)]
const fn is_word_of(held: u64, asked: u64) -> bool {
    let held = u64::from_le(held);
    // Most queries are in lower case.
    held == asked || held == fold_case(asked)
}

/// The owner of the query's name: its own, or that of the wildcard that covers it.
#[inline(always)]
pub fn find_owner<'t, T: Tables>(
    tables: &'t T,
    generation: &Generation,
    query: &Query,
    hash: u64,
) -> Result<&'t Owner, Miss> {
    let owner = match find_slot(tables, generation, query, hash) {
        Err(Miss::UnknownName) if generation.flags & Generation::WILDCARDS != 0 => {
            let slot = tables.covering(generation, query)?;
            tables.owner(generation.owners.wrapping_add(slot)).ok_or_else(|| tables.miss(Miss::Broken))?
        }
        found => found?,
    };
    if owner.flags & Owner::PASS != 0 {
        return Err(tables.miss(Miss::Deferred));
    }
    Ok(owner)
}

/// Finds the slot of exactly the query's name.
#[inline(always)]
pub fn find_slot<'t, T: Tables>(
    tables: &'t T,
    generation: &Generation,
    query: &Query,
    hash: u64,
) -> Result<&'t Owner, Miss> {
    let bucket = generation.buckets.wrapping_add(bucket(hash, generation.bucket_count));
    let word = tables.bucket_word(bucket >> 2).ok_or_else(|| tables.miss(Miss::Broken))?;
    let displacement = (word >> ((bucket & 3) * 16)) as u16;
    let slot = generation.owners.wrapping_add(slot(hash, displacement, generation.owner_slots));
    let owner = tables.owner(slot).ok_or_else(|| tables.miss(Miss::Broken))?;
    if owner.hash != hash {
        return Err(tables.miss(Miss::UnknownName));
    }
    if !same_name(tables, generation, slot, owner, query) {
        // Of names that hash alike one has a slot.
        return Err(tables.miss(Miss::Deferred));
    }
    Ok(owner)
}

/// The client that decides, its region in the owner's partition, and the scope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Located {
    /// Region, 0 in the trivial partition.
    pub region: u16,
    /// Scope so far.
    pub scope: u8,
    /// Bits to add when the hashed length becomes the scope (96 when folded from IPv6).
    pub folded: u8,
    /// Whether ECS decided; else the scope goes unused.
    pub by_ecs: bool,
    /// The deciding client, folded.
    pub client: Client,
}

/// Finds the region of a query's client.
#[inline(always)]
pub fn locate<T: Tables>(
    tables: &T,
    generation: &Generation,
    owner: &Owner,
    query: &Query,
) -> Result<Located, Miss> {
    let by_ecs = query.has_ecs && owner.flags & Owner::ECS_OFF == 0;
    let (client, folded) = query.client(by_ecs);
    let mut located = Located { region: 0, scope: 0, folded, by_ecs, client };
    if owner.partition == NONE {
        return Ok(located);
    }
    let mut entry = tables.location(generation, &located.client).ok_or_else(|| tables.miss(Miss::Broken))?;
    if by_ecs {
        located.scope = entry.scope.saturating_add(folded);
        if entry.flags & LocationEntry::SPECIAL != 0 {
            located.by_ecs = false;
            located.client = query.client(false).0;
            entry = tables.location(generation, &located.client).ok_or_else(|| tables.miss(Miss::Broken))?;
        }
    }
    let at = generation.regions.wrapping_add(owner.partition).wrapping_add(entry.location);
    let word = tables.region_word(at >> 2).ok_or_else(|| tables.miss(Miss::Broken))?;
    located.region = (word >> ((at & 3) * 16)) as u16;
    Ok(located)
}

/// Picks the block's answer for this region and type, and of its cells one, which is written to `picked`: a cell as it is, an
/// address as [`Answer::write_address`] says.
#[inline(always)]
pub fn pick<T: Tables>(
    tables: &T,
    generation: &Generation,
    owner: &Owner,
    located: &Located,
    query: &Query,
    picked: &mut Cell,
) -> Result<Hit, Miss> {
    let index =
        owner.first_answer.wrapping_add(2 * located.region as u32).wrapping_add(u32::from(query.aaaa));
    let answer =
        tables.answer(generation.answers.wrapping_add(index)).ok_or_else(|| tables.miss(Miss::Broken))?;
    let zone_len = owner.zone_len;
    if answer.is_address() {
        answer.write_address(picked);
        return Ok(Hit { scope: located.scope, zone_len });
    }
    let (place, scope) = pick_one(tables, generation.cells, answer, located)?;
    let cell = tables.cell(place).ok_or_else(|| tables.miss(Miss::Broken))?;
    let (cell, scope) = if cell.kind == Cell::FURTHER {
        let further = Located { scope, ..*located };
        let (place, scope) = tables.pick_further(generation.cells, place, &further, query)?;
        (tables.cell(place).ok_or_else(|| tables.miss(Miss::Broken))?, scope)
    } else {
        (cell, scope)
    };
    picked.copy_from(cell);
    match cell.kind {
        Cell::RECORDS => Ok(Hit { scope, zone_len }),
        Cell::NODATA => Ok(Hit { scope: 0, zone_len }),
        _ => Err(tables.miss(Miss::DeferredShare)),
    }
}

/// Picks one of an answer's cells, which are counted from `cells` on: its place, and the scope.
#[inline(always)]
fn pick_one<T: Tables>(tables: &T, cells: u32, answer: Answer, located: &Located) -> Result<(u32, u8), Miss> {
    let count = answer.cells();
    if count == 0 {
        return Err(tables.miss(Miss::Broken));
    }
    let base = cells.wrapping_add(answer.first_cell());
    match answer.pick() {
        Pick::Random => {
            if count == 1 {
                return Ok((base, located.scope));
            }
            let (at, rest) = scale(tables.random(), count);
            let cell = tables.cell(base.wrapping_add(at)).ok_or_else(|| tables.miss(Miss::Broken))?;
            let picked = if rest < cell.threshold { at } else { cell.alias as u32 };
            Ok((base.wrapping_add(picked), located.scope))
        }
        Pick::Hashed => {
            let mut scope = located.scope;
            if located.by_ecs {
                let hashed = hashed_bits(located.client.family) + located.folded;
                if hashed > scope {
                    scope = hashed;
                }
            }
            let (at, _) = scale(hash_client(&located.client, answer.salt()), count);
            Ok((base.wrapping_add(at), scope))
        }
    }
}

/// Picks a cell of the answer in the cell at `place`, and again, as often as an answer may hold another: the place of
/// one that holds none, and the scope. `located.scope` is the scope so far.
#[inline(always)]
pub fn pick_further<T: Tables>(
    tables: &T,
    cells: u32,
    mut place: u32,
    located: &Located,
) -> Result<(u32, u8), Miss> {
    let mut scope = located.scope;
    let mut picks = 1;
    while picks < MAX_PICKS {
        let cell = tables.cell(place).ok_or_else(|| tables.miss(Miss::Broken))?;
        if cell.kind != Cell::FURTHER {
            break;
        }
        let answer = Answer(cell.piece_words()[0]);
        (place, scope) = pick_one(tables, cells, answer, &Located { scope, ..*located })?;
        picks += 1;
    }
    Ok((place, scope))
}

/// The whole way from query to the piece to write, in `picked`.
#[inline(always)]
pub fn lookup<T: Tables>(
    tables: &T,
    generation: &Generation,
    query: &Query,
    hash: u64,
    picked: &mut Cell,
) -> Result<Hit, Miss> {
    let owner = find_owner(tables, generation, query, hash)?;
    tables.expect_answer(generation.answers.wrapping_add(owner.first_answer));
    let located = locate(tables, generation, owner, query)?;
    pick(tables, generation, owner, &located, query, picked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_is_folded_like_ascii_in_every_octet() {
        for byte in 0..=255u8 {
            for lane in 0..8 {
                let mut octets = [0xc1, b'A', b'z', b'[', 0x3f, b'@', 0xda, b'Z'];
                octets[lane] = byte;
                let folded = fold_case(u64::from_le_bytes(octets)).to_le_bytes();
                assert_eq!(folded, octets.map(|b| b.to_ascii_lowercase()), "byte {byte:#x} in lane {lane}");
            }
        }
    }

    #[test]
    fn mapped_and_nat64_clients_fold_only_when_96_bits_are_known() {
        let mapped = Client::ipv6([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 198, 51, 100, 7]);
        assert_eq!(mapped.fold(128), (Client::ipv4([198, 51, 100, 7]), 96));
        assert_eq!(mapped.fold(95), (mapped, 0));
        let nat64 = Client::ipv6([0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0, 192, 0, 2, 1]);
        assert_eq!(nat64.fold(96), (Client::ipv4([192, 0, 2, 1]), 96));
        let plain = Client::ipv6([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(plain.fold(128), (plain, 0));
    }

    #[test]
    fn a_client_hash_ignores_what_the_mask_hides() {
        let salt = 77;
        assert_eq!(
            hash_client(&Client::ipv4([10, 1, 2, 3]), salt),
            hash_client(&Client::ipv4([10, 1, 2, 255]), salt)
        );
        assert_ne!(
            hash_client(&Client::ipv4([10, 1, 2, 3]), salt),
            hash_client(&Client::ipv4([10, 1, 3, 3]), salt)
        );
    }
}
