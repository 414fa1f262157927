//! A network interface as the kernel sees it: index, hardware address, and what XDP is on it.
//!
//! Asked by rtnetlink, because `/sys` may belong to another network namespace than the thread.

use std::io;

use anyhow::{Context, Result, bail};

use super::sys;

/// Where an XDP program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// In the driver.
    Native,
    /// In the stack, on a finished socket buffer.
    Generic,
}

impl std::fmt::Display for Mode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Mode::Native => "native",
            Mode::Generic => "generic",
        })
    }
}

/// An interface at the moment it was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its hardware address; zeros when it has none of six octets.
    pub mac: [u8; 6],
    /// Largest packet above the link layer, octets.
    pub mtu: u32,
    /// The program in the driver.
    pub native: Option<u32>,
    /// The program in the stack.
    pub generic: Option<u32>,
    /// The program in the device itself.
    pub offloaded: Option<u32>,
}

impl Interface {
    /// Asks for an interface of the thread's network namespace.
    ///
    /// # Errors
    /// When there is none of that name, or the kernel's answer makes no sense.
    pub fn find(name: &str) -> Result<Self> {
        let index = match sys::interface_index(name) {
            Ok(index) => index,
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {
                bail!("there is no interface {name:?} in this network namespace")
            }
            Err(error) => return Err(error).with_context(|| format!("cannot look up interface {name:?}")),
        };
        let answer =
            sys::route_request(&get_link(index)).with_context(|| format!("cannot ask for {name}"))?;
        let mut found = parse(&answer).with_context(|| format!("cannot ask for {name}"))?;
        name.clone_into(&mut found.name);
        Ok(found)
    }

    /// The programs on it, with where they run.
    pub fn programs(&self) -> impl Iterator<Item = (&'static str, u32)> {
        [("native", self.native), ("generic", self.generic), ("offloaded", self.offloaded)]
            .into_iter()
            .filter_map(|(place, program)| Some((place, program?)))
    }
}

/// Octets of `struct nlmsghdr` and of `struct ifinfomsg`.
pub(super) const HEADER: usize = 16;
pub(super) const LINK_HEADER: usize = 16;
/// Attributes inside `IFLA_XDP` (`linux/if_link.h`).
const XDP_ATTACHED: u16 = 2;
const XDP_PROGRAM: u16 = 4;
const XDP_NATIVE_PROGRAM: u16 = 5;
const XDP_GENERIC_PROGRAM: u16 = 6;
const XDP_OFFLOADED_PROGRAM: u16 = 7;

/// An `RTM_GETLINK` for one index.
fn get_link(index: u32) -> [u8; HEADER + LINK_HEADER] {
    let mut message = [0; HEADER + LINK_HEADER];
    message[0..4].copy_from_slice(&((HEADER + LINK_HEADER) as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&libc::RTM_GETLINK.to_ne_bytes());
    message[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    message[HEADER + 4..HEADER + 8].copy_from_slice(&index.to_ne_bytes());
    message
}

pub(super) fn u16_at(octets: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(octets.get(at..at + 2)?.try_into().ok()?))
}

pub(super) fn u32_at(octets: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(octets.get(at..at + 4)?.try_into().ok()?))
}

/// Splits a run of netlink attributes into type and content; what is cut short ends it.
pub(super) fn attributes(octets: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = octets;
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(rest, 0)?);
        let kind = u16_at(rest, 2)? & !(libc::NLA_F_NESTED as u16);
        let content = rest.get(4..len)?;
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, content))
    })
}

/// Reads an `RTM_NEWLINK`; the name is left to the caller, who knows it.
fn parse(message: &[u8]) -> io::Result<Interface> {
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer cannot be read");
    let kind = u16_at(message, 4).ok_or_else(bad)?;
    if i32::from(kind) == libc::NLMSG_ERROR {
        let code = u32_at(message, HEADER).ok_or_else(bad)? as i32;
        return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
    }
    if kind != libc::RTM_NEWLINK {
        return Err(bad());
    }
    let len = u32_at(message, 0).ok_or_else(bad)? as usize;
    let mut found = Interface {
        name: String::new(),
        index: u32_at(message, HEADER + 4).ok_or_else(bad)?,
        mac: [0; 6],
        mtu: 0,
        native: None,
        generic: None,
        offloaded: None,
    };
    for (kind, content) in attributes(message.get(HEADER + LINK_HEADER..len).ok_or_else(bad)?) {
        match kind {
            libc::IFLA_ADDRESS => found.mac = content.try_into().unwrap_or_default(),
            libc::IFLA_MTU => found.mtu = u32_at(content, 0).unwrap_or_default(),
            libc::IFLA_XDP => parse_xdp(content, &mut found),
            _ => {}
        }
    }
    Ok(found)
}

/// The programs that an `IFLA_XDP` names, with where they run.
pub(super) fn xdp_programs(content: &[u8]) -> Vec<(&'static str, u32)> {
    let mut found = Interface {
        name: String::new(),
        index: 0,
        mac: [0; 6],
        mtu: 0,
        native: None,
        generic: None,
        offloaded: None,
    };
    parse_xdp(content, &mut found);
    found.programs().collect()
}

fn parse_xdp(content: &[u8], found: &mut Interface) {
    let mut attached = 0;
    let mut single = None;
    for (kind, content) in attributes(content) {
        let program = u32_at(content, 0).filter(|&id| id != 0);
        match kind {
            XDP_ATTACHED => attached = content.first().copied().unwrap_or_default(),
            XDP_PROGRAM => single = program,
            XDP_NATIVE_PROGRAM => found.native = program,
            XDP_GENERIC_PROGRAM => found.generic = program,
            XDP_OFFLOADED_PROGRAM => found.offloaded = program,
            _ => {}
        }
    }
    // With one program an old kernel names it only once (XDP_ATTACHED_DRV, _SKB, _HW).
    match attached {
        1 => found.native = found.native.or(single),
        2 => found.generic = found.generic.or(single),
        3 => found.offloaded = found.offloaded.or(single),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_with_its_mtu_and_address() {
        let loopback = Interface::find("lo").expect("every namespace has one");
        assert_eq!(loopback.name, "lo");
        assert_eq!(loopback.mac, [0; 6]);
        assert!(loopback.mtu >= 1280, "{loopback:?}");
    }

    #[test]
    fn an_interface_that_is_not_there_is_named() {
        let error = Interface::find("nowhere0").expect_err("no such interface");
        assert!(error.to_string().contains("nowhere0"), "{error}");
        assert!(Interface::find("no\0where").is_err());
    }

    #[test]
    fn a_message_cut_short_anywhere_is_read_without_panic() {
        let whole = sys::route_request(&get_link(1)).expect("lo has index 1");
        assert!(parse(&whole).is_ok());
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_err(), "{len}");
        }
    }
}
