//! One program with its maps, and how tables get into them.
//!
//! # Why no query sees half a change
//! A program run reads CONTROL once and stays in that half. [`Instance::install`] writes only the other
//! half, which no run can be in: before it writes, it waits until every run that began before the last
//! flip has ended ([`Instance::grace`]). Then one release store to CONTROL makes everything written before
//! it visible; the program's loads depend on the word's value, so they come after it on every machine.
//! [`Instance::apply`] works inside the active half by the same rule at the scale of one answer: lines and
//! cells that nothing refers to, then the one word that refers to them.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use router_common::abi::{
    Cell, Control, Credit, Generation, HALVES, Interface, Line, Locals, LocationLine, MAX_INTERFACES, Owner,
    TALLY_ROW, Tallies, map,
};
use router_common::counter::Counter;
use router_common::diff::Operation;
use router_common::tables::Tables;

use super::addresses;
use super::capacity::{Capacity, OutOfRoom};
use super::mapped::{MappedArray, Words};
use super::program::Loaded;
use super::tallies::{Ledger, Mark};
use super::{Applied, Error, sys};

/// `BPF_F_MMAPABLE`.
const MMAPABLE: u32 = 1 << 10;
/// How long a run of the program may take at most when the kernel offers no way to wait for it. A run is
/// inside one NAPI poll, which ends after milliseconds.
const LONGEST_RUN: Duration = Duration::from_secs(1);

/// A loaded program and its maps, mapped.
pub struct Instance {
    /// The program.
    pub program: OwnedFd,
    /// Its id.
    pub program_id: u32,
    maps: HashMap<String, OwnedFd>,
    capacity: Capacity,
    control: MappedArray<u64>,
    generations: MappedArray<Generation>,
    owners: MappedArray<Owner>,
    buckets: MappedArray<u64>,
    regions: MappedArray<u64>,
    answers: MappedArray<u64>,
    cells: MappedArray<Cell>,
    lines: MappedArray<Line>,
    locations: MappedArray<LocationLine>,
    locals: MappedArray<Locals>,
    credits: MappedArray<Credit>,
    /// CPUs that a per-CPU map has values for.
    cpus: usize,
    /// Whether no run can be in the half that is not active.
    quiet: bool,
    /// `None` when the kernel has no more maps to give.
    barrier: Option<sys::Barrier>,
}

/// What a generation needs besides its tables.
#[derive(Clone, Copy)]
pub struct Placement<'a> {
    /// Interfaces that are answered on, at most [`MAX_INTERFACES`].
    pub interfaces: &'a [Interface],
    /// [`Control`] flags besides [`Control::READY`] and [`Control::TRACE`].
    pub flags: u32,
}

impl Instance {
    /// Takes a program that was just loaded, or a pinned one.
    ///
    /// # Errors
    /// When a map is missing or is not as this agent would have made it.
    pub fn new(loaded: Loaded) -> Result<Self> {
        let Loaded { program, maps } = loaded;
        let program_id = sys::program_info(program.as_fd()).context("cannot ask for the program")?.id;
        let control = mapped(find(&maps, map::CONTROL)?, map::CONTROL)?;
        let generations = mapped(find(&maps, map::GENERATIONS)?, map::GENERATIONS)?;
        let owners = mapped::<Owner>(find(&maps, map::OWNERS)?, map::OWNERS)?;
        let buckets = mapped::<u64>(find(&maps, map::BUCKETS)?, map::BUCKETS)?;
        let regions = mapped::<u64>(find(&maps, map::REGIONS)?, map::REGIONS)?;
        let answers = mapped::<u64>(find(&maps, map::ANSWERS)?, map::ANSWERS)?;
        let cells = mapped::<Cell>(find(&maps, map::CELLS)?, map::CELLS)?;
        let lines = mapped::<Line>(find(&maps, map::LINES)?, map::LINES)?;
        let locations = mapped::<LocationLine>(find(&maps, map::LOCATIONS)?, map::LOCATIONS)?;
        let locals = mapped::<Locals>(find(&maps, map::LOCALS)?, map::LOCALS)?;
        let credits = mapped::<Credit>(find(&maps, map::CREDITS)?, map::CREDITS)?;
        let counters = sys::map_info(find(&maps, map::COUNTERS)?).context("cannot ask for COUNTERS")?;
        if counters.max_entries as usize != Counter::SLOTS || counters.value_size != 8 {
            bail!("COUNTERS has {} counters, this agent knows {}", counters.max_entries, Counter::SLOTS);
        }
        let tallies = sys::map_info(find(&maps, map::TALLIES)?).context("cannot ask for TALLIES")?;
        let rows_fit = tallies.max_entries.checked_mul(TALLY_ROW as u32) == Some(credits.len());
        if !rows_fit || tallies.value_size as usize != size_of::<Tallies>() {
            bail!(
                "TALLIES has {} times {TALLY_ROW} tallies, there are {} credits",
                tallies.max_entries,
                credits.len()
            );
        }
        let halves = HALVES as u32;
        let capacity = Capacity {
            owners: owners.len() / halves,
            buckets: buckets.len() / halves,
            regions: regions.len() / halves,
            answers: answers.len() / halves,
            cells: cells.len() / halves,
            lines: lines.len() / halves,
            locations: locations.len() / halves,
            tallies: credits.len() / halves,
        };
        let cpus = aya::util::nr_cpus().map_err(|(what, error)| anyhow!("cannot read {what}: {error}"))?;
        Ok(Self {
            program,
            program_id,
            maps,
            capacity,
            control,
            generations,
            owners,
            buckets,
            regions,
            answers,
            cells,
            lines,
            locations,
            locals,
            credits,
            cpus,
            quiet: false,
            barrier: sys::Barrier::new().ok(),
        })
    }

