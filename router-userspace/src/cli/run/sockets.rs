//! Everything that is listened on: given by the agent before or by the service manager, else made here.
//!
//! A socket that is given is told by its own name, not by how it was called, so that `[server]` stays the one place
//! that says what is listened on.

use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use socket2::{SockRef, Type};

use crate::dns::sockets::{self, Listening};
use crate::settings::Server;
use crate::systemd::Notify;
use crate::{control, systemd};

/// Sockets that another process gave.
#[derive(Default)]
pub(super) struct Given {
    dns: sockets::Given,
    control: Vec<(PathBuf, UnixListener)>,
    /// Whether unix sockets are the service manager's, who made their files and takes them away.
    control_stays: bool,
    /// As they are kept by the service manager.
    names: Vec<String>,
}

impl Given {
    /// Those of the agent before.
    ///
    /// # Errors
    /// When one of them is nothing that an agent listens on.
    pub(super) fn of_agent(descriptors: Vec<OwnedFd>, control_stays: bool) -> anyhow::Result<Self> {
        let mut given = Self { control_stays, ..Self::default() };
        for descriptor in descriptors {
            given.names.push(kept_as(descriptor.as_fd())?);
            given.take_in(descriptor)?;
        }
        Ok(given)
    }

    /// Those of the service manager: from socket units, or what an agent before gave it to keep.
    ///
    /// # Errors
    /// When one of them is nothing that an agent listens on.
    pub(super) fn of_service_manager(given: Vec<systemd::Given>) -> anyhow::Result<Self> {
        let mut all = Self { control_stays: true, ..Self::default() };
        for systemd::Given { descriptor, name } in given {
            let name_of = name.clone();
            all.take_in(descriptor)
                .with_context(|| format!("the service manager gave a socket ({name_of}) of no use"))?;
            all.names.push(name);
        }
        Ok(all)
    }

    fn take_in(&mut self, descriptor: OwnedFd) -> anyhow::Result<()> {
        let socket = SockRef::from(&descriptor);
        let address = socket.local_addr().context("it is no socket")?;
        let kind = socket.r#type().context("it is no socket")?;
        let listens = kind == Type::STREAM && socket.is_listener().unwrap_or(false);
        match (address.as_socket(), address.as_pathname()) {
            (Some(address), _) if listens => {
                let listener = TcpListener::from(descriptor);
                listener.set_nonblocking(true)?;
                self.dns.tcp.push((address, listener));
            }
            (Some(address), _) if kind == Type::DGRAM => self.dns.udp.push((address, descriptor.into())),
            (None, Some(path)) if listens => {
                let path = path.to_owned();
                let listener = UnixListener::from(descriptor);
                listener.set_nonblocking(true)?;
                self.control.push((path, listener));
            }
            _ => bail!("it is neither a UDP socket nor a listening TCP or unix stream socket"),
        }
        Ok(())
    }

    fn take_control(&mut self, path: &Path) -> Option<UnixListener> {
        let at = self.control.iter().position(|(bound, _)| bound == path)?;
        Some(self.control.swap_remove(at).1)
    }

    /// Names of sockets that nobody took.
    fn left(&self) -> impl Iterator<Item = String> {
        let tcp = self.dns.tcp.iter().map(|(address, _)| format!("TCP {address}"));
        let udp = self.dns.udp.iter().map(|(address, _)| format!("UDP {address}"));
        tcp.chain(udp).chain(self.control.iter().map(|(path, _)| path.display().to_string()))
    }
}

/// Open sockets, not served on so far.
pub(super) struct Sockets {
    pub(super) dns: Vec<Listening>,
    pub(super) control: UnixListener,
    pub(super) http: Option<TcpListener>,
    /// Whether the control socket was given.
    pub(super) control_given: bool,
    /// Whether its file stays when the agent ends.
    pub(super) control_stays: bool,
    /// What the service manager keeps and is not used.
    unused: Vec<String>,
}

impl Sockets {
    /// Opens what `[server]` names and nobody gave.
    ///
    /// # Errors
    /// When an address or a path cannot be had.
    pub(super) fn open(settings: &Server, mut given: Given, notify: &Notify) -> anyhow::Result<Self> {
        let control = given.take_control(&settings.control);
        let control_given = control.is_some();
        let control_stays = control_given && given.control_stays;
        let control = control.map_or_else(|| control::bind(settings), Ok)?;
        let mut dns = sockets::open(&settings.listen, &mut given.dns)?;
        let http = settings.http.map(|address| match given.dns.take_tcp(address) {
            Some(listener) => Ok(listener),
            None => listen(address).with_context(|| format!("cannot listen on {address} (server.http)")),
        });
        let http = http.transpose()?;
        for left in given.left() {
            log::warn!("not in [server], and not used: {left}, which this agent was given");
        }
        // The service manager will have them as well.
        for listening in dns.iter_mut().filter(|_| notify.is_there()) {
            listening.shared = true;
        }
        let mut sockets = Self { dns, control, http, control_given, control_stays, unused: Vec::new() };
        let used: Vec<String> = sockets.descriptors().filter_map(|used| kept_as(used).ok()).collect();
        sockets.unused =
            given.names.into_iter().filter(|name| is_ours(name) && !used.contains(name)).collect();
        Ok(sockets)
    }

