//! Clients that mean harm: they get nothing done, and take nothing from others.

use std::io::Read;
use std::net::Shutdown;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use super::*;

/// The agent's limits (`control/door.rs`, `control/serve.rs`).
const PER_PEER: usize = 64;
const CONNECTIONS: usize = 256;
const HEAD: Duration = Duration::from_secs(10);
/// In which others are served meanwhile, on a machine that does other things as well.
const BOUND: Duration = Duration::from_secs(5);

trait Stream: Read + Write + Send {
    /// Reads until the agent is through with this connection; how long that took, and what came.
    fn outlast(&mut self) -> (Duration, Vec<u8>) {
        let start = Instant::now();
        let mut octets = Vec::new();
        // A reset is an end as good as another.
        let _ = self.read_to_end(&mut octets);
        (start.elapsed(), octets)
    }

    /// Says that nothing more will be sent.
    fn half_close(&mut self);
}

impl Stream for UnixStream {
    fn half_close(&mut self) {
        self.shutdown(Shutdown::Write).expect("open");
    }
}

impl Stream for TcpStream {
    fn half_close(&mut self) {
        self.shutdown(Shutdown::Write).expect("open");
    }
}

/// The two listeners.
const BOTH: [&str; 2] = ["control", "http"];

impl Setting {
    fn connect(&self, listener: &str) -> io::Result<Box<dyn Stream>> {
        Ok(match listener {
            "control" => Box::new(self.control()?),
            _ => Box::new(self.http()?),
        })
    }

    /// Sends octets as far as they are taken, and reads to the end.
    fn send(&self, listener: &str, octets: &[u8]) -> (Duration, Vec<u8>) {
        let mut stream = self.connect(listener).expect("a connection");
        // The agent may have had enough before all is sent.
        let _ = stream.write_all(octets);
        stream.outlast()
    }

    /// What everybody else wants of the agent goes on, in bounded time.
    fn others_are_served(&self, while_what: &str) {
        let timed = |what: &str, doing: &mut dyn FnMut() -> bool| {
            let start = Instant::now();
            let done = doing();
            assert!(done && start.elapsed() < BOUND, "{while_what}: {what}: {done}, {:?}", start.elapsed());
        };
        timed("the fast path", &mut || self.www() == Some([192, 0, 2, 1]));
        timed("the userspace server", &mut || {
            self.dig("gslb.test", 6).is_some_and(|reply| reply[3] & 0xf == 0 && reply[7] == 1)
        });
        timed("xroute status", &mut || self.agent.status(&self.pair.server)["pid"] == self.agent.id());
        timed("the page", &mut || self.ask_http("GET", "/").status == 200);
    }

    /// Whether there is a place for this user, and a reply.
    fn is_let_in(&self, listener: &str) -> bool {
        let request = b"GET /v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        self.send(listener, request).1.starts_with(b"HTTP/1.1 200 ")
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.agent.id())).expect("it runs").count()
    }

    /// Memory of the agent in use, octets.
    fn memory(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.agent.id())).expect("it runs");
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("its memory");
        line.split_whitespace().nth(1).and_then(|number| number.parse::<usize>().ok()).expect("a number")
            * 1024
    }

    /// What the agent counted on a listener.
    fn refused(&self, listener: &str, reason: &str) -> u64 {
        let status = self.agent.status(&self.pair.server);
        let found =
            status["api"].as_array().and_then(|all| all.iter().find(|one| one["listener"] == listener));
        found.and_then(|found| found["refused"][reason].as_u64()).expect("a count")
    }
}

/// Lets this process have as many connections as a test of this kind needs.
fn provide_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a whole struct that outlives the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    limit.rlim_cur = limit.rlim_max.min(16_384);
    // SAFETY: the pointer is to a whole struct that outlives the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
}

const REQUEST: &[u8] = b"GET /v1/status HTTP/1.1\r\nhost: x\r\n\r\n";
const CHANGE: &str = "POST /v1/overrides/clear HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";

