//! The agent under a service manager, which this process plays: what it is told, what it keeps.

use std::collections::HashMap;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::time::Instant;

use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};

use super::load::Client;
use super::*;

/// Listens on `NOTIFY_SOCKET`, and keeps descriptors.
struct ServiceManager {
    socket: UnixDatagram,
    folder: PathBuf,
    kept: Vec<(String, OwnedFd)>,
}

impl ServiceManager {
    fn new(folder: &Path) -> Self {
        let socket = UnixDatagram::bind(folder.join("notify")).expect("a socket");
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
        Self { socket, folder: folder.to_owned(), kept: Vec::new() }
    }

    /// Starts the agent as systemd does, with what is kept.
    fn start(&self, pair: &Pair, watchdog: Option<Duration>, arguments: &[&str]) -> Agent {
        let mut command = pair.server.command("sh");
        // The shell becomes the agent, and knows its process beforehand.
        command.args(["-c", "LISTEN_PID=$$ WATCHDOG_PID=$$ exec \"$0\" \"$@\""]);
        command.arg(program(&self.folder)).arg("run").arg("--config").arg(self.folder.join("xroute.toml"));
        command.args(arguments).env("NOTIFY_SOCKET", self.folder.join("notify"));
        if let Some(watchdog) = watchdog {
            command.env("WATCHDOG_USEC", watchdog.as_micros().to_string());
        }
        if !self.kept.is_empty() {
            let names: Vec<&str> = self.kept.iter().map(|(name, _)| name.as_str()).collect();
            command.env("LISTEN_FDS", names.len().to_string()).env("LISTEN_FDNAMES", names.join(":"));
        }
        let kept: Vec<RawFd> = self.kept.iter().map(|(_, kept)| kept.as_raw_fd()).collect();
        let pass = move || {
            let check =
                |result: i32| if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result) };
            // First out of the way, since their numbers may be among the wanted ones.
            for (place, &kept) in (3..).zip(&kept) {
                // SAFETY: a system call on a descriptor that the parent holds open.
                check(unsafe { libc::dup3(kept, place + 500, libc::O_CLOEXEC) })?;
            }
            for place in (3..).take(kept.len()) {
                // SAFETY: as above.
                check(unsafe { libc::dup2(place + 500, place) })?;
            }
            Ok(())
        };
        // SAFETY: between fork and exec it makes system calls and allocates nothing.
        unsafe { command.pre_exec(pass) };
        Agent::spawn(command, &self.folder)
    }

    /// The next message, if there is one soon; those that give or take back a descriptor are carried out.
    fn next(&mut self) -> Option<String> {
        let mut octets = vec![0; 4096];
        let mut space = nix::cmsg_space!([RawFd; 4]);
        let mut parts = [IoSliceMut::new(&mut octets)];
        let received =
            recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)
                .ok()?;
        let len = received.bytes;
        let mut descriptors: Vec<OwnedFd> = Vec::new();
        for control in received.cmsgs().expect("whole messages") {
            let ControlMessageOwned::ScmRights(raw) = control else { continue };
            // SAFETY: the kernel has just opened them for us.
            descriptors.extend(raw.into_iter().map(|raw| unsafe { OwnedFd::from_raw_fd(raw) }));
        }
        let text = String::from_utf8(octets[..len].to_vec()).expect("text");
        let name = text.lines().find_map(|line| line.strip_prefix("FDNAME="));
        if text.starts_with("FDSTORE=1") {
            let name = name.expect("a name");
            for descriptor in descriptors {
                // One that it has already is not kept twice.
                if self.kept.iter().all(|(_, kept)| inode(kept) != inode(&descriptor)) {
                    self.kept.push((name.to_owned(), descriptor));
                }
            }
        } else if text.starts_with("FDSTOREREMOVE=1") {
            self.kept.retain(|(kept, _)| Some(kept.as_str()) != name);
        }
        Some(text)
    }

    /// Everything that is told until something fits.
    fn until(&mut self, what: &str, fits: impl Fn(&str) -> bool) -> Vec<String> {
        let start = Instant::now();
        let mut told = Vec::new();
        loop {
            assert!(start.elapsed() < Duration::from_secs(60), "not told: {what}, but {told:#?}");
            let Some(text) = self.next() else { continue };
            told.push(text.clone());
            if fits(&text) {
                return told;
            }
        }
    }

    /// Everything that is told in this time.
    fn during(&mut self, time: Duration) -> Vec<String> {
        let start = Instant::now();
        let mut told = Vec::new();
        while start.elapsed() < time {
            told.extend(self.next());
        }
        told
    }
}

fn inode(descriptor: &OwnedFd) -> u64 {
    use std::os::unix::fs::MetadataExt;
    File::from(descriptor.try_clone().expect("a descriptor")).metadata().expect("a socket").ino()
}

/// A monitored profile whose endpoints are addresses of the server's loopback.
fn monitored(addresses: &[&str]) -> String {
    let endpoints: Vec<String> = addresses
        .iter()
        .enumerate()
        .map(|(number, address)| {
            format!("  [[profile.endpoint]]\n  name = \"e{number}\"\n  address = [\"{address}\"]\n")
        })
        .collect();
    format!(
        "[[profile]]\nname = \"app\"\nnames = [\"app.gslb.test\"]\nmethod = \"weighted\"\nttl = 10\n\
         [profile.monitor]\nprotocol = \"tcp\"\nport = 8080\ninterval = \"30s\"\ntimeout = \"9s\"\n{}",
        endpoints.concat()
    )
}

