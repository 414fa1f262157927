//! A configuration of any size to put queries to: as many names as wanted, of all methods, over as many prefixes as
//! wanted, compiled by the product's own compiler.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use router_common::abi::Interface;
use router_common::atlas::Atlas;
use router_common::compile::compile;
use router_common::decide::Snapshot;
use router_common::model::{
    AddressRange, AdminStatus, AllDown, Endpoint, GeoCode, Method, MinChildren, Model, Parts, Profile,
    Target, Zone,
};
use router_common::name::Name;
use router_common::tables::{Frontage, Tables};
use router_common::view::{Geography, HealthView, Latency};
use router_userspace::config;
use router_userspace::datapath::{Capacity, Datapath};

use crate::kernel::{SERVICE4, SERVICE6};
use crate::random::Rng;

/// What a name answers with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Addresses of both families by the client's country.
    Geographic,
    /// The same under a name of 200 octets.
    Long,
    /// IPv4 addresses by the client's country: NODATA for AAAA.
    Ipv4Only,
    /// An alias by the client's country.
    Alias,
    /// One address for everybody.
    Plain,
    /// One of eight by weight.
    Weighted,
    /// Eight at once.
    Multivalue,
    /// By the client's prefix.
    Subnet,
    /// By the client's latency to regions.
    Performance,
}

/// Which profiles there are: one in twenty for each mention.
const MIX: [Kind; 20] = {
    use Kind::{Alias, Geographic, Ipv4Only, Long, Multivalue, Performance, Plain, Subnet, Weighted};
    [
        Geographic,
        Long,
        Geographic,
        Ipv4Only,
        Geographic,
        Alias,
        Geographic,
        Plain,
        Geographic,
        Weighted,
        Geographic,
        Multivalue,
        Geographic,
        Subnet,
        Geographic,
        Performance,
        Geographic,
        Plain,
        Geographic,
        Long,
    ]
};
/// Each kind once.
const ONE_EACH: [Kind; 9] = {
    use Kind::{Alias, Geographic, Ipv4Only, Long, Multivalue, Performance, Plain, Subnet, Weighted};
    [Geographic, Long, Ipv4Only, Alias, Plain, Weighted, Multivalue, Subnet, Performance]
};
/// Names of a profile.
const NAMES: usize = 10;
const ZONE: &str = "gslb.example.com";
/// Words that first labels begin with: a name is as long as names are.
const WORDS: [&str; 16] = [
    "www", "api", "cdn", "img", "static", "login", "m", "mail", "edge", "video", "shop", "auth-eu", "ws",
    "assets", "download", "db",
];
const COUNTRIES: [&str; 30] = [
    "DE", "FR", "GB", "IE", "ES", "IT", "PL", "NL", "SE", "NO", "US", "CA", "MX", "BR", "AR", "CL", "CO",
    "JP", "KR", "CN", "IN", "ID", "AU", "NZ", "ZA", "EG", "NG", "KE", "TR", "SA",
];
/// Divisions of the world among geographic profiles that differ.
const DIVISIONS: usize = 60;
const REGIONS: usize = 8;
/// First octets that nobody routes on the internet, or not all of; no prefix is made up in them.
const RESERVED: [u8; 9] = [0, 10, 100, 127, 169, 172, 192, 198, 203];

/// How large a world is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Names, at least one of each kind.
    pub names: usize,
    /// Prefixes of countries, as many of IPv4 as of IPv6.
    pub prefixes: usize,
}

/// A compiled world.
pub struct World {
    /// What is asked of the oracle.
    pub snapshot: Snapshot,
    /// What the kernel gets.
    pub tables: Tables,
    /// Names by kind, none of which is empty.
    pub names: BTreeMap<Kind, Vec<Name>>,
    /// Prefixes that clients are in: IPv4, IPv6.
    pub clients: [Vec<IpNet>; 2],
}

/// Where queries come in: a test run does on `lo`, which is interface 1.
pub const PORT: Interface = Interface { index: 1, mac: [2, 0, 0, 0, 0, 1], pad: [0; 2] };
/// A VLAN that queries come in on.
pub const VLAN: u16 = 7;

