//! Small programs made of instructions, by the system call itself: aya loads objects only.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use anyhow::{Context, Result};

use super::action;

/// One instruction (`struct bpf_insn`).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Instruction {
    code: u8,
    registers: u8,
    /// How far a jump goes, or where in memory.
    pub offset: i16,
    immediate: i32,
}

/// Any instruction; registers, offset and immediate that it does not use are zero.
pub const fn instruction(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: to | from << 4, offset, immediate }
}

/// `to = immediate`
pub const fn mov(to: u8, immediate: i32) -> Instruction {
    instruction(0xb7, to, 0, 0, immediate)
}

/// `to = from`
pub const fn copy(to: u8, from: u8) -> Instruction {
    instruction(0xbf, to, from, 0, 0)
}

/// `to = *(u32 *)(context + offset)`
pub const fn load_context(to: u8, context: u8, offset: i16) -> Instruction {
    instruction(0x61, to, context, offset, 0)
}

/// Calls a helper of the kernel.
pub const fn call(helper: i32) -> Instruction {
    instruction(0x85, 0, 0, 0, helper)
}

/// Ends the program with the result in register 0.
pub const fn exit() -> Instruction {
    instruction(0x95, 0, 0, 0, 0)
}

/// Helpers of the kernel.
pub mod helper {
    /// `void *bpf_map_lookup_elem(map, key)`
    pub const MAP_LOOKUP: i32 = 1;
    /// `long bpf_tail_call(context, array, index)`
    pub const TAIL_CALL: i32 = 12;
    /// `long bpf_xdp_adjust_head(context, delta)`
    pub const ADJUST_HEAD: i32 = 44;
    /// `long bpf_xdp_adjust_tail(context, delta)`
    pub const ADJUST_TAIL: i32 = 65;
}
use helper::{ADJUST_HEAD, TAIL_CALL};

/// Where `struct xdp_md` has the packet's start.
pub const DATA: i16 = 0;
/// Where it has its end.
pub const DATA_END: i16 = 4;

/// Waits until writes have reached the cache, and goes on with program number `target` of the array; the context is
/// in register 6. Falls through when there is no such program.
pub fn wait_and_call(array: RawFd, target: i32) -> [Instruction; 8] {
    const SPINS: i32 = 400;
    [
        mov(0, 0),
        instruction(0x07, 0, 0, 0, 1),      // r0 += 1
        instruction(0xa5, 0, 0, -2, SPINS), // if r0 < SPINS goto -2
        copy(1, 6),
        instruction(0x18, 2, 1, 0, array), // r2 = the array
        instruction(0, 0, 0, 0, 0),
        mov(3, target),
        call(TAIL_CALL),
    ]
}

/// A program that gives the packet the size and octets of `frame`, waits, and goes on with program
/// number `target` of the array. What the packet has grown by is taken away at the head, where it grows.
pub fn restore_and_call(frame: &[u8], array: RawFd, target: i32) -> Vec<Instruction> {
    let len = frame.len() as i32;
    let mut code = vec![
        copy(6, 1),
        load_context(3, 6, DATA_END),
        load_context(4, 6, DATA),
        instruction(0x1f, 3, 4, 0, 0),    // r3 -= r4
        instruction(0x07, 3, 0, 0, -len), // r3 -= len
        copy(2, 3),
        call(ADJUST_HEAD),
        load_context(3, 6, DATA),
        load_context(4, 6, DATA_END),
        copy(5, 3),
        instruction(0x07, 5, 0, 0, len), // r5 += len
    ];
    let mut writes = Vec::new();
    for (i, chunk) in frame.chunks(8).enumerate() {
        let at = (i * 8) as i16;
        if let Ok(octets) = <[u8; 8]>::try_from(chunk) {
            let word = u64::from_le_bytes(octets);
            writes.push(instruction(0x18, 2, 0, 0, word as i32)); // r2 = 64-bit immediate
            writes.push(instruction(0, 0, 0, 0, (word >> 32) as i32));
            writes.push(instruction(0x7b, 3, 2, at, 0)); // *(u64 *)(r3 + at) = r2
        } else {
            for (j, &octet) in chunk.iter().enumerate() {
                writes.push(instruction(0x72, 3, 0, at + j as i16, octet.into()));
            }
        }
    }
    let rest = wait_and_call(array, target);
    // if r5 > r4 goto the end
    code.push(instruction(0x2d, 5, 4, (writes.len() + rest.len()) as i16, 0));
    code.extend(writes);
    code.extend(rest);
    code.extend([mov(0, action::ABORTED as i32), exit()]);
    code
}

const MAP_CREATE: i64 = 0;
const MAP_LOOKUP: i64 = 1;
const MAP_UPDATE: i64 = 2;
const PROG_LOAD: i64 = 5;
const PROG_TEST_RUN: i64 = 10;

/// `union bpf_attr` as far as it is used here.
#[repr(C, align(8))]
struct Attributes([u8; 128]);

impl Attributes {
    const fn new() -> Self {
        Self([0; 128])
    }
    fn u32(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }
    fn u64(mut self, at: usize, value: u64) -> Self {
        self.0[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }
    fn get(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.0[at..at + 4].try_into().expect("four octets"))
    }
    fn call(&mut self, command: i64) -> io::Result<i64> {
        // SAFETY: the attributes are as large as said, and what they point to outlives the call.
        let result = unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut self.0, self.0.len()) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
    }
}

