//! The machine's IPv4 addresses: sources whose packets the kernel drops or answers to nobody, so that the
//! fast path must leave them to it ([`router_common::abi::Locals`]).
//!
//! Addresses are asked for, not routes: broadcast routes follow from addresses, and a router may have a
//! million routes that a dump would walk over every other second.

use std::io;
use std::net::Ipv4Addr;

use router_common::abi::{Locals, MAX_LOCALS};

use super::interface::{HEADER, attributes, u16_at, u32_at};
use super::sys;

/// Octets of `struct ifaddrmsg`.
const ADDRESS_HEADER: usize = 8;

/// One address of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Assigned {
    /// Index of the interface.
    interface: u32,
    /// Ours.
    own: Ipv4Addr,
    /// What the prefix is of: ours, or the other end's of a point-to-point link.
    address: Ipv4Addr,
    /// Length of the prefix.
    len: u8,
    /// A broadcast address that was set.
    broadcast: Option<Ipv4Addr>,
}

impl Assigned {
    /// The broadcast addresses for which the kernel makes routes (`fib_add_ifaddr`).
    fn broadcasts(&self) -> impl Iterator<Item = Ipv4Addr> + use<> {
        let hosts = u32::MAX.checked_shr(u32::from(self.len)).unwrap_or(0);
        let computed = (self.len < 31).then(|| Ipv4Addr::from(u32::from(self.address) | hosts));
        computed.into_iter().chain(self.broadcast)
    }
}

/// Every IPv4 address of the thread's network namespace that a packet from elsewhere cannot have as its
/// source, except those that are refused anyway (127/8, 255.255.255.255): broadcast addresses on the
/// `interfaces` (by index) first, then other broadcast addresses, then the machine's own. Each once.
///
/// # Errors
/// When the kernel does not answer.
pub fn locals(interfaces: &[u32]) -> io::Result<Vec<Ipv4Addr>> {
    let mut assigned = Vec::new();
    let mut broken = None;
    sys::route_dump(&get_addresses(), |messages| match parse(messages, &mut assigned) {
        Ok(more) => more,
        Err(error) => {
            broken = Some(error);
            false
        }
    })?;
    match broken {
        None => Ok(in_order(&assigned, interfaces)),
        Some(error) => Err(error),
    }
}

