//! The configuration as the core sees it: zones, profiles, endpoints; validated, then immutable.
//!
//! Built by the agent's `config` from text, or by tests directly; [`Model::new`] checks everything
//! that does not depend on the text. Ids are positions and hold within one model; identity across
//! reloads is by name.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use crate::lookup::Client;
use crate::name::Name;

mod probe;
mod validate;

pub use probe::{
    Authorities, Connection, HttpProbe, Monitor, ProbeDestination, ProbeMethod, ProbeTarget, Program, Source,
    StateFile, Trust, WindowRule,
};
pub use validate::{Invalid, Key, MAX_ENDPOINTS, MAX_NESTING, MAX_TTL, Place};

/// Position of a zone in [`Model::zones`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ZoneId(pub u32);

/// Position of a profile in [`Model::profiles`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProfileId(pub u32);

/// Position of an endpoint in its profile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EndpointId {
    /// The profile.
    pub profile: ProfileId,
    /// Position in [`Profile::endpoints`].
    pub index: u32,
}

/// Record types that the core names.
pub mod rtype {
    /// IPv4 address.
    pub const A: u16 = 1;
    /// Name server.
    pub const NS: u16 = 2;
    /// Alias.
    pub const CNAME: u16 = 5;
    /// Start of authority.
    pub const SOA: u16 = 6;
    /// IPv6 address.
    pub const AAAA: u16 = 28;
    /// Delegation of names (RFC 6672).
    pub const DNAME: u16 = 39;
    /// Any type (RFC 8482).
    pub const ANY: u16 = 255;
}

/// SOA record data (RFC 1035 §3.3.13).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Soa {
    /// Primary server.
    pub mname: Name,
    /// Mailbox of the one responsible.
    pub rname: Name,
    /// Serial number.
    pub serial: u32,
    /// Seconds.
    pub refresh: u32,
    /// Seconds.
    pub retry: u32,
    /// Seconds.
    pub expire: u32,
    /// Negative TTL, seconds.
    pub minimum: u32,
}

impl Soa {
    /// The record data in wire form, names uncompressed.
    pub fn to_wire(&self) -> Vec<u8> {
        let mut wire = Vec::with_capacity(64);
        wire.extend_from_slice(self.mname.as_wire());
        wire.extend_from_slice(self.rname.as_wire());
        wire.extend_from_slice(&self.numbers());
        wire
    }

    /// What follows the names in the wire form: serial number and timers.
    pub fn numbers(&self) -> [u8; 20] {
        let mut wire = [0; 20];
        let numbers = [self.serial, self.refresh, self.retry, self.expire, self.minimum];
        for (to, from) in wire.iter_mut().zip(numbers.into_iter().flat_map(u32::to_be_bytes)) {
            *to = from;
        }
        wire
    }
}

/// Records of one owner and type.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RrSet {
    /// Seconds, 0..=2³¹−1; one for the set (RFC 2181 §5.2).
    pub ttl: u32,
    /// Record data in wire form, names uncompressed.
    pub rdata: Vec<Vec<u8>>,
}

/// Static record sets of one owner name, by type.
pub type Node = BTreeMap<u16, RrSet>;

/// A zone we are authoritative for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Zone {
    /// Apex.
    pub name: Name,
    /// Its SOA.
    pub soa: Soa,
    /// TTL of SOA and of inline NS records, seconds.
    pub ttl: u32,
    /// Static records, apex SOA and NS included, in canonical order.
    pub nodes: BTreeMap<Name, Node>,
}

impl Zone {
    /// TTL of the SOA in negative answers: min(SOA TTL, MINIMUM) (RFC 2308 §3).
    pub fn negative_ttl(&self) -> u32 {
        self.ttl.min(self.soa.minimum)
    }
}

/// How a profile chooses (ROUTING.md §3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Method {
    /// First available by priority.
    Priority,
    /// At random by weight.
    Weighted,
    /// Nearest region by the latency table.
    Performance,
    /// Fastest by our own probes; those within the sensitivity share by weight.
    Fastest {
        /// `sensitivity`.
        sensitivity: Duration,
    },
    /// By region codes, narrowest first.
    Geographic,
    /// All healthy addresses, at most `max_return`.
    Multivalue {
        /// 1..=10.
        max_return: u8,
    },
    /// By client prefix.
    Subnet,
}

impl Method {
    /// The word of the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Priority => "priority",
            Self::Weighted => "weighted",
            Self::Performance | Self::Fastest { .. } => "performance",
            Self::Geographic => "geographic",
            Self::Multivalue { .. } => "multivalue",
            Self::Subnet => "subnet",
        }
    }
}

/// What a profile does when every enabled endpoint is Degraded (ROUTING.md §2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AllDown {
    /// As if every Degraded endpoint were Online.
    ServeAll,
    /// NODATA.
    Nodata,
    /// This endpoint of the profile, whatever its health.
    Fallback(u32),
}

