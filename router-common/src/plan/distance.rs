//! How far two decisions are from one another: which share of the answers is another one.

use std::collections::{BTreeMap, HashMap};

use foldhash::fast::FixedState;

use crate::decide::{Choice, Records};
use crate::share::Share;

/// Most combinations of hashes that are followed; beyond, hashed choices count as random ones, which is a lower
/// bound of what moves.
const MAX_COMBINATIONS: usize = 4096;

/// What differs between two decisions.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Distance {
    /// Share of the answers that are others: as records, whatever their TTL and the endpoints' names.
    pub moved: Share,
    /// Share of the answers that are NODATA now and were not.
    pub nodata: Share,
}

impl Distance {
    /// A client whose hash is the same before and after is followed; by chance as little moves as can.
    pub fn between(before: &Choice, after: &Choice) -> Self {
        let mut counts = BTreeMap::new();
        salts(before, &mut counts);
        salts(after, &mut counts);
        let salts: Vec<(u16, Vec<Point>)> =
            counts.into_iter().map(|(salt, counts)| (salt, points(&counts))).collect();
        let combinations = salts.iter().try_fold(1usize, |all, (_, points)| all.checked_mul(points.len()));
        match combinations {
            Some(..=MAX_COMBINATIONS) => follow(before, after, &salts, &mut Vec::new()),
            _ => by_chance(before, after, &[]),
        }
    }
}

/// A fraction of the hashes' range.
type Point = (u64, u64);

/// How many ways each salt's hash chooses among.
fn salts(choice: &Choice, counts: &mut BTreeMap<u16, Vec<u64>>) {
    match choice {
        Choice::Answer { .. } | Choice::Nodata => {}
        Choice::Random(parts) => parts.iter().for_each(|(_, part)| salts(part, counts)),
        Choice::Hashed { salt, of } => {
            counts.entry(*salt).or_default().push(of.len() as u64);
            of.iter().for_each(|part| salts(part, counts));
        }
    }
}

/// Where choices by one hash change, ascending from 0.
fn points(counts: &[u64]) -> Vec<Point> {
    let mut points: Vec<Point> =
        counts.iter().flat_map(|&count| (0..count).map(move |step| (step, count))).collect();
    let order = |&(a, b): &Point, &(c, d): &Point| {
        (u128::from(a) * u128::from(d)).cmp(&(u128::from(c) * u128::from(b)))
    };
    points.sort_by(order);
    points.dedup_by(|one, other| order(one, other).is_eq());
    points
}

/// Goes through all stretches of the first salt's hash, with those of the others inside.
fn follow(
    before: &Choice,
    after: &Choice,
    salts: &[(u16, Vec<Point>)],
    settled: &mut Vec<(u16, Point)>,
) -> Distance {
    let Some(((salt, points), rest)) = salts.split_first() else {
        return by_chance(before, after, settled);
    };
    let mut sum = Distance { moved: Share::zero(), nodata: Share::zero() };
    for (at, &point) in points.iter().enumerate() {
        let end = points.get(at + 1).map_or(Share::one(), |&(over, under)| Share::ratio(over, under));
        let length = end.less(&Share::ratio(point.0, point.1));
        settled.push((*salt, point));
        let each = follow(before, after, rest, settled);
        settled.pop();
        sum.moved = sum.moved.add(&length.mul(&each.moved));
        sum.nodata = sum.nodata.add(&length.mul(&each.nodata));
    }
    sum
}

/// The distance of what is left to chance.
fn by_chance(before: &Choice, after: &Choice, settled: &[(u16, Point)]) -> Distance {
    let mut answers: HashMap<Option<Records>, [Share; 2], FixedState> = HashMap::default();
    for (side, choice) in [before, after].into_iter().enumerate() {
        each(choice, &Share::one(), settled, &mut |choice, share| {
            let records = match choice {
                Choice::Answer { records, .. } => Some(records.sorted()),
                _ => None,
            };
            let shares = answers.entry(records).or_insert_with(|| [Share::zero(), Share::zero()]);
            if let Some(sum) = shares.get_mut(side) {
                *sum = sum.add(share);
            }
        });
    }
    let gained = |[before, after]: &[Share; 2]| after.less(before);
    Distance {
        moved: answers.values().map(gained).sum(),
        nodata: answers.get(&None).map_or(Share::zero(), gained),
    }
}

