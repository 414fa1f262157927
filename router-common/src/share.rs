//! Exact shares of the answers: no rounding anywhere between the configuration and the table.

use std::cmp::Ordering;
use std::fmt;

use num_bigint::{BigInt, BigUint};
use num_rational::BigRational;
use num_traits::{One, Signed, ToPrimitive};

/// A share of the answers: an exact fraction, never negative, usually at most one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Share(Fraction);

/// In lowest terms. What fits into 64 bits is always `Small`, so equal fractions are equal values: few
/// configurations ever need the other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Fraction {
    Small { over: u64, under: u64 },
    Large(Box<BigRational>),
}

impl Share {
    /// Nothing.
    pub const fn zero() -> Self {
        Self(Fraction::Small { over: 0, under: 1 })
    }

    /// Everything.
    pub const fn one() -> Self {
        Self(Fraction::Small { over: 1, under: 1 })
    }

    /// `weight / total`; nothing when the total is 0.
    pub fn ratio(weight: u64, total: u64) -> Self {
        if total == 0 {
            return Self::zero();
        }
        let common = gcd(weight, total);
        Self(Fraction::Small { over: weight / common, under: total / common })
    }

    /// `part / whole` of large counts, of addresses for one; nothing when the whole is 0.
    pub fn of_counts(part: u128, whole: u128) -> Self {
        match (u64::try_from(part), u64::try_from(whole)) {
            (Ok(part), Ok(whole)) => Self::ratio(part, whole),
            _ if whole == 0 => Self::zero(),
            _ => large(BigRational::new(part.into(), whole.into())),
        }
    }

    /// One share per weight, in their order; all zero when the weights are.
    pub fn from_weights(weights: &[u64]) -> Vec<Self> {
        match weights.iter().try_fold(0u64, |sum, &weight| sum.checked_add(weight)) {
            Some(total) => weights.iter().map(|&weight| Self::ratio(weight, total)).collect(),
            None => {
                let total: BigInt = weights.iter().map(|&weight| BigInt::from(weight)).sum();
                weights.iter().map(|&weight| large(BigRational::new(weight.into(), total.clone()))).collect()
            }
        }
    }

    /// The product: the share of a share.
    pub fn mul(&self, other: &Self) -> Self {
        if let (&Fraction::Small { over: a, under: b }, &Fraction::Small { over: c, under: d }) =
            (&self.0, &other.0)
        {
            // Reduced crosswise first, the product is in lowest terms.
            let (left, right) = (gcd(a, d).max(1), gcd(c, b).max(1));
            let over = (a / left).checked_mul(c / right);
            let under = (b / right).checked_mul(d / left);
            if let (Some(over), Some(under)) = (over, under) {
                return Self(Fraction::Small { over, under });
            }
        }
        large(self.big() * other.big())
    }

    /// The sum.
    pub fn add(&self, other: &Self) -> Self {
        if let (&Fraction::Small { over: a, under: b }, &Fraction::Small { over: c, under: d }) =
            (&self.0, &other.0)
        {
            // Knuth, The Art of Computer Programming 2, 4.5.1.
            let common = gcd(b, d);
            let sum = wide(a, d / common).checked_add(wide(c, b / common));
            if let Some(sum) = sum {
                let factor = gcd((sum % u128::from(common)) as u64, common);
                let over = u64::try_from(sum / u128::from(factor)).ok();
                let under = (b / common).checked_mul(d / factor);
                if let (Some(over), Some(under)) = (over, under) {
                    return Self(Fraction::Small { over, under });
                }
            }
        }
        large(self.big() + other.big())
    }

    /// What is left after taking `other`; nothing when there is less.
    pub fn less(&self, other: &Self) -> Self {
        if *self <= *other {
            return Self::zero();
        }
        if let (&Fraction::Small { over: a, under: b }, &Fraction::Small { over: c, under: d }) =
            (&self.0, &other.0)
        {
            let common = gcd(b, d);
            // The first is the greater one.
            let left = wide(a, d / common).saturating_sub(wide(c, b / common));
            let factor = gcd((left % u128::from(common)) as u64, common);
            let over = u64::try_from(left / u128::from(factor)).ok();
            let under = (b / common).checked_mul(d / factor);
            if let (Some(over), Some(under)) = (over, under) {
                return Self(Fraction::Small { over, under });
            }
        }
        large(self.big() - other.big())
    }

    /// How much of `all` this is; nothing of nothing.
    pub fn part_of(&self, all: &Self) -> Self {
        if all.is_zero() {
            return Self::zero();
        }
        match all.0 {
            Fraction::Small { over, under } => self.mul(&Self(Fraction::Small { over: under, under: over })),
            Fraction::Large(_) => large(self.big() / all.big()),
        }
    }

