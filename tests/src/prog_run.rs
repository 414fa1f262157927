//! The real XDP program under `BPF_PROG_TEST_RUN`: loads the object, fills the tables, runs packets, reads
//! the counters, and measures.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use aya::maps::Map;
use aya::programs::Xdp;
use aya::{Ebpf, EbpfLoader, TestRun, TestRunOptions, VerifierLogLevel};
use router_common::abi::{
    self, Answer, Cell, Control, Generation, Line, Locals, LocationLine, Owner, TALLY_ROW, map,
};
use router_common::counter::Counter;
use router_userspace::datapath::object::OBJECT;

mod copies;
mod raw;
pub mod replay;

pub use copies::{Copied, rule};
pub use raw::lookup_octets;

/// XDP actions, as the kernel numbers them.
pub mod action {
    /// The program's set-up is broken.
    pub const ABORTED: u32 = 0;
    /// Dropped.
    pub const DROP: u32 = 1;
    /// Up the stack.
    pub const PASS: u32 = 2;
    /// Back out.
    pub const TX: u32 = 3;
}

/// Tables written by hand, with indices relative to their half.
#[derive(Clone)]
pub struct Image {
    /// Its bases are set when it is installed.
    pub generation: Generation,
    /// Owner slots.
    pub owners: Vec<Owner>,
    /// Displacements, four a word.
    pub buckets: Vec<u64>,
    /// Regions, four a word.
    pub regions: Vec<u64>,
    /// Answers.
    pub answers: Vec<Answer>,
    /// Cells.
    pub cells: Vec<Cell>,
    /// Lines.
    pub lines: Vec<Line>,
    /// Lines of locations; the roots are in the generation.
    pub locations: Vec<LocationLine>,
}

/// Entries of each table in one half, for the maps of a [`ProgRun`].
const HALF: u32 = 4096;

/// The program, loaded, with maps of its own.
pub struct ProgRun {
    ebpf: Ebpf,
    /// Entries of each table in one half.
    half: u32,
    cpus: usize,
    control: Table<u64>,
    generations: Table<Generation>,
    owners: Table<Owner>,
    buckets: Table<u64>,
    regions: Table<u64>,
    answers: Table<u64>,
    cells: Table<Cell>,
    lines: Table<Line>,
    locations: Table<LocationLine>,
    locals: Table<Locals>,
}

/// What a run made of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// An [`action`].
    pub action: u32,
    /// The packet afterwards.
    pub frame: Vec<u8>,
}

/// What one query costs.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Nanoseconds of the program over an empty one.
    pub program: f64,
    /// Nanoseconds of the harness with an empty program: what was subtracted.
    pub harness: f64,
}

impl ProgRun {
    /// Loads the program; its tables are empty, so every packet passes.
    ///
    /// # Errors
    /// When the kernel refuses; the error holds the end of the verifier's log.
    pub fn load() -> Result<Self> {
        Self::with_room(HALF)
    }

    /// The same with room for `half` entries of each table in one half.
    ///
    /// # Errors
    /// As [`ProgRun::load`].
    pub fn with_room(half: u32) -> Result<Self> {
        let mut loader = EbpfLoader::new();
        loader.verifier_log_level(VerifierLogLevel::STATS);
        for name in
            [map::OWNERS, map::BUCKETS, map::REGIONS, map::ANSWERS, map::CELLS, map::LINES, map::LOCATIONS]
        {
            loader.map_max_entries(name, half * 2);
        }
        loader.map_max_entries(map::TALLIES, (half * 2).div_ceil(TALLY_ROW as u32));
        let mut ebpf = loader.load(OBJECT).context("the object does not load")?;
        let program: &mut Xdp = ebpf.program_mut(abi::PROGRAM).context("no program")?.try_into()?;
        program.load().context("the kernel refuses the program")?;
        Ok(Self {
            control: Table::of(&ebpf, map::CONTROL, 1)?,
            generations: Table::of(&ebpf, map::GENERATIONS, abi::HALVES)?,
            owners: Table::of(&ebpf, map::OWNERS, half as usize * 2)?,
            buckets: Table::of(&ebpf, map::BUCKETS, half as usize * 2)?,
            regions: Table::of(&ebpf, map::REGIONS, half as usize * 2)?,
            answers: Table::of(&ebpf, map::ANSWERS, half as usize * 2)?,
            cells: Table::of(&ebpf, map::CELLS, half as usize * 2)?,
            lines: Table::of(&ebpf, map::LINES, half as usize * 2)?,
            locations: Table::of(&ebpf, map::LOCATIONS, half as usize * 2)?,
            locals: Table::of(&ebpf, map::LOCALS, 1)?,
            cpus: aya::util::nr_cpus().map_err(|(what, error)| anyhow::anyhow!("{what}: {error}"))?,
            ebpf,
            half,
        })
    }

