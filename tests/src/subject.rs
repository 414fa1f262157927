//! What every way to an answer has in common.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use anyhow::Result;
use router_common::atlas::Atlas;
use router_common::decide::{Asker, Snapshot};
use router_common::name::Name;
use router_common::share::Share;
use router_userspace::config::Config;
use router_userspace::explain::stand_in;

/// A question.
#[derive(Clone, PartialEq, Debug)]
pub struct Question {
    /// QNAME.
    pub name: Name,
    /// QTYPE.
    pub qtype: u16,
    /// Who asks.
    pub asker: Asker,
}

/// RCODEs that scenarios use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rcode {
    /// There is such a name.
    NoError,
    /// There is none.
    NxDomain,
    /// Not our zone.
    Refused,
}

impl fmt::Display for Rcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoError => "NOERROR",
            Self::NxDomain => "NXDOMAIN",
            Self::Refused => "REFUSED",
        })
    }
}

/// All that one question can be answered with.
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// RCODE.
    pub rcode: Rcode,
    /// Whether a SOA stands in the authority section, of every answer.
    pub soa: bool,
    /// Share of each RRset, as [`crate::rendering`] writes it; `""` is a NODATA share beside others. Empty
    /// when no answer has records.
    pub shares: BTreeMap<String, Share>,
    /// RRset and TTL of each answer; the same RRset may come with several TTLs.
    pub ttls: Vec<(String, u32)>,
    /// Scope of the answers with records; 0 without any; `None` when the subject cannot tell.
    pub scope: Option<u8>,
}

impl Answer {
    /// An answer without records and with a SOA.
    pub fn negative(rcode: Rcode) -> Self {
        Self { rcode, soa: true, shares: BTreeMap::new(), ttls: Vec::new(), scope: Some(0) }
    }

    /// An answer of parts: RRset (`None` is NODATA), TTL, share.
    pub fn of_shares(
        parts: impl IntoIterator<Item = (Option<String>, u32, Share)>,
        scope: Option<u8>,
    ) -> Self {
        let mut answer = Self { scope, ..Self::negative(Rcode::NoError) };
        for (records, ttl, share) in parts {
            if let Some(records) = &records {
                answer.soa = false;
                answer.ttls.push((records.clone(), ttl));
            }
            let held = answer.shares.entry(records.unwrap_or_default()).or_insert_with(Share::zero);
            *held = held.add(&share);
        }
        if answer.soa {
            return Self::negative(Rcode::NoError);
        }
        answer
    }
}

/// One way to an answer.
pub trait Subject {
    /// For messages.
    fn name(&self) -> &'static str;

    /// How far a share may be off.
    fn tolerance(&self) -> Share {
        Share::zero()
    }

    /// Whether the subject must answer this question, when it may abstain from others.
    fn must_answer(&self, question: &Question) -> bool;

    /// The answer; `None` when the subject abstains. It may abstain, it may never disagree.
    fn ask(&mut self, question: &Question) -> Result<Option<Answer>>;
}

/// Everything a decision depends on, with the monitors saying `state`.
pub fn snapshot(config: &Config, state: &BTreeMap<String, String>) -> Result<Snapshot> {
    let words = state.iter().map(|(endpoint, word)| (endpoint.as_str(), word.as_str()));
    let health = stand_in(&config.model, words)?;
    Ok(Snapshot {
        model: Arc::new(config.model.clone()),
        atlas: Arc::new(Atlas::build(&config.model, &config.geography, &config.latency)),
        health: Arc::new(health),
    })
}
