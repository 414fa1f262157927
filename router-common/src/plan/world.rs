//! One side of a comparison: what it decides, and what its answers are called.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use super::distance::each;
use super::names::Side;
use crate::atlas::Partition;
use crate::decide::{Asked, Choice, Credits, Oracle, Records, Snapshot};
use crate::model::{Method, Node, ProfileId, Target, rtype};
use crate::name::Name;
use crate::share::Share;

/// What a NODATA share is called among endpoints.
pub(super) const NODATA: &str = "NODATA";
/// What static records are called among endpoints and profiles.
pub(super) const RECORDS: &str = "records";

/// See the module.
pub(super) struct World<'s> {
    snapshot: &'s Snapshot,
    oracle: Oracle<'s>,
    /// Whose an address is, by profile and address, where records are put together from several endpoints.
    owners: HashMap<(ProfileId, IpAddr), String>,
}

/// The region of a location.
pub(super) fn region(partition: &Partition, location: u32) -> u32 {
    match partition {
        Partition::Trivial => 0,
        Partition::TooMany => location,
        Partition::Regions { of, .. } => of.get(location as usize).copied().unwrap_or(0).into(),
    }
}

impl<'s> World<'s> {
    pub fn new(snapshot: &'s Snapshot) -> Self {
        let mut owners = HashMap::new();
        for (id, profile) in (0..).map(ProfileId).zip(snapshot.model.profiles()) {
            if !matches!(profile.method, Method::Multivalue { .. }) {
                continue;
            }
            for endpoint in &profile.endpoints {
                let Target::Addresses { ipv4, ipv6 } = &endpoint.target else { continue };
                let all =
                    ipv4.iter().copied().map(IpAddr::from).chain(ipv6.iter().copied().map(IpAddr::from));
                for address in all {
                    owners
                        .entry((id, address))
                        .or_insert_with(|| format!("{}/{}", profile.name, endpoint.name));
                }
            }
        }
        Self { snapshot, oracle: Oracle::new(snapshot), owners }
    }

    pub fn partition(&self, side: Side<'_>) -> Partition {
        match side {
            Side::Profile(profile) => self.snapshot.atlas.partition(profile),
            Side::Records(_) => Partition::Trivial,
        }
    }

    /// What this side answers from, by name.
    pub fn name(&self, side: Side<'_>) -> String {
        match side {
            Side::Profile(profile) => self.snapshot.model.profile(profile).name.clone(),
            Side::Records(_) => String::from(RECORDS),
        }
    }

    pub fn choose(&self, side: Side<'_>, asked: Asked, location: u32) -> Choice {
        match side {
            Side::Profile(profile) => {
                self.oracle.choose(profile, asked, self.snapshot.atlas.location(location))
            }
            Side::Records(node) => recorded(node, asked),
        }
    }

    /// The endpoints that a choice answers with, by path, and their shares; largest share first.
    pub fn endpoints(&self, side: Side<'_>, choice: &Choice) -> Vec<(String, Share)> {
        let mut shares: BTreeMap<String, Share> = BTreeMap::new();
        let mut add = |path: String, share: &Share| {
            let sum = shares.entry(path).or_insert_with(Share::zero);
            *sum = sum.add(share);
        };
        each(choice, &Share::one(), &[], &mut |choice, share| match choice {
            Choice::Answer { endpoint: Some(id), .. } => add(self.snapshot.model.endpoint_path(*id), share),
            Choice::Answer { endpoint: None, records, .. } => {
                let addresses: Vec<IpAddr> = match records {
                    Records::A(list) => list.iter().copied().map(IpAddr::from).collect(),
                    Records::Aaaa(list) => list.iter().copied().map(IpAddr::from).collect(),
                    Records::Cname(_) => Vec::new(),
                };
                let part = share.mul(&Share::ratio(1, addresses.len() as u64));
                for address in &addresses {
                    add(self.owner(side, *address), &part);
                }
                if addresses.is_empty() {
                    add(String::from(RECORDS), share);
                }
            }
            _ => add(String::from(NODATA), share),
        });
        let mut shares: Vec<(String, Share)> = shares.into_iter().collect();
        shares.sort_by(|(_, one), (_, other)| other.cmp(one));
        shares
    }

