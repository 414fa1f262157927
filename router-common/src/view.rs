//! What is known of the outside world at one moment, as plain snapshots: health, geography, latency.

use std::collections::HashMap;
use std::time::Duration;

use ipnet::IpNet;

use crate::model::{Coordinates, EndpointId, GeoCode};

/// What the monitor of one endpoint says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Health {
    /// No sample yet.
    #[default]
    Checking,
    /// The window is healthy.
    Healthy,
    /// The window is unhealthy.
    Unhealthy,
}

/// Health of monitored endpoints by position in the model. One that is not named is `Checking`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HealthView {
    /// Verdicts.
    pub verdicts: HashMap<EndpointId, Health>,
    /// Moving average of the latency over healthy samples.
    pub latency: HashMap<EndpointId, Duration>,
}

impl HealthView {
    /// The verdict on an endpoint.
    pub fn health(&self, endpoint: EndpointId) -> Health {
        self.verdicts.get(&endpoint).copied().unwrap_or_default()
    }
}

/// What a geo database says of a prefix.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct GeoFacts {
    /// ISO 3166-1 alpha-2, upper case.
    pub country: Option<[u8; 2]>,
    /// ISO 3166-2 part after the country, upper case, padded with zero.
    pub state: Option<[u8; 3]>,
    /// Where it is.
    pub coordinates: Option<Coordinates>,
}

/// Geography sources. In each list the longest matching prefix counts, of equal ones the last.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Geography {
    /// From the database.
    pub database: Vec<(IpNet, GeoFacts)>,
    /// From the overrides: an address inside one has this code whatever the database says.
    pub overrides: Vec<(IpNet, GeoCode)>,
}

/// The latency table. For each region the longest matching prefix counts, of equal ones the last.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Latency {
    /// Prefix, region, milliseconds (finite, not negative).
    pub rows: Vec<(IpNet, String, f64)>,
}
