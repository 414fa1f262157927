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
        let mut child = namespace
            .command(binary().to_str().expect("a path of text"))
            .arg("run")
            .arg("--config")
            .arg(folder.join("xroute.toml"))
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .expect("the agent starts");
        let log = Arc::new(Mutex::new(Vec::new()));
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let lines = Arc::clone(&log);
        let reader = thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                lines.lock().expect("no panic while locked").push(line);
            }
        });
        let mut agent = Self { child, log, reader: Some(reader), socket: folder.join("control.sock") };
        agent.wait_for("serving DNS");
        agent
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line of the log that contains this; the line.
    ///
    /// # Panics
    /// With the log when the agent ends first, or it takes too long.
    pub fn wait_for(&mut self, words: &str) -> String {
        let start = Instant::now();
        loop {
            let ended = self.child.try_wait().expect("a child").is_some();
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

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().expect("the signal is sent");
        self.end();
    }

    /// SIGTERM; waits for the end.
    ///
    /// # Panics
    /// When it does not end well.
    pub fn terminate(mut self) {
        // SAFETY: signals a child that was not waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGTERM) };
        assert!(self.end(), "the agent ended badly:\n{}", self.log().join("\n"));
    }

    /// SIGHUP.
    pub fn hang_up(&self) {
        // SAFETY: signals a child that was not waited for.
        unsafe { libc::kill(self.child.id() as i32, libc::SIGHUP) };
    }

    fn end(&mut self) -> bool {
        let success = self.child.wait().is_ok_and(|status| status.success());
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader ends");
        }
        success
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Already waited for in the usual case; a failed test must not leave it running.
        let _ = self.child.kill();
        self.end();
    }
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
