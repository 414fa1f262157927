//! Where dnstap goes: a thread that writes what is sampled to a socket or a file, and tries again when it cannot.
//!
//! Nothing is sampled while it cannot be written. What is written to a slow reader waits in the bounded queue of
//! the subscription, and what finds that full is counted as lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Exchange, Speaker, stream, write};
use crate::settings::{Dnstap, DnstapTarget};
use crate::trace::{Event, Filter, Hub, Subscription, Wanted};

/// How long a reader may take for what it is sent, before the connection is given up.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long its last word is waited for.
const PARTING: Duration = Duration::from_millis(500);
/// Pause before the next attempt: doubled after each one that fails.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];
/// How long is slept when nothing is to be written.
const IDLE: Duration = Duration::from_millis(20);
/// How often it is looked whether the file is still where it was.
const LOOK: Duration = Duration::from_secs(1);
/// Octets that are written at once, about.
const CHUNK: usize = 64 << 10;

/// How it goes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct State {
    /// Whether it is being written.
    pub open: bool,
    /// Frames written since the output was configured.
    pub frames: u64,
    /// Why it is not, or was not the last time.
    pub error: Option<String>,
}

/// A running output. Dropping it ends it, and waits until what was sampled is written: a moment, or as long as
/// a slow reader is waited for.
pub struct Output {
    settings: Dnstap,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    orders: Mutex<Orders>,
    changed: Condvar,
    state: Mutex<State>,
}

#[derive(Default)]
struct Orders {
    stop: bool,
    /// Look at the file now.
    look: bool,
}