fn owned(fd: i64) -> OwnedFd {
    // SAFETY: a descriptor that the kernel just made for us.
    unsafe { OwnedFd::from_raw_fd(fd as RawFd) }
}

/// Loads an XDP program, with multi-buffer support and attach type like ours: a tail call needs that.
pub fn load(code: &[Instruction]) -> Result<OwnedFd> {
    const XDP: u32 = 6;
    const HAS_FRAGS: u32 = 1 << 5;
    const ATTACH_XDP: u32 = 37;
    let license = c"Dual MIT/GPL";
    let mut log = vec![0u8; 1 << 16];
    let loaded = Attributes::new()
        .u32(0, XDP)
        .u32(4, code.len() as u32)
        .u64(8, code.as_ptr() as u64)
        .u64(16, license.as_ptr() as u64)
        .u32(24, 1)
        .u32(28, log.len() as u32)
        .u64(32, log.as_mut_ptr() as u64)
        .u32(44, HAS_FRAGS)
        .u32(68, ATTACH_XDP)
        .call(PROG_LOAD);
    let text = String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned();
    Ok(owned(loaded.with_context(|| format!("a small program does not load: {text}"))?))
}

/// An element of a per-CPU array of numbers: one for each possible CPU. (aya asks sysfs for their number
/// each time.)
pub fn lookup(map: BorrowedFd<'_>, index: u32, cpus: usize) -> Result<Vec<u64>> {
    let mut values = vec![0u64; cpus];
    Attributes::new()
        .u32(0, map.as_raw_fd() as u32)
        .u64(8, &raw const index as u64)
        .u64(16, values.as_mut_ptr() as u64)
        .call(MAP_LOOKUP)
        .context("a counter cannot be read")?;
    Ok(values)
}

/// An element of any map by its key, of `size` octets; `None` when there is none.
pub fn lookup_octets(map: BorrowedFd<'_>, key: &[u8], size: usize) -> Result<Option<Vec<u8>>> {
    let mut value = vec![0; size];
    let found = Attributes::new()
        .u32(0, map.as_raw_fd() as u32)
        .u64(8, key.as_ptr() as u64)
        .u64(16, value.as_mut_ptr() as u64)
        .call(MAP_LOOKUP);
    match found {
        Ok(_) => Ok(Some(value)),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error).context("a map cannot be read"),
    }
}

/// An array of programs to tail-call.
pub fn program_array(programs: &[RawFd]) -> Result<OwnedFd> {
    const PROGRAM_ARRAY: u32 = 3;
    let array = map(PROGRAM_ARRAY, 4, programs.len() as u32, 0).context("no program array")?;
    for (i, program) in programs.iter().enumerate() {
        let key = i as u32;
        Attributes::new()
            .u32(0, array.as_raw_fd() as u32)
            .u64(8, &raw const key as u64)
            .u64(16, program as *const RawFd as u64)
            .call(MAP_UPDATE)
            .context("a program does not go into the array")?;
    }
    Ok(array)
}

/// An array that can be mapped as memory; `size` octets an element, a multiple of 8.
pub fn mappable_array(size: u32, entries: u32) -> Result<OwnedFd> {
    const ARRAY: u32 = 2;
    const MMAPABLE: u32 = 1 << 10;
    map(ARRAY, size, entries, MMAPABLE).context("no array")
}

fn map(kind: u32, value_size: u32, entries: u32, flags: u32) -> io::Result<OwnedFd> {
    Attributes::new()
        .u32(0, kind)
        .u32(4, 4)
        .u32(8, value_size)
        .u32(12, entries)
        .u32(16, flags)
        .call(MAP_CREATE)
        .map(owned)
}

/// Runs a program on a copy of `frame`; returns its last result, and the time of one run.
pub fn test_run(program: BorrowedFd<'_>, frame: &[u8], repeat: u32) -> Result<(u32, Duration)> {
    let mut attributes = attributes(program, frame, &mut [], repeat);
    attributes.call(PROG_TEST_RUN).context("a test run failed")?;
    Ok((attributes.get(4), Duration::from_nanos(attributes.get(36).into())))
}

/// The same; returns the last result, and the packet as the last run left it, of at most 4096 octets.
pub fn test_run_to_end(program: BorrowedFd<'_>, frame: &[u8], repeat: u32) -> Result<(u32, Vec<u8>)> {
    let mut out = vec![0; 4096];
    let mut attributes = attributes(program, frame, &mut out, repeat);
    attributes.call(PROG_TEST_RUN).context("a test run failed")?;
    out.truncate(attributes.get(12) as usize);
    Ok((attributes.get(4), out))
}

fn attributes(program: BorrowedFd<'_>, frame: &[u8], out: &mut [u8], repeat: u32) -> Attributes {
    let attributes = Attributes::new()
        .u32(0, program.as_raw_fd() as u32)
        .u32(8, frame.len() as u32)
        .u64(16, frame.as_ptr() as u64)
        .u32(32, repeat);
    if out.is_empty() {
        attributes
    } else {
        attributes.u32(12, out.len() as u32).u64(24, out.as_mut_ptr() as u64)
    }
}