    /// Writes an image to a half; the control word is left alone.
    ///
    /// # Errors
    /// When the image is larger than a half, or the kernel refuses a map operation.
    pub fn install(&mut self, half: u8, image: &Image) -> Result<()> {
        let base = u32::from(half) * self.half;
        ensure!(fits(image, self.half), "the image is larger than a half");
        let mut generation = image.generation;
        (generation.owners, generation.answers) = (base, base);
        (generation.buckets, generation.regions) = (base * 4, base * 4);
        (generation.cells, generation.lines, generation.tallies) = (base, base, base);
        generation.locations = base;
        let at = base as usize;
        self.owners.write(at, &image.owners)?;
        self.buckets.write(at, &image.buckets)?;
        self.regions.write(at, &image.regions)?;
        self.answers.write(at, &image.answers.iter().map(|answer| answer.0).collect::<Vec<_>>())?;
        self.cells.write(at, &image.cells)?;
        self.lines.write(at, &image.lines)?;
        self.locations.write(at, &image.locations)?;
        self.generations.write(half.into(), &[generation])
    }

    /// Sets the machine's own addresses and broadcast addresses, at most [`abi::MAX_LOCALS`].
    pub fn set_locals(&mut self, addresses: &[Ipv4Addr]) {
        let mut locals = Locals { count: addresses.len() as u32, ..Locals::EMPTY };
        for (place, address) in locals.addresses.iter_mut().zip(addresses) {
            *place = address.octets();
            locals.filter |= Locals::bit(u32::from(*address));
        }
        self.locals.store(0, locals);
    }

    /// Sets the control word.
    pub fn set_control(&mut self, control: Control) {
        self.control.store(0, control.0);
    }

    /// Installs an image in half 0 and makes it the active one, with a lease that does not lapse.
    ///
    /// # Errors
    /// As [`ProgRun::install`].
    pub fn activate(&mut self, image: &Image) -> Result<()> {
        self.install(0, image)?;
        self.set_control(Control::new(0, Control::READY, u32::MAX));
        Ok(())
    }

    /// Runs one frame, of at least 14 octets (the kernel takes no less).
    ///
    /// # Errors
    /// When the kernel does not run it.
    pub fn run(&self, frame: &[u8]) -> Result<Outcome> {
        let mut out = vec![0; frame.len() + 4096];
        let options =
            TestRunOptions { data_in: Some(frame), data_out: Some(&mut out), ..TestRunOptions::new() };
        let result = self.program()?.test_run(options)?;
        out.truncate(result.data_size_out as usize);
        Ok(Outcome { action: result.return_value, frame: out })
    }

