//! From a choice to the cells of one answer, still without places in the table.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::alias;
use super::piece::Piece;
use crate::abi::{Answer, MAX_PICKS, Pick};
use crate::decide::{Choice, Credits, Leaf, Served, Settled, settle};
use crate::model::Zone;

/// Everything one answer holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Content {
    /// Of all the rest; worked out once, because contents are looked up by it again and again.
    hash: u64,
    /// How a cell is picked.
    pub pick: Pick,
    /// Salt of a hashed pick.
    pub salt: u16,
    /// At least one.
    pub cells: Vec<ContentCell>,
}

/// One cell of a content.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ContentCell {
    /// Its column of the alias table.
    pub column: alias::Column,
    /// What it holds.
    pub body: Body,
}

/// What a cell holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Body {
    /// A piece of wire, or a pass.
    Piece(Piece),
    /// A further answer.
    Further(Arc<Content>),
}

impl Content {
    fn new(pick: Pick, salt: u16, cells: Vec<ContentCell>) -> Arc<Self> {
        let hash = FixedState::default().hash_one((pick, salt, &cells));
        Arc::new(Self { hash, pick, salt, cells })
    }

    /// The address that stands in the answer, whom it comes by, and its TTL; `None` when cells are needed.
    pub fn address(&self) -> Option<([u8; 4], &Credits, u32)> {
        let [ContentCell { body: Body::Piece(piece), .. }] = &self.cells[..] else { return None };
        let (address, (credits, ttl)) = piece.address().zip(piece.credit.as_ref())?;
        (*ttl <= Answer::MAX_TTL).then_some((address, credits, *ttl))
    }
}

impl Hash for Content {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// What is left to userspace.
fn pass() -> Arc<Content> {
    let column = alias::Column { threshold: 0, alias: 0 };
    Content::new(Pick::Random, 0, vec![ContentCell { column, body: Body::Piece(Piece::pass()) }])
}

/// Makes contents for the names of one zone.
pub struct Encoder {
    nodata: Piece,
}

impl Encoder {
    /// Negative shares carry the SOA of the zone.
    pub fn new(zone: &Zone) -> Self {
        Self { nodata: Piece::nodata(zone) }
    }

    /// The cells for a choice. One that is too large for a table is left to userspace.
    pub fn encode(&self, choice: Choice) -> Arc<Content> {
        settle(choice).map_or_else(pass, |settled| self.content(&settled, MAX_PICKS))
    }

    /// `picks` answers may be followed, this one included.
    fn content(&self, settled: &Settled, picks: usize) -> Arc<Content> {
        match settled {
            Settled::Hashed { salt, of } if !of.is_empty() && of.len() <= usize::from(u16::MAX) => {
                let cells = (0u16..)
                    .zip(of)
                    .map(|(alias, each)| ContentCell {
                        column: alias::Column { threshold: 0, alias },
                        body: self.inner(each, picks - 1),
                    })
                    .collect();
                Content::new(Pick::Hashed, *salt, cells)
            }
            Settled::Random(leaves) if !leaves.is_empty() && leaves.len() <= usize::from(u16::MAX) => {
                let cells = alias::columns(leaves.iter().map(|(share, _)| share))
                    .into_iter()
                    .zip(leaves)
                    .map(|(column, (_, leaf))| ContentCell { column, body: self.leaf(leaf) })
                    .collect();
                Content::new(Pick::Random, 0, cells)
            }
            Settled::Hashed { .. } | Settled::Random(_) => pass(),
        }
    }

    /// A cell of a hashed answer; `picks` more may be followed.
    fn inner(&self, settled: &Settled, picks: usize) -> Body {
        match settled {
            Settled::Random(leaves) if leaves.len() == 1 => {
                leaves.first().map_or_else(|| Body::Piece(Piece::pass()), |(_, leaf)| self.leaf(leaf))
            }
            // Deeper than the fast path follows.
            _ if picks == 0 => Body::Piece(Piece::pass()),
            _ => Body::Further(self.content(settled, picks)),
        }
    }

    fn leaf(&self, leaf: &Leaf) -> Body {
        Body::Piece(match leaf {
            None => self.nodata.clone(),
            Some(Served { records, ttl, credits }) => Piece::records(records, *ttl, credits),
        })
    }
}
