//! The sockets: UDP and TCP on every listen address, and how they are stopped.

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::limit::Limiter;
use super::pulse::{Beat, Pulse};
use super::sockets::{Listening, threads};
use super::{Counts, Service, notify, tcp, transfer, udp};

/// Memory for replies that are ready, of all threads and of each, in octets.
const READY_MEMORY: usize = 256 << 20;
const MAX_READY_MEMORY: usize = 128 << 20;
/// What a stopped server waits for replies that are being written.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// And what one that leaves its sockets to another waits for transfers and for clients that do not take their replies.
const LEAVE_GRACE: Duration = Duration::from_secs(10);

/// A running server. Dropping it stops it without waiting.
pub struct Server {
    addresses: Vec<SocketAddr>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
    listeners: Vec<Weak<tokio::net::TcpListener>>,
    sockets: Vec<Held>,
    /// Closed when the last UDP thread has ended.
    ended: mpsc::Receiver<()>,
    pulse: Arc<Pulse>,
    heir: Arc<OnceLock<Heir>>,
    arrivals: Heir,
}

/// A UDP socket.
struct Held {
    socket: Weak<UdpSocket>,
    /// Whether another process has it as well, or will have.
    shared: bool,
}

/// A connection over TCP between two queries, and what came in of the second one.
#[derive(Debug)]
pub struct Connection {
    /// The connection.
    pub stream: std::net::TcpStream,
    /// The beginning of a message with its length, or nothing.
    pub held: Vec<u8>,
}

/// Where connections go that this server does not hold any more.
pub type Heir = mpsc::UnboundedSender<Connection>;

impl Server {
    /// The addresses served, in the order they were given, with the real port where 0 was given.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Descriptors of all sockets that are listened on, for another process that will serve on them.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub fn descriptors(&self) -> std::io::Result<Vec<OwnedFd>> {
        let udp = self.sockets.iter().filter_map(|held| held.socket.upgrade());
        let udp = udp.map(|socket| socket.as_fd().try_clone_to_owned());
        let tcp = self.listeners.iter().filter_map(Weak::upgrade);
        let tcp = tcp.map(|listener| listener.as_fd().try_clone_to_owned());
        udp.chain(tcp).collect()
    }

    /// Signs of life of what has to be alive for queries to be answered.
    pub fn beats(&self) -> Vec<Beat> {
        self.pulse.beats()
    }

    /// Where connections come in that another process has accepted.
    pub fn arrivals(&self) -> Heir {
        self.arrivals.clone()
    }

    /// Leaves the sockets to another process that serves on them already: answers what it has received, gives
    /// connections to `heir` when they are between two queries, and returns when all that is done; what takes
    /// longer than ten seconds is cut off.
    pub async fn leave(mut self, heir: Heir) {
        for held in &mut self.sockets {
            held.shared = true;
        }
        // It is set once: a server leaves once.
        let _ = self.heir.set(heir);
        self.end();
        self.ended(LEAVE_GRACE).await;
    }

    /// Stops listening, lets replies that are being written out finish, and returns when every task and thread
    /// has ended (after a second at most).
    pub async fn stop(mut self) {
        self.end();
        // A thread on a shared socket sees it when it looks around.
        let shared = self.sockets.iter().any(|held| held.shared);
        self.ended(if shared { STOP_GRACE + udp::LOOK_AROUND } else { STOP_GRACE }).await;
    }

    async fn ended(&mut self, grace: Duration) {
        let ended = async {
            while self.tasks.join_next().await.is_some() {}
            while self.ended.recv().await.is_some() {}
        };
        if tokio::time::timeout(grace, ended).await.is_err() {
            self.tasks.shutdown().await;
        }
    }

    fn end(&self) {
        self.stop.send_replace(true);
        // What wakes a thread would stay with the socket, and so with whoever has it too.
        for held in self.sockets.iter().filter(|held| !held.shared) {
            if let Some(socket) = held.socket.upgrade() {
                udp::wake(&socket);
            }
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
    serve_on(super::sockets::bind(&listen)?, services, counts).await
}

/// As [`serve`], on sockets that are there.
pub async fn serve_on(
    listening: Vec<Listening>,
    services: watch::Receiver<Arc<Service>>,
    counts: Arc<Counts>,
) -> anyhow::Result<Server> {
    let (stop, stopped) = watch::channel(false);
    let (running, ended) = mpsc::channel(1);
    let (arrivals, arrived) = mpsc::unbounded_channel();
    let shared = Shared {
        services,
        counts,
        limiter: Arc::default(),
        transfers: transfer::Places::default(),
        stopped,
        heir: Arc::default(),
    };
    let room = (READY_MEMORY / (threads() * listening.len()).max(1)).min(MAX_READY_MEMORY);
    let pulse = Arc::new(Pulse::default());
    let mut server = Server {
        addresses: Vec::new(),
        stop,
        tasks: JoinSet::new(),
        listeners: Vec::new(),
        sockets: Vec::new(),
        ended,
        pulse: Arc::clone(&pulse),
        heir: Arc::clone(&shared.heir),
        arrivals,
    };
    let clients = Arc::new(tcp::Clients::new(Arc::clone(&shared.counts)));
    server.tasks.spawn(tcp::reap(clients.clone(), shared.clone(), pulse.heart("dns-tcp")));
    server.tasks.spawn(tcp::adopt(arrived, clients.clone(), shared.clone()));
    for Listening { address, tcp: listener, udp: sockets, shared: with_others } in listening {
        server.addresses.push(address);
        let listener = tokio::net::TcpListener::from_std(listener).context("cannot watch a TCP socket")?;
        let listener = Arc::new(listener);
        server.listeners.push(Arc::downgrade(&listener));
        server.tasks.spawn(tcp::accept(listener, clients.clone(), shared.clone()));
        let count = sockets.len();
        // Only threads keep a socket, so that the kernel gives it no queries when its threads are gone.
        let sockets: Vec<Arc<UdpSocket>> = sockets.into_iter().map(Arc::new).collect();
        let held = |socket| Held { socket: Arc::downgrade(socket), shared: with_others };
        server.sockets.extend(sockets.iter().map(held));
        // Several threads may wait on one socket, when somebody gave us fewer.
        for (number, socket) in sockets.into_iter().cycle().take(threads().max(count)).enumerate() {
            let (shared, running) = (shared.clone(), running.clone());
            let heart = pulse.heart(&format!("dns-udp {address} {number}"));
            let serve = move || {
                udp::serve(&socket, shared, room, &heart);
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
    /// Who gets the connections when it is stopped; nobody: they are closed.
    pub heir: Arc<OnceLock<Heir>>,
}
