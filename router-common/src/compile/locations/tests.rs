//! The table against a search through all prefixes.

use std::cell::Cell;

use proptest::prelude::*;

use super::*;
use crate::location::{self, find_entry};
use crate::lookup::Client;

/// A family: its number and its bits.
#[derive(Clone, Copy, Debug)]
struct Family(u8, u32);

const IPV4: Family = Family(4, 32);
const IPV6: Family = Family(6, 128);

impl Family {
    fn client(self, address: u128) -> Client {
        let octets = address.to_be_bytes();
        if self.0 == 4 {
            Client::ipv4([octets[0], octets[1], octets[2], octets[3]])
        } else {
            Client::ipv6(octets)
        }
    }

    /// Addresses at and around an address.
    fn around(self, address: u128) -> [u128; 3] {
        let step = 1 << (128 - self.1);
        [address.wrapping_sub(step), address, address.wrapping_add(step)]
    }
}

fn entry(location: u32, scope: u8) -> LocationEntry {
    LocationEntry { location, scope, flags: u8::from(location % 7 == 3) }
}

/// The longest prefix that holds an address.
fn naive(prefixes: &[Prefix], address: u128) -> Option<LocationEntry> {
    let holds =
        |&&(first, len, _): &&Prefix| (address ^ first).checked_shr(128 - u32::from(len)).unwrap_or(0) == 0;
    prefixes.iter().filter(holds).max_by_key(|&&(_, len, _)| len).map(|&(_, _, entry)| entry)
}

fn made(family: Family, prefixes: &[Prefix]) -> Lines {
    let none = Vec::new();
    let (ipv4, ipv6) = if family.0 == 4 { (prefixes.to_vec(), none) } else { (none, prefixes.to_vec()) };
    table(ipv4, ipv6).expect("it fits")
}

/// The table finds what the naive search finds, at the ends of every prefix and at other addresses.
fn agrees(family: Family, prefixes: &[Prefix], others: &[u128]) -> Result<(), TestCaseError> {
    let (lines, roots) = made(family, prefixes);
    let ends = prefixes.iter().flat_map(|&(first, len, _)| [first, first | low_bits(len)]);
    for address in ends.flat_map(|end| family.around(end)).chain(others.iter().copied()) {
        let found = find_entry(&lines, &roots, &family.client(address));
        prop_assert_eq!(found, naive(prefixes, address), "{:032x} {:?}", address, prefixes);
    }
    Ok(())
}

/// A number below `below`, from a state (SplitMix64, Steele, Lea, Flood 2014).
fn dice(state: &mut u64, below: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % below
}

/// A disjoint cover of the family by about `count` prefixes: blocks are halved at random, near `focus` most of all.
fn cover(family: Family, count: usize, mut seed: u64, focus: Option<u128>) -> Vec<Prefix> {
    let mut blocks: Vec<(u128, u8)> = vec![(0, 0)];
    while blocks.len() < count {
        let mut at = dice(&mut seed, blocks.len() as u64) as usize;
        if let Some(focus) = focus
            && dice(&mut seed, 4) > 0
        {
            at = blocks
                .iter()
                .position(|&(first, len)| (first..=first | low_bits(len)).contains(&focus))
                .unwrap_or(at);
        }
        let (first, len) = blocks[at];
        if u32::from(len) == family.1 {
            if focus.is_some() && blocks.len() > 2 * family.1 as usize {
                break;
            }
            continue;
        }
        blocks[at].1 = len + 1;
        blocks.push((first | 1 << (127 - len), len + 1));
    }
    (0..).zip(blocks).map(|(i, (first, len))| (first, len, entry(i % 50, len))).collect()
}