    /// Every counter, summed over the CPUs.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn counters(&self) -> Result<Vec<u64>> {
        (0..Counter::FAST as u32).map(|index| self.count(index)).collect()
    }

    /// Answers to queries with a client subnet, of IPv4 and of IPv6.
    ///
    /// # Errors
    /// As [`ProgRun::counters`].
    pub fn subnets(&self) -> Result<[u64; 2]> {
        Ok([self.count(Counter::subnet_slot(1))?, self.count(Counter::subnet_slot(2))?])
    }

    /// An element of COUNTERS.
    fn count(&self, index: u32) -> Result<u64> {
        let Some(Map::PerCpuArray(counters)) = self.ebpf.map(map::COUNTERS) else {
            anyhow::bail!("no counters")
        };
        Ok(raw::lookup(counters.fd().as_fd(), index, self.cpus)?.iter().sum())
    }

    /// A tally of a half: answers, and nanoseconds of `CLOCK_MONOTONIC` of the last one.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn tally(&self, half: u8, tally: u32) -> Result<(u64, u64)> {
        let Some(Map::PerCpuArray(tallies)) = self.ebpf.map(map::TALLIES) else {
            anyhow::bail!("no tallies")
        };
        let index = u32::from(half) * self.half + tally;
        let (row, at) = (index / TALLY_ROW as u32, index as usize % TALLY_ROW);
        let words = raw::lookup(tallies.fd().as_fd(), row, self.cpus * TALLY_ROW * 2)?;
        let of_cpus = |word: usize| words.iter().skip(2 * at + word).step_by(2 * TALLY_ROW);
        Ok((of_cpus(0).sum(), of_cpus(1).max().copied().unwrap_or_default()))
    }

    /// Instructions that the verifier walked through.
    ///
    /// # Errors
    /// When the kernel does not say (before Linux 5.16).
    pub fn verified_instructions(&self) -> Result<u32> {
        self.program()?.info()?.verified_instruction_count().context("the kernel does not say")
    }

    /// Octets of the program as the kernel has it: of instructions, eight each, and of machine code.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn sizes(&self) -> Result<(u32, u32)> {
        let info = self.program()?.info()?;
        Ok((info.size_translated().context("the kernel does not say")?, info.size_jitted()))
    }

    /// The file descriptor of the program.
    ///
    /// # Errors
    /// When it is not loaded.
    pub fn program_fd(&self) -> Result<BorrowedFd<'_>> {
        Ok(self.program()?.fd()?.as_fd())
    }

    fn program(&self) -> Result<&Xdp> {
        Ok(self.ebpf.program(abi::PROGRAM).context("no program")?.try_into()?)
    }

    /// What the program needs for a frame, in nanoseconds over an empty program: the best of `rounds`
    /// rounds of `repeat` runs, so that what other processes do counts as little as possible.
    ///
    /// `BPF_PROG_TEST_RUN` repeats on the packet as the last run left it, which would be a reply after the
    /// first. So a small program of our own is run: it gives the packet its size and octets back, waits
    /// until those writes have reached the cache (a load that overlaps two stores in flight would stall,
    /// which no packet from a device does), and tail-calls the program. The same with an empty program is
    /// subtracted.
    ///
    /// # Errors
    /// When the kernel refuses the harness, or a run does not end in `expected`.
    pub fn cost(&self, frame: &[u8], expected: u32, repeat: u32, rounds: u32) -> Result<Cost> {
        let empty = raw::load(&[raw::mov(0, action::TX as i32), raw::exit()])?;
        let targets = raw::program_array(&[self.program_fd()?.as_raw_fd(), empty.as_raw_fd()])?;
        let harness = |target| raw::load(&raw::restore_and_call(frame, targets.as_raw_fd(), target));
        let (with_program, with_empty) = (harness(0)?, harness(1)?);
        let time = |program: &OwnedFd, expected| -> Result<Duration> {
            let (result, duration) = raw::test_run(program.as_fd(), frame, repeat)?;
            ensure!(result == expected, "a run ended in {result}, expected {expected}");
            Ok(duration)
        };
        let (mut program, mut harness) = (Duration::MAX, Duration::MAX);
        for _ in 0..rounds {
            program = program.min(time(&with_program, expected)?);
            harness = harness.min(time(&with_empty, action::TX)?);
        }
        // The kernel has divided by the number of runs already.
        let (program, harness) = (program.as_nanos() as f64, harness.as_nanos() as f64);
        Ok(Cost { program: program - harness, harness })
    }
}

