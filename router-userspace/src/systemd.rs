//! What a service manager is told and gives: sd_notify(3), sd_listen_fds(3), sd_watchdog_enabled(3).
//!
//! Each is a line of text on a datagram socket, or a variable of the environment. Without a service manager nothing
//! is told, and nothing is missing.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

/// First descriptor that is passed (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;

/// How long a service manager that is busy is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// The way to the service manager.
#[derive(Default)]
pub struct Notify {
    socket: Option<UnixDatagram>,
}

impl Notify {
    /// As `NOTIFY_SOCKET` says; one that cannot be reached is logged, and then nothing is told.
    pub fn from_environment() -> Self {
        let Some(path) = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else {
            return Self::default();
        };
        Self::at(Path::new(&path)).unwrap_or_else(|error| {
            log::warn!("the service manager cannot be told anything: {}: {error}", path.display());
            Self::default()
        })
    }

    /// At this path, or in the abstract name space when it begins with `@`.
    ///
    /// # Errors
    /// When nobody is there.
    pub fn at(path: &Path) -> io::Result<Self> {
        let address = match path.as_os_str().as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(path)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { socket: Some(socket) })
    }

    /// Whether somebody listens.
    pub fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// Tells lines such as `READY=1`.
    pub fn tell(&self, lines: &str) {
        self.send(lines, None, MsgFlags::empty());
    }

    /// Tells what is told again anyway, when there is room for it.
    pub fn mention(&self, lines: &str) {
        self.send(lines, None, MsgFlags::MSG_DONTWAIT);
    }

    /// Gives a descriptor to be kept over a restart; an equal one under another name is kept twice.
    pub fn keep(&self, name: &str, descriptor: BorrowedFd<'_>) {
        // Nobody polls it: an error on a socket is no reason to forget it.
        self.send(&format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0"), Some(descriptor), MsgFlags::empty());
    }

    /// What was kept under a name is not wanted any more.
    pub fn forget(&self, name: &str) {
        self.send(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), None, MsgFlags::empty());
    }

    fn send(&self, lines: &str, descriptor: Option<BorrowedFd<'_>>, flags: MsgFlags) {
        let Some(socket) = &self.socket else { return };
        let descriptors: Vec<RawFd> = descriptor.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&descriptors)];
        let control = if descriptors.is_empty() { &[][..] } else { &rights[..] };
        let parts = [IoSlice::new(lines.as_bytes())];
        let sent =
            sendmsg::<()>(socket.as_fd().as_raw_fd(), &parts, control, MsgFlags::MSG_NOSIGNAL | flags, None);
        match sent {
            Err(nix::Error::EAGAIN) if flags.contains(MsgFlags::MSG_DONTWAIT) => {}
            Err(error) => log::warn!("the service manager was not told {lines:?}: {error}"),
            Ok(_) => {}
        }
    }
}

/// A descriptor that the service manager gave, and under what name.
#[derive(Debug)]
pub struct Given {
    /// The descriptor; not passed on to programs.
    pub descriptor: OwnedFd,
    /// Its name, `unknown` when it has none.
    pub name: String,
}

/// The descriptors that the service manager gave to this process.
///
/// # Safety
/// Called once, before this process opens anything that could have one of their numbers, and nothing else in it
/// uses them.
pub unsafe fn given() -> Vec<Given> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    if number("LISTEN_PID") != Some(std::process::id()) {
        return Vec::new();
    }
    let count = number("LISTEN_FDS").and_then(|count| RawFd::try_from(count).ok()).unwrap_or(0);
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    let mut given = Vec::new();
    for raw in FIRST..FIRST.saturating_add(count) {
        let name = names.next().filter(|name| !name.is_empty()).unwrap_or("unknown").to_owned();
        // SAFETY: asks for the flags of whatever has this number, and changes nothing.
        if unsafe { libc::fcntl(raw, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
            log::warn!("the service manager said that descriptor {raw} ({name}) is open, which it is not");
            continue;
        }
        // SAFETY: it is open, and by the caller's promise ours alone.
        given.push(Given { descriptor: unsafe { OwnedFd::from_raw_fd(raw) }, name });
    }
    given
}

/// How often the service manager wants a sign of life; `None` when it does not watch. After an upgrade the process is
/// not the one it said it to (`heir`), and goes on with it all the same.
pub fn watchdog(heir: bool) -> Option<Duration> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let microseconds = number("WATCHDOG_USEC").filter(|&microseconds| microseconds > 0)?;
    let mine = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
    (mine || heir).then(|| Duration::from_micros(microseconds))
}
