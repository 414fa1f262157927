//! What outlives the agent: pins on a bpffs.
//!
//! ```text
//! PIN_DIR/                       on a bpffs
//!   net-4026531840/              one network namespace (its inode number); locked by the agent
//!     link-2                     the bpf_link of the interface with index 2
//!     v1-8c0f3a5e6b7d9e21-0/     a set: ABI version, build of the object, serial number
//!       OWNERS …                 its maps, by their names in the object
//!       xroute                   its program
//! ```
//!
//! A set **counts** exactly when a pinned link holds its program. So nothing needs to be marked complete:
//! a set is pinned and filled before a link is made or changed, and one that no link holds is what a crash
//! left (before that point, or after an exchange) and is removed by the next start. A link that a crash
//! kept from being pinned is closed, and thus detached, by the kernel.
//!
//! A network namespace has a directory of its own because interface indices repeat. Names on a bpffs have no
//! dots, so links are named by index and not by interface (`eth0.100`).
//!
//! # Where
//! [`default_directory`] is `/sys/fs/bpf/xroute`, the place that other tools look at and that systemd
//! mounts, when a bpffs is there; else `/run/xroute/bpf`, where the agent mounts a bpffs of its own and
//! unmounts it when it detaches. Pins live in the *mount* namespace that made them: under `ip netns exec`,
//! which makes a new one for each command, a bpffs mounted by the agent ends with the agent. Use
//! `nsenter --net=/run/netns/NAME` there, or mount a bpffs outside of `/sys` beforehand and name it.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use router_common::abi::{ABI_VERSION, PROGRAM};

use super::sys;

/// Where bpffs is mounted by convention.
const CONVENTIONAL: &str = "/sys/fs/bpf";
/// Where the agent mounts its own when nobody else did.
const OWN: &str = "/run/xroute/bpf";
/// How our own mounts are named in the list of mounts, to be known again.
const MOUNT_SOURCE: &str = "xroute";
/// How long an agent that is just ending is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// Names of links begin with this.
const LINK: &str = "link-";

/// Where pins go unless configured otherwise. The agent's own bpffs wins while it is mounted, so that
/// what an earlier agent left is found even when `/sys/fs/bpf` was mounted since.
pub fn default_directory() -> PathBuf {
    let own = Path::new(OWN);
    if !sys::is_bpffs(own).unwrap_or(false) && sys::is_bpffs(Path::new(CONVENTIONAL)).unwrap_or(false) {
        Path::new(CONVENTIONAL).join("xroute")
    } else {
        own.to_owned()
    }
}

/// The pins of one network namespace, locked against other agents.
pub struct Directory {
    /// `PIN_DIR`.
    root: PathBuf,
    /// `PIN_DIR/net-…`.
    path: PathBuf,
    /// Holds the lock, which the kernel releases when the process ends in whatever way.
    lock: File,
}

/// A pinned link.
pub struct PinnedLink {
    /// The link.
    pub link: OwnedFd,
    /// Index of its interface; 0 when that is gone.
    pub interface: u32,
    /// Id of its program.
    pub program: u32,
}

/// A pinned set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Set {
    /// Its directory.
    pub path: PathBuf,
    /// [`ABI_VERSION`] of the agent that made it.
    pub abi: u32,
    /// [`super::program::build_id`] of its object.
    pub build: u64,
    /// Later sets have greater ones.
    pub serial: u64,
}

impl Set {
    /// Reads a set's directory name.
    fn parse(path: &Path) -> Option<Self> {
        let mut parts = path.file_name()?.to_str()?.strip_prefix('v')?.splitn(3, '-');
        let abi = parts.next()?.parse().ok()?;
        let build = u64::from_str_radix(parts.next()?, 16).ok()?;
        let serial = parts.next()?.parse().ok()?;
        Some(Self { path: path.to_owned(), abi, build, serial })
    }

    /// Opens its program.
    pub fn program(&self) -> io::Result<OwnedFd> {
        sys::open_pin(&self.path.join(PROGRAM))
    }

    /// Opens its maps.
    pub fn maps(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let mut maps = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name != PROGRAM {
                let map = sys::open_pin(&self.path.join(&name))?;
                maps.push((name, map));
            }
        }
        Ok(maps)
    }

    /// Unpins everything in it and removes it.
    fn remove(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.path)? {
            fs::remove_file(entry?.path())?;
        }
        fs::remove_dir(&self.path)
    }
}

impl Directory {
    /// Opens the directory of the thread's network namespace below `root` and locks it; mounts a bpffs on
    /// `root` when that is not on one.
    ///
    /// # Errors
    /// When another agent has it, or there is no right to mount.
    pub fn open(root: &Path) -> Result<Self> {
        prepare(root)?;
        match Self::lock(root) {
            Ok(directory) => Ok(directory),
            Err(error) => {
                tidy(root)?;
                Err(error)
            }
        }
    }