/// Whether an image fits into a half, so that it does not reach into the other.
fn fits(image: &Image, half: u32) -> bool {
    let Image { owners, buckets, regions, answers, cells, lines, locations, .. } = image;
    [owners.len(), buckets.len(), regions.len(), answers.len(), cells.len(), lines.len(), locations.len()]
        .iter()
        .all(|&len| len <= half as usize)
}

/// Which counters are not what they were, and by how much.
pub fn moved(before: &[u64], after: &[u64]) -> Vec<(Counter, u64)> {
    Counter::ALL
        .iter()
        .zip(before.iter().zip(after))
        .filter(|(_, (before, after))| before != after)
        .map(|(&counter, (before, after))| (counter, after.wrapping_sub(*before)))
        .collect()
}

/// Whether the kernel lets this process make BPF maps and programs.
///
/// # Errors
/// Why not.
pub fn probe_bpf() -> Result<()> {
    raw::load(&[raw::mov(0, action::PASS as i32), raw::exit()]).map(drop)
}

/// An array map as memory.
struct Table<T> {
    memory: NonNull<T>,
    entries: usize,
}

// SAFETY: the memory is shared with the kernel and other processes anyway; access is through `&mut self`.
unsafe impl<T: Send> Send for Table<T> {}

impl<T: Copy> Table<T> {
    fn of(ebpf: &Ebpf, name: &str, entries: usize) -> Result<Self> {
        let Some(Map::Array(data)) = ebpf.map(name) else { anyhow::bail!("{name} is no array") };
        Self::mapped(data.fd().as_fd(), entries).with_context(|| format!("cannot map {name}"))
    }

    fn mapped(map: BorrowedFd<'_>, entries: usize) -> Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (fd, octets) = (map.as_raw_fd(), entries * size_of::<T>());
        // SAFETY: a new mapping of as much as the map has; it touches no memory of ours.
        let memory = unsafe { libc::mmap(std::ptr::null_mut(), octets, protection, libc::MAP_SHARED, fd, 0) };
        ensure!(memory != libc::MAP_FAILED, "{}", io::Error::last_os_error());
        let memory = NonNull::new(memory.cast()).context("mapped at null")?;
        Ok(Self { memory, entries })
    }

    fn write(&mut self, at: usize, values: &[T]) -> Result<()> {
        ensure!(at + values.len() <= self.entries, "{} entries at {at} of {}", values.len(), self.entries);
        for (i, &value) in values.iter().enumerate() {
            self.store(at + i, value);
        }
        Ok(())
    }

    fn load(&self, at: usize) -> T {
        assert!(at < self.entries);
        // SAFETY: inside the mapping.
        unsafe { self.memory.add(at).read_volatile() }
    }

    fn store(&mut self, at: usize, value: T) {
        assert!(at < self.entries);
        // SAFETY: inside the mapping.
        unsafe { self.memory.add(at).write_volatile(value) }
    }
}

impl<T> Drop for Table<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `of`, and nothing refers to it.
        unsafe { libc::munmap(self.memory.as_ptr().cast(), self.entries * size_of::<T>()) };
    }
}

/// Whether the JIT compiler is on: without it a measurement says nothing.
pub fn jit_is_on() -> bool {
    fs::read_to_string("/proc/sys/net/core/bpf_jit_enable").is_ok_and(|value| value.trim() != "0")
}

/// Runs a program on one frame, of at least 14 octets: its action, and the frame afterwards.
///
/// # Errors
/// When the kernel does not run it.
pub fn transmit(program: BorrowedFd<'_>, frame: &[u8]) -> Result<(u32, Vec<u8>)> {
    raw::test_run_to_end(program, frame, 1)
}
