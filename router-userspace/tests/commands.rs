//! The command line as scripts and packages use it: exit statuses, failures as JSON, completions, manual pages.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::{self, JoinHandle};

use serde_json::Value;

fn xroute(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xroute")).args(arguments).output().expect("xroute starts")
}

fn text(octets: &[u8]) -> String {
    String::from_utf8(octets.to_vec()).expect("text")
}

fn example(name: &str) -> String {
    format!("{}/../examples/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Asserts how a command fails: in words, and as one JSON object that says the same.
fn fails(arguments: &[&str], exit: i32, kind: &str, words: &str) {
    let output = xroute(arguments);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {said}");
    assert!(said.contains(words), "{arguments:?}: no {words:?} in {said}");
    let output = xroute(&[arguments, &["--format", "json"]].concat());
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(exit), "{arguments:?}: {said}");
    assert!(output.stdout.is_empty(), "{arguments:?}: {}", text(&output.stdout));
    let said: Value =
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {said}"));
    let error = &said["error"];
    assert_eq!(error["exit"], exit, "{said}");
    assert_eq!(error["kind"], kind, "{said}");
    assert!(error["message"].as_str().is_some_and(|message| message.contains(words)), "{said}");
}

/// Commands that ask an agent, whole enough to be sent.
const ASKING: &[&[&str]] = &[
    &["status"],
    &["reload"],
    &["explain", "www.example.com", "--client", "192.0.2.1"],
    &["map", "192.0.2.1"],
    &["endpoint", "disable", "www/eu1"],
    &["profile", "enable", "www"],
    &["override", "list"],
    &["override", "clear", "--all"],
];

/// An agent that says one thing to everybody.
struct Parrot {
    folder: tempfile::TempDir,
    said: JoinHandle<()>,
}

impl Parrot {
    /// Says this to so many connections.
    fn start(says: String, times: usize) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let listener = UnixListener::bind(folder.path().join("s")).expect("a socket");
        let said = thread::spawn(move || {
            for _ in 0..times {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut head = [0; 1024];
                let _ = stream.read(&mut head).expect("a request");
                stream.write_all(says.as_bytes()).expect("it listens");
            }
        });
        Self { folder, said }
    }

    fn refusing(status: &str, kind: &str, message: &str, times: usize) -> Self {
        let body = serde_json::json!({"error": {"kind": kind, "message": message}}).to_string();
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
        Self::start(format!("{head}\r\nconnection: close\r\n\r\n{body}"), times)
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    fn end(self) {
        self.said.join().expect("asked as often as expected");
    }
}

fn at<'a>(arguments: &[&'a str], socket: &'a Path) -> Vec<&'a str> {
    [arguments, &["--socket", socket.to_str().expect("text")]].concat()
}

#[test]
fn done_is_0() {
    let output = xroute(&["check", &example("priority.toml")]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stdout).contains("valid: "));
    assert_eq!(xroute(&["--help"]).status.code(), Some(0));
    assert_eq!(xroute(&["--version", "--format", "json"]).status.code(), Some(0));
    let help = text(&xroute(&["--help"]).stdout);
    for words in ["Exit status:", "  3  no agent listens", "  5  the agent did not reply"] {
        assert!(help.contains(words), "{help}");
    }
}

#[test]
fn failed_is_1() {
    let question = ["explain", "a..b", "--client", "192.0.2.1"];
    fails(&question, 1, "failed", "empty label");
    let gone = ["reload", "--config", "/nonexistent/xroute.toml"];
    fails(&gone, 1, "failed", "/nonexistent/xroute.toml: cannot be read");
    let probe = ["probe", "www/nobody", "--config", &example("priority.toml")];
    fails(&probe, 1, "failed", "there is no endpoint www/nobody");
    let parrot = Parrot::refusing("422 Unprocessable Entity", "refused", "it has mistakes", 2 * ASKING.len());
    for arguments in ASKING {
        fails(&at(arguments, &parrot.socket()), 1, "refused", "it has mistakes");
    }
    parrot.end();
}

