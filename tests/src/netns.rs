//! Network namespaces and veth pairs for one test.
//!
//! A [`Namespace`] has no name and no file: it is a descriptor, so the kernel removes it, its interfaces, its
//! XDP programs and whatever was mounted in it with the last thread and descriptor in it, also when the
//! test panics or is killed. A thread enters it with [`Namespace::run`], a program is started in it with
//! [`Namespace::command`].

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{self, Command};
use std::thread;

/// Set to anything where the privileged tests must run (`cargo xtask test`, CI).
const REQUIRE: &str = "XROUTE_REQUIRE_BPF";

/// Whether this process may make namespaces and load BPF programs; a test that may not ends at once.
///
/// # Panics
/// When it may not but must (`XROUTE_REQUIRE_BPF`): a privileged test is never skipped silently there.
pub fn privileged() -> bool {
    // SAFETY: a system call without arguments.
    let root = unsafe { libc::geteuid() } == 0;
    assert!(root || std::env::var_os(REQUIRE).is_none(), "{REQUIRE} is set, but this is not root");
    if !root {
        eprintln!("skipped: not root");
    }
    root
}

/// A network namespace with a mount namespace of its own.
pub struct Namespace {
    net: File,
    mounts: File,
}

impl Namespace {
    /// Makes one, with the loopback interface up.
    ///
    /// # Panics
    /// Without root.
    pub fn new() -> Self {
        let made = thread::spawn(|| -> io::Result<Self> {
            // SAFETY: changes the namespaces of this new thread only.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS) })?;
            // SAFETY: terminated strings and flags. Mounts made here must not appear outside.
            check(unsafe {
                libc::mount(
                    c"none".as_ptr(),
                    c"/".as_ptr(),
                    std::ptr::null(),
                    libc::MS_REC | libc::MS_PRIVATE,
                    std::ptr::null(),
                )
            })?;
            Ok(Self {
                net: File::open("/proc/thread-self/ns/net")?,
                mounts: File::open("/proc/thread-self/ns/mnt")?,
            })
        });
        let made = made.join().expect("the thread ends").expect("a namespace (root is needed)");
        made.sh("ip link set lo up");
        made
    }

    /// Runs something on a new thread inside.
    ///
    /// # Panics
    /// When `inside` does, with its message.
    pub fn run<R: Send>(&self, inside: impl FnOnce() -> R + Send) -> R {
        let result = thread::scope(|scope| {
            let inside = scope.spawn(|| {
                enter(self.net.as_raw_fd(), self.mounts.as_raw_fd()).expect("the namespace is entered");
                inside()
            });
            inside.join()
        });
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// A command that will run inside.
    pub fn command(&self, program: &str) -> Command {
        let (net, mounts) = (self.net.as_raw_fd(), self.mounts.as_raw_fd());
        let mut command = Command::new(program);
        // SAFETY: between fork and exec it makes three system calls and allocates nothing.
        unsafe { command.pre_exec(move || enter(net, mounts)) };
        command
    }

    /// Runs a shell line inside.
    ///
    /// # Panics
    /// With its output when it fails.
    pub fn sh(&self, line: &str) -> String {
        let output = self.command("sh").args(["-ec", line]).output().expect("sh starts");
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        assert!(output.status.success(), "{line}: {}{}", text(&output.stdout), text(&output.stderr));
        text(&output.stdout)
    }

    /// A path to it for tools (`ip link set … netns PATH`), valid while it lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", process::id(), self.net.as_raw_fd())
    }
}

impl Default for Namespace {
    fn default() -> Self {
        Self::new()
    }
}

/// Two namespaces joined by a veth pair, with addresses of both families.
pub struct Pair {
    /// Where XDP goes: interface [`Pair::SERVER`].
    pub server: Namespace,
    /// Where queries come from: interface [`Pair::CLIENT`].
    pub client: Namespace,
}

impl Pair {
    /// The server's interface.
    pub const SERVER: &'static str = "xr0";
    /// The client's interface.
    pub const CLIENT: &'static str = "xr1";
    /// The server's addresses.
    pub const SERVER_ADDRESSES: [&'static str; 2] = ["10.77.0.53", "fd77::53"];
    /// The client's addresses.
    pub const CLIENT_ADDRESSES: [&'static str; 2] = ["10.77.0.1", "fd77::1"];

    /// Makes them.
    ///
    /// # Panics
    /// Without root, or without the tools `ip` and `ethtool`.
    pub fn new() -> Self {
        let pair = Self { server: Namespace::new(), client: Namespace::new() };
        let (server, client) = (Self::SERVER, Self::CLIENT);
        pair.server
            .sh(&format!("ip link add {server} type veth peer name {client} netns {}", pair.client.path()));
        for (namespace, interface, addresses) in
            [(&pair.server, server, Self::SERVER_ADDRESSES), (&pair.client, client, Self::CLIENT_ADDRESSES)]
        {
            let [ipv4, ipv6] = addresses;
            namespace.sh(&format!("ip link set {interface} up"));
            namespace.sh(&format!("ip addr add {ipv4}/24 dev {interface}"));
            namespace.sh(&format!("ip addr add {ipv6}/64 dev {interface} nodad"));
        }
        // veth delivers XDP_TX only to a peer that has a NAPI context.
        pair.client.sh(&format!("ethtool -K {client} gro on"));
        pair
    }
}

impl Default for Pair {
    fn default() -> Self {
        Self::new()
    }
}

/// Moves the calling thread, or a process after fork, into namespaces.
fn enter(net: RawFd, mounts: RawFd) -> io::Result<()> {
    // A thread that shares its working directory with others cannot change its mount namespace.
    // SAFETY: a system call without pointers.
    check(unsafe { libc::unshare(libc::CLONE_FS) })?;
    // SAFETY: as above.
    check(unsafe { libc::setns(mounts, libc::CLONE_NEWNS) })?;
    // SAFETY: as above.
    check(unsafe { libc::setns(net, libc::CLONE_NEWNET) })
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How many bpffs the calling thread sees mounted: for tests that nothing is left.
pub fn mounts_of_bpffs() -> usize {
    fs::read_to_string("/proc/thread-self/mountinfo")
        .unwrap_or_default()
        .lines()
        .filter(|line| line.contains(" - bpf "))
        .count()
}
