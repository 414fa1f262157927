//! DNS over UDP: one thread for each socket, and a batch of messages for each system call. Every reply leaves
//! from the address that was asked (RFC 2181 §4.1), also on a socket bound to the wildcard address.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use router_common::counter::Counter;
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::limit::Action;
use super::pulse::Heart;
use super::random::Random;
use super::ready::{Ready, Replied};
use super::server::Shared;
use super::{Client, Counts, Transport, sockopt};
use crate::clock::unix_now;
use crate::trace::Answered;

mod batch;

use batch::Batch;

/// Pause after an unexpected error, so that one that lasts does not spin.
const ERROR_PAUSE: Duration = Duration::from_millis(100);
/// Kernel buffer for queries that wait; the system's own limit may make it less.
pub const RECEIVE_BUFFER: usize = 4 << 20;
/// How often a thread that is asked nothing looks around: for a new service, so that the old one's memory
/// is free, and for the end, of which it is told by other means as well.
pub(super) const LOOK_AROUND: Duration = Duration::from_secs(1);

/// Answers queries on one socket until the server is stopped; what was received is answered all the same, since
/// nobody else will see it. `room` is the memory for replies that are ready, in octets.
pub(super) fn serve(socket: &UdpSocket, mut shared: Shared, room: usize, heart: &Heart) {
    // A socket that is bound has one; else samples would name another.
    let local = socket.local_addr().unwrap_or_else(|_| ([0, 0, 0, 0], 0).into());
    let mut random = Random::new();
    let mut batch = Batch::new();
    let mut ready = Ready::new(shared.services.borrow_and_update().clone(), room);
    loop {
        let received = batch.receive(socket);
        heart.beat();
        let stopped = shared.stopped.has_changed().unwrap_or(true);
        if stopped && !matches!(received, Ok(1..)) {
            return;
        }
        // The agent may be gone while the server is being stopped; the last service still holds.
        if shared.services.has_changed().unwrap_or(false) {
            ready.replace(shared.services.borrow_and_update().clone());
        }
        match received {
            Ok(0) => continue,
            Ok(_) => {}
            Err(error) => {
                log::warn!("cannot receive a DNS query: {error}");
                thread::sleep(ERROR_PAUSE);
                continue;
            }
        }
        let now = unix_now();
        batch.answer(|message, out| {
            let (query, source) = (message.octets, message.source);
            if source.port() == 0 {
                // Nobody can be reached there.
                shared.counts.add(Counter::ServerDropped);
                return;
            }
            let client = Client { source: source.ip(), transport: Transport::Udp, now };
            // Every reply over UDP, ready or not, comes by here before it is sent.
            let start = out.len();
            let watch = shared.counts.begin();
            let replied = ready.respond(query, &client, &mut || random.next(), &shared.counts, out);
            if let Some(Replied { account, parts, .. }) = replied {
                let limit = ready.service().settings.rate_limit.as_ref();
                match shared.limiter.judge(limit, &account, client.source, client.now, &shared.counts) {
                    Action::Send => {}
                    Action::Truncate => parts.truncate(start, out),
                    Action::Drop => out.truncate(start),
                }
            }
            if let Some(watch) = watch {
                let ip = message.local().unwrap_or(local.ip());
                watch.answered(Answered {
                    at: now,
                    outcome: Counts::outcome(),
                    client: source,
                    server: SocketAddr::new(ip, local.port()),
                    transport: Transport::Udp,
                    query,
                    reply: out.get(start..).filter(|reply| !reply.is_empty()),
                });
            }
        });
        batch.send(socket, |error| log::debug!("cannot send a DNS reply: {error}"));
        if stopped {
            return;
        }
    }
}

/// Wakes the thread that waits for a socket's messages; it sees then that the server is stopped.
pub(super) fn wake(socket: &UdpSocket) {
    // An unconnected socket is woken all the same, and says that it is not connected.
    let _ = SockRef::from(socket).shutdown(std::net::Shutdown::Read);
}

/// A socket on an address that shares it with its brothers.
pub(super) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    set_up(&SockRef::from(&socket), address)?;
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Sets a socket up that will be bound to an address, or is. On a wildcard address it says which address a query was
/// sent to.
pub(super) fn set_up(socket: &SockRef<'_>, address: SocketAddr) -> io::Result<()> {
    socket.set_nonblocking(false)?;
    socket.set_read_timeout(Some(LOOK_AROUND))?;
    // A smaller buffer serves as well, until there is a burst.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    let wildcard = address.ip().is_unspecified();
    if address.is_ipv6() {
        if wildcard {
            sockopt::set(&**socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
        }
        sockopt::set(&**socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
    } else {
        if wildcard {
            sockopt::set(&**socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
        }
        // DF is set, and a forged "fragmentation needed" changes nothing (RFC 9715 §3.1).
        sockopt::set(&**socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
    }
    Ok(())
}
