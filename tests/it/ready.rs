//! Replies kept ready are, octet for octet, those that the server gives anyway: in random worlds, for every
//! kind of client, under random numbers, from state to state.

use std::sync::Arc;
use std::time::Duration;

use router_common::atlas::Atlas;
use router_common::counter::Counter;
use router_common::decide::Snapshot;
use router_common::model::rtype;
use router_tests::random::{Rng, Tuple, World};
use router_userspace::dns::{Client, Counts, Ready, Service, Transport, respond};

/// Worlds, and in each states, and in each of these queries.
const WORLDS: u64 = 120;
const STATES: usize = 2;
const QUERIES: usize = 40;
/// Each query is asked so often, by this client and by others.
const TIMES: usize = 3;
const TYPES: [u16; 5] = [rtype::A, rtype::AAAA, rtype::CNAME, rtype::ANY, 65];

#[test]
fn ready_replies_are_those_the_server_gives() {
    let (mut hits, mut asked, mut scoped) = (0, 0, 0);
    for number in 0..WORLDS {
        let seed = 0x7265_6164_7900 + number;
        let mut world = World::new(seed);
        let mut rng = Rng::new(!seed);
        let model = Arc::new(world.model.clone());
        let atlas = Arc::new(Atlas::build(&model, &world.geography, &world.latency));
        let mut ready: Option<Ready> = None;
        for _ in 0..STATES {
            let health = Arc::new(world.health());
            let snapshot = Snapshot { model: model.clone(), atlas: atlas.clone(), health };
            let service = Arc::new(Service::new(snapshot, Arc::default()));
            let ready = match &mut ready {
                Some(ready) => {
                    ready.replace(service.clone());
                    ready
                }
                none => none.insert(Ready::new(service.clone(), 1 << 20)),
            };
            let before = ready.hits();
            let tuples: Vec<Tuple> = (0..QUERIES).map(|_| world.tuple()).collect();
            for _ in 0..TIMES {
                for tuple in &tuples {
                    // What another asks, from where this one is.
                    let mut tuple = tuple.clone();
                    if rng.once_in(2) {
                        let other = &tuples[rng.below(tuples.len())];
                        (tuple.name, tuple.qtype) = (other.name.clone(), rng.of(&TYPES));
                    }
                    tuple.capitals = rng.draw();
                    scoped += u64::from(same(ready, &service, &tuple, rng.draw(), seed));
                    asked += 3;
                }
            }
            hits += ready.hits() - before;
        }
    }
    println!("{hits} of {asked} were ready, {scoped} replies had a scope");
    assert!(hits > asked / 3, "{hits} of {asked}");
    assert!(scoped > asked / 300, "{scoped} of {asked}");
}

/// Compares; whether the reply tells a client subnet a scope other than 0.
fn same(ready: &mut Ready, service: &Service, tuple: &Tuple, random: u64, seed: u64) -> bool {
    let query = tuple.query();
    let (counts, ready_counts) = (Counts::default(), Counts::default());
    for transport in [Transport::Udp, Transport::Tcp] {
        let client = Client { source: tuple.source, transport, now: Duration::ZERO };
        let expected = respond(service, &query, &client, &mut || random, &counts);
        let mut out = Vec::new();
        ready.respond(&query, &client, &mut || random, &ready_counts, &mut out);
        assert_eq!(out, expected.unwrap_or_default(), "seed {seed:#x}: {tuple}, random number {random:#x}");
    }
    for &counter in Counter::ALL {
        assert_eq!(
            counts.get(counter),
            ready_counts.get(counter),
            "seed {seed:#x}: {tuple}: {}",
            counter.name()
        );
    }
    let mut out = Vec::new();
    let client = Client { source: tuple.source, transport: Transport::Udp, now: Duration::ZERO };
    ready.respond(&query, &client, &mut || random, &ready_counts, &mut out);
    let reply = hickory_proto::op::Message::from_vec(&out).ok();
    let subnet = reply.and_then(|reply| {
        let edns = reply.edns?;
        match edns.option(hickory_proto::rr::rdata::opt::EdnsCode::Subnet)? {
            hickory_proto::rr::rdata::opt::EdnsOption::Subnet(subnet) => Some(subnet.scope_prefix()),
            _ => None,
        }
    });
    subnet.is_some_and(|scope| scope > 0)
}
