//! A network for one server: a veth pair between two namespaces, whose ends are worked on by two cores.
//!
//! What arrives at an end is worked on by a kernel thread of its own ([threaded NAPI][1]): the server's end on the
//! server's core, so that all of the work for a query is there, as a network card would have it that gives the
//! interrupt to that core; the other end, where queries come from and answers are counted, on the other core.
//!
//! [1]: https://docs.kernel.org/networking/napi.html#threaded-napi

use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process;

use anyhow::{Context, Result, bail, ensure};

use crate::netns::{Namespace, attach_pass};

/// The network.
pub struct Ground {
    /// Where the server is.
    pub server: Namespace,
    /// Where queries come from.
    pub client: Namespace,
    /// The server's interface.
    pub server_interface: String,
    /// The client's interface.
    pub client_interface: String,
    /// MAC address of the server's interface.
    pub server_mac: [u8; 6],
    /// MAC address of the client's interface.
    pub client_mac: [u8; 6],
    /// Kernel threads that work for the server.
    threads: Vec<u32>,
    /// The link that holds a program on the client's interface, without which it is not woken for XDP_TX.
    receive: Option<OwnedFd>,
}

impl Ground {
    /// Where the server listens.
    pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 53);
    /// The client.
    pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

    /// Makes one; `number` tells it from others of this process. Clients of all addresses are reached by it.
    ///
    /// # Errors
    /// When the kernel has no threads for interfaces (before 5.12), or no core.
    ///
    /// # Panics
    /// Without root, or without the tools `ip` and `ethtool`.
    pub fn new(number: usize, folder: &Path, cores: &Cores) -> Result<Self> {
        // Kernel threads are found by the interface's name, and namespaces do not tell them apart.
        let tag = format!("{:x}n{number}", process::id() & 0xf_ffff);
        let [server_interface, client_interface] = ["s", "c"].map(|end| format!("{end}{tag}"));
        let (server, client) = (Namespace::new(), Namespace::new());
        server.sh(&format!(
            "ip link add {server_interface} numrxqueues 1 numtxqueues 1 type veth \
             peer name {client_interface} numrxqueues 1 numtxqueues 1 netns {}",
            client.path()
        ));
        let mut macs = [[0; 6]; 2];
        let mut threads = Vec::new();
        for (at, (namespace, interface, address, core)) in [
            (&server, &server_interface, Self::SERVER, cores.server),
            (&client, &client_interface, Self::CLIENT, cores.client),
        ]
        .into_iter()
        .enumerate()
        {
            namespace.sh("echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter");
            namespace.sh(&format!(
                "ip addr add {address}/24 dev {interface}; ip link set {interface} up; \
                 ethtool -K {interface} gro on"
            ));
            let sys = folder.join(format!("sys{at}"));
            fs::create_dir(&sys)?;
            let class = sys.join("class/net").join(interface);
            namespace.sh(&format!(
                "mount -t sysfs sysfs {sys}; echo 1 > {class}/threaded",
                sys = sys.display(),
                class = class.display()
            ));
            let mac = namespace.sh(&format!("cat {}/address; umount {}", class.display(), sys.display()));
            macs[at] = parse_mac(mac.trim()).with_context(|| format!("no MAC address: {mac}"))?;
            let found = threads_of(interface)?;
            ensure!(!found.is_empty(), "no kernel thread works for {interface}");
            for &thread in &found {
                pin(thread, core)?;
            }
            if at == 0 {
                threads = found;
            }
        }
        let [server_mac, client_mac] = macs;
        let client_end = macs[1].map(|octet| format!("{octet:02x}")).join(":");
        server.sh(&format!(
            "ip neigh replace {client} lladdr {client_end} dev {server_interface} nud permanent; \
             ip route add default via {client}",
            client = Self::CLIENT
        ));
        let mut ground = Self {
            server,
            client,
            server_interface,
            client_interface,
            server_mac,
            client_mac,
            threads,
            receive: None,
        };
        ground.listen()?;
        Ok(ground)
    }

    /// Lets sockets of the client's namespace receive.
    ///
    /// # Errors
    /// When another program is on the interface.
    pub fn listen(&mut self) -> Result<()> {
        let interface = self.client_interface.clone();
        self.receive =
            Some(self.client.run(|| attach_pass(&interface)).context("XDP on the client's interface")?);
        Ok(())
    }

    /// Takes the program off the client's interface, for another one.
    pub fn vacate(&mut self) {
        self.receive = None;
    }

    /// Processor time of the kernel's work for the server so far, in nanoseconds.
    ///
    /// # Errors
    /// When a thread is gone.
    pub fn processor_time(&self) -> Result<u64> {
        self.threads.iter().map(|&thread| run_time(&format!("/proc/{thread}/schedstat"))).sum()
    }
}

/// Who works where.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    /// The server, and the kernel's work for it.
    pub server: usize,
    /// Where queries are made and answers counted.
    pub client: usize,
}

impl Cores {
    /// The first core for the client and the second for the server.
    ///
    /// # Errors
    /// When there is only one.
    pub fn choose() -> Result<Self> {
        let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        ensure!(count > 1, "two cores are needed: one for the server, one for the queries");
        Ok(Self { server: 1, client: 0 })
    }
}

/// Lets a thread run on one core only, before others: the weights of all that are measured are equal.
///
/// # Errors
/// When it is gone, or there is no such core.
pub fn pin(thread: u32, core: usize) -> Result<()> {
    // SAFETY: an empty set is all zero; the macros' functions write inside it.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: as above, the core is below the set's 1,024.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: reads the set.
    if unsafe { libc::sched_setaffinity(thread as i32, size_of_val(&set), &raw const set) } != 0 {
        bail!("thread {thread} cannot run on core {core}: {}", std::io::Error::last_os_error());
    }
    // It may be forbidden; then everybody stays at 0.
    // SAFETY: no pointers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, PRIORITY) };
    Ok(())
}

/// The nice value of everything that is measured.
const PRIORITY: i32 = -19;

/// Nanoseconds on a core: the first field of a `schedstat`.
pub(super) fn run_time(path: &str) -> Result<u64> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let field = text.split_whitespace().next().and_then(|field| field.parse().ok());
    field.with_context(|| format!("{path} is {text:?}"))
}

fn threads_of(interface: &str) -> Result<Vec<u32>> {
    let name = format!("napi/{interface}-");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // It may have ended meanwhile.
        if fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm.starts_with(&name)) {
            found.push(id);
        }
    }
    Ok(found)
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let octets: Result<Vec<u8>, _> = text.split(':').map(|octet| u8::from_str_radix(octet, 16)).collect();
    octets.ok()?.try_into().ok()
}
