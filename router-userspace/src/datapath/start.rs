//! How [`super::Datapath::open`] comes to a running program: from nothing, or from what an earlier agent
//! left.
//!
//! The order makes every state on the way recoverable: pin, fill, and only then touch a link.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use router_common::abi::{self, HALVES, MAX_INTERFACES};
use router_common::tables::Tables;

use super::addresses;
use super::attach::{self, Attached};
use super::capacity::Capacity;
use super::instance::{Instance, Placement};
use super::interface::Interface;
use super::pins::{Directory, PinnedLink, Set};
use super::tallies::Ledger;
use super::{Datapath, Links, Options, Pinned, Start, program, stale_flag, sys, warn};

/// [`Datapath::open_after`].
pub fn open(
    options: &Options<'_>,
    tables: &Tables,
    mut ledger: Ledger,
    lock: Option<OwnedFd>,
) -> Result<(Datapath, Start)> {
    let interfaces = find_interfaces(options.interfaces)?;
    let places: Vec<abi::Interface> = interfaces
        .iter()
        .map(|interface| abi::Interface { index: interface.index, mac: interface.mac, pad: [0; 2] })
        .collect();
    let directory = match lock {
        Some(lock) => Directory::inherit(&options.pin_dir, lock)?,
        None => Directory::open(&options.pin_dir)?,
    };
    let (mut kept, mut made) = (Links::new(), Links::new());
    let started = (|| {
        let old_links = directory.links()?;
        for interface in &interfaces {
            attach::refuse_foreign(interface, &old_links)?;
        }
        let Begun { mut instance, set, start, old } = begin(&directory, &old_links, tables)?;
        let placement = Placement { interfaces: &places, flags: stale_flag(options.stale) };
        instance.install(tables, placement, 0, &mut ledger)?;
        follow_addresses(&instance, &places)?;
        instance.renew_lease(options.lease);
        let attached = connect(options, &interfaces, &directory, &instance, old_links, &mut kept, &mut made)?;
        if let Some(old) = old {
            old.grace();
            (0..HALVES as u32).for_each(|half| ledger.fold(&old, half));
        }
        directory.remove_unused_sets(Some(&set))?;
        Ok((instance, set, start, attached))
    })();
    match started {
        Ok((instance, set, start, attached)) => {
            kept.append(&mut made);
            let pinned = Some(Pinned { directory, set, links: kept });
            let (mode, stale) = (options.mode, options.stale);
            Ok((Datapath { instance, pinned, places, attached, mode, stale, ledger }, start))
        }
        Err(error) => {
            for (interface, link) in made {
                warn(directory.remove_link(&link, interface));
            }
            warn(directory.remove_unused_sets(None));
            warn(directory.close());
            Err(error)
        }
    }
}

/// Has packets from the machine's own addresses and from broadcast addresses pass.
///
/// # Errors
/// When the kernel does not tell the addresses.
pub fn follow_addresses(instance: &Instance, places: &[abi::Interface]) -> Result<()> {
    let indices: Vec<u32> = places.iter().map(|place| place.index).collect();
    let locals = addresses::locals(&indices).context("cannot ask for the machine's addresses")?;
    if instance.set_locals(&locals) && locals.len() > abi::MAX_LOCALS {
        log::warn!(
            "the machine has {} addresses and broadcast addresses; the fast path leaves packets from {} of them \
             to the kernel and answers the others",
            locals.len(),
            abi::MAX_LOCALS
        );
    }
    Ok(())
}

/// Loads the program and pins it as a new set. `counters` is the pin of the COUNTERS to go on with.
pub fn pin_new(
    directory: &Directory,
    capacity: &Capacity,
    counters: Option<PathBuf>,
) -> Result<(Instance, Set)> {
    let instance = Instance::new(program::load(capacity, counters)?)?;
    let set = directory.pin_set(program::build_id(), &instance.program, instance.maps())?;
    Ok((instance, set))
}

/// What an agent goes on with.
struct Begun {
    instance: Instance,
    set: Set,
    start: Start,
    /// What answers until it is exchanged, when its tallies can be read.
    old: Option<Instance>,
}