/// Admin state of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AdminStatus {
    /// Takes part.
    #[default]
    Enabled,
    /// Takes no part at all.
    Disabled,
    /// Takes no part, but keeps its place in methods that pin clients.
    Stopped,
}

/// What an endpoint answers with; exactly one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// Addresses, at least one in all.
    Addresses {
        /// A records.
        ipv4: Vec<Ipv4Addr>,
        /// AAAA records.
        ipv6: Vec<Ipv6Addr>,
    },
    /// A CNAME.
    Domain(Name),
    /// A nested profile.
    Profile(ProfileId),
}

/// A geographic code (ROUTING.md §3), from wide to narrow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum GeoCode {
    /// Everybody.
    World,
    /// One of the eight groupings: the two letters after `GEO-`.
    Grouping([u8; 2]),
    /// ISO 3166-1 alpha-2.
    Country([u8; 2]),
    /// State or province of AU, CA, US: country and ISO 3166-2 part, padded with zero.
    State([u8; 2], [u8; 3]),
}

impl fmt::Display for GeoCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text =
            |bytes: &[u8]| -> String { bytes.iter().filter(|&&b| b != 0).map(|&b| b as char).collect() };
        match self {
            Self::World => f.write_str("WORLD"),
            Self::Grouping(code) => write!(f, "GEO-{}", text(code)),
            Self::Country(code) => f.write_str(&text(code)),
            Self::State(country, state) => write!(f, "{}-{}", text(country), text(state)),
        }
    }
}

/// An inclusive range of client addresses of one family, `first <= last`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AddressRange {
    /// First address.
    pub first: IpAddr,
    /// Last address, of the same family.
    pub last: IpAddr,
}

impl AddressRange {
    /// The IPv4 range that a range of v4-mapped or of NAT64 addresses means, as clients are folded; any
    /// other range as it is.
    pub fn meant(self) -> Self {
        let fold = |address: IpAddr| match address {
            IpAddr::V6(address) => {
                let (client, folded) = Client::ipv6(address.octets()).fold(128);
                let [a, b, c, d, ..] = client.octets;
                (folded > 0).then(|| IpAddr::from([a, b, c, d]))
            }
            IpAddr::V4(_) => None,
        };
        // Both ends in one of the two blocks: their first 96 bits are equal.
        let head = |address: IpAddr| match address {
            IpAddr::V6(address) => address.to_bits() >> 32,
            IpAddr::V4(_) => 0,
        };
        match (fold(self.first), fold(self.last)) {
            (Some(first), Some(last)) if head(self.first) == head(self.last) => Self { first, last },
            _ => self,
        }
    }
}

impl fmt::Display for AddressRange {
    /// As a prefix when it is one, else `first-last`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last, bits) = match (self.first, self.last) {
            (IpAddr::V4(first), IpAddr::V4(last)) => {
                (u128::from(u32::from(first)), u128::from(u32::from(last)), 32)
            }
            (IpAddr::V6(first), IpAddr::V6(last)) => (u128::from(first), u128::from(last), 128),
            _ => return write!(f, "{}-{}", self.first, self.last),
        };
        let differ = first ^ last;
        let host = 128 - differ.leading_zeros();
        let is_prefix = differ.checked_add(1).is_none_or(u128::is_power_of_two) && first & differ == 0;
        if is_prefix && first <= last {
            write!(f, "{}/{}", self.first, bits - host)
        } else {
            write!(f, "{}-{}", self.first, self.last)
        }
    }
}

/// Fewest children that must be up for a nested endpoint to count (ROUTING.md §2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MinChildren {
    /// Of any family; default 1.
    pub any: u32,
    /// That can answer A, when set.
    pub ipv4: Option<u32>,
    /// That can answer AAAA, when set.
    pub ipv6: Option<u32>,
}

impl Default for MinChildren {
    fn default() -> Self {
        Self { any: 1, ipv4: None, ipv6: None }
    }
}

/// One thing that a profile may answer with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    /// Unique in the profile.
    pub name: String,
    /// What it answers with.
    pub target: Target,
    /// Admin state.
    pub status: AdminStatus,
    /// Bypass the monitor.
    pub always_serve: bool,
    /// 1..=1000, unique in the profile; filled in from the order when none is set.
    pub priority: u16,
    /// 1..=1000.
    pub weight: u16,
    /// `performance`: its region's name.
    pub region: Option<String>,
    /// `geographic`: its codes.
    pub geo: Vec<GeoCode>,
    /// `subnet`, and overrides.
    pub subnets: Vec<AddressRange>,
    /// Percent, 0..=100.
    pub dial: u8,
    /// For nested profiles.
    pub min_children: MinChildren,
    /// `None`: not monitored (switched off, or nested).
    pub monitor: Option<Monitor>,
}

/// A named routing decision.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// Unique.
    pub name: String,
    /// Owner names bound to it, exact or wildcard.
    pub names: Vec<Name>,
    /// How it chooses.
    pub method: Method,
    /// Seconds, 0..=2³¹−1.
    pub ttl: u32,
    /// Whether it is enabled.
    pub enabled: bool,
    /// Whether the EDNS Client Subnet option is used.
    pub ecs: bool,
    /// When all are down.
    pub all_down: AllDown,
    /// In file order, which breaks ties.
    pub endpoints: Vec<Endpoint>,
}

