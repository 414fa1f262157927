//! Queries read along: `xroute trace` and dnstap, from a running agent, by the tools that others read dnstap with.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use router_tests::agent::{Agent, binary, eventually};
use router_tests::netns::{Namespace, Pair, need_netns};
use router_tests::packet::Query;
use serde_json::Value;
use tempfile::TempDir;

const A: u16 = 1;
const MX: u16 = 15;
const AAAA: u16 = 28;

/// Namespaces and a folder with a configuration: `www` has an IPv4 address only.
fn set_up(more: &str) -> Option<(Pair, TempDir)> {
    if !need_netns() {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    configure(folder.path(), more);
    Some((Pair::new(), folder))
}

fn configure(folder: &Path, more: &str) {
    let [ipv4, ipv6] = Pair::SERVER_ADDRESSES;
    let text = format!(
        r#"
[server]
interfaces = ["{interface}"]
listen = ["{ipv4}:53", "[{ipv6}]:53"]
control = "{folder}/control.sock"
control_group = "nogroup"
state_dir = "{folder}/state"

{more}

[[zone]]
name = "gslb.test"
soa = {{ mname = "ns1.example.net.", rname = "hostmaster.example.net.", serial = 1, refresh = 3600, retry = 600, expire = 604800, minimum = 60 }}
ns = ["ns1.example.net."]
ttl = 3600

[[profile]]
name = "www"
names = ["www.gslb.test", "www2.gslb.test"]
method = "priority"
ttl = 30
monitor = "off"
  [[profile.endpoint]]
  name = "only"
  address = ["192.0.2.1"]
"#,
        interface = Pair::SERVER,
        folder = folder.display()
    );
    fs::write(folder.join("xroute.toml"), text).expect("the folder is writable");
}

/// Asks over UDP from inside the client's namespace; the query and the reply.
fn ask(pair: &Pair, server: &str, query: &Query) -> (Vec<u8>, Vec<u8>) {
    let octets = query.bytes();
    let reply = pair.client.run(|| {
        let any = if server.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
        let socket = UdpSocket::bind(any).expect("a socket");
        socket.connect((server, 53)).expect("a route");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        socket.send(&octets).expect("it is sent");
        let mut reply = vec![0; 2048];
        let len = socket.recv(&mut reply).expect("a reply");
        reply.truncate(len);
        reply
    });
    (octets, reply)
}

fn ask_tcp(pair: &Pair, query: &Query) {
    let octets = query.bytes();
    pair.client.run(|| {
        let mut stream = TcpStream::connect((Pair::SERVER_ADDRESSES[0], 53)).expect("a connection");
        stream.write_all(&(octets.len() as u16).to_be_bytes()).expect("it is sent");
        stream.write_all(&octets).expect("it is sent");
        let mut head = [0; 2];
        stream.read_exact(&mut head).expect("a reply");
        let mut reply = vec![0; usize::from(u16::from_be_bytes(head))];
        stream.read_exact(&mut reply).expect("a whole reply");
    });
}

/// A running `xroute trace`.
struct Trace {
    child: Child,
    /// Readers before.
    out: BufReader<std::process::ChildStdout>,
}

impl Trace {
    /// Starts it, and waits until it reads.
    fn start(agent: &Agent, namespace: &Namespace, arguments: &[&str]) -> Self {
        let readers = || agent.status(namespace)["trace"]["readers"].as_u64().expect("a number");
        let before = readers();
        let mut child = agent
            .command(namespace, &[&["trace"], arguments].concat())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("xroute starts");
        eventually("a reader", || readers() == before + 1);
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("text");
        line.trim_end().to_owned()
    }

    /// The rest, and what it says at its end, which must be good.
    fn end(mut self) -> (Vec<String>, String) {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).expect("text");
        let output = self.child.wait_with_output().expect("it ends");
        let told = String::from_utf8(output.stderr).expect("text");
        assert!(output.status.success(), "{told}");
        (rest.lines().map(str::to_owned).collect(), told)
    }
}

