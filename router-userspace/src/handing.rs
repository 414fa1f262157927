//! What one process hands to another: descriptors with a few octets about each, over a unix socket.
//!
//! An agent that is upgraded starts the new one with one end of a pair of these sockets as its standard input
//! and hands it what it serves with ([`Message`]). What there is to say at which time is in `cli/run/upgrade.rs` and
//! `cli/run/take_over.rs`.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, sendmsg,
    socketpair,
};
use serde::{Deserialize, Serialize};

/// Longest message: the beginning of a DNS query over TCP, with its kind.
const LONGEST: usize = 1 << 17;

/// One end. Messages keep their bounds and their order.
pub struct Channel(OwnedFd);

/// What is said. Each has at most one descriptor, so that no limit of the kernel on their number is met.
#[derive(Debug)]
pub enum Message {
    /// The new agent has a configuration that is in order, and wants what there is.
    Wanted(Newcomer),
    /// A socket that the old agent serves on; its own name tells which.
    Socket(OwnedFd),
    /// The lock on the pins of the fast path.
    Lock(OwnedFd),
    /// That was all; the old agent changes nothing any more until it hears from the new one.
    Offered(Offer),
    /// The new agent serves: the old one has nothing to do any more.
    Serving(Taken),
    /// The new agent cannot start: the old one goes on.
    Failed(String),
    /// A DNS connection over TCP, and what came in of a query whose rest is still to come.
    Connection(OwnedFd, Vec<u8>),
}

/// The new agent.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Newcomer {
    /// Its version.
    pub version: String,
}

/// What the old agent gives besides descriptors. Fields may be added; an agent takes what it knows.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Offer {
    /// The old agent's process.
    pub pid: u32,
    /// Its version.
    pub version: String,
    /// What it makes DNS cookies with when no secret is configured, 16 octets.
    #[serde(default)]
    pub cookie_secret: Option<[u8; 16]>,
    /// Whether the control socket is a service manager's, so that its file stays when the agent ends.
    #[serde(default)]
    pub control_stays: bool,
}

/// What the new agent made of it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Taken {
    /// Whether it serves on the same control socket.
    pub control: bool,
}

impl Channel {
    /// Two ends.
    ///
    /// # Errors
    /// Without descriptors.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        Ok((Self(one), Self(other)))
    }

    /// Says something; waits when the other end is slow.
    ///
    /// # Errors
    /// When the other end is gone.
    pub fn send(&self, message: &Message) -> io::Result<()> {
        let json =
            |kind: u8, value: serde_json::Result<Vec<u8>>| -> io::Result<(Vec<u8>, Option<BorrowedFd<'_>>)> {
                let mut octets = vec![kind];
                octets.extend(value?);
                Ok((octets, None))
            };
        let (octets, descriptor) = match message {
            Message::Wanted(newcomer) => json(b'w', serde_json::to_vec(newcomer))?,
            Message::Socket(socket) => (vec![b's'], Some(socket.as_fd())),
            Message::Lock(lock) => (vec![b'l'], Some(lock.as_fd())),
            Message::Offered(offer) => json(b'o', serde_json::to_vec(offer))?,
            Message::Serving(taken) => json(b'r', serde_json::to_vec(taken))?,
            Message::Failed(why) => {
                // Cut where it is too long for a message; it is for people.
                let why = why.as_bytes();
                ([b"f", why.get(..LONGEST / 2).unwrap_or(why)].concat(), None)
            }
            Message::Connection(stream, held) => ([b"c", held.as_slice()].concat(), Some(stream.as_fd())),
        };
        let descriptors: Vec<_> = descriptor.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let control = if descriptors.is_empty() { &[][..] } else { &rights[..] };
        let parts = [IoSlice::new(&octets)];
        loop {
            match sendmsg::<()>(self.0.as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL, None) {
                Ok(_) => return Ok(()),
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits for what the other end says; `None` when it is gone.
    ///
    /// # Errors
    /// When it speaks something else.
    pub fn receive(&self) -> io::Result<Option<Message>> {
        let mut octets = vec![0; LONGEST];
        let mut space = nix::cmsg_space!([std::os::fd::RawFd; 1]);
        let (len, descriptor) = loop {
            let mut parts = [IoSliceMut::new(&mut octets)];
            let received =
                recvmsg::<()>(self.0.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC);
            match received {
                Ok(received) => {
                    let mut descriptor = None;
                    for control in received.cmsgs()? {
                        let ControlMessageOwned::ScmRights(descriptors) = control else { continue };
                        for raw in descriptors {
                            // SAFETY: the kernel has just opened it for us, and nobody else knows its number.
                            descriptor = Some(unsafe { OwnedFd::from_raw_fd(raw) });
                        }
                    }
                    break (received.bytes, descriptor);
                }
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::ECONNRESET) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        };
        octets.truncate(len);
        let Some((&kind, body)) = octets.split_first() else { return Ok(None) };
        let missing = || io::Error::new(io::ErrorKind::InvalidData, "a descriptor is missing");
        let message = match kind {
            b'w' => Message::Wanted(serde_json::from_slice(body)?),
            b's' => Message::Socket(descriptor.ok_or_else(missing)?),
            b'l' => Message::Lock(descriptor.ok_or_else(missing)?),
            b'o' => Message::Offered(serde_json::from_slice(body)?),
            b'r' => Message::Serving(serde_json::from_slice(body)?),
            b'f' => Message::Failed(String::from_utf8_lossy(body).into_owned()),
            b'c' => Message::Connection(descriptor.ok_or_else(missing)?, body.to_vec()),
            kind => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("a message of unknown kind {kind}"),
                ));
            }
        };
        Ok(Some(message))
    }
}

impl From<OwnedFd> for Channel {
    fn from(socket: OwnedFd) -> Self {
        Self(socket)
    }
}

impl From<Channel> for OwnedFd {
    fn from(channel: Channel) -> Self {
        channel.0
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn descriptors_and_words_arrive_in_order() {
        let (old, new) = Channel::pair().unwrap();
        let (mut here, there) = UnixStream::pair().unwrap();
        let offer = Offer { pid: 7, version: "1".into(), cookie_secret: Some([9; 16]), control_stays: true };
        old.send(&Message::Socket(there.into())).unwrap();
        old.send(&Message::Offered(offer.clone())).unwrap();
        old.send(&Message::Connection(File::open("/dev/null").unwrap().into(), vec![1; 65_535])).unwrap();
        drop(old);
        let Some(Message::Socket(socket)) = new.receive().unwrap() else { panic!("no socket") };
        here.write_all(b"x").unwrap();
        let mut octet = [0];
        UnixStream::from(socket).read_exact(&mut octet).unwrap();
        assert_eq!(&octet, b"x");
        assert!(matches!(new.receive().unwrap(), Some(Message::Offered(got)) if got == offer));
        assert!(matches!(new.receive().unwrap(), Some(Message::Connection(_, held)) if held == [1; 65_535]));
        assert!(new.receive().unwrap().is_none());
        assert!(new.send(&Message::Serving(Taken::default())).is_err());
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        let (one, other) = Channel::pair().unwrap();
        let raw: OwnedFd = one.into();
        for octets in [&b"?"[..], b"s", b"l", b"c", b"o{", b"w", b"r[]"] {
            nix::unistd::write(&raw, octets).unwrap();
            assert!(other.receive().is_err(), "{octets:?}");
        }
        nix::unistd::write(&raw, b"fwhy").unwrap();
        assert!(matches!(other.receive().unwrap(), Some(Message::Failed(why)) if why == "why"));
    }

    use std::fs::File;
}
