//! The compiled tables as a subject, read by the look-up that the XDP program runs.

use anyhow::{Result, bail};
use router_common::abi::Cell;
use router_common::authority::{Authority, authority};
use router_common::compile::{Compiled, compile};
use router_common::decide::{Asker, Snapshot};
use router_common::lookup::Miss;
use router_common::model::{Model, rtype};
use router_common::name::Name;
use router_common::share::Share;
use router_common::sim::{self, Possible};
use router_common::tables::Frontage;

use crate::rendering;
use crate::subject::{Answer, Question, Subject};

/// What the fast path must answer itself: A and AAAA of a name that an enabled profile is bound to, or whose
/// wildcard is.
pub fn must_answer(model: &Model, question: &Question) -> bool {
    let decided = matches!(authority(model, &question.name), Authority::Exists { profile: Some(_), .. });
    matches!(question.qtype, rtype::A | rtype::AAAA) && decided
}

/// What the fast path answers, every random number counted.
pub struct Sim {
    snapshot: Snapshot,
    compiled: Compiled,
}

impl Sim {
    /// Compiles a snapshot.
    pub fn new(snapshot: Snapshot) -> Result<Self> {
        let mut tried = 0u64;
        let seeds = || {
            tried += 1;
            [tried, tried.wrapping_mul(0x9e37_79b9_7f4a_7c15)]
        };
        let frontage = Frontage { edns_size: 1232, ..Frontage::default() };
        let compiled = compile(&snapshot, &frontage, seeds, 1)?;
        Ok(Self { snapshot, compiled })
    }

    fn possible(&self, name: &Name, aaaa: bool, asker: &Asker) -> Result<Option<Vec<Possible>>> {
        match sim::Sim::new(&self.compiled.tables).enumerate(&sim::query(name, aaaa, asker)) {
            Ok(possible) if possible.iter().any(|one| one.kind == Cell::PASS) => Ok(None),
            Ok(possible) => Ok(Some(possible)),
            Err(Miss::Broken) => bail!("the tables lead nowhere"),
            Err(_) => Ok(None),
        }
    }
}

impl Subject for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    /// A threshold is as exact as 2⁻³² of a cell; a share is made of few of them.
    fn tolerance(&self) -> Share {
        Share::ratio(1, 1 << 28)
    }

    fn must_answer(&self, question: &Question) -> bool {
        must_answer(&self.snapshot.model, question)
    }

    fn ask(&mut self, question: &Question) -> Result<Option<Answer>> {
        let aaaa = match question.qtype {
            rtype::A => false,
            rtype::AAAA => true,
            _ => return Ok(None),
        };
        let Some(possible) = self.possible(&question.name, aaaa, &question.asker)? else { return Ok(None) };
        // The scope is that of the same address in an option, when the query has none.
        let in_option = match question.asker {
            Asker { source, ecs: None } => {
                let bits = if source.is_ipv4() { 32 } else { 128 };
                Asker { source, ecs: Some((source, bits)) }
            }
            with => with,
        };
        let Some(scoped) = self.possible(&question.name, aaaa, &in_option)? else {
            bail!("it answers without the option and abstains with it");
        };
        let same = possible.len() == scoped.len()
            && possible.iter().zip(&scoped).all(|(a, b)| a.piece == b.piece && a.share == b.share);
        if !same {
            bail!("the client's own address in the option changes the answer");
        }
        let positive = scoped.iter().find(|one| one.kind == Cell::RECORDS);
        let scope = positive.map_or(0, |one| one.scope);
        let mut parts = Vec::new();
        for one in possible {
            if one.kind == Cell::NODATA {
                if (one.ancount, one.nscount) != (0, 1) {
                    bail!("a NODATA with {} answers and {} in authority", one.ancount, one.nscount);
                }
                parts.push((None, 0, one.share));
                continue;
            }
            let (records, ttl) = rendering::of_piece(&one.piece)?;
            let count = records.split(" + ").count();
            if count != usize::from(one.ancount) || one.nscount != 0 {
                bail!("{count} records, with {} and {} announced", one.ancount, one.nscount);
            }
            parts.push((Some(records), ttl, one.share));
        }
        Ok(Some(Answer::of_shares(parts, Some(scope))))
    }
}
