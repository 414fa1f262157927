//! The fast path on the agent's image of the tables: the same look-up on the same bytes.

use std::cell::Cell as Mutable;
use std::net::IpAddr;

use crate::abi::{
    Answer, CREDIT_NAMES, Cell, Generation, Line, LocationEntry, MAX_PICKS, NAME_WORDS, Owner, Pick,
};
use crate::compile::words;
use crate::decide::Asker;
use crate::location;
use crate::lookup::{self, Client, Hit, Miss, Query, Tables as Reading, hash_name, hashed_bits};
use crate::name::Name;
use crate::share::Share;
use crate::tables::Tables;
use crate::wildcard::{find_covering, step};

/// Compiled tables, read as the XDP program reads them.
pub struct Sim<'t> {
    tables: &'t Tables,
    random: Mutable<u64>,
}

/// One possible reply of the fast path.
#[derive(Clone, PartialEq, Debug)]
pub struct Possible {
    /// Its share, as exact as the table holds it (2⁻³²).
    pub share: Share,
    /// [`Cell::RECORDS`], [`Cell::NODATA`], or [`Cell::PASS`] when it is left to userspace.
    pub kind: u8,
    /// The records of the reply, owners still `C0 0C` (`00 00` for the SOA of a NODATA).
    pub piece: Vec<u8>,
    /// [`Cell::ends`].
    pub ends: [u8; 2],
    /// ANCOUNT.
    pub ancount: u8,
    /// NSCOUNT.
    pub nscount: u8,
    /// SCOPE PREFIX-LENGTH.
    pub scope: u8,
    /// [`Cell::tally`].
    pub tally: u32,
}

impl Possible {
    /// The piece with the names of a NODATA's SOA in full.
    pub fn in_full(&self, zone: &Name) -> Vec<u8> {
        let mut piece = self.piece.clone();
        let [first, second] = self.ends.map(usize::from);
        for end in [second, first] {
            if end > 0 && end + 2 <= piece.len() {
                piece.splice(end..end + 2, zone.as_wire().iter().copied());
            }
        }
        let added = piece.len() - self.piece.len();
        if let Some([high, low]) = piece.get_mut(10..12) {
            let len = u16::from_be_bytes([*high, *low]) + added as u16;
            [*high, *low] = len.to_be_bytes();
        }
        piece
    }
}

/// A client of the look-up from an address.
pub fn client(address: IpAddr) -> Client {
    match address {
        IpAddr::V4(address) => Client::ipv4(address.octets()),
        IpAddr::V6(address) => Client::ipv6(address.octets()),
    }
}

/// The query that the parser of the fast path would hand to the look-up.
pub fn query(name: &Name, aaaa: bool, asker: &Asker) -> Query {
    let words: [u64; NAME_WORDS] = words(name);
    let (has_ecs, ecs, ecs_len) = match asker.ecs {
        Some((address, len)) => (true, client(address), len),
        None => (false, Client::default(), 0),
    };
    Query {
        name: words,
        name_len: name.as_wire().len() as u32,
        aaaa,
        source: client(asker.source),
        has_ecs,
        ecs_len,
        ecs,
    }
}

impl<'t> Sim<'t> {
    /// Reads these tables; random numbers are a fixed sequence.
    pub fn new(tables: &'t Tables) -> Self {
        Self::seeded(tables, 0)
    }

    /// The same with another sequence of random numbers.
    pub fn seeded(tables: &'t Tables, seed: u64) -> Self {
        Self { tables, random: Mutable::new(seed) }
    }

