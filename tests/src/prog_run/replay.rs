//! Many prepared frames replayed to a program, each in its turn: what a query costs when names and sources are
//! drawn from a large set, not when one of each is hot in every cache and every branch is foretold.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::raw::{self, Instruction, helper, instruction};
use super::{Table, action};

/// Octets of the longest frame; the shortest has 16.
pub const LONGEST: usize = 512;

/// Who gets the frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The program that is measured.
    Program,
    /// One that only says `XDP_TX`: what time it takes is that of the harness.
    Empty,
}

/// Frames in an array of the kernel, and a program that replays them.
///
/// `BPF_PROG_TEST_RUN` repeats on the packet as the last run left it, so a *driver* stands before the program: it
/// takes the next frame, gives the packet the place, length and octets that it has when it comes from a device, waits
/// until those writes have reached the cache (a load that overlaps stores in flight would stall), and tail-calls.
/// The same driver with an empty program behind it is what is to be subtracted.
pub struct Replay {
    drivers: [OwnedFd; 2],
    state: Table<u64>,
    /// The kernel empties an array of programs that nobody holds open.
    _targets: OwnedFd,
    count: usize,
    /// A run begins with this packet: room for the longest.
    room: Vec<u8>,
}

/// Elements of the driver's state.
mod state {
    /// Number of the next frame; it goes on from run to run.
    pub const NEXT: usize = 0;
    /// Where the packet is now. A pointer that went through memory is a number.
    pub const HERE: usize = 1;
    /// Where it was when the run began; 0 before.
    pub const HOME: usize = 2;
    pub const WORDS: usize = 3;
}

impl Replay {
    /// Makes the array of frames, a power of two of them, in the order given.
    ///
    /// # Errors
    /// When the frames do not suit, or the kernel refuses.
    pub fn new(program: BorrowedFd<'_>, frames: &[Vec<u8>]) -> Result<Self> {
        ensure!(frames.len().is_power_of_two(), "{} frames are no power of two", frames.len());
        let longest = frames.iter().map(Vec::len).max().unwrap_or(0);
        ensure!(longest <= LONGEST, "a frame of {longest} octets");
        ensure!(frames.iter().all(|frame| frame.len() >= 16), "a frame that is too short to be one");
        // The length, then the octets.
        let words = 1 + longest.div_ceil(8);
        let array = raw::mappable_array(words as u32 * 8, frames.len() as u32)?;
        let mut table: Table<u64> = Table::mapped(array.as_fd(), words * frames.len())?;
        for (at, frame) in frames.iter().enumerate() {
            let mut slot = vec![0; words];
            slot[0] = frame.len() as u64;
            for (word, chunk) in slot[1..].iter_mut().zip(frame.chunks(8)) {
                let mut octets = [0; 8];
                octets[..chunk.len()].copy_from_slice(chunk);
                *word = u64::from_ne_bytes(octets);
            }
            table.write(at * words, &slot)?;
        }
        let memory = raw::mappable_array((state::WORDS * 8) as u32, 1)?;
        let state = Table::mapped(memory.as_fd(), state::WORDS)?;
        let empty = raw::load(&[raw::mov(0, action::TX as i32), raw::exit()])?;
        let targets = raw::program_array(&[program.as_raw_fd(), empty.as_raw_fd()])?;
        let driver = |target| -> Result<OwnedFd> {
            raw::load(&driver(&Maps {
                state: memory.as_raw_fd(),
                frames: array.as_raw_fd(),
                mask: frames.len() as i32 - 1,
                words: words as i16 - 1,
                targets: targets.as_raw_fd(),
                target,
            }))
        };
        let drivers = [driver(0)?, driver(1)?];
        Ok(Self { drivers, state, _targets: targets, count: frames.len(), room: vec![0; longest.max(16)] })
    }

    /// How many frames there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Replays `repeat` frames, from number `first` on and round again; the time of one.
    ///
    /// # Errors
    /// When the kernel does not run it, or the last one does not end in `XDP_TX`.
    pub fn time(&mut self, target: Target, first: usize, repeat: u32) -> Result<Duration> {
        self.rewind(first);
        let (result, time) = raw::test_run(self.driver(target), &self.room, repeat)?;
        ensure!(result == action::TX, "a run ended in {result}");
        let ran = self.state.load(state::NEXT) - first as u64;
        ensure!(ran == u64::from(repeat), "{ran} of {repeat} frames were replayed");
        Ok(time)
    }

    /// Replays the `before` frames before this one and then this one, on the same packet; returns what left last. Of
    /// [`Target::Empty`] that is the frame itself.
    ///
    /// # Errors
    /// As [`Self::time`].
    pub fn one(&mut self, target: Target, number: usize, before: u32) -> Result<Vec<u8>> {
        let first = number.checked_sub(before as usize).context("there are not so many before")?;
        self.rewind(first);
        let (result, frame) = raw::test_run_to_end(self.driver(target), &self.room, before + 1)?;
        ensure!(result == action::TX, "frame {number} ended in {result}");
        Ok(frame)
    }

    fn driver(&self, target: Target) -> BorrowedFd<'_> {
        self.drivers[target as usize].as_fd()
    }

    fn rewind(&mut self, first: usize) {
        self.state.store(state::NEXT, first as u64);
        self.state.store(state::HOME, 0);
    }
}

/// What the driver works with.
struct Maps {
    state: RawFd,
    frames: RawFd,
    mask: i32,
    /// Words of a longest frame.
    words: i16,
    targets: RawFd,
    target: i32,
}

