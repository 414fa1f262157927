//! Exact shares of the answers: no rounding anywhere between the configuration and the table.

use std::fmt;

use num_bigint::{BigInt, BigUint};
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive, Zero};

/// A share of the answers: an exact fraction, never negative, usually at most one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Share(BigRational);

impl Share {
    /// Nothing.
    pub fn zero() -> Self {
        Self(BigRational::zero())
    }

    /// Everything.
    pub fn one() -> Self {
        Self(BigRational::one())
    }

    /// `weight / total`; nothing when the total is 0.
    pub fn ratio(weight: u64, total: u64) -> Self {
        if total == 0 {
            return Self::zero();
        }
        Self(BigRational::new(BigInt::from(weight), BigInt::from(total)))
    }

    /// One share per weight, in their order; all zero when the weights are.
    pub fn from_weights(weights: &[u64]) -> Vec<Self> {
        let total: BigInt = weights.iter().map(|&weight| BigInt::from(weight)).sum();
        if total.is_zero() {
            return vec![Self::zero(); weights.len()];
        }
        weights.iter().map(|&weight| Self(BigRational::new(BigInt::from(weight), total.clone()))).collect()
    }

    /// The product: the share of a share.
    pub fn mul(&self, other: &Self) -> Self {
        Self(&self.0 * &other.0)
    }

    /// The sum.
    pub fn add(&self, other: &Self) -> Self {
        Self(&self.0 + &other.0)
    }

    /// What is left after taking `other`; nothing when there is less.
    pub fn less(&self, other: &Self) -> Self {
        let left = &self.0 - &other.0;
        if left.is_negative() { Self::zero() } else { Self(left) }
    }

    /// The distance between two shares.
    pub fn distance(&self, other: &Self) -> Self {
        Self((&self.0 - &other.0).abs())
    }

    /// Whether this is nothing.
    pub fn is_zero(&self) -> bool {
        self.0.is_zero()
    }

    /// Whether this is everything.
    pub fn is_one(&self) -> bool {
        self.0.is_one()
    }

    /// The nearest float, for metrics and people.
    pub fn to_f64(&self) -> f64 {
        self.0.to_f64().unwrap_or(0.0)
    }

    /// The smallest integer that is not below `self * 2^bits`.
    pub(crate) fn scaled_up(&self, bits: u8) -> BigUint {
        let scaled = &self.0 * BigRational::from_integer(BigInt::one() << bits);
        scaled.ceil().to_integer().to_biguint().unwrap_or_default()
    }
}

impl std::iter::Sum for Share {
    fn sum<I: Iterator<Item = Self>>(shares: I) -> Self {
        shares.fold(Self::zero(), |sum, share| sum.add(&share))
    }
}

impl<'a> std::iter::Sum<&'a Share> for Share {
    fn sum<I: Iterator<Item = &'a Share>>(shares: I) -> Self {
        shares.fold(Self::zero(), |sum, share| sum.add(share))
    }
}

impl fmt::Display for Share {
    /// A fraction in lowest terms, `1/1` for everything.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0.numer(), self.0.denom())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_in_lowest_terms() {
        assert_eq!(Share::ratio(50, 80).to_string(), "5/8");
        assert_eq!(Share::one().to_string(), "1/1");
        assert_eq!(Share::zero().to_string(), "0/1");
        assert_eq!(Share::ratio(1, 0), Share::zero());
    }

    #[test]
    fn weights_add_up_to_one() {
        let shares = Share::from_weights(&[700, 200, 1]);
        assert_eq!(shares.iter().sum::<Share>(), Share::one());
        assert_eq!(shares[1].to_string(), "200/901");
        assert!(Share::from_weights(&[0, 0]).iter().all(Share::is_zero));
    }

    #[test]
    fn arithmetic_is_exact() {
        let third = Share::ratio(1, 3);
        assert_eq!(third.add(&third).add(&third), Share::one());
        assert_eq!(third.mul(&Share::ratio(3, 7)), Share::ratio(1, 7));
        assert_eq!(third.less(&Share::one()), Share::zero());
        assert_eq!(third.scaled_up(2), BigUint::from(2u8));
    }
}