impl World {
    /// Of made-up prefixes.
    ///
    /// # Errors
    /// When it does not compile.
    pub fn new(size: Size) -> Result<Self> {
        let mut rng = Rng::new(1);
        let nets: Vec<IpNet> = ipv4(size.prefixes, &mut rng).chain(ipv6(size.prefixes)).collect();
        // Neighbours are of different countries, so that none are merged.
        let mut last = 0;
        let countries = nets.into_iter().map(|net| {
            last = (last + 1 + rng.below(COUNTRIES.len() - 1)) % COUNTRIES.len();
            (net, country(COUNTRIES[last]))
        });
        Self::over(size.names, countries.collect())
    }

    /// Of these prefixes of countries.
    ///
    /// # Errors
    /// When it does not compile.
    pub fn over(names: usize, countries: Vec<(IpNet, GeoCode)>) -> Result<Self> {
        let of_family = |ipv4| -> Vec<IpNet> {
            let nets = countries.iter().map(|&(net, _)| net);
            nets.filter(|net| net.addr().is_ipv4() == ipv4).collect()
        };
        let clients = [of_family(true), of_family(false)];
        let (latency, sets) = (latency(&clients), subnets(&clients[0]));
        let mut rng = Rng::new(2);
        let kinds: Vec<Kind> = if names < ONE_EACH.len() * NAMES {
            ONE_EACH.to_vec()
        } else {
            (0..names.div_ceil(NAMES)).map(|at| MIX[at % MIX.len()]).collect()
        };
        let each = if kinds.len() == ONE_EACH.len() { names.div_ceil(ONE_EACH.len()) } else { NAMES };
        let mut by_kind: BTreeMap<Kind, Vec<Name>> = BTreeMap::new();
        let mut profiles = Vec::with_capacity(kinds.len());
        for (at, kind) in kinds.into_iter().enumerate() {
            let names = (0..each).map(|number| name(kind, at, number)).collect::<Result<Vec<_>>>()?;
            by_kind.entry(kind).or_default().extend(names.iter().cloned());
            profiles.push(profile(kind, at, names, &sets, &mut rng)?);
        }
        let parts = Parts { zones: vec![zone()?], profiles, regions: BTreeMap::new() };
        let model = Model::new(parts).map_err(|faults| anyhow!("{faults:?}"))?;
        let geography = Geography { overrides: countries, ..Geography::default() };
        let atlas = Atlas::build(&model, &geography, &latency);
        let health = Arc::new(HealthView::default());
        let snapshot = Snapshot { model: Arc::new(model), atlas: Arc::new(atlas), health };
        let frontage = Frontage {
            addresses: vec![SERVICE4.into(), SERVICE6.into()],
            vlans: vec![VLAN],
            interfaces: vec![PORT],
            edns_size: 1232,
            ..Frontage::default()
        };
        let mut seeds = Rng::new(3);
        let tables = compile(&snapshot, &frontage, || [seeds.draw(), seeds.draw()], 1)?.tables;
        Ok(Self { snapshot, tables, names: by_kind, clients })
    }

    /// The tables in maps of the kernel, with the head-room that an operator gets.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn datapath(&self) -> Result<Datapath> {
        let datapath = Datapath::unattached(&self.tables, &Capacity::for_tables(&self.tables), &[PORT])?;
        datapath.renew_lease(Duration::from_secs(86_400));
        Ok(datapath)
    }

    /// Somebody in one of the prefixes, each as likely as the other.
    pub fn client(&self, ipv6: bool, rng: &mut Rng) -> IpAddr {
        let nets = &self.clients[usize::from(ipv6)];
        match nets[rng.below(nets.len())] {
            IpNet::V4(net) => {
                let host = rng.draw() as u32 & u32::from(net.hostmask());
                IpAddr::V4(Ipv4Addr::from_bits(u32::from(net.network()) | host))
            }
            IpNet::V6(net) => {
                let host = u128::from(rng.draw()) & u128::from(net.hostmask());
                IpAddr::V6(Ipv6Addr::from_bits(u128::from(net.network()) | host))
            }
        }
    }
}