    /// What is read.
    pub fn tables(&self) -> &'t Tables {
        self.tables
    }

    /// Hash of a query's name under the tables' key.
    pub fn hash(&self, query: &Query) -> u64 {
        hash_name(&self.tables.generation.seed, &query.name, query.name_len)
    }

    /// One reply, picked as the fast path would.
    pub fn look_up(&self, query: &Query) -> Result<(Cell, Hit), Miss> {
        let mut cell = Cell::EMPTY;
        let hit = lookup::lookup(self, &self.tables.generation, query, self.hash(query), &mut cell)?;
        Ok((cell, hit))
    }

    /// Whether the fast path answers this question itself, whatever it picks.
    pub fn answers(&self, name: &Name, aaaa: bool, asker: &Asker) -> bool {
        self.enumerate(&query(name, aaaa, asker))
            .is_ok_and(|possible| possible.iter().all(|possible| possible.kind != Cell::PASS))
    }

    /// Every reply the fast path could pick, with its share; equal ones are not merged.
    pub fn enumerate(&self, query: &Query) -> Result<Vec<Possible>, Miss> {
        let generation = &self.tables.generation;
        let owner = lookup::find_owner(self, generation, query, self.hash(query))?;
        let located = lookup::locate(self, generation, owner, query)?;
        let index = owner.first_answer + 2 * u32::from(located.region) + u32::from(query.aaaa);
        let answer = self.answer(index).ok_or(Miss::Broken)?;
        let mut possible = Vec::new();
        self.walk(answer, &located, located.scope, &Share::one(), 0, &mut possible)?;
        Ok(possible)
    }

    fn walk(
        &self,
        answer: Answer,
        located: &lookup::Located,
        scope: u8,
        share: &Share,
        picks: usize,
        into: &mut Vec<Possible>,
    ) -> Result<(), Miss> {
        if answer.is_address() {
            let mut cell = Cell::EMPTY;
            answer.write_address(&mut cell);
            into.push(self.possible(&cell, share.clone(), scope)?);
            return Ok(());
        }
        if answer.cells() == 0 {
            return Err(Miss::Broken);
        }
        if picks == MAX_PICKS {
            into.push(Possible {
                share: share.clone(),
                kind: Cell::PASS,
                piece: Vec::new(),
                ends: [0; 2],
                ancount: 0,
                nscount: 0,
                scope: 0,
                tally: 0,
            });
            return Ok(());
        }
        let (taken, scope) = match answer.pick() {
            Pick::Hashed => {
                let hash = lookup::hash_client(&located.client, answer.salt());
                let at = lookup::scale(hash, answer.cells()).0;
                let hashed = hashed_bits(located.client.family) + located.folded;
                let scope = if located.by_ecs { scope.max(hashed) } else { scope };
                (vec![(at, Share::one())], scope)
            }
            Pick::Random => (self.columns(answer)?, scope),
        };
        for (at, part) in taken {
            let cell = self.cell(answer.first_cell() + at).ok_or(Miss::Broken)?;
            let share = share.mul(&part);
            if cell.kind == Cell::FURTHER {
                let mut octets = [0; 8];
                octets.copy_from_slice(&cell.piece[..8]);
                self.walk(Answer(u64::from_le_bytes(octets)), located, scope, &share, picks + 1, into)?;
                continue;
            }
            into.push(self.possible(cell, share, scope)?);
        }
        Ok(())
    }

    fn possible(&self, cell: &Cell, share: Share, scope: u8) -> Result<Possible, Miss> {
        Ok(Possible {
            share,
            kind: cell.kind,
            piece: self.piece(cell)?,
            ends: cell.ends(),
            ancount: cell.ancount,
            nscount: cell.nscount(),
            scope: if cell.kind == Cell::RECORDS { scope } else { 0 },
            tally: cell.tally(),
        })
    }

    /// Cells of a random answer with the probability that the thresholds give them.
    fn columns(&self, answer: Answer) -> Result<Vec<(u32, Share)>, Miss> {
        let count = u64::from(answer.cells());
        const WHOLE: u64 = 1 << 32;
        let mut taken = vec![0u64; usize::from(answer.cells())];
        for at in 0..answer.cells() {
            let cell = self.cell(answer.first_cell() + u32::from(at)).ok_or(Miss::Broken)?;
            let own = if cell.alias == at { WHOLE } else { u64::from(cell.threshold) };
            taken[usize::from(at)] += own;
            *taken.get_mut(usize::from(cell.alias)).ok_or(Miss::Broken)? += WHOLE - own;
        }
        Ok((0..).zip(taken.into_iter().map(|taken| Share::ratio(taken, WHOLE * count))).collect())
    }

    /// TTL of the answers that a tally counts, and [`crate::abi::endpoint_hash`] of the endpoints that it counts for.
    pub fn credited(&self, tally: u32) -> Result<(u32, Vec<u64>), Miss> {
        let credits = self.tables.credits.get(tally as usize..).ok_or(Miss::Broken)?;
        let first = credits.first().ok_or(Miss::Broken)?;
        let count = first.count as usize;
        let names: Vec<u64> = credits
            .iter()
            .take(count.div_ceil(CREDIT_NAMES))
            .flat_map(|credit| credit.names)
            .take(count)
            .collect();
        if names.len() == count { Ok((first.ttl, names)) } else { Err(Miss::Broken) }
    }

    /// The octets of a cell's piece.
    pub fn piece(&self, cell: &Cell) -> Result<Vec<u8>, Miss> {
        let len = usize::from(cell.len);
        if let Some(inline) = cell.piece.get(..len) {
            return Ok(inline.to_vec());
        }
        let mut first = [0; 4];
        first.copy_from_slice(&cell.piece[..4]);
        let first = u32::from_le_bytes(first) as usize;
        let lines = self.tables.lines.get(first..).ok_or(Miss::Broken)?;
        let octets: Vec<u8> = lines.iter().flat_map(|line| line.0).take(len).collect();
        if octets.len() == len { Ok(octets) } else { Err(Miss::Broken) }
    }
}

impl Reading for Sim<'_> {
    fn owner(&self, slot: u32) -> Option<&Owner> {
        self.tables.owners.get(slot as usize)
    }

    fn bucket_word(&self, word: u32) -> Option<u64> {
        self.tables.buckets.get(word as usize).copied()
    }

    fn region_word(&self, word: u32) -> Option<u64> {
        self.tables.regions.get(word as usize).copied()
    }

    fn answer(&self, index: u32) -> Option<Answer> {
        self.tables.answers.get(index as usize).copied()
    }

    fn cell(&self, index: u32) -> Option<&Cell> {
        self.tables.cells.get(index as usize)
    }

    fn line(&self, index: u32) -> Option<&Line> {
        self.tables.lines.get(index as usize)
    }

    fn location(&self, generation: &Generation, client: &Client) -> Option<LocationEntry> {
        location::find_entry(&self.tables.locations, &generation.location_roots, client)
    }

    fn covering(&self, generation: &Generation, query: &Query) -> Result<u32, Miss> {
        let mut stripped = *query;
        find_covering(|| step(self, generation, &mut stripped))
    }

    /// SplitMix64 (Steele, Lea, Flood 2014).
    fn random(&self) -> u32 {
        let state = self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 32) as u32
    }
}