/// Everything that takes a client's time: one octet a second, nothing at all, a reply that is not taken.
#[test]
fn netns_slow_clients_are_let_go_and_harm_nobody() {
    let Some(setting) = Setting::new("") else { return };
    setting.others_are_served("at the start");
    let (descriptors, memory) = (setting.descriptors(), setting.memory());
    let stop = AtomicBool::new(false);
    let drops = |octets: &'static [u8], mut stream: Box<dyn Stream>, stop: &AtomicBool| {
        let start = Instant::now();
        for octet in octets.iter().cycle() {
            if stop.load(Ordering::Relaxed) || stream.write_all(&[*octet]).is_err() {
                break;
            }
            thread::sleep(Duration::from_secs(1));
        }
        start.elapsed()
    };
    thread::scope(|scope| {
        let mut ends = Vec::new();
        let stop = &stop;
        for listener in BOTH {
            for _ in 0..8 {
                let stream = setting.connect(listener).expect("a connection");
                ends.push((listener, "a slow head", scope.spawn(move || drops(REQUEST, stream, stop))));
                let mut stream = setting.connect(listener).expect("a connection");
                ends.push((listener, "nothing", scope.spawn(move || stream.outlast().0)));
                // Answered once, then idle.
                let mut stream = setting.connect(listener).expect("a connection");
                stream.write_all(REQUEST).expect("taken");
                ends.push((listener, "an idle one", scope.spawn(move || stream.outlast().0)));
                // Thousands of requests at once, and no reply is taken.
                let mut stream = setting.connect(listener).expect("a connection");
                ends.push((
                    listener,
                    "replies not taken",
                    scope.spawn(move || {
                        let start = Instant::now();
                        while stream.write_all(REQUEST).is_ok() && start.elapsed() < PATIENCE {}
                        start.elapsed()
                    }),
                ));
            }
        }
        for _ in 0..8 {
            let mut stream = setting.connect("control").expect("a connection");
            stream.write_all(CHANGE.as_bytes()).expect("taken");
            stream.write_all(b"content-length: 100000\r\n\r\n").expect("taken");
            ends.push(("control", "a slow body", scope.spawn(move || drops(b"  ", stream, stop))));
        }
        let start = Instant::now();
        while start.elapsed() < HEAD {
            setting.others_are_served("slow clients");
            thread::sleep(Duration::from_millis(500));
        }
        let most = setting.descriptors();
        assert!(most < descriptors + 2 * PER_PEER + 20, "{most} descriptors, {descriptors} at the start");
        thread::sleep(HEAD);
        stop.store(true, Ordering::Relaxed);
        for (listener, what, end) in ends {
            let lasted = end.join().expect("no panic");
            assert!(lasted < 2 * HEAD, "{what} at {listener} was borne for {lasted:?}");
        }
    });
    for listener in BOTH {
        assert!(
            setting.refused(listener, "idle") >= 16,
            "{listener}: {}",
            setting.agent.status(&setting.pair.server)
        );
        assert!(
            setting.refused(listener, "stalled") >= 8,
            "{listener}: {}",
            setting.agent.status(&setting.pair.server)
        );
    }
    assert_eq!(setting.refused("control", "slow_body"), 8);
    eventually("as few descriptors as before", || setting.descriptors() <= descriptors);
    let grown = setting.memory().saturating_sub(memory);
    assert!(grown < 64 << 20, "{grown} octets of memory more than before");
    setting.agent.terminate();
}

