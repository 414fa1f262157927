//! The kernel side of the agent: loads the XDP program, attaches it, writes its tables, reads its counters.
//! The only module that names aya.
//!
//! The program and its maps are pinned and attached by a pinned link (`pins`), so answers go on when the
//! agent ends in whatever way but [`Datapath::detach`]. The next agent **adopts** them when it was built with
//! the same object and its tables fit, or else **replaces** the program in the link; both without a query
//! lost. How tables change under a running program is in `instance`.
//!
//! All of it concerns the network and mount namespaces of the calling thread.

mod addresses;
mod attach;
mod capacity;
mod ethtool;
mod figures;
mod instance;
mod interface;
mod mapped;
mod netdev;
pub mod object;
mod pins;
mod program;
mod reports;
mod start;
pub mod survey;
mod sys;
mod tallies;
mod tap;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use router_common::abi::{self, Control};
use router_common::diff::Operation;
use router_common::tables::Tables;

pub use self::attach::Attached;
pub use self::capacity::{Capacity, OutOfRoom};
pub use self::figures::MapMemory;
pub use self::interface::Mode;
pub use self::pins::{default_directory, prepare};
pub use self::reports::Reports;
pub use self::sys::{interface_name, monotonic};
pub use self::tallies::{Mark, Tallied, Tallies, Totals};
pub use self::tap::{Missed, Tap};

use self::instance::{Instance, Placement};
use self::interface::Interface;
use self::pins::{Directory, Set};
use self::tallies::Ledger;
use crate::settings::{Stale, XdpMode};

/// How the datapath is set up.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    /// Interfaces to answer on, at most [`abi::MAX_INTERFACES`].
    pub interfaces: &'a [String],
    /// Where the program is to run.
    pub mode: XdpMode,
    /// Where pins go: an absolute path, on a bpffs or where one can be mounted ([`default_directory`]).
    pub pin_dir: PathBuf,
    /// What happens when the lease lapses.
    pub stale: Stale,
    /// The first lease; renewed with [`Datapath::renew_lease`].
    pub lease: Duration,
}

/// How [`Datapath::open`] came to a running program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Start {
    /// Nothing was attached.
    Fresh,
    /// An earlier agent's program and maps go on, with the new tables.
    Adopted,
    /// An earlier agent's program was exchanged, for the reason given.
    Replaced(String),
}

/// Why tables could not be changed. What answered before goes on answering.
#[derive(Debug)]
pub enum Error {
    /// They do not fit the maps: [`Datapath::replace`] makes larger ones.
    OutOfRoom(OutOfRoom),
    /// The kernel refused.
    Kernel(anyhow::Error),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::OutOfRoom(room) => room.fmt(f),
            Error::Kernel(error) => write!(f, "{error:#}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Self {
        Error::Kernel(error)
    }
}

/// What [`Datapath::apply`] wrote.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Applied {
    /// Credits.
    pub credits: u32,
    /// Lines.
    pub lines: u32,
    /// Cells.
    pub cells: u32,
    /// Answers.
    pub answers: u32,
}

/// A running program, its maps, and the interfaces it answers on.
///
/// Dropping it is [`Datapath::keep`].
pub struct Datapath {
    instance: Instance,
    /// Where it is pinned; `None` for [`Datapath::unattached`].
    pinned: Option<Pinned>,
    /// Interfaces as the program sees them.
    places: Vec<abi::Interface>,
    attached: Vec<Attached>,
    mode: XdpMode,
    stale: Stale,
    ledger: Ledger,
}

struct Pinned {
    directory: Directory,
    set: Set,
    links: Links,
}

impl Pinned {
    /// Whether our link is on an interface. Its index does not tell: a new interface can get the old one's.
    fn is_attached(&self, interface: &Interface) -> bool {
        self.links.iter().any(|(index, link)| {
            *index == interface.index
                && sys::link_info(link.as_fd()).is_ok_and(|info| info.interface == interface.index)
        })
    }

    /// [`Datapath::reclaim`], for what is pinned.
    fn reclaim(&mut self, instance: &Instance) -> Result<()> {
        let ours = |set: &Set| {
            let program = set.program().ok()?;
            let info = sys::program_info(program.as_fd()).ok()?;
            (info.id == instance.program_id).then_some(())
        };
        if ours(&self.set).is_none() {
            self.set = self.directory.pin_set(program::build_id(), &instance.program, instance.maps())?;
        }
        let id = |link: &OwnedFd| sys::link_info(link.as_fd()).ok().map(|info| info.id);
        for other in self.directory.links()? {
            if !self.links.iter().any(|(_, link)| id(link) == id(&other.link)) {
                self.directory.remove_link(&other.link, other.interface)?;
            }
        }
        exchange(&self.links, instance, instance)
    }

