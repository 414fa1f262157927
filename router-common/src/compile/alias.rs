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
pub fn columns(shares: &[&Share]) -> Vec<Column> {
    let count = shares.len() as u128;
    const WHOLE: u128 = 1 << 64;
    let mut weights: Vec<u128> = shares.iter().map(|share| share.scaled_up(64).min(WHOLE)).collect();
    // Rounding up made too much by less than one unit each: take it off the largest.
    let surplus = weights.iter().sum::<u128>().saturating_sub(WHOLE);
    if let Some(largest) = weights.iter_mut().max() {
        *largest -= surplus.min(*largest);
    }
    // A column has room for WHOLE when the weights are multiplied by their number.
    let mut left: Vec<u128> = weights.iter().map(|weight| weight * count).collect();
    let mut columns: Vec<Column> =
        (0..left.len()).map(|i| Column { threshold: 0, alias: i as u16 }).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) = (0..left.len()).partition(|&i| left[i] < WHOLE);
    while let (Some(&poor), Some(&rich)) = (small.last(), large.last()) {
        small.pop();
        columns[poor] = Column { threshold: rounded(left[poor]), alias: rich as u16 };
        left[rich] -= WHOLE - left[poor];
        if left[rich] < WHOLE {
            large.pop();
            small.push(rich);
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
            let taken = probabilities(&columns(&shares.iter().collect::<Vec<_>>()));
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
        assert_eq!(columns(&[&Share::one()]), [Column { threshold: 0, alias: 0 }]);
    }
}
