//! Where an address is, to the agent: for `xroute map`, offline and live.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use router_common::atlas::Partition;
use router_common::decide::{Asked, Asker, Snapshot};
use router_common::explain::steps;
use router_common::lookup::Client;
use router_common::model::{Model, Profile, ProfileId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most profiles that are shown; each costs a decision.
const MAX_PROFILES: usize = 50;

/// What is known of an address, and what it leads to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MappedAddress {
    /// As it was given.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// What is looked up: of a v4-mapped or NAT64 address the IPv4 address in it.
    #[schema(value_type = String)]
    pub client: IpAddr,
    /// Geographic codes, narrowest first, as far as a geographic profile asks for them.
    pub codes: Vec<String>,
    /// Where it is, as far as a performance profile asks for it.
    pub coordinates: Option<MappedPlace>,
    /// Milliseconds by region, from the latency table; a region that is not named is not in it.
    pub latency_ms: BTreeMap<String, f64>,
    /// Class of addresses that no profile tells apart.
    pub location: u32,
    /// Number of classes.
    pub locations: u32,
    /// The table's entry: every address in it is answered alike.
    pub entry: String,
    /// Whether it is in a block for special use (RFC 7871 §11.3) of which nothing is known.
    pub special: bool,
    /// What profiles that tell clients apart make of it, in file order.
    pub profiles: Vec<MappedProfile>,
    /// Such profiles beyond those shown.
    pub profiles_left_out: usize,
}

/// A place on earth.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MappedPlace {
    /// Degrees north.
    pub latitude: f64,
    /// Degrees east.
    pub longitude: f64,
}

/// What one profile makes of an address, with health as it is.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MappedProfile {
    /// Its name.
    pub profile: String,
    /// Its method.
    pub method: String,
    /// The one of its regions that the address is in; none where userspace alone decides.
    pub region: Option<u16>,
    /// Number of its regions.
    pub regions: usize,
    /// What A queries lead to.
    pub a: MappedChoice,
    /// What AAAA queries lead to.
    pub aaaa: MappedChoice,
}

/// A profile's own decision, not what nested ones make of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
pub struct MappedChoice {
    /// An endpoint, several with their shares, or `NODATA`.
    pub chose: String,
    /// Why.
    pub because: String,
}

/// Looks an address up.
pub fn map_address(snapshot: &Snapshot, address: IpAddr) -> MappedAddress {
    let (client, _) = match address {
        IpAddr::V4(address) => Client::ipv4(address.octets()),
        IpAddr::V6(address) => Client::ipv6(address.octets()),
    }
    .fold(128);
    let folded = address_of(&client);
    let atlas = &snapshot.atlas;
    let entry = atlas.find(&client);
    let facts = atlas.facts(&client);
    let latency_ms = regions(&snapshot.model)
        .into_iter()
        .filter_map(|region| Some((region.to_owned(), facts.latency(atlas.region_id(region)?)?)))
        .collect();
    let looking: Vec<ProfileId> = (0..)
        .map(ProfileId)
        .zip(snapshot.model.profiles())
        .filter(|(id, profile)| profile.enabled && atlas.looks_at_client(*id))
        .map(|(id, _)| id)
        .collect();
    let profile = |&id: &ProfileId| {
        let profile = snapshot.model.profile(id);
        mapped_profile(snapshot, id, profile, entry.location, folded)
    };
    MappedAddress {
        address,
        client: folded,
        codes: facts.codes().map(|code| code.to_string()).collect(),
        coordinates: facts
            .coordinates
            .map(|place| MappedPlace { latitude: place.latitude, longitude: place.longitude }),
        latency_ms,
        location: entry.location,
        locations: atlas.locations(),
        entry: prefix(folded, entry.prefix_len),
        special: entry.special,
        profiles: looking.iter().take(MAX_PROFILES).map(profile).collect(),
        profiles_left_out: looking.len().saturating_sub(MAX_PROFILES),
    }
}