    /// Attaches to an interface that was made anew; `old_index` is what it had before.
    fn reattach(
        &mut self,
        instance: &Instance,
        old_index: u32,
        interface: &Interface,
        mode: XdpMode,
    ) -> Result<Attached> {
        attach::refuse_foreign(interface, &[])?;
        // The old link went with the old interface; its pin is left and would be in the way.
        if let Some(at) = self.links.iter().position(|(index, _)| *index == old_index) {
            let (_, old) = self.links.swap_remove(at);
            self.directory.remove_link(&old, old_index)?;
        }
        let (link, attached) = attach::attach(instance.program.as_fd(), interface, mode)?;
        self.directory.pin_link(&link, interface.index)?;
        self.links.push((interface.index, link));
        Ok(attached)
    }
}

/// Links, by the index of their interface.
type Links = Vec<(u32, OwnedFd)>;

impl Datapath {
    /// Brings `tables` into service on the interfaces: adopts what an earlier agent left or loads the
    /// program. A program is attached only when it can answer.
    ///
    /// # Errors
    /// When an interface is missing or has somebody else's program, another agent runs, or the kernel
    /// refuses. What was attached before goes on, and nothing new is left behind.
    pub fn open(options: &Options<'_>, tables: &Tables) -> Result<(Self, Start)> {
        Self::open_after(options, tables, Vec::new(), None)
    }

    /// [`Self::open`], by an agent that has kept what these generations counted: in [`Self::tallies`] they are left
    /// out, when they are still in the maps.
    ///
    /// With a lock, while the agent before still holds it on the pins and lends it ([`Self::lend`]). It must
    /// change nothing meanwhile but the lease; when this fails, or what comes of it ends early, it must
    /// [`Self::reclaim`].
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_after(
        options: &Options<'_>,
        tables: &Tables,
        counted: Vec<Mark>,
        lock: Option<OwnedFd>,
    ) -> Result<(Self, Start)> {
        start::open(options, tables, Ledger::after(counted), lock)
    }

