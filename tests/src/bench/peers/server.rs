//! A server that runs on its ground, on one core; it ends with the value.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};

use super::ground::{Cores, Ground, PRIORITY, Weight, pin, run_time};
use super::world::World;
use super::{Order, Peer};
use crate::bench::lab::{CLIENTS, FAR, SERVICE};
use crate::packet::{Query, rtype};

/// How long a server may take to serve.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often one is asked the same at most until there is a reply.
const ATTEMPTS: usize = 10;
/// Octets of a socket's room for queries, as the kernel counts them.
static ROOM: libc::c_int = 4 << 20;
/// How long it may take to end.
const FAREWELL: Duration = Duration::from_secs(5);

/// A running server.
pub struct Server {
    /// Which one.
    pub peer: &'static Peer,
    /// Where it runs. Dropped after the process has ended.
    pub ground: Ground,
    child: Child,
    log: PathBuf,
    _weight: Weight,
}

impl Server {
    /// Starts it, in `folder`, which is made, and does not wait.
    ///
    /// # Errors
    /// When it is not on this machine, or its files cannot be written.
    pub fn start(
        peer: &'static Peer,
        world: &World,
        ground: Ground,
        folder: &Path,
        cores: &Cores,
    ) -> Result<Self> {
        let program = peer.find().with_context(|| format!("{} is not there", peer.name))?;
        fs::create_dir_all(folder)?;
        let order = Order { world, folder, address: SERVICE, interface: FAR };
        let arguments = (peer.prepare)(&order).with_context(|| format!("cannot set up {}", peer.name))?;
        let log = folder.join("log");
        let output = File::create(&log)?;
        let mut command = ground.lab.far.command(program.to_str().context("a path of text")?);
        command
            .args(arguments)
            .env("RUST_LOG", "warn")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let core = cores.server;
        // SAFETY: between fork and exec: system calls only.
        unsafe {
            command.pre_exec(move || {
                // Also when this process is killed, nobody is left.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM);
                // A group of its own to be ended, and a session of its own to be given a weight.
                libc::setsid();
                pin(0, core).map_err(|_| io::Error::last_os_error())
            });
        }
        let child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
        let weight = Weight::give(child.id(), PRIORITY);
        Ok(Self { peer, ground, child, log, _weight: weight })
    }

