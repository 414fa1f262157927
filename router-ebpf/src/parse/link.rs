//! Ethernet and VLAN tags.

use router_common::abi::{Generation, MAX_INTERFACES, MAX_VLANS};
use router_common::counter::Counter;
use router_common::verdict::Verdict;
use router_common::wire::{
    ETHERNET_HEADER, ETHERTYPE_QINQ, ETHERTYPE_VLAN, MAX_VLAN_TAGS, VLAN_ID, VLAN_TAG,
};

use crate::packet::Packet;
use crate::scratch::Fog;
use crate::verdict::pass;

/// The frame is for us: octets before the IP header, and the EtherType.
#[inline(always)]
pub fn read(packet: &Packet, generation: &Generation, fog: Fog) -> Result<(u32, u16), Verdict> {
    let Some(frame) = packet.front::<{ ETHERNET_HEADER as usize }>() else {
        return Err(pass(Counter::PassShort));
    };
    let to_us = is_our_mac(generation, packet.interface(), frame.u32::<0>(), frame.u16::<4>());
    // A reply must never go to a group of hosts.
    if !to_us || frame.u8::<6>() & 1 != 0 {
        return Err(pass(Counter::PassMac));
    }
    let mut ethertype = frame.number::<12>();
    let mut header = ETHERNET_HEADER;
    let mut tags = 0;
    while tags < MAX_VLAN_TAGS {
        if ethertype != ETHERTYPE_VLAN && ethertype != ETHERTYPE_QINQ {
            break;
        }
        let Some(tag) = packet.at::<{ VLAN_TAG as usize }>(header) else {
            return Err(pass(Counter::PassShort));
        };
        if !is_our_vlan(generation, tag.number::<0>() & VLAN_ID) {
            return Err(pass(Counter::PassVlan));
        }
        ethertype = tag.number::<2>();
        header += VLAN_TAG;
        tags += 1;
    }
    Ok((fog.hide(header), ethertype))
}

/// Whether an address, its octets in the order of memory, is that of the interface.
#[inline(always)]
fn is_our_mac(generation: &Generation, interface: u32, first: u32, last: u16) -> bool {
    let mut i = 0;
    while i < MAX_INTERFACES && i < generation.interface_count as usize {
        let ours = generation.interfaces[i];
        if ours.index == interface {
            let [a, b, c, d, e, f] = ours.mac;
            return u32::from_ne_bytes([a, b, c, d]) == first && u16::from_ne_bytes([e, f]) == last;
        }
        i += 1;
    }
    false
}

#[inline(always)]
fn is_our_vlan(generation: &Generation, id: u16) -> bool {
    let mut i = 0;
    while i < MAX_VLANS && i < generation.vlan_count as usize {
        if generation.vlans[i] == id {
            return true;
        }
        i += 1;
    }
    false
}