    /// Elements of each table that fit into a half.
    pub fn capacity(&self) -> Capacity {
        self.capacity
    }

    /// Its maps by name.
    pub fn maps(&self) -> impl Iterator<Item = (&str, &OwnedFd)> {
        self.maps.iter().map(|(name, map)| (name.as_str(), map))
    }

    /// The control word.
    pub fn control(&self) -> Control {
        Control(self.control.read(0).unwrap_or_default())
    }

    /// The generation that is answered from; `None` before the first.
    pub fn generation(&self) -> Option<Generation> {
        let control = self.control();
        if control.flags() & Control::READY == 0 {
            return None;
        }
        self.generations.read(u32::from(control.half()))
    }

    /// Writes a whole generation and switches to it. The old one answers until then, and goes on when
    /// this fails. What both halves had counted before goes to the ledger. Returns the new generation's serial
    /// number.
    ///
    /// # Errors
    /// [`Error::OutOfRoom`] before anything is written.
    pub fn install(
        &mut self,
        tables: &Tables,
        placement: Placement<'_>,
        after: u64,
        ledger: &mut Ledger,
    ) -> Result<u64, Error> {
        self.capacity.fits(tables).map_err(Error::OutOfRoom)?;
        if !self.quiet {
            self.grace();
        }
        let active = u32::from(self.control().half());
        let half = 1 - active.min(1);
        let before = self.generation().map_or(after, |generation| generation.serial.max(after));
        let serial = tables.generation.serial.max(before.saturating_add(1));
        // An earlier agent may have ended before it did so.
        ledger.fold(self, half);
        self.write(half, tables, placement, serial)?;
        self.quiet = false;
        self.control.exchange(0, |old| {
            let trace = Control(old).flags() & Control::TRACE;
            Control::new(half as u8, Control::READY | trace | placement.flags, Control(old).deadline()).0
        });
        // The old half can be written again, and has counted all that it will, when the runs in it have ended.
        self.grace();
        self.quiet = true;
        ledger.fold(self, active.min(1));
        Ok(serial)
    }

    /// Fills a half that nobody reads.
    fn write(&self, half: u32, tables: &Tables, placement: Placement<'_>, serial: u64) -> Result<(), Error> {
        let Capacity { owners, buckets, regions, answers, cells, lines, locations, tallies } = self.capacity;
        let mut generation = tables.generation;
        generation.serial = serial;
        generation.owners = half * owners;
        generation.buckets = half * buckets * 4;
        generation.regions = half * regions * 4;
        generation.answers = half * answers;
        generation.cells = half * cells;
        generation.lines = half * lines;
        generation.locations = half * locations;
        generation.tallies = half * tallies;
        let count = placement.interfaces.len().min(MAX_INTERFACES);
        generation.interfaces = [Interface::default(); MAX_INTERFACES];
        for (to, from) in generation.interfaces.iter_mut().zip(placement.interfaces) {
            *to = *from;
        }
        generation.interface_count = count as u8;
        let written = self.owners.write(generation.owners, &tables.owners)
            && self.buckets.write(half * buckets, &tables.buckets)
            && self.regions.write(half * regions, &tables.regions)
            && self.answers.write(generation.answers, words_of(&tables.answers))
            && self.cells.write(generation.cells, &tables.cells)
            && self.lines.write(generation.lines, &tables.lines)
            && self.locations.write(generation.locations, &tables.locations)
            && self.write_credits(half, &tables.credits)
            && self.generations.write(half, &[generation]);
        if !written {
            return Err(Error::Kernel(anyhow!("the maps are smaller than they say")));
        }
        self.zero_tallies(half)?;
        Ok(())
    }

