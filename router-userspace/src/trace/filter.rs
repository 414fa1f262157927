//! Which queries a reader wants, and how much of that the fast path can decide itself.

use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;
use router_common::abi::NAME_WORDS;
use router_common::counter::Counter;
use router_common::lookup::Client;
use router_common::name::Name;
use router_common::trace::Rule;
use serde::{Deserialize, Serialize};

use super::Event;
use crate::{dns, pattern};

/// Who answered, or handed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, clap::ValueEnum, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Path {
    /// The XDP program.
    Fast,
    /// The agent's own server.
    Userspace,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fast => "fast",
            Self::Userspace => "userspace",
        })
    }
}

/// See the module. All of it must hold.
#[derive(Clone, PartialEq, Debug)]
pub struct Filter {
    /// A pattern for the name, lower case, with the final dot.
    name: Option<String>,
    client: Option<IpNet>,
    rtype: Option<u16>,
    /// Bit for each [`Counter`].
    outcomes: u128,
}

const _: () = assert!(Counter::COUNT <= 128);

impl Default for Filter {
    /// Every query, once: what the fast path passes up is seen when the userspace server answers it.
    fn default() -> Self {
        Self { name: None, client: None, rtype: None, outcomes: bits(&mut sightings().filter(is_final)) }
    }
}

impl Filter {
    /// From words as a person writes them. `name` and `outcome` are patterns of `*` and `?`; a client is an
    /// address or a prefix.
    ///
    /// # Errors
    /// What is wrong with which of them.
    pub fn parse(
        name: Option<&str>,
        client: Option<&str>,
        rtype: Option<&str>,
        outcome: Option<&str>,
        path: Option<Path>,
    ) -> Result<Self, String> {
        let mut filter = Self { name: name.map(name_pattern).transpose()?, ..Self::default() };
        filter.client = client.map(network).transpose()?;
        if let Some(word) = rtype {
            let found = dns::record_type(word);
            filter.rtype = Some(found.ok_or_else(|| format!("{word:?} is not a record type"))?);
        }
        if let Some(pattern) = outcome {
            let fits = |counter: &Counter| pattern::matches(pattern.as_bytes(), counter.name().as_bytes());
            filter.outcomes = bits(&mut sightings().filter(fits));
            if filter.outcomes == 0 {
                let names: Vec<&str> = sightings().map(Counter::name).collect();
                return Err(format!("no outcome is called {pattern:?}; there are {}", names.join(", ")));
            }
        }
        filter.outcomes &= match path {
            None => !0,
            Some(Path::Fast) => bits(&mut sightings().filter(is_fast)),
            Some(Path::Userspace) => bits(&mut sightings().filter(|counter| !is_fast(counter))),
        };
        if filter.outcomes == 0 {
            return Err(String::from("that path never has that outcome"));
        }
        Ok(filter)
    }

    /// Whether an outcome of the userspace server is among those that are wanted.
    pub(super) fn wants_userspace(&self) -> bool {
        self.outcomes >> Counter::FAST != 0
    }

    /// Whether an event is wanted.
    pub(super) fn fits(&self, event: &Event) -> bool {
        self.outcomes >> event.outcome as u32 & 1 != 0
            && self.rtype.is_none_or(|rtype| event.asked.rtype == Some(rtype))
            && self.client.is_none_or(|net| {
                let subnet = event.asked.subnet.map(|(address, _)| address);
                net.contains(&event.client.ip().to_canonical())
                    || subnet.is_some_and(|subnet| net.contains(&subnet))
            })
            && self.name.as_ref().is_none_or(|pattern| {
                let name = event.asked.name.as_ref();
                name.is_some_and(|name| pattern::matches(pattern.as_bytes(), name.to_string().as_bytes()))
            })
    }