fn families() -> impl Strategy<Value = Family> {
    prop_oneof![Just(IPV4), Just(IPV6)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_cover_with_prefixes_inside_is_searched_as_by_longest_prefix(
        family in families(),
        count in 1usize..400,
        seed: u64,
        focus in proptest::option::of(any::<u128>()),
        nested in proptest::collection::vec((any::<u128>(), 0u8..=128), 0..6),
        others in proptest::collection::vec(any::<u128>(), 20),
    ) {
        let family_mask = !low_bits(family.1 as u8);
        let mut prefixes = cover(family, count, seed, focus.map(|focus| focus & family_mask));
        for (i, (address, len)) in (0..).zip(nested) {
            let len = len.min(family.1 as u8);
            let first = address & !low_bits(len);
            if !prefixes.iter().any(|&(other, length, _)| (other, length) == (first, len)) {
                prefixes.push((first, len, LocationEntry { location: 90 + i, scope: len, flags: LocationEntry::SPECIAL }));
            }
        }
        let others: Vec<u128> = others.into_iter().map(|address| address & family_mask).collect();
        agrees(family, &prefixes, &others)?;
    }

    #[test]
    fn prefixes_that_cover_little_leave_the_rest_nowhere(
        family in families(),
        base: u128,
        held in proptest::collection::btree_map((0u128..2000, 90u8..=128), 0u32..50, 0..200),
    ) {
        let prefixes: Vec<Prefix> = held
            .into_iter()
            .map(|((low, len), location)| {
                let len = if family.0 == 4 { len - 90 + 16 } else { len }.min(family.1 as u8);
                let address = base.wrapping_add(low << (128 - family.1));
                (address & !low_bits(len), len, location)
            })
            .map(|(first, len, location)| ((first, len), location))
            .collect::<std::collections::BTreeMap<_, _>>()
            .into_iter()
            .map(|((first, len), location)| (first, len, entry(location, len)))
            .collect();
        agrees(family, &prefixes, &[0, !low_bits(family.1 as u8)])?;
    }

    /// Octets of any kind: the look-up ends, in an entry of the lines or nowhere.
    #[test]
    fn broken_lines_neither_loop_nor_lead_outside(
        words in proptest::collection::vec(any::<[u32; 16]>(), 1..6),
        small in any::<bool>(),
        root: u32,
        address: u128,
    ) {
        let lines: Vec<LocationLine> = words
            .iter()
            .map(|words| {
                let mut line = LocationLine::EMPTY;
                for (to, from) in line.starts.iter_mut().zip(words) {
                    *to = *from as u16;
                }
                for (to, from) in line.words.iter_mut().zip(words.iter().rev()) {
                    // Branches to lines that are there.
                    *to = LocationWord(if small { from & 0xe000_0003 | 0xc000_0000 } else { *from });
                }
                line
            })
            .collect();
        let root = LocationWord(if small { root & 3 | 0xc000_0000 } else { root });
        let visited = Cell::new(0);
        let found = location::find(root, [(address >> 64) as u64, address as u64], |number| {
            visited.set(visited.get() + 1);
            lines.get(number as usize)
        });
        prop_assert!(visited.get() <= location::MAX_STEPS);
        prop_assert!(!found.is_branch());
    }
}

#[test]
fn nothing_and_everything() {
    let (lines, roots) = table(Vec::new(), Vec::new()).expect("it fits");
    assert!(lines.is_empty());
    assert_eq!(find_entry(&lines, &roots, &IPV4.client(0)), None);
    assert_eq!(find_entry(&lines, &roots, &IPV6.client(u128::MAX)), None);
    for family in [IPV4, IPV6] {
        let whole = [(0, 0, entry(5, 0))];
        let (lines, _) = made(family, &whole);
        assert!(lines.is_empty(), "one entry takes no line");
        agrees(family, &whole, &[1 << 127, 77 << 96]).expect("they agree");
    }
}

#[test]
fn single_addresses_at_the_ends_of_a_family() {
    for family in [IPV4, IPV6] {
        let last = !low_bits(family.1 as u8);
        let len = family.1 as u8;
        let prefixes = [(0, 0, entry(1, 0)), (0, len, entry(2, len)), (last, len, entry(3, len))];
        agrees(family, &prefixes, &[1 << 127]).expect("they agree");
    }
}

#[test]
fn the_special_blocks_keep_the_scope_around_them() {
    let special = |location, scope| LocationEntry { location, scope, flags: LocationEntry::SPECIAL };
    let ten = 10 << 120;
    let prefixes = [(0, 4, entry(1, 4)), (ten, 8, special(0, 8))];
    let (lines, roots) = made(IPV4, &prefixes);
    let at = |octets| find_entry(&lines, &roots, &Client::ipv4(octets));
    assert_eq!(at([9, 255, 255, 255]), Some(entry(1, 4)));
    assert_eq!(at([10, 0, 0, 0]), Some(special(0, 8)));
    assert_eq!(at([10, 255, 255, 255]), Some(special(0, 8)));
    assert_eq!(at([11, 0, 0, 0]), Some(entry(1, 4)));
    assert_eq!(at([16, 0, 0, 0]), None);
}

/// Every address of a block for itself: as many bounds as a level can have.
#[test]
fn a_run_of_65536_addresses() {
    for (family, first) in [(IPV4, 0xc633 << 112), (IPV6, 0x2001_0db8 << 96)] {
        let bits = family.1;
        let mut prefixes = vec![(0, 0, entry(49, 0))];
        prefixes.extend((0..1u32 << 16).map(|i| {
            let address = first | u128::from(i) << (128 - bits);
            (address, bits as u8, entry(i % 49, bits as u8))
        }));
        let (lines, roots) = made(family, &prefixes);
        for i in 0..1u32 << 16 {
            let address = first | u128::from(i) << (128 - bits);
            let found = find_entry(&lines, &roots, &family.client(address));
            assert_eq!(found, Some(entry(i % 49, bits as u8)), "{family:?} {i}");
        }
        let [before, _, _] = family.around(first);
        assert_eq!(find_entry(&lines, &roots, &family.client(before)), Some(entry(49, 0)));
        let after = first + (1 << (128 - bits + 16));
        assert_eq!(find_entry(&lines, &roots, &family.client(after)), Some(entry(49, 0)));
        assert!(lines.len() < (1 << 16) / 2, "{} lines", lines.len());
    }
}

/// Prefixes nested at every length, with crowds on the way: the longest way there is stays within the bound.
#[test]
fn the_longest_way_is_within_the_bound() {
    let target = 0x2001_0db8_a5a5_5a5a_1234_8765_f00f_0ff1_u128;
    let mut prefixes: Vec<Prefix> =
        (0..=128u8).map(|len| (target & !low_bits(len), len, entry(1 + u32::from(len) % 40, len))).collect();
    // After every 15 bits, as many neighbours as make a branch overflow again and again.
    for depth in 1..8u8 {
        let len = depth * 15;
        prefixes.extend((0..2000u128).map(|i| {
            let first = ((target & !low_bits(len)) >> (128 - len)).wrapping_add(i + 1) << (128 - len);
            (first, len, entry((i % 40) as u32, len))
        }));
    }
    let (lines, roots) = made(IPV6, &prefixes);
    let visited = Cell::new(0);
    let found = location::find(roots[1], [(target >> 64) as u64, target as u64], |number| {
        visited.set(visited.get() + 1);
        lines.get(number as usize)
    });
    assert_eq!(found.entry(), Some(entry(1 + 128 % 40, 128)));
    assert!(visited.get() > 8, "no long way: {}", visited.get());
    assert!(visited.get() <= 45, "{} lines", visited.get());
}

#[test]
fn a_location_without_a_number_is_refused() {
    let too_high = LocationEntry { location: MAX_LOCATIONS, scope: 0, flags: 0 };
    assert_eq!(table(vec![(0, 0, too_high)], Vec::new()), Err(CompileError::TooManyLocations));
    let highest = LocationEntry { location: MAX_LOCATIONS - 1, ..too_high };
    assert!(table(vec![(0, 0, highest)], Vec::new()).is_ok());
}
