//! RRsets as the scenarios write them: `A 192.0.2.1`, several joined by ` + ` in sorted order.

use std::net::{Ipv4Addr, Ipv6Addr};

use anyhow::{Context, Result, bail};
use router_common::decide::Records;
use router_common::model::rtype;
use router_common::name::Name;

/// An RRset of the oracle.
pub fn of_records(records: &Records) -> String {
    joined(match records {
        Records::A(addresses) => addresses.iter().map(|address| format!("A {address}")).collect(),
        Records::Aaaa(addresses) => addresses.iter().map(|address| format!("AAAA {address}")).collect(),
        Records::Cname(target) => vec![format!("CNAME {target}")],
    })
}

/// Record data in wire form, by type.
pub fn of_rdata(number: u16, rdata: &[u8]) -> Result<String> {
    Ok(match number {
        rtype::A => format!("A {}", Ipv4Addr::from(<[u8; 4]>::try_from(rdata)?)),
        rtype::AAAA => format!("AAAA {}", Ipv6Addr::from(<[u8; 16]>::try_from(rdata)?)),
        rtype::CNAME => format!("CNAME {}", Name::from_wire(rdata)?),
        rtype::NS => format!("NS {}", Name::from_wire(rdata)?),
        other => bail!("records of type {other} have no form here"),
    })
}

/// Records whose owner is two octets: the pieces of the fast path. Gives the RRset and its TTL.
pub fn of_piece(mut piece: &[u8]) -> Result<(String, u32)> {
    let mut records = Vec::new();
    let mut ttls = Vec::new();
    while !piece.is_empty() {
        let (head, rest) = piece.split_at_checked(12).context("a record ends early")?;
        let field = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        if field(0) != 0xc00c || field(4) != 1 {
            bail!("a record whose owner is not the question's name, or whose class is not IN");
        }
        let (rdata, rest) = rest.split_at_checked(field(10).into()).context("record data ends early")?;
        records.push(of_rdata(field(2), rdata)?);
        ttls.push(u32::from(field(6)) << 16 | u32::from(field(8)));
        piece = rest;
    }
    ttls.dedup();
    match ttls.as_slice() {
        [ttl] => Ok((joined(records), *ttl)),
        _ => bail!("no record, or TTLs that differ in one RRset: {ttls:?}"),
    }
}

/// Records in sorted order as one text.
pub fn joined(mut records: Vec<String>) -> String {
    records.sort();
    records.join(" + ")
}
