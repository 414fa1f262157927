//! What the program copies for those who read queries along.

use anyhow::{Context, Result};
use aya::maps::{Map, RingBuf};
use router_common::abi::{Control, map};
use router_common::counter::Counter;
use router_common::trace::{Head, Rule, State};

use super::{ProgRun, Table, raw};
use std::os::fd::AsFd;

/// A query that was copied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copied {
    /// What the program says of it.
    pub head: Head,
    /// The frame that came in.
    pub query: Vec<u8>,
    /// The frame that left.
    pub reply: Vec<u8>,
}

impl Copied {
    /// What became of it.
    ///
    /// # Panics
    /// When there is no such outcome.
    pub fn outcome(&self) -> Counter {
        Counter::ALL[usize::from(self.head.counter)]
    }
}

/// A rule that wants these outcomes, every one.
pub fn rule(outcomes: &[Counter]) -> Rule {
    Rule {
        threshold: 1 << 32,
        outcomes: outcomes.iter().map(|&counter| 1 << counter as u32).sum(),
        deadline: u32::MAX,
        per_window: u32::MAX,
        types: Rule::A | Rule::AAAA,
        ..Rule::OFF
    }
}

impl ProgRun {
    /// Sets rules, from the first on, and has them looked at; half 0 answers, with a lease that does not lapse.
    ///
    /// # Errors
    /// When there are too many.
    pub fn trace(&mut self, rules: &[Rule]) -> Result<()> {
        Table::of(&self.ebpf, map::TRACE_RULES, router_common::trace::RULES)?.write(0, rules)?;
        self.set_control(Control::new(0, Control::READY | Control::TRACE, u32::MAX));
        Ok(())
    }

    /// Takes what was copied.
    ///
    /// # Errors
    /// When the ring cannot be read.
    pub fn copies(&mut self) -> Result<Vec<Copied>> {
        let mut ring = RingBuf::try_from(self.ebpf.map_mut(map::TRACE_RING).context("no ring")?)?;
        let mut copies = Vec::new();
        while let Some(record) = ring.next() {
            // SAFETY: integers without padding, read from as many octets.
            let head: Head = unsafe { record[..size_of::<Head>()].as_ptr().cast::<Head>().read_unaligned() };
            let frames = &record[size_of::<Head>()..];
            let (query, reply) = frames.split_at(head.query_len as usize);
            assert_eq!(reply.len(), head.reply_len as usize, "a record is as long as its frames");
            copies.push(Copied { head, query: query.to_vec(), reply: reply.to_vec() });
        }
        Ok(copies)
    }

    /// What was withheld and lost for a rule, over all CPUs.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn missed(&self, index: u32) -> Result<(u64, u64)> {
        let Some(Map::PerCpuArray(states)) = self.ebpf.map(map::TRACE_STATE) else {
            anyhow::bail!("no states")
        };
        let words = size_of::<State>() / 8;
        let values = raw::lookup(states.fd().as_fd(), index, self.cpus * words)?;
        let sum = |at: usize| values.chunks_exact(words).map(|state| state[at]).sum();
        Ok((sum(2), sum(3)))
    }
}
