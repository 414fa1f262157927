//! DNS over TCP (RFC 7766, RFC 9210): many queries on a connection, answered as they come.
//!
//! A connection that is idle holds no buffer. How long it may be idle, and which ones must go when there is
//! no room, is [`clients`]' business.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::random::Random;
use super::server::{Connection, Shared};
use super::{Client, Counts, Transport, respond, sockopt, transfer};
use crate::clock::unix_now;
use crate::trace::Answered;

mod clients;

use clients::Place;
pub(super) use clients::{Clients, reap};

/// Pause after an `accept` that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Connections that wait to be accepted; the system's own limit may make it less.
const BACKLOG: i32 = 4096;
/// Connections that wait to be accepted with data in their first segment (RFC 7413 §5.1).
const FAST_OPEN_BACKLOG: libc::c_int = 256;
/// What the kernel keeps of queries that were not read: they are short.
const RECEIVE_BUFFER: usize = 64 << 10;
/// What the kernel keeps of replies that the client's window has no room for.
const UNSENT: libc::c_int = 128 << 10;
/// Shortest message with a header.
const SHORTEST: usize = 12;
/// Octets read at once.
const CHUNK: usize = 4096;
/// Replies that are gathered before they are written, in octets.
const GATHERED: usize = 16 << 10;

/// A listener on an address. It does not share its port, so that a second server on the address is told so.
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    set_up(&SockRef::from(&socket))?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Sets up a socket that will listen, or does.
pub(super) fn set_up(socket: &SockRef<'_>) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    // What follows is inherited by the connections.
    socket.set_tcp_nodelay(true)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    // Not in every kernel; without it more of a slow client's replies are kept.
    let _ = sockopt::set(&**socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, UNSENT);
    Ok(())
}

/// Sets whether clients may send their query with the first segment. Not every kernel can; those that cannot
/// go on without.
fn set_fast_open(listener: &tokio::net::TcpListener, on: bool) {
    let backlog = if on { FAST_OPEN_BACKLOG } else { 0 };
    if let Err(error) = sockopt::set(listener, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, backlog) {
        log::debug!("no TCP Fast Open: {error}");
    }
}

