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

/// Shares of the walk, those above 0 only, in the order of the walk. Empty when nothing is available.
///
/// A failed endpoint hands all that reaches it to the next that can take some: dial 0 is never woken
/// by a failure while a dial above 0 is available.
pub(crate) fn walk(order: &[Walker]) -> Vec<(Share, u32)> {
    let none_open = !order.iter().any(|walker| walker.up && walker.dial > 0);
    let percent = |walker: &Walker| if none_open { 100 } else { u64::from(walker.dial) };
    let mut remaining = Share::one();
    let mut failed_over = false;
    let mut shares: Vec<(Share, u32)> = Vec::new();
    for walker in order {
        if !walker.up {
            failed_over = true;
            continue;
        }
        let percent = percent(walker);
        if percent == 0 {
            continue;
        }
        let taken = if failed_over { remaining.clone() } else { remaining.mul(&Share::ratio(percent, 100)) };
        failed_over = false;
        remaining = remaining.less(&taken);
        shares.push((taken, walker.index));
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
}
