//! The probe of an `exec` monitor: a program, started without a shell, bounded in time, number and output.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use router_common::health::{Observation, Outcome, ProbeFault, Stage};
use router_common::model::Program;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;

use super::fault::Failed;
use super::transcript::Transcript;

/// Where programs look for others.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Most octets of the output's end that are kept to find its last line in.
const TAIL: usize = 4096;

/// Longest last line that is shown.
const LINE: usize = 300;

/// Bounds how many programs run at one time.
pub(super) struct Programs {
    free: Semaphore,
    /// How many there are to give, so that the number can change.
    most: std::sync::Mutex<usize>,
}

impl Programs {
    pub(super) fn new(most: usize) -> Self {
        Self { free: Semaphore::new(most), most: std::sync::Mutex::new(most) }
    }

    /// Changes the bound; what runs already goes on.
    pub(super) fn set_most(&self, wanted: usize) {
        let wanted = wanted.clamp(1, Semaphore::MAX_PERMITS);
        let mut most = self.most.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if wanted > *most {
            self.free.add_permits(wanted - *most);
            *most = wanted;
        } else {
            // Those in use are not to be had now; the next change finds the number as it really is.
            *most -= self.free.forget_permits(*most - wanted);
        }
    }

    /// Runs a program to its end, or ends it with its whole process group when its time is over or the
    /// future is dropped. Waiting for a place among the running ones is not part of its time, and bounded by
    /// the same.
    pub(super) async fn run(
        &self,
        program: &Program,
        timeout: Duration,
        transcript: &mut Transcript,
    ) -> (Observation, Option<String>) {
        let fault =
            |fault, said: String| (Observation { outcome: Outcome::Fault(fault), latency: None }, Some(said));
        transcript.stage = Stage::Run;
        let place = match tokio::time::timeout(timeout, self.free.acquire()).await {
            Ok(Ok(place)) => place,
            Ok(Err(_)) | Err(_) => {
                return fault(ProbeFault::Local, "too many programs of other monitors run".to_owned());
            }
        };
        let begun = Instant::now();
        let mut output = Output::default();
        let started = start(program);
        let ended = match started {
            Err(failed) => return fault(failed.fault, failed.said),
            Ok(running) => tokio::time::timeout(timeout, running.end(&mut output, transcript)).await,
        };
        drop(place);
        let latency = begun.elapsed();
        transcript.timings.finished = Some(latency);
        let line = output.last_line();
        match ended {
            Err(_) => {
                let timeout = format!("timeout running the program, after {timeout:?}");
                fault(ProbeFault::Timeout(Stage::Run), said(timeout, line))
            }
            Ok(Err(error)) => fault(ProbeFault::Local, error.to_string()),
            Ok(Ok(status)) => match (status.code(), status.signal()) {
                (Some(code), _) => {
                    // An exit status has eight bits.
                    let outcome = Outcome::Exited(u8::try_from(code).unwrap_or(u8::MAX));
                    let words = (code != 0).then(|| said(format!("exit status {code}"), line));
                    (Observation { outcome, latency: Some(latency) }, words)
                }
                (None, signal) => {
                    let signal = signal.and_then(|signal| u8::try_from(signal).ok()).unwrap_or(u8::MAX);
                    let by = ProbeFault::Signal(signal);
                    fault(by, said(by.to_string(), line))
                }
            },
        }
    }
}

/// What happened, and the last line of the program about it.
fn said(happened: String, line: Option<String>) -> String {
    match line {
        Some(line) => format!("{happened}: {line}"),
        None => happened,
    }
}

/// A program under way. Dropped before its end, it is ended, with all that it started in its group.
struct Running {
    child: Child,
    output: pipe::Receiver,
}

fn start(program: &Program) -> Result<Running, Failed> {
    let local = |error: io::Error| Failed::new(ProbeFault::Local, error.to_string());
    let (reader, writer) = io::pipe().map_err(local)?;
    let output = pipe::Receiver::from_owned_fd(OwnedFd::from(reader)).map_err(local)?;
    let child = Command::new(&program.file)
        .args(&program.arguments)
        .env_clear()
        .env("PATH", PATH)
        .env("LANG", "C.UTF-8")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(writer.try_clone().map_err(local)?)
        .stderr(writer)
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| {
            // Too many processes is our machine's trouble, anything else the monitor's.
            let ours = matches!(
                error.raw_os_error(),
                Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE)
            );
            let fault = if ours { ProbeFault::Local } else { ProbeFault::Blind };
            Failed::new(fault, format!("cannot run {}: {error}", program.file))
        })?;
    Ok(Running { child, output })
}

impl Running {
    /// Reads the output until the program ends.
    async fn end(mut self, output: &mut Output, transcript: &mut Transcript) -> io::Result<ExitStatus> {
        let mut part = [0; 4096];
        loop {
            tokio::select! {
                read = self.output.read(&mut part) => match read? {
                    0 => return self.child.wait().await,
                    length => output.take(part.get(..length).unwrap_or_default(), transcript),
                },
                ended = self.child.wait() => {
                    // What it wrote before its end; what others still write has no end.
                    for _ in 0..16 {
                        let Ok(length @ 1..) = self.output.try_read(&mut part) else { break };
                        output.take(part.get(..length).unwrap_or_default(), transcript);
                    }
                    return ended;
                }
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // `None` once it was waited for: its number may be another's by then.
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            // SAFETY: a plain system call; the group is that of a child that was not waited for, so it is ours.
            unsafe { libc::kill(-pid, libc::SIGKILL) };
        }
    }
}

/// The end of what a program wrote.
#[derive(Default)]
struct Output {
    tail: Vec<u8>,
}

impl Output {
    fn take(&mut self, octets: &[u8], transcript: &mut Transcript) {
        self.tail.extend_from_slice(octets);
        let over = self.tail.len().saturating_sub(TAIL);
        self.tail.drain(..over);
        if transcript.wanted {
            transcript.note_got(octets);
        }
    }

    /// The last line with anything in it, cut where it is too long, without control characters.
    fn last_line(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.tail);
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty())?;
        let shown: String = line.chars().take(LINE).flat_map(|c| c.escape_debug()).collect();
        Some(shown)
    }
}
