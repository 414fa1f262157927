//! Queries from inside the kernel, and a check of every answer: what it takes to measure a server that answers millions
//! a second.
//!
//! A **generator** program, run on frames that leave through the near end of a [`Lab`], makes each the next query
//! of a set in random order: name, source address and port, ID, client subnet, checksums. A **sink** at the same
//! end looks at each answer (headers, who asked, flags, RCODE, counts, IPv4 checksum; of a share also the UDP
//! checksum and the question) and counts. Both, and whatever is in the kernel at the far end, share one processor.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use aya::maps::{Array, MapData, PerCpuArray};
use aya::programs::TestRunAttrs;
use aya::programs::{Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader, TestRun, TestRunOptions};

use super::lab::{FAR, FAR_MAC, Lab, NEAR, NEAR_MAC, Overflow, SERVICE, abi, pin};
use crate::packet::{Frame, Query};

pub use super::lab::abi::{MOST_QUERIES, Verdict};

pub mod steady;

/// The programs, built from `router-ebpf/src/flood`.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/xroute-flood"));

// SAFETY: fixed-width integers without padding.
unsafe impl aya::Pod for abi::Query {}
// SAFETY: as above.
unsafe impl aya::Pod for abi::Config {}
// SAFETY: as above.
unsafe impl aya::Pod for abi::State {}
// SAFETY: as above.
unsafe impl aya::Pod for abi::Counts {}

/// A query of a set.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The message; its ID is set when it is sent.
    pub query: Query,
    /// Where it comes from.
    pub source: Ipv4Addr,
    /// How many records a right answer has in its answer section, least and most.
    pub records: (u8, u8),
}

/// What the sink takes for a right answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// QR, RCODE 0, and the records that the query's [`Ask`] says.
    Answered,
    /// The query itself, sent back.
    Reflected,
}

/// How much is sent, and how fast.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Until so many queries were sent, or were dropped because they were not due: 2²⁰ are a fraction of a second.
    pub packets: u32,
    /// Frames that are sent before the next are made, at most 256.
    pub batch: u32,
    /// How they are paced; `None` for as fast as it goes.
    pub pace: Option<Pace>,
    /// A query whose number has none of these bits set has its answer checked whole.
    pub unsampled: u32,
}

/// A rate.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Queries a second.
    pub rate: u32,
    /// Queries that are sent at a time.
    pub burst: u32,
}

impl Load {
    /// As fast as it goes: what programs in the kernel are measured with.
    pub const fn full(packets: u32) -> Self {
        Self { packets, batch: BATCH, pace: None, unsampled: SAMPLE }
    }
}

/// Frames of a batch: the kernel's own size, that of its NAPI budget.
pub const BATCH: u32 = 64;
/// One answer in 16 is checked whole.
pub const SAMPLE: u32 = 15;
/// Runs of a paced load are so long.
const SLICE: u32 = 1 << 18;

/// What came of a load.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Queries given to the interface.
    pub sent: u64,
    /// Right answers.
    pub right: u64,
    /// Answers that were not, by what was wrong ([`Verdict`] as index).
    pub verdicts: [u64; abi::VERDICTS],
    /// Frames that were no answers.
    pub other: u64,
    /// Dropped by full queues.
    pub overflow: Overflow,
    /// From the first query to the last.
    pub elapsed: Duration,
    /// The part of it that the processor was not given to something else meanwhile. Whole nanoseconds for each frame.
    pub busy: Duration,
}

impl Outcome {
    /// Answers that were not right.
    pub fn wrong(&self) -> u64 {
        self.verdicts[Verdict::Headers as usize..].iter().sum()
    }

    /// Queries without an answer that no full queue explains.
    pub fn lost(&self) -> u64 {
        let accounted = self.right + self.wrong() + self.overflow.queries + self.overflow.answers;
        self.sent.saturating_sub(accounted)
    }

    /// Right answers a second.
    pub fn rate(&self) -> f64 {
        self.right as f64 / self.elapsed.as_secs_f64()
    }

    /// Nanoseconds of the processor for one right answer.
    pub fn nanoseconds(&self) -> f64 {
        self.busy.as_nanos() as f64 / self.right as f64
    }
}

/// Generator, sink and reflector, loaded with a set of queries.
pub struct Flood {
    ebpf: Ebpf,
    /// Queries, a power of two.
    queries: usize,
    /// The processor they run on.
    cpu: usize,
}

