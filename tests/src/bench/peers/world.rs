//! What every server of the comparison serves: the same names in one zone, and, where it can, the same geography.
//!
//! Names are bound to [`SERVICES`]; each has one address for each part of the world: 198.18.SERVICE.PART. A server without
//! geography has the addresses of [`Part::Rest`] only.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use ipnet::{IpNet, Ipv4Net};
use router_common::geo_regions::grouping_of;

use super::mmdb::{Place, Writer};
use crate::random::Rng;

/// Names are those of services in turn.
pub const SERVICES: u32 = 100;
/// The zone.
pub const ZONE: &str = "bench.test";
/// TTL of every answer, in seconds.
pub const TTL: u32 = 30;

/// A part of the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Continent `EU`.
    Europe = 1,
    /// Continent `NA`.
    America = 2,
    /// Continent `AS`.
    Asia = 3,
    /// Everybody else.
    Rest = 4,
}

impl Part {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Europe, Self::America, Self::Asia, Self::Rest];

    fn of(continent: &str) -> Self {
        match continent {
            "EU" => Self::Europe,
            "NA" => Self::America,
            "AS" => Self::Asia,
            _ => Self::Rest,
        }
    }

    /// The continent's code in the table, in lower case; of the rest, what PowerDNS calls it.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Europe => "eu",
            Self::America => "na",
            Self::Asia => "as",
            Self::Rest => "unknown",
        }
    }
}

/// A table of countries, and names.
pub struct World {
    /// Names of the zone.
    pub names: u32,
    /// Prefixes of the table.
    pub prefixes: usize,
    /// The zone as a master file, without geography.
    pub zone: PathBuf,
    /// The table in MaxMind's format.
    pub table: PathBuf,
    /// Some clients of the table, and where they are.
    pub clients: Vec<(Ipv4Addr, Part)>,
    /// Networks of at least 256 addresses.
    networks: Vec<(Ipv4Net, Part)>,
}

/// Clients to compare answers for.
const CLIENTS: usize = 24;

impl World {
    /// Writes the files that servers share into `folder`. The table is `rows` of `prefix,country`.
    ///
    /// # Errors
    /// When a file cannot be written, or a row is none.
    pub fn write(folder: &Path, names: u32, rows: &str) -> Result<Self> {
        let mut writer = Writer::default();
        let mut prefixes = 0;
        let mut continents = HashMap::new();
        let mut networks = Vec::new();
        for row in rows.lines() {
            let (net, country) = row.split_once(',').with_context(|| format!("no row: {row}"))?;
            let net: IpNet = net.parse().with_context(|| format!("no prefix: {row}"))?;
            let continent = *continents.entry(country).or_insert_with(|| continent(country));
            writer.add(net, &Place { continent, country });
            prefixes += 1;
            if let IpNet::V4(net) = net
                && net.prefix_len() <= 24
                && can_be_a_client(net.network())
            {
                networks.push((net, Part::of(continent)));
            }
        }
        ensure!(!networks.is_empty(), "a table without networks of clients");
        let some = networks.iter().step_by((networks.len() / CLIENTS).max(1));
        let clients =
            some.map(|(net, part)| (Ipv4Addr::from_bits(net.network().to_bits() + 77), *part)).collect();
        let zone = folder.join(format!("{ZONE}.zone"));
        let world = Self { names, prefixes, zone, table: folder.join("countries.mmdb"), clients, networks };
        fs::write(&world.table, writer.finish())?;
        fs::write(&world.zone, world.master_file())?;
        Ok(world)
    }

    /// The owner name with this number, relative to the zone.
    pub fn label(&self, number: u32) -> String {
        format!("h{number:07}")
    }

    /// The owner name with this number.
    pub fn name(&self, number: u32) -> String {
        format!("{}.{ZONE}", self.label(number))
    }

    /// The answer for a client there.
    pub fn address(number: u32, part: Part) -> Ipv4Addr {
        Ipv4Addr::new(198, 18, (number % SERVICES) as u8, part as u8)
    }

    /// A random client of a random network of the table.
    pub fn client(&self, rng: &mut Rng) -> Ipv4Addr {
        let (network, _) = self.networks[rng.below(self.networks.len())];
        let hosts = network.hostmask().to_bits();
        // Not the network's first and last address.
        let host = (rng.draw() as u32 & hosts).clamp(1, hosts - 1);
        Ipv4Addr::from_bits(network.network().to_bits() | host)
    }

    /// Questions for dnsperf, in an order that no cache likes.
    pub fn questions(&self) -> String {
        let mut text = String::new();
        for at in 0..u64::from(self.names) {
            let number = at * 7919 % u64::from(self.names);
            let _ = writeln!(text, "{} A", self.name(number as u32));
        }
        text
    }

    fn master_file(&self) -> String {
        let mut text = format!("$ORIGIN {ZONE}.\n$TTL {TTL}\n@ SOA {SOA}\n@ NS ns1\nns1 A 192.0.2.1\n");
        for number in 0..self.names {
            let _ = writeln!(text, "{} A {}", self.label(number), Self::address(number, Part::Rest));
        }
        text
    }
}

/// The SOA's fields.
pub const SOA: &str = "ns1.bench.test. hostmaster.bench.test. 1 3600 600 604800 60";

/// The continent as xroute's groupings have it, in the codes of the format.
fn continent(country: &str) -> &'static str {
    let letters = country.as_bytes().first_chunk().copied().unwrap_or_default();
    match grouping_of(letters).map(|code| code.to_string()).unwrap_or_default().as_str() {
        "GEO-EU" => "EU",
        "GEO-NA" => "NA",
        "GEO-AS" | "GEO-ME" => "AS",
        "GEO-AF" => "AF",
        "GEO-SA" => "SA",
        "GEO-AN" => "AN",
        _ => "OC",
    }
}

/// Whether queries come from an address: not from a special one, and not from the network between the ends.
fn can_be_a_client(address: Ipv4Addr) -> bool {
    !matches!(address.octets()[0], 0 | 10 | 127 | 224..)
}
