//! The service that messages are put to: one configuration with every method and kind of answer.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use router_common::abi::{Generation, Interface};
use router_common::decide::Snapshot;
use router_common::tables::Frontage;
use router_userspace::config::{self, Config};
use router_userspace::dns::Service;

use crate::kernel::{SERVICE4, SERVICE6};
use crate::subject;

/// VLAN ids that the fast path of this service answers on.
const VLANS: [u16; 2] = [7, 0xffe];

/// The service, every endpoint up, with nothing on that is off unless it is asked for.
pub static SERVICE: LazyLock<Service> = LazyLock::new(|| Service::new(snapshot(), Arc::default()));

/// The same with cookies, NSID, names of class CH and a TSIG key.
pub static FULL_SERVICE: LazyLock<Service> =
    LazyLock::new(|| Service::new(snapshot(), configuration().server.dns));

/// What it answers from.
///
/// # Panics
/// When the configuration beside this file does not load.
pub fn snapshot() -> Snapshot {
    subject::snapshot(&configuration(), &BTreeMap::new()).expect("every endpoint is up")
}

fn configuration() -> Config {
    let files = [
        ("example.test.zone", include_str!("../../zones/example.test.zone")),
        ("geo.csv", include_str!("geo.csv")),
        ("latency.csv", include_str!("latency.csv")),
        ("cookies.secret", "445536bcd2513298075a5d379663c962\n"),
    ];
    let files: BTreeMap<String, Vec<u8>> =
        files.into_iter().map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).collect();
    config::parse(include_str!("service.toml"), "service.toml", &files)
        .unwrap_or_else(|errors| panic!("{errors}"))
}

/// Where the fast path of a service answers, and which options it leaves to the server; a test run of a program
/// comes in on `lo`, which is interface 1.
pub fn frontage(service: &Service) -> Frontage {
    let settings = &service.settings;
    let cookie = settings.cookies.as_ref().map_or(0, |_| Generation::PASS_COOKIE);
    let nsid = settings.nsid.as_ref().map_or(0, |_| Generation::PASS_NSID);
    Frontage {
        addresses: vec![SERVICE4.into(), SERVICE6.into()],
        vlans: VLANS.to_vec(),
        interfaces: vec![Interface { index: 1, mac: [2, 0, 0, 0, 0, 1], pad: [0; 2] }],
        edns_size: settings.edns_size,
        flags: cookie | nsid,
    }
}
