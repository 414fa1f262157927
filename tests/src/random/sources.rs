//! Zones, regions, geography and latency tables.

use std::collections::BTreeMap;

use router_common::geo_regions::parse_code;
use router_common::model::{Coordinates, RrSet, Soa, Zone, rtype};
use router_common::view::{GeoFacts, Geography, Latency};

use super::{Prefixes, Rng, name};

/// Regions of performance endpoints.
pub const REGIONS: [&str; 6] = ["r0", "r1", "r2", "r3", "r4", "r5"];
/// Codes of geographic endpoints.
pub const CODES: [&str; 18] = [
    "IE", "DE", "US", "CA", "TR", "JP", "US-CA", "US-NY", "CA-AB", "AU-NSW", "GEO-EU", "GEO-NA", "GEO-ME",
    "GEO-AS", "GEO-AF", "GEO-SA", "GEO-AP", "WORLD",
];

/// Three zones, one inside another.
pub fn zones(rng: &mut Rng) -> Vec<Zone> {
    let mut outer = zone(rng, "x.test");
    for owner in ["static.x.test", "below.ent.x.test"] {
        let set = RrSet { ttl: 77, rdata: vec![vec![192, 0, 2, 200], vec![192, 0, 2, 201]] };
        outer.nodes.entry(name(owner)).or_default().insert(rtype::A, set);
    }
    vec![outer, zone(rng, "y.test"), zone(rng, "in.x.test")]
}

fn zone(rng: &mut Rng, apex: &str) -> Zone {
    let soa = Soa {
        mname: name("ns1.example.net"),
        rname: name("hostmaster.example.net"),
        serial: rng.draw() as u32,
        refresh: 3600,
        retry: 600,
        expire: 604_800,
        minimum: rng.of(&[0, 60, 86_400]),
    };
    let ttl = rng.of(&[3600, 30]);
    let ns = RrSet { ttl, rdata: vec![name("ns1.example.net").as_wire().to_vec()] };
    let node = [(rtype::SOA, RrSet { ttl, rdata: vec![soa.to_wire()] }), (rtype::NS, ns)];
    Zone { name: name(apex), soa, ttl, nodes: [(name(apex), node.into())].into() }
}

pub fn regions(rng: &mut Rng) -> BTreeMap<String, Coordinates> {
    let mut regions = BTreeMap::new();
    for region in REGIONS {
        if rng.once_in(2) {
            regions.insert(region.to_owned(), place(rng));
        }
    }
    regions
}

fn place(rng: &mut Rng) -> Coordinates {
    Coordinates { latitude: rng.below(180) as f64 - 90.0, longitude: rng.below(360) as f64 - 180.0 }
}

pub fn geography(rng: &mut Rng, prefixes: &Prefixes) -> Geography {
    let mut geography = Geography::default();
    for _ in 0..rng.below(24) {
        let country = rng.of(&["IE", "DE", "US", "US", "CA", "AU", "TR", "JP", "BR", "EG", "XX"]);
        let state = rng.of(&[*b"CA\0", *b"NY\0", *b"AB\0", *b"NSW"]);
        let facts = GeoFacts {
            country: country.as_bytes().try_into().ok().filter(|_| !rng.once_in(8)),
            state: rng.once_in(2).then_some(state),
            coordinates: rng.once_in(2).then(|| place(rng)),
        };
        geography.database.push((prefixes.pooled(rng), facts));
    }
    for _ in 0..rng.below(6) {
        let code = parse_code(rng.of(&CODES)).expect("a code");
        geography.overrides.push((prefixes.pooled(rng), code));
    }
    geography
}

pub fn latency(rng: &mut Rng, prefixes: &Prefixes) -> Latency {
    let row = |rng: &mut Rng| (prefixes.pooled(rng), rng.of(&REGIONS).to_owned(), rng.below(8) as f64 * 0.5);
    Latency { rows: (0..rng.below(30)).map(|_| row(rng)).collect() }
}
