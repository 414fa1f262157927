//! `[server]`: where and how the agent runs.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::reader::{Table, choice, text, truth, whole};
use super::values::{duration, octets, short_text};
use super::warnings::Warnings;
use crate::settings::{Dns, Probes, Server, Stale, Tcp, XdpMode};

/// Most interfaces the XDP program is attached to.
const MAX_INTERFACES: usize = 8;
/// Most VLAN ids the fast path answers on.
const MAX_VLANS: usize = 16;
/// Most service addresses of a family the fast path answers for.
const MAX_SERVICE: usize = 16;
/// How long a TCP connection may be idle.
const IDLE: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);
/// How long the first probes may be waited for.
const READY_WITHIN: RangeInclusive<Duration> = Duration::from_secs(0)..=Duration::from_secs(600);
/// Longest path of a unix socket (`sun_path` with its final zero is 108 octets).
pub(super) const MAX_SOCKET_PATH: usize = 107;

pub(super) fn read(table: Table<'_>, warnings: &mut Warnings) -> Server {
    let mut server = Server::default();
    let mut dns = Dns::default();
    let folder = &table.source().folder;
    if let Some(interfaces) = table.items("interfaces", interface) {
        table.no_twins("interfaces", &interfaces);
        if interfaces.len() > MAX_INTERFACES {
            let found = interfaces.len();
            table.fault_at(
                "interfaces",
                format!("interfaces: found {found}; at most {MAX_INTERFACES} are allowed"),
            );
        }
        server.interfaces = interfaces;
    }
    let modes = [("auto", XdpMode::Auto), ("native", XdpMode::Native), ("generic", XdpMode::Generic)];
    if let Some(mode) = table.take("xdp_mode", |value| choice(value, &modes)) {
        server.xdp_mode = mode;
    }
    match table.items("listen", |value| socket(text(value)?)) {
        Some(listen) => {
            table.no_twins("listen", &listen);
            server.listen = listen;
            listening(&table, &server, warnings);
        }
        None => table.missing("listen", "[\"192.0.2.53:53\"]"),
    }
    if let Some(vlans) = table.items("vlans", |value| whole(value, 1..=4094)) {
        table.no_twins("vlans", &vlans);
        if vlans.len() > MAX_VLANS {
            table.fault_at("vlans", format!("vlans: found {}; at most {MAX_VLANS} are allowed", vlans.len()));
        }
        server.vlans = vlans;
    }
    if let Some(stale) =
        table.take("stale", |value| choice(value, &[("serve", Stale::Serve), ("pass", Stale::Pass)]))
    {
        server.stale = stale;
    }
    if let Some(control) = table.take("control", |value| path(text(value)?)) {
        server.control = folder.join(control);
        if server.control.as_os_str().len() > MAX_SOCKET_PATH {
            let message = format!("control: the path of a socket has at most {MAX_SOCKET_PATH} octets");
            table.fault_at("control", message);
        }
    }
    server.control_group = table.take("control_group", group);
    server.admin_group = table.take("admin_group", group);
    server.http = table.take("http", |value| socket(text(value)?));
    if let Some(state_dir) = table.take("state_dir", |value| path(text(value)?)) {
        server.state_dir = folder.join(state_dir);
    }
    if let Some(within) = table.take("ready_within", |value| duration(value, READY_WITHIN)) {
        server.ready_within = within;
    }
    if let Some(size) = table.take("edns_size", |value| whole(value, 512..=1232)) {
        dns.edns_size = size;
    }
    dns.nsid = table.take("nsid", octets);
    dns.version = table.take("version", short_text);
    dns.id = table.take("id", short_text);
    server.dns = Arc::new(dns);
    table.finish();
    server
}

/// `[probes]`: what probing may cost this machine.
pub(super) fn probes(table: Table<'_>) -> Probes {
    let usual = Probes::default();
    let probes = Probes {
        per_second: table.take("per_second", |value| whole(value, 1..=100_000)).unwrap_or(usual.per_second),
        in_flight: table.take("in_flight", |value| whole(value, 1..=100_000)).unwrap_or(usual.in_flight),
        programs: table.take("programs", |value| whole(value, 1..=1000)).unwrap_or(usual.programs),
    };
    table.finish();
    probes
}

