//! Several messages in one system call: recvmmsg(2), sendmmsg(2). The only code of the server that hands
//! pointers to the kernel.

use std::io;
use std::mem::zeroed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Messages in a batch, at most.
const BATCH: usize = 32;
/// Largest UDP payload.
const MAX_PAYLOAD: usize = 65_535;
/// From one message's room to the next one's: not a whole number of pages, because most queries are short, and
/// all of their first octets would compete for the same few lines of the cache. Pages that no long message
/// ever came to are never touched, and take no memory.
const STRIDE: usize = 65_536 + 320;
/// Room for a socket address of either family.
const NAME: usize = 28;
/// Room for one packet information message of either family, header included.
const CONTROL: usize = 64;
/// Octets of `struct cmsghdr` on this machine: a length as wide as a pointer, level, type.
const CMSG_HEAD: usize = size_of::<libc::cmsghdr>();

/// The messages of a batch, and the replies to them.
pub(super) struct Batch {
    /// [`BATCH`] times [`STRIDE`].
    octets: Vec<u8>,
    places: Vec<Place>,
    /// How many were received.
    count: usize,
    /// Replies, one behind the other.
    out: Vec<u8>,
    replies: Vec<Outgoing>,
}

/// What the kernel says of a message.
#[derive(Clone, Copy)]
struct Place {
    name: [u8; NAME],
    name_len: usize,
    control: [u8; CONTROL],
    control_len: usize,
    len: usize,
}

/// A message that was received.
#[derive(Clone, Copy)]
pub(super) struct Message<'b> {
    pub octets: &'b [u8],
    pub source: SocketAddr,
    control: &'b [u8],
}

impl Message<'_> {
    /// The local address that it was sent to, where the kernel says.
    pub fn local(&self) -> Option<IpAddr> {
        Some(match local_of(self.control)? {
            Local::V4(address) => address.into(),
            Local::V6(address, _) => address.into(),
        })
    }
}

/// A reply.
struct Outgoing {
    octets: Range<usize>,
    to: usize,
}

impl Batch {
    /// Nothing received.
    pub fn new() -> Self {
        let place = Place { name: [0; NAME], name_len: 0, control: [0; CONTROL], control_len: 0, len: 0 };
        Self {
            octets: vec![0; BATCH * STRIDE],
            places: vec![place; BATCH],
            count: 0,
            out: Vec::new(),
            replies: Vec::with_capacity(BATCH),
        }
    }

    /// Waits for messages and receives what is there. How many; none when the socket's time is up.
    pub fn receive(&mut self, socket: &UdpSocket) -> io::Result<usize> {
        self.count = 0;
        // SAFETY: all zeros is a valid value of these structs of integers and pointers.
        let mut vectors: [libc::iovec; BATCH] = unsafe { zeroed() };
        // SAFETY: as above.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        let rooms = self.octets.chunks_exact_mut(STRIDE).zip(&mut self.places);
        for ((vector, header), (room, place)) in vectors.iter_mut().zip(&mut headers).zip(rooms) {
            *vector = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: MAX_PAYLOAD };
            header.msg_hdr.msg_name = place.name.as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = NAME as libc::socklen_t;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = place.control.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL;
        }
        // SAFETY: every header points to buffers of `self` and to a vector of this frame, with their true
        // lengths; they live through the call, no two overlap, and nothing else looks at them meanwhile.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_WAITFORONE,
                std::ptr::null_mut(),
            )
        };
        let Ok(count) = usize::try_from(received) else {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(0),
                _ => Err(error),
            };
        };
        for (header, place) in headers.iter().zip(&mut self.places).take(count) {
            place.len = header.msg_len as usize;
            place.name_len = header.msg_hdr.msg_namelen as usize;
            place.control_len = header.msg_hdr.msg_controllen;
        }
        self.count = count;
        Ok(count)
    }

    /// Gives each message to `answer`, which puts the reply, if one is due, at the end of the buffer.
    pub fn answer(&mut self, mut answer: impl FnMut(Message<'_>, &mut Vec<u8>)) {
        self.out.clear();
        self.replies.clear();
        for (to, (room, place)) in
            self.octets.chunks_exact(STRIDE).zip(&self.places).take(self.count).enumerate()
        {
            let Some(source) = place.name.get(..place.name_len).and_then(address) else { continue };
            let start = self.out.len();
            let control = place.control.get(..place.control_len).unwrap_or_default();
            let octets = room.get(..place.len).unwrap_or_default();
            answer(Message { octets, source, control }, &mut self.out);
            if self.out.len() > start {
                self.replies.push(Outgoing { octets: start..self.out.len(), to });
            }
        }
    }

    /// Sends the replies, each from the address that was asked where that is known. One that cannot be sent
    /// now is lost, and told to `lost`.
    pub fn send(&mut self, socket: &UdpSocket, mut lost: impl FnMut(io::Error)) {
        if self.replies.is_empty() {
            return;
        }
        // SAFETY: all zeros is a valid value of these structs of integers and pointers.
        let mut vectors: [libc::iovec; BATCH] = unsafe { zeroed() };
        // SAFETY: as above.
        let mut headers: [libc::mmsghdr; BATCH] = unsafe { zeroed() };
        let mut count = 0;
        for ((vector, header), reply) in vectors.iter_mut().zip(&mut headers).zip(&self.replies) {
            let (Some(octets), Some(place)) =
                (self.out.get_mut(reply.octets.clone()), self.places.get_mut(reply.to))
            else {
                break;
            };
            *vector = libc::iovec { iov_base: octets.as_mut_ptr().cast(), iov_len: octets.len() };
            header.msg_hdr.msg_name = place.name.as_mut_ptr().cast();
            header.msg_hdr.msg_namelen = place.name_len as libc::socklen_t;
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            let received = place.control.get(..place.control_len).unwrap_or_default();
            if let Some(local) = local_of(received) {
                header.msg_hdr.msg_controllen = local.write(&mut place.control);
                header.msg_hdr.msg_control = place.control.as_mut_ptr().cast();
            }
            count += 1;
        }
        let mut rest = headers.get_mut(..count).unwrap_or_default();
        while !rest.is_empty() {
            // SAFETY: every header of `rest` points to buffers of `self` and to a vector of this frame, with
            // their true lengths; they live through the call, which only reads them.
            let sent = unsafe {
                libc::sendmmsg(
                    socket.as_raw_fd(),
                    rest.as_mut_ptr(),
                    rest.len() as libc::c_uint,
                    libc::MSG_DONTWAIT,
                )
            };
            let done = match usize::try_from(sent) {
                Ok(sent) => sent.max(1),
                Err(_) => {
                    let error = io::Error::last_os_error();
                    if error.kind() == io::ErrorKind::Interrupted {
                        continue;
                    }
                    lost(error);
                    1
                }
            };
            rest = rest.get_mut(done..).unwrap_or_default();
        }
    }
}