/// The driver. Register 6 is the context, 7 the state, 8 the frame's slot, 9 its length.
fn driver(maps: &Maps) -> Vec<Instruction> {
    const MAP: u8 = 1;
    const MAP_VALUE: u8 = 2;
    let word = |element: usize| element as i16 * 8;
    let mut code = Code::default();
    code.add([
        raw::copy(6, 1),
        instruction(0x18, 7, MAP_VALUE, 0, maps.state), // r7 = the state
        instruction(0, 0, 0, 0, 0),
        // The next frame.
        instruction(0x79, 1, 7, word(state::NEXT), 0), // r1 = next
        raw::copy(2, 1),
        instruction(0x07, 2, 0, 0, 1),                 // r2 += 1
        instruction(0x7b, 7, 2, word(state::NEXT), 0), // next = r2
        instruction(0x57, 1, 0, 0, maps.mask),         // r1 &= mask
        instruction(0x63, 10, 1, -4, 0),               // *(u32 *)(r10 - 4) = r1
        instruction(0x18, 1, MAP, 0, maps.frames),     // r1 = the frames
        instruction(0, 0, 0, 0, 0),
        raw::copy(2, 10),
        instruction(0x07, 2, 0, 0, -4), // r2 -= 4
        raw::call(helper::MAP_LOOKUP),
    ]);
    code.fail_if(0x15, 0, 0, 0); // r0 == 0
    code.add([raw::copy(8, 0), instruction(0x79, 9, 8, 0, 0)]); // r9 = its length
    code.fail_if(0x25, 9, 0, i32::from(maps.words) * 8); // r9 > words * 8
    code.fail_if(0xa5, 9, 0, 16); // r9 < 16
    code.add([
        // The place: what the packet has grown by at the head is taken away.
        raw::load_context(3, 6, raw::DATA),
        instruction(0x7b, 7, 3, word(state::HERE), 0), // here = r3
        instruction(0x79, 3, 7, word(state::HERE), 0), // r3 = here, as a number
        instruction(0x79, 2, 7, word(state::HOME), 0), // r2 = home
        instruction(0x55, 2, 0, 2, 0),                 // if r2 != 0 goto +2
        raw::copy(2, 3),
        instruction(0x7b, 7, 3, word(state::HOME), 0), // home = r3
        instruction(0x1f, 2, 3, 0, 0),                 // r2 -= r3
        raw::copy(1, 6),
        raw::call(helper::ADJUST_HEAD),
    ]);
    code.fail_if(0x55, 0, 0, 0); // r0 != 0
    code.add([
        // The length.
        raw::load_context(3, 6, raw::DATA_END),
        raw::load_context(4, 6, raw::DATA),
        instruction(0x1f, 3, 4, 0, 0), // r3 -= r4
        raw::copy(2, 9),
        instruction(0x1f, 2, 3, 0, 0), // r2 -= r3
        raw::copy(1, 6),
        raw::call(helper::ADJUST_TAIL),
    ]);
    code.fail_if(0x55, 0, 0, 0); // r0 != 0
    code.add([
        // The octets: whole words as far as they go, and a last one that ends where the frame does.
        raw::load_context(3, 6, raw::DATA),
        raw::load_context(4, 6, raw::DATA_END),
        raw::copy(5, 8),
        instruction(0x07, 5, 0, 0, 8), // r5 += 8
    ]);
    for at in 0..maps.words {
        let left = (maps.words - at - 1) * 5 + 2;
        code.add([
            raw::copy(2, 3),
            instruction(0x07, 2, 0, 0, (i32::from(at) + 1) * 8), // r2 += the end of this word
            instruction(0x2d, 2, 4, left, 0),                    // if r2 > r4 goto the last word
            instruction(0x79, 0, 5, at * 8, 0),
            instruction(0x7b, 3, 0, at * 8, 0),
        ]);
    }
    code.add([
        raw::copy(1, 9),
        instruction(0x07, 1, 0, 0, -8), // r1 = length - 8
        instruction(0x0f, 3, 1, 0, 0),  // r3 += r1
        raw::copy(2, 3),
        instruction(0x07, 2, 0, 0, 8), // r2 += 8
    ]);
    code.fail_if(0x2d, 2, 4, 0); // r2 > r4
    code.add([
        instruction(0x0f, 5, 1, 0, 0), // r5 += r1
        instruction(0x79, 0, 5, 0, 0),
        instruction(0x7b, 3, 0, 0, 0),
    ]);
    code.add(raw::wait_and_call(maps.targets, maps.target));
    code.finish()
}

/// Instructions, some of which jump to the end, where the program fails.
#[derive(Default)]
struct Code {
    instructions: Vec<Instruction>,
    jumps: Vec<usize>,
}

impl Code {
    fn add(&mut self, instructions: impl IntoIterator<Item = Instruction>) {
        self.instructions.extend(instructions);
    }

    fn fail_if(&mut self, code: u8, to: u8, from: u8, immediate: i32) {
        self.jumps.push(self.instructions.len());
        self.instructions.push(instruction(code, to, from, 0, immediate));
    }

    fn finish(mut self) -> Vec<Instruction> {
        let end = self.instructions.len();
        for at in self.jumps {
            self.instructions[at].offset = (end - at - 1) as i16;
        }
        self.instructions.extend([raw::mov(0, action::ABORTED as i32), raw::exit()]);
        self.instructions
    }
}