/// Accepts connections until the server is stopped; returns when the last of them is closed or given away.
pub(super) async fn accept(
    listener: Arc<tokio::net::TcpListener>,
    clients: Arc<Clients>,
    mut shared: Shared,
) {
    let mut connections = JoinSet::new();
    let mut fast_open = None;
    loop {
        let limits = shared.services.borrow_and_update().settings.tcp;
        if fast_open.replace(limits.fast_open) != Some(limits.fast_open) {
            set_fast_open(&listener, limits.fast_open);
        }
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            Ok(()) = shared.services.changed() => continue,
            _ = shared.stopped.wait_for(|&stopped| stopped) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Another client needs the descriptor more than the longest idle connection.
                if !(is_shortage(&error) && clients.evict()) {
                    log::warn!("cannot accept a DNS connection: {error}");
                }
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        begin(stream, peer.ip(), Inbox::default(), &clients, &shared, &mut connections);
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Goes on with connections that another process accepted, until the server is stopped.
pub(super) async fn adopt(
    mut arrived: mpsc::UnboundedReceiver<Connection>,
    clients: Arc<Clients>,
    mut shared: Shared,
) {
    let mut connections = JoinSet::new();
    loop {
        let connection = tokio::select! {
            Some(connection) = arrived.recv() => connection,
            Some(_) = connections.join_next() => continue,
            _ = shared.stopped.wait_for(|&stopped| stopped) => break,
        };
        let adopted = connection.stream.peer_addr().and_then(|peer| {
            connection.stream.set_nonblocking(true)?;
            Ok((TcpStream::from_std(connection.stream)?, peer))
        });
        match adopted {
            Ok((stream, peer)) => {
                let inbox = Inbox { held: connection.held, done: 0 };
                begin(stream, peer.ip(), inbox, &clients, &shared, &mut connections);
            }
            // The client went away on the way.
            Err(error) => log::debug!("a DNS connection did not arrive: {error}"),
        }
    }
    while connections.join_next().await.is_some() {}
}

/// Begins with a connection, when there is a place for its client.
fn begin(
    stream: TcpStream,
    ip: IpAddr,
    inbox: Inbox,
    clients: &Arc<Clients>,
    shared: &Shared,
    connections: &mut JoinSet<()>,
) {
    let ip = ip.to_canonical();
    let limits = shared.services.borrow().settings.tcp;
    let Some(place) = clients.admit(ip, &limits) else {
        log::debug!("{ip}: DNS connection refused, this client has as many as it may");
        return;
    };
    let ticket = place.ticket();
    let mut conversation = Conversation { stream, ip, place, shared: shared.clone() };
    let task = connections.spawn(async move {
        match conversation.hold(inbox).await {
            Ok(None) => {}
            Ok(Some(inbox)) => conversation.leave(inbox),
            Err(error) => log::debug!("{}: DNS connection closed: {error}", conversation.ip),
        }
    });
    clients.belongs_to(ticket, task);
}

/// Whether there are no descriptors, or no memory for one.
fn is_shortage(error: &io::Error) -> bool {
    let shortages = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| shortages.contains(&code))
}

/// One connection.
struct Conversation {
    stream: TcpStream,
    ip: IpAddr,
    place: Place,
    shared: Shared,
}

impl Conversation {
    /// Answers queries until the client has sent its last one, breaks the framing, or the server is stopped; what
    /// is there of the next query then.
    /// Whoever is idle, sends a query octet by octet, or does not take replies is not seen here: it uses up
    /// its place's time.
    async fn hold(&mut self, mut inbox: Inbox) -> io::Result<Option<Inbox>> {
        let mut random = Random::new();
        loop {
            tokio::select! {
                readable = self.stream.readable() => readable?,
                _ = self.shared.stopped.wait_for(|&stopped| stopped) => return Ok(Some(inbox)),
            }
            let ended = match inbox.read(&self.stream) {
                Ok(read) => read == 0,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    inbox.tidy();
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut out = Vec::new();
            while let Some(query) = inbox.next_message()? {
                self.answer(query, &mut random, &mut out).await?;
            }
            self.flush(&mut out).await?;
            inbox.tidy();
            if ended {
                return if inbox.held.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        }
    }

    /// Gives the connection to whoever serves from now on; closes it when that is nobody.
    fn leave(self, inbox: Inbox) {
        let Some(heir) = self.shared.heir.get() else { return };
        match self.stream.into_std() {
            // An heir that is gone closes it.
            Ok(stream) => drop(heir.send(Connection { stream, held: inbox.held })),
            Err(error) => log::debug!("{}: DNS connection closed: {error}", self.ip),
        }
    }

    /// Answers one query. Replies are gathered in `out`, and those of queries that came together leave
    /// together (RFC 7766 §8).
    async fn answer(&mut self, query: &[u8], random: &mut Random, out: &mut Vec<u8>) -> io::Result<()> {
        let service = self.shared.services.borrow().clone();
        let client = Client { source: self.ip, transport: Transport::Tcp, now: unix_now() };
        let Shared { transfers, counts, .. } = &self.shared;
        if let Some(transfer) = transfer::wanted(&service, query, &client, transfers, counts) {
            return self.transfer(transfer, out).await;
        }
        let watch = counts.begin();
        let reply = respond(&service, query, &client, &mut || random.next(), counts);
        if let (Some(watch), Ok(peer), Ok(local)) = (watch, self.stream.peer_addr(), self.stream.local_addr())
        {
            watch.answered(Answered {
                at: client.now,
                outcome: Counts::outcome(),
                client: peer,
                server: local,
                transport: Transport::Tcp,
                query,
                reply: reply.as_deref(),
            });
        }
        let Some(reply) = reply else { return Ok(()) };
        let Ok(len) = u16::try_from(reply.len()) else { return Ok(()) };
        out.extend_from_slice(&len.to_be_bytes());
        out.extend_from_slice(&reply);
        if out.len() >= GATHERED {
            // A client that does not read its replies is not read from either.
            self.flush(out).await?;
        }
        Ok(())
    }

    /// Sends a zone, one message after the other, after what was gathered. Each message has the idle time to
    /// be taken in.
    async fn transfer(&mut self, transfer: transfer::Transfer, out: &mut Vec<u8>) -> io::Result<()> {
        self.flush(out).await?;
        let mut sending = transfer::Sending::new(transfer);
        while let Some(framed) = sending.next().await? {
            *out = framed;
            self.flush(out).await?;
        }
        // It was a whole message.
        *out = Vec::new();
        Ok(())
    }

    /// Writes what was gathered; the connection's idle time begins anew when the client has room for all of it.
    async fn flush(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        if !out.is_empty() {
            self.stream.write_all(out).await?;
            out.clear();
            self.place.touch();
        }
        Ok(())
    }
}

/// What was received and is not answered. Grows with what arrives, not with what a length announces, and is
/// nothing while the connection is idle.
#[derive(Default)]
struct Inbox {
    held: Vec<u8>,
    /// What of it is done with.
    done: usize,
}

impl Inbox {
    /// Receives what is there. How much; nothing when the client has sent everything.
    fn read(&mut self, stream: &TcpStream) -> io::Result<usize> {
        self.held.reserve(CHUNK);
        stream.try_read_buf(&mut self.held)
    }

    /// The next whole message.
    ///
    /// # Errors
    /// When it is shorter than a header: whatever the client speaks, it is not this.
    fn next_message(&mut self) -> io::Result<Option<&[u8]>> {
        let rest = self.held.get(self.done..).unwrap_or_default();
        let Some((len, rest)) = rest.split_first_chunk::<2>() else { return Ok(None) };
        let len = usize::from(u16::from_be_bytes(*len));
        let Some(message) = rest.get(..len) else { return Ok(None) };
        if len < SHORTEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.done += 2 + len;
        Ok(Some(message))
    }

    /// Gives back the memory of what is done with.
    fn tidy(&mut self) {
        self.held.drain(..self.done.min(self.held.len()));
        self.done = 0;
        self.held.shrink_to_fit();
    }
}
