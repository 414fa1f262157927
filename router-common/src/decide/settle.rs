//! The form of a choice that tables can hold: hashes outermost, then one random pick, then answers.
//!
//! A hash is moved out of random picks because the scope of an answer must cover the hashed bits
//! whichever part the random number takes: inside the scope every client has the same distribution.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::share::Share;

use super::{Choice, Credits, Records};

/// Most leaves that a settled choice may have; more are left to userspace.
const MAX_LEAVES: usize = 1 << 16;

/// An end of a choice; `None` is NODATA.
pub(crate) type Leaf = Option<Served>;

/// What is served at an end.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Served {
    pub records: Records,
    /// Seconds.
    pub ttl: u32,
    /// Whom it comes by: equal records by others are counted apart.
    pub credits: Credits,
}

/// A settled choice.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Settled {
    /// One of these evenly by a hash of the client.
    Hashed {
        /// 12 bits.
        salt: u16,
        /// Two at least.
        of: Vec<Settled>,
    },
    /// One of these at random; equal ones are merged and the shares add up to one.
    Random(Vec<(Share, Leaf)>),
}

impl Settled {
    fn leaves(&self) -> usize {
        match self {
            Self::Hashed { of, .. } => of.iter().map(Self::leaves).sum(),
            Self::Random(leaves) => leaves.len(),
        }
    }
}

/// Settles a choice; `None` when it would grow too large.
pub(crate) fn settle(choice: Choice) -> Option<Settled> {
    match choice {
        Choice::Answer { records, ttl, credits, .. } => Some(certain(Some(Served { records, ttl, credits }))),
        Choice::Nodata => Some(certain(None)),
        Choice::Hashed { salt, of } => {
            let of = of.into_iter().map(settle).collect::<Option<Vec<_>>>()?;
            Some(Settled::Hashed { salt, of }).filter(|settled| settled.leaves() <= MAX_LEAVES)
        }
        Choice::Random(parts) => {
            if parts.iter().all(|(_, part)| matches!(part, Choice::Answer { .. } | Choice::Nodata)) {
                return settle_plain(parts);
            }
            let parts = parts
                .into_iter()
                .map(|(share, part)| Some((share, settle(part)?)))
                .collect::<Option<Vec<_>>>()?;
            let mut budget = MAX_LEAVES;
            mix(parts, &mut budget)
        }
    }
}

/// A random pick among ends, which most are: [`mix`] without parts to be taken apart.
fn settle_plain(parts: Vec<(Share, Choice)>) -> Option<Settled> {
    let mut merged = Merged { list: Vec::with_capacity(parts.len()), ..Merged::default() };
    for (share, part) in parts {
        match part {
            Choice::Answer { records, ttl, credits, .. } => {
                merged.add(share, Some(Served { records, ttl, credits }));
            }
            _ => merged.add(share, None),
        }
    }
    Some(Settled::Random(merged.list)).filter(|settled| settled.leaves() <= MAX_LEAVES)
}

fn certain(leaf: Leaf) -> Settled {
    Settled::Random(vec![(Share::one(), leaf)])
}

/// A random pick among settled parts.
fn mix(parts: Vec<(Share, Settled)>, budget: &mut usize) -> Option<Settled> {
    let first_hash = parts.iter().find_map(|(_, part)| match part {
        Settled::Hashed { salt, of } => Some((*salt, of.len())),
        Settled::Random(_) => None,
    });
    if let Some((salt, count)) = first_hash {
        let of = (0..count)
            .map(|index| {
                let resolved = parts.iter().map(|(share, part)| match part {
                    // Equal salt and count hash alike: both take the same index.
                    Settled::Hashed { salt: other, of } if *other == salt && of.len() == count => {
                        (share.clone(), of.get(index).unwrap_or(part).clone())
                    }
                    _ => (share.clone(), part.clone()),
                });
                mix(resolved.collect(), budget)
            })
            .collect::<Option<Vec<_>>>()?;
        return Some(Settled::Hashed { salt, of });
    }
    let mut merged = Merged::default();
    for (share, part) in parts {
        let Settled::Random(leaves) = part else { continue };
        for (part, leaf) in leaves {
            merged.add(share.mul(&part), leaf);
        }
    }
    *budget = budget.checked_sub(merged.list.len())?;
    Some(Settled::Random(merged.list))
}

