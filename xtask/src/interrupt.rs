//! Ctrl-C and termination as a flag, so that whatever runs comes to an orderly end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on SIGINT, SIGTERM and SIGHUP only set the flag.
pub fn catch() -> Result<()> {
    let flag = FLAG.get_or_init(Arc::default);
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(flag)).context("cannot catch signals")?;
    }
    Ok(())
}

/// Whether one of the signals came.
pub fn came() -> bool {
    FLAG.get().is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Waits; an error as soon as one of the signals came.
pub fn pause(duration: Duration) -> Result<()> {
    let end = Instant::now() + duration;
    loop {
        if came() {
            bail!("interrupted");
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        thread::sleep(left.min(Duration::from_millis(20)));
    }
}

/// Asks `ready` every 20 ms until it has an answer; after `patience` an error that says what was awaited.
pub fn wait_for<T>(
    what: &str,
    patience: Duration,
    mut ready: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let end = Instant::now() + patience;
    loop {
        if let Some(value) = ready()? {
            return Ok(value);
        }
        if Instant::now() > end {
            bail!("waited {} s in vain for {what}", patience.as_secs());
        }
        pause(Duration::from_millis(20))?;
    }
}
