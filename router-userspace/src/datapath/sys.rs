//! The system calls: bpf(2), mmap of maps, mounts of bpffs. Everything unsafe that is not in `mapped`.
//!
//! aya loads the program; what concerns pins, links and inner maps is done here, because aya attaches by
//! netlink without a word when it gets no link, and has neither batches nor mmap.

use std::ffi::CString;
use std::io;
use std::mem::{size_of, size_of_val};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Commands of bpf(2), `enum bpf_cmd`.
mod command {
    pub const MAP_CREATE: u32 = 0;
    pub const MAP_LOOKUP_ELEM: u32 = 1;
    pub const MAP_UPDATE_ELEM: u32 = 2;
    pub const OBJ_PIN: u32 = 6;
    pub const OBJ_GET: u32 = 7;
    pub const PROG_GET_FD_BY_ID: u32 = 13;
    pub const OBJ_GET_INFO_BY_FD: u32 = 15;
    pub const MAP_LOOKUP_BATCH: u32 = 24;
    pub const MAP_UPDATE_BATCH: u32 = 26;
    pub const LINK_CREATE: u32 = 28;
    pub const LINK_UPDATE: u32 = 29;
    pub const LINK_GET_FD_BY_ID: u32 = 30;
    pub const LINK_GET_NEXT_ID: u32 = 31;
    pub const LINK_DETACH: u32 = 34;
}

/// `BPF_MAP_TYPE_ARRAY`.
const ARRAY: u32 = 2;
/// `BPF_F_MMAPABLE`.
const MMAPABLE: u32 = 1 << 10;
/// `BPF_MAP_TYPE_ARRAY_OF_MAPS`.
const ARRAY_OF_MAPS: u32 = 12;
/// `BPF_LINK_TYPE_XDP`.
const LINK_TYPE_XDP: u32 = 6;
/// `BPF_XDP`, an attach type.
const ATTACH_XDP: u32 = 37;
/// `XDP_FLAGS_SKB_MODE`: generic XDP.
pub const XDP_GENERIC: u32 = 1 << 1;
/// `XDP_FLAGS_DRV_MODE`: native XDP.
pub const XDP_NATIVE: u32 = 1 << 2;
/// `ENOTSUPP` of the kernel, which has no place in errno.h.
const ENOTSUPP: i32 = 524;