/// Prefixes of 256 to 4,096 addresses, most of them of 256, as far apart as they are few.
fn ipv4(count: usize, rng: &mut Rng) -> impl Iterator<Item = IpNet> {
    let firsts: Vec<u32> = (1..224u8).filter(|first| !RESERVED.contains(first)).map(u32::from).collect();
    // In /24s.
    let stride = firsts.len() * 0x1_0000 / count;
    let mut rng = rng.clone();
    (0..count).map(move |at| {
        // Aligned, it stays within its stride.
        let widest = (stride.div_ceil(2)).ilog2().min(4) as usize;
        let width = if rng.once_in(2) { rng.below(widest + 1) } else { 0 };
        let slot = (at * stride).next_multiple_of(1 << width);
        let number = firsts[slot >> 16] << 24 | (slot as u32 & 0xffff) << 8;
        IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::from_bits(number), 24 - width as u8))
    })
}

/// Prefixes of /36 to /48, sixteen in each of as many /32 as that takes.
fn ipv6(count: usize) -> impl Iterator<Item = IpNet> {
    const FIRST: u128 = 0x2400_0000;
    const BLOCKS: usize = 0x0800_0000;
    let stride = BLOCKS / count.div_ceil(16);
    (0..count).map(move |at| {
        let block = FIRST + (at / 16 * stride) as u128;
        let number = block << 96 | ((at % 16) as u128) << 92;
        IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::from_bits(number), [48, 48, 40, 36][at % 4]))
    })
}

/// Rows that give every tenth prefix a latency to each region, 20,000 prefixes at most.
fn latency(clients: &[Vec<IpNet>; 2]) -> Latency {
    let mut rng = Rng::new(4);
    let mut rows = Vec::new();
    for net in clients[0].iter().step_by(10.max(clients[0].len() / 20_000)) {
        let near = rng.below(REGIONS);
        for region in 0..REGIONS {
            let far = (region + REGIONS - near) % REGIONS;
            rows.push((*net, format!("r{region}"), (10 + 20 * far) as f64));
        }
    }
    Latency { rows }
}

/// Sets of four prefixes of clients, for subnet profiles.
fn subnets(clients: &[IpNet]) -> Vec<Vec<AddressRange>> {
    let count = (clients.len() / 20).clamp(1, 200);
    let step = (clients.len() / (count * 4)).max(1);
    let ranges: Vec<AddressRange> = clients
        .iter()
        .step_by(step)
        .map(|net| AddressRange { first: net.network(), last: net.broadcast() })
        .collect();
    ranges.chunks(4).take(count).map(<[_]>::to_vec).collect()
}

fn country(code: &str) -> GeoCode {
    let octets = code.as_bytes();
    GeoCode::Country([octets[0], octets[1]])
}

fn name(kind: Kind, profile: usize, number: usize) -> Result<Name> {
    let word = WORDS[(profile * 7 + number * 3) % WORDS.len()];
    let first = format!("{word}{number}.site{profile}");
    let text = match kind {
        // 200 octets in wire form: the dots count for the lengths, and the root and the first length are two more.
        Kind::Long => {
            let room = 198 - first.len() - 1 - ZONE.len() - 1;
            // One label of up to 63 octets after the other.
            let filler: String = (0..room).map(|at| if at % 48 == 47 { '.' } else { 'x' }).collect();
            let filler = filler.strip_suffix('.').map_or(filler.clone(), |short| format!("{short}x"));
            format!("{first}.{filler}.{ZONE}")
        }
        _ => format!("{first}.{ZONE}"),
    };
    text.parse().map_err(|error| anyhow!("{text}: {error:?}"))
}

/// As the configuration reads one.
fn zone() -> Result<Zone> {
    let text = format!(
        r#"
[[zone]]
name = "{ZONE}"
soa = {{ mname = "ns1.{ZONE}.", rname = "hostmaster.example.com.", serial = 1, refresh = 3600, retry = 600, expire = 604800, minimum = 60 }}
ns = ["ns1.{ZONE}."]
ttl = 3600
"#
    );
    let config =
        config::parse(&text, "bench.toml", &BTreeMap::new()).map_err(|errors| anyhow!("{errors}"))?;
    config.model.zones().first().cloned().context("no zone")
}

