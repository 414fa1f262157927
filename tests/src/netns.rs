//! Network namespaces and veth pairs for one test.
//!
//! A [`Namespace`] has no name and no file: it is a descriptor, so the kernel removes it, its interfaces, its
//! XDP programs and whatever was mounted in it with the last thread and descriptor in it, also when the
//! test panics or is killed. A thread enters it with [`Namespace::run`], a program is started in it with
//! [`Namespace::command`].

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{self, Command};
use std::thread;

/// Whether this process may make namespaces and attach XDP programs in them; says so when not, or panics
/// when it must, like [`crate::need_bpf`].
pub fn need_netns() -> bool {
    let made = thread::spawn(|| {
        // SAFETY: changes the namespaces of this new thread only.
        check(unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS) })
    });
    if let Err(error) = made.join().expect("the thread ends") {
        let required = std::env::var(crate::REQUIRE_BPF).is_ok_and(|value| value == "1");
        assert!(!required, "{}=1, but namespaces cannot be made: {error}", crate::REQUIRE_BPF);
        println!("SKIPPED netns: {error}");
        return false;
    }
    crate::need_bpf()
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

    /// The same namespace once more, for a thread of its own.
    ///
    /// # Panics
    /// When this process has no descriptors left.
    pub fn share(&self) -> Self {
        let again = |file: &File| file.try_clone().expect("a descriptor");
        Self { net: again(&self.net), mounts: again(&self.mounts) }
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
    /// The link that holds a program on the client's interface.
    _receive: Option<OwnedFd>,
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
    /// Without root, or without the tool `ip`.
    pub fn new() -> Self {
        let pair = Self { server: Namespace::new(), client: Namespace::new(), _receive: None };
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
        // veth hands frames of XDP_TX to a peer that has a NAPI context, but wakes it only when the peer has
        // an XDP program of its own (`veth_xdp_flush`): `ethtool -K gro on` is not enough.
        let receive = pair.client.run(|| attach_pass(client)).expect("XDP on the client's interface");
        Self { _receive: Some(receive), ..pair }
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

/// Attaches a program that passes everything to an interface of the thread's namespace; it goes with the
/// descriptor.
pub fn attach_pass(interface: &str) -> io::Result<OwnedFd> {
    /// The beginning of `union bpf_attr` for `BPF_PROG_LOAD`.
    #[repr(C)]
    struct Load {
        kind: u32,
        count: u32,
        instructions: u64,
        license: u64,
        log: [u64; 2],
        kernel_version: u32,
        flags: u32,
    }
    /// And for `BPF_LINK_CREATE`.
    #[repr(C)]
    struct Link {
        program: u32,
        interface: u32,
        attach_type: u32,
        flags: u32,
    }
    const PROG_LOAD: i64 = 5;
    const LINK_CREATE: i64 = 28;
    const PROG_TYPE_XDP: u32 = 6;
    const ATTACH_XDP: u32 = 37;
    /// `BPF_F_XDP_HAS_FRAGS`: without it a program on the peer limits the MTU.
    const HAS_FRAGS: u32 = 1 << 5;
    const DRIVER_MODE: u32 = 1 << 2;
    // r0 = XDP_PASS; exit
    let code: [u64; 2] = [0x0000_0002_0000_00b7, 0x95];
    let load = Load {
        kind: PROG_TYPE_XDP,
        count: code.len() as u32,
        instructions: code.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log: [0; 2],
        kernel_version: 0,
        flags: HAS_FRAGS,
    };
    // SAFETY: laid out as the command asks; code and license live beyond the call.
    let program = unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, &load, size_of::<Load>()) };
    check(program.min(0) as i32)?;
    // SAFETY: just opened and known to nobody else.
    let program = unsafe { OwnedFd::from_raw_fd(program as i32) };
    let name = CString::new(interface)?;
    // SAFETY: reads a terminated string.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    let link = Link {
        program: program.as_raw_fd() as u32,
        interface: index,
        attach_type: ATTACH_XDP,
        flags: DRIVER_MODE,
    };
    // SAFETY: laid out as the command asks; it holds no pointers.
    let link = unsafe { libc::syscall(libc::SYS_bpf, LINK_CREATE, &link, size_of::<Link>()) };
    check(link.min(0) as i32)?;
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(link as i32) })
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
