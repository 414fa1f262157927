//! PowerDNS with its backend geoip.

use std::fmt::Write as _;
use std::fs;

use anyhow::Result;

use super::world::{Part, SERVICES, SOA, TTL, World, ZONE};
use super::{Order, Peer, Way};

/// One thread that receives, and answers by itself.
pub const PEER: Peer = Peer {
    name: "PowerDNS",
    program: "pdns_server",
    version: &["--version"],
    way: Way::Sockets,
    geography: true,
    prepare,
};

fn prepare(order: &Order<'_>) -> Result<Vec<String>> {
    // A service is an owner name whose answer is that of another name, which depends on the client: %cn is the
    // continent.
    let mut text = format!(
        "domains:\n- domain: {ZONE}\n  ttl: {TTL}\n  records:\n    {ZONE}:\n    - soa: {SOA}\n    - ns: ns1.{ZONE}\n    \
         ns1.{ZONE}:\n    - a: 192.0.2.1\n"
    );
    for service in 0..SERVICES {
        for part in Part::ALL {
            writeln!(
                text,
                "    {}.s{service}.{ZONE}:\n    - a: {}",
                part.code(),
                World::address(service, part)
            )?;
        }
        // Continents that have no part of their own.
        for code in ["af", "sa", "oc", "an"] {
            writeln!(
                text,
                "    {code}.s{service}.{ZONE}:\n    - a: {}",
                World::address(service, Part::Rest)
            )?;
        }
    }
    text.push_str("  services:\n");
    for number in 0..order.world.names {
        writeln!(text, "    {}: '%cn.s{}.{ZONE}'", order.world.name(number), number % SERVICES)?;
    }
    let folder = order.folder.display();
    fs::write(order.folder.join("zones.yaml"), text)?;
    let config = format!(
        "launch=geoip\ngeoip-zones-file={folder}/zones.yaml\ngeoip-database-files=mmdb:{table}\n\
         local-address={address}\nlocal-port=53\nsocket-dir={folder}\nwrite-pid=no\ndaemon=no\nguardian=no\n\
         receiver-threads=1\ndistributor-threads=1\nedns-subnet-processing=yes\nsecurity-poll-suffix=\n\
         disable-syslog=yes\nloglevel=4\nsetuid=\nsetgid=\n",
        table = order.world.table.display(),
        address = order.address,
    );
    fs::write(order.folder.join("pdns.conf"), config)?;
    Ok(vec![format!("--config-dir={folder}")])
}