/// Every end of a choice with its share.
pub(super) fn each<'c>(
    choice: &'c Choice,
    share: &Share,
    settled: &[(u16, Point)],
    take: &mut impl FnMut(&'c Choice, &Share),
) {
    match choice {
        Choice::Answer { .. } | Choice::Nodata => take(choice, share),
        Choice::Random(parts) => {
            for (part, choice) in parts {
                each(choice, &share.mul(part), settled, take);
            }
        }
        Choice::Hashed { salt, of } => {
            let known = settled.iter().find(|(known, _)| known == salt);
            match known {
                Some(&(_, (over, under))) => {
                    let at = u128::from(over) * of.len() as u128 / u128::from(under.max(1));
                    if let Some(choice) = usize::try_from(at).ok().and_then(|at| of.get(at)) {
                        each(choice, share, settled, take);
                    }
                }
                None => {
                    let part = share.mul(&Share::ratio(1, of.len() as u64));
                    of.iter().for_each(|choice| each(choice, &part, settled, take));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::Credits;

    fn answer(last: u8) -> Choice {
        let records = Records::A(vec![[192, 0, 2, last].into()]);
        Choice::Answer { endpoint: None, records, ttl: 30, credits: Credits::default() }
    }

    fn hashed(salt: u16, of: impl IntoIterator<Item = u8>) -> Choice {
        Choice::Hashed { salt, of: of.into_iter().map(answer).collect() }
    }

    fn random(parts: &[(u64, u64, Choice)]) -> Choice {
        let part = |(over, under, choice): &(u64, u64, Choice)| (Share::ratio(*over, *under), choice.clone());
        Choice::Random(parts.iter().map(part).collect())
    }

    fn moved(before: &Choice, after: &Choice) -> String {
        Distance::between(before, after).moved.to_string()
    }

    #[test]
    fn weights_move_what_they_must() {
        let before = random(&[(3, 4, answer(1)), (1, 4, answer(2))]);
        let after = random(&[(1, 2, answer(1)), (1, 2, answer(2))]);
        assert_eq!(moved(&before, &after), "1/4");
        assert_eq!(moved(&before, &before), "0/1");
        assert_eq!(moved(&before, &answer(1)), "1/4");
        assert_eq!(moved(&answer(1), &answer(2)), "1/1");
    }

    #[test]
    fn a_hash_that_stays_moves_nobody_else() {
        assert_eq!(moved(&hashed(7, [1, 2]), &hashed(7, [1, 2])), "0/1");
        assert_eq!(moved(&hashed(7, [1, 2]), &hashed(7, [2, 1])), "1/1");
        // Another salt: half of the clients get another one by chance.
        assert_eq!(moved(&hashed(7, [1, 2]), &hashed(8, [1, 2])), "1/2");
        // [0, 1/2) was 1, now 1 up to 1/3; [1/2, 1) was 2, now 2 up to 2/3.
        assert_eq!(moved(&hashed(7, [1, 2]), &hashed(7, [1, 2, 3])), "1/2");
        // A hash inside a pick at random, of which half is elsewhere.
        let before = random(&[(1, 2, hashed(7, [1, 2])), (1, 2, answer(3))]);
        assert_eq!(moved(&before, &hashed(7, [1, 2])), "1/2");
        assert_eq!(moved(&before, &random(&[(1, 2, hashed(7, [2, 1])), (1, 2, answer(3))])), "1/2");
    }

    #[test]
    fn nodata_counts_when_it_is_new() {
        let half = random(&[(1, 2, Choice::Nodata), (1, 2, answer(1))]);
        let distance = Distance::between(&answer(1), &half);
        assert_eq!((distance.moved.to_string(), distance.nodata.to_string()), ("1/2".into(), "1/2".into()));
        let distance = Distance::between(&half, &answer(1));
        assert_eq!((distance.moved.to_string(), distance.nodata.to_string()), ("1/2".into(), "0/1".into()));
    }
}
