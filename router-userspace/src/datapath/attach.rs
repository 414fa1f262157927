//! Attaching to interfaces: always by a bpf_link, native before generic, and never over somebody else's
//! program.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use anyhow::{Result, anyhow, bail};
use router_common::abi::PROGRAM;

use super::interface::{Interface, Mode};
use super::pins::PinnedLink;
use super::sys;
use crate::settings::XdpMode;

/// An interface that the program answers on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attached {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its hardware address: frames to another one pass.
    pub mac: [u8; 6],
    /// Where the program runs.
    pub mode: Mode,
    /// Why it does not run in the driver although that was tried first.
    pub why_not_native: Option<String>,
    /// Whether the interface is not there at present; it is attached to when it comes back.
    pub away: bool,
}

/// Attaches a program. The link detaches it when its last descriptor and pin go.
///
/// # Errors
/// When something else is attached, or no mode that is asked for works.
pub fn attach(program: BorrowedFd<'_>, interface: &Interface, mode: XdpMode) -> Result<(OwnedFd, Attached)> {
    let attached = |mode, why_not_native| Attached {
        name: interface.name.clone(),
        index: interface.index,
        mac: interface.mac,
        mode,
        why_not_native,
        away: false,
    };
    let native_error = if mode == XdpMode::Generic {
        None
    } else {
        match sys::create_link(program, interface.index, sys::XDP_NATIVE) {
            Ok(link) => return Ok((link, attached(Mode::Native, None))),
            Err(error) if is_occupied(&error) => return Err(occupied(interface)),
            Err(error) if mode == XdpMode::Native || !is_about_the_driver(&error) => {
                bail!("cannot attach to {} natively: {}", interface.name, explain(&error, interface));
            }
            Err(error) => Some(explain(&error, interface)),
        }
    };
    match sys::create_link(program, interface.index, sys::XDP_GENERIC) {
        Ok(link) => {
            if let Some(why) = &native_error {
                log::warn!("{}: XDP runs in generic mode, which is slower: {why}", interface.name);
            }
            Ok((link, attached(Mode::Generic, native_error)))
        }
        Err(error) if is_occupied(&error) => Err(occupied(interface)),
        Err(error) => {
            let why = explain(&error, interface);
            match native_error {
                Some(native) => {
                    bail!("cannot attach to {}: native: {native}; generic: {why}", interface.name)
                }
                None => bail!("cannot attach to {} in generic mode: {why}", interface.name),
            }
        }
    }
}

/// What an adopted link is like.
pub fn adopted(interface: &Interface, mode: XdpMode) -> Attached {
    let runs = if interface.native.is_some() { Mode::Native } else { Mode::Generic };
    Attached {
        name: interface.name.clone(),
        index: interface.index,
        mac: interface.mac,
        mode: runs,
        why_not_native: (runs == Mode::Generic && mode != XdpMode::Generic)
            .then(|| "the agent that attached it could not or was not to".to_owned()),
        away: false,
    }
}

/// Whether a link that is there is what the configuration asks for.
pub fn suits(interface: &Interface, mode: XdpMode) -> bool {
    match mode {
        XdpMode::Auto => true,
        XdpMode::Native => interface.native.is_some(),
        XdpMode::Generic => interface.generic.is_some(),
    }
}

/// Refuses an interface that has a program which is not held by one of our links.
///
/// # Errors
/// Says what it is and how to remove it.
pub fn refuse_foreign(interface: &Interface, links: &[PinnedLink]) -> Result<()> {
    let ours = links.iter().find(|link| link.interface == interface.index).map(|link| link.program);
    match interface.programs().find(|&(_, program)| Some(program) != ours) {
        None => Ok(()),
        Some((place, program)) => Err(foreign(interface, place, program)),
    }
}

/// The error for an interface that turned out to be occupied.
fn occupied(interface: &Interface) -> anyhow::Error {
    let now = Interface::find(&interface.name).unwrap_or_else(|_| interface.clone());
    match now.programs().next() {
        Some((place, program)) => foreign(&now, place, program),
        None => anyhow!("{} has another XDP program that just came or went: try again", interface.name),
    }
}

fn foreign(interface: &Interface, place: &str, program: u32) -> anyhow::Error {
    let name = &interface.name;
    let called = sys::program_by_id(program)
        .and_then(|program| sys::program_info(program.as_fd()))
        .map(|info| info.name)
        .unwrap_or_default();
    let link = sys::links()
        .unwrap_or_default()
        .into_iter()
        .find(|link| link.interface == interface.index && link.program == program);
    let whose = if called == PROGRAM {
        "it is xroute's, but not pinned in this pin directory: another agent runs, or ran with another one; "
    } else {
        ""
    };
    let remove = match link {
        Some(link) => format!(
            "a BPF link holds it: stop the process that owns link {id}, or `bpftool link detach id {id}`",
            id = link.id
        ),
        None => {
            let kind = match place {
                "native" => "xdp",
                "generic" => "xdpgeneric",
                _ => "xdpoffload",
            };
            format!("remove it with `ip link set dev {name} {kind} off`")
        }
    };
    anyhow!("{name} has a {place} XDP program already, {called:?} (id {program}): {whose}{remove}")
}

/// Another program, link or mode is on the interface.
fn is_occupied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

/// Errors of a driver that cannot do native XDP, or not as the interface is set up.
fn is_about_the_driver(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EOPNOTSUPP
                | libc::EINVAL
                | libc::ERANGE
                | libc::EMSGSIZE
                | libc::ENOSPC
                | libc::ENOMEM
                | libc::E2BIG
                | libc::ENODEV
        )
    )
}

fn explain(error: &io::Error, interface: &Interface) -> String {
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => "its driver has no XDP".to_owned(),
        Some(libc::EINVAL | libc::ERANGE | libc::EMSGSIZE) => format!(
            "its driver refuses XDP as the interface is set up (MTU {}, queues, offloads; the kernel's log says more): {error}",
            interface.mtu
        ),
        Some(libc::EPERM) => {
            "not permitted (root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, is needed)".to_owned()
        }
        _ => error.to_string(),
    }
}