/// Opens the set that answers now, when this agent can go on with it, or makes a new one.
fn begin(directory: &Directory, links: &[PinnedLink], tables: &Tables) -> Result<Begun> {
    let set = directory.current(links)?;
    // Sets that no link holds are what a crash left; they only take memory.
    directory.remove_unused_sets(None)?;
    let start = if links.is_empty() {
        Start::Fresh
    } else {
        match usable(set.as_ref(), tables) {
            Ok((instance, set)) => return Ok(Begun { instance, set, start: Start::Adopted, old: None }),
            Err(reason) => Start::Replaced(format!("{reason:#}")),
        }
    };
    // Tallies mean the same in every build with this ABI.
    let old = set.as_ref().filter(|set| set.abi == abi::ABI_VERSION).and_then(|set| opened(set).ok());
    // Counters mean the same in the same build only.
    let counters = set
        .filter(|set| set.abi == abi::ABI_VERSION && set.build == program::build_id())
        .map(|set| set.path.join(abi::map::COUNTERS))
        .filter(|pin| pin.exists());
    let (instance, set) = pin_new(directory, &Capacity::for_tables(tables), counters)?;
    Ok(Begun { instance, set, start, old })
}

/// Opens a pinned set when this agent can go on with it; else says why not.
fn usable(set: Option<&Set>, tables: &Tables) -> Result<(Instance, Set)> {
    let set = set.context("the maps of the attached program are not pinned any more")?;
    if set.abi != abi::ABI_VERSION {
        bail!("its tables have ABI version {}, this agent's {}", set.abi, abi::ABI_VERSION);
    }
    if set.build != program::build_id() {
        bail!("it is another build of the program");
    }
    let instance = opened(set)?;
    instance.capacity().fits(tables)?;
    Ok((instance, set.clone()))
}

fn opened(set: &Set) -> Result<Instance> {
    let program = set.program().context("its program cannot be opened")?;
    let maps = set.maps().context("its maps cannot be opened")?.into_iter().collect();
    Instance::new(program::Loaded { program, maps })
}

/// Brings the program onto each interface: into the link that is there, or with a new one. Links of other
/// interfaces are removed. What was there goes to `kept`, new links to `made`, also when this fails.
fn connect(
    options: &Options<'_>,
    interfaces: &[Interface],
    directory: &Directory,
    instance: &Instance,
    old: Vec<PinnedLink>,
    kept: &mut Links,
    made: &mut Links,
) -> Result<Vec<Attached>> {
    let mut unsuited = Vec::new();
    for old in old {
        match interfaces.iter().find(|interface| interface.index == old.interface) {
            Some(interface) if attach::suits(interface, options.mode) => {
                if old.program != instance.program_id {
                    sys::update_link(old.link.as_fd(), instance.program.as_fd())
                        .with_context(|| format!("cannot exchange the program on {}", interface.name))?;
                }
                kept.push((old.interface, old.link));
            }
            Some(interface) => {
                // Native and generic exclude each other, so there is a moment with neither.
                log::warn!("{}: detached to attach it in another mode", interface.name);
                unsuited.push(old);
            }
            None => unsuited.push(old),
        }
    }
    for old in unsuited {
        directory.remove_link(&old.link, old.interface)?;
    }
    let mut attached = Vec::new();
    for interface in interfaces {
        if kept.iter().any(|(index, _)| *index == interface.index) {
            attached.push(attach::adopted(interface, options.mode));
            continue;
        }
        let (link, new) = attach::attach(instance.program.as_fd(), interface, options.mode)?;
        let pinned = directory.pin_link(&link, interface.index);
        made.push((interface.index, link));
        pinned?;
        attached.push(new);
    }
    Ok(attached)
}

/// Finds the interfaces of a configuration.
fn find_interfaces(names: &[String]) -> Result<Vec<Interface>> {
    if names.is_empty() {
        bail!("no interface to attach to");
    }
    if names.len() > MAX_INTERFACES {
        bail!("{} interfaces, at most {MAX_INTERFACES} can be attached to", names.len());
    }
    let mut found: Vec<Interface> = Vec::new();
    for name in names {
        let interface = Interface::find(name)?;
        if found.iter().any(|other| other.index == interface.index) {
            bail!("interface {name:?} is given twice");
        }
        found.push(interface);
    }
    Ok(found)
}