fn in_order(assigned: &[Assigned], interfaces: &[u32]) -> Vec<Ipv4Addr> {
    let (ours, others): (Vec<&Assigned>, Vec<&Assigned>) =
        assigned.iter().partition(|address| interfaces.contains(&address.interface));
    let all = ours.iter().chain(&others);
    let broadcasts = all.clone().flat_map(|address: &&Assigned| address.broadcasts());
    let mut found = Vec::new();
    for address in broadcasts.chain(all.map(|address| address.own)) {
        let refused = address.is_loopback() || address.is_broadcast() || address.is_unspecified();
        if !refused && !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

/// The list with these addresses, as many as fit, in which those that were in `old` keep their places.
pub fn placed(old: &Locals, addresses: &[Ipv4Addr]) -> Locals {
    let wanted = &addresses[..addresses.len().min(MAX_LOCALS)];
    let mut new = Locals { addresses: old.addresses, ..Locals::EMPTY };
    for place in &mut new.addresses {
        if !wanted.contains(&Ipv4Addr::from(*place)) {
            *place = [0; 4];
        }
    }
    for address in wanted {
        if !new.addresses.contains(&address.octets())
            && let Some(place) = new.addresses.iter_mut().find(|place| **place == [0; 4])
        {
            *place = address.octets();
        }
        new.filter |= Locals::bit(u32::from(*address));
    }
    new.count = new.addresses.iter().rposition(|place| *place != [0; 4]).map_or(0, |last| last as u32 + 1);
    new
}

/// An `RTM_GETADDR` for all IPv4 addresses.
fn get_addresses() -> [u8; HEADER + ADDRESS_HEADER] {
    let mut message = [0; HEADER + ADDRESS_HEADER];
    message[0..4].copy_from_slice(&((HEADER + ADDRESS_HEADER) as u32).to_ne_bytes());
    message[4..6].copy_from_slice(&libc::RTM_GETADDR.to_ne_bytes());
    message[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    message[HEADER] = libc::AF_INET as u8;
    message
}

/// Reads the messages of one answer; whether more answers follow.
fn parse(messages: &[u8], found: &mut Vec<Assigned>) -> io::Result<bool> {
    let bad = || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer cannot be read");
    let mut rest = messages;
    while !rest.is_empty() {
        let len = u32_at(rest, 0).ok_or_else(bad)? as usize;
        let message = rest.get(..len).filter(|message| message.len() >= HEADER).ok_or_else(bad)?;
        match u16_at(message, 4).ok_or_else(bad)? {
            libc::RTM_NEWADDR => found.extend(parse_address(message)),
            kind if i32::from(kind) == libc::NLMSG_DONE => return Ok(false),
            kind if i32::from(kind) == libc::NLMSG_ERROR => {
                let code = u32_at(message, HEADER).ok_or_else(bad)? as i32;
                return Err(io::Error::from_raw_os_error(code.wrapping_neg()));
            }
            _ => {}
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(true)
}

/// Reads an `RTM_NEWADDR`; `None` for another family, or one that says too little.
fn parse_address(message: &[u8]) -> Option<Assigned> {
    let (&family, &len) = (message.get(HEADER)?, message.get(HEADER + 1)?);
    if i32::from(family) != libc::AF_INET {
        return None;
    }
    let (mut own, mut address, mut broadcast) = (None, None, None);
    for (kind, content) in attributes(message.get(HEADER + ADDRESS_HEADER..)?) {
        let value = <[u8; 4]>::try_from(content).ok().map(Ipv4Addr::from);
        match kind {
            libc::IFA_LOCAL => own = value,
            libc::IFA_ADDRESS => address = value,
            libc::IFA_BROADCAST => broadcast = value,
            _ => {}
        }
    }
    let own = own.or(address)?;
    Some(Assigned {
        interface: u32_at(message, HEADER + 4)?,
        own,
        address: address.unwrap_or(own),
        len,
        broadcast,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(interface: u32, own: &str, len: u8) -> Assigned {
        let own = own.parse().expect("an address");
        Assigned { interface, own, address: own, len, broadcast: None }
    }

    fn texts(addresses: &[Ipv4Addr]) -> Vec<String> {
        addresses.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn broadcast_addresses_of_our_interfaces_come_first_and_each_once() {
        let mut point = assigned(4, "10.9.0.1", 30);
        point.address = Ipv4Addr::new(10, 8, 0, 2);
        let mut set = assigned(4, "10.7.0.1", 24);
        set.broadcast = Some(Ipv4Addr::new(10, 7, 0, 77));
        let all = [
            assigned(1, "127.0.0.1", 8),
            assigned(2, "10.0.0.5", 24),
            assigned(3, "192.0.2.53", 32),
            assigned(3, "192.0.2.100", 26),
            assigned(3, "192.0.2.101", 26),
            assigned(5, "198.18.0.0", 31),
            point,
            set,
        ];
        let found = in_order(&all, &[3]);
        assert_eq!(
            texts(&found),
            [
                "192.0.2.127",
                "10.0.0.255",
                "10.8.0.3",
                "10.7.0.255",
                "10.7.0.77",
                "192.0.2.53",
                "192.0.2.100",
                "192.0.2.101",
                "10.0.0.5",
                "198.18.0.0",
                "10.9.0.1",
                "10.7.0.1",
            ]
        );
    }

    #[test]
    fn what_stays_keeps_its_place_and_the_filter_holds_what_is_there() {
        let addresses = |texts: &[&str]| -> Vec<Ipv4Addr> {
            texts.iter().map(|text| text.parse().expect("an address")).collect()
        };
        let first = placed(&Locals::EMPTY, &addresses(&["10.0.0.255", "10.0.1.7", "10.0.2.8"]));
        assert_eq!(first.count, 3);
        assert_eq!(first.filter, 1 << 63 | 1 << 7 | 1 << 8);
        let second = placed(&first, &addresses(&["10.0.2.8", "10.0.3.255"]));
        assert_eq!(second.addresses[..3], [[10, 0, 3, 255], [0; 4], [10, 0, 2, 8]]);
        assert_eq!((second.count, second.filter), (3, 1 << 63 | 1 << 8));
        let third = placed(&second, &addresses(&["10.0.3.255"]));
        assert_eq!((third.count, third.filter), (1, 1 << 63));
        assert_eq!(placed(&third, &[]), Locals::EMPTY);
    }

    #[test]
    fn more_than_fit_are_left_out_from_the_end() {
        let many: Vec<Ipv4Addr> = (0..100u8).map(|n| Ipv4Addr::new(10, 1, n, 1)).collect();
        let full = placed(&Locals::EMPTY, &many);
        assert_eq!(full.count as usize, MAX_LOCALS);
        assert!(full.addresses.contains(&[10, 1, 63, 1]) && !full.addresses.contains(&[10, 1, 64, 1]));
        // The other end of the list takes over place by place.
        let turned: Vec<Ipv4Addr> = many.iter().rev().copied().collect();
        let turned = placed(&full, &turned);
        assert!(turned.addresses.contains(&[10, 1, 99, 1]));
        assert_eq!(turned.addresses[40], [10, 1, 40, 1]);
    }

    #[test]
    fn the_kernel_tells_its_addresses_and_a_short_answer_is_no_panic() {
        assert!(locals(&[]).expect("a dump").iter().all(|address| !address.is_loopback()));
        let mut whole = Vec::new();
        sys::route_dump(&get_addresses(), |messages| {
            whole.extend_from_slice(messages);
            parse(messages, &mut Vec::new()).expect("well-formed")
        })
        .expect("a dump");
        for len in 0..whole.len() {
            // It may be whole messages that end there.
            let _ = parse(&whole[..len], &mut Vec::new());
        }
    }
}