    /// As [`Self::open`], with another agent's lock.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn inherit(options: &Options<'_>, tables: &Tables, lock: OwnedFd) -> Result<(Self, Start)> {
        Self::open_after(options, tables, Vec::new(), Some(lock))
    }

    /// The lock on the pins, for [`Self::inherit`]; `None` when nothing is pinned.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn lend(&self) -> std::io::Result<Option<OwnedFd>> {
        self.pinned.as_ref().map(|pinned| pinned.directory.lend()).transpose()
    }

    /// Takes everything back after another agent that was lent the lock has ended, however far it came: our program is
    /// in our links, our maps are pinned, `tables` answer, and what it made is gone.
    ///
    /// # Errors
    /// When the kernel refuses; what answered before goes on as far as it did.
    pub fn reclaim(&mut self, tables: &Tables) -> Result<()> {
        if let Some(pinned) = &mut self.pinned {
            pinned.reclaim(&self.instance)?;
        }
        self.instance.distrust();
        match self.install(tables) {
            Err(Error::OutOfRoom(_)) => self.replace(tables)?,
            other => other?,
        }
        match &self.pinned {
            Some(pinned) => pinned.directory.remove_unused_sets(Some(&pinned.set)),
            None => Ok(()),
        }
    }

    /// Loads the program and installs tables without attaching or pinning anything: for
    /// `BPF_PROG_TEST_RUN`. It ends with the value. There is no lease, so answers count as stale until
    /// [`Self::renew_lease`].
    pub fn unattached(tables: &Tables, capacity: &Capacity, interfaces: &[abi::Interface]) -> Result<Self> {
        let mut instance = Instance::new(program::load(capacity, None)?)?;
        let stale = Stale::Serve;
        let mut ledger = Ledger::default();
        instance.install(tables, Placement { interfaces, flags: stale_flag(stale) }, 0, &mut ledger)?;
        Ok(Self {
            instance,
            pinned: None,
            places: interfaces.to_vec(),
            attached: Vec::new(),
            mode: XdpMode::Auto,
            stale,
            ledger,
        })
    }

    /// The interfaces, in the order of the configuration.
    pub fn interfaces(&self) -> &[Attached] {
        &self.attached
    }

    /// Id of the program, another one after [`Self::replace`].
    pub fn program_id(&self) -> u32 {
        self.instance.program_id
    }

    /// The way to samples of what the program does. There is to be one at a time.
    ///
    /// # Errors
    /// When a map cannot be opened.
    pub fn tap(&self) -> Result<Tap> {
        Tap::new(&self.instance)
    }

    /// What the program reports, for a logger; `None` when it is not pinned. There is to be one reader at a time.
    ///
    /// # Errors
    /// When the ring cannot be opened.
    pub fn reports<L: log::Log>(&self, logger: L) -> Result<Option<Reports<L>>> {
        self.pinned.as_ref().map(|pinned| Reports::open(&pinned.set.path, logger)).transpose()
    }

    /// Elements of each table that fit without [`Self::replace`].
    pub fn capacity(&self) -> Capacity {
        self.instance.capacity()
    }

    /// The program.
    pub fn program(&self) -> BorrowedFd<'_> {
        self.instance.program.as_fd()
    }

    /// Writes a whole generation and switches to it in one step. Blocks for some RCU grace periods (tens of
    /// milliseconds each).
    ///
    /// # Errors
    /// [`Error::OutOfRoom`]: use [`Self::replace`]. After any error the old generation answers.
    pub fn install(&mut self, tables: &Tables) -> Result<(), Error> {
        warn(self.refresh().map(drop));
        let placement = Placement { interfaces: &self.places, flags: stale_flag(self.stale) };
        self.instance.install(tables, placement, 0, &mut self.ledger).map(drop)
    }

    /// Makes larger maps and another instance of the program, installs `tables` there and exchanges the
    /// program in the links. Each packet meets the old program or the new one; counters go on.
    ///
    /// # Errors
    /// After any error the old instance answers on all interfaces.
    pub fn replace(&mut self, tables: &Tables) -> Result<()> {
        warn(self.refresh().map(drop));
        let capacity = Capacity::for_tables(tables);
        let placement = Placement { interfaces: &self.places, flags: stale_flag(self.stale) };
        let serial = self.active_generation();
        let deadline = self.instance.control().deadline();
        let Some(pinned) = &mut self.pinned else {
            let mut instance = Instance::new(program::load(&capacity, None)?)?;
            instance.install(tables, placement, serial, &mut self.ledger)?;
            instance.set_deadline(deadline);
            fold_last(&mut self.ledger, &self.instance);
            self.instance = instance;
            return Ok(());
        };
        let counters = pinned.set.path.join(abi::map::COUNTERS);
        let (mut instance, set) = start::pin_new(&pinned.directory, &capacity, Some(counters))?;
        let exchanged = (|| {
            instance.install(tables, placement, serial, &mut self.ledger)?;
            start::follow_addresses(&instance, &self.places)?;
            instance.set_deadline(deadline);
            exchange(&pinned.links, &self.instance, &instance)
        })();
        if let Err(error) = exchanged {
            pinned.directory.remove_set(&set);
            return Err(error);
        }
        fold_last(&mut self.ledger, &self.instance);
        let old = std::mem::replace(&mut pinned.set, set);
        pinned.directory.remove_set(&old);
        self.instance = instance;
        Ok(())
    }

    /// Looks at the interfaces again: takes note of a changed hardware address, and attaches to an interface
    /// that was made anew under its old name. Returns whether something changed; the next [`Self::install`]
    /// makes it count, until then such frames pass. An interface that is away is left alone.
    ///
    /// # Errors
    /// When an interface that came back cannot be attached to; the others have been looked at.
    pub fn refresh(&mut self) -> Result<bool> {
        let mut changed = false;
        let mut first_error = self.follow_addresses();
        for (place, attached) in self.places.iter_mut().zip(&mut self.attached) {
            let Ok(now) = Interface::find(&attached.name) else {
                if !std::mem::replace(&mut attached.away, true) {
                    log::warn!("{} is gone; it is attached to when it comes back", attached.name);
                }
                continue;
            };
            if let Some(pinned) = &mut self.pinned
                && !pinned.is_attached(&now)
            {
                changed = true;
                match pinned.reattach(&self.instance, place.index, &now, self.mode) {
                    Ok(new) => {
                        log::info!("{} was made anew: attached in {} mode", new.name, new.mode);
                        *attached = new;
                    }
                    Err(error) => {
                        first_error = first_error.and(Err(error));
                        continue;
                    }
                }
            }
            let new = abi::Interface { index: now.index, mac: now.mac, pad: [0; 2] };
            changed |= *place != new;
            *place = new;
            attached.mac = now.mac;
            attached.away = false;
        }
        first_error.map(|()| changed)
    }

    /// Takes note of the machine's addresses, whose packets pass ([`abi::Locals`]); at once, whatever is
    /// installed.
    fn follow_addresses(&self) -> Result<()> {
        if self.pinned.is_some() {
            start::follow_addresses(&self.instance, &self.places)?;
        }
        Ok(())
    }

    /// Changes the active generation, operation by operation in the order given: memory writes, no system
    /// call. Cells and lines that are written must be free: unused since the last [`Self::grace`].
    ///
    /// # Errors
    /// [`Error::OutOfRoom`] before anything is written.
    pub fn apply(&mut self, operations: &[Operation]) -> Result<Applied, Error> {
        self.instance.apply(operations)
    }

    /// Waits until no query that began before the call can still be reading: what [`Self::apply`] made
    /// unreachable before may be written again. Takes milliseconds to tens of them.
    pub fn grace(&self) {
        self.instance.grace();
    }

    /// Puts the end of the lease `lease` from now, rounded up by at most 1.1 s.
    pub fn renew_lease(&self, lease: Duration) {
        self.instance.renew_lease(lease);
    }

    /// Sets what happens when the lease lapses.
    pub fn set_stale(&mut self, stale: Stale) {
        self.stale = stale;
        self.instance.set_flags(stale_flag(stale));
    }

    /// What was counted since the program was loaded, summed over CPUs; the index is the
    /// [`router_common::counter::Counter`].
    pub fn counters(&self) -> Result<Vec<u64>> {
        self.instance.counters()
    }

    /// How often, and when last, each endpoint was answered with.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn tallies(&self) -> Result<Tallies> {
        self.ledger.with_live(&self.instance)
    }

    /// Serial number of the generation that answers.
    pub fn active_generation(&self) -> u64 {
        self.instance.generation().map_or(0, |generation| generation.serial)
    }

    /// Takes the program off the interfaces and removes every pin, and the bpffs if an agent mounted it.
    ///
    /// # Errors
    /// When something could not be removed; the rest is removed all the same.
    pub fn detach(self) -> Result<()> {
        self.detach_and_count().0
    }

    /// [`Self::detach`], and what was counted up to the last answer.
    pub fn detach_and_count(mut self) -> (Result<()>, Result<Tallies>) {
        let detached = match self.pinned.take() {
            None => Ok(()),
            Some(Pinned { directory, set: _, links }) => remove(directory, links),
        };
        self.instance.grace();
        (detached, self.tallies())
    }

    /// Lets go of it: answers go on, until the lease lapses and as long as it says.
    pub fn keep(self) {}
}

