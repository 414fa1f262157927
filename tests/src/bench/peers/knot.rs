//! Knot, by its sockets and by AF_XDP. Geography is a module of its own (knot-module-geoip), and is left out: this is
//! Knot at its fastest.

use std::fs;

use anyhow::Result;

use super::world::ZONE;
use super::{Order, Peer, Way};

/// One UDP worker.
pub const SOCKETS: Peer = Peer {
    name: "Knot",
    program: "knotd",
    version: &["--version"],
    way: Way::Sockets,
    geography: false,
    prepare: |order| prepare(order, ""),
};

/// Queries by an AF_XDP socket, which on veth copies: the driver has no zero-copy mode. The interface has one
/// queue, so there is one worker.
pub const AF_XDP: Peer = Peer {
    name: "Knot XDP",
    way: Way::AfXdp,
    prepare: |order| prepare(order, &format!("xdp:\n  listen: {}@53\n  udp: on\n", order.interface)),
    ..SOCKETS
};

fn prepare(order: &Order<'_>, xdp: &str) -> Result<Vec<String>> {
    let folder = order.folder.display();
    let text = format!(
        r"
server:
  listen: {address}@53
  udp-workers: 1
  tcp-workers: 1
  background-workers: 1
  rundir: {folder}
{xdp}
database:
  storage: {folder}
log:
  - target: stderr
    any: warning
zone:
  - domain: {ZONE}
    file: {zone}
    zonefile-load: whole
    zonefile-sync: -1
    journal-content: none
",
        address = order.address,
        zone = order.world.zone.display(),
    );
    let file = order.folder.join("knot.conf");
    fs::write(&file, text)?;
    Ok(vec!["-c".into(), file.display().to_string()])
}
