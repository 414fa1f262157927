//! The sockets that are served on: made here, or given by another process.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::num::NonZero;

use anyhow::Context;
use socket2::SockRef;

use super::{tcp, udp};

/// How often a free port is looked for when TCP and UDP must share one that the system chooses.
const PORT_ATTEMPTS: usize = 16;
/// UDP sockets on one address, at most. The kernel spreads clients over them.
const MAX_UDP_SOCKETS: usize = 16;

/// The sockets of one listen address.
#[derive(Debug)]
pub struct Listening {
    /// The address, with its real port.
    pub address: SocketAddr,
    /// For TCP.
    pub tcp: TcpListener,
    /// For UDP, at least one.
    pub udp: Vec<UdpSocket>,
    /// Whether another process has some of them too, or will have: then they must be left as they are.
    pub shared: bool,
}

/// Threads and, when we make them, UDP sockets for one listen address.
pub(super) fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_UDP_SOCKETS)
}

/// Makes the sockets of all addresses.
///
/// # Errors
/// When an address cannot be bound.
pub fn bind(listen: &[SocketAddr]) -> anyhow::Result<Vec<Listening>> {
    open(listen, &mut Given::default())
}

/// Makes the sockets of all addresses, except those that were given.
///
/// # Errors
/// When an address cannot be bound, or a socket that was given cannot be used.
pub fn open(listen: &[SocketAddr], given: &mut Given) -> anyhow::Result<Vec<Listening>> {
    let open = |&address: &SocketAddr| {
        let tcp = given.take_tcp(address);
        let udp = given.take_udp(address);
        let shared = tcp.is_some() || !udp.is_empty();
        prepare(address, tcp, udp, shared).with_context(|| format!("cannot serve DNS on {address}"))
    };
    listen.iter().map(open).collect()
}

/// Sockets of an internet family that another process gave.
#[derive(Debug, Default)]
pub struct Given {
    /// Listening.
    pub tcp: Vec<(SocketAddr, TcpListener)>,
    /// Bound.
    pub udp: Vec<(SocketAddr, UdpSocket)>,
}

impl Given {
    /// The listener of an address; of two alike the second one is left.
    pub fn take_tcp(&mut self, address: SocketAddr) -> Option<TcpListener> {
        let at = self.tcp.iter().position(|(bound, _)| *bound == address)?;
        Some(self.tcp.swap_remove(at).1)
    }

    fn take_udp(&mut self, address: SocketAddr) -> Vec<UdpSocket> {
        let (ours, others) =
            std::mem::take(&mut self.udp).into_iter().partition(|(bound, _)| *bound == address);
        self.udp = others;
        let ours: Vec<_> = ours;
        ours.into_iter().map(|(_, socket)| socket).collect()
    }
}

fn prepare(
    address: SocketAddr,
    tcp: Option<TcpListener>,
    udp: Vec<UdpSocket>,
    shared: bool,
) -> io::Result<Listening> {
    if tcp.is_none() && udp.is_empty() {
        return make(address);
    }
    let tcp = match tcp {
        Some(listener) => {
            tcp::set_up(&SockRef::from(&listener))?;
            listener
        }
        None => tcp::bind(address)?,
    };
    let mut sockets = udp;
    for socket in &sockets {
        udp::set_up(&SockRef::from(socket), address)?;
    }
    if sockets.is_empty() {
        sockets = (0..threads()).map(|_| udp::bind(address)).collect::<io::Result<_>>()?;
    }
    Ok(Listening { address, tcp, udp: sockets, shared })
}

/// One TCP listener and several UDP sockets on an address.
fn make(address: SocketAddr) -> io::Result<Listening> {
    for attempt in 1.. {
        let tcp = tcp::bind(address)?;
        let bound = with_port(address, tcp.local_addr()?.port());
        let udp = (0..threads()).map(|_| udp::bind(bound)).collect::<io::Result<Vec<_>>>();
        match udp {
            // The port that TCP got is taken on UDP: try another.
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && address.port() == 0
                    && attempt < PORT_ATTEMPTS => {}
            udp => return Ok(Listening { address: bound, tcp, udp: udp?, shared: false }),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}
