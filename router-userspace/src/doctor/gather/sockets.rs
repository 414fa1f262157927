//! The machine's addresses, and who has a port: `/proc/net` and the descriptors of processes.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::super::network::Socket;

/// Addresses of the thread's network namespace, with the interface of each.
pub fn addresses() -> BTreeMap<IpAddr, String> {
    let mut found = BTreeMap::new();
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: writes a pointer to a list, which is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return found;
    }
    let mut at = first;
    // SAFETY: `at` is null or an element of the list, whose pointers are null or valid until it is freed.
    while let Some(element) = unsafe { at.as_ref() } {
        at = element.ifa_next;
        if element.ifa_addr.is_null() || element.ifa_name.is_null() {
            continue;
        }
        // SAFETY: as above; the family says what kind of address it is.
        let (name, family) = unsafe {
            (std::ffi::CStr::from_ptr(element.ifa_name), libc::c_int::from((*element.ifa_addr).sa_family))
        };
        let address = match family {
            libc::AF_INET => {
                // SAFETY: the address of an interface of this family.
                let address = unsafe { element.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
                IpAddr::V4(Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr)))
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let address = unsafe { element.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
                IpAddr::V6(Ipv6Addr::from(address.sin6_addr.s6_addr))
            }
            _ => continue,
        };
        found.insert(address, name.to_string_lossy().into_owned());
    }
    // SAFETY: the list that was made above; nothing refers to it any more.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// The sockets that are bound to one of these ports; `agent` is the process that may have them.
pub fn bound(ports: &[u16], agent: Option<u32>) -> Vec<Socket> {
    let mut found = Vec::new();
    let mut owners = None;
    for (protocol, file) in [("udp", "udp"), ("udp", "udp6"), ("tcp", "tcp"), ("tcp", "tcp6")] {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
        for (address, inode) in text.lines().skip(1).filter_map(|line| parse(line, protocol == "tcp")) {
            if !ports.contains(&address.port()) {
                continue;
            }
            let process = owners.get_or_insert_with(owners_of_sockets).get(&inode).cloned();
            found.push(Socket {
                protocol,
                // Whether it is for both families cannot be seen; a wildcard usually is.
                both: file.ends_with('6') && address.ip().is_unspecified(),
                address,
                agent: process.as_ref().is_some_and(|(id, _)| Some(*id) == agent),
                process,
            });
        }
    }
    // What the agent has is for both families or not as the agent needs it.
    found
}

/// A line of `/proc/net/udp` or `tcp`: what it is bound to, and its inode. Of TCP only what listens.
fn parse(line: &str, listening: bool) -> Option<(SocketAddr, u64)> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (address, port) = fields.get(1)?.split_once(':')?;
    if listening && *fields.get(3)? != LISTEN {
        return None;
    }
    // Words of four octets, each a number in the machine's order.
    let words: Option<Vec<u8>> = (0..address.len() / 8)
        .map(|at| u32::from_str_radix(address.get(at * 8..at * 8 + 8)?, 16).ok())
        .collect::<Option<Vec<u32>>>()
        .map(|words| words.into_iter().flat_map(u32::to_ne_bytes).collect());
    let octets = words?;
    let address = match (<[u8; 4]>::try_from(octets.as_slice()), <[u8; 16]>::try_from(octets.as_slice())) {
        (Ok(octets), _) => IpAddr::from(octets),
        (_, Ok(octets)) => IpAddr::from(octets),
        _ => return None,
    };
    Some((SocketAddr::new(address, u16::from_str_radix(port, 16).ok()?), fields.get(9)?.parse().ok()?))
}

/// Which process has a socket, by the socket's inode; of processes that this user may look into.
fn owners_of_sockets() -> HashMap<u64, (u32, String)> {
    let mut owners = HashMap::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(id) = process.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else { continue };
        for descriptor in descriptors.flatten() {
            let Ok(target) = fs::read_link(descriptor.path()) else { continue };
            let inode = target
                .to_str()
                .and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok());
            if let Some(inode) = inode {
                owners.entry(inode).or_insert_with(|| {
                    let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                    (id, name.trim().to_owned())
                });
            }
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_its_address() {
        assert_eq!(addresses().get(&IpAddr::from([127, 0, 0, 1])).map(String::as_str), Some("lo"));
    }

    #[test]
    fn a_socket_of_ours_is_found_with_its_process() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
        let listener = std::net::TcpListener::bind("[::1]:0").expect("a port");
        let (here, there) = (socket.local_addr().expect("one"), listener.local_addr().expect("one"));
        let found = bound(&[here.port(), there.port()], None);
        let find = |address| found.iter().find(|socket| socket.address == address).expect("it is there");
        assert_eq!(find(here).protocol, "udp");
        assert_eq!(find(there).protocol, "tcp");
        assert_eq!(find(here).process.as_ref().map(|(id, _)| *id), Some(std::process::id()));
        assert!(!find(here).agent);
        let ours = bound(&[here.port()], Some(std::process::id()));
        assert!(ours.iter().any(|socket| socket.agent));
    }

    #[test]
    fn lines_that_make_no_sense_are_left_out() {
        let line = "  100: 3500007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000   101        0 1234 2";
        let expected = "127.0.0.53:53".parse().expect("an address");
        assert_eq!(parse(line, false), Some((expected, 1234)));
        assert_eq!(parse(line, true), None, "it does not listen");
        for broken in ["", "a b c", "1: zz:35 0 07 0 0 0 0 0 1", "1: 7F:0035 0 07 0 0 0 0 0 1"] {
            assert_eq!(parse(broken, false), None, "{broken}");
        }
    }
}
