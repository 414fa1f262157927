//! Ranges as aligned prefixes.

/// Length of the shortest prefix around an address that stays within `first..=last`.
pub(super) fn around(address: u128, first: u128, last: u128, bits: u8) -> u8 {
    let mut free: u8 = 0;
    while free < bits {
        let mask = low_bits(free + 1);
        if address & !mask < first || address | mask > last {
            break;
        }
        free += 1;
    }
    bits - free
}

/// The fewest aligned prefixes that make up `first..=last`, ascending: address and length.
pub(crate) fn cut(first: u128, last: u128, bits: u8) -> impl Iterator<Item = (u128, u8)> {
    let mut next = (first <= last).then_some(first);
    std::iter::from_fn(move || {
        let start = next?;
        let len = around(start, start, last, bits);
        let end = start | low_bits(bits - len);
        next = if end >= last { None } else { end.checked_add(1) };
        Some((start, len))
    })
}

/// A mask of this many low bits, 0..=128.
pub(super) fn low_bits(count: u8) -> u128 {
    u128::MAX.checked_shr(128 - u32::from(count)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_the_fewest() {
        let cuts = |first, last| cut(first, last, 32).collect::<Vec<_>>();
        assert_eq!(cuts(0, u32::MAX.into()), [(0, 0)]);
        assert_eq!(cuts(4, 11), [(4, 30), (8, 30)]);
        assert_eq!(cuts(1, 6), [(1, 32), (2, 31), (4, 31), (6, 32)]);
        assert_eq!(cuts(5, 5), [(5, 32)]);
        assert_eq!(cut(0, u128::MAX, 128).collect::<Vec<_>>(), [(0, 0)]);
        assert_eq!(cut(1, u128::MAX, 128).count(), 128);
    }

    #[test]
    fn around_agrees_with_cut() {
        for (first, last) in [(0u128, 255u128), (1, 254), (17, 200), (128, 129)] {
            for (address, len) in cut(first, last, 8) {
                for inside in address..=address | low_bits(8 - len) {
                    assert_eq!(around(inside, first, last, 8), len, "{inside} in {first}-{last}");
                }
            }
        }
    }
}
