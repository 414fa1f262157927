//! The service that messages are put to: one configuration with every method and kind of answer.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use router_common::abi::Interface;
use router_common::decide::Snapshot;
use router_common::tables::Frontage;
use router_userspace::config;
use router_userspace::dns::Service;

use crate::kernel::{SERVICE4, SERVICE6};
use crate::subject;

/// VLAN ids that the fast path of this service answers on.
const VLANS: [u16; 2] = [7, 0xffe];

/// The service, every endpoint up.
pub static SERVICE: LazyLock<Service> = LazyLock::new(|| Service::new(snapshot(), Arc::default()));

/// What it answers from.
///
/// # Panics
/// When the configuration beside this file does not load.
pub fn snapshot() -> Snapshot {
    let files = [
        ("example.test.zone", include_str!("../../zones/example.test.zone")),
        ("geo.csv", include_str!("geo.csv")),
        ("latency.csv", include_str!("latency.csv")),
    ];
    let files: BTreeMap<String, Vec<u8>> =
        files.into_iter().map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec())).collect();
    let config = config::parse(include_str!("service.toml"), "service.toml", &files)
        .unwrap_or_else(|errors| panic!("{errors}"));
    subject::snapshot(&config, &BTreeMap::new()).expect("every endpoint is up")
}

/// Where its fast path answers; a test run of a program comes in on `lo`, which is interface 1.
pub fn frontage() -> Frontage {
    Frontage {
        addresses: vec![SERVICE4.into(), SERVICE6.into()],
        vlans: VLANS.to_vec(),
        interfaces: vec![Interface { index: 1, mac: [2, 0, 0, 0, 0, 1], pad: [0; 2] }],
        edns_size: SERVICE.settings.edns_size,
        ..Frontage::default()
    }
}
