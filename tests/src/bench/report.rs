//! Figures with their goals, for people and as JSON.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

/// Figures in the order they were taken.
#[derive(Default)]
pub struct Report {
    figures: Map<String, Value>,
    failed: bool,
}

impl Report {
    /// A time, and what it should stay under.
    pub fn time(&mut self, what: &str, time: Duration, goal: Option<Duration>) {
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let goal = goal.map(milliseconds);
        let found = milliseconds(time);
        let judged = match goal {
            None => String::new(),
            Some(goal) => {
                self.failed |= found > goal;
                format!("goal {goal:>9.3} ms  {}", if found > goal { "MISSED" } else { "met" })
            }
        };
        println!("{what:<44} {found:>10.3} ms  {judged}");
        self.figures.insert(what.into(), json!({ "milliseconds": found, "goal": goal }));
    }

    /// Anything else with a unit, and what it should not be above.
    pub fn figure(&mut self, what: &str, found: f64, unit: &str, goal: Option<f64>) {
        let judged = match goal {
            None => String::new(),
            Some(goal) => {
                self.failed |= found > goal;
                format!("goal {goal:>9.3} {unit}  {}", if found > goal { "MISSED" } else { "met" })
            }
        };
        println!("{what:<44} {found:>10.3} {unit}  {judged}");
        self.figures.insert(what.into(), json!({ "found": found, "unit": unit, "goal": goal }));
    }

    /// Something else that was counted.
    pub fn count(&mut self, what: &str, count: u64) {
        println!("{what:<44} {count:>10}");
        self.figures.insert(what.into(), json!(count));
    }

    /// A text.
    pub fn note(&mut self, what: &str, note: &str) {
        println!("{what:<44} {note}");
        self.figures.insert(what.into(), json!(note));
    }

    /// Everything as JSON, and whether every goal was met.
    pub fn finish(self) -> (Value, bool) {
        (Value::Object(self.figures), !self.failed)
    }
}

/// How long something takes, and what comes out.
pub fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = Instant::now();
    let result = work();
    (start.elapsed(), result)
}

/// Processor time of this process so far: what a time would be on a machine that does nothing else.
pub fn processor() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec, which is ours.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The middle one of some times.
pub fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
