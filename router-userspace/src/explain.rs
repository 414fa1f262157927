//! What a query would be answered with, and why: for `xroute explain`, offline and live.

use std::fmt;
use std::net::IpAddr;

use anyhow::{Context, bail};
use ipnet::IpNet;
use router_common::authority::{Authority, authority};
use router_common::compile::Compiled;
use router_common::decide::{Asked, Asker, Outcome, Records, Snapshot, distribution};
use router_common::explain::steps;
use router_common::model::{Model, ProfileId, ZoneId, rtype};
use router_common::name::Name;
use router_common::sim::Sim;
use router_common::view::{Health, HealthView};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::dns;
use crate::map::{MappedAddress, map_address};

/// A question with its asker.
#[derive(Clone, Debug)]
pub struct Question {
    /// QNAME.
    pub name: Name,
    /// QTYPE.
    pub rtype: u16,
    /// Who asks.
    pub asker: Asker,
}

impl Question {
    /// From the words of a command line or an API call; every mistake says what is allowed.
    pub fn parse(name: &str, rtype: &str, source: IpAddr, ecs: Option<&str>) -> anyhow::Result<Self> {
        let name: Name = name.parse().with_context(|| format!("{name:?} is not a domain name"))?;
        let rtype = dns::record_type(rtype).with_context(|| {
            format!("{rtype:?} is not a record type (allowed: A, AAAA, MX, …, TYPE0 to TYPE65535)")
        })?;
        let ecs = match ecs {
            None => None,
            Some(text) => {
                let net: IpNet = text.parse().with_context(|| {
                    format!("{text:?} is not a prefix (allowed: 203.0.113.0/24, 2001:db8::/56)")
                })?;
                if net.trunc() != net {
                    bail!("{text:?} has bits beyond its length set (allowed: {})", net.trunc());
                }
                // SOURCE PREFIX-LENGTH 0 asks for the resolver's own address to be used (RFC 7871 §7.1.2).
                (net.prefix_len() > 0).then(|| (net.network(), net.prefix_len()))
            }
        };
        Ok(Self { name, rtype, asker: Asker { source, ecs } })
    }
}

/// One possible answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExplainedAnswer {
    /// `TYPE data`, none for a NODATA share.
    pub records: Vec<String>,
    /// Seconds.
    pub ttl: u32,
    /// Exact share of the answers, in lowest terms.
    pub share: String,
    /// `profile/endpoint`; none for static data.
    pub endpoint: Option<String>,
}

/// One endpoint that a step looked at.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExplainedCandidate {
    /// Its name.
    pub endpoint: String,
    /// Its status.
    pub status: String,
    /// What the step made of it.
    pub note: String,
}

/// One profile's decision.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExplainedStep {
    /// The profile.
    pub profile: String,
    /// Its method.
    pub method: String,
    /// What it chose.
    pub chose: String,
    /// Why.
    pub because: String,
    /// The walk over traffic dials, a line for each endpoint; empty without dials.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arithmetic: Vec<String>,
    /// What it chose from.
    pub candidates: Vec<ExplainedCandidate>,
}

/// The whole explanation; its JSON is the agreed surface of CONFIG.md.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// Name asked for.
    pub qname: String,
    /// Type asked for.
    pub qtype: String,
    /// The client subnet that decided.
    pub client: String,
    /// What is known of it, when a profile on the way looks at clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<MappedAddress>,
    /// RCODE.
    pub rcode: String,
    /// SCOPE PREFIX-LENGTH of the reply's ECS option.
    pub scope: u8,
    /// `fast` when the XDP program answers it itself, else `slow`.
    pub path: String,
    /// Possible answers.
    pub answers: Vec<ExplainedAnswer>,
    /// Records of the authority section.
    pub authority: Vec<String>,
    /// How it was decided.
    pub steps: Vec<ExplainedStep>,
}

/// Explains one question. `compiled` are the tables that would answer it in the fast path.
pub fn explain(service: &dns::Service, compiled: &Compiled, question: &Question) -> Explanation {
    let snapshot = &service.snapshot;
    let client = match question.asker.ecs {
        Some((address, len)) => format!("{address}/{len}"),
        None => {
            format!("{}/{}", question.asker.source, if question.asker.source.is_ipv4() { 32 } else { 128 })
        }
    };
    let mut explanation = Explanation {
        qname: question.name.to_string(),
        qtype: dns::type_name(question.rtype),
        client,
        location: None,
        rcode: String::from("NOERROR"),
        scope: 0,
        path: String::from(if fast(compiled, question) { "fast" } else { "slow" }),
        answers: Vec::new(),
        authority: Vec::new(),
        steps: Vec::new(),
    };
    match decided(&snapshot.model, question) {
        Some((zone, profile, asked)) => {
            explanation.decide(snapshot, zone, profile, asked, &question.asker);
        }
        None => explanation.look_up(service, question),
    }
    explanation
}

/// The profile that decides about this question, when one does.
fn decided(model: &Model, question: &Question) -> Option<(ZoneId, ProfileId, Asked)> {
    let asked = match question.rtype {
        rtype::A => Asked::A,
        rtype::AAAA => Asked::Aaaa,
        rtype::CNAME => Asked::Cname,
        _ => return None,
    };
    match authority(model, &question.name) {
        Authority::Exists { zone, profile: Some(profile), node, .. }
            if node.is_none_or(|node| !node.contains_key(&rtype::CNAME)) =>
        {
            Some((zone, profile, asked))
        }
        _ => None,
    }
}

