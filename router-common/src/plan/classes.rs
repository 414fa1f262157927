//! Which clients two atlases tell apart: the stretches of both laid over one another, gathered by the pair
//! of locations that they are in, and weighed by addresses.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use foldhash::fast::FixedState;
use ipnet::IpNet;

use super::world::region;
use crate::atlas::prefix::cut;
use crate::atlas::{Atlas, Partition};

/// IPv4 unicast without loopback: what a client's address can be.
const UNIVERSE4: [(u128, u128); 2] = [(0x0100_0000, 0x7eff_ffff), (0x8000_0000, 0xdfff_ffff)];

/// IPv6 blocks that IANA has given to the regional registries (IPv6 Global Unicast Address Assignments). All of
/// 2000::/3 would be a poor measure: a hundredth of it is given out, and every client is in that.
const UNIVERSE6: [(u128, u128); 10] = [
    block6(0x2001_0000, 16),
    block6(0x2003_0000, 18),
    block6(0x2400_0000, 11),
    block6(0x2600_0000, 12),
    block6(0x2610_0000, 23),
    block6(0x2620_0000, 23),
    block6(0x2630_0000, 12),
    block6(0x2800_0000, 12),
    block6(0x2a00_0000, 11),
    block6(0x2c00_0000, 12),
];

/// First and last address of the block that begins with these 32 bits.
const fn block6(head: u32, len: u32) -> (u128, u128) {
    let first = (head as u128) << 96;
    (first, first | (u128::MAX >> len))
}

/// A number of addresses for each family: IPv4, IPv6.
pub(super) type Weight = [u128; 2];

/// All addresses that count.
pub(super) fn universe() -> Weight {
    [weighed(0, 0, u128::MAX), weighed(1, 0, u128::MAX)]
}

/// How many addresses of a stretch count.
fn weighed(family: usize, first: u128, last: u128) -> u128 {
    let blocks: &[(u128, u128)] = if family == 0 { &UNIVERSE4 } else { &UNIVERSE6 };
    let within = |&(from, to): &(u128, u128)| {
        let (from, to) = (from.max(first), to.min(last));
        to.checked_sub(from).map_or(0, |span| span + 1)
    };
    blocks.iter().map(within).sum()
}

/// The largest stretch of a class in a family: its weight, first and last address.
type Stretch = Option<(u128, u128, u128)>;

/// Clients that neither side tells apart.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Class {
    /// A location of theirs before.
    pub before: u32,
    /// A location of theirs after.
    pub after: u32,
    /// How many there are.
    pub weight: Weight,
    examples: [Stretch; 2],
}

impl Class {
    fn new(before: u32, after: u32) -> Self {
        Self { before, after, weight: [0; 2], examples: [None; 2] }
    }

    fn take(&mut self, family: usize, stretch: (u128, u128, u128)) {
        if let Some(weight) = self.weight.get_mut(family) {
            *weight = weight.saturating_add(stretch.0);
        }
        self.show(family, stretch);
    }

    fn show(&mut self, family: usize, stretch: (u128, u128, u128)) {
        if let Some(example) = self.examples.get_mut(family)
            && example.is_none_or(|(weight, ..)| weight < stretch.0)
        {
            *example = Some(stretch);
        }
    }

    fn join(&mut self, other: &Self) {
        for family in [0, 1] {
            if let (Some(weight), Some(more)) = (self.weight.get_mut(family), other.weight.get(family)) {
                *weight = weight.saturating_add(*more);
            }
            if let Some(&Some(stretch)) = other.examples.get(family) {
                self.show(family, stretch);
            }
        }
    }

    /// How much of its family the class is, to be compared over both: all of IPv4 is as much as all of IPv6. `None`
    /// when it has no prefix of the family.
    pub fn size(&self, family: usize) -> Option<u128> {
        (*self.examples.get(family)?)?;
        let [ipv4, ipv6] = self.weight;
        let [all4, all6] = universe().map(u128::ilog2);
        Some(if family == 0 { ipv4 << (all6 - all4) } else { ipv6 })
    }

    /// A prefix that is wholly in this class, the largest of its largest stretch.
    pub fn example(&self, family: usize) -> Option<IpNet> {
        let &(_, first, last) = self.examples.get(family)?.as_ref()?;
        let bits = if family == 0 { 32 } else { 128 };
        // The first of the shortest.
        let (address, len) = cut(first, last, bits).min_by_key(|&(_, len)| len)?;
        let address = match family {
            0 => IpAddr::V4(Ipv4Addr::from_bits(u32::try_from(address).ok()?)),
            _ => IpAddr::V6(Ipv6Addr::from_bits(address)),
        };
        IpNet::new(address, len).ok()
    }
}

