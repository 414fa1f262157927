//! The sockets: UDP and TCP on every listen address, and how they are stopped.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::{Counts, Service, notify, tcp, transfer, udp};

/// How much TCP may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Connections open at a time, on all listen addresses.
    pub connections: usize,
    /// Of those, connections of one client address.
    pub connections_per_client: usize,
    /// How long a connection may go without a whole query, and a reply without being taken
    /// (RFC 7766 §6.2.3).
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 1000, connections_per_client: 50, idle: Duration::from_secs(10) }
    }
}

/// How often a free port is looked for when TCP and UDP must share one that the system chooses.
const PORT_ATTEMPTS: usize = 16;
/// UDP sockets on one address, at most. The kernel spreads clients over them.
const MAX_UDP_SOCKETS: usize = 16;
/// What a stopped server waits for replies that are being written.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// A running server. Dropping it stops it without waiting.
pub struct Server {
    addresses: Vec<SocketAddr>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Server {
    /// The addresses served, in the order they were given, with the real port where 0 was given.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Stops listening, lets replies that are being written out finish, and returns when every task has
    /// ended (after a second at most).
    pub async fn stop(mut self) {
        self.stop.send_replace(true);
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_GRACE, ended).await.is_err() {
            self.tasks.shutdown().await;
        }
    }
}

/// Serves UDP and TCP on every address, from inside a tokio runtime, until the handle is stopped.
/// Each query is answered from the newest service. A wildcard address works: replies leave from the
/// address that was asked. Fails when an address cannot be bound.
pub async fn serve(
    listen: Vec<SocketAddr>,
    services: watch::Receiver<Arc<Service>>,
    counts: Arc<Counts>,
) -> anyhow::Result<Server> {
    serve_within(Limits::default(), listen, services, counts).await
}

/// [`serve`] with limits of one's own.
pub async fn serve_within(
    limits: Limits,
    listen: Vec<SocketAddr>,
    services: watch::Receiver<Arc<Service>>,
    counts: Arc<Counts>,
) -> anyhow::Result<Server> {
    let (stop, stopped) = watch::channel(false);
    let mut server = Server { addresses: Vec::with_capacity(listen.len()), stop, tasks: JoinSet::new() };
    let clients = Arc::new(tcp::Clients::new(limits));
    let transfers = transfer::Places::default();
    for address in listen {
        let (listener, sockets) = bind(address).with_context(|| format!("cannot serve DNS on {address}"))?;
        server.addresses.push(listener.local_addr().context("a bound socket has an address")?);
        let listener = tokio::net::TcpListener::from_std(listener).context("cannot watch a TCP socket")?;
        let shared = Shared {
            services: services.clone(),
            counts: counts.clone(),
            transfers: transfers.clone(),
            stopped: stopped.clone(),
        };
        server.tasks.spawn(tcp::accept(listener, clients.clone(), shared.clone()));
        for socket in sockets {
            let socket = tokio::net::UdpSocket::from_std(socket).context("cannot watch a UDP socket")?;
            server.tasks.spawn(udp::answer(socket, shared.clone()));
        }
    }
    let ours = server.addresses.iter().map(SocketAddr::ip).collect();
    let shared = Shared { services, counts, transfers, stopped };
    server.tasks.spawn(notify::run(shared, ours));
    Ok(server)
}

/// What every socket's task works with.
#[derive(Clone)]
pub(super) struct Shared {
    pub services: watch::Receiver<Arc<Service>>,
    pub counts: Arc<Counts>,
    pub transfers: transfer::Places,
    pub stopped: watch::Receiver<bool>,
}

/// One TCP listener and several UDP sockets on an address. TCP does not share its port, so that a second
/// server on the same address is told so.
fn bind(address: SocketAddr) -> io::Result<(TcpListener, Vec<UdpSocket>)> {
    let sockets = std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_UDP_SOCKETS);
    for attempt in 1.. {
        let listener = bind_tcp(address)?;
        let bound = with_port(address, listener.local_addr()?.port());
        let udp = (0..sockets).map(|_| udp::bind(bound)).collect::<io::Result<Vec<_>>>();
        match udp {
            // The port that TCP got is taken on UDP: try another.
            Err(error)
                if error.kind() == io::ErrorKind::AddrInUse
                    && address.port() == 0
                    && attempt < PORT_ATTEMPTS => {}
            udp => return Ok((listener, udp?)),
        }
    }
    Err(io::ErrorKind::AddrInUse.into())
}

fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(256)?;
    Ok(socket.into())
}

fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}