fn mapped_profile(
    snapshot: &Snapshot,
    id: ProfileId,
    profile: &Profile,
    location: u32,
    source: IpAddr,
) -> MappedProfile {
    let (region, regions) = match snapshot.atlas.partition(id) {
        Partition::Regions { of, representatives } => {
            (of.get(location as usize).copied(), representatives.len())
        }
        Partition::Trivial => (Some(0), 1),
        Partition::TooMany => (None, 0),
    };
    let choice = |asked| {
        let asker = Asker { source, ecs: None };
        match steps(snapshot, id, asked, &asker).into_iter().next() {
            Some(step) => MappedChoice { chose: step.chose, because: step.because },
            None => {
                MappedChoice { chose: String::from("NODATA"), because: String::from("nothing to choose") }
            }
        }
    };
    MappedProfile {
        profile: profile.name.clone(),
        method: profile.method.as_str().to_owned(),
        region,
        regions,
        a: choice(Asked::A),
        aaaa: choice(Asked::Aaaa),
    }
}

/// Every region that an endpoint is in.
fn regions(model: &Model) -> BTreeSet<&str> {
    let endpoints = model.profiles().iter().flat_map(|profile| &profile.endpoints);
    endpoints.filter_map(|endpoint| endpoint.region.as_deref()).collect()
}

fn address_of(client: &Client) -> IpAddr {
    let [a, b, c, d, ..] = client.octets;
    match client.family {
        4 => Ipv4Addr::new(a, b, c, d).into(),
        _ => Ipv6Addr::from(client.octets).into(),
    }
}

fn prefix(address: IpAddr, len: u8) -> String {
    IpNet::new(address, len).map_or_else(|_| format!("{address}/{len}"), |net| net.trunc().to_string())
}

impl MappedAddress {
    /// What is known of the address, without the profiles, for people.
    pub fn facts(&self) -> impl fmt::Display + '_ {
        std::fmt::from_fn(|f| self.write_facts(f))
    }

    fn write_facts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.address)?;
        if self.client != self.address {
            write!(f, ", looked up as {}", self.client)?;
        }
        writeln!(f)?;
        write!(f, "  entry       {}", self.entry)?;
        if self.special {
            write!(f, ", for special use: a client subnet in it is not used")?;
        }
        writeln!(f)?;
        writeln!(f, "  location    {} of {}", self.location, self.locations)?;
        writeln!(f, "  codes       {}", self.codes.join(" "))?;
        match &self.coordinates {
            Some(place) => writeln!(f, "  coordinates {} {}", place.latitude, place.longitude)?,
            None => writeln!(f, "  coordinates unknown, or not asked for")?,
        }
        if self.latency_ms.is_empty() {
            writeln!(f, "  latency     not in the table")?;
        }
        for (i, (region, milliseconds)) in self.latency_ms.iter().enumerate() {
            let heading = if i == 0 { "latency" } else { "" };
            writeln!(f, "  {heading:<11} {region} {milliseconds} ms")?;
        }
        Ok(())
    }
}

