//! Ours: one geographic profile for each service.

use std::fmt::Write as _;
use std::fs;

use anyhow::Result;

use super::world::{Part, SERVICES, TTL, World, ZONE};
use super::{Order, Peer, Way};

/// The agent's program.
pub(super) const PROGRAM: &str = "xroute";

/// With the fast path.
pub const FAST: Peer = Peer {
    name: "xroute",
    program: PROGRAM,
    version: &["--version"],
    way: Way::Xdp,
    geography: true,
    prepare: |order| prepare(order, &format!("[\"{}\"]", order.interface)),
};

/// The userspace server alone.
pub const USERSPACE: Peer =
    Peer { name: "xroute without XDP", way: Way::Sockets, prepare: |order| prepare(order, "[]"), ..FAST };

/// The userspace server with the names of the zone's file, as servers without geography have them.
pub const STATIC: Peer = Peer {
    name: "xroute without XDP, zone",
    way: Way::Sockets,
    geography: false,
    prepare: |order| {
        let zone = format!("[[zone]]\nname = \"{ZONE}\"\nfile = \"{}\"\n", order.world.zone.display());
        finish(order, server(order, "[]") + &zone)
    },
    ..FAST
};

fn prepare(order: &Order<'_>, interfaces: &str) -> Result<Vec<String>> {
    let mut text = server(order, interfaces);
    write!(
        text,
        r#"
[geo]
database = "{table}"
[[zone]]
name = "{ZONE}"
soa = {{ mname = "ns1.{ZONE}.", rname = "hostmaster.{ZONE}.", serial = 1, refresh = 3600, retry = 600, expire = 604800, minimum = 60 }}
ns = ["ns1.{ZONE}."]
"#,
        table = order.world.table.display(),
    )?;
    for service in 0..SERVICES {
        writeln!(
            text,
            "[[profile]]\nname = \"s{service}\"\nmethod = \"geographic\"\nttl = {TTL}\nmonitor = \"off\""
        )?;
        text.push_str("names = [\n");
        for number in (service..order.world.names).step_by(SERVICES as usize) {
            writeln!(text, "  \"{}\",", order.world.name(number))?;
        }
        text.push_str("]\nendpoint = [\n");
        for part in Part::ALL {
            let places = match part {
                Part::Europe => r#""GEO-EU""#,
                Part::America => r#""GEO-NA""#,
                Part::Asia => r#""GEO-AS", "GEO-ME""#,
                Part::Rest => r#""WORLD""#,
            };
            let (name, address) = (part.code(), World::address(service, part));
            writeln!(text, "  {{ name = \"{name}\", address = \"{address}\", geo = [{places}] }},")?;
        }
        text.push_str("]\n");
    }
    finish(order, text)
}

fn server(order: &Order<'_>, interfaces: &str) -> String {
    format!(
        r#"
[server]
interfaces = {interfaces}
listen = ["{address}:53"]
control = "{folder}/control.sock"
state_dir = "{folder}/state"
"#,
        address = order.address,
        folder = order.folder.display(),
    )
}

fn finish(order: &Order<'_>, text: String) -> Result<Vec<String>> {
    let file = order.folder.join("xroute.toml");
    fs::write(&file, text)?;
    Ok(vec!["run".into(), "--config".into(), file.display().to_string()])
}
