//! The agent's side of sampling: which queries the fast path copies, and the copies.
//!
//! A tap has descriptors and mappings of its own, so that it needs nothing of the [`super::Datapath`] it was made
//! from. It belongs to one instance of the program: after an exchange ([`super::Datapath::program_id`] is
//! another) a new one is made.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use aya::maps::{Map, MapData, RingBuf};
use router_common::abi::{Control, map};
use router_common::trace::{RULES, Rule, State};

use super::instance::{Instance, mapped};
use super::mapped::MappedArray;
use super::sys;

/// Words of a [`State`].
const STATE_WORDS: usize = size_of::<State>() / size_of::<u64>();

/// See the module.
pub struct Tap {
    program: u32,
    control: MappedArray<u64>,
    rules: MappedArray<Rule>,
    state: OwnedFd,
    ring: RingBuf<MapData>,
    cpus: usize,
}

/// What the fast path did not hand out for a rule, since the program was loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Missed {
    /// Over the rule's limit.
    pub withheld: u64,
    /// The ring was full.
    pub lost: u64,
}

impl Tap {
    /// Opens the maps of an instance. Nothing is sampled at first, whatever was before.
    pub(super) fn new(instance: &Instance) -> Result<Self> {
        let find = |name: &str| -> Result<BorrowedFd<'_>> {
            let found = instance.maps().find(|(held, _)| *held == name);
            found.map(|(_, map)| map.as_fd()).ok_or_else(|| anyhow!("the map {name} is missing"))
        };
        let own = |name| -> Result<OwnedFd> { Ok(find(name)?.try_clone_to_owned()?) };
        let rules = mapped::<Rule>(find(map::TRACE_RULES)?, map::TRACE_RULES)?;
        if rules.len() as usize != RULES {
            bail!("{} has {} rules, this agent knows {RULES}", map::TRACE_RULES, rules.len());
        }
        let ring = MapData::from_fd(own(map::TRACE_RING)?).context("cannot ask for the ring")?;
        let ring = RingBuf::try_from(Map::RingBuf(ring)).context("cannot map the ring")?;
        let cpus = aya::util::nr_cpus().map_err(|(what, error)| anyhow!("cannot read {what}: {error}"))?;
        let tap = Self {
            program: instance.program_id,
            control: mapped(find(map::CONTROL)?, map::CONTROL)?,
            rules,
            state: own(map::TRACE_STATE)?,
            ring,
            cpus,
        };
        tap.switch(false);
        for index in 0..RULES {
            tap.set(index, &Rule::OFF, Duration::ZERO);
        }
        Ok(tap)
    }

    /// The instance it belongs to.
    pub fn program_id(&self) -> u32 {
        self.program
    }

    /// Whether rules are looked at.
    pub fn switch(&self, on: bool) {
        self.control.exchange(0, |old| {
            let old = Control(old);
            let flags = if on { old.flags() | Control::TRACE } else { old.flags() & !Control::TRACE };
            Control::new(old.half(), flags, old.deadline()).0
        });
    }

    /// Sets a rule, or sets it again: it holds for `lease` from now, rounded up by at most 1.1 s.
    pub fn set(&self, index: usize, rule: &Rule, lease: Duration) {
        let index = index as u32;
        let lease = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
        let deadline = u32::try_from(sys::monotonic().saturating_add(lease) >> 30).unwrap_or(u32::MAX);
        let new = Rule { deadline, ..*rule };
        let before = self.rules.read(index);
        let unchanged = before.is_some_and(|before| Rule { deadline, ..before } == new);
        // Off while it is being written, unless only the deadline is another.
        let written = (unchanged || self.rules.write(index, &[Rule { threshold: 0, ..new }]))
            && self.rules.write(index, &[new]);
        debug_assert!(written, "there are {RULES} rules");
    }

    /// Gives each copy that is there to `each`, at most `most` of them. How many.
    pub fn read(&mut self, most: usize, mut each: impl FnMut(&[u8])) -> usize {
        for count in 0..most {
            match self.ring.next() {
                Some(record) => each(&record),
                None => return count,
            }
        }
        most
    }

    /// What was not handed out for a rule.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn missed(&self, index: usize) -> Result<Missed> {
        let mut words = vec![0; self.cpus * STATE_WORDS];
        sys::lookup_words(self.state.as_fd(), index as u32, &mut words).context("cannot read TRACE_STATE")?;
        let states = words.chunks_exact(STATE_WORDS);
        Ok(states.fold(Missed::default(), |sum, words| match *words {
            [_, _, withheld, lost] => {
                Missed { withheld: sum.withheld.wrapping_add(withheld), lost: sum.lost.wrapping_add(lost) }
            }
            _ => sum,
        }))
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.switch(false);
    }
}
