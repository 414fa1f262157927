//! A flood that is looked at while it runs: a window of time in which nothing begins or ends. What the kernel does
//! around a run (it waits for grace periods, 20 ms and more) is not in it.

use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use aya::programs::{TestRunAttrs, Xdp};
use aya::{TestRun, TestRunOptions};

use super::{BATCH, Flood, Load, Pace, Rule, SAMPLE, Verdict, abi, context};
use crate::bench::lab::{Lab, pin};

/// What was seen in a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Window {
    /// Queries given to the interface.
    pub sent: u64,
    /// Right answers.
    pub right: u64,
    /// Answers that were not right.
    pub wrong: u64,
    /// How long it was.
    pub elapsed: Duration,
}

/// How long a flood runs before it is looked at.
const WARM: Duration = Duration::from_millis(60);
/// Queries of one run: more than are ever sent before it is interrupted.
const ENDLESS: u32 = u32::MAX;

impl Flood {
    /// Floods a lab whose sink is there, and looks at a window of it, at whose beginning and end `look` is called.
    ///
    /// # Errors
    /// When the kernel does not run the generator, or `look` fails.
    pub fn steady<T>(
        &mut self,
        lab: &Lab,
        rule: Rule,
        pace: Option<Pace>,
        window: Duration,
        mut look: impl FnMut() -> Result<T>,
    ) -> Result<(Window, [T; 2])> {
        self.configure(rule, &Load { packets: ENDLESS, batch: BATCH, pace, unsampled: SAMPLE })?;
        let before = self.counts()?.sent;
        let found = self.while_it_runs(lab, || -> Result<_> {
            let begun = Instant::now();
            while self.counts()?.sent == before && begun.elapsed() < Duration::from_secs(2) {
                thread::sleep(Duration::from_millis(1));
            }
            thread::sleep(WARM);
            let (first, counts, start) = (look()?, self.counts()?, Instant::now());
            thread::sleep(window);
            let (now, elapsed, last) = (self.counts()?, start.elapsed(), look()?);
            let all = |counts: &abi::Counts, from: Verdict, to: Verdict| -> u64 {
                counts.answers[from as usize..=to as usize].iter().sum()
            };
            let seen = |from, to| all(&now, from, to) - all(&counts, from, to);
            let window = Window {
                sent: now.sent - counts.sent,
                right: seen(Verdict::Right, Verdict::Right),
                wrong: seen(Verdict::Headers, Verdict::Question),
                elapsed,
            };
            Ok((window, [first, last]))
        })??;
        // What is queued still must not be counted as another lab's.
        self.settled()?;
        Ok(found)
    }

    /// Runs the generator as long as `watch` takes.
    fn while_it_runs<R>(&self, lab: &Lab, watch: impl FnOnce() -> R) -> Result<R> {
        interruptible();
        let generator: &Xdp = self.ebpf.program("generator").context("no generator")?.try_into()?;
        let (cpu, end) = (self.cpu, AtomicBool::new(false));
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            let running = scope.spawn(|| {
                lab.near.run(|| -> Result<()> {
                    pin(cpu)?;
                    // SAFETY: no pointers.
                    tell.send(unsafe { libc::gettid() }).context("nobody waits")?;
                    let frame = [0; abi::LONGEST];
                    let context = context(frame.len() as u32, lab.near_index);
                    while !end.load(Ordering::Relaxed) {
                        let run = generator.test_run(TestRunOptions {
                            data_in: Some(&frame),
                            ctx_in: Some(&context),
                            repeat: ENDLESS,
                            attrs: TestRunAttrs::new().xdp_live_frames(BATCH),
                            ..TestRunOptions::new()
                        });
                        if !end.load(Ordering::Relaxed) {
                            run.context("the generator does not run")?;
                        }
                    }
                    Ok(())
                })
            });
            let thread = told.recv();
            // When it has failed, this sees no queries.
            let seen = watch();
            end.store(true, Ordering::Relaxed);
            while !running.is_finished() {
                if let Ok(thread) = thread {
                    // SAFETY: no pointers. Should the thread have ended, nobody gets the signal.
                    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGURG) };
                }
                thread::sleep(Duration::from_millis(1));
            }
            running.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok(seen)
        })
    }
}

/// Has SIGURG interrupt a system call and do nothing else.
fn interruptible() {
    static ONCE: Once = Once::new();
    extern "C" fn nothing(_: libc::c_int) {}
    ONCE.call_once(|| {
        // SAFETY: plain data, for which zeros are a value: no flags (so no restart), no blocked signals.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        // SAFETY: reads the action; the handler does nothing, which is safe in a signal.
        unsafe { libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut()) };
    });
}