fn profile(
    kind: Kind,
    at: usize,
    names: Vec<Name>,
    sets: &[Vec<AddressRange>],
    rng: &mut Rng,
) -> Result<Profile> {
    let count = match kind {
        Kind::Plain => 1,
        Kind::Weighted | Kind::Multivalue => 8,
        Kind::Subnet => 2,
        _ => 3,
    };
    let mut endpoints: Vec<Endpoint> = (0..count).map(|number| endpoint(at, number)).collect();
    let method = match kind {
        Kind::Geographic | Kind::Long | Kind::Ipv4Only | Kind::Alias => {
            let division = rng.below(DIVISIONS);
            let [one, other] = [division % COUNTRIES.len(), (division * 7 + 13) % COUNTRIES.len()];
            let other = if one == other { (other + 1) % COUNTRIES.len() } else { other };
            endpoints[0].geo = vec![GeoCode::Grouping(*b"EU"), GeoCode::Grouping(*b"ME")];
            endpoints[1].geo = vec![country(COUNTRIES[one]), country(COUNTRIES[other])];
            endpoints[2].geo = vec![GeoCode::World];
            Method::Geographic
        }
        Kind::Plain => Method::Priority,
        Kind::Weighted => {
            endpoints.iter_mut().for_each(|endpoint| endpoint.weight = 1 + rng.below(10) as u16);
            Method::Weighted
        }
        Kind::Multivalue => Method::Multivalue { max_return: 8 },
        Kind::Subnet => {
            endpoints[0].subnets.clone_from(&sets[rng.below(sets.len())]);
            Method::Subnet
        }
        Kind::Performance => {
            let first = rng.below(REGIONS);
            for (step, endpoint) in endpoints.iter_mut().enumerate() {
                endpoint.region = Some(format!("r{}", (first + step * 3) % REGIONS));
            }
            Method::Performance
        }
    };
    for (number, endpoint) in endpoints.iter_mut().enumerate() {
        match (kind, &mut endpoint.target) {
            (Kind::Ipv4Only, Target::Addresses { ipv6, .. }) => ipv6.clear(),
            (Kind::Alias, target) => {
                let text = format!("edge{number}.site{at}.cdn.example.net");
                *target = Target::Domain(text.parse().ok().with_context(|| format!("{text} is no name"))?);
            }
            _ => {}
        }
    }
    Ok(Profile {
        name: format!("p{at}"),
        names,
        method,
        ttl: 30,
        enabled: true,
        ecs: true,
        all_down: AllDown::ServeAll,
        endpoints,
    })
}

/// With addresses that no other profile has.
fn endpoint(profile: usize, number: usize) -> Endpoint {
    let own = (profile * 8 + number) as u32;
    Endpoint {
        name: format!("e{number}"),
        target: Target::Addresses {
            ipv4: vec![Ipv4Addr::from_bits(0x2c00_0000 + own)],
            ipv6: vec![Ipv6Addr::from_bits(0x2001_0db8 << 96 | u128::from(own))],
        },
        status: AdminStatus::Enabled,
        always_serve: false,
        priority: number as u16 + 1,
        weight: 1,
        region: None,
        geo: Vec::new(),
        subnets: Vec::new(),
        dial: 100,
        min_children: MinChildren::default(),
        monitor: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_as_many_as_wanted_and_do_not_touch() {
        for count in [1000, 50_000, 2_000_000] {
            let mut rng = Rng::new(1);
            let nets: Vec<IpNet> = ipv4(count, &mut rng).chain(ipv6(count)).collect();
            assert_eq!(nets.len(), 2 * count);
            for pair in nets.windows(2) {
                assert_eq!(pair[0].trunc(), pair[0]);
                assert!(
                    pair[0].addr().is_ipv4() != pair[1].addr().is_ipv4()
                        || pair[0].broadcast() < pair[1].network()
                );
            }
        }
    }

    #[test]
    fn a_long_name_has_200_octets() -> Result<()> {
        for profile in [0, 7, 12, 345, 99_999] {
            for number in 0..NAMES {
                assert_eq!(name(Kind::Long, profile, number)?.as_wire().len(), 200);
            }
        }
        Ok(())
    }
}