impl Flood {
    /// Loads the programs, to run on one processor, with `count` queries, which are sent in the order of their numbers
    /// again and again. A count that is no power of two is made one: the first are there twice.
    ///
    /// # Errors
    /// When `ask` fails, a query is too long or too short for a frame, there are none or too many of them, or the
    /// kernel refuses.
    pub fn load(count: usize, mut ask: impl FnMut(usize) -> Result<Ask>, cpu: usize) -> Result<Self> {
        let queries = count.next_power_of_two();
        ensure!(count > 0 && queries <= MOST_QUERIES, "{count} queries");
        let mut ebpf = EbpfLoader::new()
            .map_max_entries("QUERIES", queries as u32)
            .load(OBJECT)
            .context("the programs of the flood do not load")?;
        for name in ["generator", "sink", "reflector"] {
            program_mut(&mut ebpf, name)?.load().with_context(|| format!("the kernel refuses the {name}"))?;
        }
        let mut table: Array<_, abi::Query> = map_mut(&mut ebpf, "QUERIES")?.try_into()?;
        for number in 0..queries {
            let ask = ask(number % count)?;
            table.set(number as u32, encode(ask, number as u32)?, 0)?;
        }
        Ok(Self { ebpf, queries, cpu })
    }

    /// Puts the sink at the near end of a lab, natively. It stays as long as the lab.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach_sink(&mut self, lab: &Lab) -> Result<()> {
        self.attach("sink", |attach| lab.near.run(|| attach(NEAR)))
    }

    /// Puts the reflector at the far end of a lab, natively.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach_reflector(&mut self, lab: &Lab) -> Result<()> {
        self.attach("reflector", |attach| lab.far.run(|| attach(FAR)))
    }

    fn attach(
        &mut self,
        name: &str,
        inside: impl FnOnce(&mut (dyn FnMut(&str) -> Result<()> + Send)) -> Result<()>,
    ) -> Result<()> {
        let program = program_mut(&mut self.ebpf, name)?;
        inside(&mut |interface| {
            program.attach(interface, XdpMode::Driver).with_context(|| format!("{name} on {interface}"))?;
            Ok(())
        })
    }

    /// Floods a lab whose sink is there, and waits for the last answers.
    ///
    /// # Errors
    /// When the kernel does not run the generator.
    pub fn run(&mut self, lab: &Lab, rule: Rule, load: &Load) -> Result<Outcome> {
        self.configure(rule, load)?;
        let counts = self.counts()?;
        let generator: &Xdp = self.ebpf.program("generator").context("no generator")?.try_into()?;
        let cpu = self.cpu;
        let (elapsed, busy) = lab.near.run(|| -> Result<_> {
            pin(cpu)?;
            // What the program makes of a frame is never longer; at first it is as long as the longest.
            let frame = [0; abi::LONGEST];
            let context = context(frame.len() as u32, lab.near_index);
            let start = Instant::now();
            let (mut left, mut busy) = (load.packets, Duration::ZERO);
            while left > 0 {
                let repeat = if load.pace.is_some() { left.min(SLICE) } else { left };
                let result = generator.test_run(TestRunOptions {
                    data_in: Some(&frame),
                    ctx_in: Some(&context),
                    repeat,
                    attrs: TestRunAttrs::new().xdp_live_frames(load.batch),
                    ..TestRunOptions::new()
                })?;
                // The kernel has divided by the number of frames, and stops its clock when it gives way.
                busy += result.duration * repeat;
                left -= repeat;
            }
            Ok((start.elapsed(), busy))
        })?;
        let now = self.settled()?;
        let mut outcome = Outcome { sent: now.sent - counts.sent, elapsed, busy, ..Outcome::default() };
        for (at, (now, before)) in now.answers.iter().zip(counts.answers).enumerate() {
            outcome.verdicts[at] = now - before;
        }
        outcome.right = outcome.verdicts[Verdict::Right as usize];
        outcome.other = outcome.verdicts[Verdict::Other as usize];
        if outcome.lost() > 0 {
            outcome.overflow = lab.new_overflow()?;
        }
        Ok(outcome)
    }

    /// The frame of a query of the set, as it is sent.
    ///
    /// # Errors
    /// When there is no such query.
    pub fn frame(&mut self, number: u32) -> Result<Vec<u8>> {
        let table: Array<_, abi::Query> = map_mut(&mut self.ebpf, "QUERIES")?.try_into()?;
        let query = table.get(&number, 0)?;
        let mut frame: Vec<u8> = query.words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        frame.truncate(query.len.into());
        Ok(frame)
    }

    /// What the sink says of one frame, looked at whole.
    ///
    /// # Errors
    /// When the kernel does not run it, or it says nothing.
    pub fn judge(&mut self, rule: Rule, frame: &[u8]) -> Result<Verdict> {
        self.configure(rule, &Load { unsampled: 0, ..Load::full(1) })?;
        let before = self.counts()?;
        let sink: &Xdp = self.ebpf.program("sink").context("no sink")?.try_into()?;
        sink.test_run(TestRunOptions { data_in: Some(frame), ..TestRunOptions::new() })?;
        let after = self.counts()?;
        let moved = after.answers.iter().zip(before.answers).position(|(after, before)| *after != before);
        moved.and_then(|at| Verdict::ALL.get(at).copied()).context("nothing was counted")
    }

    fn configure(&mut self, rule: Rule, load: &Load) -> Result<()> {
        // QR, OPCODE and RCODE.
        let flags_mask = 0xf80fu16.to_be();
        let (flags, records) = match rule {
            Rule::Answered => (0x8000u16.to_be(), 1),
            Rule::Reflected => (0, 0),
        };
        let (burst, period) = match load.pace {
            None => (0, 0),
            Some(Pace { rate, burst }) => {
                (burst.max(1), u64::from(burst.max(1)) * 1_000_000_000 / u64::from(rate.max(1)))
            }
        };
        let config = abi::Config {
            mask: self.queries as u32 - 1,
            unsampled: load.unsampled,
            flags_mask,
            flags,
            records,
            burst,
            pad: 0,
            period,
        };
        let mut table: Array<_, abi::Config> = map_mut(&mut self.ebpf, "CONFIG")?.try_into()?;
        table.set(0, config, 0)?;
        Ok(())
    }

    /// What has been counted so far.
    fn counts(&self) -> Result<abi::Counts> {
        let map = self.ebpf.map("COUNTS").context("no counts")?;
        let table: PerCpuArray<&MapData, abi::Counts> = map.try_into()?;
        let mut all = abi::Counts { sent: 0, answers: [0; abi::VERDICTS] };
        for one in table.get(&0, 0)?.iter() {
            all.sent += one.sent;
            for (sum, count) in all.answers.iter_mut().zip(one.answers) {
                *sum += count;
            }
        }
        Ok(all)
    }

    /// What has been counted when nothing more comes.
    fn settled(&self) -> Result<abi::Counts> {
        let mut before = self.counts()?;
        loop {
            std::thread::sleep(Duration::from_millis(2));
            let now = self.counts()?;
            if now.answers == before.answers {
                return Ok(now);
            }
            before = now;
        }
    }
}