    /// The distance between two shares.
    pub fn distance(&self, other: &Self) -> Self {
        if *self < *other { other.less(self) } else { self.less(other) }
    }

    /// Whether this is nothing.
    pub fn is_zero(&self) -> bool {
        matches!(self.0, Fraction::Small { over: 0, .. })
    }

    /// Whether this is everything.
    pub fn is_one(&self) -> bool {
        matches!(self.0, Fraction::Small { over: 1, under: 1 })
    }

    /// The nearest float, for metrics and people.
    pub fn to_f64(&self) -> f64 {
        match &self.0 {
            &Fraction::Small { over, under } => over as f64 / under as f64,
            Fraction::Large(large) => large.to_f64().unwrap_or(0.0),
        }
    }

    /// The smallest integer that is not below `self * 2^bits`, for at most 64 bits; saturates.
    pub(crate) fn scaled_up(&self, bits: u8) -> u128 {
        let bits = bits.min(64);
        match &self.0 {
            &Fraction::Small { over, under } => (u128::from(over) << bits).div_ceil(u128::from(under)),
            Fraction::Large(large) => {
                let scaled = &**large * BigRational::from_integer(BigInt::one() << bits);
                let integer: Option<BigUint> = scaled.ceil().to_integer().to_biguint();
                integer.and_then(|integer| integer.to_u128()).unwrap_or(u128::MAX)
            }
        }
    }

    fn big(&self) -> BigRational {
        match &self.0 {
            &Fraction::Small { over, under } => BigRational::new(over.into(), under.into()),
            Fraction::Large(large) => (**large).clone(),
        }
    }
}

impl Ord for Share {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (&Fraction::Small { over: a, under: b }, &Fraction::Small { over: c, under: d }) => {
                wide(a, d).cmp(&wide(c, b))
            }
            _ => self.big().cmp(&other.big()),
        }
    }
}

impl PartialOrd for Share {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A share in its one form; nothing when it would be negative.
fn large(fraction: BigRational) -> Share {
    if fraction.is_negative() {
        return Share::zero();
    }
    match (fraction.numer().to_u64(), fraction.denom().to_u64()) {
        (Some(over), Some(under)) => Share(Fraction::Small { over, under }),
        _ => Share(Fraction::Large(Box::new(fraction))),
    }
}

fn wide(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}

/// Greatest common divisor (Stein 1967); `gcd(0, b)` is `b`.
fn gcd(mut a: u64, mut b: u64) -> u64 {
    if a == 0 || b == 0 {
        return a | b;
    }
    let twos = (a | b).trailing_zeros();
    a >>= a.trailing_zeros();
    loop {
        b >>= b.trailing_zeros();
        if a > b {
            std::mem::swap(&mut a, &mut b);
        }
        b -= a;
        if b == 0 {
            return a << twos;
        }
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
        match &self.0 {
            Fraction::Small { over, under } => write!(f, "{over}/{under}"),
            Fraction::Large(large) => write!(f, "{}/{}", large.numer(), large.denom()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
        assert_eq!(third.scaled_up(2), 2);
        assert_eq!(Share::one().scaled_up(64), 1 << 64);
    }

    /// A fraction of few or many digits.
    fn some() -> impl Strategy<Value = Share> {
        let part = || prop_oneof![0..=6u64, any::<u64>(), Just(u64::MAX), (0..64u32).prop_map(|at| 1 << at)];
        (part(), part(), part(), part(), any::<bool>()).prop_map(|(a, b, c, d, product)| {
            let one = Share::ratio(a, b);
            if product { large(one.big() * Share::ratio(c, d).big()) } else { one }
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn small_and_large_fractions_are_arithmetic(a in some(), b in some()) {
            let (x, y) = (a.big(), b.big());
            prop_assert_eq!(a.mul(&b), large(&x * &y));
            prop_assert_eq!(a.add(&b), large(&x + &y));
            prop_assert_eq!(a.less(&b), large(&x - &y));
            prop_assert_eq!(a.distance(&b), large((&x - &y).abs()));
            prop_assert_eq!(a.cmp(&b), x.cmp(&y));
            prop_assert_eq!(a == b, x == y);
            prop_assert_eq!(a.to_string(), format!("{}/{}", x.numer(), x.denom()));
            for bits in [0, 1, 32, 64] {
                let scaled = (&x * BigRational::from_integer(BigInt::one() << bits)).ceil().to_integer();
                prop_assert_eq!(a.scaled_up(bits), scaled.to_u128().unwrap_or(u128::MAX));
            }
        }
    }
}