/// What is attached from a pin directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leftover {
    /// The interface's name, when it can be told.
    pub name: Option<String>,
    /// Its index.
    pub index: u32,
    /// Id of the program on it.
    pub program: u32,
}

/// What is attached from `pin_dir` in this network namespace, whether its agent still runs or not. Only
/// looks.
///
/// # Errors
/// When the pins cannot be read.
pub fn leftovers(pin_dir: &Path) -> Result<Vec<Leftover>> {
    let links = pins::links_left(pin_dir)?;
    Ok(links
        .iter()
        .map(|link| Leftover {
            name: sys::interface_name(link.interface),
            index: link.interface,
            program: link.program,
        })
        .collect())
}

/// Detaches and removes what [`leftovers`] tells of, and pins without links. Returns how many interfaces
/// were freed.
///
/// # Errors
/// When an agent runs there, or something could not be removed.
pub fn remove_leftovers(pin_dir: &Path) -> Result<usize> {
    let Some(directory) = Directory::open_existing(pin_dir)? else { return Ok(0) };
    let links: Vec<_> = directory.links()?.into_iter().map(|link| (link.interface, link.link)).collect();
    let freed = links.len();
    remove(directory, links)?;
    Ok(freed)
}

/// Removes links first: until the last one is gone its set counts.
fn remove(directory: Directory, links: Links) -> Result<()> {
    let mut first_error = Ok(());
    for (interface, link) in links {
        first_error = first_error.and(directory.remove_link(&link, interface));
    }
    first_error = first_error.and(directory.remove_unused_sets(None));
    first_error.and(directory.close())
}

/// Exchanges the program in every link, or in none. An interface that went away is left out.
fn exchange(links: &[(u32, OwnedFd)], old: &Instance, new: &Instance) -> Result<()> {
    for (done, (interface, link)) in links.iter().enumerate() {
        match sys::update_link(link.as_fd(), new.program.as_fd()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => {
                log::warn!("the interface with index {interface} is gone");
            }
            Err(error) => {
                for (_, link) in links.iter().take(done) {
                    warn(sys::update_link(link.as_fd(), old.program.as_fd()).map_err(Into::into));
                }
                return Err(error).with_context(|| {
                    format!("cannot exchange the program on the interface with index {interface}")
                });
            }
        }
    }
    Ok(())
}

/// Takes in what an instance has counted that is in no link any more.
fn fold_last(ledger: &mut Ledger, old: &Instance) {
    old.grace();
    ledger.fold(old, u32::from(old.control().half().min(1)));
}

fn stale_flag(stale: Stale) -> u32 {
    match stale {
        Stale::Serve => 0,
        Stale::Pass => Control::STALE_PASS,
    }
}

/// Tells of a failure that nothing is to fail for.
fn warn(result: Result<()>) {
    if let Err(error) = result {
        log::warn!("{error:#}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datapath_can_be_handed_to_another_thread_and_shared() {
        fn is_send_and_sync<T: Send + Sync>() {}
        is_send_and_sync::<Datapath>();
    }
}
