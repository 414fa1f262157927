//! Counts the instructions that a query takes: runs the object's instructions one by one, with the maps of the kernel.
//!
//! The program is the one that the verifier sees. A call of a helper is one instruction; what the kernel does in it is
//! not counted, but how often is. Values of maps are copies, so that nothing of the datapath changes. Every access is
//! checked: a mistake here is an error and not a wrong access.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::os::fd::AsFd;

use anyhow::{Context, Result, bail, ensure};
use aya::maps::{MapInfo, MapType};
use aya::programs::loaded_programs;
use aya_obj::Object;
use aya_obj::generated::bpf_insn;
use router_common::abi;
use router_userspace::datapath::Datapath;
use router_userspace::datapath::object::OBJECT;

use crate::prog_run::lookup_octets;

/// A program and the maps that it looks into.
pub struct Interpreter {
    code: Vec<bpf_insn>,
    /// Data of the object, by number of its map.
    data: Vec<Vec<u8>>,
    /// Maps of the kernel by number, those of the object first.
    maps: Vec<Option<MapInfo>>,
    cpus: usize,
}

/// What a run took.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Took {
    /// Instructions, calls included.
    pub instructions: u64,
    /// Calls of helpers, by number.
    pub helpers: BTreeMap<i32, u64>,
    /// The result of the program.
    pub action: u32,
    /// The packet afterwards.
    pub frame: Vec<u8>,
}

impl Interpreter {
    /// The program of a datapath, with its maps.
    ///
    /// # Errors
    /// When the object cannot be read, or the kernel does not tell.
    pub fn new(datapath: &Datapath) -> Result<Self> {
        let mut object = Object::parse(OBJECT)?;
        let text: HashSet<usize> = object.functions.keys().map(|(section, _)| *section).collect();
        let names: Vec<String> = object.maps.keys().cloned().collect();
        let data = names.iter().map(|name| object.maps[name].data().to_vec()).collect();
        let held: Vec<_> = names.iter().map(|name| (name.clone(), object.maps[name].clone())).collect();
        let numbered = (0..).zip(&held).map(|(number, (name, map))| (name.as_str(), number, map));
        object.relocate_maps(numbered, &text)?;
        object.relocate_calls(&text)?;
        let program = object.programs.get(abi::PROGRAM).context("no program")?;
        let code = object.functions.get(&program.function_key()).context("no function")?.instructions.clone();
        let running = loaded_programs().flatten().find(|info| info.id() == datapath.program_id());
        let ids = running.context("the program is gone")?.map_ids()?.context("the kernel names no maps")?;
        let of_kernel = ids.into_iter().map(|id| {
            let info = MapInfo::from_id(id)?;
            Ok((info.name().to_vec(), info))
        });
        let mut of_kernel: HashMap<Vec<u8>, MapInfo> = of_kernel.collect::<Result<_>>()?;
        // The kernel keeps fifteen octets of a name.
        let maps =
            names.iter().map(|name| of_kernel.remove(&name.as_bytes()[..name.len().min(15)])).collect();
        let cpus = aya::util::nr_cpus().map_err(|(what, error)| anyhow::anyhow!("{what}: {error}"))?;
        Ok(Self { code, data, maps, cpus })
    }

    /// Runs one frame that comes in on interface 1.
    ///
    /// # Errors
    /// When the program does what is not known here.
    pub fn run(&mut self, frame: &[u8]) -> Result<Took> {
        let mut memory = Memory::new(frame);
        memory.data.clone_from(&self.data);
        let mut run = Run { interpreter: self, memory, took: Took::default(), seen: HashMap::new() };
        let action = run.function(0, [0, CONTEXT, 0, 0, 0, 0], 0)? as u32;
        let frame = run.memory.packet[run.memory.start..run.memory.end].to_vec();
        Ok(Took { action, frame, ..run.took })
    }

    fn map(&self, number: usize) -> Result<&MapInfo> {
        self.maps.get(number).and_then(Option::as_ref).with_context(|| format!("no map {number}"))
    }
}