fn fast(compiled: &Compiled, question: &Question) -> bool {
    let aaaa = match question.rtype {
        rtype::A => false,
        rtype::AAAA => true,
        _ => return false,
    };
    Sim::new(&compiled.tables).answers(&question.name, aaaa, &question.asker)
}

impl Explanation {
    fn decide(&mut self, snapshot: &Snapshot, zone: ZoneId, profile: ProfileId, asked: Asked, asker: &Asker) {
        let model = &snapshot.model;
        let decided = distribution(snapshot, profile, asked, asker);
        let nodata = decided.outcomes.iter().all(|outcome| outcome.records.is_none());
        if nodata {
            let zone = model.zone(zone);
            self.authority.push(format!("{} {} SOA {}", zone.name, zone.negative_ttl(), soa_text(&zone.soa)));
        } else {
            self.scope = decided.scope;
            self.answers = decided.outcomes.iter().map(|outcome| answer(model, outcome)).collect();
        }
        if snapshot.atlas.looks_at_client(profile) {
            let client =
                asker.ecs.filter(|_| model.profile(profile).ecs).map_or(asker.source, |(address, _)| address);
            self.location = Some(MappedAddress {
                profiles: Vec::new(),
                profiles_left_out: 0,
                ..map_address(snapshot, client)
            });
        }
        self.steps = steps(snapshot, profile, asked, asker)
            .into_iter()
            .map(|step| ExplainedStep {
                profile: step.profile,
                method: step.method.to_string(),
                chose: step.chose,
                because: step.because,
                arithmetic: step.arithmetic,
                candidates: step
                    .candidates
                    .into_iter()
                    .map(|candidate| ExplainedCandidate {
                        endpoint: candidate.name,
                        status: candidate.status.to_string(),
                        note: candidate.left_out.unwrap_or("took part").to_string(),
                    })
                    .collect(),
            })
            .collect();
    }

    /// Static data, negative answers, referrals: what the userspace server would send.
    fn look_up(&mut self, service: &dns::Service, question: &Question) {
        let shown = dns::show(service, &question.name, question.rtype, &question.asker);
        self.rcode = shown.rcode;
        if !shown.answers.is_empty() {
            self.answers.push(ExplainedAnswer {
                records: shown.answers,
                ttl: shown.ttl,
                share: String::from("1/1"),
                endpoint: None,
            });
        }
        self.authority = shown.authority;
    }
}

fn answer(model: &Model, outcome: &Outcome) -> ExplainedAnswer {
    let records = match &outcome.records {
        None => Vec::new(),
        Some(Records::A(addresses)) => addresses.iter().map(|address| format!("A {address}")).collect(),
        Some(Records::Aaaa(addresses)) => addresses.iter().map(|address| format!("AAAA {address}")).collect(),
        Some(Records::Cname(target)) => vec![format!("CNAME {target}")],
    };
    ExplainedAnswer {
        records,
        ttl: outcome.ttl,
        share: outcome.share.to_string(),
        endpoint: outcome.endpoint.map(|endpoint| model.endpoint_path(endpoint)),
    }
}

fn soa_text(soa: &router_common::model::Soa) -> String {
    format!(
        "{} {} {} {} {} {} {}",
        soa.mname, soa.rname, soa.serial, soa.refresh, soa.retry, soa.expire, soa.minimum
    )
}

/// Verdicts from words (`online`, `degraded`, `checking`) that stand in for the monitors; endpoints
/// that are not named are online.
pub fn stand_in<'a>(
    model: &Model,
    named: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> anyhow::Result<HealthView> {
    let mut health = HealthView::default();
    let mut endpoints = std::collections::HashMap::new();
    for (i, profile) in model.profiles().iter().enumerate() {
        for index in 0..profile.endpoints.len() {
            let id = router_common::model::EndpointId { profile: ProfileId(i as u32), index: index as u32 };
            endpoints.insert(model.endpoint_path(id), id);
            health.verdicts.insert(id, Health::Healthy);
        }
    }
    for (path, word) in named {
        let Some(&id) = endpoints.get(path) else {
            bail!("no endpoint {path:?} (allowed: profile/endpoint as in the configuration)");
        };
        let verdict = match word {
            "online" => Health::Healthy,
            "degraded" => Health::Unhealthy,
            "checking" => Health::Checking,
            other => bail!("{path}: unknown state {other:?} (allowed: online, degraded, checking)"),
        };
        health.verdicts.insert(id, verdict);
    }
    Ok(health)
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} {} for {}", self.qname, self.qtype, self.client)?;
        writeln!(f, "  {}, scope /{}, {} path", self.rcode, self.scope, self.path)?;
        if self.answers.is_empty() {
            writeln!(f, "  no records")?;
        }
        for answer in &self.answers {
            let records = if answer.records.is_empty() {
                String::from("no records")
            } else {
                answer.records.join(" + ")
            };
            write!(f, "  {:>9}  {records}, TTL {}", answer.share, answer.ttl)?;
            match &answer.endpoint {
                Some(endpoint) => writeln!(f, ", from {endpoint}")?,
                None => writeln!(f)?,
            }
        }
        for record in &self.authority {
            writeln!(f, "  authority  {record}")?;
        }
        if let Some(location) = &self.location {
            write!(f, "client {}", location.facts())?;
        }
        if !self.steps.is_empty() {
            writeln!(f, "why")?;
        }
        for step in &self.steps {
            writeln!(f, "  {} ({}) chose {}: {}", step.profile, step.method, step.chose, step.because)?;
            for line in &step.arithmetic {
                writeln!(f, "      {line}")?;
            }
            for candidate in &step.candidates {
                writeln!(f, "      {:<20} {:<17} {}", candidate.endpoint, candidate.status, candidate.note)?;
            }
        }
        Ok(())
    }
}