/// Calls bpf(2).
///
/// # Safety
/// `attr` must be laid out as `union bpf_attr` asks for `command`, and what it points to must be valid for
/// as long and as much as the command reads or writes.
pub(super) unsafe fn bpf<A>(command: u32, attr: &mut A) -> io::Result<i32> {
    loop {
        // SAFETY: the size given is that of `attr`; the rest is promised by the caller.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                libc::c_long::from(command as i32),
                std::ptr::from_mut(attr),
                size_of::<A>(),
            )
        };
        if result >= 0 {
            return Ok(result as i32);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Takes a descriptor that a command returned.
pub(super) fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the kernel has just opened it (close-on-exec) for us and nobody else knows its number.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn address<T: ?Sized>(value: &T) -> u64 {
    std::ptr::from_ref(value).cast::<u8>() as u64
}

fn path_string(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// `struct` of the `BPF_MAP_*_ELEM` commands.
#[repr(C)]
struct ElementAttr {
    map: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// `struct` of `BPF_MAP_CREATE`, as far as it is needed.
#[repr(C)]
#[derive(Default)]
struct CreateAttr {
    kind: u32,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
    inner: u32,
    node: u32,
    name: [u8; 16],
}

fn create(mut attr: CreateAttr, name: &str) -> io::Result<OwnedFd> {
    for (to, from) in attr.name.iter_mut().zip(name.bytes().take(15)) {
        *to = from;
    }
    // SAFETY: laid out as for BPF_MAP_CREATE; it holds no pointers.
    unsafe { bpf(command::MAP_CREATE, &mut attr) }.map(owned)
}

/// Makes an array that can be mapped as memory, of values of `value` octets, all zero.
pub fn create_mmapable_array(name: &str, value: u32, entries: u32) -> io::Result<OwnedFd> {
    create(CreateAttr { kind: ARRAY, key: 4, value, entries, flags: MMAPABLE, ..Default::default() }, name)
}

/// `struct` of the `BPF_MAP_*_BATCH` commands.
#[repr(C)]
struct BatchAttr {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map: u32,
    element_flags: u64,
    flags: u64,
}

/// Words that are read from or written to a per-CPU array in one call.
const BATCH_WORDS: usize = 1 << 16;

/// Whether the kernel does not know batches for this kind of map (per-CPU arrays: Linux 5.13).
fn has_no_batches(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(ENOTSUPP | libc::EOPNOTSUPP | libc::EINVAL))
}

/// Reads elements of a per-CPU array from `first` on, each of `words` words for all CPUs together, as many as fill
/// `values`.
pub fn lookup_many(map: BorrowedFd<'_>, first: u32, values: &mut [u64], words: usize) -> io::Result<()> {
    let words = words.max(1);
    let mut index = first;
    for chunk in values.chunks_mut((BATCH_WORDS / words).max(1) * words) {
        let count = chunk.len() / words;
        let mut keys = vec![0u32; count];
        // Where the last call ended: the kernel goes on behind it.
        let (before, mut after) = (index.wrapping_sub(1), 0u32);
        let mut attr = BatchAttr {
            in_batch: if index == 0 { 0 } else { address(&before) },
            out_batch: std::ptr::from_mut(&mut after) as u64,
            keys: keys.as_mut_ptr() as u64,
            values: chunk.as_mut_ptr() as u64,
            count: count as u32,
            map: map.as_raw_fd() as u32,
            element_flags: 0,
            flags: 0,
        };
        // SAFETY: laid out as for BPF_MAP_LOOKUP_BATCH; there is room for `count` keys and values of the map's
        // sizes, and positions in an array are u32.
        let read = unsafe { bpf(command::MAP_LOOKUP_BATCH, &mut attr) };
        match read {
            Ok(_) if attr.count as usize == count => {}
            Err(error) if has_no_batches(&error) => {
                for (at, value) in (index..).zip(chunk.chunks_mut(words)) {
                    lookup_words(map, at, value)?;
                }
            }
            Ok(_) => return Err(io::Error::other("fewer elements than the map has")),
            Err(error) => return Err(error),
        }
        index = index.wrapping_add(count as u32);
    }
    Ok(())
}

/// Sets elements of a per-CPU array to zero, `count` from `first` on, each of `words` words for all CPUs together.
pub fn zero_many(map: BorrowedFd<'_>, first: u32, count: usize, words: usize) -> io::Result<()> {
    let words = words.max(1);
    let at_once = (BATCH_WORDS / words).max(1).min(count);
    let zeros = vec![0u64; at_once * words];
    let keys: Vec<u32> = (first..).take(count).collect();
    for keys in keys.chunks(at_once.max(1)) {
        let mut attr = BatchAttr {
            in_batch: 0,
            out_batch: 0,
            keys: address(keys),
            values: address(zeros.as_slice()),
            count: keys.len() as u32,
            map: map.as_raw_fd() as u32,
            element_flags: 0,
            flags: 0,
        };
        // SAFETY: laid out as for BPF_MAP_UPDATE_BATCH; both arrays hold `count` elements of the map's own types
        // at least, and the kernel only reads them.
        match unsafe { bpf(command::MAP_UPDATE_BATCH, &mut attr) } {
            Ok(_) => {}
            Err(error) if has_no_batches(&error) => {
                for key in keys {
                    let mut attr = ElementAttr {
                        map: map.as_raw_fd() as u32,
                        pad: 0,
                        key: address(key),
                        value: address(zeros.as_slice()),
                        flags: 0,
                    };
                    // SAFETY: laid out as for BPF_MAP_UPDATE_ELEM; the zeros are one value at least.
                    unsafe { bpf(command::MAP_UPDATE_ELEM, &mut attr) }?;
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// An array of maps that nobody reads. To write it waits for every run of a program that has begun.
pub struct Barrier {
    outer: OwnedFd,
    inner: OwnedFd,
}

impl Barrier {
    /// Makes it.
    pub fn new() -> io::Result<Self> {
        let one = CreateAttr { kind: ARRAY, key: 4, value: 4, entries: 1, ..Default::default() };
        let inner = create(one, "barrier")?;
        let outer = CreateAttr {
            kind: ARRAY_OF_MAPS,
            key: 4,
            value: 4,
            entries: 1,
            inner: inner.as_raw_fd() as u32,
            ..Default::default()
        };
        Ok(Self { outer: create(outer, "barriers")?, inner })
    }

    /// Writes it.
    pub fn wait(&self) -> io::Result<()> {
        update(self.outer.as_fd(), &0u32, &(self.inner.as_raw_fd() as u32))
    }
}

/// Writes one entry; `K` and `V` are the map's key and value types.
pub fn update<K, V>(map: BorrowedFd<'_>, key: &K, value: &V) -> io::Result<()> {
    let mut attr = ElementAttr {
        map: map.as_raw_fd() as u32,
        pad: 0,
        key: address(key),
        value: address(value),
        flags: 0,
    };
    // SAFETY: laid out as for BPF_MAP_UPDATE_ELEM; key and value are of the map's sizes and only read.
    unsafe { bpf(command::MAP_UPDATE_ELEM, &mut attr) }.map(drop)
}

/// Reads element `index` of an array whose value fills `value` exactly: one `u64` per possible CPU for a
/// per-CPU array of `u64`.
pub fn lookup_words(map: BorrowedFd<'_>, index: u32, value: &mut [u64]) -> io::Result<()> {
    let mut attr = ElementAttr {
        map: map.as_raw_fd() as u32,
        pad: 0,
        key: address(&index),
        value: value.as_mut_ptr() as u64,
        flags: 0,
    };
    // SAFETY: laid out as for BPF_MAP_LOOKUP_ELEM; the caller gave room for the whole value.
    unsafe { bpf(command::MAP_LOOKUP_ELEM, &mut attr) }.map(drop)
}

/// `struct` of the `BPF_OBJ_*` commands.
#[repr(C)]
struct PinAttr {
    path: u64,
    fd: u32,
    flags: u32,
}

/// Pins a map, program or link at a path on a bpffs, which must not exist.
pub fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = path_string(path)?;
    let mut attr = PinAttr { path: path.as_ptr() as u64, fd: object.as_raw_fd() as u32, flags: 0 };
    // SAFETY: laid out as for BPF_OBJ_PIN; the path is terminated by NUL and lives beyond the call.
    unsafe { bpf(command::OBJ_PIN, &mut attr) }.map(drop)
}

/// Opens what is pinned at a path.
pub fn open_pin(path: &Path) -> io::Result<OwnedFd> {
    let path = path_string(path)?;
    let mut attr = PinAttr { path: path.as_ptr() as u64, fd: 0, flags: 0 };
    // SAFETY: as in `pin`, for BPF_OBJ_GET.
    unsafe { bpf(command::OBJ_GET, &mut attr) }.map(owned)
}

/// `struct` of the `BPF_*_GET_*_ID` commands.
#[repr(C)]
struct IdAttr {
    id: u32,
    next: u32,
    flags: u32,
}

fn by_id(command: u32, id: u32) -> io::Result<OwnedFd> {
    let mut attr = IdAttr { id, next: 0, flags: 0 };
    // SAFETY: laid out as for BPF_*_GET_FD_BY_ID; it holds no pointers.
    unsafe { bpf(command, &mut attr) }.map(owned)
}

/// Opens a program by its id.
pub fn program_by_id(id: u32) -> io::Result<OwnedFd> {
    by_id(command::PROG_GET_FD_BY_ID, id)
}

fn info<I>(object: BorrowedFd<'_>, info: &mut I) -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        fd: u32,
        len: u32,
        info: u64,
    }
    let mut attr = Attr {
        fd: object.as_raw_fd() as u32,
        len: size_of::<I>() as u32,
        info: std::ptr::from_mut(info) as u64,
    };
    // SAFETY: laid out as for BPF_OBJ_GET_INFO_BY_FD; the kernel writes at most `len` octets of plain
    // integers, and follows no pointer in it because those and their lengths are zero.
    unsafe { bpf(command::OBJ_GET_INFO_BY_FD, &mut attr) }.map(drop)
}

/// The beginning of `struct bpf_map_info`.
#[derive(Default, Clone, Copy, Debug)]
#[repr(C)]
pub struct MapInfo {
    /// `enum bpf_map_type`.
    pub kind: u32,
    /// Id.
    pub id: u32,
    /// Octets of a key.
    pub key_size: u32,
    /// Octets of a value.
    pub value_size: u32,
    /// Entries.
    pub max_entries: u32,
    /// Flags it was made with.
    pub flags: u32,
}

/// Asks for a map's properties.
pub fn map_info(map: BorrowedFd<'_>) -> io::Result<MapInfo> {
    let mut answer = MapInfo::default();
    info(map, &mut answer)?;
    Ok(answer)
}

/// The beginning of `struct bpf_prog_info`.
#[derive(Default, Clone, Copy)]
#[repr(C)]
struct RawProgramInfo {
    kind: u32,
    id: u32,
    tag: [u8; 8],
    jited_len: u32,
    translated_len: u32,
    jited: u64,
    translated: u64,
    load_time: u64,
    uid: u32,
    map_count: u32,
    maps: u64,
    name: [u8; 16],
}

/// What the kernel tells of a program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgramInfo {
    /// Id.
    pub id: u32,
    /// Name, at most 15 octets.
    pub name: String,
}

/// Asks for a program's properties.
pub fn program_info(program: BorrowedFd<'_>) -> io::Result<ProgramInfo> {
    let mut raw = RawProgramInfo::default();
    info(program, &mut raw)?;
    let name = raw.name.split(|&octet| octet == 0).next().unwrap_or_default();
    Ok(ProgramInfo { id: raw.id, name: String::from_utf8_lossy(name).into_owned() })
}

/// What the kernel tells of an XDP link; the beginning of `struct bpf_link_info`.
#[derive(Default, Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct LinkInfo {
    /// `enum bpf_link_type`.
    pub kind: u32,
    /// Id.
    pub id: u32,
    /// The program it holds.
    pub program: u32,
    pad: u32,
    /// The interface; 0 when that is gone (or the link was detached).
    pub interface: u32,
    pad_end: u32,
}

/// Asks for a link's properties; an error when it is not an XDP link.
pub fn link_info(link: BorrowedFd<'_>) -> io::Result<LinkInfo> {
    let mut answer = LinkInfo::default();
    info(link, &mut answer)?;
    if answer.kind != LINK_TYPE_XDP {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "not an XDP link"));
    }
    Ok(answer)
}

/// Every XDP link of the machine, in all network namespaces.
pub fn links() -> io::Result<Vec<LinkInfo>> {
    let mut found = Vec::new();
    let mut attr = IdAttr { id: 0, next: 0, flags: 0 };
    loop {
        // SAFETY: laid out as for BPF_LINK_GET_NEXT_ID; it holds no pointers.
        match unsafe { bpf(command::LINK_GET_NEXT_ID, &mut attr) } {
            Ok(_) => {}
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(found),
            Err(error) => return Err(error),
        }
        attr.id = attr.next;
        // A link that vanishes between the two calls is none.
        if let Ok(link) = by_id(command::LINK_GET_FD_BY_ID, attr.id)
            && let Ok(link) = link_info(link.as_fd())
        {
            found.push(link);
        }
    }
}

/// Attaches a program to an interface of the thread's network namespace by a link. `flags` is
/// [`XDP_NATIVE`] or [`XDP_GENERIC`].
pub fn create_link(program: BorrowedFd<'_>, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Attr {
        program: u32,
        interface: u32,
        attach_type: u32,
        flags: u32,
    }
    let mut attr = Attr { program: program.as_raw_fd() as u32, interface, attach_type: ATTACH_XDP, flags };
    // SAFETY: laid out as for BPF_LINK_CREATE; it holds no pointers.
    unsafe { bpf(command::LINK_CREATE, &mut attr) }.map(owned)
}

