//! Figures of a running datapath: its maps, its lease, single counters.

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Duration;

use anyhow::Result;
use router_common::counter::Counter;

use super::{Datapath, sys};

/// What one map takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MapMemory {
    /// Its name.
    pub name: String,
    /// Octets of kernel memory, as the kernel accounts them.
    pub octets: u64,
}

impl Datapath {
    /// What the maps take, by name.
    pub fn memory(&self) -> Vec<MapMemory> {
        let mut maps: Vec<MapMemory> = self
            .instance
            .maps()
            .map(|(name, map)| MapMemory { name: name.to_owned(), octets: memory_of(map).unwrap_or(0) })
            .collect();
        maps.sort_by(|one, other| one.name.cmp(&other.name));
        maps
    }

    /// The half that answers.
    pub fn active_half(&self) -> u8 {
        self.instance.control().half()
    }

    /// How long the lease still holds; zero when it has lapsed.
    pub fn lease_left(&self) -> Duration {
        // It lapses when the deadline's unit of 2^30 ns is over.
        let end = (u64::from(self.instance.control().deadline()) + 1) << 30;
        Duration::from_nanos(end.saturating_sub(sys::monotonic()))
    }

    /// One of [`Datapath::counters`].
    ///
    /// # Errors
    /// When the kernel does not tell, or it is a counter of the userspace server.
    pub fn counter(&self, counter: Counter) -> Result<u64> {
        self.instance.counter(counter)
    }

    /// Answers to queries with a client subnet, of IPv4 and of IPv6.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn subnets(&self) -> Result<[u64; 2]> {
        self.instance.subnets()
    }
}

/// `memlock` of the map (proc(5), fdinfo).
fn memory_of(map: &OwnedFd) -> Option<u64> {
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", map.as_raw_fd())).ok()?;
    let line = info.lines().find_map(|line| line.strip_prefix("memlock:"))?;
    line.trim().parse().ok()
}
