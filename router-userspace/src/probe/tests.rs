mod engine;
mod server;
mod tls;
mod wire;

use std::net::SocketAddr;

use router_common::model::{ProbeDestination, ProbeMethod, ProbeProtocol, ProbeTarget};

/// A HEAD probe of this place.
fn target(address: SocketAddr, protocol: ProbeProtocol) -> ProbeTarget {
    ProbeTarget {
        destination: ProbeDestination::Address(address.ip()),
        port: address.port(),
        protocol,
        method: ProbeMethod::Head,
        path: "/".to_owned(),
        host: "www.example.test".to_owned(),
        headers: Vec::new(),
        verify: true,
    }
}

fn http(address: SocketAddr) -> ProbeTarget {
    target(address, ProbeProtocol::Http)
}

fn get(address: SocketAddr) -> ProbeTarget {
    ProbeTarget { method: ProbeMethod::Get, ..http(address) }
}
