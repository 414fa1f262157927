//! The agent as an operator runs it: killed, started again, ended; endpoints that fail; the usual tools.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use router_tests::agent::{Agent, binary, eventually};
use router_tests::netns::{Namespace, Pair, need_netns};
use router_tests::packet::{Frame, Query};
use tempfile::TempDir;

/// A configuration with one profile over two endpoints that are TCP listeners of the server's namespace.
fn configure(folder: &Path, interfaces: &str) {
    let [ipv4, ipv6] = Pair::SERVER_ADDRESSES;
    let text = format!(
        r#"
[server]
interfaces = [{interfaces}]
listen = ["{ipv4}:53", "[{ipv6}]:53"]
control = "{folder}/control.sock"
state_dir = "{folder}/state"
vlans = [5]

[[zone]]
name = "gslb.test"
soa = {{ mname = "ns1.example.net.", rname = "hostmaster.example.net.", serial = 1, refresh = 3600, retry = 600, expire = 604800, minimum = 60 }}
ns = ["ns1.example.net."]
ttl = 3600

[[profile]]
name = "www"
names = ["www.gslb.test"]
method = "priority"
ttl = 30
  [profile.monitor]
  protocol = "tcp"
  port = 8080
  interval = "1s"
  timeout = "500ms"
  sample_size = 2
  successful_samples = 2
  [[profile.endpoint]]
  name = "near"
  address = ["127.0.0.2", "2001:db8::2"]
  [[profile.endpoint]]
  name = "far"
  address = ["127.0.0.3", "2001:db8::3"]

[[profile]]
name = "office"
names = ["office.gslb.test"]
method = "subnet"
ttl = 60
monitor = "off"
  [[profile.endpoint]]
  name = "here"
  address = ["192.0.2.1"]
  subnets = ["198.51.100.0/24"]
  [[profile.endpoint]]
  name = "rest"
  address = ["192.0.2.2"]
"#,
        folder = folder.display()
    );
    std::fs::write(folder.join("xroute.toml"), text).expect("the folder is writable");
}

