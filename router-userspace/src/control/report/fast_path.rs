//! Lease, tables and memory of the fast path in a status report.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The fast path.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct FastPathReport {
    /// The half of the tables that answers: 0 or 1.
    pub half: u8,
    /// The lease.
    pub lease: LeaseReport,
    /// How full the tables are.
    pub fill: Vec<FillReport>,
    /// What the maps take.
    pub maps: Vec<MapReport>,
    /// Answers by the family of their client subnet: `none`, `ipv4`, `ipv6`.
    #[serde(default)]
    pub client_subnet: BTreeMap<String, u64>,
}

/// The lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct LeaseReport {
    /// Milliseconds that it still holds.
    pub left_ms: u64,
    /// Renewals that came a second or more after their time.
    pub late_renewals: u64,
}

/// How full a table is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct FillReport {
    /// Its name.
    pub table: String,
    /// Elements in use.
    pub used: u64,
    /// Elements that a half has room for.
    pub capacity: u64,
}

/// What a map takes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct MapReport {
    /// Its name.
    pub name: String,
    /// Octets of kernel memory.
    pub octets: u64,
}

impl FastPathReport {
    /// Octets of all maps.
    pub fn octets(&self) -> u64 {
        self.maps.iter().map(|map| map.octets).sum()
    }
}

impl fmt::Display for FastPathReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { half, lease: LeaseReport { left_ms, late_renewals }, fill, .. } = self;
        write!(f, "lease holds {:.1} s", *left_ms as f64 / 1000.0)?;
        if *late_renewals > 0 {
            write!(f, ", {late_renewals} renewals were late")?;
        }
        write!(f, "; half {half}: ")?;
        for (i, FillReport { table, used, capacity }) in fill.iter().enumerate() {
            let next = if i > 0 { ", " } else { "" };
            write!(f, "{next}{table} {used} of {capacity}")?;
        }
        writeln!(f, "; maps {:.1} MiB", self.octets() as f64 / f64::from(1 << 20))
    }
}