#[test]
fn wrong_usage_is_2() {
    fails(&["statuz"], 2, "usage", "a similar subcommand exists: 'status'");
    fails(&["map", "home"], 2, "usage", "invalid value 'home'");
    fails(&["endpoint", "weight", "1001", "www/eu1"], 2, "usage", "1001 is not in 1..=1000");
    fails(&["endpoint", "disable", "www"], 2, "usage", "PROFILE/ENDPOINT is wanted");
    assert_eq!(xroute(&[]).status.code(), Some(2));
}

#[test]
fn an_agent_that_is_not_there_is_3() {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("s");
    for arguments in ASKING {
        fails(&at(arguments, &socket), 3, "unreachable", "is `xroute run` running?");
    }
    // Its socket is there still, and nobody listens.
    drop(UnixListener::bind(&socket).expect("a socket"));
    fails(&at(&["status"], &socket), 3, "unreachable", "refused");
}

#[test]
fn not_permitted_is_4() {
    let parrot = Parrot::refusing("403 Forbidden", "not_permitted", "only root may", 2 * ASKING.len());
    for arguments in ASKING {
        fails(&at(arguments, &parrot.socket()), 4, "not_permitted", "only root may");
    }
    parrot.end();
}

#[test]
fn no_reply_is_5() {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n{\"generation\"";
    // To look is tried again when nothing came at all, a change never is.
    for (says, looks) in [(half, 1), ("", 5)] {
        let parrot = Parrot::start(says.into(), 2 * (looks + 1));
        fails(&at(&["status"], &parrot.socket()), 5, "unanswered", "broke off");
        fails(&at(&["reload"], &parrot.socket()), 5, "unanswered", "broke off");
        parrot.end();
    }
}

#[test]
fn an_agent_that_ends_may_have_done_it() {
    let parrot = Parrot::refusing("503 Service Unavailable", "unavailable", "shutting down", 2);
    fails(&at(&["reload"], &parrot.socket()), 5, "unavailable", "shutting down");
    parrot.end();
}

#[test]
fn being_turned_away_is_waited_out() {
    let ok = "HTTP/1.1 200 OK\r\ncontent-length: 16\r\nconnection: close\r\n\r\n{\"overrides\":[]}";
    let body = serde_json::json!({"error": {"kind": "too_many", "message": "no room"}}).to_string();
    let full = format!("HTTP/1.1 429 Too Many Requests\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("s");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let says = [full.clone(), full, ok.to_owned()];
    let said = thread::spawn(move || {
        for says in says {
            let (mut stream, _) = listener.accept().expect("a client");
            let _ = stream.read(&mut [0; 1024]).expect("a request");
            stream.write_all(says.as_bytes()).expect("it listens");
        }
    });
    let output = xroute(&at(&["override", "list"], &socket));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("no overrides"));
    said.join().expect("asked as often as expected");
}

#[test]
fn check_says_in_json_where_each_mistake_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("xroute.toml");
    std::fs::write(&file, "[server]\nlisten = [\"192.0.2.53:53\"]\ncolour = 1\n").expect("writable");
    let name = file.to_str().expect("text");
    let output = xroute(&["check", name, "--format", "json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(said["valid"], false);
    let mistakes = said["errors"].as_array().expect("a list");
    let odd = mistakes.iter().find(|mistake| mistake["line"] == 3).expect("the unknown key");
    assert_eq!((&odd["file"], &odd["column"]), (&Value::from(name), &Value::from(1)));
    assert!(odd["message"].as_str().is_some_and(|message| message.contains("colour")), "{odd}");

    let output = xroute(&["check", &example("priority.toml"), "--format", "json"]);
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), &said["valid"]), (Some(0), &Value::from(true)));
    assert!(said["profiles"].as_u64().is_some_and(|count| count > 0), "{said}");
}