/// Place of a performance region.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Coordinates {
    /// Degrees, −90..=90.
    pub latitude: f64,
    /// Degrees, −180..=180.
    pub longitude: f64,
}

/// What [`Model::new`] is built from.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Parts {
    /// Zones.
    pub zones: Vec<Zone>,
    /// Profiles.
    pub profiles: Vec<Profile>,
    /// `latency.regions`.
    pub regions: BTreeMap<String, Coordinates>,
}

/// What exists at an owner name because of profiles (static records are in [`Zone::nodes`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The zone the name is in.
    pub zone: ZoneId,
    /// The profile bound to exactly this name (a wildcard is bound at its own name `*.…`); `None`
    /// where only names below exist.
    pub profile: Option<ProfileId>,
}

/// A validated configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct Model {
    parts: Parts,
    zone_by_name: HashMap<Name, ZoneId>,
    bindings: HashMap<Name, Binding>,
    parents: Vec<Vec<EndpointId>>,
}

impl Model {
    /// Checks the parts and builds the indices. All faults are returned, not only the first.
    pub fn new(parts: Parts) -> Result<Self, Vec<Invalid>> {
        validate::validate(&parts)?;
        let zone_by_name: HashMap<Name, ZoneId> =
            parts.zones.iter().enumerate().map(|(i, zone)| (zone.name.clone(), ZoneId(i as u32))).collect();
        let mut bindings: HashMap<Name, Binding> = HashMap::new();
        let zone_of = |name: &Name| {
            let mut at = Some(name.clone());
            while let Some(candidate) = at {
                if let Some(&zone) = zone_by_name.get(&candidate) {
                    return Some(zone);
                }
                at = candidate.parent();
            }
            None
        };
        for (i, profile) in parts.profiles.iter().enumerate() {
            // A disabled profile's names do not exist (ROUTING.md §2: NXDOMAIN).
            for name in profile.names.iter().filter(|_| profile.enabled) {
                let Some(zone) = zone_of(name) else { continue };
                bindings.entry(name.clone()).or_insert(Binding { zone, profile: None }).profile =
                    Some(ProfileId(i as u32));
                let mut at = name.parent();
                while let Some(above) = at.filter(|above| above.is_within(&parts.zones[zone.0 as usize].name))
                {
                    bindings.entry(above.clone()).or_insert(Binding { zone, profile: None });
                    at = above.parent();
                }
            }
        }
        let mut parents = vec![Vec::new(); parts.profiles.len()];
        for (i, profile) in parts.profiles.iter().enumerate() {
            for (j, endpoint) in profile.endpoints.iter().enumerate() {
                if let Target::Profile(child) = endpoint.target {
                    parents[child.0 as usize]
                        .push(EndpointId { profile: ProfileId(i as u32), index: j as u32 });
                }
            }
        }
        Ok(Self { parts, zone_by_name, bindings, parents })
    }

    /// What it was built from.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// All zones, in file order.
    pub fn zones(&self) -> &[Zone] {
        &self.parts.zones
    }

    /// All profiles, in file order.
    pub fn profiles(&self) -> &[Profile] {
        &self.parts.profiles
    }

    /// One zone.
    pub fn zone(&self, id: ZoneId) -> &Zone {
        &self.parts.zones[id.0 as usize]
    }

    /// One profile.
    pub fn profile(&self, id: ProfileId) -> &Profile {
        &self.parts.profiles[id.0 as usize]
    }

    /// One endpoint.
    pub fn endpoint(&self, id: EndpointId) -> &Endpoint {
        &self.profile(id.profile).endpoints[id.index as usize]
    }

    /// The profile of this name.
    pub fn profile_named(&self, name: &str) -> Option<ProfileId> {
        self.parts.profiles.iter().position(|profile| profile.name == name).map(|i| ProfileId(i as u32))
    }

    /// The zone whose apex is exactly this name.
    pub fn zone_at(&self, name: &Name) -> Option<ZoneId> {
        self.zone_by_name.get(name).copied()
    }

    /// Owner names that exist because of enabled profiles, empty non-terminals above them included.
    pub fn bindings(&self) -> &HashMap<Name, Binding> {
        &self.bindings
    }

    /// Endpoints that nest this profile.
    pub fn parents(&self, profile: ProfileId) -> &[EndpointId] {
        &self.parents[profile.0 as usize]
    }

    /// `latency.regions`.
    pub fn regions(&self) -> &BTreeMap<String, Coordinates> {
        &self.parts.regions
    }

    /// `profile/endpoint`, as people write it.
    pub fn endpoint_path(&self, id: EndpointId) -> String {
        format!("{}/{}", self.profile(id.profile).name, self.endpoint(id).name)
    }
}
