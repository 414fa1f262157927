//! The agent as a process in a namespace: started, asked, killed.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::netns::Namespace;

/// Names the agent's binary; `cargo xtask test` sets it.
pub const BINARY: &str = "XROUTE_BIN";
/// How long anything that is expected to happen may take on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where the agent's binary is: named by [`BINARY`], or beside the tests.
///
/// # Panics
/// When there is none.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os(BINARY) {
        return path.into();
    }
    let test = std::env::current_exe().expect("a test has a path");
    let path = test.ancestors().nth(2).expect("target/debug/deps/it").join("xroute");
    assert!(
        path.exists(),
        "{} is not built: `cargo build -p router-userspace`, or `cargo xtask test`",
        path.display()
    );
    path
}

/// A running `xroute run`.
pub struct Agent {
    child: Child,
    /// The process that has taken over from `child`, which has ended then.
    heir: Option<i32>,
    log: Arc<Mutex<Vec<String>>>,
    reader: Option<JoinHandle<()>>,
    socket: PathBuf,
}

impl Agent {
    /// Starts it in a namespace on a configuration in `folder` whose `[server]` names the control socket
    /// `control.sock` in the same folder, and waits until it serves.
    ///
    /// # Panics
    /// With its log when it ends or takes too long.
    pub fn start(namespace: &Namespace, folder: &Path, arguments: &[&str]) -> Self {
        Self::start_program(namespace, &binary(), folder, arguments)
    }

    /// As [`Agent::start`], of another copy of the program.
    ///
    /// # Panics
    /// As [`Agent::start`].
    pub fn start_program(namespace: &Namespace, program: &Path, folder: &Path, arguments: &[&str]) -> Self {
        let mut command = namespace.command(program.to_str().expect("a path of text"));
        command.arg("run").arg("--config").arg(folder.join("xroute.toml")).args(arguments);
        let mut agent = Self::spawn(command, folder);
        agent.wait_for("serving DNS");
        agent
    }

    /// Starts it by a command, and does not wait. Its control socket is `control.sock` in `folder`.
    ///
    /// # Panics
    /// When it does not start.
    pub fn spawn(mut command: Command, folder: &Path) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the agent starts");
        let log = Arc::new(Mutex::new(Vec::new()));
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let lines = Arc::clone(&log);
        let reader = thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                lines.lock().expect("no panic while locked").push(line);
            }
        });
        Self { child, heir: None, log, reader: Some(reader), socket: folder.join("control.sock") }
    }

    /// `xroute upgrade`. What it printed; from now on this is the new agent, and the old one has ended well.
    ///
    /// # Errors
    /// What it said when it failed, and this is still the old agent.
    ///
    /// # Panics
    /// When the old agent does not end well.
    pub fn upgrade(&mut self, namespace: &Namespace) -> Result<Value, String> {
        adopt_orphans();
        let output =
            self.command(namespace, &["upgrade", "--format", "json"]).output().expect("xroute starts");
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let pid = report["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).expect("a process");
        assert!(self.wait(), "the old agent ended badly:\n{}", self.log().join("\n"));
        self.heir = Some(pid);
        Ok(report)
    }

    /// Waits for the end; whether it was a good one.
    fn wait(&mut self) -> bool {
        let Some(pid) = self.heir.take() else {
            return self.child.wait().is_ok_and(|status| status.success());
        };
        wait_for_orphan(pid)
    }

    fn has_ended(&mut self) -> bool {
        match self.heir {
            // A signal that is none asks whether the process is there.
            // SAFETY: sends nothing.
            Some(pid) => unsafe { libc::kill(pid, 0) != 0 },
            None => self.child.try_wait().expect("a child").is_some(),
        }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: signals a process that was not waited for, so that the number is its own.
        unsafe { libc::kill(self.id() as i32, signal) };
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.heir.map_or_else(|| self.child.id(), i32::unsigned_abs)
    }

    /// Waits for a line of the log that contains this; the line.
    ///
    /// # Panics
    /// With the log when the agent ends first, or it takes too long.
    pub fn wait_for(&mut self, words: &str) -> String {
        let start = Instant::now();
        loop {
            let ended = self.has_ended();
            if let Some(line) = self.log().iter().find(|line| line.contains(words)) {
                return line.clone();
            }
            assert!(
                !ended && start.elapsed() < PATIENCE,
                "no {words:?} in the log:\n{}",
                self.log().join("\n")
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Its log so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().expect("no panic while locked").clone()
    }

    /// A command line of `xroute` that talks to it.
    pub fn command(&self, namespace: &Namespace, arguments: &[&str]) -> Command {
        let mut command = namespace.command(binary().to_str().expect("a path of text"));
        command.args(arguments).arg("--socket").arg(&self.socket);
        command
    }

    /// `xroute status --format json`.
    ///
    /// # Panics
    /// With its message when it fails.
    pub fn status(&self, namespace: &Namespace) -> Value {
        let output =
            self.command(namespace, &["status", "--format", "json"]).output().expect("xroute starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Waits until it has ended by itself.
    pub fn end_of_child(mut self) {
        self.end();
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.signal(libc::SIGKILL);
        self.end();
    }

    /// SIGTERM; waits for the end.
    ///
    /// # Panics
    /// When it does not end well.
    pub fn terminate(mut self) {
        self.signal(libc::SIGTERM);
        assert!(self.end(), "the agent ended badly:\n{}", self.log().join("\n"));
    }

    /// SIGHUP.
    pub fn hang_up(&self) {
        self.signal(libc::SIGHUP);
    }

    fn end(&mut self) -> bool {
        let success = self.wait();
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader ends");
        }
        success
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Already waited for in the usual case; a failed test must not leave it running.
        if self.reader.is_some() {
            self.signal(libc::SIGKILL);
            self.end();
        }
    }
}

/// What children of this process leave behind is ours to wait for.
pub fn adopt_orphans() {
    // SAFETY: an option of this process, without pointers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
}

/// Waits for the end of a process that one of our children has left; whether it was a good one.
pub fn wait_for_orphan(pid: i32) -> bool {
    let mut status = 0;
    let start = Instant::now();
    let waited = loop {
        // SAFETY: waits for a child, as which this process has adopted it; `status` outlives the call.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        // Its parent may be about to leave it.
        if waited == pid || start.elapsed() > PATIENCE {
            break waited;
        }
        thread::sleep(Duration::from_millis(20));
    };
    waited == pid && libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
}

/// Asks again and again until `check` holds.
///
/// # Panics
/// When it takes too long.
pub fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let start = Instant::now();
    while !check() {
        assert!(start.elapsed() < PATIENCE, "{what} did not come about");
        thread::sleep(Duration::from_millis(20));
    }
}