    /// What the fast path decides itself: all but the part of a name's pattern up to its last `*` or `?`, and the
    /// type of what it passes up. [`Self::fits`] is asked about what it copies.
    pub(super) fn rule(&self) -> Rule {
        let mut rule = Rule {
            outcomes: (self.outcomes & ((1 << Counter::FAST) - 1)) as u64,
            types: match self.rtype {
                None => Rule::A | Rule::AAAA,
                Some(1) => Rule::A,
                Some(28) => Rule::AAAA,
                Some(_) => 0,
            },
            ..Rule::OFF
        };
        if let Some(net) = self.client {
            (rule.family, rule.client, rule.mask) = match net {
                IpNet::V4(net) => (
                    4,
                    Client::ipv4(net.network().octets()).words(),
                    Client::ipv4(net.netmask().octets()).words(),
                ),
                IpNet::V6(net) => (
                    6,
                    Client::ipv6(net.network().octets()).words(),
                    Client::ipv6(net.netmask().octets()).words(),
                ),
            };
        }
        if let Some((name, exact)) = self.name.as_deref().and_then(literal) {
            let octets = name.as_wire();
            for (word, chunk) in rule.name.iter_mut().zip(octets.chunks(8)) {
                let mut padded = [0; 8];
                for (to, from) in padded.iter_mut().zip(chunk) {
                    *to = *from;
                }
                *word = u64::from_le_bytes(padded);
            }
            debug_assert!(octets.len() <= 8 * NAME_WORDS);
            (rule.name_len, rule.exact) = (octets.len() as u8, u8::from(exact));
        }
        rule
    }
}

/// The labels that a pattern ends with, and whether they are all of it; `None`: there are none.
fn literal(pattern: &str) -> Option<(Name, bool)> {
    let wild = pattern.rfind(['*', '?']);
    let text = match wild {
        None => pattern,
        // The label with the last one is not literal.
        Some(at) => pattern.get(at..)?.split_once('.')?.1,
    };
    // A dot that is quoted ends no label.
    if text.is_empty() || wild.is_some() && pattern.contains('\\') {
        return None;
    }
    Some((Name::from_str(text).ok()?, wild.is_none()))
}

/// A pattern as names are written: lower case, absolute.
fn name_pattern(written: &str) -> Result<String, String> {
    let mut pattern = written.to_ascii_lowercase();
    if !pattern.contains(['*', '?']) {
        let name = Name::from_str(&pattern).map_err(|why| format!("{written:?} is not a name: {why}"))?;
        return Ok(name.to_string());
    }
    if !pattern.ends_with(['*', '.']) {
        pattern.push('.');
    }
    Ok(pattern)
}

/// An address, or a prefix with its host bits zero.
fn network(written: &str) -> Result<IpNet, String> {
    if let Ok(address) = written.parse::<std::net::IpAddr>() {
        return Ok(address.to_canonical().into());
    }
    let net: IpNet = written.parse().map_err(|_| {
        format!("{written:?} is not a client; allowed are an address and a prefix, e.g. 198.51.100.0/24")
    })?;
    if net.trunc() != net {
        return Err(format!("{written:?} has host bits set; the prefix is {}", net.trunc()));
    }
    Ok(net)
}

/// Outcomes that can be sampled: those of queries that were found to be for us.
fn sightings() -> impl Iterator<Item = Counter> {
    use Counter::{
        AnswerNodata, AnswerRecords, DropResponse, DropSourcePort, PassBroken, PassOpcode, PassStale,
        ServerCookie, ServerDropped, ServerRateDropped, ServerRateSlipped, ServerRecords,
    };
    let within = |counter: Counter, first: Counter, last: Counter| {
        (first as u32..=last as u32).contains(&(counter as u32))
    };
    Counter::ALL.iter().copied().filter(move |&counter| {
        matches!(
            counter,
            AnswerRecords
                | AnswerNodata
                | DropResponse
                | DropSourcePort
                | PassStale
                | ServerDropped
                | ServerRateDropped
                | ServerRateSlipped
        ) || within(counter, PassOpcode, PassBroken)
            || within(counter, ServerRecords, ServerCookie)
    })
}

/// Whether the query was answered, or will not be.
fn is_final(counter: &Counter) -> bool {
    !counter.name().starts_with("pass_") && !counter.name().starts_with("drop_")
}

fn is_fast(counter: &Counter) -> bool {
    (*counter as usize) < Counter::FAST
}

fn bits(counters: &mut dyn Iterator<Item = Counter>) -> u128 {
    counters.fold(0, |bits, counter| bits | 1 << counter as u32)
}

#[cfg(test)]
mod tests;
