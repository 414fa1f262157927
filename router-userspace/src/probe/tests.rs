mod engine;
mod program;
mod server;
mod source;
mod state_file;
mod tls;
mod wire;

use std::net::SocketAddr;

use router_common::model::{
    Connection, HttpProbe, ProbeDestination, ProbeMethod, ProbeTarget, Source, Trust,
};

/// Where this is.
fn connection(address: SocketAddr) -> Connection {
    Connection {
        destination: ProbeDestination::Address(address.ip()),
        port: address.port(),
        source: Source::default(),
    }
}

/// A HEAD request to this place.
fn request(address: SocketAddr) -> HttpProbe {
    HttpProbe {
        connection: connection(address),
        tls: None,
        method: ProbeMethod::Head,
        path: "/".to_owned(),
        host: "www.example.test".to_owned(),
        user_agent: None,
        headers: Vec::new(),
    }
}

fn http(address: SocketAddr) -> ProbeTarget {
    ProbeTarget::Http(request(address))
}

fn https(address: SocketAddr, trust: Trust) -> ProbeTarget {
    ProbeTarget::Http(HttpProbe { tls: Some(trust), ..request(address) })
}

fn tcp(address: SocketAddr) -> ProbeTarget {
    ProbeTarget::Tcp(connection(address))
}

fn get(address: SocketAddr) -> ProbeTarget {
    ProbeTarget::Http(HttpProbe { method: ProbeMethod::Get, ..request(address) })
}

/// A GET of this path.
fn get_path(address: SocketAddr, path: String) -> ProbeTarget {
    ProbeTarget::Http(HttpProbe { method: ProbeMethod::Get, path, ..request(address) })
}