/// Octets that are no request, or one that is too much.
#[test]
fn netns_malformed_and_huge_requests_are_refused() {
    let Some(setting) = Setting::new("") else { return };
    setting.others_are_served("at the start");
    let (descriptors, memory) = (setting.descriptors(), setting.memory());
    let long = "a".repeat(1 << 20);
    let mut fields = String::from("GET /v1/status HTTP/1.1\r\n");
    for i in 0..100 {
        fields += &format!("x{i}: y\r\n");
    }
    let noise: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for listener in BOTH {
        for (what, octets, statuses) in [
            ("a long path", format!("GET /{long} HTTP/1.1\r\n\r\n").into_bytes(), &["431", "414"][..]),
            ("a long field", format!("GET / HTTP/1.1\r\nx: {long}\r\n\r\n").into_bytes(), &["431"]),
            ("many fields", (fields.clone() + "\r\n").into_bytes(), &["431"]),
            ("noise", noise.clone(), &["400"]),
            ("zeros", vec![0; 100_000], &["400"]),
            ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n".to_vec(), &["400"]),
            ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec(), &["400", ""]),
            (
                "two lengths",
                b"GET / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n".to_vec(),
                &["400"],
            ),
            ("a length below 0", b"POST / HTTP/1.1\r\ncontent-length: -1\r\n\r\n".to_vec(), &["400"]),
            ("half a line", b"GET /v1/sta".to_vec(), &[""]),
        ] {
            let mut stream = setting.connect(listener).expect("a connection");
            let _ = stream.write_all(&octets);
            if what == "half a line" {
                stream.half_close();
            }
            let (lasted, said) = stream.outlast();
            let said = String::from_utf8_lossy(&said).into_owned();
            let status = said.split(' ').nth(1).unwrap_or("");
            // What was not read may turn the end into a reset that overtakes the reply.
            assert!(status.is_empty() || statuses.contains(&status), "{what} at {listener}: {said}");
            assert!(lasted < HEAD / 2, "{what} at {listener}: {lasted:?}");
        }
        // Nothing to be read after it, or in the midst of it.
        let mut stream = setting.connect(listener).expect("a connection");
        stream.half_close();
        assert!(stream.outlast().0 < HEAD / 2);
        let mut taken = 0;
        for _ in 0..200 {
            // More of one user than the door lets in may still count as there, so one may be turned away.
            let mut stream = setting.connect(listener).expect("a connection");
            taken += usize::from(stream.write_all(REQUEST).is_ok());
        }
        assert!(taken >= PER_PEER, "{taken}");
        eventually("the same user is let in again", || setting.is_let_in(listener));
        setting.others_are_served("clients that are gone");
    }

    // Bodies: one that says how long it is, one that never ends, one for a path that wants none.
    let claimed = format!("{CHANGE}content-length: 1099511627776\r\n\r\n");
    let (lasted, said) = setting.send("control", &[claimed.as_bytes(), &[b' '; 6 << 20]].concat());
    assert!(lasted < HEAD / 2, "{lasted:?}");
    assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 413 "), "{}", String::from_utf8_lossy(&said));
    let mut stream = setting.connect("control").expect("a connection");
    stream.write_all(format!("{CHANGE}transfer-encoding: chunked\r\n\r\n").as_bytes()).expect("taken");
    let chunk = [b"10000\r\n".to_vec(), vec![b' '; 0x10000], b"\r\n".to_vec()].concat();
    let start = Instant::now();
    let mut sent = 0;
    while stream.write_all(&chunk).is_ok() {
        sent += chunk.len();
        assert!(sent < 64 << 20 && start.elapsed() < HEAD, "{sent} octets in {:?}", start.elapsed());
    }
    for listener in BOTH {
        let head = b"GET /v1/overrides HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n";
        let (lasted, said) = setting.send(listener, &[&head[..], &[b'x'; 1 << 20]].concat());
        assert!(lasted < HEAD / 2, "{lasted:?}");
        assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&said));
    }
    for listener in BOTH {
        assert!(setting.refused(listener, "malformed") >= 4, "{listener}");
        assert!(setting.refused(listener, "too_large") >= 1, "{listener}");
    }
    assert!(setting.refused("control", "too_large") >= 3);
    let metrics = setting.ask_http("GET", "/metrics").body;
    let counted = |line: &str| metrics.lines().any(|found| found.starts_with(line) && !found.ends_with(" 0"));
    assert!(counted("xroute_api_refused_total{listener=\"control\",reason=\"too_large\"}"), "{metrics}");

    // Who asks for a change and goes gets it all the same once it has begun, and nobody waits for them.
    for _ in 0..20 {
        let mut stream = setting.control().expect("a connection");
        stream
            .write_all(b"POST /v1/reload HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\r\n")
            .expect("taken");
        thread::sleep(Duration::from_millis(30));
    }
    setting.others_are_served("reloads whose clients are gone");
    let generation = || setting.agent.status(&setting.pair.server)["generation"].as_u64().unwrap_or(0);
    eventually("the reload", || {
        generation() > 1 && setting.agent.status(&setting.pair.server)["reloading"] == false
    });

    // Many requests in one go are answered one after the other.
    let mut stream = setting.connect("control").expect("a connection");
    stream.write_all(&REQUEST.repeat(99)).expect("taken");
    stream.write_all(b"GET /v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").expect("taken");
    let said = String::from_utf8_lossy(&stream.outlast().1).into_owned();
    assert_eq!(said.matches("HTTP/1.1 200 OK").count(), 100);

    eventually("as few descriptors as before", || setting.descriptors() <= descriptors);
    let grown = setting.memory().saturating_sub(memory);
    assert!(grown < 64 << 20, "{grown} octets of memory more than before");
    setting.agent.terminate();
}

