//! DNS over UDP: one task per socket; every reply leaves from the address that was asked (RFC 2181 §4.1),
//! also on a socket bound to the wildcard address.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use router_common::counter::Counter;
use socket2::{Domain, MaybeUninitSlice, MsgHdr, MsgHdrMut, Protocol, SockAddr, SockRef, Socket, Type};
use tokio::io::Interest;

use super::limit::Action;
use super::random::Random;
use super::reply::Reply;
use super::server::Shared;
use super::{Client, Transport, reply_to};
use crate::clock::unix_now;

/// Largest UDP payload.
const MAX_PAYLOAD: usize = 65_535;
/// Room for one packet information message of either family, header included.
const CONTROL: usize = 64;
/// Pause after an unexpected error, so that one that lasts does not spin.
const ERROR_PAUSE: Duration = Duration::from_millis(100);
/// Kernel buffer for queries that wait; the system's own limit may make it less.
const RECEIVE_BUFFER: usize = 4 << 20;

/// Answers queries on one socket until the server is stopped.
pub(super) async fn answer(socket: tokio::net::UdpSocket, mut shared: Shared) {
    let mut random = Random::new();
    let mut inbox = Inbox::new();
    let mut service = shared.services.borrow_and_update().clone();
    loop {
        let received = tokio::select! {
            received = socket.async_io(Interest::READABLE, || inbox.receive(&socket)) => received,
            _ = shared.stopped.wait_for(|&stopped| stopped) => return,
        };
        let (len, source, local) = match received {
            Ok(received) => received,
            Err(error) => {
                log::warn!("cannot receive a DNS query: {error}");
                tokio::time::sleep(ERROR_PAUSE).await;
                continue;
            }
        };
        if source.port() == 0 {
            // Nobody can be reached there.
            shared.counts.add(Counter::ServerDropped);
            continue;
        }
        // The agent may be gone while the server is being stopped; the last service still holds.
        if shared.services.has_changed().unwrap_or(false) {
            service = shared.services.borrow_and_update().clone();
        }
        let client = Client { source: source.ip(), transport: Transport::Udp, now: unix_now() };
        let reply = reply_to(&service, inbox.message(len), &client, &mut || random.next(), &shared.counts);
        let Some(Reply { mut octets, account, parts, .. }) = reply else { continue };
        let limit = service.settings.rate_limit.as_ref();
        match shared.limiter.judge(limit, &account, client.source, client.now, &shared.counts) {
            Action::Send => {}
            Action::Truncate => parts.truncate(&mut octets),
            Action::Drop => continue,
        }
        let sent = socket.async_io(Interest::WRITABLE, || send(&socket, &octets, source, local)).await;
        if let Err(error) = sent {
            log::debug!("{source}: cannot send a DNS reply: {error}");
        }
    }
}

/// A socket on an address that shares it with its brothers, and says which address a query was sent to.
pub(super) fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    // A smaller buffer serves as well, until there is a burst.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
        set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
        set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)?;
    } else {
        set_option(&socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
        // DF is set, and a forged "fragmentation needed" changes nothing (RFC 9715 §3.1).
        set_option(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)?;
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn set_option(socket: &Socket, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open as long as `socket` is borrowed, and the option value is a `c_int`
    // that lives through the call, with its size given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The local address that a query was sent to, and so the one its reply leaves from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Local {
    V4(Ipv4Addr),
    /// With the interface, which a link-local address needs.
    V6(Ipv6Addr, u32),
}

/// Where a message and what the kernel says of it are received into.
struct Inbox {
    message: Box<[u8]>,
    control: [u8; CONTROL],
}

impl Inbox {
    fn new() -> Self {
        Self { message: vec![0; MAX_PAYLOAD].into_boxed_slice(), control: [0; CONTROL] }
    }

    fn message(&self, len: usize) -> &[u8] {
        self.message.get(..len).unwrap_or(&self.message)
    }

    /// Receives one message: its length, where it is from, and which address it was sent to.
    fn receive(&mut self, socket: &tokio::net::UdpSocket) -> io::Result<(usize, SocketAddr, Option<Local>)> {
        let mut source = SockAddr::from(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)));
        let mut buffers = [MaybeUninitSlice::new(uninit(&mut self.message))];
        let mut header = MsgHdrMut::new()
            .with_addr(&mut source)
            .with_buffers(&mut buffers)
            .with_control(uninit(&mut self.control));
        let len = SockRef::from(socket).recvmsg(&mut header, 0)?;
        let control_len = header.control_len();
        let source = source.as_socket().ok_or(io::ErrorKind::InvalidData)?;
        Ok((len, source, local_of(self.control.get(..control_len).unwrap_or_default())))
    }
}

