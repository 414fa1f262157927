//! A look at the kernel's side of the machine, for `xroute doctor`: nothing is attached, pinned or changed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use router_common::abi::{self, Control, map};
use router_common::tables::Tables;

use super::capacity::Capacity;
use super::interface::{self, HEADER, LINK_HEADER, attributes, u16_at, u32_at};
use super::{Datapath, netdev, pins, sys};

pub use super::ethtool::{Channels, Driver, channels, driver, features, hashes_ports};

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Switched on.
    pub up: bool,
    /// Switched on, and there is a carrier.
    pub running: bool,
    /// Largest packet above the link layer, octets.
    pub mtu: u32,
    /// What it is when it is no device (`veth`, `bridge`, `vlan`, …).
    pub kind: Option<String>,
    /// The interface it is made on, or its peer; of another namespace when `namespace` is given.
    pub lower: Option<u32>,
    /// How this namespace calls the one that `lower` is in.
    pub namespace: Option<i32>,
    /// The bridge or bond it is part of.
    pub master: Option<u32>,
    /// XDP programs on it: where (`native`, `generic`, `offloaded`), and which.
    pub programs: Vec<(&'static str, u32)>,
}

/// Every interface of the thread's network namespace.
///
/// # Errors
/// When the kernel does not answer.
pub fn links() -> io::Result<Vec<Link>> {
    let mut request = [0; HEADER + LINK_HEADER];
    request[0..4].copy_from_slice(&((HEADER + LINK_HEADER) as u32).to_ne_bytes());
    request[4..6].copy_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
    request[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    let mut found = Vec::new();
    sys::route_dump(&request, |messages| {
        let mut rest = messages;
        while let Some(len) = u32_at(rest, 0).map(|len| len as usize)
            && let Some(message) = rest.get(..len).filter(|message| message.len() >= HEADER)
        {
            match u16_at(message, 4) {
                Some(libc::RTM_NEWLINK) => found.extend(parse(message)),
                Some(kind) if matches!(i32::from(kind), libc::NLMSG_DONE | libc::NLMSG_ERROR) => {
                    return false;
                }
                _ => {}
            }
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
        true
    })?;
    Ok(found)
}

/// Reads an `RTM_NEWLINK`.
fn parse(message: &[u8]) -> Option<Link> {
    /// Attributes (`linux/if_link.h`).
    const KIND: u16 = 1;
    let flags = u32_at(message, HEADER + 8)?;
    let mut link = Link {
        index: u32_at(message, HEADER + 4)?,
        up: flags & libc::IFF_UP as u32 != 0,
        running: flags & libc::IFF_UP as u32 != 0 && flags & libc::IFF_LOWER_UP as u32 != 0,
        ..Link::default()
    };
    let text = |content: &[u8]| {
        String::from_utf8_lossy(content.split(|&octet| octet == 0).next().unwrap_or_default()).into_owned()
    };
    for (kind, content) in attributes(message.get(HEADER + LINK_HEADER..)?) {
        match kind {
            libc::IFLA_IFNAME => link.name = text(content),
            libc::IFLA_MTU => link.mtu = u32_at(content, 0)?,
            libc::IFLA_LINK => link.lower = u32_at(content, 0).filter(|&lower| lower != 0),
            libc::IFLA_LINK_NETNSID => link.namespace = u32_at(content, 0).map(|id| id as i32),
            libc::IFLA_MASTER => link.master = u32_at(content, 0),
            libc::IFLA_LINKINFO => {
                link.kind = attributes(content).find(|(kind, _)| *kind == KIND).map(|(_, kind)| text(kind));
            }
            libc::IFLA_XDP => link.programs = interface::xdp_programs(content),
            _ => {}
        }
    }
    Some(link)
}

/// Whether the interface's driver says that it has native XDP, and whether for frames in several buffers too;
/// `None` when the kernel does not say (before Linux 6.3).
pub fn native_xdp(index: u32) -> Option<(bool, bool)> {
    netdev::features(index).map(|has| (has & netdev::BASIC != 0, has & netdev::FRAGMENTS != 0))
}

/// The name of a program; `None` without the right to ask.
pub fn program_name(id: u32) -> Option<String> {
    let program = sys::program_by_id(id).ok()?;
    sys::program_info(program.as_fd()).ok().map(|info| info.name)
}

/// The id of the BPF link that holds a program on an interface, whatever process has it.
pub fn holding_link(index: u32, program: u32) -> Option<u32> {
    let links = sys::links().ok()?;
    links.into_iter().find(|link| link.interface == index && link.program == program).map(|link| link.id)
}

/// What is pinned for the thread's network namespace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pinned {
    /// `PIN_DIR/net-…`.
    pub directory: PathBuf,
    /// Whether an agent holds it.
    pub agent: bool,
    /// Links on interfaces that are there: index, program.
    pub links: Vec<(u32, u32)>,
    /// Sets of maps that a link holds.
    pub sets: Vec<PathBuf>,
    /// Sets of maps that none holds: left by a crash.
    pub unused: Vec<PathBuf>,
    /// Seconds until the lease lapses, negative since it has; `None` when nothing answers.
    pub lease: Option<i64>,
}

/// Looks at the pins; `None` when there are none.
///
/// # Errors
/// When they cannot be read, for want of rights first of all.
pub fn pinned(pin_dir: &Path) -> Result<Option<Pinned>> {
    let Some(directory) = pins::existing(pin_dir)? else { return Ok(None) };
    let held = File::open(&directory).with_context(|| format!("cannot open {}", directory.display()))?;
    // Taken for the moment of the question; an agent that starts just then waits for longer.
    let agent =
        !sys::try_lock(held.as_fd()).with_context(|| format!("cannot lock {}", directory.display()))?;
    drop(held);
    let links: Vec<(u32, u32)> =
        pins::links_left(pin_dir)?.iter().map(|link| (link.interface, link.program)).collect();
    let mut found = Pinned { directory, agent, links, ..Pinned::default() };
    for (set, program) in pins::sets_in(&found.directory)? {
        if program.is_some_and(|program| found.links.iter().any(|link| link.1 == program)) {
            found.lease = lease(&set);
            found.sets.push(set);
        } else {
            found.unused.push(set);
        }
    }
    Ok(Some(found))
}

/// Seconds that the lease in a set has left.
fn lease(set: &Path) -> Option<i64> {
    let control = sys::open_pin(&set.join(map::CONTROL)).ok()?;
    let mut word = [0];
    sys::lookup_words(control.as_fd(), 0, &mut word).ok()?;
    let end = u64::from(Control(word[0]).deadline()) << 30;
    i64::try_from((i128::from(end) - i128::from(sys::monotonic())) / 1_000_000_000).ok()
}

/// How many IPv4 addresses there are, of the machine and of broadcast, that the fast path leaves to the kernel
/// ([`abi::Locals`]); `None` when the kernel does not say.
pub fn locals() -> Option<usize> {
    super::addresses::locals(&[]).ok().map(|found| found.len())
}

/// Whether a path is on a bpffs; `false` when it does not exist.
pub fn is_bpffs(path: &Path) -> bool {
    sys::is_bpffs(path).unwrap_or(false)
}

/// The kinds of maps that the program uses or may use, and whether the kernel makes one.
pub fn try_maps() -> BTreeMap<&'static str, io::Result<()>> {
    /// `enum bpf_map_type`, and `BPF_F_MMAPABLE`.
    const ARRAY: u32 = 2;
    const PER_CPU_ARRAY: u32 = 6;
    const ARRAY_OF_MAPS: u32 = 12;
    const RING_BUFFER: u32 = 27;
    const MMAPABLE: u32 = 1 << 10;
    let outer = create(ARRAY, 4, 4, 1, 0, None)
        .and_then(|inner| create(ARRAY_OF_MAPS, 4, 4, 1, 0, Some(inner.as_fd())));
    [
        ("array of maps", outer.map(drop)),
        ("mappable array", create(ARRAY, 4, 8, 1, MMAPABLE, None).map(drop)),
        ("per-CPU array", create(PER_CPU_ARRAY, 4, 8, 1, 0, None).map(drop)),
        ("ring buffer", create(RING_BUFFER, 0, 0, page_size(), 0, None).map(drop)),
    ]
    .into_iter()
    .collect()
}

