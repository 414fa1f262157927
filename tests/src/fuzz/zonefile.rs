//! A zone file of any octets.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use router_common::atlas::Atlas;
use router_common::decide::{Asker, Snapshot};
use router_common::model::{Model, Parts, Zone, rtype};
use router_common::name::Name;
use router_userspace::dns::{Client, Counts, Service, Transport, respond, show};
use router_userspace::zonefile::parse;

use super::parts;
use crate::invariants;
use crate::packet::Query;

/// Where its lines are said to stand.
const FILE: &str = "z.zone";

/// Reads the octets as the zone `z.test`, with what stands after `#FILE name` marks to include, and asks
/// for all that it holds.
///
/// # Panics
/// When a mistake has no place, or a record that was read is not answered.
pub fn zonefile(octets: &[u8]) {
    let (main, files) = parts::split(octets);
    let include = |path: &Path| {
        let found = path.to_str().and_then(|path| files.get(path));
        found.cloned().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    };
    let apex: Name = "z.test".parse().expect("a name");
    match parse(&apex, Path::new(FILE), &main, &include) {
        Ok(zone) => serve(zone),
        Err(faults) => {
            assert!(!faults.is_empty(), "refused without a reason");
            for fault in faults {
                let lines = |octets: &[u8]| octets.iter().filter(|&&octet| octet == b'\n').count() + 1;
                let last = match files.get(&*fault.file) {
                    _ if *fault.file == *FILE => lines(&main),
                    Some(octets) => lines(octets),
                    None => panic!("{fault}: there is no such file"),
                };
                assert!(fault.line <= last && !fault.message.is_empty(), "{fault}: of {last} lines");
            }
        }
    }
}

/// Asks for every record set, and below every name for what is not there.
fn serve(zone: Zone) {
    let sets: Vec<(Name, u16, usize)> = zone
        .nodes
        .iter()
        .flat_map(|(owner, node)| node.iter().map(|(&rtype, set)| (owner.clone(), rtype, set.rdata.len())))
        .collect();
    let cuts: Vec<Name> = zone
        .nodes
        .iter()
        .filter(|(owner, node)| {
            (**owner != zone.name && node.contains_key(&rtype::NS)) || node.contains_key(&rtype::DNAME)
        })
        .map(|(owner, _)| owner.clone())
        .collect();
    let apex = zone.name.clone();
    // What the model refuses (a name server's name that is no host, say) the configuration refuses, too.
    let Ok(model) = Model::new(Parts { zones: vec![zone], ..Parts::default() }) else { return };
    let model = Arc::new(model);
    let atlas = Arc::new(Atlas::build(&model, &Default::default(), &Default::default()));
    let snapshot = Snapshot { model, atlas, health: Arc::default() };
    let service = Service::new(snapshot, Arc::default());
    for (owner, rtype, count) in &sets {
        let reply = ask(&service, owner.as_wire(), *rtype);
        let below = cuts.iter().any(|cut| owner.is_within(cut));
        let askable = !matches!(*rtype, 0 | 41 | 128 | 249..=255);
        if askable && !below && reply.len() < 60_000 {
            let (rcode, answers) = (reply[3] & 15, usize::from(u16::from_be_bytes([reply[6], reply[7]])));
            assert!(rcode == 0 && answers >= *count, "{owner} TYPE{rtype}: RCODE {rcode}, {answers} answers");
        }
        show(&service, owner, *rtype, &Asker { source: [203, 0, 113, 7].into(), ecs: None });
        let mut below = b"\x01x".to_vec();
        below.extend_from_slice(owner.as_wire());
        ask(&service, &below, *rtype);
    }
    ask(&service, apex.as_wire(), rtype::SOA);
}

/// One question over UDP and TCP; the reply over TCP.
fn ask(service: &Service, name: &[u8], qtype: u16) -> Vec<u8> {
    let mut query = Query::new("", qtype).edns(1232);
    query.name = name.to_vec();
    let query = query.bytes();
    let [_, tcp] = [Transport::Udp, Transport::Tcp].map(|transport| {
        let client = Client { source: [203, 0, 113, 7].into(), transport, now: Duration::ZERO };
        let reply = respond(service, &query, &client, &mut || 0, &Counts::default()).expect("a reply");
        let tcp = transport == Transport::Tcp;
        if let Err(fault) = invariants::check_ours(&query, &reply, tcp, service.settings.edns_size) {
            panic!("{transport:?}: {fault}");
        }
        reply
    });
    tcp
}
