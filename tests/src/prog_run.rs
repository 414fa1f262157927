//! The real XDP program under `BPF_PROG_TEST_RUN`: loads the object, fills the tables, runs packets, reads
//! the counters, and measures.

use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use aya::maps::Map;
use aya::programs::Xdp;
use aya::{Ebpf, EbpfLoader, TestRun, TestRunOptions, VerifierLogLevel};
use router_common::abi::{self, Answer, Cell, Control, Generation, Line, Locals, LocationLine, Owner, map};
use router_common::counter::Counter;
use router_userspace::datapath::object::OBJECT;

mod copies;

pub use copies::{Copied, rule};

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
    /// Owner slots, a power of two.
    pub owners: Vec<Owner>,
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
            [map::OWNERS, map::REGIONS, map::ANSWERS, map::CELLS, map::LINES, map::LOCATIONS, map::TALLIES]
        {
            loader.map_max_entries(name, half * 2);
        }
        let mut ebpf = loader.load(OBJECT).context("the object does not load")?;
        let program: &mut Xdp = ebpf.program_mut(abi::PROGRAM).context("no program")?.try_into()?;
        program.load().context("the kernel refuses the program")?;
        Ok(Self {
            control: Table::of(&ebpf, map::CONTROL, 1)?,
            generations: Table::of(&ebpf, map::GENERATIONS, abi::HALVES)?,
            owners: Table::of(&ebpf, map::OWNERS, half as usize * 2)?,
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
        ensure!(image.owners.len().is_power_of_two(), "slots are a power of two");
        let base = u32::from(half) * self.half;
        ensure!(fits(image, self.half), "the image is larger than a half");
        let mut generation = image.generation;
        (generation.owners, generation.owner_mask) = (base, image.owners.len() as u32 - 1);
        (generation.regions, generation.answers) = (base * 4, base);
        (generation.cells, generation.lines, generation.tallies) = (base, base, base);
        generation.locations = base;
        let at = base as usize;
        self.owners.write(at, &image.owners)?;
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
        let words = raw::lookup(tallies.fd().as_fd(), index, self.cpus * 2)?;
        let last = words.iter().skip(1).step_by(2).max().copied().unwrap_or_default();
        Ok((words.iter().step_by(2).sum(), last))
    }

    /// Instructions that the verifier walked through.
    ///
    /// # Errors
    /// When the kernel does not say (before Linux 5.16).
    pub fn verified_instructions(&self) -> Result<u32> {
        self.program()?.info()?.verified_instruction_count().context("the kernel does not say")
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
    let Image { owners, regions, answers, cells, lines, locations, .. } = image;
    [owners.len(), regions.len(), answers.len(), cells.len(), lines.len(), locations.len()]
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
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let fd = data.fd().as_fd().as_raw_fd();
        // SAFETY: a new mapping of as much as the map has; it touches no memory of ours.
        let memory = unsafe {
            libc::mmap(std::ptr::null_mut(), entries * size_of::<T>(), protection, libc::MAP_SHARED, fd, 0)
        };
        ensure!(memory != libc::MAP_FAILED, "cannot map {name}: {}", io::Error::last_os_error());
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

/// Small programs made of instructions, by the system call itself: aya loads objects only.
mod raw {
    use super::*;

    /// One instruction (`struct bpf_insn`).
    #[derive(Clone, Copy)]
    #[repr(C)]
    pub struct Instruction {
        code: u8,
        registers: u8,
        offset: i16,
        immediate: i32,
    }

    const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
        Instruction { code, registers: to | from << 4, offset, immediate }
    }

    /// `to = immediate`
    pub const fn mov(to: u8, immediate: i32) -> Instruction {
        instruction(0xb7, to, 0, 0, immediate)
    }

    const fn copy(to: u8, from: u8) -> Instruction {
        instruction(0xbf, to, from, 0, 0)
    }

    const fn load_context(to: u8, context: u8, offset: i16) -> Instruction {
        instruction(0x61, to, context, offset, 0)
    }

    const fn call(helper: i32) -> Instruction {
        instruction(0x85, 0, 0, 0, helper)
    }

    /// Ends the program with the result in register 0.
    pub const fn exit() -> Instruction {
        instruction(0x95, 0, 0, 0, 0)
    }

    /// A program that gives the packet the size and octets of `frame`, waits, and goes on with program
    /// number `target` of the array. What the packet has grown by is taken away at the head, where it grows.
    pub fn restore_and_call(frame: &[u8], array: RawFd, target: i32) -> Vec<Instruction> {
        const ADJUST_HEAD: i32 = 44;
        const TAIL_CALL: i32 = 12;
        const DATA: i16 = 0;
        const DATA_END: i16 = 4;
        const SPINS: i32 = 400;
        let len = frame.len() as i32;
        let mut code = vec![
            copy(6, 1),
            load_context(3, 6, DATA_END),
            load_context(4, 6, DATA),
            instruction(0x1f, 3, 4, 0, 0),    // r3 -= r4
            instruction(0x07, 3, 0, 0, -len), // r3 -= len
            copy(2, 3),
            call(ADJUST_HEAD),
            load_context(3, 6, DATA),
            load_context(4, 6, DATA_END),
            copy(5, 3),
            instruction(0x07, 5, 0, 0, len), // r5 += len
        ];
        let mut writes = Vec::new();
        for (i, chunk) in frame.chunks(8).enumerate() {
            let at = (i * 8) as i16;
            if let Ok(octets) = <[u8; 8]>::try_from(chunk) {
                let word = u64::from_le_bytes(octets);
                writes.push(instruction(0x18, 2, 0, 0, word as i32)); // r2 = 64-bit immediate
                writes.push(instruction(0, 0, 0, 0, (word >> 32) as i32));
                writes.push(instruction(0x7b, 3, 2, at, 0)); // *(u64 *)(r3 + at) = r2
            } else {
                for (j, &octet) in chunk.iter().enumerate() {
                    writes.push(instruction(0x72, 3, 0, at + j as i16, octet.into()));
                }
            }
        }
        let rest = [
            mov(0, 0),
            instruction(0x07, 0, 0, 0, 1),      // r0 += 1
            instruction(0xa5, 0, 0, -2, SPINS), // if r0 < SPINS goto -2
            copy(1, 6),
            instruction(0x18, 2, 1, 0, array), // r2 = the array
            instruction(0, 0, 0, 0, 0),
            mov(3, target),
            call(TAIL_CALL),
        ];
        // if r5 > r4 goto the end
        code.push(instruction(0x2d, 5, 4, (writes.len() + rest.len()) as i16, 0));
        code.extend(writes);
        code.extend(rest);
        code.extend([mov(0, action::ABORTED as i32), exit()]);
        code
    }

    const MAP_CREATE: i64 = 0;
    const MAP_LOOKUP: i64 = 1;
    const MAP_UPDATE: i64 = 2;
    const PROG_LOAD: i64 = 5;
    const PROG_TEST_RUN: i64 = 10;

    /// `union bpf_attr` as far as it is used here.
    #[repr(C, align(8))]
    struct Attributes([u8; 128]);

    impl Attributes {
        const fn new() -> Self {
            Self([0; 128])
        }
        fn u32(mut self, at: usize, value: u32) -> Self {
            self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
            self
        }
        fn u64(mut self, at: usize, value: u64) -> Self {
            self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
            self
        }
        fn get(&self, at: usize) -> u32 {
            u32::from_ne_bytes(self.0[at..at + 4].try_into().expect("four octets"))
        }
        fn call(&mut self, command: i64) -> io::Result<i64> {
            // SAFETY: the attributes are as large as said, and what they point to outlives the call.
            let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut self.0, self.0.len()) };
            if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
        }
    }

    fn owned(fd: i64) -> OwnedFd {
        // SAFETY: a descriptor that the kernel just made for us.
        unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
    }

    /// Loads an XDP program, with multi-buffer support and attach type like ours: a tail call needs that.
    pub fn load(code: &[Instruction]) -> Result<OwnedFd> {
        const XDP: u32 = 6;
        const HAS_FRAGS: u32 = 1 << 5;
        const ATTACH_XDP: u32 = 37;
        let license = c"Dual MIT/GPL";
        let mut log = vec![0u8; 1 << 16];
        let loaded = Attributes::new()
            .u32(0, XDP)
            .u32(4, code.len() as u32)
            .u64(8, code.as_ptr() as u64)
            .u64(16, license.as_ptr() as u64)
            .u32(24, 1)
            .u32(28, log.len() as u32)
            .u64(32, log.as_mut_ptr() as u64)
            .u32(44, HAS_FRAGS)
            .u32(68, ATTACH_XDP)
            .call(PROG_LOAD);
        let text = String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned();
        Ok(owned(loaded.with_context(|| format!("a small program does not load: {text}"))?))
    }

    /// An element of a per-CPU array of numbers: one for each possible CPU. (aya asks sysfs for their number
    /// each time.)
    pub fn lookup(map: BorrowedFd<'_>, index: u32, cpus: usize) -> Result<Vec<u64>> {
        let mut values = vec![0u64; cpus];
        Attributes::new()
            .u32(0, map.as_raw_fd() as u32)
            .u64(8, &raw const index as u64)
            .u64(16, values.as_mut_ptr() as u64)
            .call(MAP_LOOKUP)
            .context("a counter cannot be read")?;
        Ok(values)
    }

    /// An array of programs to tail-call.
    pub fn program_array(programs: &[RawFd]) -> Result<OwnedFd> {
        const PROGRAM_ARRAY: u32 = 3;
        let array = Attributes::new()
            .u32(0, PROGRAM_ARRAY)
            .u32(4, 4)
            .u32(8, 4)
            .u32(12, programs.len() as u32)
            .call(MAP_CREATE)
            .context("no program array")?;
        let array = owned(array);
        for (i, program) in programs.iter().enumerate() {
            let key = i as u32;
            Attributes::new()
                .u32(0, array.as_raw_fd() as u32)
                .u64(8, &raw const key as u64)
                .u64(16, program as *const RawFd as u64)
                .call(MAP_UPDATE)
                .context("a program does not go into the array")?;
        }
        Ok(array)
    }

    /// Runs a program on a copy of `frame`; returns its last result, and the time of one run.
    pub fn test_run(program: BorrowedFd<'_>, frame: &[u8], repeat: u32) -> Result<(u32, Duration)> {
        let mut attributes = Attributes::new()
            .u32(0, program.as_raw_fd() as u32)
            .u32(8, frame.len() as u32)
            .u64(16, frame.as_ptr() as u64)
            .u32(32, repeat);
        attributes.call(PROG_TEST_RUN).context("a test run failed")?;
        Ok((attributes.get(4), Duration::from_nanos(attributes.get(36).into())))
    }
}

/// Whether the JIT compiler is on: without it a measurement says nothing.
pub fn jit_is_on() -> bool {
    fs::read_to_string("/proc/sys/net/core/bpf_jit_enable").is_ok_and(|value| value.trim() != "0")
}
