//! BIND. Geography would be a view, with a copy of the zone, for each part of the world; it is left out.

use std::fs;

use anyhow::Result;

use super::world::ZONE;
use super::{Order, Peer, Way};

/// One worker thread.
pub const PEER: Peer =
    Peer { name: "BIND", program: "named", version: &["-v"], way: Way::Sockets, geography: false, prepare };

fn prepare(order: &Order<'_>) -> Result<Vec<String>> {
    let text = format!(
        r#"
options {{
  directory "{folder}";
  listen-on {{ {address}; }};
  listen-on-v6 {{ none; }};
  pid-file none;
  session-keyfile none;
  lock-file none;
  recursion no;
  dnssec-validation no;
  minimal-responses yes;
  minimal-any yes;
  notify no;
  empty-zones-enable no;
  querylog no;
}};
controls {{ }};
logging {{ category default {{ default_stderr; }}; }};
zone "{ZONE}" {{ type primary; file "{zone}"; }};
"#,
        folder = order.folder.display(),
        address = order.address,
        zone = order.world.zone.display(),
    );
    let file = order.folder.join("named.conf");
    fs::write(&file, text)?;
    Ok(["-f", "-4", "-n", "1", "-c"]
        .map(String::from)
        .into_iter()
        .chain([file.display().to_string()])
        .collect())
}
