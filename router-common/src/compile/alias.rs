//! Alias tables (Vose 1991): any weights, one random number, two loads.

use num_bigint::BigUint;
use num_traits::ToPrimitive;

use crate::share::Share;

/// Threshold and alias of each cell for shares that add up to one, at most 65535 of them. Thresholds
/// are exact to 2⁻³²: worked out in integers, rounded down once.
pub(super) fn alias_table(shares: &[Share]) -> Vec<(u32, u16)> {
    let mut whole = BigUint::from(1u8);
    for share in shares {
        let denominator = share.denominator();
        whole = &whole / gcd(whole.clone(), denominator.clone()) * denominator;
    }
    // Scaled by the number of cells, an average cell holds exactly `whole`.
    let mut filled: Vec<BigUint> = shares.iter().map(|share| share.of(&whole) * shares.len()).collect();
    let mut table: Vec<(u32, u16)> = (0..shares.len()).map(|at| (0, at as u16)).collect();
    let (mut small, mut large): (Vec<usize>, Vec<usize>) =
        (0..shares.len()).rev().partition(|&at| filled.get(at).is_some_and(|each| *each < whole));
    while let (Some(low), Some(&high)) = (small.pop(), large.last()) {
        let Some(own) = filled.get(low).cloned() else { break };
        if let Some(cell) = table.get_mut(low) {
            *cell = (((&own << 32u8) / &whole).to_u32().unwrap_or(u32::MAX), high as u16);
        }
        if let Some(other) = filled.get_mut(high) {
            *other -= &whole - own;
            if *other < whole {
                large.pop();
                small.push(high);
            }
        }
    }
    table
}

fn gcd(mut a: BigUint, mut b: BigUint) -> BigUint {
    while b != BigUint::ZERO {
        (a, b) = (b.clone(), a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Share of each cell that a table really gives.
    fn given(table: &[(u32, u16)]) -> Vec<f64> {
        let mut given = vec![0.0; table.len()];
        for (at, &(threshold, alias)) in table.iter().enumerate() {
            let own = if usize::from(alias) == at { 1.0 } else { f64::from(threshold) / 2f64.powi(32) };
            given[at] += own / table.len() as f64;
            given[usize::from(alias)] += (1.0 - own) / table.len() as f64;
        }
        given
    }

    #[test]
    fn one_cell_is_always_taken() {
        assert_eq!(alias_table(&[Share::one()]), [(0, 0)]);
    }

    #[test]
    fn equal_weights_need_no_alias() {
        let third = Share::ratio(1, 3);
        assert_eq!(alias_table(&[third.clone(), third.clone(), third]), [(0, 0), (0, 1), (0, 2)]);
    }

    proptest! {
        #[test]
        fn every_weight_is_met(weights in prop::collection::vec(1u64..=1000, 1..40)) {
            let shares = Share::from_weights(&weights);
            let table = alias_table(&shares);
            for (share, given) in shares.iter().zip(given(&table)) {
                prop_assert!((share.to_f64() - given).abs() < weights.len() as f64 * 2f64.powi(-32));
            }
        }
    }
}
