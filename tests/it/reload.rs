//! What runs is changed while it runs: reloads of the configuration, data files that change.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use router_tests::agent::{Agent, binary, eventually};
use router_tests::netns::{Namespace, Pair, need_netns};
use router_tests::packet::Query;
use serde_json::Value;

mod drain;
mod overrides;
mod plans;

const PATIENCE: Duration = Duration::from_secs(2);

/// `[server]` and the zone, then whatever a test adds.
fn configuration(folder: &Path, server: &str, profiles: &str) -> String {
    let [ipv4, ipv6] = Pair::SERVER_ADDRESSES;
    format!(
        r#"[server]
interfaces = ["xr0"]
listen = ["{ipv4}:53", "[{ipv6}]:53"]
control = "control.sock"
state_dir = "{folder}/state"
{server}
[[zone]]
name = "gslb.test"
soa = {{ mname = "ns1.example.net.", rname = "hostmaster.example.net.", serial = 1, refresh = 3600, retry = 600, expire = 604800, minimum = 60 }}
ns = ["ns1.example.net."]
ttl = 3600
{profiles}"#,
        folder = folder.display()
    )
}

/// An unmonitored priority profile.
fn fixed(name: &str, ttl: u32, address: &str) -> String {
    format!(
        r#"
[[profile]]
name = "{name}"
names = ["{name}.gslb.test"]
method = "priority"
ttl = {ttl}
monitor = "off"
  [[profile.endpoint]]
  name = "only"
  address = ["{address}"]
"#
    )
}

fn write(folder: &Path, text: &str) {
    // As an editor does: the file is whole or it is the old one.
    let aside = folder.join("xroute.toml.new");
    std::fs::write(&aside, text).expect("the folder is writable");
    std::fs::rename(aside, folder.join("xroute.toml")).expect("renamed");
}

fn xroute(agent: &Agent, namespace: &Namespace, arguments: &[&str]) -> Output {
    agent.command(namespace, arguments).output().expect("xroute starts")
}