    /// Fills a half's credits.
    fn write_credits(&self, half: u32, credits: &[Credit]) -> bool {
        const NONE: [Credit; 64] = [Credit::EMPTY; 64];
        let mut at = half * self.capacity.tallies;
        let end = at + self.capacity.tallies;
        let mut written = self.credits.write(at, credits);
        at = at.saturating_add(credits.len() as u32);
        while at < end {
            let count = NONE.len().min((end - at) as usize);
            written &= NONE.get(..count).is_some_and(|none| self.credits.write(at, none));
            at += count as u32;
        }
        written
    }

    /// Sets all tallies of a half to zero, in which no run counts. Those that are given out later are new until then.
    fn zero_tallies(&self, half: u32) -> Result<()> {
        let rows = self.capacity.tallies / TALLY_ROW as u32;
        let words = self.cpus * (size_of::<Tallies>() / size_of::<u64>());
        sys::zero_many(self.map(map::TALLIES)?, half * rows, rows as usize, words)
            .context("cannot write TALLIES")
    }

    /// A half's credits.
    pub fn credits(&self, half: u32) -> Vec<Credit> {
        let first = half * self.capacity.tallies;
        (first..first + self.capacity.tallies).map_while(|at| self.credits.read(at)).collect()
    }

    /// Which generation is in a half; `None` when none ever was.
    pub fn mark(&self, half: u32) -> Option<Mark> {
        let generation = self.generations.read(half).filter(|generation| generation.serial > 0)?;
        Some(Mark { seed: generation.seed[0], serial: generation.serial })
    }

    /// CPUs that a per-CPU map has values for.
    pub fn cpus(&self) -> usize {
        self.cpus
    }

    /// Changes the active half, in the order of the operations.
    ///
    /// # Errors
    /// [`Error::OutOfRoom`] before anything is written, when an index is beyond the half.
    pub fn apply(&self, operations: &[Operation]) -> Result<Applied, Error> {
        let generation =
            self.generation().ok_or_else(|| Error::Kernel(anyhow!("there are no tables to change")))?;
        let capacity = self.capacity;
        let check = |table, index: u32, capacity| {
            if index < capacity {
                Ok(())
            } else {
                Err(Error::OutOfRoom(OutOfRoom { table, needed: u64::from(index) + 1, capacity }))
            }
        };
        for operation in operations {
            match operation {
                Operation::WriteCredit { index, .. } => check(map::CREDITS, *index, capacity.tallies)?,
                Operation::WriteLine { index, .. } => check(map::LINES, *index, capacity.lines)?,
                Operation::WriteCell { index, .. } => check(map::CELLS, *index, capacity.cells)?,
                Operation::SetAnswer { index, .. } => check(map::ANSWERS, *index, capacity.answers)?,
            }
        }
        let mut applied = Applied::default();
        for operation in operations {
            let done = match operation {
                Operation::WriteCredit { index, credit } => {
                    applied.credits += 1;
                    self.credits.write(generation.tallies + index, &[*credit])
                }
                Operation::WriteLine { index, line } => {
                    applied.lines += 1;
                    self.lines.write(generation.lines + index, &[*line])
                }
                Operation::WriteCell { index, cell } => {
                    applied.cells += 1;
                    self.cells.write(generation.cells + index, &[*cell])
                }
                Operation::SetAnswer { index, answer } => {
                    applied.answers += 1;
                    self.answers.publish(generation.answers + index, answer.0)
                }
            };
            if !done {
                return Err(Error::Kernel(anyhow!("the maps are smaller than they say")));
            }
        }
        Ok(applied)
    }

    /// Waits until every run of the program that had begun before the call has ended.
    ///
    /// Writing a slot of an array of maps does this by the kernel's promise (Linux 4.20, "wait for running
    /// BPF programs when updating map-in-map"), whichever array that is: one of our own, so that nothing need be opened by
    /// its id, which takes CAP_SYS_ADMIN.
    /// `membarrier` comes second, because that it waits for RCU is a detail of the kernel, left out with a
    /// single CPU and refused with `nohz_full`.
    pub fn grace(&self) {
        let waited: Result<()> = match &self.barrier {
            Some(barrier) => barrier.wait().context("cannot write a map"),
            None => Err(anyhow!("no map to write")),
        };
        let waited: Result<()> = waited.or_else(|_| Ok(sys::membarrier()?));
        if let Err(error) = waited {
            log::warn!("no way to wait for the XDP program ({error:#}): waiting {LONGEST_RUN:?}");
            std::thread::sleep(LONGEST_RUN);
        }
    }

