//! What queries are measured with: each case is many frames, no two of which need ask for the same name from the same
//! source, in an order that is random.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use ipnet::IpNet;
use router_common::counter::Counter;
use router_common::model::rtype;
use router_common::name::Name;

use super::world::{Kind, VLAN, World};
use crate::exact::expect;
use crate::kernel::{SERVICE4, SERVICE6};
use crate::packet::{self, Frame};
use crate::prog_run::{action, transmit};
use crate::random::{Edns, Rng, Tuple};

/// A way to ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Case {
    /// As it stands in the report.
    pub name: &'static str,
    /// What is asked for.
    pub kind: Kind,
    qtype: u16,
    edns: bool,
    subnet: bool,
    ipv6: bool,
    vlan: bool,
}

impl Case {
    const fn new(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, qtype: rtype::A, edns: true, subnet: false, ipv6: false, vlan: false }
    }

    /// What the goal is set for, and what is measured by size.
    pub const USUAL: Self = Self::new("A + EDNS", Kind::Geographic);

    /// All of them. Where nothing else is said, a name is of a geographic profile, the query is for A over IPv4, and it
    /// has an OPT record.
    pub const ALL: [Self; 14] = [
        Self { edns: false, ..Self::new("A bare", Kind::Geographic) },
        Self::USUAL,
        Self { subnet: true, ..Self::new("A + ECS", Kind::Geographic) },
        Self { qtype: rtype::AAAA, ..Self::new("AAAA", Kind::Geographic) },
        Self::new("CNAME", Kind::Alias),
        Self { qtype: rtype::AAAA, ..Self::new("NODATA", Kind::Ipv4Only) },
        Self::new("one endpoint, no look at the client", Kind::Plain),
        Self::new("weighted of 8", Kind::Weighted),
        Self::new("multivalue of 8", Kind::Multivalue),
        Self::new("subnet", Kind::Subnet),
        Self::new("performance", Kind::Performance),
        Self::new("name of 200 octets", Kind::Long),
        Self { vlan: true, ..Self::new("VLAN", Kind::Geographic) },
        Self { ipv6: true, ..Self::new("IPv6 transport", Kind::Geographic) },
    ];

    /// The counter of its answers.
    pub fn counter(&self) -> Counter {
        if self.is_nodata() { Counter::AnswerNodata } else { Counter::AnswerRecords }
    }

    fn is_nodata(&self) -> bool {
        self.kind == Kind::Ipv4Only && self.qtype == rtype::AAAA
    }

    /// Queries of the case, drawn from all names of its kind and all prefixes.
    ///
    /// # Errors
    /// When the world has no such names.
    pub fn queries<'w>(&self, world: &'w World, count: usize) -> Result<Queries<'w>> {
        let mut rng = Rng::new(count as u64 + self.kind as u64);
        let names = world.names.get(&self.kind).with_context(|| format!("no names for {}", self.name))?;
        let tuples: Vec<Tuple> = (0..count).map(|_| self.tuple(world, names, &mut rng)).collect();
        let frames = tuples.iter().map(|tuple| self.frame(tuple, &mut rng)).collect();
        Ok(Queries { case: *self, world, tuples, frames })
    }

    fn tuple(&self, world: &World, names: &[Name], rng: &mut Rng) -> Tuple {
        Tuple {
            name: names[rng.below(names.len())].clone(),
            // Few resolvers draw letters.
            capitals: if rng.once_in(8) { rng.draw() } else { 0 },
            qtype: self.qtype,
            source: world.client(self.ipv6, rng),
            flags: if rng.once_in(4) { 0x0100 } else { 0 },
            edns: self.edns.then(|| Edns {
                size: if rng.once_in(2) { 1232 } else { 4096 },
                dnssec_ok: rng.once_in(2),
                subnet: self.subnet.then(|| network(world.client(rng.once_in(4), rng))),
            }),
        }
    }

    fn frame(&self, tuple: &Tuple, rng: &mut Rng) -> Vec<u8> {
        let mut query = tuple.query();
        query[..2].copy_from_slice(&(rng.draw() as u16).to_be_bytes());
        let mut frame = match tuple.source {
            IpAddr::V4(source) => Frame::ipv4(source, SERVICE4, query),
            IpAddr::V6(source) => Frame::ipv6(source, SERVICE6, query),
        };
        frame.udp.source = 1024 + rng.below(0xfc00) as u16;
        if self.vlan {
            frame.tags.push((0x8100, VLAN));
        }
        frame.bytes()
    }
}

/// Prepared queries of one case.
pub struct Queries<'w> {
    case: Case,
    world: &'w World,
    tuples: Vec<Tuple>,
    /// As they come from the wire.
    pub frames: Vec<Vec<u8>>,
}

impl Queries<'_> {
    /// Gives each to a program, which must answer as the oracle says.
    ///
    /// # Errors
    /// When it did not.
    pub fn verify(&self, program: BorrowedFd<'_>) -> Result<()> {
        let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let numbers: Vec<usize> = (0..self.frames.len()).collect();
        thread::scope(|scope| {
            let part = |numbers: &[usize]| -> Result<()> {
                numbers.iter().try_for_each(|&number| {
                    let (action, reply) = transmit(program, &self.frames[number])?;
                    let tuple = &self.tuples[number];
                    ensure!(action == action::TX, "{}: {tuple} ended in {action}", self.case.name);
                    self.check(number, &reply)
                })
            };
            let chunks = numbers.chunks(numbers.len().div_ceil(threads).max(1));
            let checks: Vec<_> = chunks.map(|chunk| scope.spawn(move || part(chunk))).collect();
            checks.into_iter().try_for_each(|check| check.join().map_err(|_| anyhow!("a check panicked"))?)
        })
    }

    /// Whether a reply is the answer to a query.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn check(&self, number: usize, reply: &[u8]) -> Result<()> {
        let (tuple, frame) = (&self.tuples[number], &self.frames[number]);
        self.compare(tuple, frame, reply).with_context(|| format!("{}: {tuple}", self.case.name))
    }

    fn compare(&self, tuple: &Tuple, frame: &[u8], reply: &[u8]) -> Result<()> {
        let parse = |frame: &[u8]| packet::parse(frame).map_err(anyhow::Error::msg);
        let (asked, mut replied) = (parse(frame)?, parse(reply)?);
        ensure!(
            replied.source == asked.destination && replied.destination == asked.source,
            "a reply to somebody else"
        );
        ensure!(replied.ports == (asked.ports.1, asked.ports.0), "a reply to another port");
        ensure!(replied.to == asked.from && replied.tags == asked.tags, "a reply to another station");
        ensure!(replied.payload.get(..2) == asked.payload.get(..2), "the id is another");
        // The oracle's query has an id of its own.
        replied.payload[..2].copy_from_slice(&tuple.query()[..2]);
        let snapshot = &self.world.snapshot;
        let expected = expect(snapshot, tuple).context("the oracle has no say")?;
        let outcome = expected.outcome_of(snapshot, tuple, &replied.payload).map_err(anyhow::Error::msg)?;
        ensure!(expected.outcomes[outcome].records.is_none() == self.case.is_nodata(), "NODATA, or not");
        Ok(())
    }
}

/// The network that resolvers tell of a client.
fn network(client: IpAddr) -> (IpAddr, u8) {
    let len = if client.is_ipv4() { 24 } else { 56 };
    (IpNet::new_assert(client, len).network(), len)
}