/// Namespaces, and a folder with a configuration; `None` where there can be none.
fn set_up(interfaces: &str) -> Option<(Pair, TempDir)> {
    if !need_netns() {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    configure(folder.path(), interfaces);
    Some((Pair::new(), folder))
}

fn listen(namespace: &Namespace, address: &str) -> TcpListener {
    namespace.run(|| TcpListener::bind((address, 8080)).expect("a free port"))
}

/// First A record that the server answers with, from inside the client's namespace.
fn ask(socket: &UdpSocket, name: &str, id: u16) -> Option<[u8; 4]> {
    let query = Query::new(name, 1).with(|query| query.id = id).bytes();
    socket.send(&query).ok()?;
    let mut reply = [0; 512];
    loop {
        let len = socket.recv(&mut reply).ok()?;
        if reply[..2] == id.to_be_bytes() {
            let at = len.checked_sub(4)?;
            return (reply[3] & 0xf == 0 && reply[7] == 1).then(|| [0, 1, 2, 3].map(|i| reply[at + i]));
        }
    }
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect((Pair::SERVER_ADDRESSES[0], 53)).expect("a route");
    socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
    socket
}

/// Asks without a pause until told to stop.
struct Asking {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicU64>,
    lost: Arc<AtomicU64>,
}

impl Asking {
    fn new() -> Self {
        Self { stop: Arc::default(), asked: Arc::default(), lost: Arc::default() }
    }

    fn run(&self) {
        let socket = socket();
        while !self.stop.load(Ordering::Relaxed) {
            let id = self.asked.fetch_add(1, Ordering::Relaxed) as u16;
            if ask(&socket, "www.gslb.test", id).is_none() {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Waits until so many more were asked.
    fn more(&self, count: u64) {
        let before = self.asked.load(Ordering::Relaxed);
        eventually("more queries", || self.asked.load(Ordering::Relaxed) > before + count);
    }
}

/// The XDP program on the server's interface, as `ip` shows it.
fn attached(pair: &Pair) -> bool {
    pair.server.sh(&format!("ip -details link show {}", Pair::SERVER)).contains("xdp")
}

fn count(status: &serde_json::Value, counter: &str) -> u64 {
    status["counters"][counter].as_u64().unwrap_or_else(|| panic!("no counter {counter}"))
}

/// Names of the counters that moved.
fn moved(before: &serde_json::Value, after: &serde_json::Value) -> Vec<String> {
    let counters = after["counters"].as_object().expect("an object");
    counters
        .iter()
        .filter(|(name, count)| before["counters"][*name] != **count)
        .map(|(name, _)| name.clone())
        .collect()
}

#[test]
fn netns_a_killed_agent_leaves_the_fast_path_answering_and_the_next_adopts_it() {
    let Some((pair, folder)) = set_up("\"xr0\"") else { return };
    let _endpoints = [listen(&pair.server, "127.0.0.2"), listen(&pair.server, "127.0.0.3")];
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    assert!(agent.log().iter().any(|line| line.contains("fast path: started")), "{:?}", agent.log());

    let asking = Asking::new();
    thread::scope(|scope| {
        scope.spawn(|| pair.client.run(|| asking.run()));
        asking.more(200);
        let before = count(&agent.status(&pair.server), "answer_records");
        assert!(before > 0, "the fast path answered nothing");
        agent.kill();
        asking.more(500);
        assert!(attached(&pair));

        let mut agent = Agent::start(&pair.server, folder.path(), &[]);
        agent.wait_for("fast path: adopted");
        asking.more(200);
        let status = agent.status(&pair.server);
        assert!(count(&status, "answer_records") > before + 500, "counters go on: {status}");
        assert_eq!(status["interfaces"][0]["mode"], "native");
        assert_eq!(status["generation"], 2, "an adopted fast path gets the next generation");
        asking.stop.store(true, Ordering::Relaxed);
        agent.terminate();
    });
    assert_eq!(asking.lost.load(Ordering::Relaxed), 0, "queries were lost");
    assert!(!attached(&pair), "SIGTERM detaches");
}

#[test]
fn netns_kept_attached_on_request() {
    let Some((pair, folder)) = set_up("\"xr0\"") else { return };
    Agent::start(&pair.server, folder.path(), &["--keep-attached"]).terminate();
    assert!(attached(&pair));
    let answer = pair.client.run(|| ask(&socket(), "www.gslb.test", 7));
    assert_eq!(answer, Some([127, 0, 0, 2]));
    Agent::start(&pair.server, folder.path(), &[]).terminate();
    assert!(!attached(&pair));
}

#[test]
fn netns_answers_follow_a_failing_endpoint_and_its_return() {
    let Some((pair, folder)) = set_up("\"xr0\"") else { return };
    let near = listen(&pair.server, "127.0.0.2");
    let _far = listen(&pair.server, "127.0.0.3");
    let mut agent = Agent::start(&pair.server, folder.path(), &[]);
    let socket = pair.client.run(socket);
    assert_eq!(ask(&socket, "www.gslb.test", 1), Some([127, 0, 0, 2]));
    drop(near);
    agent.wait_for("verdict www/near degraded");
    agent.wait_for("applied");
    for id in 2..200 {
        assert_eq!(
            ask(&socket, "www.gslb.test", id),
            Some([127, 0, 0, 3]),
            "an answer of before the verdict"
        );
    }
    let status = agent.status(&pair.server);
    assert_eq!(status["profiles"][0]["status"], "Degraded");
    assert_eq!(status["profiles"][0]["endpoints"][0]["status"], "Degraded");
    let error = status["profiles"][0]["endpoints"][0]["last_error"].as_str();
    assert!(error.is_some_and(|error| error.starts_with("connection refused")), "{error:?}");
    let _near = listen(&pair.server, "127.0.0.2");
    let mut id = 200;
    eventually("the return of the first endpoint", || {
        id += 1;
        ask(&socket, "www.gslb.test", id) == Some([127, 0, 0, 2])
    });
    agent.terminate();
}

#[test]
fn netns_the_usual_tools_are_answered() {
    let Some((pair, folder)) = set_up("\"xr0\"") else { return };
    let _endpoints = [listen(&pair.server, "127.0.0.2"), listen(&pair.server, "127.0.0.3")];
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    let [ipv4, ipv6] = Pair::SERVER_ADDRESSES;
    // (arguments, what the output holds, whether the fast path answers)
    let cases: &[(&str, &[&str], bool)] = &[
        ("www.gslb.test A", &["status: NOERROR", "127.0.0.2"], true),
        ("www.gslb.test AAAA", &["status: NOERROR", "2001:db8::2"], true),
        ("wWw.GsLb.TeSt A", &["wWw.GsLb.TeSt.", "127.0.0.2"], true),
        ("office.gslb.test A +subnet=198.51.100.0/24", &["192.0.2.1", "198.51.100.0/24/24"], true),
        ("office.gslb.test A +subnet=203.0.113.0/24", &["192.0.2.2", "203.0.113.0/24/5"], true),
        ("office.gslb.test AAAA", &["status: NOERROR", "SOA"], true),
        ("www.gslb.test A +noedns", &["127.0.0.2"], true),
        ("www.gslb.test A +tcp", &["127.0.0.2"], false),
        ("gslb.test SOA", &["ns1.example.net. hostmaster.example.net. 1 3600 600 604800 60"], false),
        ("gslb.test NS", &["ns1.example.net."], false),
        ("www.gslb.test ANY", &["status: NOERROR"], false),
        ("www.gslb.test MX", &["status: NOERROR", "SOA"], false),
        ("nobody.gslb.test A", &["status: NXDOMAIN", "SOA"], false),
        ("elsewhere.test A", &["status: REFUSED"], false),
    ];
    for tool in ["dig +nocookie", "kdig"] {
        for server in [ipv4, ipv6] {
            for (arguments, holds, by_fast_path) in cases {
                let before = agent.status(&pair.server);
                let output = pair.client.sh(&format!("{tool} @{server} {arguments}"));
                let after = agent.status(&pair.server);
                for words in *holds {
                    // kdig asks in lower case whatever it is told.
                    let words = if tool == "kdig" {
                        words.replace("wWw.GsLb.TeSt", "www.gslb.test")
                    } else {
                        words.to_string()
                    };
                    assert!(
                        output.contains(&words),
                        "{tool} @{server} {arguments}: no {words:?} in\n{output}"
                    );
                }
                let moved = moved(&before, &after);
                assert_eq!(
                    moved.iter().any(|name| name.starts_with("answer_")),
                    *by_fast_path,
                    "{tool} @{server} {arguments}: {moved:?}\n{output}"
                );
            }
        }
    }

    // What the wire shows to somebody else: tcpdump names bad checksums.
    let shown = captured(&pair, folder.path(), "src port 53", &mut || {
        pair.client
            .sh(&format!("dig +nocookie @{ipv4} www.gslb.test; dig +nocookie @{ipv6} office.gslb.test AAAA"));
    });
    assert!(shown.contains("udp sum ok"), "{shown}");
    assert!(!shown.contains("bad"), "{shown}");
    agent.terminate();
}

/// What `tcpdump -e -vv` shows of packets on the client's interface while something is done again and again.
fn captured(pair: &Pair, folder: &Path, filter: &str, doing: &mut dyn FnMut()) -> String {
    let capture = folder.join("capture.pcap");
    let mut tcpdump = pair
        .client
        .command("tcpdump")
        .args(["-i", Pair::CLIENT, "-U", "-w", capture.to_str().expect("text")])
        .args(filter.split(' '))
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("tcpdump starts");
    eventually("a capture", || capture.exists());
    eventually("captured packets", || {
        doing();
        std::fs::metadata(&capture).is_ok_and(|file| file.len() > 400)
    });
    tcpdump.kill().expect("it runs");
    tcpdump.wait().expect("it ends");
    pair.client.sh(&format!("tcpdump -e -vv -n -r {} 2>&1", capture.display()))
}

/// A tagged query as a host with a VLAN interface sends it. The kernel here need not know VLANs: the frame
/// is sent as it is.
#[test]
fn netns_a_vlan_is_answered_with_its_tag() {
    let Some((pair, folder)) = set_up("\"xr0\"") else { return };
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    let mac = |namespace: &Namespace, interface: &str| -> [u8; 6] {
        let text = namespace.sh(&format!("ip -o link show {interface}"));
        let address = text.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next());
        let octets: Vec<u8> = address
            .expect("an address")
            .split(':')
            .map(|octet| u8::from_str_radix(octet, 16).expect("hex"))
            .collect();
        octets.try_into().expect("six octets")
    };
    let (server, client) = (mac(&pair.server, Pair::SERVER), mac(&pair.client, Pair::CLIENT));
    let address = |text: &str| text.parse().expect("an IPv4 address");
    let query = Query::new("office.gslb.test", 1).bytes();
    let mut frame =
        Frame::ipv4(address(Pair::CLIENT_ADDRESSES[0]), address(Pair::SERVER_ADDRESSES[0]), query);
    (frame.to, frame.from, frame.tags) = (server, client, vec![(0x8100, 5)]);
    let frame = frame.bytes();
    let shown = captured(&pair, folder.path(), "vlan 5 and src port 53", &mut || {
        pair.client.run(|| send_frame(Pair::CLIENT, &frame).expect("the frame is sent"));
    });
    assert!(
        shown.contains("vlan 5") && shown.contains("192.0.2.2") && shown.contains("udp sum ok"),
        "{shown}"
    );
    assert!(!shown.contains("bad"), "{shown}");
    agent.terminate();
}

/// Sends octets as a frame of the thread's network namespace.
fn send_frame(interface: &str, frame: &[u8]) -> std::io::Result<()> {
    let name = std::ffi::CString::new(interface)?;
    // SAFETY: a system call without pointers.
    let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) };
    if socket < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: just opened and known to nobody else.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: all zero is a valid address.
    let mut to: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    to.sll_family = libc::AF_PACKET as u16;
    // SAFETY: reads a terminated string.
    to.sll_ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) } as i32;
    // SAFETY: frame and address live beyond the call, with their sizes.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            frame.as_ptr().cast(),
            frame.len(),
            0,
            (&raw const to).cast(),
            size_of::<libc::sockaddr_ll>() as u32,
        )
    };
    if sent < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}