    /// The records that a choice answers with, and their shares; largest share first.
    pub fn records(&self, choice: &Choice) -> String {
        let mut shares: BTreeMap<String, Share> = BTreeMap::new();
        each(choice, &Share::one(), &[], &mut |choice, share| {
            let join = |list: Vec<String>| list.join("+");
            let shown = match choice {
                Choice::Answer { records, .. } => match records.sorted() {
                    Records::A(list) => join(list.iter().map(ToString::to_string).collect()),
                    Records::Aaaa(list) => join(list.iter().map(ToString::to_string).collect()),
                    Records::Cname(name) => name.to_string(),
                },
                _ => String::from(NODATA),
            };
            let sum = shares.entry(shown).or_insert_with(Share::zero);
            *sum = sum.add(share);
        });
        let mut shares: Vec<(String, Share)> = shares.into_iter().collect();
        shares.sort_by(|(_, one), (_, other)| other.cmp(one));
        listed(&shares)
    }

    /// Whose an address in a set of several endpoints' addresses is.
    fn owner(&self, side: Side<'_>, address: IpAddr) -> String {
        let Side::Profile(profile) = side else { return String::from(RECORDS) };
        if let Some(path) = self.owners.get(&(profile, address)) {
            return path.clone();
        }
        // Of a profile that is nested somewhere below.
        let mut below = vec![profile];
        let mut seen = 0;
        while let Some(&next) = below.get(seen) {
            seen += 1;
            for endpoint in &self.snapshot.model.profile(next).endpoints {
                if let Target::Profile(child) = endpoint.target
                    && !below.contains(&child)
                {
                    below.push(child);
                }
            }
        }
        let found = below.iter().find_map(|&profile| self.owners.get(&(profile, address)));
        found.cloned().unwrap_or_else(|| address.to_string())
    }
}

/// Most parts of an answer that are listed.
const LISTED: usize = 4;

/// Parts of an answer with their shares; only the part when it is all.
pub(super) fn listed(parts: &[(String, Share)]) -> String {
    if let [(part, _)] = parts {
        return part.clone();
    }
    let shown = |(part, share): &(String, Share)| format!("{part} {:.1} %", share.to_f64() * 100.0);
    let mut list: Vec<String> = parts.iter().take(LISTED).map(shown).collect();
    if parts.len() > LISTED {
        list.push(format!("{} more", parts.len() - LISTED));
    }
    list.join(", ")
}

/// What static records answer.
fn recorded(node: &Node, asked: Asked) -> Choice {
    let answer = |records, ttl| Choice::Answer { endpoint: None, records, ttl, credits: Credits::default() };
    if let Some(set) = node.get(&rtype::CNAME) {
        let target = set.rdata.first().and_then(|rdata| Name::from_wire(rdata).ok());
        if let Some(target) = target {
            return answer(Records::Cname(target), set.ttl);
        }
    }
    let of = |kind| node.get(&kind).filter(|set| !set.rdata.is_empty());
    match asked {
        Asked::A => of(rtype::A).map_or(Choice::Nodata, |set| {
            let address = |rdata: &Vec<u8>| Some(<[u8; 4]>::try_from(rdata.as_slice()).ok()?.into());
            answer(Records::A(set.rdata.iter().filter_map(address).collect()), set.ttl)
        }),
        Asked::Aaaa => of(rtype::AAAA).map_or(Choice::Nodata, |set| {
            let address = |rdata: &Vec<u8>| Some(<[u8; 16]>::try_from(rdata.as_slice()).ok()?.into());
            answer(Records::Aaaa(set.rdata.iter().filter_map(address).collect()), set.ttl)
        }),
        Asked::Cname | Asked::Any => Choice::Nodata,
    }
}
