//! Prefixes, ranges and addresses around a few places, so that they nest and touch.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use router_common::model::AddressRange;

use super::{Rng, net};

/// Blocks with rules of their own, and what lies around and inside them.
const SPECIAL: [&str; 20] = [
    "0.0.0.0/0",
    "0.0.0.0/1",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "10.0.0.0/7",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "192.168.7.0/24",
    "255.255.255.255/32",
    "::/0",
    "8000::/1",
    "::1/128",
    "fc00::/7",
    "fd00::/8",
    "fe80::/10",
    "::/64",
    "64:ff9b::/64",
];

/// The places of one world.
#[derive(Clone, Debug)]
pub struct Prefixes {
    hot4: [u32; 3],
    hot6: [u128; 3],
    /// Prefixes that sources and clients are taken from.
    pub pool: Vec<IpNet>,
}

impl Prefixes {
    pub(super) fn new(rng: &mut Rng) -> Self {
        let hot4 = [(); 3].map(|()| 0x0b00_0000 + ((rng.draw() as u32 & 0x7fff) << 16));
        let hot6 = [(); 3].map(|()| 0x2001u128 << 112 | u128::from(rng.draw() & 0xffff) << 96);
        let mut prefixes = Self { hot4, hot6, pool: Vec::new() };
        for _ in 0..4 + rng.below(30) {
            let prefix = prefixes.prefix(rng);
            prefixes.pool.push(prefix);
        }
        prefixes
    }

    /// One of the pool.
    pub(super) fn pooled(&self, rng: &mut Rng) -> IpNet {
        self.pool[rng.below(self.pool.len())]
    }

    fn prefix(&self, rng: &mut Rng) -> IpNet {
        match rng.below(20) {
            0..=9 => {
                let len = 16 + rng.below(17) as u8;
                trunc(self.address4(rng).into(), len)
            }
            10..=14 => {
                let len = rng.of(&[32, 40, 44, 48, 49, 52, 56, 57, 60, 64, 96, 127, 128]);
                trunc(self.address6(rng).into(), len)
            }
            15 => {
                let address = self.address4(rng);
                trunc(embedded(rng, address).into(), 96 + rng.of(&[0, 8, 16, 22, 24, 25, 32]))
            }
            16 => trunc(Ipv4Addr::from_bits(rng.draw() as u32).into(), rng.below(17) as u8),
            _ => net(rng.of(&SPECIAL)),
        }
    }

    /// Ranges and prefixes for one endpoint's subnets.
    pub(super) fn range(&self, rng: &mut Rng) -> AddressRange {
        match rng.below(5) {
            0 => {
                let first = self.address4(rng).to_bits();
                let size = 1u32 << rng.below(15);
                let last = first.saturating_add(rng.below(size as usize) as u32);
                AddressRange {
                    first: Ipv4Addr::from_bits(first).into(),
                    last: Ipv4Addr::from_bits(last).into(),
                }
            }
            1 => {
                let first = self.address6(rng).to_bits();
                let last = first.saturating_add(u128::from(rng.draw()) << rng.below(24));
                AddressRange {
                    first: Ipv6Addr::from_bits(first).into(),
                    last: Ipv6Addr::from_bits(last).into(),
                }
            }
            _ => {
                let net = self.pooled(rng);
                AddressRange { first: net.network(), last: net.broadcast() }
            }
        }
    }

    /// An address: at or beside an end of a known prefix, inside one, or anywhere.
    pub(super) fn address(&self, rng: &mut Rng) -> IpAddr {
        let net = match rng.below(10) {
            0..=6 => self.pooled(rng),
            7 => return self.address4(rng).into(),
            8 => return self.address6(rng).into(),
            _ if rng.once_in(2) => return Ipv4Addr::from_bits(rng.draw() as u32).into(),
            _ => net(rng.of(&SPECIAL)),
        };
        let way = rng.below(6);
        match (net.network(), net.broadcast()) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                let (first, last) = (first.to_bits(), last.to_bits());
                let inside = first + (rng.draw() as u32 & (last - first));
                let found = beside(way, u128::from(first), u128::from(last), u128::from(inside));
                Ipv4Addr::from_bits(found as u32).into()
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => {
                let (first, last) = (first.to_bits(), last.to_bits());
                let wide = u128::from(rng.draw()) << 64 | u128::from(rng.draw());
                Ipv6Addr::from_bits(beside(way, first, last, first + (wide & (last - first)))).into()
            }
            _ => unreachable!("a prefix is of one family"),
        }
    }

    /// An IPv4 address of a hot place; few of its bits are random.
    fn address4(&self, rng: &mut Rng) -> Ipv4Addr {
        let low = (rng.draw() as u32 & 0xf) << (4 * rng.below(4));
        Ipv4Addr::from_bits(rng.of(&self.hot4) | low | (rng.draw() as u32 & 0x3))
    }

    fn address6(&self, rng: &mut Rng) -> Ipv6Addr {
        let low = u128::from(rng.draw() & 0xf) << (4 * rng.below(24));
        Ipv6Addr::from_bits(rng.of(&self.hot6) | low)
    }
}

/// The address in a v4-mapped or NAT64 one.
pub(super) fn embedded(rng: &mut Rng, address: Ipv4Addr) -> Ipv6Addr {
    let block: u128 = if rng.once_in(2) { 0xffff << 32 } else { 0x0064_ff9b << 96 };
    Ipv6Addr::from_bits(block | u128::from(address.to_bits()))
}

fn beside(way: usize, first: u128, last: u128, inside: u128) -> u128 {
    match way {
        0 => first,
        1 => last,
        2 => first.wrapping_sub(1),
        3 => last.wrapping_add(1),
        _ => inside,
    }
}

/// An address as the prefix of this length around it.
pub(super) fn trunc(address: IpAddr, len: u8) -> IpNet {
    IpNet::new(address, len).expect("the length fits the family").trunc()
}
