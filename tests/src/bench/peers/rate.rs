//! How many queries a second a server answers on its core, and what one costs.
//!
//! More is not better than enough: a server on sockets that is flooded answers less, since the kernel then spends the
//! core on receiving what it drops. So each is first looked for the load at which it answers most, and is measured
//! there.

use std::time::Duration;

use anyhow::Result;

use super::Way;
use super::lineup::Lineup;
use super::server::Server;
use super::world::World;
use crate::bench::flood::{Ask, Flood, Pace, Rule};
use crate::packet::{Query, rtype};
use crate::random::Rng;

/// What a server did for some time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// Right answers a second.
    pub rate: f64,
    /// Processor time of the server's processes for an answer, in nanoseconds.
    pub process: f64,
    /// Processor time of the kernel's thread that receives for it, for an answer, in nanoseconds.
    pub kernel: f64,
    /// Share of its core that it did not have: others ran, or nobody.
    pub away: f64,
    /// Answers that were wrong.
    pub wrong: u64,
    /// Queries a second that it was sent.
    pub offered: f64,
}

impl Sample {
    /// All of the processor time for an answer, in nanoseconds.
    pub fn cost(&self) -> f64 {
        self.process + self.kernel
    }
}

/// Queries a second that a server is sent; `None` for as many as there is room for.
pub type Offer = Option<u32>;

/// A flood for everybody.
pub struct Rates {
    flood: Flood,
}

/// Queries that are sent at a time.
const BURST: u32 = 32;

/// A server that has so much of its core left could answer more.
const IDLE: f64 = 0.15;
/// More than the generator can make, in queries a second.
const MOST: f64 = 1e7;

/// How the best load is looked for: more and more, until more is in vain.
#[derive(Clone, Copy, Debug)]
pub struct Search {
    /// What is tried first, in queries a second.
    pub first: u32,
    /// What the next load is to the last.
    pub step: f64,
    /// Steps without a better result after which the best is known.
    pub patience: usize,
    /// For how many seconds each is tried.
    pub seconds: f64,
}

impl Search {
    /// The next load, after one that left something of the core, or was hardly answered: what was best when it was looked
    /// for need not be what is best on a machine where others run.
    pub fn adjust(&self, offer: Offer, sample: &Sample) -> Offer {
        let offer = f64::from(offer?);
        let answered = sample.rate / sample.offered;
        Some(match answered {
            _ if answered > 0.93 || sample.away > IDLE => (offer * self.step).min(MOST),
            _ if answered < 0.6 => offer / self.step,
            _ => offer,
        } as u32)
    }
}

impl Rates {
    /// Loads the flood and puts a sink before each server: from now on no socket hears it.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn new(lineup: &mut Lineup, queries: usize) -> Result<Self> {
        let world = &lineup.world;
        let mut rng = Rng::new(7);
        let ask = |_| Ok(question(world, &mut rng));
        let mut flood = Flood::load(queries, ask, lineup.cores.client)?;
        for server in &mut lineup.servers {
            server.ground.vacate();
            flood.attach_sink(&server.ground.lab)?;
        }
        Ok(Self { flood })
    }

    /// The load at which a server answers most: one of the search, or without a limit when no socket is in the way.
    ///
    /// # Errors
    /// When it cannot be measured.
    pub fn best(&mut self, server: &Server, search: &Search) -> Result<(Offer, Sample)> {
        let mut best = match server.peer.way {
            Way::Sockets => (Some(search.first), Sample::default()),
            Way::AfXdp | Way::Xdp => (None, self.measure(server, None, search.seconds)?),
        };
        let mut offer = f64::from(search.first);
        let (mut in_vain, mut most) = (0, 0.0);
        while in_vain < search.patience {
            let sample = self.measure(server, Some(offer as u32), search.seconds)?;
            if sample.rate > best.1.rate {
                best = (Some(offer as u32), sample);
                in_vain = 0;
            } else if sample.rate < 0.9 * sample.offered || sample.offered < most {
                // It cannot more, or the generator cannot.
                in_vain += 1;
            }
            most = sample.offered.max(most);
            offer *= search.step;
        }
        Ok(best)
    }

    /// Sends a server queries for some seconds.
    ///
    /// # Errors
    /// When the generator does not run, or the server has ended.
    pub fn measure(&mut self, server: &Server, offer: Offer, seconds: f64) -> Result<Sample> {
        let pace = offer.map(|rate| Pace { rate, burst: BURST });
        let window = Duration::from_secs_f64(seconds);
        let (seen, [before, after]) =
            self.flood
                .steady(&server.ground.lab, Rule::Answered, pace, window, || server.processor_time())?;
        let [process, kernel] = [0, 1].map(|at| after[at].saturating_sub(before[at]) as f64);
        let (answers, wall) = (seen.right as f64, seen.elapsed.as_nanos().max(1) as f64);
        Ok(Sample {
            rate: answers * 1e9 / wall,
            process: process / answers.max(1.0),
            kernel: kernel / answers.max(1.0),
            away: (1.0 - (process + kernel) / wall).max(0.0),
            wrong: seen.wrong,
            offered: seen.sent as f64 * 1e9 / wall,
        })
    }
}

fn question(world: &World, rng: &mut Rng) -> Ask {
    let number = rng.below(world.names as usize) as u32;
    let source = world.client(rng);
    Ask { query: Query::new(&world.name(number), rtype::A).edns(1232), source, records: (1, 1) }
}
