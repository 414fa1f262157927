//! Every map of the program. Names and types are those of [`router_common::abi`].
//!
//! All are BTF-defined maps (section `.maps`).
//!
//! The capacities written here are small: the loader overrides them (`EbpfLoader::map_max_entries`).

use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::btf_maps::{Array, PerCpuArray, RingBuf};
use aya_ebpf::macros::btf_map;
use router_common::abi::{Cell, Generation, HALVES, Line, Locals, LocationLine, Owner, Tallies};
use router_common::counter::Counter;
use router_common::lookup::Query;
use router_common::trace::{RING, RULES, Record, Rule, State};

use crate::scratch::Scratch;

/// Flags of the tables that the agent writes as memory.
const MMAPABLE: usize = BPF_F_MMAPABLE as usize;

/// [`router_common::abi::map::CONTROL`].
#[btf_map]
pub static CONTROL: Array<u64, 1, MMAPABLE> = Array::new();

/// [`router_common::abi::map::GENERATIONS`].
#[btf_map]
pub static GENERATIONS: Array<Generation, HALVES, MMAPABLE> = Array::new();

/// [`router_common::abi::map::OWNERS`].
#[btf_map]
pub static OWNERS: Array<Owner, 32, MMAPABLE> = Array::new();

/// [`router_common::abi::map::BUCKETS`].
#[btf_map]
pub static BUCKETS: Array<u64, 32, MMAPABLE> = Array::new();

/// [`router_common::abi::map::REGIONS`].
#[btf_map]
pub static REGIONS: Array<u64, 32, MMAPABLE> = Array::new();

/// [`router_common::abi::map::ANSWERS`].
#[btf_map]
pub static ANSWERS: Array<u64, 32, MMAPABLE> = Array::new();

/// [`router_common::abi::map::CELLS`].
#[btf_map]
pub static CELLS: Array<Cell, 32, MMAPABLE> = Array::new();

/// [`router_common::abi::map::LINES`].
#[btf_map]
pub static LINES: Array<Line, 32, MMAPABLE> = Array::new();

/// [`router_common::abi::map::LOCATIONS`].
#[btf_map]
pub static LOCATIONS: Array<LocationLine, 32, MMAPABLE> = Array::new();

/// [`router_common::abi::map::LOCALS`].
#[btf_map]
pub static LOCALS: Array<Locals, 1, MMAPABLE> = Array::new();

/// [`router_common::abi::map::TALLIES`].
#[btf_map]
pub static TALLIES: PerCpuArray<Tallies, 2> = PerCpuArray::new();

/// [`router_common::abi::map::COUNTERS`].
#[btf_map]
pub static COUNTERS: PerCpuArray<u64, { Counter::SLOTS }> = PerCpuArray::new();

/// [`router_common::abi::map::SCRATCH`].
#[btf_map]
pub static SCRATCH: PerCpuArray<Scratch, 1> = PerCpuArray::new();

/// [`router_common::abi::map::STRIPPED`].
#[btf_map]
pub static STRIPPED: PerCpuArray<Query, 1> = PerCpuArray::new();

/// [`router_common::abi::map::TRACE_RULES`].
#[btf_map]
pub static TRACE_RULES: Array<Rule, RULES, MMAPABLE> = Array::new();

/// [`router_common::abi::map::TRACE_STATE`].
#[btf_map]
pub static TRACE_STATE: PerCpuArray<State, RULES> = PerCpuArray::new();

/// [`router_common::abi::map::TRACE_RECORD`].
#[btf_map]
pub static TRACE_RECORD: PerCpuArray<Record, 1> = PerCpuArray::new();

/// [`router_common::abi::map::TRACE_RING`].
#[btf_map]
pub static TRACE_RING: RingBuf<Record, RING> = RingBuf::new();