/// All classes of clients, and those that two partitions tell apart, each pair of partitions once.
pub(super) struct Classes {
    pairs: Vec<Class>,
    /// By the identities of the partitions before and after.
    projected: HashMap<(usize, usize), Arc<Vec<Class>>, FixedState>,
}

impl Classes {
    pub fn new(before: &Atlas, after: &Atlas) -> Self {
        let mut gather = Gather::default();
        gather.family(0, before.stretches4(), after.stretches4());
        gather.family(1, before.stretches6(), after.stretches6());
        Self { pairs: gather.classes, projected: HashMap::default() }
    }

    /// The classes that matter to a profile with these partitions. The partitions have to live as long as this.
    pub fn of(&mut self, before: &Partition, after: &Partition) -> Arc<Vec<Class>> {
        let key = (identity(before), identity(after));
        let pairs = &self.pairs;
        let projected = self.projected.entry(key).or_insert_with(|| {
            let mut gather = Gather::default();
            for pair in pairs {
                let class = gather.class(region(before, pair.before), region(after, pair.after), pair);
                class.join(pair);
            }
            Arc::new(gather.classes)
        });
        Arc::clone(projected)
    }
}

/// What tells partitions apart: where their regions are, which equal ones share.
fn identity(partition: &Partition) -> usize {
    match partition {
        Partition::Trivial => 0,
        Partition::TooMany => 1,
        Partition::Regions { of, .. } => of.as_ptr().addr(),
    }
}

/// Classes by a pair of numbers, in the order in which they come.
#[derive(Default)]
struct Gather {
    classes: Vec<Class>,
    at: HashMap<(u32, u32), usize, FixedState>,
}

impl Gather {
    fn class(&mut self, one: u32, other: u32, locations: &Class) -> &mut Class {
        let next = self.classes.len();
        let at = *self.at.entry((one, other)).or_insert(next);
        if at == next {
            self.classes.push(Class::new(locations.before, locations.after));
        }
        &mut self.classes[at]
    }

    /// Lays stretches that both cover the family over one another.
    fn family(
        &mut self,
        family: usize,
        mut before: impl Iterator<Item = (u32, u128, u128)>,
        mut after: impl Iterator<Item = (u32, u128, u128)>,
    ) {
        let (mut one, mut other) = (before.next(), after.next());
        let mut first = 0;
        while let (Some((old, _, old_last)), Some((new, _, new_last))) = (one, other) {
            let last = old_last.min(new_last);
            let stretch = (weighed(family, first, last), first, last);
            // Nobody is looked up there.
            if family == 0 || !Atlas::is_folded(first) {
                self.class(old, new, &Class::new(old, new)).take(family, stretch);
            }
            if old_last == last {
                one = before.next();
            }
            if new_last == last {
                other = after.next();
            }
            let Some(next) = last.checked_add(1) else { break };
            first = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_are_laid_over_one_another() {
        let mut gather = Gather::default();
        let last = u128::from(u32::MAX);
        let before = [(0, 0, 0x0aff_ffff), (1, 0x0b00_0000, last)];
        let after = [(5, 0, 0x0a7f_ffff), (6, 0x0a80_0000, 0x0bff_ffff), (5, 0x0c00_0000, last)];
        gather.family(0, before.into_iter(), after.into_iter());
        let found: Vec<_> =
            gather.classes.iter().map(|class| (class.before, class.after, class.weight[0])).collect();
        let all = universe()[0];
        let parts = [(0, 5, 0x0980_0000), (0, 6, 0x0080_0000), (1, 6, 0x0100_0000)];
        let rest = all - parts.iter().map(|&(.., weight)| weight).sum::<u128>();
        assert_eq!(found, [parts[0], parts[1], parts[2], (1, 5, rest)]);
        assert_eq!(gather.classes[1].example(0), Some("10.128.0.0/9".parse().expect("a prefix")));
        assert_eq!(gather.classes[3].example(0), Some("128.0.0.0/1".parse().expect("a prefix")));
    }

    #[test]
    fn the_universe_is_what_clients_have() {
        let [ipv4, ipv6] = universe();
        assert_eq!(ipv4, 222 << 24);
        assert!(ipv6 > 8 << 116 && ipv6 < 9 << 116);
        let documentation = u128::from(0x2001_0db8u32) << 96;
        assert_eq!(weighed(1, documentation, documentation | (u128::MAX >> 32)), 1 << 96);
        assert_eq!(weighed(1, 0xfd << 120, u128::MAX), 0);
    }
}