/// Lends initialised octets to a call that only ever writes octets into them.
fn uninit(octets: &mut [u8]) -> &mut [MaybeUninit<u8>] {
    // SAFETY: `MaybeUninit<u8>` has the layout of `u8`. The slice is only handed to `recvmsg`, which
    // stores initialised octets or nothing, so that `octets` is initialised when the borrow ends.
    unsafe { &mut *(std::ptr::from_mut(octets) as *mut [MaybeUninit<u8>]) }
}

/// Sends a reply from the address that was asked; without one, from the socket's.
fn send(
    socket: &tokio::net::UdpSocket,
    reply: &[u8],
    to: SocketAddr,
    from: Option<Local>,
) -> io::Result<usize> {
    let to = SockAddr::from(to);
    let buffers = [IoSlice::new(reply)];
    let control = from.map(control_for).unwrap_or_default();
    let mut header = MsgHdr::new().with_addr(&to).with_buffers(&buffers);
    if !control.is_empty() {
        header = header.with_control(&control);
    }
    SockRef::from(socket).sendmsg(&header, 0)
}

/// Octets of `struct cmsghdr` on this machine: a length as wide as a pointer, level, type.
const CMSG_HEAD: usize = size_of::<libc::cmsghdr>();

/// Finds the packet information among control messages (cmsg(3)).
fn local_of(mut control: &[u8]) -> Option<Local> {
    while let Some((length, rest)) = control.split_first_chunk::<{ size_of::<usize>() }>() {
        let length = usize::from_ne_bytes(*length);
        let (level, rest) = rest.split_first_chunk::<4>()?;
        let (kind, _) = rest.split_first_chunk::<4>()?;
        let payload = control.get(CMSG_HEAD..length)?;
        match (libc::c_int::from_ne_bytes(*level), libc::c_int::from_ne_bytes(*kind)) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // struct in_pktinfo: interface, local address (also for a broadcast), destination.
                let local: [u8; 4] = payload.get(4..8)?.try_into().ok()?;
                return Some(Local::V4(local.into()));
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                // struct in6_pktinfo: destination, interface.
                let destination: [u8; 16] = payload.get(..16)?.try_into().ok()?;
                let interface: [u8; 4] = payload.get(16..20)?.try_into().ok()?;
                let destination = Ipv6Addr::from(destination);
                // A reply must not leave from a group's address.
                return (!destination.is_multicast())
                    .then_some(Local::V6(destination, u32::from_ne_bytes(interface)));
            }
            _ => control = control.get(length.next_multiple_of(size_of::<usize>())..)?,
        }
    }
    None
}

/// The control message that chooses the source address of a reply.
fn control_for(local: Local) -> Vec<u8> {
    let (level, kind, payload) = match local {
        Local::V4(address) => {
            let mut payload = vec![0; 12];
            payload.splice(4..8, address.octets());
            (libc::IPPROTO_IP, libc::IP_PKTINFO, payload)
        }
        Local::V6(address, interface) => {
            // Routing chooses the interface, except that a link-local address means nothing without one.
            let interface = if address.is_unicast_link_local() { interface } else { 0 };
            let payload = [&address.octets()[..], &interface.to_ne_bytes()].concat();
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, payload)
        }
    };
    let length = CMSG_HEAD + payload.len();
    let mut control = Vec::with_capacity(length.next_multiple_of(size_of::<usize>()));
    control.extend_from_slice(&length.to_ne_bytes());
    control.extend_from_slice(&level.to_ne_bytes());
    control.extend_from_slice(&kind.to_ne_bytes());
    control.extend_from_slice(&payload);
    control.resize(length.next_multiple_of(size_of::<usize>()), 0);
    control
}
