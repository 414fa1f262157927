//! What other people's tests and tools say of the server, asked over the wire of a running agent.
//!
//! The tools and their data are in `tests/conformance`; what their packages bring (Python, dnspython, drill,
//! kdig, zonemaster-cli) `cargo xtask setup` installs.

use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use router_tests::agent::Agent;
use router_tests::netns::{Namespace, Pair, need_netns};
use tempfile::TempDir;

mod combinations;
mod ferret;
mod queries;
mod rfc8906;
mod show;
mod tcp;
mod tools;
mod wireprobe;
mod zonemaster;

/// Two namespaces and a folder for an agent's configuration.
struct Laboratory {
    pair: Pair,
    folder: TempDir,
}

impl Laboratory {
    /// `None` where there can be no namespaces.
    fn new() -> Option<Self> {
        need_netns().then(|| Self { pair: Pair::new(), folder: tempfile::tempdir().expect("a folder") })
    }

    /// Starts an agent in the server's namespace, on both of its addresses, with these zones and profiles.
    fn start(&self, interfaces: &str, zones: &str) -> Agent {
        let [ipv4, ipv6] = Pair::SERVER_ADDRESSES;
        let listen = format!("\"{ipv4}:53\", \"[{ipv6}]:53\"");
        configure(self.folder.path(), interfaces, &listen, zones);
        Agent::start(&self.pair.server, self.folder.path(), &[])
    }

    /// Starts an agent that serves `example.test` from the zone file of wireprobe, without XDP.
    fn example(&self) -> Agent {
        fs::copy(shared("../zones/example.test.zone"), self.folder.path().join("example.test.zone"))
            .expect("the zone is copied");
        self.start("", EXAMPLE)
    }
}

/// The zone that [`Laboratory::example`] serves.
const EXAMPLE: &str = "[[zone]]\nname = \"example.test\"\nfile = \"example.test.zone\"\n";

/// Writes `xroute.toml`.
fn configure(folder: &Path, interfaces: &str, listen: &str, zones: &str) {
    let shown = folder.display();
    let text = format!(
        "[server]\ninterfaces = [{interfaces}]\nlisten = [{listen}]\ncontrol = \"{shown}/control.sock\"\nstate_dir \
         = \"{shown}/state\"\n\n{zones}"
    );
    fs::write(folder.join("xroute.toml"), text).expect("the folder is writable");
}

/// A file of `tests/conformance`.
fn shared(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance").join(name)
}

/// A UDP socket of the client's namespace, connected to one of the server's addresses.
fn socket(client: &Namespace, server: &str) -> UdpSocket {
    let server: IpAddr = server.parse().expect("an address");
    client.run(|| {
        let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).expect("a socket");
        socket.connect((server, 53)).expect("a route");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        socket
    })
}

/// Sends a query and gives the reply with its id.
///
/// # Panics
/// When none comes.
fn ask(socket: &UdpSocket, query: &[u8]) -> Vec<u8> {
    socket.send(query).expect("the query is sent");
    let mut reply = [0; 65535];
    loop {
        let len = socket.recv(&mut reply).expect("a reply");
        if reply.get(..2) == query.get(..2) {
            return reply[..len].to_vec();
        }
    }
}
