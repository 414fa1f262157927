//! A network for one server: a [`Lab`] whose ends are worked on by two cores.
//!
//! What arrives at an end is worked on by a kernel thread of its own ([threaded NAPI][1]): the server's end on the
//! server's core, so that all of the work for a query is there, as a network card would have it that gives the
//! interrupt to that core; the other end, where queries come from and answers are counted, on the other core.
//!
//! [1]: https://docs.kernel.org/networking/napi.html#threaded-napi

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::bench::lab::{FAR, Lab, NEAR};
use crate::netns::{Namespace, attach_pass};

/// The network.
pub struct Ground {
    /// The server is at its far end.
    pub lab: Lab,
    /// Kernel threads that work for the server.
    threads: Vec<u32>,
    /// The link that holds a program on the near interface, without which it is not woken for XDP_TX.
    receive: Option<OwnedFd>,
}

impl Ground {
    /// Makes one, with a file system of its own to look at interfaces mounted in `folder` meanwhile.
    ///
    /// # Errors
    /// When the kernel has no threads for interfaces (before 5.12), or no such core.
    ///
    /// # Panics
    /// Without root, or without the tools `ip` and `ethtool`.
    pub fn new(folder: &Path, cores: &Cores) -> Result<Self> {
        let lab = Lab::new()?;
        lab.near.sh(&format!("ethtool -K {NEAR} gro on"));
        work_in_threads(&lab.near, NEAR, folder, cores.client)?;
        let threads = work_in_threads(&lab.far, FAR, folder, cores.server)?;
        let mut ground = Self { lab, threads, receive: None };
        ground.listen()?;
        Ok(ground)
    }

    /// Lets sockets at the near end receive.
    fn listen(&mut self) -> Result<()> {
        let receive = self.lab.near.run(|| attach_pass(NEAR));
        self.receive = Some(receive.context("XDP on the client's interface")?);
        Ok(())
    }

    /// Sockets at the near end receive no more: makes room for the sink of a flood.
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

/// Has what arrives at an interface worked on by threads on one core, and returns them.
fn work_in_threads(namespace: &Namespace, interface: &str, folder: &Path, core: usize) -> Result<Vec<u32>> {
    // Namespaces do not tell kernel threads apart: those are ours that are new.
    let before = threads_of(interface)?;
    let sys = folder.join("sys");
    fs::create_dir_all(&sys)?;
    let sys = sys.display();
    namespace.sh(&format!(
        "mount -t sysfs sysfs {sys}; echo 1 > {sys}/class/net/{interface}/threaded; umount {sys}"
    ));
    let mut found = threads_of(interface)?;
    found.retain(|thread| !before.contains(thread));
    ensure!(!found.is_empty(), "no kernel thread works for {interface}");
    for &thread in &found {
        pin(thread, core)?;
        come_first(thread);
    }
    Ok(found)
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

/// Lets a thread run on one core only, and before what others do on this machine.
///
/// # Errors
/// When it is gone, or there is no such core.
pub fn pin(thread: u32, core: usize) -> Result<()> {
    // SAFETY: an empty set is all zero.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    ensure!(core < libc::CPU_SETSIZE as usize, "no core {core}");
    // SAFETY: the core is within the set.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: reads the set.
    if unsafe { libc::sched_setaffinity(thread as i32, size_of_val(&set), &raw const set) } != 0 {
        bail!("thread {thread} cannot run on core {core}: {}", io::Error::last_os_error());
    }
    // It may be forbidden; then everybody stays at 0.
    // SAFETY: no pointers.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, thread, PRIORITY) };
    Ok(())
}

/// Lets a kernel thread interrupt who has the core, as the interrupt would for which it stands: by a short slice
/// (Linux 6.12; an older kernel refuses, and it waits for its turn of some milliseconds).
fn come_first(thread: u32) {
    /// The beginning of `struct sched_attr`, its first version.
    #[repr(C)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    /// The shortest that the kernel takes, in nanoseconds.
    const SLICE: u64 = 100_000;
    let attributes = Attributes {
        size: size_of::<Attributes>() as u32,
        policy: 0,
        flags: 0,
        nice: PRIORITY,
        priority: 0,
        runtime: SLICE,
        deadline: 0,
        period: 0,
    };
    // SAFETY: reads the structure, whose size it says.
    unsafe { libc::syscall(libc::SYS_sched_setattr, thread, &raw const attributes, 0) };
}

/// The nice value of the servers and of the kernel's work for them.
pub(super) const PRIORITY: i32 = -19;

/// As long as it lives, the session of a process has the weight of a nice value among sessions (`sched_autogroup`: nice
/// values of threads count inside a session only) and beside kernel threads, which are in no session.
pub struct Weight {
    file: String,
    before: String,
}

impl Weight {
    /// Gives it; nothing happens where the kernel has no such thing.
    pub fn give(process: u32, nice: i32) -> Self {
        let file = format!("/proc/{process}/autogroup");
        // "/autogroup-427 nice 0"
        let text = fs::read_to_string(&file).unwrap_or_default();
        let before = text.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        let _ = fs::write(&file, nice.to_string());
        Self { file, before }
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        let _ = fs::write(&self.file, &self.before);
    }
}

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