/// Leaves in the order found, equal ones merged.
#[derive(Default)]
struct Merged {
    list: Vec<(Share, Leaf)>,
    /// Places of all leaves, once they are too many to be looked through.
    index: HashMap<Leaf, usize, FixedState>,
}

impl Merged {
    /// Leaves that are looked through one by one.
    const FEW: usize = 8;

    fn add(&mut self, share: Share, leaf: Leaf) {
        if share.is_zero() {
            return;
        }
        let found = if self.list.len() <= Self::FEW {
            self.list.iter().position(|(_, held)| *held == leaf)
        } else {
            self.index.get(&leaf).copied()
        };
        if let Some((sum, _)) = found.and_then(|at| self.list.get_mut(at)) {
            *sum = sum.add(&share);
            return;
        }
        let next = self.list.len();
        if next == Self::FEW {
            self.index.extend(self.list.iter().enumerate().map(|(at, (_, held))| (held.clone(), at)));
        }
        if next >= Self::FEW {
            self.index.insert(leaf.clone(), next);
        }
        self.list.push((share, leaf));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{EndpointId, ProfileId};

    fn answer(last: u8) -> Choice {
        by(0, last)
    }

    fn by(endpoint: u32, last: u8) -> Choice {
        let Served { records, ttl, credits } = served(endpoint, last);
        Choice::Answer { endpoint: None, records, ttl, credits }
    }

    fn served(endpoint: u32, last: u8) -> Served {
        let credits = [EndpointId { profile: ProfileId(0), index: endpoint }].into();
        Served { records: Records::A(vec![[192, 0, 2, last].into()]), ttl: 30, credits }
    }

    fn leaf(last: u8) -> Leaf {
        Some(served(0, last))
    }

    #[test]
    fn equal_answers_by_others_stay_apart() {
        let half = Share::ratio(1, 2);
        let choice = Choice::Random(vec![(half.clone(), by(1, 1)), (half.clone(), by(2, 1))]);
        let leaves = vec![(half.clone(), Some(served(1, 1))), (half, Some(served(2, 1)))];
        assert_eq!(settle(choice), Some(Settled::Random(leaves)));
    }

    #[test]
    fn nested_random_picks_are_one_and_equal_answers_merge() {
        let half = Share::ratio(1, 2);
        let inner = Choice::Random(vec![(half.clone(), answer(1)), (half.clone(), Choice::Nodata)]);
        let outer = Choice::Random(vec![(half.clone(), inner), (half.clone(), answer(1))]);
        assert_eq!(
            settle(outer),
            Some(Settled::Random(vec![(Share::ratio(3, 4), leaf(1)), (Share::ratio(1, 4), None)]))
        );
    }

    #[test]
    fn a_hash_comes_out_of_a_random_pick() {
        let half = Share::ratio(1, 2);
        let hashed = Choice::Hashed { salt: 7, of: vec![answer(1), answer(2)] };
        let outer = Choice::Random(vec![(half.clone(), hashed), (half.clone(), answer(3))]);
        let mixed = |last| Settled::Random(vec![(half.clone(), leaf(last)), (half.clone(), leaf(3))]);
        assert_eq!(settle(outer), Some(Settled::Hashed { salt: 7, of: vec![mixed(1), mixed(2)] }));
    }

    #[test]
    fn many_equal_answers_merge_too() {
        let parts = (0..60).map(|at| (Share::ratio(1, 60), answer(at % 20))).collect();
        let Some(Settled::Random(leaves)) = settle(Choice::Random(parts)) else { panic!("no hash is there") };
        let expected: Vec<(Share, Leaf)> = (0..20).map(|last| (Share::ratio(1, 20), leaf(last))).collect();
        assert_eq!(leaves, expected);
    }

    #[test]
    fn what_explodes_is_given_up() {
        let parts: Vec<(Share, Choice)> = (0..6u16)
            .map(|salt| {
                let of = (0..20).map(answer).collect();
                (Share::ratio(1, 6), Choice::Hashed { salt, of })
            })
            .collect();
        assert_eq!(settle(Choice::Random(parts)), None);
    }
}