fn reload(agent: &Agent, namespace: &Namespace) -> Value {
    let output = xroute(agent, namespace, &["reload", "--format", "json"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// What a refused reload says.
fn refused(agent: &Agent, namespace: &Namespace) -> String {
    let output = xroute(agent, namespace, &["reload"]);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).expect("text")
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect((Pair::SERVER_ADDRESSES[0], 53)).expect("a route");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket
}

/// Address and TTL of a reply's only answer; `None` when it has none.
fn answer(reply: &[u8]) -> Option<([u8; 4], u32)> {
    let (rcode, answers) = (reply.get(3)? & 0xf, reply.get(7)?);
    let (head, address) = reply.split_last_chunk::<4>()?;
    let (head, _) = head.split_last_chunk::<2>()?;
    let (_, ttl) = head.split_last_chunk::<4>()?;
    (rcode == 0 && *answers == 1).then_some((*address, u32::from_be_bytes(*ttl)))
}

/// Asks for A. `Err` when no reply came.
fn ask(socket: &UdpSocket, name: &str, id: u16) -> Result<Option<([u8; 4], u32)>, ()> {
    let query = Query::new(name, 1).with(|query| query.id = id).bytes();
    socket.send(&query).map_err(drop)?;
    let mut reply = [0; 512];
    loop {
        let len = socket.recv(&mut reply).map_err(drop)?;
        if reply[..2] == id.to_be_bytes() {
            return Ok(answer(&reply[..len]));
        }
    }
}

fn ask_by_tcp(stream: &mut TcpStream, name: &str, id: u16) -> std::io::Result<Option<([u8; 4], u32)>> {
    let query = Query::new(name, 1).with(|query| query.id = id).bytes();
    let len = u16::try_from(query.len()).expect("short");
    stream.write_all(&[&len.to_be_bytes()[..], &query].concat())?;
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut reply = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut reply)?;
    Ok(answer(&reply))
}

/// Asks once, from the client.
fn dig(pair: &Pair, name: &str) -> Option<([u8; 4], u32)> {
    pair.client.run(|| ask(&socket(), name, 77)).expect("a reply")
}

#[test]
fn netns_a_reload_changes_names_endpoints_and_weights() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().expect("a folder");
    let server = "http = \"127.0.0.1:8053\"";
    let first = configuration(
        folder.path(),
        server,
        &(fixed("one", 10, "192.0.2.1") + &fixed("two", 20, "192.0.2.2")),
    );
    write(folder.path(), &first);
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    assert_eq!(dig(&pair, "one.gslb.test"), Some(([192, 0, 2, 1], 10)));
    assert_eq!(dig(&pair, "three.gslb.test"), None);

    // One name goes, one comes, one answers otherwise; VLANs and the EDNS size may change as well.
    let weighted = r#"
[[profile]]
name = "heavy"
names = ["heavy.gslb.test"]
method = "weighted"
ttl = 40
monitor = "off"
  [[profile.endpoint]]
  name = "light"
  address = ["192.0.2.4"]
  weight = 1
  [[profile.endpoint]]
  name = "stone"
  address = ["192.0.2.5"]
  weight = 999
"#;
    let second = configuration(
        folder.path(),
        &format!("{server}\nvlans = [9]\nedns_size = 900\nstale = \"pass\""),
        &(fixed("one", 11, "192.0.2.9") + &fixed("three", 30, "192.0.2.3") + weighted),
    );
    write(folder.path(), &second);
    let report = reload(&agent, &pair.server);
    assert_eq!(report["profiles"], 3);
    assert_eq!(report["names"], 3);
    assert_eq!(report["endpoints"], 4);
    assert_eq!(report["generation"], 2);
    assert_eq!(dig(&pair, "one.gslb.test"), Some(([192, 0, 2, 9], 11)));
    assert_eq!(dig(&pair, "two.gslb.test"), None);
    assert_eq!(dig(&pair, "three.gslb.test"), Some(([192, 0, 2, 3], 30)));
    let shares = |agent: &Agent| {
        let question = ["explain", "heavy.gslb.test", "--client", "203.0.113.1", "--format", "json"];
        let output = xroute(agent, &pair.server, &question);
        let explained: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(explained["path"], "fast");
        let shares = explained["answers"].as_array().expect("a list");
        shares.iter().map(|answer| answer["share"].as_str().expect("text").to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(shares(&agent), ["1/1000", "999/1000"]);
    write(folder.path(), &second.replace("weight = 999", "weight = 1"));
    reload(&agent, &pair.server);
    assert_eq!(shares(&agent), ["1/2", "1/2"]);

    // What is broken changes nothing, and says where.
    let before = agent.status(&pair.server);
    let line = second.lines().position(|line| line == "ttl = 30").expect("there") + 1;
    write(folder.path(), &second.replace("ttl = 30", "ttl = \"long\""));
    let why = refused(&agent, &pair.server);
    assert!(why.contains(&format!("xroute.toml:{line}:")), "{why}");
    // What cannot change while it runs is named.
    let moved = second.replace("127.0.0.1:8053", "127.0.0.1:8054").replace("[\"xr0\"]", "[\"xr0\", \"xr9\"]");
    write(folder.path(), &moved);
    let why = refused(&agent, &pair.server);
    for words in ["server.http cannot change", "server.interfaces cannot change", "restart it"] {
        assert!(why.contains(words), "no {words:?} in {why}");
    }
    let after = agent.status(&pair.server);
    assert_eq!(after["generation"], before["generation"]);
    assert_eq!(after["profiles"], before["profiles"]);
    assert_eq!(after["reloads"]["configuration_failed"], 2);
    assert_eq!(after["reloads"]["configuration_ok"], 2);
    assert!(after["last_reload_error"].as_str().expect("text").contains("server.http"));
    assert_eq!(dig(&pair, "three.gslb.test"), Some(([192, 0, 2, 3], 30)));

    // SIGHUP does the same.
    write(folder.path(), &first);
    agent.hang_up();
    eventually("the reload by SIGHUP", || dig(&pair, "two.gslb.test") == Some(([192, 0, 2, 2], 20)));
    let status = agent.status(&pair.server);
    assert_eq!(status["last_reload_error"], Value::Null);
    let metrics = pair
        .server
        .sh(&format!("curl -s --unix-socket {}/control.sock http://xroute/metrics", folder.path().display()));
    assert!(metrics.contains("xroute_reloads_total{what=\"configuration\",result=\"ok\"} 3"), "{metrics}");
    assert!(metrics.contains("xroute_generation_age_seconds "), "{metrics}");

    // The address of metrics and status page is for looking only.
    let code = "curl -s -o /dev/null -w '%{http_code}'";
    assert_eq!(pair.server.sh(&format!("{code} http://127.0.0.1:8053/v1/status")), "200");
    assert_eq!(pair.server.sh(&format!("{code} -X POST http://127.0.0.1:8053/v1/reload")), "404");
    assert_eq!(agent.status(&pair.server)["reloads"]["configuration_ok"], 3);
    agent.terminate();
}

#[test]
fn netns_health_goes_over_a_reload_that_moves_endpoints() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().expect("a folder");
    let profile = |endpoints: [(&str, &str); 3]| {
        let mut text = String::from(
            r#"
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
"#,
        );
        for (name, address) in endpoints {
            write!(text, "  [[profile.endpoint]]\n  name = \"{name}\"\n  address = [\"{address}\"]\n")
                .expect("memory");
        }
        configuration(folder.path(), "", &text)
    };
    let (a, b, c) = (("a", "127.0.0.2"), ("b", "127.0.0.3"), ("c", "127.0.0.4"));
    write(folder.path(), &profile([a, b, c]));
    // Nobody listens at `a`.
    let listen = |address: &str| pair.server.run(|| TcpListener::bind((address, 8080)).expect("a free port"));
    let (_b, _c) = (listen("127.0.0.3"), listen("127.0.0.4"));
    let mut agent = Agent::start(&pair.server, folder.path(), &[]);
    agent.wait_for("verdict www/a degraded");
    let endpoint = |status: &Value, name: &str| {
        let endpoints = status["profiles"][0]["endpoints"].as_array().expect("a list").clone();
        endpoints.into_iter().find(|endpoint| endpoint["name"] == name).expect("there")
    };
    eventually("samples of all three", || {
        let status = agent.status(&pair.server);
        ["a", "b", "c"].iter().all(|name| endpoint(&status, name)["window"].as_str().expect("text").len() > 2)
    });
    assert_eq!(dig(&pair, "www.gslb.test"), Some(([127, 0, 0, 3], 30)));
    let before = agent.status(&pair.server);

    write(folder.path(), &profile([c, a, b]));
    let socket = pair.client.run(socket);
    reload(&agent, &pair.server);
    let status = agent.status(&pair.server);
    for id in 0..50 {
        assert_eq!(ask(&socket, "www.gslb.test", id), Ok(Some(([127, 0, 0, 4], 30))));
    }
    for (name, expected) in [("a", "Degraded"), ("b", "Online"), ("c", "Online")] {
        let (old, new) = (endpoint(&before, name), endpoint(&status, name));
        assert_eq!(new["status"], expected, "{name}");
        let window = |endpoint: &Value| endpoint["window"].as_str().expect("text").to_owned();
        assert!(window(&new).starts_with(&window(&old)), "{name}: {old} has become {new}");
    }
    // And it goes on: what fails after the reload is the endpoint of that name.
    write(folder.path(), &profile([a, b, c]));
    reload(&agent, &pair.server);
    assert_eq!(dig(&pair, "www.gslb.test"), Some(([127, 0, 0, 3], 30)), "a is down, whatever its place");
    let _a = listen("127.0.0.2");
    eventually("the return of a", || dig(&pair, "www.gslb.test") == Some(([127, 0, 0, 2], 30)));
    agent.terminate();
}

/// A zone file that is a pipe makes a reload last as long as the test wants.
#[test]
fn netns_verdicts_count_while_a_generation_is_made() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().expect("a folder");
    let zone = folder.path().join("static.zone");
    let records = "$TTL 60\n@ IN SOA ns1.example.net. h.example.net. 1 2 3 4 5\n@ IN NS ns1.example.net.\n";
    std::fs::write(&zone, records).expect("writable");
    let text = |ttl: u32| {
        let profile = format!(
            r#"
[[zone]]
name = "static.test"
file = "static.zone"
[[profile]]
name = "www"
names = ["www.gslb.test"]
method = "priority"
ttl = {ttl}
  [profile.monitor]
  protocol = "tcp"
  port = 8080
  interval = "1s"
  timeout = "500ms"
  sample_size = 2
  successful_samples = 2
  [[profile.endpoint]]
  name = "a"
  address = ["127.0.0.2"]
  [[profile.endpoint]]
  name = "b"
  address = ["127.0.0.3"]
"#
        );
        configuration(folder.path(), "", &profile)
    };
    write(folder.path(), &text(10));
    let listen = |address: &str| pair.server.run(|| TcpListener::bind((address, 8080)).expect("a free port"));
    let (a, _b) = (listen("127.0.0.2"), listen("127.0.0.3"));
    let mut agent = Agent::start(&pair.server, folder.path(), &[]);
    agent.wait_for("verdict www/a online");
    assert_eq!(dig(&pair, "www.gslb.test"), Some(([127, 0, 0, 2], 10)));

    let pipe = || {
        std::fs::remove_file(&zone).expect("there");
        pair.server.sh(&format!("mkfifo {}", zone.display()));
    };
    pipe();
    write(folder.path(), &text(20));
    let mut command = agent.command(&pair.server, &["reload"]);
    let mut reloading = command.stdout(Stdio::null()).spawn().expect("xroute starts");
    eventually("the reload", || agent.status(&pair.server)["reloading"] == true);
    drop(a);
    agent.wait_for("verdict www/a degraded");
    eventually("the verdict in the old generation", || {
        dig(&pair, "www.gslb.test") == Some(([127, 0, 0, 3], 10))
    });
    assert!(reloading.try_wait().expect("a child").is_none(), "the reload waits for its file");
    std::fs::write(&zone, records).expect("the agent reads");
    assert!(reloading.wait().expect("it ends").success());
    assert_eq!(dig(&pair, "www.gslb.test"), Some(([127, 0, 0, 3], 20)), "and in the new one");

    // The end does not wait for a generation that is being made, and tells who waits for it.
    pipe();
    let mut command = agent.command(&pair.server, &["reload"]);
    let reloading = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("xroute starts");
    eventually("the reload", || agent.status(&pair.server)["reloading"] == true);
    agent.terminate();
    let output = reloading.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(5), "{}", String::from_utf8_lossy(&output.stderr));
}