impl Output {
    /// Starts one.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub fn start(settings: Dnstap, hub: &Arc<Hub>) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let writer = Writer { settings: settings.clone(), hub: Arc::clone(hub), shared: Arc::clone(&shared) };
        let thread = thread::Builder::new().name("dnstap".into()).spawn(move || writer.run())?;
        Ok(Self { settings, shared, thread: Some(thread) })
    }

    /// What it was started with.
    pub fn settings(&self) -> &Dnstap {
        &self.settings
    }

    /// Opens the file anew when it was moved away. (It is looked for that all the time; this is for those who
    /// do not want to wait a second.)
    pub fn reopen(&self) {
        self.shared.orders().look = true;
        self.shared.changed.notify_all();
    }

    /// Ends it without waiting for that.
    pub fn retire(mut self) {
        self.thread = None;
    }

    /// How it goes.
    pub fn state(&self) -> State {
        self.shared.state().clone()
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.shared.orders().stop = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // It has said what there was to say.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits, but not longer than until there are orders. Whether to go on.
    fn wait(&self, time: Duration) -> bool {
        let orders = self.orders();
        let waited = self.changed.wait_timeout_while(orders, time, |orders| !orders.stop && !orders.look);
        let (orders, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !orders.stop
    }

    /// Whether to end.
    fn stops(&self) -> bool {
        self.orders().stop
    }

    /// Whether to look at the file now; once.
    fn looks(&self) -> bool {
        std::mem::take(&mut self.orders().look)
    }
}

/// The thread's own.
struct Writer {
    settings: Dnstap,
    hub: Arc<Hub>,
    shared: Arc<Shared>,
}

impl Writer {
    fn run(self) {
        let [shortest, longest] = PAUSES;
        let mut pause = shortest;
        let target = &self.settings.target;
        while !self.shared.stops() {
            let began = Instant::now();
            match self.write() {
                Ok(()) => return,
                Err(error) => {
                    let why = format!("{error:#}");
                    let mut state = self.shared.state();
                    state.open = false;
                    if state.error.as_ref() != Some(&why) {
                        log::warn!("dnstap to {target}: {why}; trying again");
                    }
                    state.error = Some(why);
                }
            }
            // It worked for a while: this is another trouble.
            if began.elapsed() > longest {
                pause = shortest;
            }
            self.shared.looks();
            if !self.shared.wait(pause) {
                return;
            }
            pause = (pause * 2).min(longest);
        }
    }

    /// Writes until told to stop.
    fn write(&self) -> Result<()> {
        let Dnstap { target, speaker, sample, per_second, path } = &self.settings;
        let speaker = speaker.clone().unwrap_or_else(Speaker::usual);
        let mut sink = Sink::open(target)?;
        {
            let mut state = self.shared.state();
            (state.open, state.error) = (true, None);
        }
        log::info!("dnstap to {target}: open");
        let filter = Filter::parse(None, None, None, None, *path).map_err(anyhow::Error::msg)?;
        let wanted = Wanted { filter, sample: *sample, per_second: *per_second };
        let Ok(mut subscription) = self.hub.subscribe_dnstap(&wanted) else {
            bail!("another output has not ended");
        };
        let mut looked = Instant::now();
        let mut chunk = Vec::with_capacity(CHUNK);
        loop {
            let stops = self.shared.stops();
            if stops {
                // What was sampled is written yet; it gets no more.
                subscription.events.close();
            }
            let frames = gather(&mut subscription, &speaker, &mut chunk);
            if frames > 0 {
                sink.write(&chunk)?;
                self.shared.state().frames += frames;
            }
            chunk.clear();
            if stops && frames == 0 {
                return sink.end();
            }
            if self.shared.looks() || looked.elapsed() >= LOOK {
                looked = Instant::now();
                if sink.has_moved(target) {
                    sink.end()?;
                    sink = Sink::open(target)?;
                    log::info!("dnstap to {target}: begun anew");
                }
            }
            if frames == 0 {
                // Orders are looked at above.
                let _ = self.shared.wait(IDLE);
            }
        }
    }
}

/// Takes what waits, as frames. How many.
fn gather(subscription: &mut Subscription, speaker: &Speaker, chunk: &mut Vec<u8>) -> u64 {
    let mut frames = 0;
    while chunk.len() < CHUNK {
        let Ok(event) = subscription.events.try_recv() else { break };
        let Event { at, client, server, transport, ref query, ref reply, .. } = *event;
        let exchange = Exchange { at, client, server, transport, query, reply: reply.as_deref() };
        frames += write(&exchange, speaker, chunk);
    }
    frames
}

/// Where frames go.
enum Sink {
    Socket(UnixStream),
    File(File),
}

impl Sink {
    fn open(target: &DnstapTarget) -> Result<Self> {
        match target {
            DnstapTarget::Socket(path) => {
                let mut socket = UnixStream::connect(path).context("cannot connect")?;
                socket.set_write_timeout(Some(PATIENCE))?;
                socket.set_read_timeout(Some(PATIENCE))?;
                stream::shake_hands(&mut socket).context("no agreement")?;
                Ok(Self::Socket(socket))
            }
            DnstapTarget::File(path) => Ok(Self::File(open_file(path)?)),
        }
    }

    fn write(&mut self, frames: &[u8]) -> Result<()> {
        match self {
            Self::Socket(socket) => socket.write_all(frames).context("the reader does not take it"),
            Self::File(file) => file.write_all(frames).context("cannot write"),
        }
    }

    /// Whether what is written goes elsewhere than to the file that is there now.
    fn has_moved(&self, target: &DnstapTarget) -> bool {
        let (Self::File(file), DnstapTarget::File(path)) = (self, target) else { return false };
        match (file.metadata(), fs::metadata(path)) {
            (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) != (there.dev(), there.ino()),
            (_, Err(error)) => error.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }

    fn end(mut self) -> Result<()> {
        match &mut self {
            Self::Socket(socket) => {
                socket.set_read_timeout(Some(PARTING))?;
                // A reader that is gone already has no last word.
                let _ = stream::part(socket);
                Ok(())
            }
            Self::File(file) => file.write_all(&stream::stop()).context("cannot write"),
        }
    }
}

/// Opens a file to be gone on with, or makes it.
fn open_file(path: &Path) -> Result<File> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        // Who asks what is nobody's business.
        .mode(0o640)
        .open(path)
        .context("cannot open the file")?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() == 0 {
        file.write_all(&stream::start()).context("cannot write")?;
        return Ok(file);
    }
    match stream::end_of_frames(&mut BufReader::new(&file), metadata.len())? {
        None => bail!("the file is there, and is no dnstap file: move it away"),
        Some(end) => {
            file.set_len(end)?;
            file.seek(SeekFrom::Start(end))?;
            Ok(file)
        }
    }
}

#[cfg(test)]
mod tests;