#[test]
fn netns_trace_prints_what_both_paths_answer() {
    let Some((pair, folder)) = set_up("") else { return };
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    let [v4, v6] = Pair::SERVER_ADDRESSES;
    let trace = Trace::start(&agent, &pair.server, &["--count", "6"]);
    ask(&pair, v4, &Query::new("wWw.gslb.test", A));
    ask(&pair, v6, &Query::new("www.gslb.test", A).edns(1232).ecs("203.0.113.0/24"));
    ask(&pair, v4, &Query::new("www.gslb.test", AAAA));
    ask(&pair, v4, &Query::new("nowhere.gslb.test", A));
    ask(&pair, v6, &Query::new("www.gslb.test", MX));
    ask_tcp(&pair, &Query::new("www2.gslb.test", A));
    let (mut lines, told) = trace.end();
    assert_eq!(told.trim_end(), "6 queries; 0 withheld by the rate, 0 lost");
    // The time is another each time, and the fast path's come when the ring is looked at.
    for line in &mut lines {
        let (time, rest) = line.split_once(' ').expect("words");
        assert!(time.ends_with('Z') && time.len() == 27, "{line}");
        let words = rest.split(' ').map(|word| match word.rsplit_once(':') {
            Some((client, port)) if port.parse::<u16>().is_ok() => client,
            _ => word,
        });
        *line = words.collect::<Vec<_>>().join(" ");
    }
    lines.sort();
    assert_eq!(
        lines,
        [
            "fast 10.77.0.1 www.gslb.test. A answer_records NOERROR A 192.0.2.1 ttl 30",
            "fast 10.77.0.1 www.gslb.test. AAAA answer_nodata NOERROR",
            "fast [fd77::1] ecs 203.0.113.0/24 www.gslb.test. A answer_records NOERROR A 192.0.2.1 ttl 30",
            "userspace 10.77.0.1 nowhere.gslb.test. A server_nxdomain NXDOMAIN",
            "userspace 10.77.0.1 tcp www2.gslb.test. A server_records NOERROR A 192.0.2.1 ttl 30",
            "userspace [fd77::1] www.gslb.test. MX server_nodata NOERROR",
        ]
    );
    eventually("no reader", || agent.status(&pair.server)["trace"]["readers"] == 0);
    agent.terminate();
}

#[test]
fn netns_trace_filters_and_ends() {
    let Some((pair, folder)) = set_up("") else { return };
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    let [v4, v6] = Pair::SERVER_ADDRESSES;
    let json = |arguments: &[&str]| {
        Trace::start(&agent, &pair.server, &[arguments, &["--format", "json", "--for", "1500ms"]].concat())
    };
    let mut named = json(&["--name", "www2.*"]);
    let mut passed = json(&["--outcome", "pass_*", "--client", "fd77::/64"]);
    let typed = json(&["--type", "AAAA", "--path", "userspace"]);
    // All places are taken.
    let refused = agent.command(&pair.server, &["trace"]).output().expect("xroute starts");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("three traces run already"));
    ask(&pair, v4, &Query::new("www.gslb.test", A));
    ask(&pair, v4, &Query::new("www2.gslb.test", A));
    ask(&pair, v4, &Query::new("www.gslb.test", MX));
    let (query, _) = ask(&pair, v6, &Query::new("www.gslb.test", MX));
    ask(&pair, v4, &Query::new("nowhere.gslb.test", AAAA));
    ask(&pair, v4, &Query::new("nowhere.gslb.test", A));
    let parse = |line: &str| serde_json::from_str::<Value>(line).expect("JSON");
    let first = parse(&named.line());
    assert_eq!((&first["name"], &first["path"]), (&"www2.gslb.test.".into(), &"fast".into()));
    assert_eq!(first["interface"], Pair::SERVER);
    let first = parse(&passed.line());
    assert_eq!((&first["outcome"], &first["type"]), (&"pass_type".into(), &"MX".into()));
    assert_eq!((&first["rcode"], query.len()), (&Value::Null, 31));
    let (typed, _) = typed.end();
    assert_eq!(
        typed.iter().map(|line| parse(line)["name"].clone()).collect::<Vec<_>>(),
        ["nowhere.gslb.test."]
    );
    assert_eq!((named.end().0, passed.end().0), (vec![], vec![]));
    // Mistakes.
    for (arguments, words) in [
        (&["trace", "--name", "a..b"][..], "is not a name"),
        (&["trace", "--outcome", "x"], "there are answer_records"),
        (&["trace", "--client", "10.0.0.1/8"], "has host bits set"),
    ] {
        let output = agent.command(&pair.server, arguments).output().expect("xroute starts");
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(words), "{arguments:?}: {output:?}");
    }
    agent.terminate();
}

