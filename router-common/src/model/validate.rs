//! Everything that makes [`Parts`] a sound model, checked before one is built.
//!
//! What depends on the text alone (unknown keys, malformed values, keys that stand where nothing uses
//! them) is refused by the agent's `config`; what is said here holds for every model, whoever builds it.

use std::collections::HashMap;
use std::fmt;

use super::{Endpoint, Method, Parts, Profile};

mod bindings;
mod endpoints;
mod monitors;
mod nesting;
mod zones;

pub use nesting::MAX_NESTING;

/// A key of the configuration, to point at.
pub type Key = &'static str;

/// Longest name of a profile or an endpoint, octets.
pub const MAX_NAME: usize = 128;

/// Most endpoints in one profile.
pub const MAX_ENDPOINTS: usize = 1000;

/// Largest TTL, seconds (RFC 2181 §8).
pub const MAX_TTL: u32 = i32::MAX as u32;

/// Where in the configuration a fault is; `config` turns it into file and line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A zone, by position.
    Zone(usize),
    /// A profile, by position.
    Profile(usize),
    /// An endpoint: profile, position in it.
    Endpoint(usize, usize),
}

/// One fault of the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Invalid {
    /// What it is about.
    pub place: Place,
    /// The key at fault, when it is one.
    pub key: Option<Key>,
    /// Position in the key's list, when the key holds one.
    pub item: Option<usize>,
    /// What was found and what is allowed.
    pub message: String,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Invalid {}

/// Finds every fault of the parts.
pub fn validate(parts: &Parts) -> Result<(), Vec<Invalid>> {
    let mut faults = Faults(Vec::new());
    zones::check(parts, &mut faults);
    profiles(parts, &mut faults);
    nesting::check(parts, &mut faults);
    bindings::check(parts, &mut faults);
    if faults.0.is_empty() { Ok(()) } else { Err(faults.0) }
}

/// What was found so far.
struct Faults(Vec<Invalid>);

impl Faults {
    fn add(&mut self, place: Place, key: impl Into<Option<Key>>, message: String) {
        self.0.push(Invalid { place, key: key.into(), item: None, message });
    }

    fn add_item(&mut self, place: Place, key: Key, item: usize, message: String) {
        self.0.push(Invalid { place, key: Some(key), item: Some(item), message });
    }
}

fn profiles(parts: &Parts, faults: &mut Faults) {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for (i, profile) in parts.profiles.iter().enumerate() {
        let place = Place::Profile(i);
        if let Some(why) = bad_label(&profile.name) {
            faults.add(place, "name", format!("profile name {:?} {why}", profile.name));
        }
        if seen.insert(&profile.name, i).is_some() {
            faults.add(place, "name", format!("a profile named {:?} already exists", profile.name));
        }
        if profile.ttl > MAX_TTL {
            let message = format!("{}: ttl is {}; allowed is 0 to {MAX_TTL}", profile.name, profile.ttl);
            faults.add(place, "ttl", message);
        }
        if profile.endpoints.len() > MAX_ENDPOINTS {
            let found = profile.endpoints.len();
            let message = format!("{}: {found} endpoints; allowed are {MAX_ENDPOINTS}", profile.name);
            faults.add(place, None, message);
        }
        if let Method::Multivalue { max_return } = profile.method
            && !(1..=10).contains(&max_return)
        {
            let message = format!("{}: max_return is {max_return}; allowed is 1 to 10", profile.name);
            faults.add(place, "max_return", message);
        }
        if let super::AllDown::Fallback(index) = profile.all_down
            && profile.endpoints.get(index as usize).is_none()
        {
            let message = format!("{}: the fallback is not one of its endpoints", profile.name);
            faults.add(place, "all_down", message);
        }
        endpoints::check(parts, i, profile, faults);
    }
}

/// Why a text cannot name a profile or an endpoint: `profile/endpoint` must be readable.
fn bad_label(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("is empty".into());
    }
    if name.len() > MAX_NAME {
        return Some(format!("has {} octets; allowed are {MAX_NAME}", name.len()));
    }
    if name.contains('/') || name.contains(char::is_control) || name.trim() != name {
        return Some("must not hold a \"/\" or control characters, or begin or end with a space".into());
    }
    None
}

/// `profile/endpoint`, as people write it.
fn path(profile: &Profile, endpoint: &Endpoint) -> String {
    format!("{}/{}", profile.name, endpoint.name)
}

#[cfg(test)]
mod tests;