#[test]
fn netns_the_service_manager_is_told_what_happens() {
    let Some((pair, folder)) = set_up("") else { return };
    let folder = folder.path();
    let _near = pair.server.run(|| std::net::TcpListener::bind("127.0.0.2:8080").expect("a free port"));
    configure(folder, WWW, "", "ready_within = \"30s\"", &monitored(&["127.0.0.2", "127.0.0.3"]));
    let mut manager = ServiceManager::new(folder);
    let mut agent = manager.start(&pair, Some(Duration::from_secs(2)), &[]);
    let told = manager.until("ready", |text| text == "READY=1");
    agent.wait_for("ready: 2 endpoints up, 0 down, 0 without a probe so far");
    // One UDP socket for each processor and one TCP socket for each address, control socket and API.
    assert!(
        told.iter().filter(|text| text.starts_with("FDSTORE=1\nFDNAME=xroute-udp-10.77.0.53_53")).count()
            >= 1
    );
    assert!(
        told.iter().any(|text| text.starts_with("FDSTORE=1\nFDNAME=xroute-tcp-127.0.0.1_8053")),
        "{told:?}"
    );
    manager.until("a status", |text| text == "STATUS=generation 1 serves; endpoints: 2 up, 0 down");
    let told = manager.during(Duration::from_secs(2));
    assert!(told.iter().filter(|text| *text == "WATCHDOG=1").count() >= 2, "{told:?}");

    // A reload.
    agent.hang_up();
    let told = manager.until("reloading", |text| text.starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert!(!told.contains(&String::from("READY=1")), "{told:?}");
    manager.until("ready again", |text| text == "READY=1");

    // Who hangs gives no sign of life.
    let stop = |signal: i32| {
        // SAFETY: signals a process that was not waited for.
        unsafe { libc::kill(agent.id() as i32, signal) }
    };
    stop(libc::SIGSTOP);
    manager.during(Duration::from_millis(300));
    let told = manager.during(Duration::from_millis(1500));
    stop(libc::SIGCONT);
    assert_eq!(told, Vec::<String>::new());
    manager.until("alive again", |text| text == "WATCHDOG=1");

    // An upgrade: the new process is the main one, and is alive.
    let report = agent.upgrade(&pair.server).expect("it is upgraded");
    let main = format!("MAINPID={}\nREADY=1", report["pid"]);
    manager.until("the new process", |text| text == main);
    manager.until("it is alive", |text| text == "WATCHDOG=1");
    agent.terminate();
    manager.until("the end", |text| text == "STOPPING=1");
}

#[test]
fn netns_ready_is_told_in_time_when_an_endpoint_does_not_answer() {
    let Some((pair, folder)) = set_up("") else { return };
    let folder = folder.path();
    // Nobody is there: connecting takes until the timeout of 9 s.
    pair.server.sh("ip route add blackhole 198.51.100.0/24 2>/dev/null || true; ip neigh add 10.77.0.9 lladdr 02:00:00:00:00:09 dev xr0");
    configure(folder, WWW, "", "ready_within = \"2s\"", &monitored(&["10.77.0.9"]));
    let mut manager = ServiceManager::new(folder);
    let began = Instant::now();
    let mut agent = manager.start(&pair, None, &[]);
    // It serves meanwhile.
    agent.wait_for("serving DNS");
    let load = Load::new(&pair, &[Client::Address, Client::Text], &[WWW]);
    let told = manager.until("ready", |text| text == "READY=1");
    assert!((2..8).contains(&began.elapsed().as_secs()), "{:?}", began.elapsed());
    assert!(!told.iter().any(|text| text == "WATCHDOG=1"), "nobody asked for it: {told:?}");
    agent.wait_for("ready: 0 endpoints up, 0 down, 1 without a probe so far");
    load.end();
    agent.terminate();
}

/// What the service manager keeps bridges restarts and a crash: no UDP query that waits in a socket is lost and no
/// new connection refused. A restart loses none at all; a crash, those that it had read.
#[test]
fn netns_sockets_that_are_kept_bridge_restarts_and_a_crash() {
    let Some((pair, folder)) = set_up("") else { return };
    let folder = folder.path();
    let mut manager = ServiceManager::new(folder);
    let mut agent = manager.start(&pair, None, &[]);
    manager.until("ready", |text| text == "READY=1");
    let kept = manager.kept.len();
    assert!(kept >= 6, "{:?}", manager.kept);
    let load = Load::new(&pair, &[Client::Address, Client::Text, Client::Again, Client::Again], &[WWW]);
    for round in 0..4 {
        load.more(200);
        assert_eq!(load.wrong(), Vec::<String>::new(), "before round {round}");
        if round == 3 {
            agent.kill();
        } else {
            agent.terminate();
        }
        agent = manager.start(&pair, None, &[]);
        manager.until("ready", |text| text == "READY=1");
        assert_eq!(manager.kept.len(), kept, "round {round}: {:?}", manager.kept);
    }
    load.more(200);
    load.end_after_a_kill();

    // An upgrade that no longer listens on IPv6: it is not kept any more.
    let text = fs::read_to_string(folder.join("xroute.toml")).expect("it is there");
    fs::write(folder.join("xroute.toml"), text.replace(", \"[fd77::53]:53\"", "")).expect("writable");
    agent.upgrade(&pair.server).expect("it is upgraded");
    manager
        .until("the socket is forgotten", |text| text == "FDSTOREREMOVE=1\nFDNAME=xroute-tcp-_fd77__53__53");
    manager.during(Duration::from_millis(300));
    let mut names: HashMap<String, usize> = HashMap::new();
    for (name, _) in &manager.kept {
        *names.entry(name.clone()).or_default() += 1;
    }
    assert!(names.contains_key("xroute-udp-10.77.0.53_53"), "{names:?}");
    assert!(!names.keys().any(|name| name.contains("fd77")), "{names:?}");
    agent.terminate();
}