/// Addresses: the packet lies below 2³², since the context holds it in 32 bits; everything else is a region and an
/// offset in it.
const PACKET: u64 = 0x1_0000;
const REGION: u32 = 32;
const CONTEXT: u64 = 1 << REGION;
/// Numbers of maps, which are no memory.
const MAPS: u64 = 2 << REGION;
/// Data of the object, a region for each map.
const DATA: u64 = 0x100;
/// The stack, a region for each depth of calls.
const STACK: u64 = 0x1000;
const STACK_LEN: usize = 512;
/// Values of maps, a region for each.
const VALUES: u64 = 0x1_0000;
/// Before and behind the packet.
const ROOM: usize = 256;

struct Memory {
    packet: Vec<u8>,
    start: usize,
    end: usize,
    context: [u8; 24],
    data: Vec<Vec<u8>>,
    stack: Vec<[u8; STACK_LEN]>,
    values: Vec<Vec<u8>>,
}

impl Memory {
    fn new(frame: &[u8]) -> Self {
        let mut packet = vec![0; ROOM];
        packet.extend(frame);
        packet.resize(ROOM + frame.len() + 4096, 0);
        let (data, stack, values) = (Vec::new(), Vec::new(), Vec::new());
        let end = ROOM + frame.len();
        let mut memory = Self { packet, start: ROOM, end, context: [0; 24], data, stack, values };
        // The interface.
        memory.context[12] = 1;
        memory.moved();
        memory
    }

    /// Writes the packet's place to the context.
    fn moved(&mut self) {
        let [start, end] = [self.start, self.end].map(|at| (PACKET as usize + at) as u32);
        self.context[..4].copy_from_slice(&start.to_ne_bytes());
        self.context[4..8].copy_from_slice(&end.to_ne_bytes());
        self.context[8..12].copy_from_slice(&start.to_ne_bytes());
    }

    fn at(&mut self, address: u64, len: usize) -> Result<&mut [u8]> {
        let (region, offset) = (address >> REGION, (address & 0xffff_ffff) as usize);
        let found = match region {
            0 => offset
                .checked_sub(PACKET as usize)
                .filter(|&at| at >= self.start && at + len <= self.end)
                .and_then(|at| self.packet.get_mut(at..at + len)),
            _ if region == CONTEXT >> REGION => self.context.get_mut(offset..offset + len),
            DATA..STACK => {
                let data = self.data.get_mut((region - DATA) as usize);
                data.and_then(|data| data.get_mut(offset..offset + len))
            }
            STACK..VALUES => {
                let stack = self.stack.get_mut((region - STACK) as usize);
                stack.and_then(|stack| stack.get_mut(offset..offset + len))
            }
            _ => {
                let value = region.checked_sub(VALUES).and_then(|at| self.values.get_mut(at as usize));
                value.and_then(|value| value.get_mut(offset..offset + len))
            }
        };
        found.with_context(|| format!("{len} octets at {address:#x}"))
    }

    fn load(&mut self, address: u64, len: usize) -> Result<u64> {
        let mut word = [0; 8];
        word[..len].copy_from_slice(self.at(address, len)?);
        Ok(u64::from_le_bytes(word))
    }

    fn store(&mut self, address: u64, len: usize, value: u64) -> Result<()> {
        self.at(address, len)?.copy_from_slice(&value.to_le_bytes()[..len]);
        Ok(())
    }
}

struct Run<'i> {
    interpreter: &'i mut Interpreter,
    memory: Memory,
    took: Took,
    /// Addresses of values that were looked up, so that what is written is read again.
    seen: HashMap<(usize, Vec<u8>), u64>,
}