const NEAREST: &str = r#"
[latency]
table = "latency.csv"
[[profile]]
name = "near"
names = ["near.gslb.test"]
method = "performance"
ttl = 30
monitor = "off"
  [[profile.endpoint]]
  name = "eu"
  address = ["192.0.2.1"]
  region = "eu"
  [[profile.endpoint]]
  name = "us"
  address = ["192.0.2.2"]
  region = "us"
"#;

#[test]
fn netns_a_data_file_that_changes_changes_answers() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().expect("a folder");
    let table = folder.path().join("latency.csv");
    let replace = |text: &str| {
        let aside = folder.path().join("latency.new");
        std::fs::write(&aside, text).expect("writable");
        std::fs::rename(&aside, &table).expect("renamed");
    };
    replace("10.0.0.0/8,eu,5\n10.0.0.0/8,us,50\n");
    write(folder.path(), &configuration(folder.path(), "", NEAREST));
    let mut agent = Agent::start(&pair.server, folder.path(), &[]);
    assert_eq!(dig(&pair, "near.gslb.test"), Some(([192, 0, 2, 1], 30)));
    let data = |agent: &Agent| agent.status(&pair.server)["data"][0].clone();
    let found = data(&agent);
    assert_eq!(found["kind"], "latency_table");
    assert_eq!(found["path"], table.display().to_string());
    assert_eq!(found["rows"], 2);
    assert_eq!(found["error"], Value::Null);

    // Renamed over, as it should be.
    replace("10.0.0.0/8,eu,50\n10.0.0.0/8,us,5\n10.9.0.0/16,us,6\n");
    eventually("the new table", || dig(&pair, "near.gslb.test") == Some(([192, 0, 2, 2], 30)));
    eventually("the note of it", || data(&agent)["rows"] == 3);
    assert_eq!(agent.status(&pair.server)["generation"], 2);

    // A broken one is told of, and what was loaded stays.
    replace("10.0.0.0/8,eu,5\n10.0.0.0/8,us,soon\n");
    agent.wait_for("latency.csv:2:15: \"soon\" is not milliseconds");
    let found = data(&agent);
    assert!(found["error"].as_str().expect("text").contains("latency.csv:2:15:"), "{found}");
    assert_eq!(found["rows"], 3);
    assert_eq!(dig(&pair, "near.gslb.test"), Some(([192, 0, 2, 2], 30)));
    // A configuration that names it is refused as a whole.
    assert!(refused(&agent, &pair.server).contains("latency.csv:2:15:"));
    thread::sleep(Duration::from_secs(3));
    let told = agent.log().iter().filter(|line| line.contains("what was loaded before stays")).count();
    assert_eq!(told, 1, "told once, not at every look");

    // Written in place, in pieces.
    let mut file = std::fs::File::create(&table).expect("writable");
    for line in ["10.0.0.0/8,eu,5\n", "10.0.0.0/8,", "us,50\n"] {
        file.write_all(line.as_bytes()).expect("written");
        file.sync_all().expect("written");
        thread::sleep(Duration::from_millis(300));
    }
    eventually("the repaired table", || dig(&pair, "near.gslb.test") == Some(([192, 0, 2, 1], 30)));
    eventually("the note of it", || data(&agent)["error"] == Value::Null);
    let status = agent.status(&pair.server);
    assert_eq!(status["reloads"]["data_ok"], 2);
    assert_eq!(status["reloads"]["data_failed"], 1);

    // A reload reads it too, and goes on watching; the configuration itself is not watched.
    replace("10.0.0.0/8,us,1\n");
    reload(&agent, &pair.server);
    assert_eq!(dig(&pair, "near.gslb.test"), Some(([192, 0, 2, 2], 30)));
    replace("10.0.0.0/8,eu,1\n");
    eventually("the table after a reload", || dig(&pair, "near.gslb.test") == Some(([192, 0, 2, 1], 30)));
    agent.terminate();
}

