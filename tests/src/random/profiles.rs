//! Profiles of all methods, nested in one another.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use router_common::geo_regions::parse_code;
use router_common::model::{
    AddressRange, AdminStatus, AllDown, Connection, Endpoint, MAX_NESTING, MAX_TTL, Method, MinChildren,
    Monitor, ProbeDestination, ProbeTarget, Profile, ProfileId, Source, Target, WindowRule,
};

use super::sources::{CODES, REGIONS};
use super::{Prefixes, Rng, name};

/// Nested levels of most worlds.
const USUAL_NESTING: usize = 4;

/// What a profile needs to know of those it can nest.
struct Below {
    /// Nested endpoints on the longest way down.
    depth: usize,
    endpoints: usize,
    /// No domain name anywhere below.
    addresses_only: bool,
}

/// Profiles in file order; one nests later ones only.
pub fn profiles(rng: &mut Rng, prefixes: &Prefixes) -> Vec<Profile> {
    // A few worlds are one long chain.
    let chain = rng.once_in(24);
    let count = if chain { MAX_NESTING + 1 } else { 2 + rng.below(10) };
    let mut below: Vec<Option<Below>> = (0..count).map(|_| None).collect();
    let mut profiles: Vec<Profile> = Vec::new();
    for at in (0..count).rev() {
        let made = Maker { rng, prefixes, below: &below, at, count, chain }.profile();
        let children = || {
            made.endpoints.iter().filter_map(|endpoint| match endpoint.target {
                Target::Profile(child) => below[child.0 as usize].as_ref(),
                _ => None,
            })
        };
        let domain = |endpoint: &Endpoint| matches!(endpoint.target, Target::Domain(_));
        let new = Below {
            depth: children().map(|child| child.depth + 1).max().unwrap_or(0),
            endpoints: made.endpoints.len(),
            addresses_only: !made.endpoints.iter().any(domain)
                && children().all(|child| child.addresses_only),
        };
        below[at] = Some(new);
        profiles.push(made);
    }
    profiles.reverse();
    bind(rng, &mut profiles, &below);
    profiles
}

/// Binds names: plain, long, wildcard, in other zones, at an apex where nothing is an alias.
fn bind(rng: &mut Rng, profiles: &mut [Profile], below: &[Option<Below>]) {
    for (at, profile) in profiles.iter_mut().enumerate() {
        if at == 0 || !rng.once_in(3) {
            profile.names.push(name(&format!("p{at}.x.test")));
        }
        match rng.below(10) {
            0 => profile.names.push(name(&format!("p{at}.y.test"))),
            1 => profile.names.push(name(&format!("p{at}.in.x.test"))),
            2 => {
                let label = "a-label-that-is-as-long-as-it-may-be-0123456789-abcdefghijklmno";
                let labels = vec![label; 1 + rng.below(3)].join(".");
                profile.names.push(name(&format!("p{at}.{labels}.x.test")));
            }
            3 => profile.names.push(name(&format!("p{at}.sub.w.x.test"))),
            _ => {}
        }
    }
    let some = rng.below(profiles.len());
    profiles[some].names.push(name("*.w.x.test"));
    let some = rng.below(profiles.len());
    profiles[some].names.push(name("*.y.test"));
    let may = |at: &usize| below[*at].as_ref().is_some_and(|below| below.addresses_only);
    if let Some(at) = (0..profiles.len()).find(may) {
        profiles[at].names.push(name("x.test"));
    }
}

/// Makes one profile.
struct Maker<'a> {
    rng: &'a mut Rng,
    prefixes: &'a Prefixes,
    below: &'a [Option<Below>],
    at: usize,
    count: usize,
    chain: bool,
}