    /// Opens it when it is there.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_existing(root: &Path) -> Result<Option<Self>> {
        if on_bpffs(root)? && namespace_path(root)?.is_dir() { Self::lock(root).map(Some) } else { Ok(None) }
    }

    /// Opens the directory of the thread's network namespace below `root`, which another agent has locked: `lock` is
    /// its descriptor, so that both hold one lock, and it ends with the last of them.
    ///
    /// # Errors
    /// When the lock is on another directory.
    pub fn inherit(root: &Path, lock: OwnedFd) -> Result<Self> {
        let path = namespace_path(root)?;
        let lock = File::from(lock);
        let same = fs::metadata(&path).is_ok_and(|now| {
            lock.metadata().is_ok_and(|locked| (locked.dev(), locked.ino()) == (now.dev(), now.ino()))
        });
        if !same {
            bail!("the agent before has its pins in another directory than {}", path.display());
        }
        Ok(Self { root: root.to_owned(), path, lock })
    }

    /// A descriptor for [`Self::inherit`].
    pub fn lend(&self) -> io::Result<OwnedFd> {
        self.lock.as_fd().try_clone_to_owned()
    }

    fn lock(root: &Path) -> Result<Self> {
        let path = namespace_path(root)?;
        let patience = Instant::now() + PATIENCE;
        loop {
            make_directory(&path).with_context(|| format!("cannot make {}", path.display()))?;
            let lock = File::open(&path).with_context(|| format!("cannot open {}", path.display()))?;
            if !sys::try_lock(lock.as_fd()).with_context(|| format!("cannot lock {}", path.display()))? {
                if Instant::now() > patience {
                    bail!("another xroute agent is running: it holds {}", path.display());
                }
                thread::sleep(Duration::from_millis(20));
                continue;
            }
            // An agent that detached between our two steps has removed what we locked.
            match fs::metadata(&path) {
                Ok(_) if !on_bpffs(&path)? => bail!("{} was unmounted meanwhile: try again", root.display()),
                Ok(now) if now.ino() == lock.metadata()?.ino() => {
                    return Ok(Self { root: root.to_owned(), path, lock });
                }
                _ => {}
            }
        }
    }

    /// The links on live interfaces, by index. Pins of links whose interface is gone are removed: the
    /// kernel has detached them and the index may come again.
    pub fn links(&self) -> Result<Vec<PinnedLink>> {
        let mut links = Vec::new();
        for (path, link) in read_links(&self.path)? {
            if link.interface == 0 || path != self.link_path(link.interface) {
                let shown = path.display();
                log::info!("{shown}: its interface is gone, the pin is removed");
                fs::remove_file(&path).with_context(|| format!("cannot remove {shown}"))?;
            } else {
                links.push(link);
            }
        }
        links.sort_by_key(|link| link.interface);
        Ok(links)
    }

    /// The sets, oldest first.
    pub fn sets(&self) -> Result<Vec<Set>> {
        let mut sets: Vec<Set> = entries(&self.path)?.iter().filter_map(|path| Set::parse(path)).collect();
        sets.sort_by_key(|set| set.serial);
        Ok(sets)
    }

    /// The newest set that a link holds.
    pub fn current(&self, links: &[PinnedLink]) -> Result<Option<Set>> {
        let mut sets = self.sets()?;
        sets.retain(|set| program_of(set).is_some_and(|id| links.iter().any(|link| link.program == id)));
        Ok(sets.pop())
    }

    /// Pins a program and its maps as a new set. What cannot be named on a bpffs (`.rodata`) is left to
    /// the program, which holds it.
    pub fn pin_set<'m>(
        &self,
        build: u64,
        program: &OwnedFd,
        maps: impl Iterator<Item = (&'m str, &'m OwnedFd)>,
    ) -> Result<Set> {
        let serial = self.sets()?.last().map_or(0, |set| set.serial + 1);
        let path = self.path.join(format!("v{ABI_VERSION}-{build:016x}-{serial}"));
        make_directory(&path).with_context(|| format!("cannot make {}", path.display()))?;
        let set = Set { path, abi: ABI_VERSION, build, serial };
        let pinned = (|| {
            for (name, map) in maps.filter(|(name, _)| !name.contains('.')) {
                sys::pin(map.as_fd(), &set.path.join(name)).with_context(|| format!("cannot pin {name}"))?;
            }
            sys::pin(program.as_fd(), &set.path.join(PROGRAM)).context("cannot pin the program")
        })();
        if let Err(error) = pinned {
            self.remove_set(&set);
            return Err(error);
        }
        Ok(set)
    }

    /// Pins the link of an interface.
    pub fn pin_link(&self, link: &OwnedFd, interface: u32) -> Result<()> {
        let path = self.link_path(interface);
        sys::pin(link.as_fd(), &path).with_context(|| format!("cannot pin the link as {}", path.display()))
    }

    /// Detaches a link and removes its pin.
    pub fn remove_link(&self, link: &OwnedFd, interface: u32) -> Result<()> {
        // The pin first: a crash in between leaves a link that nothing holds.
        match fs::remove_file(self.link_path(interface)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(error)
                    .with_context(|| format!("cannot remove {}", self.link_path(interface).display()));
            }
            _ => {}
        }
        match sys::detach_link(link.as_fd()) {
            // Its interface went away, and the link with it.
            Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => Ok(()),
            other => other.context("cannot detach the XDP link"),
        }
    }

    /// Removes the sets that no link holds, except `keep`.
    pub fn remove_unused_sets(&self, keep: Option<&Set>) -> Result<()> {
        let held: Vec<u32> = self.links()?.iter().map(|link| link.program).collect();
        for set in self.sets()? {
            if keep != Some(&set) && !program_of(&set).is_some_and(|id| held.contains(&id)) {
                self.remove_set(&set);
            }
        }
        Ok(())
    }

    /// Unpins a set. A failure is only told: the next start tries again.
    pub fn remove_set(&self, set: &Set) {
        if let Err(error) = set.remove() {
            log::warn!("cannot remove {}: {error}", set.path.display());
        }
    }

    /// Removes the directory when nothing is in it, then `PIN_DIR`, and the mount when it is ours.
    ///
    /// # Errors
    /// When something is left that we made and cannot remove.
    pub fn close(self) -> Result<()> {
        let Self { root, path, lock } = self;
        if is_empty(&path) {
            fs::remove_dir(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        // An open descriptor would keep the mount busy.
        drop(lock);
        tidy(&root)
    }

    fn link_path(&self, interface: u32) -> PathBuf {
        self.path.join(format!("{LINK}{interface}"))
    }
}

/// The links pinned for the thread's network namespace; no lock is taken and nothing is removed.
pub fn links_left(root: &Path) -> Result<Vec<PinnedLink>> {
    let path = namespace_path(root)?;
    if !on_bpffs(&path)? {
        return Ok(Vec::new());
    }
    let links = read_links(&path)?.into_iter().map(|(_, link)| link);
    Ok(links.filter(|link| link.interface != 0).collect())
}

/// The directory of the thread's network namespace, when it is there.
pub fn existing(root: &Path) -> Result<Option<PathBuf>> {
    let path = namespace_path(root)?;
    Ok((on_bpffs(root)? && path.is_dir()).then_some(path))
}

/// The sets in a directory, each with the id of its program when that is pinned.
pub fn sets_in(directory: &Path) -> Result<Vec<(PathBuf, Option<u32>)>> {
    let sets = entries(directory)?.into_iter().filter_map(|path| Set::parse(&path));
    Ok(sets.map(|set| (set.path.clone(), program_of(&set))).collect())
}

/// The links pinned in a directory, with their paths.
fn read_links(directory: &Path) -> Result<Vec<(PathBuf, PinnedLink)>> {
    let mut links = Vec::new();
    for path in entries(directory)? {
        if !path.file_name().is_some_and(|name| name.as_bytes().starts_with(LINK.as_bytes())) {
            continue;
        }
        let link = sys::open_pin(&path).with_context(|| format!("cannot open {}", path.display()))?;
        let info = sys::link_info(link.as_fd()).with_context(|| format!("{}", path.display()))?;
        links.push((path, PinnedLink { link, interface: info.interface, program: info.program }));
    }
    Ok(links)
}

/// What is in a directory.
fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let paths: io::Result<Vec<_>> =
        fs::read_dir(directory).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    paths.with_context(|| format!("cannot read {}", directory.display()))
}