impl fmt::Display for MappedAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_facts(f)?;
        if self.profiles.is_empty() {
            writeln!(f, "  no profile tells clients apart")?;
        }
        for profile in &self.profiles {
            write!(f, "  profile {} ({})", profile.profile, profile.method)?;
            match profile.region {
                Some(region) => writeln!(f, ", region {region} of {}", profile.regions)?,
                None => writeln!(f, ", too many regions for the fast path")?,
            }
            for (rtype, choice) in [("A", &profile.a), ("AAAA", &profile.aaaa)] {
                writeln!(f, "      {rtype:<5} {}: {}", choice.chose, choice.because)?;
            }
        }
        if self.profiles_left_out > 0 {
            writeln!(f, "  and {} more profiles", self.profiles_left_out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::Agent;
    use crate::config;

    const TEXT: &str = r#"
[geo]
overrides = "o.csv"
[latency]
table = "l.csv"
[[zone]]
name = "gslb.test"
soa = { mname = "ns1.example.net.", rname = "h.example.net.", serial = 1, refresh = 1, retry = 1, expire = 1, minimum = 1 }
ns = ["ns1.example.net."]
[[profile]]
name = "near"
names = ["near.gslb.test"]
method = "performance"
ttl = 30
monitor = "off"
  [[profile.endpoint]]
  name = "eu"
  address = ["192.0.2.1"]
  region = "eu"
  [[profile.endpoint]]
  name = "us"
  address = ["192.0.2.2"]
  region = "us"
[[profile]]
name = "land"
names = ["land.gslb.test"]
method = "geographic"
ttl = 30
monitor = "off"
  [[profile.endpoint]]
  name = "california"
  address = ["192.0.2.3"]
  geo = ["US-CA"]
  [[profile.endpoint]]
  name = "world"
  address = ["192.0.2.4", "2001:db8::4"]
  geo = ["WORLD"]
[[profile]]
name = "blind"
names = ["blind.gslb.test"]
method = "priority"
ttl = 30
monitor = "off"
  [[profile.endpoint]]
  name = "only"
  address = ["192.0.2.5"]
"#;

    fn agent() -> Agent {
        let files = BTreeMap::from([
            (String::from("o.csv"), b"198.51.100.0/24,US-CA\n".to_vec()),
            (String::from("l.csv"), b"198.51.0.0/16,eu,40\n198.51.0.0/16,us,7.5\n".to_vec()),
        ]);
        let loaded = config::parse(TEXT, "xroute.toml", &files).expect("valid");
        Agent::new(loaded, router_common::view::HealthView::default()).expect("compiles")
    }

    #[test]
    fn what_is_known_and_what_it_leads_to() {
        let agent = agent();
        let mapped = map_address(agent.snapshot(), "198.51.100.7".parse().expect("an address"));
        assert_eq!(mapped.codes, ["US-CA", "US", "GEO-NA", "WORLD"]);
        assert_eq!(
            mapped.latency_ms,
            BTreeMap::from([(String::from("eu"), 40.0), (String::from("us"), 7.5)])
        );
        assert_eq!(mapped.entry, "198.51.100.0/24");
        assert!(!mapped.special);
        let shown: Vec<(&str, &str, &str)> = mapped
            .profiles
            .iter()
            .map(|profile| (&*profile.profile, &*profile.a.chose, &*profile.aaaa.chose))
            .collect();
        assert_eq!(shown, [("near", "us", "NODATA"), ("land", "california", "NODATA")]);
        let beside = map_address(agent.snapshot(), "198.51.101.7".parse().expect("an address"));
        assert_ne!(beside.location, mapped.location);
        assert_ne!(beside.profiles[1].region, mapped.profiles[1].region);
        assert_eq!(beside.profiles[0].region, mapped.profiles[0].region);
        assert_eq!(beside.profiles[1].aaaa.chose, "world");
    }

    #[test]
    fn ipv4_in_ipv6_is_the_same_client() {
        let agent = agent();
        let map = |text: &str| map_address(agent.snapshot(), text.parse().expect("an address"));
        let plain = map("198.51.100.7");
        for text in ["::ffff:198.51.100.7", "64:ff9b::198.51.100.7"] {
            let folded = map(text);
            assert_eq!(folded.client, plain.client);
            assert_eq!(MappedAddress { address: plain.address, ..folded }, plain);
        }
        assert!(map("::ffff:198.51.100.7").to_string().contains("looked up as 198.51.100.7"));
        assert!(map("127.0.0.1").special);
        assert_eq!(map("127.0.0.1").entry, "127.0.0.0/8");
        assert_eq!(map("2001:db8::1").codes, ["WORLD"]);
    }
}