    /// All but the control socket.
    fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let dns = self
            .dns
            .iter()
            .flat_map(|listening| listening.udp.iter().map(AsFd::as_fd).chain([listening.tcp.as_fd()]));
        dns.chain(self.http.as_ref().map(AsFd::as_fd))
    }

    /// Those that the API is behind.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub(super) fn of_api(&self) -> std::io::Result<Vec<OwnedFd>> {
        let sockets = [self.control.as_fd()].into_iter().chain(self.http.as_ref().map(AsFd::as_fd));
        sockets.map(|socket| socket.try_clone_to_owned()).collect()
    }

    /// What there is for the service manager to keep, so that a restart or crash loses nothing that waits in them. Not
    /// the control socket: its file goes with the agent.
    ///
    /// # Errors
    /// When there are no descriptors left.
    pub(super) fn take_to_keep(&mut self) -> anyhow::Result<ToKeep> {
        let kept = self.descriptors().map(|socket| Ok((kept_as(socket)?, socket.try_clone_to_owned()?)));
        Ok(ToKeep { kept: kept.collect::<anyhow::Result<_>>()?, unused: std::mem::take(&mut self.unused) })
    }
}

/// See [`Sockets::take_to_keep`].
pub(super) struct ToKeep {
    kept: Vec<(String, OwnedFd)>,
    unused: Vec<String>,
}

impl ToKeep {
    /// Gives them to the service manager; those it has already it knows.
    pub(super) fn tell(self, notify: &Notify) {
        for name in &self.unused {
            notify.forget(name);
        }
        for (name, socket) in &self.kept {
            notify.keep(name, socket.as_fd());
        }
    }
}

fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// What the service manager is told to keep a socket as: what it is bound to, in letters that may be in such a name.
fn kept_as(socket: BorrowedFd<'_>) -> anyhow::Result<String> {
    let socket = SockRef::from(&socket);
    let address = socket.local_addr().context("not a socket")?;
    let kind = if socket.r#type()? == Type::DGRAM { "udp" } else { "tcp" };
    Ok(match address.as_socket() {
        Some(address) => format!("xroute-{kind}-{}", address.to_string().replace([':', '[', ']', '%'], "_")),
        None => String::from("control"),
    })
}

/// Whether an agent gave a socket that name.
fn is_ours(name: &str) -> bool {
    name.starts_with("xroute-")
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    fn settings(listen: &[SocketAddr], control: PathBuf) -> Server {
        Server { listen: listen.to_vec(), control, ..Server::default() }
    }

    #[test]
    fn sockets_are_found_by_what_they_are_bound_to() {
        let folder = tempfile::tempdir().unwrap();
        let control = folder.path().join("control.sock");
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        let udp = UdpSocket::bind(address).unwrap();
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        let settings = settings(&[address], control.clone());
        let unix = UnixListener::bind(&control).unwrap();
        let name = |socket: BorrowedFd<'_>| kept_as(socket).unwrap();
        let (ours, unused) = (name(udp.as_fd()), name(other.as_fd()));
        assert_eq!(ours, format!("xroute-udp-127.0.0.1_{}", address.port()));
        let given = [other.into(), OwnedFd::from(unix), tcp.into(), udp.into()];
        let given = given.map(|descriptor: OwnedFd| systemd::Given {
            name: kept_as(descriptor.as_fd()).unwrap(),
            descriptor,
        });
        let given = Given::of_service_manager(given.into()).unwrap();
        let mut sockets = Sockets::open(&settings, given, &Notify::default()).unwrap();
        assert!(sockets.control_given && sockets.dns[0].shared);
        assert_eq!((sockets.dns.len(), sockets.dns[0].udp.len()), (1, 1));
        let keep = sockets.take_to_keep().unwrap();
        assert_eq!(keep.unused, [unused]);
        assert_eq!(keep.kept.len(), 2);
    }

    #[test]
    fn what_is_no_socket_of_an_agent_is_refused() {
        let file: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        let stream = std::os::unix::net::UnixStream::pair().unwrap().0.into();
        for descriptor in [file, stream] {
            let given = systemd::Given { descriptor, name: "odd.socket".into() };
            let error = Given::of_service_manager(vec![given]).map(drop).unwrap_err();
            assert!(format!("{error:#}").contains("odd.socket"), "{error:#}");
        }
    }
}