/// Id of a set's program; `None` when it is not pinned (a crash came first).
fn program_of(set: &Set) -> Option<u32> {
    let program = set.program().ok()?;
    Some(sys::program_info(program.as_fd()).ok()?.id)
}

/// The directory of the thread's network namespace.
fn namespace_path(root: &Path) -> Result<PathBuf> {
    let namespace = fs::metadata("/proc/thread-self/ns/net").context("cannot tell the network namespace")?;
    Ok(root.join(format!("net-{}", namespace.ino())))
}

/// Makes a directory for root only; it may exist.
fn make_directory(path: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Whether a path exists and is on a bpffs.
fn on_bpffs(path: &Path) -> Result<bool> {
    match sys::is_bpffs(path) {
        Ok(is) => Ok(is),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot look at {}", path.display())),
    }
}

/// Sees to it that `root` is a directory on a bpffs: with a mount when there is none, which takes CAP_SYS_ADMIN.
///
/// # Errors
/// When it cannot be mounted.
pub fn prepare(root: &Path) -> Result<()> {
    if !root.is_absolute() {
        bail!("the pin directory {} is not an absolute path", root.display());
    }
    if on_bpffs(root)? {
        return Ok(());
    }
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(root)
        .with_context(|| format!("cannot make the pin directory {}", root.display()))?;
    if on_bpffs(root)? {
        return Ok(());
    }
    sys::mount_bpffs(MOUNT_SOURCE, root).with_context(|| {
        format!(
            "cannot mount a bpffs on {} (root is needed, or a bpffs that is mounted already)",
            root.display()
        )
    })?;
    log::info!("mounted a bpffs on {}", root.display());
    Ok(())
}

/// Unmounts an empty `root` when the mount is one of ours, else removes it. A directory that was a mount
/// point stays: it can be one in another mount namespace too, and removing it would unmount it there
/// (Linux 3.18 on), with the pins of another agent.
fn tidy(root: &Path) -> Result<()> {
    if !is_empty(root) {
        return Ok(());
    }
    if is_own_mount(root)? {
        return match unmount(root) {
            // CAP_SYS_ADMIN was given up after the start. An empty bpffs is in nobody's way.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
            other => other.with_context(|| format!("cannot unmount {}", root.display())),
        };
    }
    // A mount of somebody else's, or a directory that we may not remove, stays as well.
    let _ = fs::remove_dir(root);
    Ok(())
}

/// Unmounts; when somebody stays inside, from sight, and the kernel does the rest when they go.
fn unmount(root: &Path) -> io::Result<()> {
    let patience = Instant::now() + PATIENCE;
    while let Err(error) = sys::unmount(root, false) {
        if error.raw_os_error() != Some(libc::EBUSY) {
            return Err(error);
        }
        if Instant::now() > patience {
            return sys::unmount(root, true);
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Whether nothing is in a directory but what the kernel puts into each bpffs (`maps.debug`, …), whose names
/// are the only ones with a dot.
fn is_empty(path: &Path) -> bool {
    fs::read_dir(path)
        .is_ok_and(|entries| entries.flatten().all(|entry| entry.file_name().as_bytes().contains(&b'.')))
}

/// Whether a bpffs that we mounted is mounted on exactly this path.
fn is_own_mount(root: &Path) -> Result<bool> {
    let Ok(root) = fs::canonicalize(root) else { return Ok(false) };
    let mounts =
        fs::read_to_string("/proc/thread-self/mountinfo").context("cannot read the list of mounts")?;
    Ok(mounts.lines().any(|line| mount_of(line).is_some_and(|point| Path::new(&point) == root)))
}

/// The mount point of a line of mountinfo (proc_pid_mountinfo(5)) that tells of a bpffs of ours.
fn mount_of(line: &str) -> Option<String> {
    let (mount, source) = line.split_once(" - ")?;
    let mut source = source.split(' ');
    if source.next()? != "bpf" || source.next()? != MOUNT_SOURCE {
        return None;
    }
    let point = mount.split(' ').nth(4)?;
    Some(point.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_names_say_abi_build_and_serial() {
        let set = Set::parse(Path::new("/p/net-1/v1-00000000deadbeef-12")).expect("a set");
        assert_eq!((set.abi, set.build, set.serial), (1, 0xdead_beef, 12));
        for other in ["link-2", "v1-xyz-0", "v1-0", "v1", "v-0-0", "maps"] {
            assert_eq!(Set::parse(&Path::new("/p").join(other)), None, "{other}");
        }
    }

    #[test]
    fn only_a_bpffs_with_our_source_is_our_mount() {
        let ours = "63 29 0:41 / /run/xroute\\040a/bpf rw,nosuid shared:9 - bpf xroute rw,mode=700";
        assert_eq!(mount_of(ours).as_deref(), Some("/run/xroute a/bpf"));
        assert_eq!(mount_of("63 29 0:41 / /sys/fs/bpf rw - bpf bpf rw"), None);
        assert_eq!(mount_of("63 29 0:41 / /run/xroute rw - tmpfs xroute rw"), None);
        assert_eq!(mount_of(""), None);
    }

    #[test]
    fn a_relative_pin_directory_is_refused() {
        assert!(Directory::open(Path::new("bpf")).is_err());
    }
}