#[test]
fn netns_trace_keeps_to_its_rate_and_says_so() {
    let Some((pair, folder)) = set_up("") else { return };
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    let trace = Trace::start(&agent, &pair.server, &["--rate", "8", "--for", "3s"]);
    for _ in 0..40 {
        ask(&pair, Pair::SERVER_ADDRESSES[0], &Query::new("www.gslb.test", A));
    }
    let (lines, told) = trace.end();
    let withheld: usize =
        told.split("; ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok()).expect(&told);
    assert!(withheld > 0, "{told}");
    assert_eq!(lines.len() + withheld, 40, "{told}");
    let status = agent.status(&pair.server);
    assert_eq!(status["trace"]["withheld"], withheld);
    // An agent that ends says so to its readers.
    let trace = Trace::start(&agent, &pair.server, &[]);
    agent.kill();
    let output = trace.child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&output.stderr).contains("the agent has ended"));
    // The next one finds the fast path as it was left, and switches off what nobody reads.
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    assert!(agent.log().iter().any(|line| line.contains("adopted")), "{:?}", agent.log());
    let trace = Trace::start(&agent, &pair.server, &["--count", "1"]);
    ask(&pair, Pair::SERVER_ADDRESSES[0], &Query::new("www.gslb.test", A));
    assert_eq!(trace.end().0.len(), 1);
    agent.terminate();
}

