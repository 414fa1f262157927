//! Good queries with something wrong in them, at every layer: what the fast path and the server are compared
//! on.
//!
//! A [`Recipe`] is a seed for the good query and a list of mutations, each of its own seed, so that a recipe
//! that found a fault can be cut down by leaving mutations out.

use crate::packet::{Frame, internet_sum};
use crate::random::Rng;

mod frame;
mod octets;
mod query;
mod seeds;

/// Where a mutation is made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Layer {
    /// Fields, records and options of the DNS message.
    Query,
    /// Fields of Ethernet, VLAN, IP and UDP.
    Frame,
    /// The finished frame, whatever stands there.
    Octets,
}

/// How a frame is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recipe {
    /// Of the good query.
    seed: u64,
    /// In the order of their layers.
    mutations: Vec<(Layer, u64)>,
    /// Whether checksums are made right when everything else is done.
    repaired: bool,
}

/// A frame, and what was done to a good one.
#[derive(Clone, Debug)]
pub struct Made {
    /// The frame; at least [`SHORTEST`] octets.
    pub octets: Vec<u8>,
    /// In words.
    pub story: Vec<String>,
}

/// The kernel runs no program on less than an Ethernet header.
pub const SHORTEST: usize = 14;
/// Longest frame that is made: a test run takes no more than a page holds.
const LONGEST: usize = 2000;

impl Recipe {
    /// The recipe of a number. One in eight has no mutation, most have one or two.
    pub fn new(number: u64) -> Self {
        let mut rng = Rng::new(number);
        let seed = rng.draw();
        let count = rng.of(&[0, 1, 1, 1, 2, 2, 3, 5]);
        let mut mutations: Vec<(Layer, u64)> = (0..count)
            .map(|_| {
                let layer = rng.of(&[Layer::Query, Layer::Query, Layer::Frame, Layer::Octets]);
                (layer, rng.draw())
            })
            .collect();
        mutations.sort_by_key(|&(layer, _)| layer);
        // Wrong octets behind wrong checksums say nothing more than that the checksums are wrong.
        Self { seed, mutations, repaired: !rng.once_in(4) }
    }

    /// Whether nothing is wrong with it.
    pub fn is_good(&self) -> bool {
        self.mutations.is_empty()
    }

    /// The same with one mutation less, in every way.
    pub fn smaller(&self) -> impl Iterator<Item = Self> + '_ {
        (0..self.mutations.len()).map(|at| {
            let mut smaller = self.clone();
            smaller.mutations.remove(at);
            smaller
        })
    }

    /// Makes the frame.
    pub fn make(&self) -> Made {
        let mut rng = Rng::new(self.seed);
        let mut query = seeds::query(&mut rng);
        let mut story = vec![format!("{query:?}")];
        let draws = |layer| self.mutations.iter().filter(move |it| it.0 == layer).map(|&(_, draw)| draw);
        for draw in draws(Layer::Query) {
            story.push(query::mutate(&mut query, &mut Rng::new(draw)));
        }
        let mut frame: Frame = seeds::frame(&mut rng, query.bytes());
        story.push(format!("{:?} {:?} {:?}", frame.tags, frame.ip, frame.udp));
        for draw in draws(Layer::Frame) {
            story.push(frame::mutate(&mut frame, &mut Rng::new(draw)));
        }
        let mut octets = frame.bytes();
        for draw in draws(Layer::Octets) {
            story.push(octets::mutate(&mut octets, &mut Rng::new(draw)));
            octets.truncate(LONGEST);
        }
        octets.resize(octets.len().max(SHORTEST), 0);
        if self.repaired && draws(Layer::Octets).next().is_some() {
            story.push(format!("repaired {:?}", repair(&mut octets)));
        }
        Made { octets, story }
    }
}

/// Makes the checksums right of what still looks like UDP in IP; whether there was something.
fn repair(frame: &mut [u8]) -> Option<()> {
    let mut at = 12;
    let mut ethertype = [*frame.get(at)?, *frame.get(at + 1)?];
    while matches!(ethertype, [0x81, 0x00] | [0x88, 0xa8]) {
        at += 4;
        ethertype = [*frame.get(at)?, *frame.get(at + 1)?];
    }
    let ip = at + 2;
    let (udp, addresses, end) = match ethertype {
        [0x08, 0x00] => {
            let header = usize::from(frame.get(ip)? & 15) * 4;
            let total = usize::from(u16::from_be_bytes([*frame.get(ip + 2)?, *frame.get(ip + 3)?]));
            frame.get(ip..ip + header.max(20))?;
            frame[ip + 10..ip + 12].fill(0);
            let sum = !internet_sum(&frame[ip..ip + header]);
            frame[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
            (ip + header, frame[ip + 12..ip + 20].to_vec(), ip + total)
        }
        [0x86, 0xdd] => {
            let len = usize::from(u16::from_be_bytes([*frame.get(ip + 4)?, *frame.get(ip + 5)?]));
            (ip + 40, frame.get(ip + 8..ip + 40)?.to_vec(), ip + 40 + len)
        }
        _ => return None,
    };
    let field = [*frame.get(udp + 4)?, *frame.get(udp + 5)?];
    let end = end.min(udp + usize::from(u16::from_be_bytes(field)));
    frame.get(udp..end).filter(|datagram| datagram.len() >= 8)?;
    frame[udp + 6..udp + 8].fill(0);
    let pseudo = [addresses.as_slice(), &[0, 17], &field, &frame[udp..end]].concat();
    let sum = match !internet_sum(&pseudo) {
        0 => 0xffff,
        sum => sum,
    };
    frame[udp + 6..udp + 8].copy_from_slice(&sum.to_be_bytes());
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_always_makes_the_same_frame_and_mutations_change_it() {
        let mut changed = 0;
        for number in 0..2000 {
            let recipe = Recipe::new(number);
            let made = recipe.make();
            assert_eq!(made.octets, Recipe::new(number).make().octets);
            assert!((SHORTEST..=LONGEST).contains(&made.octets.len()), "{number}");
            assert_eq!(recipe.smaller().count(), recipe.mutations.len());
            changed += usize::from(recipe.smaller().any(|smaller| smaller.make().octets != made.octets));
        }
        assert!(changed > 1500, "{changed} of 2000");
    }

    #[test]
    fn a_good_frame_is_not_repaired_into_another() {
        let good = (0..100).map(Recipe::new).filter(Recipe::is_good);
        for mut octets in good.map(|recipe| recipe.make().octets) {
            let before = octets.clone();
            let unusual = crate::packet::parse(&octets).is_err(); // no checksum, or one left to a device
            assert!(repair(&mut octets).is_some());
            assert!(unusual || octets == before);
            assert!(crate::packet::parse(&octets).is_ok());
        }
    }
}
