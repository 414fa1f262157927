//! Alias tables (Walker 1977, Vose 1991): any weights, one random number, two loads.

use crate::share::Share;

/// What one column of an alias table holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Column {
    /// The column's own item is taken when 32 random bits are below this.
    pub threshold: u32,
    /// Else this one; the own index when there is no other.
    pub alias: u16,
}

/// Builds the table for shares that add up to one, one column per share. Each item's probability is
/// within 2⁻³² of its share.
pub fn columns<'s>(shares: impl ExactSizeIterator<Item = &'s Share>) -> Vec<Column> {
    const WHOLE: u128 = 1 << 64;
    let count = shares.len();
    let mut columns: Vec<Column> = (0..count).map(|i| Column { threshold: 0, alias: i as u16 }).collect();
    if count == 1 {
        return columns;
    }
    let mut left: Vec<u128> = shares.map(|share| share.scaled_up(64).min(WHOLE)).collect();
    // Rounding up made too much by less than one unit each: take it off the largest.
    let surplus = left.iter().sum::<u128>().saturating_sub(WHOLE);
    if let Some(largest) = left.iter_mut().max() {
        *largest -= surplus.min(*largest);
    }
    // A column has room for WHOLE when the weights are multiplied by their number.
    for weight in &mut left {
        *weight *= count as u128;
    }
    // Indices with too little, from the front, and with too much, from the back.
    let mut open: Vec<u32> = vec![0; count];
    let (mut small, mut large) = (0, count);
    for (i, &weight) in left.iter().enumerate() {
        if weight < WHOLE {
            open[small] = i as u32;
            small += 1;
        } else {
            large -= 1;
            open[large] = i as u32;
        }
    }
    // The order of those with too much is that in which they come.
    open[large..].reverse();
    let mut large = count - large;
    let rich_from = count - large;
    while small > 0 && large > 0 {
        let (poor, rich) = (open[small - 1] as usize, open[rich_from + large - 1] as usize);
        small -= 1;
        columns[poor] = Column { threshold: rounded(left[poor]), alias: rich as u16 };
        left[rich] -= WHOLE - left[poor];
        if left[rich] < WHOLE {
            large -= 1;
            open[small] = rich as u32;
            small += 1;
        }
    }
    columns
}

/// 64 fractional bits to 32, rounded, short of one.
fn rounded(part: u128) -> u32 {
    u32::try_from((part + (1 << 31)) >> 32).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probability of each item, in units of 2⁻³² / columns.
    fn probabilities(columns: &[Column]) -> Vec<u128> {
        let mut taken = vec![0u128; columns.len()];
        for (i, column) in columns.iter().enumerate() {
            let own = if usize::from(column.alias) == i { 1 << 32 } else { u128::from(column.threshold) };
            taken[i] += own;
            taken[usize::from(column.alias)] += (1 << 32) - own;
        }
        taken
    }

    #[test]
    fn every_weight_is_met() {
        let mut random = 0x1234_5678_9abc_def1u64;
        for count in [1, 2, 3, 5, 8, 37, 1000] {
            let weights: Vec<u64> = (0..count)
                .map(|_| {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    1 + (random >> 40) % 1000
                })
                .collect();
            let shares = Share::from_weights(&weights);
            let total: u64 = weights.iter().sum();
            let taken = probabilities(&columns(shares.iter()));
            for (weight, taken) in weights.iter().zip(taken) {
                let wanted = u128::from(*weight) * (count as u128) * (1 << 32) / u128::from(total);
                assert!(
                    wanted.abs_diff(taken) <= count as u128 + 1,
                    "{weight} of {total}: {taken}, not {wanted}"
                );
            }
        }
    }

    #[test]
    fn one_item_is_always_itself() {
        assert_eq!(columns([Share::one()].iter()), [Column { threshold: 0, alias: 0 }]);
    }
}