/// Puts another program into a link. Atomic: each packet meets the old or the new one.
pub fn update_link(link: BorrowedFd<'_>, program: BorrowedFd<'_>) -> io::Result<()> {
    #[repr(C)]
    struct Attr {
        link: u32,
        program: u32,
        flags: u32,
        old_program: u32,
    }
    let mut attr =
        Attr { link: link.as_raw_fd() as u32, program: program.as_raw_fd() as u32, flags: 0, old_program: 0 };
    // SAFETY: laid out as for BPF_LINK_UPDATE; it holds no pointers.
    unsafe { bpf(command::LINK_UPDATE, &mut attr) }.map(drop)
}

/// Detaches a link whoever else may hold it.
pub fn detach_link(link: BorrowedFd<'_>) -> io::Result<()> {
    let mut attr = link.as_raw_fd() as u32;
    // SAFETY: BPF_LINK_DETACH takes one u32, the link.
    unsafe { bpf(command::LINK_DETACH, &mut attr) }.map(drop)
}

/// `membarrier(MEMBARRIER_CMD_GLOBAL)`: `synchronize_rcu()` on a machine with several CPUs on line.
pub fn membarrier() -> io::Result<()> {
    // SAFETY: a system call without pointers.
    match unsafe {
        libc::syscall(libc::SYS_membarrier, libc::c_long::from(libc::MEMBARRIER_CMD_GLOBAL), 0, 0)
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Nanoseconds of `CLOCK_MONOTONIC`, the clock of the lease.
pub fn monotonic() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Lifts the limit of locked memory, which maps are counted against before Linux 5.11.
pub fn lift_memory_lock() {
    let limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: reads one rlimit. When refused, making the maps says so.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit) };
}