/// `[tcp]`: what DNS over TCP may take.
pub(super) fn tcp(table: Table<'_>) -> Tcp {
    let usual = Tcp::default();
    let whole = |key| table.take(key, |value| whole(value, 1..=1_000_000));
    let tcp = Tcp {
        connections: whole("connections").unwrap_or(usual.connections),
        connections_per_client: whole("connections_per_client").unwrap_or(usual.connections_per_client),
        idle: table.take("idle", |value| duration(value, IDLE)).unwrap_or(usual.idle),
        fast_open: table.take("fast_open", truth).unwrap_or(usual.fast_open),
    };
    table.finish();
    tcp
}

/// What goes together in `listen` and `interfaces`.
fn listening(table: &Table<'_>, server: &Server, warnings: &mut Warnings) {
    if server.listen.is_empty() {
        table.fault_at("listen", "listen: no address to listen on".into());
    }
    if server.interfaces.is_empty() {
        return;
    }
    for (family, ipv4) in [("IPv4", true), ("IPv6", false)] {
        let found = server.listen.iter().filter(|address| address.is_ipv4() == ipv4).count();
        if found > MAX_SERVICE {
            let message = format!(
                "listen: found {found} {family} addresses; with interfaces at most {MAX_SERVICE} of a family \
                 are allowed"
            );
            table.fault_at("listen", message);
        }
    }
    let Some(spot) = table.value("listen").map(|value| table.spot_of(value)) else { return };
    for address in &server.listen {
        if address.port() != 53 {
            warnings.add(
                &spot,
                format!(
                    "listen: {address}: the fast path answers on port 53 only; this address is always slow"
                ),
            );
        }
        if address.ip().is_unspecified() {
            warnings.add(
                &spot,
                format!(
                    "listen: {address}: the fast path answers for the addresses listed here, which this is \
                     none of; what arrives elsewhere is always slow"
                ),
            );
        }
    }
}

/// Name of a network interface.
pub(super) fn interface(value: &toml::de::DeValue<'_>) -> Result<String, String> {
    let name = text(value)?;
    let bad = |character: char| character.is_whitespace() || character.is_control() || character == '/';
    if name.is_empty() || name.len() > 15 || name.contains(bad) || matches!(name, "." | "..") {
        return Err(format!(
            "{name:?} is not the name of an interface; it has 1 to 15 octets, e.g. \"eth0\""
        ));
    }
    Ok(name.to_owned())
}

/// An address with its port.
pub(super) fn socket(written: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = written.parse().map_err(|_| {
        let hint = if written.parse::<std::net::Ipv4Addr>().is_ok() {
            format!("write \"{written}:53\"")
        } else if written.parse::<std::net::Ipv6Addr>().is_ok() {
            format!("write \"[{written}]:53\"")
        } else {
            "allowed are e.g. \"192.0.2.53:53\" and \"[2001:db8::53]:53\"".into()
        };
        format!("{written:?} is not an address with a port; {hint}")
    })?;
    if address.port() == 0 {
        return Err(format!("{written:?} has port 0; allowed is 1 to 65535"));
    }
    Ok(address)
}

/// Name of a group of users. Whether there is one is known where the agent runs.
fn group(value: &toml::de::DeValue<'_>) -> Result<String, String> {
    let name = text(value)?;
    let odd = |character: char| character.is_whitespace() || character.is_control() || character == ':';
    if name.is_empty() || name.len() > 32 || name.contains(odd) {
        return Err(format!("{name:?} is not the name of a group of users"));
    }
    Ok(name.to_owned())
}

/// A path.
pub(super) fn path(written: &str) -> Result<&str, String> {
    if written.is_empty() || written.contains('\0') {
        return Err(format!("{written:?} is not a path"));
    }
    Ok(written)
}
