//! Where servers are measured: two namespaces joined by a veth pair. Queries come from the **near** end, whatever
//! address they carry; the server, in the kernel or on sockets, is at the **far** end.

use std::collections::BTreeMap;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};

use crate::netns::Namespace;

#[path = "../../../router-ebpf/src/flood/abi.rs"]
pub(super) mod abi;

impl abi::Verdict {
    /// Each at its place.
    pub const ALL: [Self; abi::VERDICTS] = [
        Self::Right,
        Self::Other,
        Self::Headers,
        Self::Unasked,
        Self::Flags,
        Self::Counts,
        Self::Checksum,
        Self::Question,
    ];
}

/// Interface of the near end.
pub const NEAR: &str = "fl0";
/// Interface of the far end.
pub const FAR: &str = "fl1";
/// Hardware address of the near end.
pub const NEAR_MAC: [u8; 6] = abi::NEAR_MAC;
/// Hardware address of the far end.
pub const FAR_MAC: [u8; 6] = abi::FAR_MAC;
/// The address queries go to.
pub const SERVICE: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 53);
/// Where the far end sends what is for anybody else: all clients are behind it.
pub const CLIENTS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// The two namespaces. Whatever is made in them goes with the value.
pub struct Lab {
    /// Where queries come from and answers are looked at.
    pub near: Namespace,
    /// Where the server is.
    pub far: Namespace,
    /// Index of [`NEAR`].
    pub near_index: u32,
    /// Index of [`FAR`].
    pub far_index: u32,
    /// What the interfaces had dropped when they were last asked.
    told: Mutex<Overflow>,
}

/// What the interfaces dropped, because a queue between them was full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Overflow {
    /// Queries on the way to the far end.
    pub queries: u64,
    /// Answers on the way back (of `XDP_TX`; what a socket sends is not counted here).
    pub answers: u64,
}

impl Lab {
    /// Makes it. Every address is reached through the near end, and nobody has to be asked where that is.
    ///
    /// # Errors
    /// Without the tools `ip` and `ethtool`.
    ///
    /// # Panics
    /// Without root.
    pub fn new() -> Result<Self> {
        let (near, far) = (Namespace::new(), Namespace::new());
        let mac = |mac: [u8; 6]| mac.map(|octet| format!("{octet:02x}")).join(":");
        for namespace in [&near, &far] {
            namespace.sh("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1 \
                 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0");
        }
        near.sh(&format!(
            "ip link add {NEAR} address {} type veth peer name {FAR} address {} netns {}",
            mac(NEAR_MAC),
            mac(FAR_MAC),
            far.path()
        ));
        near.sh(&format!("ip link set {NEAR} up; ip addr add {CLIENTS}/24 dev {NEAR}"));
        far.sh(&format!("ip link set {FAR} up; ip addr add {SERVICE}/24 dev {FAR}"));
        far.sh(&format!(
            "ip neigh replace {CLIENTS} lladdr {} dev {FAR} nud permanent; ip route add default via {CLIENTS} dev {FAR}",
            mac(NEAR_MAC)
        ));
        near.sh(&format!("ip neigh replace {SERVICE} lladdr {} dev {NEAR} nud permanent", mac(FAR_MAC)));
        // Without an XDP program the far end takes frames only when it has a NAPI context.
        far.sh(&format!("ethtool -K {FAR} gro on"));
        let index = |namespace: &Namespace, name: &'static std::ffi::CStr| {
            namespace.run(|| {
                // SAFETY: reads a terminated string.
                match unsafe { libc::if_nametoindex(name.as_ptr()) } {
                    0 => Err(io::Error::last_os_error()),
                    index => Ok(index),
                }
            })
        };
        let (near_index, far_index) = (index(&near, c"fl0")?, index(&far, c"fl1")?);
        Ok(Self { near, far, near_index, far_index, told: Mutex::default() })
    }

    /// What the queues could not take since this was last asked.
    ///
    /// # Errors
    /// When the driver does not say.
    pub fn new_overflow(&self) -> Result<Overflow> {
        let now = self.overflow()?;
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *told, now);
        Ok(Overflow { queries: now.queries - before.queries, answers: now.answers - before.answers })
    }

    /// What the queues could not take since the lab was made.
    fn overflow(&self) -> Result<Overflow> {
        let near = statistics(&self.near, NEAR)?;
        let far = statistics(&self.far, FAR)?;
        let sum = |of: &BTreeMap<String, u64>, what: &str| {
            of.iter().filter(|(name, _)| name.ends_with(what)).map(|(_, count)| count).sum()
        };
        Ok(Overflow { queries: sum(&near, "xdp_xmit_errors"), answers: sum(&far, "_xdp_tx_errors") })
    }
}

/// What a driver counts for an interface.
fn statistics(namespace: &Namespace, interface: &str) -> Result<BTreeMap<String, u64>> {
    let output = namespace.command("ethtool").args(["-S", interface]).output().context("no ethtool")?;
    ensure!(output.status.success(), "{interface}: {}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(lines
        .lines()
        .filter_map(|line| {
            let (name, count) = line.split_once(':')?;
            Some((name.trim().to_owned(), count.trim().parse().ok()?))
        })
        .collect())
}

/// Processors that this process may use.
pub fn processors() -> Vec<usize> {
    // SAFETY: plain data, for which zeros are a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: writes one set, which is ours.
    unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    // SAFETY: reads the set, within its size.
    (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
}

/// Keeps the calling thread, and what it starts, on one processor.
///
/// # Errors
/// When there is no such processor.
pub fn pin(cpu: usize) -> io::Result<()> {
    // SAFETY: plain data, for which zeros are a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: `cpu` is within the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: reads one set.
    match unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