/// Whether a path lies on a bpffs.
pub fn is_bpffs(path: &Path) -> io::Result<bool> {
    let path = path_string(path)?;
    // SAFETY: all-zero is a valid value of this plain struct.
    let mut status: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: reads a terminated path, writes one statfs.
    match unsafe { libc::statfs(path.as_ptr(), &mut status) } {
        0 => Ok(status.f_type as u64 & 0xffff_ffff == libc::BPF_FS_MAGIC as u64 & 0xffff_ffff),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Mounts a new bpffs, for root only, on a directory. `source` is what the list of mounts names.
pub fn mount_bpffs(source: &str, directory: &Path) -> io::Result<()> {
    let source = CString::new(source).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let directory = path_string(directory)?;
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // SAFETY: all five are terminated strings or flags that mount(2) only reads.
    let result = unsafe {
        libc::mount(source.as_ptr(), directory.as_ptr(), c"bpf".as_ptr(), flags, c"mode=0700".as_ptr().cast())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Unmounts what is mounted on a directory; `lazily` also when it is in use.
pub fn unmount(directory: &Path, lazily: bool) -> io::Result<()> {
    let flags = libc::UMOUNT_NOFOLLOW | if lazily { libc::MNT_DETACH } else { 0 };
    let directory = path_string(directory)?;
    // SAFETY: reads a terminated path.
    match unsafe { libc::umount2(directory.as_ptr(), flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Takes the exclusive lock of an open file; `false` when another open file has it.
pub fn try_lock(file: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: a system call on a descriptor that is open.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            error => Err(error),
        },
    }
}

/// A request to the kernel's routing socket (rtnetlink) in the thread's network namespace, and its answer.
pub fn route_request(request: &[u8]) -> io::Result<Vec<u8>> {
    one_answer(&netlink(libc::NETLINK_ROUTE, request)?)
}

/// A request to a family of generic netlink, and its answer.
pub fn generic_request(request: &[u8]) -> io::Result<Vec<u8>> {
    one_answer(&netlink(libc::NETLINK_GENERIC, request)?)
}

fn one_answer(socket: &OwnedFd) -> io::Result<Vec<u8>> {
    let mut answer = vec![0u8; 1 << 16];
    let received = receive(socket, &mut answer)?;
    answer.truncate(received);
    Ok(answer)
}

/// A request for everything of a kind (`NLM_F_DUMP`); each answer, until the last, is handed to `take`, which
/// says whether it wants more.
pub fn route_dump(request: &[u8], mut take: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
    let socket = netlink(libc::NETLINK_ROUTE, request)?;
    let mut answer = vec![0u8; 1 << 16];
    loop {
        let received = receive(&socket, &mut answer)?;
        if received == 0 || !take(answer.get(..received).unwrap_or_default()) {
            return Ok(());
        }
    }
}

/// A netlink socket that a request was sent on.
fn netlink(protocol: libc::c_int, request: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let socket = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    let socket = owned(socket);
    // SAFETY: reads `request`, whose length is given.
    let sent = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), size_of_val(request), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

fn receive(socket: &OwnedFd, answer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: writes at most the length of `answer`.
    let received = unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

/// Index of an interface of the thread's network namespace.
pub fn interface_index(name: &str) -> io::Result<u32> {
    let name = CString::new(name).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    // SAFETY: reads a terminated string.
    match unsafe { libc::if_nametoindex(name.as_ptr()) } {
        0 => Err(io::Error::last_os_error()),
        index => Ok(index),
    }
}

/// Name of an interface of the thread's network namespace.
pub fn interface_name(index: u32) -> Option<String> {
    let mut name = [0u8; libc::IF_NAMESIZE];
    // SAFETY: writes a terminated string of at most IF_NAMESIZE octets.
    if unsafe { libc::if_indextoname(index, name.as_mut_ptr().cast()) }.is_null() {
        return None;
    }
    let name = name.split(|&octet| octet == 0).next()?;
    Some(String::from_utf8_lossy(name).into_owned())
}