    /// Waits until it answers.
    ///
    /// # Errors
    /// With its last words when it ends first or takes too long.
    pub fn wait(&mut self) -> Result<()> {
        let begun = Instant::now();
        let query = Query::new("absent.bench.test", rtype::A).bytes();
        loop {
            let ended = self.child.try_wait()?;
            // Until it has loaded its data it may answer SERVFAIL or REFUSED.
            if self.exchange(&query, CLIENTS).is_ok_and(|reply| reply.len() > 12 && reply[3] & 0xf == 3) {
                return self.make_room();
            }
            if let Some(status) = ended {
                bail!("{} ended: {status}\n{}", self.peer.name, self.last_words());
            }
            if begun.elapsed() > PATIENCE {
                bail!("{} does not answer\n{}", self.peer.name, self.last_words());
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends one query from an address of the client's namespace and returns the reply.
    ///
    /// # Errors
    /// When none comes within 200 ms.
    pub fn exchange(&self, query: &[u8], source: Ipv4Addr) -> Result<Vec<u8>> {
        self.ground.lab.near.run(|| {
            let socket = UdpSocket::bind((source, 0))?;
            socket.set_read_timeout(Some(Duration::from_millis(200)))?;
            socket.connect((SERVICE, 53))?;
            socket.send(query)?;
            let mut reply = [0; 1500];
            let len = socket.recv(&mut reply)?;
            Ok(reply[..len].to_vec())
        })
    }

    /// What it answers: the address that it gives a client for the name with this number.
    ///
    /// # Errors
    /// When it is not one A record with the right TTL, authoritative.
    pub fn ask(&self, world: &World, number: u32, source: Ipv4Addr) -> Result<Ipv4Addr> {
        let query = Query::new(&world.name(number), rtype::A).edns(1232).bytes();
        // On a loaded machine one can be lost.
        let reply = (1..ATTEMPTS).find_map(|_| self.exchange(&query, source).ok());
        let reply = reply.map_or_else(|| self.exchange(&query, source), Ok);
        let reply = reply.with_context(|| format!("no reply of {}", self.peer.name))?;
        let what = || format!("{} answers {}: {reply:02x?}", self.peer.name, world.name(number));
        let message = hickory_proto::op::Message::from_vec(&reply).with_context(what)?;
        let answers = &message.answers;
        ensure!(message.metadata.authoritative && answers.len() == 1, what());
        let [record] = &answers[..] else { bail!(what()) };
        ensure!(record.ttl == super::world::TTL, what());
        match &record.data {
            hickory_proto::rr::RData::A(address) => Ok(address.0),
            _ => Err(anyhow!(what())),
        }
    }

    /// Processor time so far, in nanoseconds: of the server's processes, and of the kernel's work for it.
    ///
    /// # Errors
    /// When it has ended.
    pub fn processor_time(&self) -> Result<[u64; 2]> {
        let mut total = 0;
        for process in self.processes()? {
            // A thread may have ended meanwhile.
            let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { continue };
            for task in tasks {
                let task = task?.path().join("schedstat");
                total += run_time(&task.display().to_string()).unwrap_or(0);
            }
        }
        ensure!(total > 0, "{} has ended", self.peer.name);
        Ok([total, self.ground.processor_time()?])
    }

    /// Gives all of its UDP sockets the same room for queries: a frame of the flood takes a page of it, which is more
    /// than one of a network card does, and the usual room would hold 48.
    fn make_room(&self) -> Result<()> {
        for process in self.processes()? {
            let Ok(files) = fs::read_dir(format!("/proc/{process}/fd")) else { continue };
            let pidfd = pidfd_open(process)?;
            for file in files {
                let file = file?;
                let number = file.file_name().to_str().and_then(|name| name.parse().ok());
                let is_socket =
                    fs::read_link(file.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
                if let (Some(number), true) = (number, is_socket)
                    && let Ok(socket) = pidfd_getfd(&pidfd, number)
                    && is_datagram(&socket)
                {
                    set_room(&socket)?;
                }
            }
        }
        Ok(())
    }

    /// Its process and all that it has started.
    fn processes(&self) -> Result<Vec<u32>> {
        let mut parents = HashMap::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            // It may have ended meanwhile.
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
            // The fields after the name, which is in brackets and may hold anything: state, then parent.
            let parent = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
            parents.insert(id, parent.unwrap_or(0));
        }
        let is_ours = |mut id: u32| {
            while id != self.child.id() {
                match parents.get(&id) {
                    Some(&parent) if parent != id => id = parent,
                    _ => return false,
                }
            }
            true
        };
        Ok(parents.keys().copied().filter(|id| is_ours(*id)).collect())
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let group = -(self.child.id() as i32);
        // SAFETY: signals the group of a child that was not waited for.
        unsafe { libc::kill(group, libc::SIGTERM) };
        let begun = Instant::now();
        while begun.elapsed() < FAREWELL && !matches!(self.child.try_wait(), Ok(Some(_))) {
            thread::sleep(Duration::from_millis(20));
        }
        // SAFETY: as above; when the child has ended, others of its group can be left.
        unsafe { libc::kill(group, libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

fn pidfd_open(process: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) })
}

/// A descriptor of another process, as ours.
fn pidfd_getfd(process: &OwnedFd, number: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), number, 0) })
}

fn owned(result: libc::c_long) -> io::Result<OwnedFd> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made for us and known to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(result as libc::c_int) })
}

fn is_datagram(socket: &OwnedFd) -> bool {
    let (mut kind, mut len) = (0, size_of::<libc::c_int>() as libc::socklen_t);
    let at = (&raw mut kind).cast();
    // SAFETY: writes at most `len` octets, which `kind` has.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_TYPE, at, &raw mut len) };
    result == 0 && kind == libc::SOCK_DGRAM
}

fn set_room(socket: &OwnedFd) -> io::Result<()> {
    let (at, len) = ((&raw const ROOM).cast(), size_of_val(&ROOM) as libc::socklen_t);
    // SAFETY: reads `len` octets, which the constant has.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, at, len) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
