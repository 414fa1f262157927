//! Queries: who asks, for what, with which EDNS.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use router_common::decide::Asker;
use router_common::model::rtype;
use router_common::name::Name;

use super::prefixes::{embedded, trunc};
use super::{Prefixes, Rng};
use crate::packet::Query;

/// The EDNS part of a query.
#[derive(Clone, PartialEq, Debug)]
pub struct Edns {
    /// UDP payload size.
    pub size: u16,
    /// DO.
    pub dnssec_ok: bool,
    /// Client Subnet: the address, zero beyond the prefix, and SOURCE PREFIX-LENGTH, which can be 0.
    pub subnet: Option<(IpAddr, u8)>,
}

/// One query, with the configuration and the state a tuple of the differential run.
#[derive(Clone, PartialEq, Debug)]
pub struct Tuple {
    /// QNAME, folded.
    pub name: Name,
    /// Letters of QNAME to turn into capitals, by bit.
    pub capitals: u64,
    /// QTYPE.
    pub qtype: u16,
    /// Source address.
    pub source: IpAddr,
    /// Header flags: RD, CD and AD in all combinations.
    pub flags: u16,
    /// OPT.
    pub edns: Option<Edns>,
}

impl Tuple {
    /// Who asks, as the decision sees it.
    pub fn asker(&self) -> Asker {
        let subnet = self.edns.as_ref().and_then(|edns| edns.subnet);
        Asker { source: self.source, ecs: subnet.filter(|&(_, len)| len > 0) }
    }

    /// The message.
    pub fn query(&self) -> Vec<u8> {
        let mut query = Query::new("", self.qtype);
        query.flags = self.flags;
        query.name = self.name.as_wire().to_vec();
        for (at, octet) in query.name.iter_mut().enumerate() {
            if self.capitals >> (at % 64) & 1 == 1 {
                octet.make_ascii_uppercase();
            }
        }
        if let Some(edns) = &self.edns {
            query = query.edns(edns.size);
            if edns.dnssec_ok {
                query = query.dnssec_ok();
            }
            if let Some((address, len)) = edns.subnet {
                query = query.ecs(&format!("{address}/{len}"));
            }
        }
        query.bytes()
    }
}

impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} TYPE{} from {}, flags {:#06x}", self.name, self.qtype, self.source, self.flags)?;
        if let Some(edns) = &self.edns {
            write!(f, ", EDNS {}{}", edns.size, if edns.dnssec_ok { " DO" } else { "" })?;
            if let Some((address, len)) = edns.subnet {
                write!(f, " ECS {address}/{len}")?;
            }
        }
        Ok(())
    }
}

/// A tuple: nine times in ten A or AAAA of a bound name (the first `bound` names).
pub fn tuple(rng: &mut Rng, names: &[Name], bound: usize, prefixes: &Prefixes) -> Tuple {
    let name = match rng.below(10) {
        0 => &names[bound + rng.below(names.len() - bound)],
        _ => &names[rng.below(bound.max(1))],
    };
    let qtype = match rng.below(16) {
        0 => rng.of(&[rtype::CNAME, rtype::ANY, 16, 65]),
        at if at % 2 == 0 => rtype::A,
        _ => rtype::AAAA,
    };
    let edns = (!rng.once_in(5)).then(|| Edns {
        size: rng.of(&[0, 512, 700, 1232, 4096]),
        dnssec_ok: rng.once_in(3),
        subnet: (!rng.once_in(4)).then(|| subnet(rng, prefixes)),
    });
    Tuple {
        name: name.clone(),
        capitals: if rng.once_in(2) { 0 } else { rng.draw() },
        qtype,
        source: source(rng, prefixes),
        flags: rng.draw() as u16 & 0x0130,
        edns,
    }
}

/// Where a packet can come from.
fn source(rng: &mut Rng, prefixes: &Prefixes) -> IpAddr {
    loop {
        let address = prefixes.address(rng);
        let usable = match address {
            IpAddr::V4(address) => {
                let [first, ..] = address.octets();
                first != 0 && first != 127 && first < 224
            }
            IpAddr::V6(address) => {
                !address.is_multicast() && address.to_bits() > 1 && address.to_ipv4_mapped().is_none()
            }
        };
        if usable {
            return address;
        }
    }
}

fn subnet(rng: &mut Rng, prefixes: &Prefixes) -> (IpAddr, u8) {
    let address = match (rng.below(8), prefixes.address(rng)) {
        (0, IpAddr::V4(address)) => embedded(rng, address).into(),
        (1, _) => {
            let address = Ipv4Addr::from_bits(rng.draw() as u32);
            embedded(rng, address).into()
        }
        (2, IpAddr::V6(_)) => Ipv6Addr::from_bits(u128::from(rng.draw()) << 64).into(),
        (_, address) => address,
    };
    let len = match (address, rng.below(6)) {
        (_, 0) => rng.below(if address.is_ipv4() { 33 } else { 129 }) as u8,
        (IpAddr::V4(_), _) => rng.of(&[24, 24, 32, 20, 16, 8]),
        (IpAddr::V6(_), _) => rng.of(&[56, 56, 48, 64, 96, 120, 128, 95]),
    };
    (trunc(address, len).network(), len)
}
