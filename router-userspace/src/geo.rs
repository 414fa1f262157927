//! Geography of clients: a database in MaxMind's format, and overrides by hand.
//!
//! Of a database record count `country.iso_code` (else `registered_country.iso_code`: where the block is
//! registered, for blocks whose users are not placed), `subdivisions[0].iso_code` of the three countries
//! whose states can be routed on, and `location`. Neighbouring blocks that say the same are merged, and
//! what no profile asks for is not kept: a city database has millions of blocks.

use std::collections::HashMap;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use maxminddb::{Reader, WithinOptions};
use router_common::geo_regions::parse_code;
use router_common::model::{Coordinates, GeoCode, Method, Model};
use router_common::view::GeoFacts;
use serde::Deserialize;

use crate::csv;
use crate::fault::Fault;

/// Countries whose states and provinces are told apart (ROUTING.md §3).
const WITH_STATES: [&[u8; 2]; 3] = [b"AU", b"CA", b"US"];

/// Which facts some profile can ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Country and state: there is a geographic profile.
    pub codes: bool,
    /// Coordinates: there is a performance profile, and regions have places.
    pub coordinates: bool,
}

impl Wanted {
    /// What the profiles of a model can ask for.
    pub fn by(model: &Model) -> Self {
        let uses = |method: fn(&Method) -> bool| model.profiles().iter().any(|p| method(&p.method));
        Self {
            codes: uses(|method| matches!(method, Method::Geographic)),
            coordinates: uses(|method| matches!(method, Method::Performance)) && !model.regions().is_empty(),
        }
    }
}

/// Reads `prefix,code` rows. `file` is how mistakes name the file.
///
/// # Errors
/// Every malformed row, and every prefix that stands twice.
pub fn overrides(file: &str, octets: &[u8]) -> Result<Vec<(IpNet, GeoCode)>, Vec<Fault>> {
    let mut rows = Vec::new();
    let mut seen = HashMap::new();
    csv::read(file, octets, ["prefix", "code"], |line, [prefix, text]| {
        let net = csv::prefix(prefix).map_err(|why| (0, why))?;
        let code = parse_code(text).map_err(|why| (1, why.to_string()))?;
        if let Some(before) = seen.insert(net, line) {
            return Err((0, format!("{net} has a code already, in line {before}")));
        }
        rows.push((net, code));
        Ok(())
    })?;
    Ok(rows)
}

/// Reads a database in MaxMind's format (City, Country or Enterprise), from its octets.
///
/// # Errors
/// What is broken in it, as one message.
pub fn database(octets: &[u8], wanted: Wanted) -> Result<Vec<(IpNet, GeoFacts)>, String> {
    let reader = Reader::from_source(octets).map_err(|error| error.to_string())?;
    let mut merged = Merged::default();
    if wanted == Wanted::default() {
        return Ok(merged.0);
    }
    // Many blocks share one record; each is decoded once.
    let mut known: HashMap<usize, GeoFacts> = HashMap::new();
    for found in reader.networks(WithinOptions::default()).map_err(|error| error.to_string())? {
        let found = found.map_err(|error| error.to_string())?;
        let Some(offset) = found.offset() else { continue };
        let facts = match known.get(&offset) {
            Some(facts) => *facts,
            None => {
                let record: Option<Record> = found.decode().map_err(|error| error.to_string())?;
                let facts = record.unwrap_or_default().facts(wanted);
                known.insert(offset, facts);
                facts
            }
        };
        if facts == GeoFacts::default() {
            continue;
        }
        let network = found.network().map_err(|error| error.to_string())?;
        let net = IpNet::new(network.ip(), network.prefix()).map_err(|error| error.to_string())?;
        merged.push(net.trunc(), facts);
    }
    Ok(merged.0)
}

/// The parts of a database record that count.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Record<'a> {
    #[serde(borrow)]
    country: Coded<'a>,
    #[serde(borrow)]
    registered_country: Coded<'a>,
    #[serde(borrow)]
    subdivisions: Vec<Coded<'a>>,
    location: Location,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Coded<'a> {
    iso_code: Option<&'a str>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Location {
    latitude: Option<f64>,
    longitude: Option<f64>,
}

impl Record<'_> {
    fn facts(&self, wanted: Wanted) -> GeoFacts {
        let mut facts = GeoFacts::default();
        if wanted.codes {
            let country = self.country.iso_code.or(self.registered_country.iso_code);
            facts.country = country.and_then(country_code);
            // A subdivision is one of `country`, never of the country of registration.
            if self.country.iso_code.is_some()
                && facts.country.is_some_and(|country| WITH_STATES.contains(&&country))
            {
                facts.state = self.subdivisions.first().and_then(|state| padded(state.iso_code?));
            }
        }
        if wanted.coordinates
            && let (Some(latitude), Some(longitude)) = (self.location.latitude, self.location.longitude)
            && (-90.0..=90.0).contains(&latitude)
            && (-180.0..=180.0).contains(&longitude)
        {
            facts.coordinates = Some(Coordinates { latitude, longitude });
        }
        facts
    }
}

fn country_code(text: &str) -> Option<[u8; 2]> {
    let octets: [u8; 2] = text.as_bytes().try_into().ok()?;
    octets.iter().all(u8::is_ascii_alphabetic).then(|| octets.map(|octet| octet.to_ascii_uppercase()))
}

/// The ISO 3166-2 part after the country: one to three letters or digits, padded with zero.
fn padded(text: &str) -> Option<[u8; 3]> {
    let mut state = [0; 3];
    if text.is_empty() || text.len() > 3 || !text.bytes().all(|octet| octet.is_ascii_alphanumeric()) {
        return None;
    }
    for (to, from) in state.iter_mut().zip(text.bytes()) {
        *to = from.to_ascii_uppercase();
    }
    Some(state)
}

/// Blocks in ascending order; two halves of a block that say the same become that block.
#[derive(Default)]
struct Merged(Vec<(IpNet, GeoFacts)>);

impl Merged {
    fn push(&mut self, mut net: IpNet, facts: GeoFacts) {
        while let Some(&(left, same)) = self.0.last() {
            match whole(left, net) {
                Some(block) if same == facts => {
                    self.0.pop();
                    net = block;
                }
                _ => break,
            }
        }
        self.0.push((net, facts));
    }
}

/// The block whose left and right halves these are.
fn whole(left: IpNet, right: IpNet) -> Option<IpNet> {
    if left == right || left.prefix_len() != right.prefix_len() {
        return None;
    }
    let above = match (left, right) {
        (IpNet::V4(net), IpNet::V4(_)) => {
            IpNet::V4(Ipv4Net::new(net.addr(), net.prefix_len().checked_sub(1)?).ok()?)
        }
        (IpNet::V6(net), IpNet::V6(_)) => {
            IpNet::V6(Ipv6Net::new(net.addr(), net.prefix_len().checked_sub(1)?).ok()?)
        }
        _ => return None,
    }
    .trunc();
    above.contains(&right).then_some(above)
}

#[cfg(test)]
mod tests;