impl Maker<'_> {
    fn profile(mut self) -> Profile {
        let method = self.method();
        let endpoints = self.endpoints(method);
        let rng = self.rng;
        Profile {
            name: format!("p{}", self.at),
            names: Vec::new(),
            method,
            ttl: rng.of(&[30, 30, 5, 300, 0, MAX_TTL]),
            enabled: self.at == 0 || !rng.once_in(16),
            ecs: !rng.once_in(8),
            all_down: match rng.below(5) {
                2 => AllDown::Nodata,
                3 | 4 => AllDown::Fallback(rng.below(endpoints.len()) as u32),
                _ => AllDown::ServeAll,
            },
            endpoints,
        }
    }

    fn method(&mut self) -> Method {
        let rng = &mut *self.rng;
        loop {
            let method = match rng.below(9) {
                0 => Method::Priority,
                1 | 2 => Method::Weighted,
                3 | 4 => Method::Performance,
                5 => Method::Fastest { sensitivity: Duration::from_millis(rng.below(4) as u64 * 10) },
                6 => Method::Geographic,
                7 => Method::Multivalue { max_return: 1 + rng.below(10) as u8 },
                _ => Method::Subnet,
            };
            // A chain goes on.
            let ends = matches!(method, Method::Multivalue { .. });
            if !(ends && self.chain && self.at + 1 < self.count) {
                return method;
            }
        }
    }

    fn endpoints(&mut self, method: Method) -> Vec<Endpoint> {
        let dialled = self.rng.once_in(3);
        // Few make even shares inside a region common.
        let regions = self.rng.of(&[1, 2, 4]);
        let mut codes: Vec<&str> = CODES.into();
        let mut priorities: Vec<u16> = (1..=1000).step_by(83).collect();
        let mut taken: Vec<AddressRange> = Vec::new();
        let mut has_rest = false;
        let count = if self.chain { 2 + self.rng.below(2) } else { 1 + self.rng.below(6) };
        let mut endpoints = Vec::new();
        for (index, region) in REGIONS.iter().cycle().enumerate().take(count) {
            let target = self.target(method, index);
            let mut made = self.plain(index, target);
            made.priority = priorities.remove(self.rng.below(priorities.len()));
            let rng = &mut *self.rng;
            match method {
                Method::Weighted => made.weight = rng.of(&[1, 1, 2, 3, 7, 100, 999, 1000]),
                Method::Fastest { .. } => {
                    made.weight = rng.of(&[1, 1, 2, 1000]);
                    made.dial = if dialled { rng.of(&[100, 50, 0, 33, 1]) } else { 100 };
                }
                Method::Performance if dialled => {
                    made.region = Some((*region).to_owned());
                    made.dial = rng.of(&[100, 50, 0, 33, 99]);
                }
                Method::Performance => made.region = Some(rng.of(&REGIONS[..regions]).to_owned()),
                Method::Priority if dialled => made.dial = rng.of(&[100, 50, 0, 33, 1]),
                Method::Geographic => {
                    for _ in 0..1 + rng.below(2) {
                        let code = codes.remove(rng.below(codes.len()));
                        made.geo.push(parse_code(code).expect("a code"));
                    }
                }
                _ => {}
            }
            let overrides =
                matches!(method, Method::Performance | Method::Geographic | Method::Fastest { .. });
            if overrides && self.rng.once_in(3)
                || method == Method::Subnet && (has_rest || !self.rng.once_in(4))
            {
                self.subnets(&mut made, &mut taken);
            }
            if method == Method::Subnet && made.subnets.is_empty() {
                if has_rest {
                    continue;
                }
                has_rest = true;
            }
            endpoints.push(made);
        }
        endpoints
    }

    fn subnets(&mut self, made: &mut Endpoint, taken: &mut Vec<AddressRange>) {
        for _ in 0..1 + self.rng.below(3) {
            let range = self.prefixes.range(self.rng);
            if !taken.iter().any(|other| overlap(other, &range.meant())) {
                taken.push(range.meant());
                made.subnets.push(range);
            }
        }
    }

    fn target(&mut self, method: Method, index: usize) -> Target {
        if !matches!(method, Method::Multivalue { .. }) {
            let most = if self.chain { MAX_NESTING } else { USUAL_NESTING };
            let fits = |at: &usize| self.below[*at].as_ref().is_some_and(|below| below.depth < most);
            if self.chain && index == 0 && self.at + 1 < self.count {
                return Target::Profile(ProfileId(self.at as u32 + 1));
            }
            let nestable: Vec<usize> = (self.at + 1..self.count).filter(fits).collect();
            if !nestable.is_empty() && self.rng.once_in(if self.chain { 8 } else { 2 }) {
                return Target::Profile(ProfileId(self.rng.of(&nestable) as u32));
            }
            if self.rng.once_in(6) {
                return Target::Domain(name(&format!("t{}.example.net", self.rng.below(3))));
            }
        }
        let (four, six) = if self.rng.once_in(200) {
            (30, 30)
        } else {
            self.rng.of(&[(1, 0), (1, 0), (1, 1), (1, 1), (2, 1), (3, 2), (0, 1), (12, 9)])
        };
        let from = self.rng.below(8) as u8;
        Target::Addresses {
            ipv4: (0..four).map(|at| Ipv4Addr::new(192, 0, 2, from + at)).collect(),
            ipv6: (0..six)
                .map(|at| Ipv6Addr::new(0x2001, 0xdb8, 0xf, 0, 0, 0, 0, u16::from(from + at)))
                .collect(),
        }
    }

    fn plain(&mut self, index: usize, target: Target) -> Endpoint {
        let rng = &mut *self.rng;
        let nested = match target {
            Target::Profile(child) => self.below[child.0 as usize].as_ref().map(|below| below.endpoints),
            _ => None,
        };
        let min_children = match nested {
            None => MinChildren::default(),
            Some(most) => MinChildren {
                any: if rng.once_in(3) { 1 + rng.below(most) as u32 } else { 1 },
                ipv4: rng.once_in(6).then(|| 1 + rng.below(most) as u32),
                ipv6: rng.once_in(6).then(|| 1 + rng.below(most) as u32),
            },
        };
        Endpoint {
            name: format!("e{index}"),
            status: match rng.below(12) {
                10 => AdminStatus::Disabled,
                11 => AdminStatus::Stopped,
                _ => AdminStatus::Enabled,
            },
            always_serve: rng.once_in(12),
            priority: 1,
            weight: 1,
            region: None,
            geo: Vec::new(),
            subnets: Vec::new(),
            dial: 100,
            min_children,
            monitor: (nested.is_none() && !rng.once_in(8)).then(monitor),
            target,
        }
    }
}

fn monitor() -> Monitor {
    Monitor {
        target: ProbeTarget::Tcp(Connection {
            destination: ProbeDestination::Domain(name("probe.example.net")),
            port: 80,
            source: Source::default(),
        }),
        expected_status: vec![(200, 200)],
        interval: Duration::from_secs(30),
        timeout: Duration::from_secs(10),
        window: WindowRule::Samples { size: 4, successful: 2 },
        hold: Duration::ZERO,
    }
}

fn overlap(a: &AddressRange, b: &AddressRange) -> bool {
    a.first.is_ipv4() == b.first.is_ipv4() && a.first <= b.last && b.first <= a.last
}
