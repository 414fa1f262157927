//! The OPT record (RFC 6891) and its options, of which Client Subnet (RFC 7871) is read.

use router_common::abi::Generation;
use router_common::counter::Counter;
use router_common::lookup::Client;
use router_common::verdict::Verdict;
use router_common::wire::{
    ECS_HEADER, ECS_IPV4, EDNS_DO, MAX_OPTIONS, OPT_HEADER, OPTION_COOKIE, OPTION_ECS, OPTION_HEADER,
    OPTION_NSID, TYPE_OPT, ecs_is_dirty, ecs_is_well_formed,
};

use crate::packet::Packet;
use crate::scratch::{Edns, Scratch};
use crate::verdict::pass;

/// Reads the additional record at `offset`, which must be an OPT that ends the message at `end`, into
/// `edns` and the Client Subnet fields of `query`. `flags` are the generation's.
#[inline(always)]
pub fn read(
    packet: &Packet,
    scratch: &mut Scratch,
    offset: u32,
    end: u32,
    flags: u16,
) -> Result<(), Verdict> {
    let body = offset.wrapping_add(OPT_HEADER);
    if body > end {
        return Err(pass(Counter::PassOpt));
    }
    let Some(opt) = packet.at::<{ OPT_HEADER as usize }>(offset) else {
        return Err(pass(Counter::PassOpt));
    };
    if opt.u8::<0>() != 0 || opt.number::<1>() != TYPE_OPT {
        return Err(pass(Counter::PassOpt));
    }
    if opt.u8::<6>() != 0 {
        return Err(pass(Counter::PassEdnsVersion));
    }
    let options_end = body.wrapping_add(u32::from(opt.number::<9>()));
    if options_end > end {
        return Err(pass(Counter::PassOpt));
    }
    scratch.edns = Edns::new(opt.number::<3>(), opt.number::<7>() & EDNS_DO != 0);
    read_options(packet, scratch, body, options_end, flags)?;
    if options_end != end {
        return Err(pass(Counter::PassTrailing));
    }
    Ok(())
}

/// Walks over the options between `at` and `end`.
#[inline(always)]
fn read_options(
    packet: &Packet,
    scratch: &mut Scratch,
    mut at: u32,
    end: u32,
    flags: u16,
) -> Result<(), Verdict> {
    let mut options = 0;
    while options < MAX_OPTIONS {
        if at == end {
            return Ok(());
        }
        let body = at.wrapping_add(OPTION_HEADER);
        if body > end {
            return Err(pass(Counter::PassOpt));
        }
        let Some(header) = packet.at::<{ OPTION_HEADER as usize }>(at) else {
            return Err(pass(Counter::PassOpt));
        };
        let len = u32::from(header.number::<2>());
        let next = body.wrapping_add(len);
        if next > end {
            return Err(pass(Counter::PassOpt));
        }
        match header.number::<0>() {
            OPTION_ECS => read_ecs(packet, scratch, body, len)?,
            OPTION_COOKIE if flags & Generation::PASS_COOKIE != 0 => return Err(pass(Counter::PassCookie)),
            OPTION_NSID if flags & Generation::PASS_NSID != 0 => return Err(pass(Counter::PassNsid)),
            _ => {}
        }
        // Each kind of option comes here knowing another length.
        at = scratch.fog().hide(next);
        options += 1;
    }
    if at == end { Ok(()) } else { Err(pass(Counter::PassLong)) }
}

/// Reads the Client Subnet option whose `len` octets stand at `body`.
#[inline(always)]
fn read_ecs(packet: &Packet, scratch: &mut Scratch, body: u32, len: u32) -> Result<(), Verdict> {
    if scratch.edns.ecs_family() != 0 || len < ECS_HEADER {
        return Err(pass(Counter::PassEcs));
    }
    let Some(header) = packet.at::<{ ECS_HEADER as usize }>(body) else {
        return Err(pass(Counter::PassEcs));
    };
    let (family, source, scope) = (header.number::<0>(), header.u8::<2>(), header.u8::<3>());
    let address_len = len - ECS_HEADER;
    if !ecs_is_well_formed(family, source, scope, address_len) {
        return Err(pass(Counter::PassEcs));
    }
    let mut address = [0u64; 2];
    if address_len > 0 {
        let start = body.wrapping_add(ECS_HEADER);
        // The word that ends where the address ends; what stands before the address is shifted out.
        let Some(tail) = packet.at::<8>(start.wrapping_add(address_len).wrapping_sub(8)) else {
            return Err(pass(Counter::PassEcs));
        };
        if ecs_is_dirty(source, tail.u8::<7>()) {
            return Err(pass(Counter::PassEcs));
        }
        let unused = (8 - (address_len & 7)) & 7;
        let last = u64::from_le(tail.u64::<0>()) >> (8 * unused);
        if address_len <= 8 {
            address[0] = last.to_le();
        } else {
            let Some(front) = packet.at::<8>(start) else {
                return Err(pass(Counter::PassEcs));
            };
            address[0] = front.u64::<0>();
            address[1] = last.to_le();
        }
    }
    scratch.edns = scratch.edns.with_ecs(family);
    scratch.query.has_ecs = source > 0;
    scratch.query.ecs_len = source;
    scratch.query.ecs = Client::from_words(if family == ECS_IPV4 { 4 } else { 6 }, address);
    Ok(())
}
