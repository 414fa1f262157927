//! The real XDP program as a subject, run by the kernel on the compiled tables.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result, bail};
use router_common::abi::Interface;
use router_common::compile::compile;
use router_common::decide::Snapshot;
use router_common::share::Share;
use router_common::tables::{Frontage, Tables};

use crate::packet::{self, Frame};
use crate::prog_run::{Image, ProgRun, action};
use crate::reply::{self, Reply};
use crate::subject::{Answer, Question, Subject};

/// Queries for one answer; the kernel rolls its own dice.
const QUERIES: usize = 400;
/// Our service address.
pub const SERVICE4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 53);
/// Another address of the host, and the broadcast address of its network, a /24; sources of good queries
/// are in it.
pub const LOCALS4: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 1, 2, 9), Ipv4Addr::new(10, 1, 2, 255)];
/// Our service address.
pub const SERVICE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x53);

/// What the program answers.
pub struct Kernel<'p> {
    program: &'p ProgRun,
    snapshot: Snapshot,
}

impl<'p> Kernel<'p> {
    /// Fills the tables of a loaded program from a snapshot.
    ///
    /// # Errors
    /// When it does not compile, or does not fit the maps.
    pub fn new(program: &'p mut ProgRun, snapshot: Snapshot) -> Result<Self> {
        let frontage = Frontage {
            addresses: vec![SERVICE4.into(), SERVICE6.into()],
            // A test run comes in on `lo`, which is interface 1.
            interfaces: vec![Interface { index: 1, mac: [2, 0, 0, 0, 0, 1], pad: [0; 2] }],
            edns_size: 1232,
            ..Frontage::default()
        };
        let mut seed = 0;
        let seeds = || {
            seed += 1;
            [seed, !seed]
        };
        let tables = compile(&snapshot, &frontage, seeds, 1)?.tables;
        program.activate(&image(&tables))?;
        Ok(Self { program, snapshot })
    }

    /// One reply; `None` when the packet is passed up unchanged.
    fn one(&self, question: &Question, with_own_address: bool) -> Result<Option<Reply>> {
        let source = question.asker.source;
        let own = with_own_address.then_some((source, if source.is_ipv4() { 32 } else { 128 }));
        let query = reply::query(question, own);
        let frame = match source {
            IpAddr::V4(source) => Frame::ipv4(source, SERVICE4, query),
            IpAddr::V6(source) => Frame::ipv6(source, SERVICE6, query),
        }
        .bytes();
        let outcome = self.program.run(&frame)?;
        match outcome.action {
            action::PASS if outcome.frame == frame => Ok(None),
            action::PASS => bail!("a packet that is passed up was changed"),
            action::TX => {
                let parsed = packet::parse(&outcome.frame).map_err(anyhow::Error::msg)?;
                Ok(Some(reply::decode(&parsed.payload, question)?))
            }
            other => bail!("XDP action {other}"),
        }
    }
}

impl Subject for Kernel<'_> {
    fn name(&self) -> &'static str {
        "kernel"
    }

    /// More than nine standard deviations of a half; the exact weights are compared in the tables.
    fn tolerance(&self) -> Share {
        Share::ratio(1, 4)
    }

    /// What the tables must answer, unless no packet can come from that address.
    fn must_answer(&self, question: &Question) -> bool {
        let no_source = match question.asker.source {
            IpAddr::V6(source) => source.to_ipv4_mapped().is_some(),
            IpAddr::V4(_) => false,
        };
        !no_source && crate::sim::must_answer(&self.snapshot.model, question)
    }

    fn ask(&mut self, question: &Question) -> Result<Option<Answer>> {
        let mut replies = Vec::with_capacity(QUERIES);
        for _ in 0..QUERIES {
            match self.one(question, false)? {
                Some(reply) => replies.push(reply),
                None if replies.is_empty() => return Ok(None),
                None => bail!("it answers a question only sometimes"),
            }
        }
        let scoped = self.one(question, true)?.context("it abstains once the query has the option")?;
        Ok(Some(reply::gather(&replies, &scoped)?))
    }
}

/// The compiled tables in the form that the harness writes.
pub fn image(tables: &Tables) -> Image {
    Image {
        generation: tables.generation,
        owners: tables.owners.clone(),
        buckets: tables.buckets.clone(),
        regions: tables.regions.clone(),
        answers: tables.answers.clone(),
        cells: tables.cells.clone(),
        lines: tables.lines.clone(),
        locations: tables.locations.clone(),
    }
}
