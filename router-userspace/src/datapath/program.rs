//! Loads the XDP object: makes its maps as large as asked for and has the kernel verify the program.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use aya::maps::Map;
use aya::programs::{ProgramError, Xdp};
use aya::{Ebpf, EbpfLoader};
use router_common::abi::{Credit, HALVES, PROGRAM, TALLY_ROW, map};

use super::capacity::Capacity;
use super::object::OBJECT;
use super::sys;

/// Lines of the verifier's log that a refusal shows; the debug log has all of them.
const VERIFIER_LINES: usize = 6;

/// A program in the kernel, and its maps by name. Not attached, not pinned.
pub struct Loaded {
    /// The program.
    pub program: OwnedFd,
    /// Every map the object defines under a name of its own, and CREDITS.
    pub maps: HashMap<String, OwnedFd>,
}

/// Loads the embedded object.
///
/// `counters` is the pin of an older instance's COUNTERS to go on with; it must be of the same build.
pub fn load(capacity: &Capacity, counters: Option<PathBuf>) -> Result<Loaded> {
    sys::lift_memory_lock();
    let halves = HALVES as u32;
    let mut loader = EbpfLoader::new();
    loader
        .map_max_entries(map::OWNERS, capacity.owners.saturating_mul(halves))
        .map_max_entries(map::BUCKETS, capacity.buckets.saturating_mul(halves))
        .map_max_entries(map::REGIONS, capacity.regions.saturating_mul(halves))
        .map_max_entries(map::ANSWERS, capacity.answers.saturating_mul(halves))
        .map_max_entries(map::CELLS, capacity.cells.saturating_mul(halves))
        .map_max_entries(map::LINES, capacity.lines.saturating_mul(halves))
        .map_max_entries(map::LOCATIONS, capacity.locations.saturating_mul(halves))
        .map_max_entries(map::TALLIES, (capacity.tallies / TALLY_ROW as u32).saturating_mul(halves));
    if let Some(pin) = counters {
        loader.map_pin_path(map::COUNTERS, pin);
    }
    let mut object = loader
        .load(OBJECT)
        .context("cannot make the maps of the XDP program (root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, is needed)")?;
    let program = load_program(&mut object)?;
    let names: Vec<String> = object.maps().map(|(name, _)| name.to_owned()).collect();
    let mut maps = HashMap::new();
    for name in names {
        if let Some(held) = object.take_map(&name) {
            maps.insert(name, descriptor(held)?);
        }
    }
    let credits = capacity.tallies.saturating_mul(halves);
    let credits = sys::create_mmapable_array(map::CREDITS, size_of::<Credit>() as u32, credits)
        .context("cannot make CREDITS")?;
    maps.insert(map::CREDITS.to_owned(), credits);
    Ok(Loaded { program, maps })
}

/// Has the kernel verify the program.
fn load_program(object: &mut Ebpf) -> Result<OwnedFd> {
    let Some(program) = object.program_mut(PROGRAM) else {
        bail!("the object holds no program {PROGRAM:?}");
    };
    let program: &mut Xdp = program.try_into().context("the program is not an XDP program")?;
    program.load().map_err(refusal)?;
    let program = program.fd()?;
    Ok(program.as_fd().try_clone_to_owned()?)
}

/// What the verifier said, without its whole log: the end of it says why.
fn refusal(error: ProgramError) -> anyhow::Error {
    let ProgramError::LoadError { io_error, verifier_log } = error else {
        return anyhow::Error::new(error).context("the kernel refused the XDP program");
    };
    let log = verifier_log.to_string();
    log::debug!("verifier log:\n{log}");
    let lines: Vec<&str> = log.lines().filter(|line| !line.trim().is_empty()).collect();
    let told = lines[lines.len().saturating_sub(VERIFIER_LINES)..].join("\n  ");
    let hint = if log.contains("prohibited for !root") {
        " (CAP_PERFMON is missing: root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, is needed)"
    } else {
        ""
    };
    anyhow::anyhow!("the kernel refused the XDP program: {io_error}{hint}\n  {told}")
}

/// The descriptor of a map, whatever its type.
fn descriptor(held: Map) -> Result<OwnedFd> {
    let data = match held {
        Map::Array(data)
        | Map::PerCpuArray(data)
        | Map::ArrayOfMaps(data)
        | Map::HashMap(data)
        | Map::PerCpuHashMap(data)
        | Map::RingBuf(data)
        | Map::ProgramArray(data)
        | Map::PerfEventArray(data) => data,
        other => bail!("the object has a map of a type the agent does not know: {other:?}"),
    };
    Ok(data.fd().as_fd().try_clone_to_owned()?)
}

/// Tells builds of the object apart (FNV-1a, 64 bits): equal objects have equal ones.
pub fn build_id() -> u64 {
    OBJECT.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &octet| {
        (hash ^ u64::from(octet)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}