impl Run<'_> {
    /// Runs from an instruction to its exit; arguments are registers 0 to 5.
    fn function(&mut self, begin: usize, arguments: [u64; 6], depth: usize) -> Result<u64> {
        ensure!(depth < 8, "calls too deep");
        self.memory.stack.truncate(depth);
        self.memory.stack.push([0; STACK_LEN]);
        let mut r = [0u64; 11];
        r[..6].copy_from_slice(&arguments);
        r[10] = (STACK + depth as u64) << REGION | STACK_LEN as u64;
        let mut pc = begin;
        loop {
            let Some(&insn) = self.interpreter.code.get(pc) else { bail!("no instruction {pc}") };
            self.took.instructions += 1;
            ensure!(self.took.instructions < 1_000_000, "it does not end");
            pc += 1;
            let (to, from) = (usize::from(insn.dst_reg()), usize::from(insn.src_reg()));
            ensure!(to < 11 && from < 11, "a register that there is not");
            let immediate = i64::from(insn.imm) as u64;
            let far = |register: u64| register.wrapping_add(i64::from(insn.off) as u64);
            let (class, size) = (insn.code & 7, [4, 2, 1, 8][usize::from(insn.code >> 3 & 3)]);
            match class {
                0x00 if insn.code == 0x18 => {
                    let high = self.interpreter.code.get(pc).context("half an instruction")?.imm;
                    pc += 1;
                    r[to] = match from {
                        0 => u64::from(insn.imm as u32) | u64::from(high as u32) << 32,
                        1 => MAPS | u64::from(insn.imm as u32),
                        2 => (DATA + u64::from(insn.imm as u32)) << REGION | u64::from(high as u32),
                        other => bail!("a constant of kind {other}"),
                    };
                }
                0x01 if insn.code & 0xe0 == 0x60 => r[to] = self.memory.load(far(r[from]), size)?,
                0x02 if insn.code & 0xe0 == 0x60 => self.memory.store(far(r[to]), size, immediate)?,
                0x03 if insn.code & 0xe0 == 0x60 => self.memory.store(far(r[to]), size, r[from])?,
                0x04 | 0x07 => {
                    // Signed division and moves that extend the sign came with later processors of BPF.
                    ensure!(insn.off == 0, "arithmetic with an offset");
                    let operand = if insn.code & 8 == 0 { immediate } else { r[from] };
                    r[to] = arithmetic(insn.code, insn.imm, r[to], operand)?;
                }
                0x05 | 0x06 => match insn.code & 0xf0 {
                    0x00 if class == 5 => pc = target(pc, insn.off)?,
                    0x80 if from == 1 => {
                        let callee = (pc as i64 + i64::from(insn.imm)) as usize;
                        let arguments = [0, r[1], r[2], r[3], r[4], r[5]];
                        r[0] = self.function(callee, arguments, depth + 1)?;
                        self.memory.stack.truncate(depth + 1);
                    }
                    0x80 => {
                        *self.took.helpers.entry(insn.imm).or_default() += 1;
                        r[0] = self.helper(insn.imm, [r[1], r[2], r[3], r[4], r[5]])?;
                    }
                    0x90 => return Ok(r[0]),
                    operation => {
                        let operand = if insn.code & 8 == 0 { immediate } else { r[from] };
                        if holds(operation, class == 6, r[to], operand)? {
                            pc = target(pc, insn.off)?;
                        }
                    }
                },
                _ => bail!("instruction {:#x}", insn.code),
            }
        }
    }

    fn helper(&mut self, number: i32, arguments: [u64; 5]) -> Result<u64> {
        let [first, second, ..] = arguments;
        let delta = second as i32;
        Ok(match number {
            1 => {
                ensure!(first >> REGION == MAPS >> REGION, "a look-up in no map");
                self.look_up((first & 0xffff_ffff) as usize, second)?
            }
            // ktime_get_ns, ktime_get_boot_ns, ktime_get_coarse_ns: any moment within the lease.
            5 | 125 | 160 => 1 << 30,
            // jiffies64
            118 => 1 << 20,
            // get_prandom_u32
            7 => u64::from((self.took.instructions as u32).wrapping_mul(0x9e37_79b9)),
            // get_smp_processor_id
            8 => 0,
            // xdp_adjust_head, xdp_adjust_tail
            44 => self.resize(self.memory.start as i64 + i64::from(delta), self.memory.end as i64),
            65 => self.resize(self.memory.start as i64, self.memory.end as i64 + i64::from(delta)),
            // xdp_get_buff_len
            188 => (self.memory.end - self.memory.start) as u64,
            other => bail!("helper {other} is not known here"),
        })
    }

    fn resize(&mut self, start: i64, end: i64) -> u64 {
        if start < 0 || end < start + 14 || end as usize > self.memory.packet.len() {
            return -22i64 as u64;
        }
        (self.memory.start, self.memory.end) = (start as usize, end as usize);
        self.memory.moved();
        0
    }

    fn look_up(&mut self, number: usize, key: u64) -> Result<u64> {
        let map = self.interpreter.map(number)?;
        let (kind, size) = (map.map_type()?, map.value_size() as usize);
        let key = self.memory.at(key, map.key_size() as usize)?.to_vec();
        if let Some(&address) = self.seen.get(&(number, key.clone())) {
            return Ok(address);
        }
        let per_cpu = matches!(kind, MapType::PerCpuArray | MapType::PerCpuHash | MapType::LruPerCpuHash);
        let room = if per_cpu { size.next_multiple_of(8) * self.interpreter.cpus } else { size };
        let Some(mut value) = lookup_octets(map.fd()?.as_fd(), &key, room)? else { return Ok(0) };
        value.truncate(size);
        let address = if matches!(kind, MapType::ArrayOfMaps | MapType::HashOfMaps) {
            let id = u32::from_ne_bytes(value.try_into().ok().context("an inner map without an id")?);
            self.interpreter.maps.push(Some(MapInfo::from_id(id)?));
            MAPS | (self.interpreter.maps.len() - 1) as u64
        } else {
            self.memory.values.push(value);
            (VALUES + self.memory.values.len() as u64 - 1) << REGION
        };
        self.seen.insert((number, key), address);
        Ok(address)
    }
}

