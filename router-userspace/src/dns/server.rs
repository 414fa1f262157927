//! The sockets: UDP and TCP on every listen address, and how they are stopped.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::num::NonZero;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::limit::Limiter;
use super::{Counts, Service, notify, tcp, transfer, udp};

/// How often a free port is looked for when TCP and UDP must share one that the system chooses.
const PORT_ATTEMPTS: usize = 16;
/// UDP sockets on one address, at most. The kernel spreads clients over them.
const MAX_UDP_SOCKETS: usize = 16;
/// Memory for replies that are ready, of all threads and of each, in octets.
const READY_MEMORY: usize = 256 << 20;
const MAX_READY_MEMORY: usize = 32 << 20;
/// What a stopped server waits for replies that are being written.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// A running server. Dropping it stops it without waiting.
pub struct Server {
    addresses: Vec<SocketAddr>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    sockets: Vec<Weak<UdpSocket>>,
    /// Closed when the last UDP thread has ended.
    ended: mpsc::Receiver<()>,
}

impl Server {
    /// The addresses served, in the order they were given, with the real port where 0 was given.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Stops listening, lets replies that are being written out finish, and returns when every task and thread
    /// has ended (after a second at most).
    pub async fn stop(mut self) {
        self.end();
        let ended = async {
            while self.tasks.join_next().await.is_some() {}
            while self.ended.recv().await.is_some() {}
        };
        if tokio::time::timeout(STOP_GRACE, ended).await.is_err() {
            self.tasks.shutdown().await;
        }
    }

    fn end(&self) {
        self.stop.send_replace(true);
        for socket in self.sockets.iter().filter_map(Weak::upgrade) {
            udp::wake(&socket);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
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
    let (stop, stopped) = watch::channel(false);
    let (running, ended) = mpsc::channel(1);
    let shared =
        Shared { services, counts, limiter: Arc::default(), transfers: transfer::Places::default(), stopped };
    let mut bound = Vec::with_capacity(listen.len());
    for address in listen {
        bound.push(bind(address).with_context(|| format!("cannot serve DNS on {address}"))?);
    }
    let threads: usize = bound.iter().map(|(_, sockets)| sockets.len()).sum();
    let room = (READY_MEMORY / threads.max(1)).min(MAX_READY_MEMORY);
    let mut server =
        Server { addresses: Vec::new(), stop, tasks: JoinSet::new(), sockets: Vec::new(), ended };
    let clients = Arc::new(tcp::Clients::new(Arc::clone(&shared.counts)));
    server.tasks.spawn(tcp::reap(clients.clone(), shared.clone()));
    for (listener, sockets) in bound {
        server.addresses.push(listener.local_addr().context("a bound socket has an address")?);
        let listener = tokio::net::TcpListener::from_std(listener).context("cannot watch a TCP socket")?;
        server.tasks.spawn(tcp::accept(listener, clients.clone(), shared.clone()));
        for socket in sockets {
            // Only the thread keeps the socket, so that the kernel gives it no queries when the thread is gone.
            server.sockets.push(Arc::downgrade(&socket));
            let (shared, running) = (shared.clone(), running.clone());
            let serve = move || {
                udp::serve(&socket, shared, room);
                drop((socket, running));
            };
            thread::Builder::new().name("dns-udp".into()).spawn(serve).context("cannot start a thread")?;
        }
    }
    let ours = server.addresses.iter().map(SocketAddr::ip).collect();
    server.tasks.spawn(notify::run(shared, ours));
    Ok(server)
}

/// What every socket's task works with.
#[derive(Clone)]
pub(super) struct Shared {
    pub services: watch::Receiver<Arc<Service>>,
    pub counts: Arc<Counts>,
    /// For UDP.
    pub limiter: Arc<Limiter>,
    /// Room for transfers.
    pub transfers: transfer::Places,
    pub stopped: watch::Receiver<bool>,
}

/// One TCP listener and several UDP sockets on an address.
fn bind(address: SocketAddr) -> io::Result<(TcpListener, Vec<Arc<UdpSocket>>)> {
    let sockets = std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_UDP_SOCKETS);
    for attempt in 1.. {
        let listener = tcp::bind(address)?;
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

fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}