#[test]
fn netns_without_interfaces_userspace_answers_everything() {
    let Some((pair, folder)) = set_up("") else { return };
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    assert!(!attached(&pair));
    let answer = pair.client.run(|| ask(&socket(), "office.gslb.test", 3));
    assert_eq!(answer, Some([192, 0, 2, 2]));
    let status = agent.status(&pair.server);
    assert_eq!(count(&status, "server_records"), 1);
    agent.terminate();
}

#[test]
fn netns_explain_says_the_same_live_and_offline() {
    let Some((pair, folder)) = set_up("") else { return };
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    let question = ["explain", "office.gslb.test", "A", "--client", "198.51.100.9", "--format", "json"];
    let live = agent.command(&pair.server, &question).output().expect("xroute starts");
    let offline = std::process::Command::new(binary())
        .args(question)
        .arg("--config")
        .arg(folder.path().join("xroute.toml"))
        .output()
        .expect("xroute starts");
    assert!(live.status.success() && offline.status.success());
    let parse = |octets: &[u8]| serde_json::from_slice::<serde_json::Value>(octets).expect("JSON");
    assert_eq!(parse(&live.stdout), parse(&offline.stdout));
    assert_eq!(parse(&live.stdout)["answers"][0]["records"][0], "A 192.0.2.1");
    assert_eq!(parse(&live.stdout)["path"], "fast");
    let refused = agent
        .command(&pair.server, &["explain", "a..b", "--client", "198.51.100.9"])
        .output()
        .expect("xroute starts");
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("empty label"));
    agent.terminate();
}

/// A listener of the namespace keeps an address in use; the agent must say which.
#[test]
fn netns_an_address_in_use_is_named() {
    let Some((pair, folder)) = set_up("\"xr0\"") else { return };
    let taken: SocketAddr = format!("{}:53", Pair::SERVER_ADDRESSES[0]).parse().expect("an address");
    let _taken = pair.server.run(|| TcpListener::bind(taken).expect("a free port"));
    let output = pair
        .server
        .command(binary().to_str().expect("text"))
        .args(["run", "--config"])
        .arg(folder.path().join("xroute.toml"))
        .output()
        .expect("xroute starts");
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains(&taken.to_string()), "{told}");
    assert!(!attached(&pair), "a failed start leaves nothing behind");
}
