//! Asks for A records all the time and writes down when each query was sent, when it was answered, and how.
//!
//! What dnsperf cannot tell: which endpoint an answer named, and at which moment. It runs as a process of
//! its own in the client's namespace, a few thousand queries a second beside dnsperf's.

use std::fmt::Write as _;
use std::fs;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::Child;
use std::time::Duration;
use std::{env, thread};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use rustix::time::{ClockId, clock_gettime};

use super::lab::{Lab, SERVER_IPV4, Side};
use super::message::{self, Said};
use super::{PROFILES, ZONE};
use crate::interrupt;

/// Queries a second.
const RATE: u64 = 3000;
/// Queries that may be unanswered at one time: a veth's ring holds 256 packets, dnsperf's among them.
const WINDOW: usize = 32;
/// A query without an answer for this long, in nanoseconds, is lost.
const LOST_AFTER: u64 = 2_000_000_000;

/// `CLOCK_MONOTONIC` in nanoseconds: the clock of xroute's log.
pub fn clock() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// What the sampling process is told to do.
#[derive(clap::Args)]
pub struct Order {
    /// The server.
    #[arg(long)]
    server: SocketAddr,
    /// A name to ask for; several are asked for in turn.
    #[arg(long, required = true)]
    name: Vec<String>,
    /// Where to write what was seen when SIGTERM ends it.
    #[arg(long)]
    out: PathBuf,
}

/// A query and what came of it. Times are nanoseconds of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// When it was sent.
    pub sent: u64,
    /// When the answer arrived; `None` = lost.
    pub answered: Option<(u64, Said)>,
    /// Which name, by its position.
    pub name: usize,
}

/// Samples until SIGTERM, waits for the last answers, writes the file.
pub fn run(order: &Order) -> Result<()> {
    interrupt::catch()?;
    let local = if order.server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(local).context("cannot open a socket")?;
    socket.connect(order.server).context("cannot connect the socket")?;
    socket.set_nonblocking(true).context("cannot set the socket non-blocking")?;

    let mut samples: Vec<Sample> = Vec::new();
    let mut open: Vec<usize> = Vec::new(); // positions of unanswered samples; the id is the position's low half
    let mut buffer = [0; 2048];
    let start = clock();
    let mut ends = None;
    loop {
        let now = clock();
        if ends.is_none() && interrupt::came() {
            ends = Some(now + LOST_AFTER);
        }
        if ends.is_some_and(|end| open.is_empty() || now > end) {
            break;
        }
        open.retain(|at| now - samples[*at].sent < LOST_AFTER);
        let due = (now - start) * RATE / 1_000_000_000;
        if ends.is_none() && (samples.len() as u64) < due && open.len() < WINDOW {
            let name = samples.len() % order.name.len();
            let query = message::query(samples.len() as u16, &order.name[name]);
            let sent = clock();
            match socket.send(&query) {
                Ok(_) => {
                    open.push(samples.len());
                    samples.push(Sample { sent, answered: None, name });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error).context("cannot send a query"),
            }
        }
        match socket.recv(&mut buffer) {
            Ok(length) => {
                let received = clock();
                let Some((id, said)) = message::read(&buffer[..length]) else { continue };
                if let Some(at) = open.iter().position(|at| *at as u16 == id) {
                    samples[open.swap_remove(at)].answered = Some((received, said));
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                thread::sleep(Duration::from_micros(100));
            }
            Err(error) => return Err(error).context("cannot receive an answer"),
        }
    }
    fs::write(&order.out, write(&samples)).with_context(|| format!("cannot write {}", order.out.display()))
}

/// One line a sample: name, sent, answered (0 = lost), address or RCODE.
fn write(samples: &[Sample]) -> String {
    let mut text = String::new();
    for sample in samples {
        let (answered, said) = match sample.answered {
            None => (0, "-".to_owned()),
            Some((at, Said::Address(address))) => (at, address.to_string()),
            Some((at, Said::Nothing(rcode))) => (at, format!("rcode{rcode}")),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} {} {answered} {said}", sample.name, sample.sent);
    }
    text
}

fn read(text: &str) -> Result<Vec<Sample>> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let name = words.next()?.parse().ok()?;
        let sent = words.next()?.parse().ok()?;
        let answered = words.next()?.parse().ok()?;
        let said = words.next()?;
        let answered = match said.strip_prefix("rcode") {
            _ if said == "-" => None,
            Some(rcode) => Some((answered, Said::Nothing(rcode.parse().ok()?))),
            None => Some((answered, Said::Address(said.parse().ok()?))),
        };
        Some(Sample { sent, answered, name })
    };
    text.lines().map(|l| line(l).with_context(|| format!("the sampler wrote `{l}`"))).collect()
}

/// The sampling process, seen from the demo.
pub struct Sampler {
    child: Child,
    out: PathBuf,
}

impl Sampler {
    /// Starts it in the client's namespace, asking for every profile's name in turn.
    pub fn start(lab: &Lab) -> Result<Self> {
        let out = lab.path("samples");
        let this = env::current_exe().context("cannot find this program")?;
        let mut command = lab.inside(Side::Client, this);
        command.args(["sample", "--server", &format!("{SERVER_IPV4}:53"), "--out"]).arg(&out);
        for profile in PROFILES {
            command.args(["--name", &format!("{profile}.{ZONE}")]);
        }
        Ok(Self { child: lab.start(&mut command, "sampler.log")?, out })
    }

    /// Ends it and reads what it saw; names are positions in [`PROFILES`].
    pub fn finish(&mut self) -> Result<Vec<Sample>> {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, Signal::TERM).context("cannot end the sampler")?;
        let status = self.child.wait().context("cannot wait for the sampler")?;
        if !status.success() {
            bail!("the sampler failed: {status}");
        }
        read(&fs::read_to_string(&self.out).context("the sampler wrote nothing")?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_survive_the_file() {
        let address = Said::Address("192.0.2.10".parse().unwrap());
        let samples = vec![
            Sample { sent: 5, answered: Some((7, address)), name: 0 },
            Sample { sent: 6, answered: Some((8, Said::Nothing(3))), name: 1 },
            Sample { sent: 9, answered: None, name: 2 },
        ];
        assert_eq!(read(&write(&samples)).unwrap(), samples);
        assert!(read("0 5").is_err());
    }
}
