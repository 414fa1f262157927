//! What the kernel's maps cost, as it says itself.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsRawFd;

use anyhow::{Context, Result};
use aya::maps::loaded_maps;

/// Ids of all maps of the system, to tell later which are new.
pub fn known() -> Vec<u32> {
    loaded_maps().filter_map(|info| info.ok().map(|info| info.id())).collect()
}

/// Octets that the kernel accounts to maps which were not `known`, by their names.
///
/// # Errors
/// When the kernel does not tell.
pub fn memory(known: &[u32]) -> Result<BTreeMap<String, u64>> {
    let mut memory = BTreeMap::new();
    for info in loaded_maps() {
        // A map of somebody else can have gone meanwhile.
        let Ok(info) = info else { continue };
        if known.contains(&info.id()) {
            continue;
        }
        let name = info.name_as_str().context("a map's name is no text")?.to_owned();
        let Ok(fd) = info.fd() else { continue };
        let text =
            fs::read_to_string(format!("/proc/self/fdinfo/{}", std::os::fd::AsFd::as_fd(&fd).as_raw_fd()))?;
        let field = text.lines().find_map(|line| line.strip_prefix("memlock:"));
        let octets: u64 = field.context("fdinfo without memlock")?.trim().parse()?;
        *memory.entry(name).or_default() += octets;
    }
    Ok(memory)
}