fn page_size() -> u32 {
    // SAFETY: asks for the system's page size.
    u32::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

fn create(
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
    inner: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    const MAP_CREATE: u32 = 0;
    let mut attr = [kind, key, value, entries, flags, inner.map_or(0, |map| map.as_raw_fd() as u32)];
    // SAFETY: the beginning of what BPF_MAP_CREATE asks for, without pointers.
    unsafe { sys::bpf(MAP_CREATE, &mut attr) }.map(sys::owned)
}

/// What the program made of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tried {
    /// The XDP action: 2 passed, 3 sent back.
    pub action: u32,
    /// The frame afterwards.
    pub frame: Vec<u8>,
    /// Best of some runs, nanoseconds, with what the kernel needs for a run.
    pub nanoseconds: u32,
}

/// Loads the program with these tables, attached to nothing, and has the kernel run it on a frame, which comes
/// in on interface 1 (`lo`) and is for the hardware address `mac`.
///
/// # Errors
/// When the kernel refuses the maps, the program or the run.
pub fn try_query(tables: &Tables, mac: [u8; 6], frame: &[u8]) -> Result<Tried> {
    /// `struct` of `BPF_PROG_TEST_RUN`.
    #[repr(C)]
    struct Attr {
        program: u32,
        result: u32,
        input_len: u32,
        output_len: u32,
        input: u64,
        output: u64,
        repeat: u32,
        duration: u32,
    }
    const TEST_RUN: u32 = 10;
    const RUNS: usize = 20;
    let place = abi::Interface { index: 1, mac, pad: [0; 2] };
    let datapath = Datapath::unattached(tables, &Capacity::for_tables(tables), &[place])?;
    datapath.renew_lease(std::time::Duration::from_secs(60));
    let mut tried = Tried { action: 0, frame: Vec::new(), nanoseconds: u32::MAX };
    for _ in 0..RUNS {
        let mut output = vec![0; frame.len() + 2048];
        let mut attr = Attr {
            program: datapath.program().as_raw_fd() as u32,
            result: 0,
            input_len: frame.len() as u32,
            output_len: output.len() as u32,
            input: frame.as_ptr() as u64,
            output: output.as_mut_ptr() as u64,
            repeat: 1,
            duration: 0,
        };
        // SAFETY: laid out as for BPF_PROG_TEST_RUN; both buffers are as long as said and outlive the call.
        unsafe { sys::bpf(TEST_RUN, &mut attr) }.context("the kernel does not run the program on a frame")?;
        output.truncate(attr.output_len as usize);
        tried =
            Tried { action: attr.result, frame: output, nanoseconds: tried.nanoseconds.min(attr.duration) };
    }
    Ok(tried)
}