fn target(pc: usize, offset: i16) -> Result<usize> {
    pc.checked_add_signed(offset.into()).context("a jump to nowhere")
}

/// One operation of the arithmetic classes, of 64 bits or of 32.
fn arithmetic(code: u8, immediate: i32, to: u64, from: u64) -> Result<u64> {
    let wide = code & 7 == 7;
    if code & 0xf0 == 0xd0 {
        ensure!(!wide, "an unconditional swap");
        let swapped = code & 8 != 0;
        return Ok(match (immediate, swapped) {
            (16, true) => u64::from((to as u16).swap_bytes()),
            (32, true) => u64::from((to as u32).swap_bytes()),
            (64, true) => to.swap_bytes(),
            (16, false) => u64::from(to as u16),
            (32, false) => u64::from(to as u32),
            _ => to,
        });
    }
    let (a, b) = if wide { (to, from) } else { (u64::from(to as u32), u64::from(from as u32)) };
    let shift = (b & if wide { 63 } else { 31 }) as u32;
    let result = match code & 0xf0 {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        0x30 => a.checked_div(b).unwrap_or(0),
        0x40 => a | b,
        0x50 => a & b,
        0x60 => a << shift,
        0x70 => a >> shift,
        0x80 => a.wrapping_neg(),
        0x90 => a.checked_rem(b).unwrap_or(a),
        0xa0 => a ^ b,
        0xb0 => b,
        0xc0 if wide => ((a as i64) >> shift) as u64,
        0xc0 => ((a as i32) >> shift) as u64,
        other => bail!("arithmetic {other:#x}"),
    };
    Ok(if wide { result } else { u64::from(result as u32) })
}

/// Whether a jump is taken; of 32 bits when `narrow`.
fn holds(operation: u8, narrow: bool, to: u64, from: u64) -> Result<bool> {
    let (a, b) = if narrow { (u64::from(to as u32), u64::from(from as u32)) } else { (to, from) };
    let signed = |value: u64| if narrow { i64::from(value as i32) } else { value as i64 };
    Ok(match operation {
        0x10 => a == b,
        0x20 => a > b,
        0x30 => a >= b,
        0x40 => a & b != 0,
        0x50 => a != b,
        0x60 => signed(a) > signed(b),
        0x70 => signed(a) >= signed(b),
        0xa0 => a < b,
        0xb0 => a <= b,
        0xc0 => signed(a) < signed(b),
        0xd0 => signed(a) <= signed(b),
        other => bail!("jump {other:#x}"),
    })
}