/// Opens connections as fast as it can for some seconds, and says how many.
const FLOOD: &str = r#"
import socket, sys, time
end = time.monotonic() + float(sys.argv[2])
held, opened = [], 0
while time.monotonic() < end:
    one = socket.socket(socket.AF_UNIX)
    one.settimeout(1)
    try:
        one.connect(sys.argv[1])
        opened += 1
        held.append(one)
    except OSError:
        pass
    held = held[-500:]
print(opened)
"#;

#[test]
fn netns_thousands_of_connections_keep_nobody_out() {
    let Some(setting) = Setting::new("control_group = \"daemon\"") else { return };
    provide_descriptors();
    setting.others_are_served("at the start");
    let (descriptors, memory) = (setting.descriptors(), setting.memory());

    // Idle ones, thousands, by the same user who then wants something.
    for listener in BOTH {
        let held: Vec<Box<dyn Stream>> = (0..3000).filter_map(|_| setting.connect(listener).ok()).collect();
        assert!(held.len() >= 2000, "{} at {listener}", held.len());
        thread::sleep(Duration::from_millis(200));
        setting.others_are_served("thousands of idle connections");
        let now = setting.descriptors();
        assert!(now <= descriptors + 2 * PER_PEER, "{now} descriptors, {descriptors} at the start");
        assert!(
            setting.refused(listener, "full") + setting.refused(listener, "displaced") > 1000,
            "{listener}"
        );
        drop(held);
    }

    // Another user, as fast as they can; the agent goes on answering all others.
    let open = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755));
    open(setting.folder.path()).expect("ours");
    let socket = setting.socket();
    let seconds = "5";
    let mut flood = setting
        .pair
        .server
        .command("setpriv")
        .args(["--reuid", "nobody", "--regid", "daemon", "--clear-groups", "/usr/bin/python3", "-c", FLOOD])
        .arg(&socket)
        .arg(seconds)
        .stdout(Stdio::piped())
        .spawn()
        .expect("setpriv is there");
    let asked = AtomicU64::new(0);
    while flood.try_wait().expect("a child").is_none() {
        setting.others_are_served("a flood of connections by another user");
        asked.fetch_add(1, Ordering::Relaxed);
        let now = setting.descriptors();
        assert!(now <= descriptors + CONNECTIONS + 20, "{now} descriptors");
    }
    let output = flood.wait_with_output().expect("it ends");
    let opened: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a number");
    let asked = asked.into_inner();
    println!("{opened} connections in {seconds} s, others were served {asked} times meanwhile");
    assert!(opened > 1000 && asked > 3, "{opened} connections, {asked} rounds");

    eventually("as few descriptors as before", || setting.descriptors() <= descriptors);
    let grown = setting.memory().saturating_sub(memory);
    assert!(grown < 64 << 20, "{grown} octets of memory more than before");
    // Only the one that asks.
    let open = || setting.agent.status(&setting.pair.server)["api"][0]["connections"].as_u64();
    eventually("no other connection", || open() == Some(1));
    setting.agent.terminate();
}
