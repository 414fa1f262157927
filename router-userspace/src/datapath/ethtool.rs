//! What a driver says of an interface: the old interface of ethtool (`linux/ethtool.h`), which needs no
//! privileges and every driver knows.

use std::collections::BTreeMap;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Commands.
const GET_DRIVER: u32 = 0x03;
const GET_STRINGS: u32 = 0x1b;
const GET_HASH_FIELDS: u32 = 0x29;
const GET_SET_SIZES: u32 = 0x37;
const GET_FEATURES: u32 = 0x3a;
const GET_CHANNELS: u32 = 0x3c;
/// The set of strings that names features (`ETH_SS_FEATURES`).
const FEATURE_NAMES: u32 = 4;
/// Octets of a string in a set.
const STRING: usize = 32;
/// More features than any kernel has.
const MOST_FEATURES: u32 = 1024;
/// `UDP_V4_FLOW`.
const UDP_OVER_IPV4: u32 = 2;
/// Ports are part of the hash (`RXH_L4_B_0_1`, `RXH_L4_B_2_3`).
const BOTH_PORTS: u64 = 1 << 6 | 1 << 7;

/// A driver.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Driver {
    /// Its name.
    pub name: String,
    /// Its version: the kernel's, for one that comes with it.
    pub version: String,
    /// Version of the device's firmware; empty for none.
    pub firmware: String,
}

/// Queues of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Channels {
    /// Most that receive: their own and those that send too.
    pub most: u32,
    /// Those that receive now.
    pub now: u32,
}

/// Runs a command whose structure is `request`.
fn command(interface: &str, request: &mut [u8]) -> io::Result<()> {
    let name = interface.as_bytes();
    if name.len() >= libc::IF_NAMESIZE {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: plain data, for which zeros are a value.
    let mut order: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in order.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    order.ifr_ifru.ifru_data = request.as_mut_ptr().cast();
    let socket = UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| UdpSocket::bind(("0.0.0.0", 0)))?;
    // SAFETY: `order` is whole; every caller gives a structure with room for what its command writes.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL, &raw mut order) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn put(request: &mut [u8], at: usize, value: u32) {
    if let Some(place) = request.get_mut(at..at + 4) {
        place.copy_from_slice(&value.to_ne_bytes());
    }
}

fn get(request: &[u8], at: usize) -> u32 {
    super::interface::u32_at(request, at).unwrap_or_default()
}

fn text(request: &[u8], at: usize, len: usize) -> String {
    let octets = request.get(at..at + len).unwrap_or_default();
    let octets = octets.split(|&octet| octet == 0).next().unwrap_or_default();
    String::from_utf8_lossy(octets).trim().to_owned()
}

/// Asks for the driver (`struct ethtool_drvinfo`).
pub fn driver(interface: &str) -> io::Result<Driver> {
    let mut request = [0; 196];
    put(&mut request, 0, GET_DRIVER);
    command(interface, &mut request)?;
    Ok(Driver {
        name: text(&request, 4, 32),
        version: text(&request, 36, 32),
        firmware: text(&request, 68, 32),
    })
}

/// Asks for queues (`struct ethtool_channels`).
pub fn channels(interface: &str) -> io::Result<Channels> {
    let mut request = [0; 36];
    put(&mut request, 0, GET_CHANNELS);
    command(interface, &mut request)?;
    let [most_receiving, most_combined, receiving, combined] = [4, 16, 20, 32].map(|at| get(&request, at));
    Ok(Channels { most: most_receiving.max(most_combined), now: receiving + combined })
}

/// Whether the ports are part of what spreads UDP over IPv4 to queues (`struct ethtool_rxnfc`).
pub fn hashes_ports(interface: &str) -> io::Result<bool> {
    // The structure's fixed part is 192 octets; more room does no harm.
    let mut request = [0; 256];
    put(&mut request, 0, GET_HASH_FIELDS);
    put(&mut request, 4, UDP_OVER_IPV4);
    command(interface, &mut request)?;
    let fields = u64::from(get(&request, 8)) | u64::from(get(&request, 12)) << 32;
    Ok(fields & BOTH_PORTS == BOTH_PORTS)
}

/// The features that there are, and whether each is on.
pub fn features(interface: &str) -> io::Result<BTreeMap<String, bool>> {
    // struct ethtool_sset_info: the mask of sets, then one size for each.
    let mut sizes = [0; 20];
    put(&mut sizes, 0, GET_SET_SIZES);
    put(&mut sizes, 8, 1 << FEATURE_NAMES);
    command(interface, &mut sizes)?;
    let count = get(&sizes, 16).min(MOST_FEATURES);
    // struct ethtool_gstrings.
    let mut names = vec![0; 12 + count as usize * STRING];
    put(&mut names, 0, GET_STRINGS);
    put(&mut names, 4, FEATURE_NAMES);
    put(&mut names, 8, count);
    command(interface, &mut names)?;
    // struct ethtool_gfeatures: blocks of 32 features, four words each, of which the third says what is on.
    let blocks = count.div_ceil(32);
    let mut state = vec![0; 8 + blocks as usize * 16];
    put(&mut state, 0, GET_FEATURES);
    put(&mut state, 4, blocks);
    command(interface, &mut state)?;
    Ok((0..count as usize)
        .map(|index| {
            let active = get(&state, 8 + index / 32 * 16 + 8);
            (text(&names, 12 + index * STRING, STRING), active >> (index % 32) & 1 == 1)
        })
        .filter(|(name, _)| !name.is_empty())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_features_and_no_queues_to_set() {
        let features = features("lo").expect("every interface has them");
        assert!(features.contains_key("rx-lro") && features.len() > 20, "{features:?}");
        assert_eq!(features.get("loopback"), Some(&true), "{features:?}");
        assert!(channels("lo").is_err());
        assert!(driver("nowhere0").is_err());
        assert!(driver("a name that is longer than the kernel allows").is_err());
    }
}