#[test]
fn netns_trace_is_not_for_everybody() {
    let Some((pair, folder)) = set_up("") else { return };
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    // Others reach folder and program.
    let program = folder.path().join("xroute");
    fs::copy(binary(), &program).expect("it is copied");
    for path in [folder.path(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    let mut command = pair.server.command("setpriv");
    command.args(["--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]);
    command
        .arg(&program)
        .args(["trace", "--for", "100ms", "--socket"])
        .arg(folder.path().join("control.sock"));
    let output = command.output().expect("setpriv is there");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{told}");
    assert!(told.contains("what clients ask is for root"), "{told}");
    agent.terminate();
}

/// What dnstap-ldns reads of a file: each message as its lines of YAML.
fn read(path: &Path) -> Vec<String> {
    let output =
        Command::new("dnstap-ldns").arg("-y").arg("-r").arg(path).output().expect("dnstap-ldns is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    text.split("---\n").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Finds the one message that has all of these lines.
fn find<'m>(messages: &'m [String], lines: &[&str]) -> &'m str {
    let has = |message: &&String| {
        lines.iter().all(|line| {
            let plain = |found: &str| found.trim().trim_start_matches(';').trim().replace('\t', " ");
            message.lines().any(|found| plain(found) == *line)
        })
    };
    let mut found = messages.iter().filter(has);
    match (found.next(), found.next()) {
        (Some(message), None) => message,
        (first, _) => panic!(
            "{} messages with {lines:?} in\n{}",
            first.map_or("no", |_| "several"),
            messages.join("\n---\n")
        ),
    }
}

/// Asks what [`check`] looks for.
fn ask_all(pair: &Pair) {
    let [v4, v6] = Pair::SERVER_ADDRESSES;
    ask(pair, v4, &Query::new("www.gslb.test", A).with(|query| query.id = 101));
    ask(pair, v6, &Query::new("www2.gslb.test", A).with(|query| query.id = 102));
    ask(pair, v4, &Query::new("nowhere.gslb.test", A).with(|query| query.id = 103));
    ask_tcp(pair, &Query::new("www.gslb.test", MX).with(|query| query.id = 104));
}

/// Whether the messages are those of [`ask_all`].
fn check(messages: &[String], identity: &str) {
    assert_eq!(messages.len(), 8, "{}", messages.join("\n---\n"));
    let speaker = format!("identity: \"{identity}\"");
    for (id, client, server, family, protocol, name, qtype, rcode) in [
        (101, "10.77.0.1", "10.77.0.53", "INET", "UDP", "www.gslb.test.", "A", "NOERROR"),
        (102, "fd77::1", "fd77::53", "INET6", "UDP", "www2.gslb.test.", "A", "NOERROR"),
        (103, "10.77.0.1", "10.77.0.53", "INET", "UDP", "nowhere.gslb.test.", "A", "NXDOMAIN"),
        (104, "10.77.0.1", "10.77.0.53", "INET", "TCP", "www.gslb.test.", "MX", "NOERROR"),
    ] {
        let family = format!("socket_family: {family}");
        let protocol = format!("socket_protocol: {protocol}");
        let (client, server) =
            (format!("query_address: \"{client}\""), format!("response_address: \"{server}\""));
        let question = format!("{name} IN {qtype}");
        let header = |rcode: &str| format!("->>HEADER<<- opcode: QUERY, rcode: {rcode}, id: {id}");
        let both = [&*speaker, "response_port: 53", &family, &protocol, &client, &server, &question];
        let (asked, answered) = (header("NOERROR"), header(rcode));
        let query = find(messages, &[&both[..], &["type: AUTH_QUERY", &asked]].concat());
        let reply = find(messages, &[&both[..], &["type: AUTH_RESPONSE", &answered]].concat());
        let port =
            |message: &str| message.lines().find(|line| line.contains("query_port")).map(str::to_owned);
        assert_eq!(port(query), port(reply));
        assert!(query.contains("query_time: ") && reply.contains("response_time: "));
        if name.starts_with("www") && qtype == "A" {
            assert!(reply.contains("192.0.2.1"), "{reply}");
        }
    }
}

#[test]
fn netns_dnstap_in_a_file_is_read_by_dnstap_ldns() {
    let Some((pair, folder)) = set_up("[dnstap]\nfile = \"taps\"\nidentity = \"lab\"\n") else { return };
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    let frames = |agent: &Agent| agent.status(&pair.server)["trace"]["dnstap"]["frames"].as_u64();
    eventually("an open file", || agent.status(&pair.server)["trace"]["dnstap"]["open"] == true);
    ask_all(&pair);
    eventually("eight frames", || frames(&agent) == Some(8));
    // As logrotate does it.
    let file = folder.path().join("taps");
    let moved = folder.path().join("taps.1");
    fs::rename(&file, &moved).expect("it is moved");
    agent.hang_up();
    eventually("another file", || file.exists());
    check(&read(&moved), "lab");
    ask_all(&pair);
    eventually("eight more", || frames(&agent) == Some(16));
    agent.terminate();
    check(&read(&file), "lab");

    // `xroute trace --dnstap` from an agent whose configuration has none any more.
    configure(folder.path(), "");
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    let path = folder.path().join("mine");
    let trace = Trace::start(
        &agent,
        &pair.server,
        &["--count", "4", "--dnstap", path.to_str().expect("a path of text")],
    );
    ask_all(&pair);
    trace.end();
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    check(&read(&path), host.trim());
    agent.terminate();
}

#[test]
fn netns_dnstap_on_a_socket_is_captured_by_fstrm_capture() {
    let Some((pair, folder)) = set_up("[dnstap]\nsocket = \"tap.sock\"\nidentity = \"lab\"\n") else {
        return;
    };
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    let state = |what: &str| agent.status(&pair.server)["trace"]["dnstap"][what].clone();
    eventually("an error", || state("error").as_str().is_some_and(|why| why.contains("cannot connect")));
    let (socket, file) = (folder.path().join("tap.sock"), folder.path().join("captured"));
    let mut capture = Command::new("fstrm_capture")
        .args(["-t", "protobuf:dnstap.Dnstap", "-u"])
        .arg(&socket)
        .arg("-w")
        .arg(&file)
        .stderr(Stdio::null())
        .spawn()
        .expect("fstrm_capture is there");
    eventually("a connection", || state("open") == true);
    ask_all(&pair);
    eventually("eight frames", || state("frames") == 8);
    // The agent says STOP and hears FINISH; then the capture has everything.
    agent.terminate();
    // SAFETY: signals a child that was not waited for.
    unsafe { libc::kill(capture.id() as i32, libc::SIGTERM) };
    capture.wait().expect("it ends");
    check(&read(&file), "lab");
}