/// Reads a `sockaddr_in` or `sockaddr_in6`.
fn address(name: &[u8]) -> Option<SocketAddr> {
    let (family, rest) = name.split_first_chunk::<2>()?;
    let (port, rest) = rest.split_first_chunk::<2>()?;
    let ip = match libc::c_int::from(u16::from_ne_bytes(*family)) {
        libc::AF_INET => IpAddr::from(*rest.first_chunk::<4>()?),
        // Behind the flow label.
        libc::AF_INET6 => IpAddr::from(*rest.get(4..)?.first_chunk::<16>()?),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes(*port)))
}

/// The local address that a query was sent to, and so the one its reply leaves from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Local {
    V4(Ipv4Addr),
    /// With the interface, which a link-local address needs.
    V6(Ipv6Addr, u32),
}

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

impl Local {
    /// Writes the control message that chooses the source address of a reply; its length.
    fn write(self, control: &mut [u8; CONTROL]) -> usize {
        let mut payload = [0; 20];
        let (level, kind, len) = match self {
            Self::V4(address) => {
                payload[4..8].copy_from_slice(&address.octets());
                (libc::IPPROTO_IP, libc::IP_PKTINFO, 12)
            }
            Self::V6(address, interface) => {
                // Routing chooses the interface, except that a link-local address means nothing without one.
                let interface = if address.is_unicast_link_local() { interface } else { 0 };
                payload[..16].copy_from_slice(&address.octets());
                payload[16..].copy_from_slice(&interface.to_ne_bytes());
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, 20)
            }
        };
        let length = CMSG_HEAD + len;
        let head = length.to_ne_bytes().into_iter().chain(level.to_ne_bytes()).chain(kind.to_ne_bytes());
        let octets = head.chain(payload.into_iter().take(len)).chain(std::iter::repeat(0));
        for (to, from) in control.iter_mut().zip(octets) {
            *to = from;
        }
        length.next_multiple_of(size_of::<usize>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_information_is_read_as_it_is_written() {
        for local in [
            Local::V4(Ipv4Addr::new(192, 0, 2, 7)),
            Local::V6("2001:db8::7".parse().unwrap(), 0),
            Local::V6("fe80::7".parse().unwrap(), 3),
        ] {
            let mut control = [0xff; CONTROL];
            let len = local.write(&mut control);
            assert_eq!(local_of(&control[..len]), Some(local));
            // Behind another message.
            let mut other = [0; CMSG_HEAD + 8];
            other[..8].copy_from_slice(&(CMSG_HEAD + 4).to_ne_bytes());
            assert_eq!(local_of(&[&other[..], &control[..len]].concat()), Some(local));
        }
        assert_eq!(local_of(&[]), None);
        assert_eq!(local_of(&[1; 64]), None);
    }

    #[test]
    fn a_reply_that_cannot_be_sent_costs_no_other_one() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        for query in [b"0", b"1", b"2", b"3"] {
            client.send_to(query, server.local_addr().unwrap()).unwrap();
        }
        let mut batch = Batch::new();
        assert_eq!(batch.receive(&server).unwrap(), 4);
        batch.answer(|message, out| {
            assert_eq!(message.source, client.local_addr().unwrap());
            match message.octets {
                // Longer than any datagram.
                b"1" => out.resize(out.len() + 70_000, 0),
                b"2" => {}
                query => out.extend_from_slice(query),
            }
        });
        let mut lost = 0;
        batch.send(&server, |_| lost += 1);
        assert_eq!(lost, 1);
        let mut reply = [0; 16];
        for expected in [b"0", b"3"] {
            let len = client.recv(&mut reply).unwrap();
            assert_eq!(&reply[..len], expected);
        }
    }
}