#[test]
fn probe_says_in_json_what_was_sent_and_got() {
    let endpoint = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = endpoint.local_addr().expect("bound").port();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("xroute.toml");
    let configuration = std::fs::read_to_string(example("priority.toml")).expect("an example");
    let zone =
        configuration.split("[[zone]]").nth(1).and_then(|rest| rest.split("[[").next()).expect("a zone");
    let origin = zone.split("name").nth(1).and_then(|rest| rest.split('"').nth(1)).expect("its name");
    let profile = format!(
        "[[profile]]\nname = \"p\"\nnames = [\"p.{origin}\"]\nmethod = \"priority\"\nttl = 5\n\
         [profile.monitor]\nprotocol = \"tcp\"\nport = {port}\ninterval = \"10s\"\ntimeout = \"1s\"\n\
         [[profile.endpoint]]\nname = \"e\"\naddress = [\"127.0.0.1\"]\n"
    );
    std::fs::write(&file, format!("[[zone]]{zone}\n{profile}")).expect("writable");
    let probe = ["probe", "p/e", "--format", "json", "--config", file.to_str().expect("text")];
    let output = xroute(&probe);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((&said["endpoint"], &said["healthy"]), (&Value::from("p/e"), &Value::from(true)));
    let transcript = said["transcript"].as_array().expect("lines");
    assert!(transcript.contains(&Value::from(format!("* connect to 127.0.0.1:{port}"))), "{said}");
    drop(endpoint);
    let output = xroute(&probe);
    assert_eq!(output.status.code(), Some(1));
    let said: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(said["healthy"], false);
}

/// Runs a tool of the system; `None` where it is not, and may be missing.
fn tool(command: &mut Command) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) => {
            let name = command.get_program().to_string_lossy().into_owned();
            // `cargo xtask test` has installed it.
            assert!(std::env::var_os("XROUTE_REQUIRE_BPF").is_none(), "{name}: {error}");
            println!("SKIPPED {name}: {error}");
            None
        }
    }
}

#[test]
fn completions_are_what_the_shells_read() {
    let folder = tempfile::tempdir().expect("a folder");
    for shell in ["bash", "zsh", "fish"] {
        let output = xroute(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let script = text(&output.stdout);
        for word in ["override", "explain", "--reason", "json"] {
            let word = if shell == "fish" { word.trim_start_matches("--") } else { word };
            assert!(script.contains(word), "{shell}: {word}");
        }
        if shell == "fish" {
            continue;
        }
        let file = folder.path().join(shell);
        std::fs::write(&file, &script).expect("writable");
        let Some(parsed) = tool(Command::new(shell).arg("-n").arg(&file)) else { continue };
        assert!(parsed.status.success() && parsed.stderr.is_empty(), "{shell}: {}", text(&parsed.stderr));
    }
    // And what bash makes of it.
    let script = "source \"$1\"; COMP_WORDS=(xroute endpoint d); COMP_CWORD=2; _xroute xroute d endpoint; echo \"${COMPREPLY[@]}\"";
    let completed = tool(Command::new("bash").args(["-c", script, "bash"]).arg(folder.path().join("bash")));
    let Some(completed) = completed else { return };
    assert_eq!(text(&completed.stdout).trim(), "disable dial", "{}", text(&completed.stderr));
    assert_eq!(xroute(&["completions", "tcsh"]).status.code(), Some(2));
}

#[test]
fn manual_pages_render_without_a_warning() {
    let folder = tempfile::tempdir().expect("a folder");
    let pages = folder.path().join("new/man1");
    let output = xroute(&["man", pages.to_str().expect("text")]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let mut rendered = 0;
    for entry in std::fs::read_dir(&pages).expect("pages") {
        let path = entry.expect("a page").path();
        let mut man = Command::new("man");
        man.args(["--warnings", "-E", "UTF-8", "-l"])
            .arg(&path)
            .envs([("LC_ALL", "C.UTF-8"), ("MANWIDTH", "80")]);
        let Some(shown) = tool(&mut man) else { return };
        let warnings = text(&shown.stderr);
        assert!(shown.status.success() && warnings.is_empty(), "{}: {warnings}", path.display());
        let shown = text(&shown.stdout);
        for words in ["SYNOPSIS\n       xroute", "EXIT STATUS", "/run/xroute/control.sock", "SEE ALSO"] {
            assert!(shown.contains(words), "{}: no {words:?} in\n{shown}", path.display());
        }
        rendered += 1;
    }
    assert!(rendered > 15, "{rendered}");
    let page = |name: &str| std::fs::read_to_string(pages.join(name)).expect("a page");
    assert!(page("xroute.1").contains("xroute\\-endpoint"), "see also");
    assert!(page("xroute-endpoint-dial.1").contains("GLOB"));

    let taken = folder.path().join("file");
    std::fs::write(&taken, "").expect("writable");
    let output = xroute(&["man", taken.to_str().expect("text")]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("cannot make"), "{}", text(&output.stderr));
}
