//! A frame that the fast path copied, taken apart: whose message it carries.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use router_common::wire::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_QINQ, ETHERTYPE_VLAN, MAX_VLAN_TAGS, UDP, UDP_HEADER,
};

/// A UDP datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Datagram<'f> {
    /// Where from.
    pub source: SocketAddr,
    /// Where to.
    pub destination: SocketAddr,
    /// What is in it, as far as it was copied.
    pub payload: &'f [u8],
}

/// Reads an Ethernet frame. The fast path has checked what it copies, except that it may have cut it short.
pub(super) fn datagram(frame: &[u8]) -> Option<Datagram<'_>> {
    let mut rest = frame.get(12..)?;
    let mut ethertype = number(&mut rest)?;
    for _ in 0..MAX_VLAN_TAGS {
        if !matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_QINQ) {
            break;
        }
        rest = rest.get(2..)?;
        ethertype = number(&mut rest)?;
    }
    let (source, destination, mut udp) = match ethertype {
        ETHERTYPE_IPV4 => ipv4(rest)?,
        ETHERTYPE_IPV6 => ipv6(rest)?,
        _ => return None,
    };
    let (from, to) = (number(&mut udp)?, number(&mut udp)?);
    let len = usize::from(number(&mut udp)?).checked_sub(UDP_HEADER as usize)?;
    let payload = udp.get(2..)?;
    Some(Datagram {
        source: SocketAddr::new(source, from),
        destination: SocketAddr::new(destination, to),
        payload: payload.get(..len).unwrap_or(payload),
    })
}

/// Source, destination, and what follows the header.
fn ipv4(packet: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    let header = usize::from(packet.first()? & 0xf) * 4;
    (packet.get(9) == Some(&UDP)).then_some(())?;
    let address = |at: usize| {
        let octets: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
        Some(IpAddr::from(Ipv4Addr::from(octets)))
    };
    Some((address(12)?, address(16)?, packet.get(header..)?))
}

/// Likewise.
fn ipv6(packet: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    (packet.get(6) == Some(&UDP)).then_some(())?;
    let address = |at: usize| {
        let octets: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
        Some(IpAddr::from(Ipv6Addr::from(octets)))
    };
    Some((address(8)?, address(24)?, packet.get(40..)?))
}

/// The next 16 bits.
fn number(octets: &mut &[u8]) -> Option<u16> {
    let (head, rest) = octets.split_first_chunk::<2>()?;
    *octets = rest;
    Some(u16::from_be_bytes(*head))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ethernet with these tags, an IP header, UDP from 5000 to 53, three octets, and padding.
    fn frame(tags: &[u16], ipv6: bool) -> Vec<u8> {
        let mut frame = vec![2; 12];
        for tag in tags {
            frame.extend(tag.to_be_bytes());
            frame.extend([0, 7]);
        }
        if ipv6 {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 11, UDP, 64]);
            frame.extend([1; 16]);
            frame.extend([2; 16]);
        } else {
            frame.extend([8, 0, 0x45, 0, 0, 31, 0, 0, 0, 0, 64, UDP, 0, 0]);
            frame.extend([192, 0, 2, 1, 192, 0, 2, 53]);
        }
        frame.extend([0x13, 0x88, 0, 53, 0, 11, 0, 0]);
        frame.extend(*b"abc-----");
        frame
    }

    #[test]
    fn datagrams_are_found_behind_every_header() {
        for tags in [&[][..], &[ETHERTYPE_VLAN], &[ETHERTYPE_QINQ, ETHERTYPE_VLAN]] {
            let v4 = frame(tags, false);
            let found = datagram(&v4).unwrap();
            assert_eq!(found.source, "192.0.2.1:5000".parse().unwrap());
            assert_eq!(found.destination, "192.0.2.53:53".parse().unwrap());
            assert_eq!(found.payload, b"abc");
            let v6 = frame(tags, true);
            let found = datagram(&v6).unwrap();
            assert_eq!(found.source, "[101:101:101:101:101:101:101:101]:5000".parse().unwrap());
            assert_eq!(found.payload, b"abc");
        }
    }

    #[test]
    fn what_is_cut_short_or_odd_is_no_trouble() {
        for whole in [frame(&[ETHERTYPE_VLAN], false), frame(&[], true)] {
            for len in 0..whole.len() {
                let _ = datagram(&whole[..len]);
            }
            // Cut inside the message: what is there of it.
            let cut = datagram(&whole[..whole.len() - 6]).unwrap();
            assert_eq!(cut.payload, b"ab");
        }
        let tcp = frame(&[], false).iter().enumerate().map(|(i, &o)| if i == 23 { 6 } else { o }).collect();
        assert_eq!(datagram(&Vec::<u8>::clone(&tcp)), None);
        assert_eq!(datagram(&frame(&[ETHERTYPE_VLAN; 3], false)), None);
    }
}
