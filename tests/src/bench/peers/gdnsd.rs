//! gdnsd with its plugin geoip.

use std::fmt::Write as _;
use std::fs;

use anyhow::Result;

use super::world::{Part, SERVICES, SOA, TTL, World, ZONE};
use super::{Order, Peer, Way};

/// One UDP thread.
pub const PEER: Peer = Peer {
    name: "gdnsd",
    program: "gdnsd",
    // It has no option for it, and prints it with its usage.
    version: &["--version"],
    way: Way::Sockets,
    geography: true,
    prepare,
};

fn prepare(order: &Order<'_>) -> Result<Vec<String>> {
    let folder = order.folder.display();
    let mut text = format!(
        r"
options => {{
  listen => {{ {address} => {{ udp_threads = 1, tcp_threads = 1 }} }}
  run_dir = {folder}/run
  state_dir = {folder}/state
}}
service_types => {{ }}
plugins => {{ geoip => {{
  maps => {{ world => {{
    geoip2_db = {table}
    datacenters = [ unknown, eu, na, as ]
    map => {{ EU = [ eu ], NA = [ na ], AS = [ as ], default = [ unknown ] }}
  }} }}
  resources => {{
",
        address = order.address,
        table = order.world.table.display(),
    );
    for service in 0..SERVICES {
        write!(text, "    s{service} => {{ map = world, service_types = up, dcmap => {{")?;
        for part in Part::ALL {
            write!(text, " {} = {},", part.code(), World::address(service, part))?;
        }
        text.push_str(" } }\n");
    }
    text.push_str("  }\n} }\n");
    fs::write(order.folder.join("config"), text)?;
    for name in ["zones", "run", "state"] {
        fs::create_dir(order.folder.join(name))?;
    }
    let mut zone = format!("$TTL {TTL}\n@ SOA {SOA}\n@ NS ns1\nns1 A 192.0.2.1\n");
    for number in 0..order.world.names {
        writeln!(zone, "{} DYNA geoip!s{}", order.world.label(number), number % SERVICES)?;
    }
    fs::write(order.folder.join("zones").join(ZONE), zone)?;
    Ok(vec!["-c".into(), folder.to_string(), "start".into()])
}
