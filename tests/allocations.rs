//! A query that was asked before is answered without the allocator. A binary of its own, since it counts what
//! every thread allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use router_common::atlas::Atlas;
use router_common::decide::Snapshot;
use router_tests::packet::Query;
use router_userspace::config;
use router_userspace::dns::{Client, Counts, Ready, Registry, Service, Transport};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, which counts for each thread.
struct Counting;

// SAFETY: everything is left to the system's allocator; counting touches a cell that needs no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: what the caller promises is what the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const CONFIGURATION: &str = r#"
[geo]
overrides = "geo.csv"
[[zone]]
name = "gslb.test"
soa = { mname = "ns1.gslb.test.", rname = "h.gslb.test.", serial = 1, refresh = 1, retry = 1, expire = 1, minimum = 1 }
ns = ["ns1.gslb.test."]
[[profile]]
name = "weighted"
names = ["weighted.gslb.test"]
method = "weighted"
monitor = "off"
endpoint = [{ name = "a", address = "192.0.2.1" }, { name = "b", address = "192.0.2.2" }]
[[profile]]
name = "geographic"
names = ["geographic.gslb.test"]
method = "geographic"
monitor = "off"
endpoint = [{ name = "a", address = "192.0.2.1", geo = ["IE"] }, { name = "b", address = "192.0.2.2", geo = ["WORLD"] }]
"#;

#[test]
fn what_was_asked_before_is_answered_without_the_allocator() {
    let files = |path: &std::path::Path| match path.to_str() {
        Some("geo.csv") => Ok(b"203.0.113.0/24,IE\n".to_vec()),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    };
    let config = config::parse(CONFIGURATION, "c.toml", &files).unwrap_or_else(|errors| panic!("{errors}"));
    let atlas = Arc::new(Atlas::build(&config.model, &config.geography, &config.latency));
    let snapshot = Snapshot { model: Arc::new(config.model), atlas, health: Arc::default() };
    // Answers are counted by whom they come.
    let mut answered = Registry::default();
    let tallies = Arc::new(answered.tallies(&snapshot.model));
    let service = Service::new(snapshot, Arc::default()).counting(tallies);
    let mut ready = Ready::new(Arc::new(service), 1 << 20);
    let queries: Vec<Vec<u8>> =
        ["gslb.test", "weighted.gslb.test", "geographic.gslb.test", "GeoGraphic.GSLB.test"]
            .into_iter()
            .flat_map(|name| {
                [1, 6, 28, 65].into_iter().flat_map(move |qtype| {
                    let subnet = |net: &str| Query::new(name, qtype).edns(1232).ecs(net).bytes();
                    [
                        Query::new(name, qtype).bytes(),
                        Query::new(name, qtype).edns(1232).dnssec_ok().bytes(),
                        subnet("203.0.113.0/24"),
                        subnet("198.51.100.0/24"),
                    ]
                })
            })
            .collect();
    let client = Client {
        source: IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9)),
        transport: Transport::Udp,
        now: Duration::ZERO,
    };
    let counts = Counts::default();
    let mut out = Vec::with_capacity(1 << 16);
    let mut numbers = 0u64;
    let mut ask = |ready: &mut Ready| {
        out.clear();
        for query in &queries {
            let mut random = || {
                numbers = numbers.wrapping_add(0x9e37_79b9_7f4a_7c15);
                numbers
            };
            assert!(ready.respond(query, &client, &mut random, &counts, &mut out).is_some());
        }
        ALLOCATIONS.with(Cell::get)
    };
    ask(&mut ready);
    let before = ask(&mut ready);
    let hits = ready.hits();
    for _ in 0..10 {
        assert_eq!(ask(&mut ready), before, "something was allocated");
    }
    assert_eq!(ready.hits() - hits, 10 * queries.len() as u64);
    // Of each name twelve times records: A only, of four kinds; the apex has no profile.
    let counted: u64 = answered.all().map(|(_, tallied)| tallied.answers).sum();
    assert_eq!(counted, 12 * 3 * 4, "{:?}", answered.all().collect::<Vec<_>>());
}
