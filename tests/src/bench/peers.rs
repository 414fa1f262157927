//! Other DNS servers, from Debian, beside ours: set up with the same data, started, asked, ended.
//!
//! A server is one file that says how it is configured ([`Peer`]). [`ground`] gives each a network of its own, and
//! [`server`] runs it there on one core. What is served is [`world`].

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::agent::BINARY;

mod bind;
mod gdnsd;
pub mod ground;
mod knot;
pub mod latency;
pub mod lineup;
mod mmdb;
mod nsd;
mod powerdns;
pub mod race;
pub mod rate;
pub mod server;
pub mod world;
mod xroute;

use world::World;

/// A server, and how it is set up.
pub struct Peer {
    /// What it is called.
    pub name: &'static str,
    /// Its program.
    program: &'static str,
    /// Arguments that make it print its version.
    version: &'static [&'static str],
    /// How queries reach it.
    pub way: Way,
    /// Whether its answers depend on where the client is.
    pub geography: bool,
    /// Writes its files and returns its arguments.
    prepare: fn(&Order<'_>) -> Result<Vec<String>>,
}

/// How queries reach a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Through the kernel's stack to a socket.
    Sockets,
    /// Through an AF_XDP socket.
    AfXdp,
    /// They do not: a program in the driver answers.
    Xdp,
}

/// What a server is set up for.
pub struct Order<'a> {
    /// What it serves.
    pub world: &'a World,
    /// Where its files go, and nobody else's.
    pub folder: &'a Path,
    /// Where it listens, port 53.
    pub address: Ipv4Addr,
    /// The interface that has this address.
    pub interface: &'a str,
}

/// The agent with its fast path.
pub static XROUTE: Peer = xroute::FAST;
/// The agent without it.
pub static XROUTE_USERSPACE: Peer = xroute::USERSPACE;
/// The userspace server with names of a zone instead of profiles.
pub static XROUTE_STATIC: Peer = xroute::STATIC;
/// Everybody else.
pub static OTHERS: [Peer; 6] =
    [knot::SOCKETS, knot::AF_XDP, nsd::PEER, gdnsd::PEER, powerdns::PEER, bind::PEER];

impl Peer {
    /// Whether it is xroute.
    pub fn is_ours(&self) -> bool {
        self.program == xroute::PROGRAM
    }

    /// Where its program is; `None` when this machine does not have it.
    pub fn find(&self) -> Option<PathBuf> {
        if self.is_ours() {
            // Beside a benchmark, or beside the folder of a test.
            let here = std::env::current_exe().ok()?;
            let mut beside = here.ancestors().skip(1).take(2).map(|folder| folder.join(self.program));
            return std::env::var_os(BINARY)
                .map(PathBuf::from)
                .or_else(|| beside.find(|file| file.is_file()));
        }
        let mut path = std::env::var_os("PATH").unwrap_or_default();
        path.push(":/usr/local/sbin:/usr/sbin:/sbin");
        std::env::split_paths(&path).map(|folder| folder.join(self.program)).find(|file| file.is_file())
    }

    /// Its version, from its own words: the first word that begins with a digit and has a dot.
    pub fn version(&self) -> Option<String> {
        let output = Command::new(self.find()?).args(self.version).output().ok()?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let mut words = text.split_whitespace();
        words
            .find(|word| word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.'))
            .map(Into::into)
    }
}