    /// Somebody else may have changed what is mapped: nothing is known of the half that is not active.
    pub fn distrust(&mut self) {
        self.quiet = false;
    }

    /// Moves the lease's deadline to `lease` from now. It lapses when its unit ([`Control::deadline`]) is
    /// over, so up to 1.1 s later.
    pub fn renew_lease(&self, lease: Duration) {
        let lease = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        let end = sys::monotonic().saturating_add(lease);
        let deadline = u32::try_from(end >> 30).unwrap_or(u32::MAX);
        self.control.exchange(0, |old| {
            let old = Control(old);
            Control::new(old.half(), old.flags(), deadline).0
        });
    }

    /// Sets the flags besides [`Control::READY`] and [`Control::TRACE`].
    pub fn set_flags(&self, flags: u32) {
        self.control.exchange(0, |old| {
            let old = Control(old);
            let kept = old.flags() & (Control::READY | Control::TRACE);
            Control::new(old.half(), kept | flags, old.deadline()).0
        });
    }

    /// Takes over another instance's deadline.
    pub fn set_deadline(&self, deadline: u32) {
        self.control.exchange(0, |old| Control::new(Control(old).half(), Control(old).flags(), deadline).0);
    }

    /// Sets the sources that pass because they are the machine's own or broadcast addresses; what does not
    /// fit is left out, from the end. Returns whether something changed.
    ///
    /// The program reads the list meanwhile, so that an address that stays keeps its place.
    pub fn set_locals(&self, addresses: &[Ipv4Addr]) -> bool {
        let old = self.locals.read(0).unwrap_or(Locals::EMPTY);
        let new = addresses::placed(&old, addresses);
        if new == old {
            return false;
        }
        // Whatever is in either list is looked for until the new one stands.
        let both = Locals { filter: old.filter | new.filter, count: old.count.max(new.count), ..old };
        self.locals.write(0, &[both])
            && self.locals.write(0, &[Locals { filter: both.filter, count: both.count, ..new }])
            && self.locals.write(0, &[new])
    }

    /// The counters, summed over the CPUs; the index is the [`Counter`].
    pub fn counters(&self) -> Result<Vec<u64>> {
        (0..Counter::FAST as u32).map(|index| self.count(index)).collect()
    }

    /// One of them.
    pub fn counter(&self, counter: Counter) -> Result<u64> {
        self.count(counter as u32)
    }

    /// Answers to queries with a client subnet, of IPv4 and of IPv6.
    pub fn subnets(&self) -> Result<[u64; 2]> {
        Ok([self.count(Counter::subnet_slot(1))?, self.count(Counter::subnet_slot(2))?])
    }

    /// An element of COUNTERS, summed over the CPUs.
    fn count(&self, index: u32) -> Result<u64> {
        let mut per_cpu = vec![0u64; self.cpus];
        sys::lookup_words(self.map(map::COUNTERS)?, index, &mut per_cpu).context("cannot read COUNTERS")?;
        Ok(per_cpu.iter().fold(0u64, |sum, &count| sum.wrapping_add(count)))
    }

    /// A map.
    pub fn map(&self, name: &str) -> Result<BorrowedFd<'_>> {
        find(&self.maps, name)
    }
}

/// Answers as the words they are.
fn words_of(answers: &[router_common::abi::Answer]) -> &[u64] {
    // SAFETY: `Answer` is a transparent u64.
    unsafe { std::slice::from_raw_parts(answers.as_ptr().cast(), answers.len()) }
}

fn find<'m>(maps: &'m HashMap<String, OwnedFd>, name: &str) -> Result<BorrowedFd<'m>> {
    maps.get(name).map(AsFd::as_fd).ok_or_else(|| anyhow!("the map {name} is missing"))
}

/// Maps an array of `T` that is called `name`.
pub(super) fn mapped<T: Words>(map: BorrowedFd<'_>, name: &str) -> Result<MappedArray<T>> {
    let info = sys::map_info(map).with_context(|| format!("cannot ask for {name}"))?;
    if info.value_size as usize != size_of::<T>() || info.flags & MMAPABLE == 0 {
        bail!("{name} is another kind of map: {info:?}");
    }
    MappedArray::new(map, info.max_entries).with_context(|| format!("cannot map {name}"))
}
