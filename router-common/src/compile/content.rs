//! From a choice to the cells of one answer, still without places in the table.

use std::collections::HashMap;
use std::sync::Arc;

use super::alias;
use super::piece::Piece;
use crate::abi::{MAX_PICKS, Pick};
use crate::decide::Choice;
use crate::model::Zone;
use crate::share::Share;

/// Everything one answer holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Content {
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
    /// The cells for a choice; negative shares carry the SOA of `zone`.
    pub fn of(choice: &Choice, zone: &Zone) -> Arc<Self> {
        Encoder { nodata: Piece::nodata(zone) }.content(choice, 0)
    }
}

struct Encoder {
    nodata: Piece,
}

impl Encoder {
    /// `picks` answers were followed before this one.
    fn content(&self, choice: &Choice, picks: usize) -> Arc<Content> {
        match choice {
            Choice::Hashed { salt, of } if !of.is_empty() && of.len() <= usize::from(u16::MAX) => {
                let whole = alias::Column { threshold: 0, alias: 0 };
                let cells = of
                    .iter()
                    .enumerate()
                    .map(|(i, choice)| ContentCell {
                        column: alias::Column { alias: i as u16, ..whole },
                        body: self.body(choice, picks),
                    })
                    .collect();
                Arc::new(Content { pick: Pick::Hashed, salt: *salt, cells })
            }
            Choice::Hashed { .. } => self.random(vec![(Share::one(), Body::Piece(Piece::pass()))]),
            Choice::Random(_) => {
                let mut shares = Vec::new();
                self.flatten(&Share::one(), choice, picks, &mut shares);
                self.random(shares)
            }
            Choice::Answer { .. } | Choice::Nodata => {
                self.random(vec![(Share::one(), self.body(choice, picks))])
            }
        }
    }

    /// Shares of nested random choices multiply.
    fn flatten(&self, share: &Share, choice: &Choice, picks: usize, into: &mut Vec<(Share, Body)>) {
        match choice {
            Choice::Random(parts) => {
                for (part, choice) in parts {
                    self.flatten(&share.mul(part), choice, picks, into);
                }
            }
            _ => into.push((share.clone(), self.body(choice, picks))),
        }
    }

    fn body(&self, choice: &Choice, picks: usize) -> Body {
        match choice {
            Choice::Answer { records, ttl, .. } => Body::Piece(Piece::records(records, *ttl)),
            Choice::Nodata => Body::Piece(self.nodata.clone()),
            Choice::Random(_) | Choice::Hashed { .. } if picks + 1 < MAX_PICKS => {
                Body::Further(self.content(choice, picks + 1))
            }
            // Deeper than the fast path follows.
            Choice::Random(_) | Choice::Hashed { .. } => Body::Piece(Piece::pass()),
        }
    }

    /// Equal bodies are one column; what has no share is none.
    fn random(&self, shares: Vec<(Share, Body)>) -> Arc<Content> {
        let mut positions: HashMap<Body, usize> = HashMap::new();
        let mut merged: Vec<(Share, Body)> = Vec::new();
        for (share, body) in shares.into_iter().filter(|(share, _)| !share.is_zero()) {
            match positions.get(&body) {
                Some(&at) => merged[at].0 = merged[at].0.add(&share),
                None => {
                    positions.insert(body.clone(), merged.len());
                    merged.push((share, body));
                }
            }
        }
        if merged.is_empty() || merged.len() > usize::from(u16::MAX) {
            merged = vec![(Share::one(), Body::Piece(Piece::pass()))];
        }
        let shares: Vec<&Share> = merged.iter().map(|(share, _)| share).collect();
        let columns = alias::columns(&shares);
        let cells =
            columns.into_iter().zip(merged).map(|(column, (_, body))| ContentCell { column, body }).collect();
        Arc::new(Content { pick: Pick::Random, salt: 0, cells })
    }
}
