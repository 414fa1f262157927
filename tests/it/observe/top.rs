//! `xroute top` against a running agent: a frame as text, and a session in a terminal.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::*;

/// A pseudo-terminal of 120 columns and 40 lines: our end, and that of the program.
fn terminal() -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (-1, -1);
    let size = libc::winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the pointers are to two integers and a struct of this frame; name and settings may be null.
    let made = unsafe {
        libc::openpty(&raw mut ours, &raw mut theirs, std::ptr::null_mut(), std::ptr::null(), &raw const size)
    };
    assert_eq!(made, 0, "a pseudo-terminal");
    // SAFETY: just opened, and nobody else's.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}

/// Whether input comes octet by octet, without an echo.
fn is_raw(terminal: &File) -> bool {
    // SAFETY: all zeros is a valid value of this struct of integers.
    let mut settings: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: fills the struct of this frame.
    assert_eq!(unsafe { libc::tcgetattr(terminal.as_raw_fd(), &raw mut settings) }, 0);
    settings.c_lflag & (libc::ICANON | libc::ECHO) == 0
}

struct Session {
    child: Child,
    terminal: File,
    seen: Arc<Mutex<Vec<u8>>>,
}

impl Session {
    fn start(lab: &Lab) -> Self {
        let (terminal, theirs) = terminal();
        let end = || Stdio::from(theirs.try_clone().expect("a descriptor"));
        let child = Command::new(binary())
            .args(["top", "--interval", "500ms", "--socket"])
            .arg(lab.folder.path().join("control.sock"))
            .env("TERM", "xterm-256color")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .spawn()
            .expect("xroute starts");
        let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
        let (mut reader, into) = (terminal.try_clone().expect("a descriptor"), Arc::clone(&seen));
        thread::spawn(move || {
            let mut octets = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut octets) {
                into.lock().expect("no panic while locked").extend_from_slice(&octets[..count]);
            }
        });
        Self { child, terminal, seen }
    }

    /// What was written since the last time, without escape sequences.
    fn take(&self) -> String {
        let octets = std::mem::take(&mut *self.seen.lock().expect("no panic while locked"));
        let mut text = String::new();
        let mut rest = String::from_utf8_lossy(&octets).into_owned();
        while let Some(at) = rest.find('\u{1b}') {
            text.push_str(&rest[..at]);
            let after = rest.split_off(at + 1);
            let end = after
                .find(|character: char| character.is_ascii_alphabetic())
                .map_or(after.len(), |at| at + 1);
            rest = after[end..].to_owned();
        }
        text + &rest
    }

    fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).expect("it reads");
    }

    fn wait(mut self) -> (bool, bool) {
        let success = self.child.wait().expect("it ends").success();
        (success, is_raw(&self.terminal))
    }
}

#[test]
fn bpf_netns_top_shows_an_agent_and_the_next_one() {
    let Some(lab) = Lab::new() else { return };
    let _near = lab.listen("127.0.0.2");
    let agent = lab.start();
    eventually("the other one is down", || lab.metric(r#"xroute_events_total{kind="verdict"}"#) >= 2.0);
    for _ in 0..5 {
        lab.ask(&Query::new("www.gslb.test", 1));
    }
    // A frame as text.
    let frame = lab.said(&agent, &["top", "--once", "--interval", "500ms", "--size", "130x45"]);
    for words in [
        "generation 1,",
        "xr0: XDP native",
        "www (priority)",
        "  far ",
        "Degraded",
        "answer_records",
        "verdict   www/far",
    ] {
        assert!(frame.contains(words), "no {words:?} in\n{frame}");
    }
    assert!(frame.lines().count() <= 45 && frame.lines().all(|line| line.chars().count() <= 130), "{frame}");
    let small = lab.said(&agent, &["top", "--once", "--interval", "500ms", "--size", "1x1"]);
    assert_eq!(small.trim_end().chars().count(), 1, "{small:?}");
    // Without a terminal it says what to do.
    let output = agent.command(&lab.pair.server, &["top"]).stdin(Stdio::null()).output().expect("starts");
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("--once"));

    // In a terminal, over a restart.
    let mut session = Session::start(&lab);
    let mut seen = String::new();
    eventually("a frame", || {
        seen += &session.take();
        seen.contains("profiles and endpoints") && seen.contains("(priority)") && is_raw(&session.terminal)
    });
    session.press("s\t");
    eventually("it is sorted by status", || session.take().contains("status"));
    agent.terminate();
    eventually("it says that there is no news", || session.take().contains("no news"));
    let agent = lab.start();
    let pid = agent.id().to_string();
    let mut seen = String::new();
    eventually("the next agent is shown", || {
        seen += &session.take();
        seen.contains(&pid)
    });
    session.press("q");
    assert_eq!(session.wait(), (true, false), "success, and the terminal as it was");

    // A signal puts the terminal back, too.
    let session = Session::start(&lab);
    eventually("it is set up", || is_raw(&session.terminal) && session.take().contains("outcomes"));
    // SAFETY: signals a child that was not waited for.
    unsafe { libc::kill(session.child.id() as i32, libc::SIGTERM) };
    assert_eq!(session.wait(), (true, false));
    agent.terminate();
}