/// The generations that a query may be answered from: what was in service when it was sent, what is when
/// the reply is there, and all between. Even: generation `epoch / 2` serves; odd: the next one is on its way.
struct Epoch(AtomicU64);

impl Epoch {
    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn allows(before: u64, after: u64, marker: u64) -> bool {
        (before / 2..=after.div_ceil(2)).any(|generation| generation % 2 == marker)
    }
}

/// Generation A is 0, B is 1; anything else is a mixture.
fn marker(answer: Option<([u8; 4], u32)>) -> Option<u64> {
    match answer {
        Some(([192, 0, 2, 1], 11)) => Some(0),
        Some(([192, 0, 2, 2], 22)) => Some(1),
        _ => None,
    }
}

#[test]
fn netns_no_query_is_lost_and_no_answer_mixes_generations() {
    if !need_netns() {
        return;
    }
    const NAMES: usize = 40;
    const RELOADS: u64 = 14;
    let pair = Pair::new();
    let folder = tempfile::tempdir().expect("a folder");
    // Both generations have names and profiles in another order; B has many more, so that it does not fit
    // into the maps made for A and the program is replaced.
    let generation = |b: bool| {
        let (ttl, address) = if b { (22, "192.0.2.2") } else { (11, "192.0.2.1") };
        let mut profiles = String::new();
        let mut numbers: Vec<usize> = (0..NAMES).collect();
        if b {
            numbers.reverse();
            for number in 0..60 {
                let names: Vec<String> =
                    (0..50).map(|i| format!("\"more-{number}-{i}.gslb.test\"")).collect();
                profiles += &fixed(&format!("more-{number}"), ttl, address)
                    .replace(&format!("[\"more-{number}.gslb.test\"]"), &format!("[{}]", names.join(", ")));
            }
        }
        for number in numbers {
            profiles += &fixed(&format!("n{number}"), ttl, address);
        }
        configuration(folder.path(), "", &profiles)
    };
    let texts = [generation(false), generation(true)];
    write(folder.path(), &texts[0]);
    let agent = Agent::start(&pair.server, folder.path(), &[]);

    let epoch = Epoch(AtomicU64::new(0));
    let (stop, asked) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 4]);
    let wrong = Mutex::new(Vec::new());
    let check = |path: &str, name: &str, before: u64, answer: Option<([u8; 4], u32)>| {
        let after = epoch.now();
        if !marker(answer).is_some_and(|marker| Epoch::allows(before, after, marker)) {
            wrong.lock().expect("no panic").push(format!("{path} {name} in {before}..{after}: {answer:?}"));
        }
    };
    let by_udp = |thread: usize| {
        let socket = socket();
        for id in 0.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let name = format!("n{}.gslb.test", usize::from(id as u16) % NAMES);
            let before = epoch.now();
            match ask(&socket, &name, id as u16) {
                Ok(answer) => check("UDP", &name, before, answer),
                Err(()) => wrong.lock().expect("no panic").push(format!("{name}: lost")),
            }
            asked[thread].fetch_add(1, Ordering::Relaxed);
        }
    };
    let by_tcp = || {
        let mut stream = TcpStream::connect((Pair::SERVER_ADDRESSES[0], 53)).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        for id in 0u16.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let name = format!("n{}.gslb.test", usize::from(id) % NAMES);
            let before = epoch.now();
            match ask_by_tcp(&mut stream, &name, id) {
                Ok(answer) => check("TCP", &name, before, answer),
                Err(error) => {
                    wrong.lock().expect("no panic").push(format!("TCP {name}: {error}"));
                    break;
                }
            }
            asked[3].fetch_add(1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(2));
        }
    };
    let more = |count: u64| {
        let before: Vec<u64> = asked.iter().map(|asked| asked.load(Ordering::Relaxed)).collect();
        eventually("more queries", || {
            let done = |(asked, before): (&AtomicU64, &u64)| asked.load(Ordering::Relaxed) >= before + count;
            asked.iter().zip(&before).all(done) || !wrong.lock().expect("no panic").is_empty()
        });
    };
    thread::scope(|scope| {
        for thread in 0..3 {
            let (by_udp, client) = (&by_udp, &pair.client);
            scope.spawn(move || client.run(|| by_udp(thread)));
        }
        scope.spawn(|| pair.client.run(by_tcp));
        more(20);
        let program = || {
            let shown = pair.server.sh(&format!("ip -details link show {}", Pair::SERVER));
            let id = shown.split("prog/xdp id ").nth(1).and_then(|rest| rest.split(' ').next());
            id.expect("a program is attached").to_owned()
        };
        let first = program();
        for number in 1..=RELOADS {
            write(folder.path(), &texts[(number % 2) as usize]);
            epoch.0.store(number * 2 - 1, Ordering::SeqCst);
            let mut several: Vec<_> = (0..1 + number % 3)
                .map(|_| {
                    let mut command = agent.command(&pair.server, &["reload"]);
                    command.stdout(Stdio::null()).spawn().expect("xroute starts")
                })
                .collect();
            if number % 4 == 0 {
                agent.hang_up();
            }
            // The first that returns has made the promise; the others reload the same once more.
            let ended = several.remove(0).wait().expect("it ends");
            epoch.0.store(number * 2, Ordering::SeqCst);
            assert!(ended.success());
            for mut other in several {
                assert!(other.wait().expect("it ends").success());
            }
            eventually("the end of all reloads", || agent.status(&pair.server)["reloading"] == false);
            more(20);
            assert_ne!(program(), first, "the second generation outgrows the maps of the first");
        }
        stop.store(true, Ordering::Relaxed);
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{} wrong, the first: {:#?}", wrong.len(), &wrong[..wrong.len().min(10)]);
    let status = agent.status(&pair.server);
    let count = |name: &str| status["counters"][name].as_u64().expect("a number");
    let total: u64 = asked[..3].iter().map(|asked| asked.load(Ordering::Relaxed)).sum();
    println!("{total} by UDP, {} by TCP, {RELOADS} reloads", asked[3].load(Ordering::Relaxed));
    assert!(count("answer_records") >= total, "UDP is answered by the fast path: {status}");
    assert!(status["generation"].as_u64().expect("a number") > RELOADS);
    assert_eq!(status["reloads"]["configuration_failed"], 0);
    agent.terminate();
}

#[test]
fn netns_map_says_where_an_address_is() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("latency.csv"), "10.0.0.0/8,eu,50\n10.0.0.0/8,us,5\n")
        .expect("writable");
    write(folder.path(), &configuration(folder.path(), "", NEAREST));
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    let file = folder.path().join("xroute.toml");
    let offline = |arguments: &[&str]| {
        let mut command = std::process::Command::new(binary());
        command.args(arguments).arg("--config").arg(&file);
        command
    };
    let question = ["map", "::ffff:10.1.2.3", "203.0.113.1", "--format", "json"];
    let live = xroute(&agent, &pair.server, &question);
    let aside = offline(&question).output().expect("xroute starts");
    assert!(live.status.success(), "{}", String::from_utf8_lossy(&live.stderr));
    assert_eq!(String::from_utf8_lossy(&live.stdout), String::from_utf8_lossy(&aside.stdout));
    let mapped: Value = serde_json::from_slice(&live.stdout).expect("JSON");
    assert_eq!(mapped[0]["client"], "10.1.2.3");
    assert_eq!(mapped[0]["latency_ms"]["eu"], 50.0);
    assert_eq!(mapped[0]["latency_ms"]["us"], 5.0);
    assert_eq!(mapped[0]["profiles"][0]["a"]["chose"], "us");
    assert_eq!(mapped[1]["latency_ms"], serde_json::json!({}));

    // What is not an address is told, and the rest is answered.
    let mut command = offline(&["map", "--format", "json"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    child.stdin.take().expect("a pipe").write_all(b"10.1.2.3\nnowhere\n\n2001:db8::1\n").expect("written");
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("nowhere"));
    let lines: Vec<Value> = output
        .stdout
        .split(|&octet| octet == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["address"], "10.1.2.3");
    assert_eq!(lines[1]["address"], "2001:db8::1");
    let text = String::from_utf8(xroute(&agent, &pair.server, &["map", "10.1.2.3"]).stdout).expect("text");
    for words in ["entry       10.0.0.0/8", "eu 50 ms", "profile near (performance), region", "A     us:"] {
        assert!(text.contains(words), "no {words:?} in\n{text}");
    }
    agent.terminate();
}
