//! Mutations of Ethernet, VLAN, IP and UDP. Checksums that are not set follow, so that what is wrong is
//! that one thing.

use crate::kernel::{LOCALS4, SERVICE4, SERVICE6};
use crate::packet::{Checksum, Frame, Ip, Ipv4, Ipv6};
use crate::random::Rng;

/// Makes one, and says which.
pub fn mutate(frame: &mut Frame, rng: &mut Rng) -> String {
    match rng.below(10) {
        0 => link(frame, rng),
        1 | 2 => udp(frame, rng),
        3 => {
            frame.padding = vec![rng.of(&[0, 1, 0xff]); rng.below(60) + 1];
            format!("{} octets behind the packet", frame.padding.len())
        }
        _ => {
            let len = 8 + frame.payload.len();
            match &mut frame.ip {
                Ip::V4(ip) => ipv4(ip, 20 + len, rng),
                Ip::V6(ip) => ipv6(ip, len, rng),
            }
        }
    }
}

/// A length near the right one, or far from it.
fn length(right: usize, rng: &mut Rng) -> u16 {
    let right = right as u16;
    let near = rng.of(&[-20i16, -9, -8, -4, -1, 1, 2, 4, 8, 20]);
    if rng.once_in(4) { rng.of(&[0, 1, 7, 8, 19, 20, 65_535]) } else { right.wrapping_add_signed(near) }
}

fn link(frame: &mut Frame, rng: &mut Rng) -> String {
    match rng.below(6) {
        0 => {
            frame.to = rng.of(&[[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [2, 0, 0, 0, 0, 3], [0; 6], frame.from]);
            format!("to {:02x?}", frame.to)
        }
        1 => {
            frame.from = rng.of(&[[0xff; 6], [1, 0, 0x5e, 0, 0, 1], [0; 6], frame.to]);
            format!("from {:02x?}", frame.from)
        }
        2 => {
            frame.ethertype = Some(rng.of(&[0x0800, 0x86dd, 0x0806, 0x8100, 0x88a8, 0x8864, 0x0600, 0]));
            format!("EtherType {:04x?}", frame.ethertype)
        }
        3 => {
            frame.tags.pop();
            "a tag less".into()
        }
        _ => {
            let tag = (rng.of(&[0x8100, 0x8100, 0x88a8]), rng.of(&[0, 1, 6, 7, 8, 0xffe, 0xfff, 0xf007]));
            frame.tags.insert(rng.below(frame.tags.len() + 1), tag);
            format!("tag {tag:04x?}")
        }
    }
}

fn ipv4(ip: &mut Ipv4, right: usize, rng: &mut Rng) -> String {
    match rng.below(12) {
        0 => {
            ip.first = Some(rng.of(&[0x44, 0x46, 0x4f, 0x40, 0x55, 0x65, 0x05]));
            format!("version and length {:02x?}", ip.first)
        }
        1 | 2 => {
            ip.total_len = Some(length(right, rng));
            format!("total length {:?}, {right} is right", ip.total_len)
        }
        3 => {
            ip.fragment = rng.of(&[0x2000, 1, 0x1fff, 0x4000, 0x8000, 0x6000, 0x0100]);
            format!("fragment {:#06x}", ip.fragment)
        }
        4 => {
            ip.protocol = rng.of(&[0, 1, 6, 16, 18, 136, 255]);
            format!("protocol {}", ip.protocol)
        }
        5 => {
            ip.checksum = Some(rng.draw() as u16);
            format!("header checksum {:04x?}", ip.checksum)
        }
        6 => {
            ip.options = rng.of(&[&[1, 1, 1, 1][..], &[7, 4, 4, 0], &[131, 4, 4, 0], &[0; 40]]).to_vec();
            format!("options {:?}", ip.options)
        }
        7 | 8 => {
            ip.source = rng
                .of(&[
                    [0, 0, 0, 0],
                    [0, 1, 2, 3],
                    [127, 0, 0, 1],
                    [224, 0, 0, 1],
                    [239, 255, 255, 255],
                    [240, 0, 0, 1],
                    [255, 255, 255, 255],
                    SERVICE4.octets(),
                    LOCALS4[0].octets(),
                    LOCALS4[1].octets(),
                    [223, 255, 255, 255],
                    [126, 0, 0, 1],
                ])
                .into();
            format!("from {}", ip.source)
        }
        9 => {
            ip.destination =
                rng.of(&[[192, 0, 2, 54], [255; 4], [224, 0, 0, 1], [127, 0, 0, 1], [0; 4]]).into();
            format!("to {}", ip.destination)
        }
        10 => {
            (ip.tos, ip.ttl, ip.id) = (rng.draw() as u8, rng.of(&[0, 1, 255]), rng.draw() as u16);
            format!("TOS {}, TTL {}, ID {}", ip.tos, ip.ttl, ip.id)
        }
        _ => {
            ip.first = Some(0x46);
            "a longer header, without one".into()
        }
    }
}

fn ipv6(ip: &mut Ipv6, right: usize, rng: &mut Rng) -> String {
    match rng.below(10) {
        0 => {
            ip.first = rng.of(&[0x4500_0000, 0x5000_0000, 0x7000_0000, 0x6fff_ffff, 0]);
            format!("version, class and label {:08x}", ip.first)
        }
        1 | 2 => {
            ip.payload_len = Some(length(right, rng));
            format!("payload length {:?}, {right} is right", ip.payload_len)
        }
        3 | 4 => {
            ip.next_header = rng.of(&[0, 6, 41, 43, 44, 50, 51, 58, 59, 60, 135, 136, 253, 255]);
            if rng.once_in(2) {
                ip.extension = vec![17, 0, 1, 4, 0, 0, 0, 0];
            }
            format!("next header {}, {} octets before UDP", ip.next_header, ip.extension.len())
        }
        5..=7 => {
            let text =
                rng.of(&["::", "::1", "ff02::1", "::ffff:203.0.113.7", "::203.0.113.7", "fe80::7", "::2"]);
            ip.source = if rng.once_in(5) { SERVICE6 } else { text.parse().expect("an address") };
            format!("from {}", ip.source)
        }
        8 => {
            let text = rng.of(&["2001:db8::54", "ff02::1", "::1", "::"]);
            ip.destination = text.parse().expect("an address");
            format!("to {}", ip.destination)
        }
        _ => {
            ip.hop_limit = rng.of(&[0, 1, 255]);
            format!("hop limit {}", ip.hop_limit)
        }
    }
}

fn udp(frame: &mut Frame, rng: &mut Rng) -> String {
    match rng.below(6) {
        0 => {
            frame.udp.source = rng.of(&[0, 1, 7, 19, 53, 65_535]);
            format!("source port {}", frame.udp.source)
        }
        1 => {
            frame.udp.destination = rng.of(&[0, 52, 54, 853, 5353]);
            format!("destination port {}", frame.udp.destination)
        }
        2 | 3 => {
            frame.udp.len = Some(length(8 + frame.payload.len(), rng));
            format!("UDP length {:?}, {} is right", frame.udp.len, 8 + frame.payload.len())
        }
        4 => {
            frame.udp.checksum = rng.of(&[Checksum::Is(0), Checksum::Is(0xffff), Checksum::Offloaded]);
            format!("checksum {:?}", frame.udp.checksum)
        }
        _ => {
            frame.udp.checksum = Checksum::Is(rng.draw() as u16);
            format!("checksum {:04x?}", frame.udp.checksum)
        }
    }
}