fn program_mut<'e>(ebpf: &'e mut Ebpf, name: &str) -> Result<&'e mut Xdp> {
    Ok(ebpf.program_mut(name).with_context(|| format!("no {name}"))?.try_into()?)
}

fn map_mut<'e>(ebpf: &'e mut Ebpf, name: &str) -> Result<&'e mut aya::maps::Map> {
    ebpf.map_mut(name).with_context(|| format!("no {name}"))
}

/// A `struct xdp_md`: the frame's length, and the interface it is said to have come from.
fn context(len: u32, interface: u32) -> [u8; 24] {
    let mut context = [0; 24];
    context[4..8].copy_from_slice(&len.to_ne_bytes());
    context[12..16].copy_from_slice(&interface.to_ne_bytes());
    context
}

/// A query as the generator sends it: its ID and port say which it is.
fn encode(ask: Ask, number: u32) -> Result<abi::Query> {
    let mut query = ask.query;
    query.id = number as u16;
    let end = abi::QUESTION + query.question().len();
    let mut frame = Frame::ipv4(ask.source, SERVICE, query.bytes());
    (frame.to, frame.from) = (FAR_MAC, NEAR_MAC);
    // Ports differ in more than what names the query, as those of a client do.
    frame.udp.source =
        0x4000 | ((number >> 16) as u16) << 8 | (number.wrapping_mul(0x9e37_79b1) >> 24) as u16;
    let frame = frame.bytes();
    let len = frame.len();
    ensure!((abi::SHORTEST..=abi::LONGEST).contains(&len), "a query makes a frame of {len} octets");
    ensure!(abi::number(number as u16, frame_port(&frame)) == number, "query {number} is not known again");
    let word = |octets: &[u8]| -> Result<u64> {
        Ok(u64::from_ne_bytes(octets.try_into().map_err(|_| anyhow!("not eight octets"))?))
    };
    let (tail, last) = (word(&frame[end - 8..end])?, word(&frame[len - 8..])?);
    let mut padded = frame;
    padded.resize(abi::LONGEST, 0);
    let mut words = [0; abi::WORDS];
    for (place, octets) in words.iter_mut().zip(padded.chunks_exact(8)) {
        *place = word(octets)?;
    }
    let (least, most) = ask.records;
    Ok(abi::Query { len: len as u16, end: end as u16, least, most, pad: 0, tail, last, words })
}

fn frame_port(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[34], frame[35]])
}