/// How this namespace calls another, whose file is given; `None` when it has no name for it.
pub fn namespace_id(namespace: &File) -> Option<i32> {
    /// `RTM_GETNSID` and its attributes (`linux/net_namespace.h`).
    const GET_NAMESPACE: u16 = 90;
    const ID: u16 = 1;
    const FD: u16 = 3;
    let mut request = [0; HEADER + 4 + 8];
    let len = request.len() as u32;
    request[0..4].copy_from_slice(&len.to_ne_bytes());
    request[4..6].copy_from_slice(&GET_NAMESPACE.to_ne_bytes());
    request[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    request[HEADER + 4..HEADER + 6].copy_from_slice(&8u16.to_ne_bytes());
    request[HEADER + 6..HEADER + 8].copy_from_slice(&FD.to_ne_bytes());
    request[HEADER + 8..HEADER + 12].copy_from_slice(&namespace.as_raw_fd().to_ne_bytes());
    let answer = sys::route_request(&request).ok()?;
    if u16_at(&answer, 4).map(i32::from) == Some(libc::NLMSG_ERROR) {
        return None;
    }
    let len = u32_at(&answer, 0)? as usize;
    let id = attributes(answer.get(HEADER + 4..len)?).find(|(kind, _)| *kind == ID)?;
    u32_at(id.1, 0).map(|id| id as i32).filter(|&id| id >= 0)
}

/// The interfaces of another network namespace, whose file is given.
///
/// # Errors
/// Without the right to enter it.
pub fn links_in(namespace: &File) -> io::Result<Vec<Link>> {
    std::thread::scope(|scope| {
        let inside = scope.spawn(|| {
            // SAFETY: changes the network namespace of this new thread only.
            match unsafe { libc::setns(namespace.as_raw_fd(), libc::CLONE_NEWNET) } {
                0 => links(),
                _ => Err(io::Error::last_os_error()),
            }
        });
        inside.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_among_the_links() {
        let links = links().expect("every namespace has one");
        let loopback = links.iter().find(|link| link.index == 1).expect("lo");
        assert_eq!((loopback.name.as_str(), loopback.lower, loopback.kind.as_deref()), ("lo", None, None));
        assert!(loopback.mtu >= 1280);
    }

    #[test]
    fn our_own_namespace_has_its_interfaces_inside_too() {
        let own = File::open("/proc/thread-self/ns/net").expect("it is there");
        if let Ok(inside) = links_in(&own) {
            assert_eq!(inside, links().expect("they are told"));
        }
        let no_namespace = File::open("/proc/self/status").expect("it is there");
        assert_eq!(namespace_id(&no_namespace), None);
        assert!(links_in(&no_namespace).is_err());
    }

    #[test]
    fn a_link_message_cut_short_anywhere_is_no_panic() {
        let mut message = vec![0; HEADER + LINK_HEADER];
        message.extend([8, 0, 4, 0, 0xdc, 5, 0, 0]);
        message.extend([6, 0, 3, 0, b'x', 0, 0, 0]);
        assert_eq!(parse(&message).map(|link| (link.name, link.mtu)), Some(("x".into(), 1500)));
        for len in 0..message.len() {
            let _ = parse(&message[..len]);
        }
    }
}
