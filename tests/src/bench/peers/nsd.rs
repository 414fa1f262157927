//! NSD. It knows no geography.

use std::fs;

use anyhow::Result;

use super::world::ZONE;
use super::{Order, Peer, Way};

/// One server process.
pub const PEER: Peer =
    Peer { name: "NSD", program: "nsd", version: &["-v"], way: Way::Sockets, geography: false, prepare };

fn prepare(order: &Order<'_>) -> Result<Vec<String>> {
    let text = format!(
        r#"
server:
  ip-address: {address}@53
  server-count: 1
  username: ""
  chroot: ""
  database: ""
  zonesdir: "{folder}"
  xfrdir: "{folder}"
  pidfile: "{folder}/nsd.pid"
  xfrdfile: "{folder}/xfrd.state"
  zonelistfile: "{folder}/zone.list"
  minimal-responses: yes
  hide-version: yes
  rrl-ratelimit: 0
  rrl-whitelist-ratelimit: 0
remote-control:
  control-enable: no
zone:
  name: {ZONE}
  zonefile: "{zone}"
"#,
        address = order.address,
        folder = order.folder.display(),
        zone = order.world.zone.display(),
    );
    let file = order.folder.join("nsd.conf");
    fs::write(&file, text)?;
    Ok(vec!["-d".into(), "-c".into(), file.display().to_string()])
}
