//! The traffic dial (ROUTING.md §5): shares of an ordered list.

use crate::share::Share;

/// One endpoint of the walk, in the method's order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Walker {
    /// Position in its profile.
    pub index: u32,
    /// Percent.
    pub dial: u8,
    /// Whether it is available.
    pub up: bool,
}

/// What happens on the walk, in order.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Pace {
    /// Unavailable: the next that is available takes all that is left.
    Skipped(u32),
    /// It took this share: `reaching` by its percentage, or all of it.
    Took {
        /// Position in its profile.
        index: u32,
        /// What was left when it came.
        reaching: Share,
        /// Percent; `None` when it took all because one before it is unavailable.
        percent: Option<u64>,
        /// The share.
        taken: Share,
    },
    /// This was left after the last, and is split evenly among so many.
    Split(Share, usize),
}

/// Shares of the walk, those above 0 only, in the order of the walk. Empty when nothing is available.
///
/// A failed endpoint hands all that reaches it to the next that can take some: dial 0 is never woken
/// by a failure while a dial above 0 is available.
pub(crate) fn walk(order: &[Walker]) -> Vec<(Share, u32)> {
    walk_telling(order, |_| ())
}

/// The walk in words.
pub(crate) fn arithmetic(order: &[Walker], name: impl Fn(u32) -> String) -> Vec<String> {
    let mut told = Vec::new();
    walk_telling(order, |pace| {
        told.push(match pace {
            Pace::Skipped(index) => format!("{} is unavailable", name(index)),
            Pace::Took { index, reaching, percent: Some(percent), taken } => {
                format!("{} takes {percent} % of {reaching}: {taken}", name(index))
            }
            Pace::Took { index, taken, percent: None, .. } => {
                format!("{} takes all of {taken}: the one before it is unavailable", name(index))
            }
            Pace::Split(left, count) => {
                let each = left.mul(&Share::ratio(1, count as u64));
                format!("{left} is left and split evenly: {each} for each of {count}")
            }
        });
    });
    told
}

fn walk_telling(order: &[Walker], mut tell: impl FnMut(Pace)) -> Vec<(Share, u32)> {
    let none_open = !order.iter().any(|walker| walker.up && walker.dial > 0);
    let percent = |walker: &Walker| if none_open { 100 } else { u64::from(walker.dial) };
    let mut remaining = Share::one();
    let mut failed_over = false;
    let mut shares: Vec<(Share, u32)> = Vec::new();
    for walker in order {
        if !walker.up {
            failed_over = true;
            tell(Pace::Skipped(walker.index));
            continue;
        }
        let percent = percent(walker);
        if percent == 0 {
            continue;
        }
        let taken = if failed_over { remaining.clone() } else { remaining.mul(&Share::ratio(percent, 100)) };
        tell(Pace::Took {
            index: walker.index,
            reaching: remaining.clone(),
            percent: (!failed_over).then_some(percent),
            taken: taken.clone(),
        });
        failed_over = false;
        remaining = remaining.less(&taken);
        shares.push((taken, walker.index));
    }
    if !remaining.is_zero() && !shares.is_empty() {
        tell(Pace::Split(remaining.clone(), shares.len()));
    }
    let each = remaining.mul(&Share::ratio(1, shares.len() as u64));
    for (share, _) in &mut shares {
        *share = share.add(&each);
    }
    shares.retain(|(share, _)| !share.is_zero());
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `x` is unavailable.
    fn check(dials: &str, expected: &str) {
        let order: Vec<Walker> = dials
            .split_whitespace()
            .enumerate()
            .map(|(index, text)| Walker {
                index: index as u32,
                dial: text.trim_end_matches('x').parse().unwrap(),
                up: !text.ends_with('x'),
            })
            .collect();
        let shares = walk(&order);
        let shown: Vec<String> = shares.iter().map(|(share, index)| format!("{index}:{share}")).collect();
        assert_eq!(shown.join(" "), expected, "{dials}");
        if !shares.is_empty() {
            assert_eq!(shares.iter().map(|(share, _)| share).sum::<Share>(), Share::one(), "{dials}");
        }
    }

    #[test]
    fn worked_examples() {
        check("100 100", "0:1/1");
        check("50 100", "0:1/2 1:1/2");
        check("30 100", "0:3/10 1:7/10");
        check("50 50", "0:5/8 1:3/8");
        check("50x 50", "1:1/1");
        check("50 50x 50", "0:1/2 2:1/2");
        check("50 50 50", "0:13/24 1:7/24 2:1/6");
        check("50 50 50x", "0:5/8 1:3/8");
        check("0 100", "1:1/1");
    }

    #[test]
    fn dial_zero() {
        check("0 100x", "0:1/1");
        check("0 0", "0:1/1");
        check("0x 0", "1:1/1");
        check("50x 0 50", "2:1/1");
        check("0 50", "1:1/1");
        check("0x 0x", "");
        check("", "");
    }

    #[test]
    fn the_walk_in_words() {
        let walker = |index, dial, up| Walker { index, dial, up };
        let told = |order: &[Walker]| arithmetic(order, |index| format!("e{index}"));
        assert_eq!(
            told(&[walker(0, 50, true), walker(1, 50, true)]),
            [
                "e0 takes 50 % of 1/1: 1/2",
                "e1 takes 50 % of 1/2: 1/4",
                "1/4 is left and split evenly: 1/8 for each of 2"
            ]
        );
        assert_eq!(
            told(&[walker(0, 50, true), walker(1, 50, false), walker(2, 50, true)]),
            [
                "e0 takes 50 % of 1/1: 1/2",
                "e1 is unavailable",
                "e2 takes all of 1/2: the one before it is unavailable"
            ]
        );
    }
}
