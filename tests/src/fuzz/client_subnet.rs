//! A client subnet option of any octets: the server and the fast path's rules take the same ones, and make the
//! same of them.

use std::net::IpAddr;
use std::sync::LazyLock;
use std::time::Duration;

use router_common::abi::Cell;
use router_common::compile::{Compiled, compile};
use router_common::decide::Asker;
use router_common::lookup::Miss;
use router_common::name::Name;
use router_common::sim::{Sim, query};
use router_common::wire::{self, ECS_HEADER, ECS_IPV4, Ecs, OPTION_ECS};
use router_userspace::dns::{Client, Counts, Transport, respond};

use super::service::{SERVICE, frontage};
use crate::invariants::{self, hex};
use crate::packet::{Query, rtype};

static COMPILED: LazyLock<Compiled> = LazyLock::new(|| {
    let mut tried = 0u64;
    let seeds = || {
        tried += 1;
        [tried, !tried]
    };
    compile(&SERVICE.snapshot, &frontage(&SERVICE), seeds, 1).expect("it compiles")
});

/// Names that look at the client, that do not, and that have nothing to say.
const NAMES: [&str; 8] = [
    "net.g.test",
    "near.g.test",
    "shop.g.test",
    "blind.g.test",
    "up.g.test",
    "www.g.test",
    "v4only.g.test",
    "x.near.g.test",
];

/// Octets before the option's content: which name and type, and the source's address.
const CHOICE: usize = 5;

/// Puts what stands behind the choice as the content of the option.
///
/// # Panics
/// When server and tables disagree on whether it is sound, on the records, or on the scope.
pub fn client_subnet(octets: &[u8]) {
    let Some((&[choice, a, b, c, d], content)) = octets.split_first_chunk::<CHOICE>() else { return };
    let name: Name = NAMES[usize::from(choice & 7)].parse().expect("a name");
    let aaaa = choice & 8 != 0;
    let source: IpAddr = if choice & 16 == 0 {
        [a, b, c, d].into()
    } else {
        [0x2001, 0xdb8, u16::from(a), u16::from_be_bytes([b, c]), 0, 0, 0, u16::from(d)].into()
    };
    let asked =
        Query::new("", if aaaa { rtype::AAAA } else { rtype::A }).edns(1232).option(OPTION_ECS, content);
    let asked = asked.with(|query| query.name = name.as_wire().to_vec()).bytes();
    let client = Client { source, transport: Transport::Udp, now: Duration::ZERO };
    let reply = respond(&SERVICE, &asked, &client, &mut || 0, &Counts::default()).expect("a reply");
    let context = || format!("{name} from {source}: option {}, reply {}", hex(content), hex(&reply));
    if let Err(fault) = invariants::check(&asked, &reply, false, SERVICE.settings.edns_size) {
        panic!("{fault}");
    }

    let rcode = reply[3] & 15;
    let Some(subnet) = fast(content) else {
        // Family 0 has one use, no address, and is left to the server.
        assert_eq!(rcode, u8::from(content != [0, 0, 0, 0]), "only the server takes it: {}", context());
        return;
    };
    assert_eq!(rcode, 0, "only the fast path takes it: {}", context());
    let sim = Sim::new(&COMPILED.tables);
    let query = query(&name, aaaa, &Asker { source, ecs: subnet.prefix() });
    let possible = match sim.enumerate(&query) {
        Ok(possible) => possible,
        Err(Miss::Broken | Miss::UnknownName) => panic!("the tables lead nowhere: {}", context()),
        Err(_) => return,
    };
    let scope = |found: u8| if subnet.source > 0 { found } else { 0 };
    let question_end = 12 + name.as_wire().len() + 4;
    let said = possible.iter().any(|one| {
        let ecs = Ecs {
            family: subnet.family,
            source: subnet.source,
            scope: scope(one.scope),
            address: subnet.address.map(|octets| u64::from_ne_bytes(octets).to_le()),
        };
        let (words, len) = wire::reply_opt(SERVICE.settings.edns_size, false, Some(ecs));
        let opt: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).take(len as usize).collect();
        let Some(records) = reply.strip_suffix(opt.as_slice()).and_then(|head| head.get(question_end..))
        else {
            return false;
        };
        match one.kind {
            Cell::RECORDS => records == one.piece,
            Cell::NODATA => reply[6..10] == [0, 0, 0, 1],
            _ => true,
        }
    });
    assert!(said, "none of {possible:?}: {}", context());
}

/// A client subnet as the fast path reads it, by the rules it shares with everybody.
struct Subnet {
    family: u16,
    source: u8,
    /// As it lies in memory.
    address: [[u8; 8]; 2],
}

impl Subnet {
    fn prefix(&self) -> Option<(IpAddr, u8)> {
        let [first, second] = self.address;
        let address = if self.family == ECS_IPV4 {
            IpAddr::from([first[0], first[1], first[2], first[3]])
        } else {
            let mut octets = [0; 16];
            octets[..8].copy_from_slice(&first);
            octets[8..].copy_from_slice(&second);
            octets.into()
        };
        (self.source > 0).then_some((address, self.source))
    }
}

fn fast(content: &[u8]) -> Option<Subnet> {
    let (&[high, low, source, scope], given) = content.split_first_chunk::<{ ECS_HEADER as usize }>()?;
    let family = u16::from_be_bytes([high, low]);
    let sound = wire::ecs_is_well_formed(family, source, scope, u32::try_from(given.len()).ok()?)
        && !given.last().is_some_and(|&last| wire::ecs_is_dirty(source, last));
    if !sound {
        return None;
    }
    let mut address = [[0; 8]; 2];
    for (to, from) in address.iter_mut().flatten().zip(given) {
        *to = *from;
    }
    Some(Subnet { family, source, address })
}
