//! DNS over TCP (RFC 7766): many queries on a connection, answered in order as they come.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::random::Random;
use super::server::{Limits, Shared};
use super::{Client, Transport, respond, transfer};
use crate::clock::unix_now;

/// Pause after an `accept` that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Shortest message with a header.
const SHORTEST: usize = 12;
/// Octets read at once.
const CHUNK: usize = 4096;

/// Accepts connections until the server is stopped; returns when the last of them is closed.
pub(super) async fn accept(listener: TcpListener, clients: Arc<Clients>, mut shared: Shared) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
            _ = shared.stopped.wait_for(|&stopped| stopped) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                log::warn!("cannot accept a DNS connection: {error}");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let ip = peer.ip().to_canonical();
        let Some(place) = Place::take(&clients, ip) else {
            log::debug!("{ip}: DNS connection refused, too many are open");
            continue;
        };
        let idle = clients.limits.idle;
        let shared = shared.clone();
        connections.spawn(async move {
            if let Err(error) = converse(stream, ip, idle, shared).await {
                log::debug!("{ip}: DNS connection closed: {error}");
            }
            drop(place);
        });
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Answers queries on one connection until the client closes it, is idle, breaks the framing, or the
/// server is stopped. One time limit covers a whole query, so that a client cannot hold the
/// connection by sending an octet now and then.
async fn converse(mut stream: TcpStream, ip: IpAddr, idle: Duration, mut shared: Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut random = Random::new();
    let mut inbox = Inbox::default();
    loop {
        let message = tokio::select! {
            message = timeout(idle, inbox.message(&mut stream)) => message,
            _ = shared.stopped.wait_for(|&stopped| stopped) => return Ok(()),
        };
        let Some(len) = message.map_err(|_| io::ErrorKind::TimedOut)?? else { return Ok(()) };
        if len < SHORTEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let service = shared.services.borrow().clone();
        let client = Client { source: ip, transport: Transport::Tcp, now: unix_now() };
        let query = inbox.held.get(2..2 + len).unwrap_or_default();
        if let Some(transfer) = transfer::wanted(&service, query, &client, &shared.transfers, &shared.counts)
        {
            inbox.held.drain(..2 + len);
            let mut sending = transfer::Sending::new(transfer);
            while let Some(framed) = sending.next().await? {
                timeout(idle, stream.write_all(&framed)).await.map_err(|_| io::ErrorKind::TimedOut)??;
            }
            continue;
        }
        let reply = respond(&service, query, &client, &mut || random.next(), &shared.counts);
        inbox.held.drain(..2 + len);
        let Some(reply) = reply else { continue };
        let Ok(reply_len) = u16::try_from(reply.len()) else { continue };
        // Length and message leave in one segment where they fit (RFC 7766 §8).
        let framed = [&reply_len.to_be_bytes()[..], &reply].concat();
        timeout(idle, stream.write_all(&framed)).await.map_err(|_| io::ErrorKind::TimedOut)??;
    }
}

/// What was received and is not answered. Grows with what arrives, not with what a length announces.
#[derive(Default)]
struct Inbox {
    held: Vec<u8>,
}

impl Inbox {
    /// Reads until a whole message is held, after its two octets of length, and gives its length. `None`:
    /// the client has sent everything. Can be dropped at any await without losing octets.
    async fn message(&mut self, stream: &mut TcpStream) -> io::Result<Option<usize>> {
        loop {
            if let Some(head) = self.held.first_chunk::<2>() {
                let len = usize::from(u16::from_be_bytes(*head));
                if self.held.len() >= 2 + len {
                    return Ok(Some(len));
                }
            }
            self.held.reserve(CHUNK);
            if stream.read_buf(&mut self.held).await? == 0 {
                return if self.held.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        }
    }
}

/// Who has connections open, on all listen addresses.
pub(super) struct Clients {
    limits: Limits,
    open: Mutex<Open>,
}

/// Connections open, in all and by client.
#[derive(Default)]
struct Open {
    all: usize,
    by_client: HashMap<IpAddr, usize>,
}

impl Clients {
    /// Nobody yet.
    pub fn new(limits: Limits) -> Self {
        Self { limits, open: Mutex::default() }
    }
}

/// One connection of a client; given back when dropped.
struct Place {
    clients: Arc<Clients>,
    ip: IpAddr,
}

impl Place {
    /// `None` when all are taken, or the client has as many as it may.
    fn take(clients: &Arc<Clients>, ip: IpAddr) -> Option<Self> {
        let mut open = clients.open.lock().unwrap_or_else(PoisonError::into_inner);
        let mine = open.by_client.get(&ip).copied().unwrap_or(0);
        if open.all >= clients.limits.connections || mine >= clients.limits.connections_per_client {
            return None;
        }
        open.all += 1;
        open.by_client.insert(ip, mine + 1);
        Some(Self { clients: clients.clone(), ip })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.clients.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.all = open.all.saturating_sub(1);
        if let Some(mine) = open.by_client.get_mut(&self.ip) {
            *mine -= 1;
            if *mine == 0 {
                open.by_client.remove(&self.ip);
            }
        }
    }
}
