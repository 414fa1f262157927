//! What is probed, from the keys that the protocol uses.

use std::net::IpAddr;

use router_common::model::{
    Connection, HttpProbe, ProbeDestination, ProbeMethod, ProbeTarget, Program, Source, StateFile, Trust,
};

use super::{Keys, Protocol, value};
use crate::config::reader::{Faults, Spot};
use crate::probe::sendable;

/// Stands for the endpoint's first address, or its target, in the arguments of a program.
const ADDRESS: &str = "{address}";

impl Keys {
    /// The target of an endpoint, which is called `path`. Reports what is missing or does not go together.
    pub(super) fn target(
        &self,
        protocol: Protocol,
        destination: ProbeDestination,
        path: &str,
        here: &Spot,
        faults: &Faults,
    ) -> Option<ProbeTarget> {
        let missing = |message: &str| {
            let spot = self.protocol.as_ref().map_or(here, |at| &at.spot);
            faults.add(spot.fault(message.to_owned()));
        };
        match protocol {
            Protocol::Http | Protocol::Https => {
                let usual = if protocol == Protocol::Https { 443 } else { 80 };
                let host = value(&self.host).unwrap_or_else(|| default_host(&destination));
                let port = value(&self.port).unwrap_or(usual);
                let connection = self.connection(destination, port, faults)?;
                self.http(protocol, connection, host, here, faults)
            }
            Protocol::Tcp => match value(&self.port) {
                Some(port) => self.connection(destination, port, faults).map(ProbeTarget::Tcp),
                None => {
                    missing("protocol: \"tcp\" needs a port");
                    None
                }
            },
            Protocol::Exec => match value(&self.command) {
                Some(mut words) if !words.is_empty() => {
                    let address = bare(&destination);
                    let file = words.remove(0);
                    let arguments = words.iter().map(|word| word.replace(ADDRESS, &address)).collect();
                    Some(ProbeTarget::Exec(Program { file, arguments }))
                }
                _ => {
                    missing(
                        "protocol: \"exec\" needs a command, e.g. command = [\"/usr/local/bin/check\", \"{address}\"]",
                    );
                    None
                }
            },
            Protocol::File => match value(&self.file) {
                Some(file) => Some(ProbeTarget::File(StateFile { file, endpoint: path.to_owned() })),
                None => {
                    missing("protocol: \"file\" needs a file, e.g. file = \"/run/states.json\"");
                    None
                }
            },
        }
    }

    fn http(
        &self,
        protocol: Protocol,
        connection: Connection,
        host: String,
        here: &Spot,
        faults: &Faults,
    ) -> Option<ProbeTarget> {
        let headers = value(&self.headers).unwrap_or_default();
        if let Some(at) = &self.user_agent
            && headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("user-agent"))
        {
            let message = "user_agent: found beside a header User-Agent; allowed is one or the other";
            faults.add(at.spot.fault(message.into()));
            return None;
        }
        let trust = match (&self.ca, value(&self.verify)) {
            (Some(ca), _) => Trust::Authorities(ca.value.clone()),
            (None, Some(false)) => Trust::Anybody,
            (None, _) => Trust::System,
        };
        let target = ProbeTarget::Http(HttpProbe {
            connection,
            tls: (protocol == Protocol::Https).then_some(trust),
            method: value(&self.method).unwrap_or(ProbeMethod::Head),
            path: value(&self.path).unwrap_or_else(|| "/".into()),
            host,
            user_agent: value(&self.user_agent),
            headers,
        });
        if let Err(what) = sendable(&target) {
            let spot = self.host.as_ref().map_or(here, |at| &at.spot);
            faults.add(spot.fault(format!("monitor: the probe cannot be sent: {what}")));
            return None;
        }
        Some(target)
    }

    fn connection(&self, destination: ProbeDestination, port: u16, faults: &Faults) -> Option<Connection> {
        if let (ProbeDestination::Address(to), Some(at)) = (&destination, &self.source)
            && to.is_ipv4() != at.value.is_ipv4()
        {
            let message =
                format!("source: found {}; the address probed is {to}, of the other family", at.value);
            faults.add(at.spot.fault(message));
            return None;
        }
        let source = Source { address: value(&self.source), interface: value(&self.source_interface) };
        Some(Connection { destination, port, source })
    }
}

/// An address as programs want it, a name without its final dot.
fn bare(destination: &ProbeDestination) -> String {
    match destination {
        ProbeDestination::Address(address) => address.to_string(),
        ProbeDestination::Domain(name) => name.to_string().trim_end_matches('.').to_owned(),
    }
}

fn default_host(destination: &ProbeDestination) -> String {
    match destination {
        ProbeDestination::Address(IpAddr::V6(address)) => format!("[{address}]"),
        other => bare(other),
    }
}
