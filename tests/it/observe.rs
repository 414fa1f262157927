//! What an operator sees of a running agent: events, metrics, the failover clock.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use router_tests::agent::{Agent, binary, eventually};
use router_tests::netns::{Pair, need_netns};
use router_tests::packet::Query;
use serde_json::Value;
use tempfile::TempDir;

mod top;

const COOKIE: u16 = 10;

/// A configuration with a monitored profile over two endpoints, with cookies, a latency table and secondaries.
fn configure(folder: &Path, ttl: u32) {
    let [ipv4, ipv6] = Pair::SERVER_ADDRESSES;
    let text = format!(
        r#"[server]
interfaces = ["{interface}"]
listen = ["{ipv4}:53", "[{ipv6}]:53"]
control = "control.sock"
state_dir = "{folder}/state"
http = "127.0.0.1:9153"

[cookies]
enabled = true

[latency]
table = "latency.csv"
  [latency.regions]
  near = {{ latitude = 50.0, longitude = 8.0 }}
  far = {{ latitude = 40.0, longitude = -75.0 }}

[[zone]]
name = "gslb.test"
soa = {{ mname = "ns1.example.net.", rname = "hostmaster.example.net.", serial = 1, refresh = 3600, retry = 600, expire = 604800, minimum = 60 }}
ns = ["ns1.example.net."]

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
  tolerated_failures = 0
  [[profile.endpoint]]
  name = "near"
  address = ["127.0.0.2", "2001:db8::2"]
  [[profile.endpoint]]
  name = "far"
  address = ["127.0.0.3", "2001:db8::3"]

[[profile]]
name = "fast"
names = ["fast.gslb.test"]
method = "performance"
monitor = "off"
  [[profile.endpoint]]
  name = "near"
  region = "near"
  address = ["192.0.2.2"]
  [[profile.endpoint]]
  name = "far"
  region = "far"
  address = ["192.0.2.3"]
"#,
        interface = Pair::SERVER,
        folder = folder.display()
    );
    std::fs::write(folder.join("xroute.toml"), text).expect("the folder is writable");
    latency(folder, "10.77.0.0/24,near,10");
}

fn latency(folder: &Path, row: &str) {
    let aside = folder.join("latency.csv.new");
    std::fs::write(&aside, format!("{row}\n")).expect("writable");
    std::fs::rename(aside, folder.join("latency.csv")).expect("renamed");
}

struct Lab {
    pair: Pair,
    folder: TempDir,
}

impl Lab {
    fn new() -> Option<Self> {
        if !need_netns() {
            return None;
        }
        let lab = Self { pair: Pair::new(), folder: tempfile::tempdir().expect("a folder") };
        configure(lab.folder.path(), 30);
        Some(lab)
    }

    fn start(&self) -> Agent {
        Agent::start(&self.pair.server, self.folder.path(), &["--keep-attached"])
    }

    /// What a command prints; it must succeed.
    fn said(&self, agent: &Agent, arguments: &[&str]) -> String {
        let output = agent.command(&self.pair.server, arguments).output().expect("xroute starts");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }

    /// An endpoint of `www` that lives.
    fn listen(&self, address: &str) -> TcpListener {
        self.pair.server.run(|| TcpListener::bind((address, 8080)).expect("a free port"))
    }

    /// Asks over UDP; the last four octets of the reply.
    fn ask(&self, query: &Query) -> [u8; 4] {
        self.pair.client.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            socket.connect((Pair::SERVER_ADDRESSES[0], 53)).expect("a route");
            socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
            socket.send(&query.clone().bytes()).expect("sent");
            let mut reply = [0; 1500];
            let len = socket.recv(&mut reply).expect("a reply");
            *reply[..len].last_chunk().expect("long enough")
        })
    }

    /// Asks over a TCP connection, which is left open.
    fn ask_by_tcp(&self, query: &Query) -> TcpStream {
        self.pair.client.run(|| {
            let mut stream = TcpStream::connect((Pair::SERVER_ADDRESSES[0], 53)).expect("a connection");
            stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
            let query = query.clone().bytes();
            stream.write_all(&[&(query.len() as u16).to_be_bytes()[..], &query].concat()).expect("sent");
            stream.read_exact(&mut [0; 14]).expect("a reply");
            stream
        })
    }

    /// Metrics, in the format that is asked for.
    fn metrics(&self, accept: &str) -> String {
        let socket = self.folder.path().join("control.sock");
        let socket = socket.display();
        self.pair
            .server
            .sh(&format!("curl -sf -H 'Accept: {accept}' --unix-socket {socket} http://xroute/metrics"))
    }

    fn metric(&self, line: &str) -> f64 {
        let text = self.metrics("text/plain");
        let found = text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("no {line} in\n{text}")).parse().expect("a number")
    }
}

/// A running `xroute watch --format json`, or another one.
struct Watching {
    child: Child,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Watching {
    fn start(lab: &Lab, arguments: &[&str]) -> Self {
        let socket = lab.folder.path().join("control.sock");
        let mut child = Command::new(binary())
            .arg("watch")
            .arg("--socket")
            .arg(socket)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("xroute starts");
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let pipes: [Box<dyn Read + Send>; 2] =
            [Box::new(child.stdout.take().expect("a pipe")), Box::new(child.stderr.take().expect("a pipe"))];
        for pipe in pipes {
            let lines = Arc::clone(&lines);
            thread::spawn(move || {
                for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                    lines.lock().expect("no panic while locked").push(line);
                }
            });
        }
        Self { child, lines }
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("no panic while locked").clone()
    }

    fn events(&self) -> Vec<Value> {
        self.lines().iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// Waits for an event that has these members; its sequence number.
    fn wait_for(&self, what: &str, members: &[(&str, Value)]) -> u64 {
        let fits = |event: &Value| members.iter().all(|(name, value)| event[*name] == *value);
        let start = Instant::now();
        loop {
            let events = self.events();
            if let Some(event) = events.iter().find(|event| event["kind"] == what && fits(event)) {
                return event["sequence"].as_u64().expect("a number");
            }
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "no {what} {members:?} in {:#?}",
                self.lines()
            );
            thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn bpf_netns_events_tell_what_happens_over_a_restart_too() {
    let Some(lab) = Lab::new() else { return };
    let near = lab.listen("127.0.0.2");
    let _far = lab.listen("127.0.0.3");
    let agent = lab.start();
    let watching = Watching::start(&lab, &["--format", "json", "--since", "0"]);
    watching.wait_for("started", &[("generation", 1.into()), ("pid", agent.id().into())]);
    watching.wait_for("interface", &[("name", Pair::SERVER.into())]);
    watching.wait_for("verdict", &[("endpoint", "near".into()), ("to", "online".into())]);
    watching.wait_for("endpoint", &[("endpoint", "far".into()), ("to", "Online".into())]);

    // An endpoint dies: why, what it changes, and when the tables show it.
    drop(near);
    let verdict = watching.wait_for(
        "verdict",
        &[("endpoint", "near".into()), ("from", "online".into()), ("to", "degraded".into())],
    );
    let endpoint = watching.wait_for("endpoint", &[("endpoint", "near".into()), ("to", "Degraded".into())]);
    let profile = watching.wait_for("profile", &[("profile", "www".into()), ("to", "Degraded".into())]);
    let written = watching.wait_for("written", &[("generation", 1.into())]);
    assert!(verdict < endpoint && endpoint < profile && profile < written, "{:#?}", watching.lines());
    let events = watching.events();
    let event = events.iter().find(|event| event["sequence"] == verdict).expect("there");
    assert!(event["reason"].as_str().expect("why").contains("connection refused"), "{event}");
    let event = events.iter().find(|event| event["sequence"] == written).expect("there");
    assert!(event["operations"].as_u64().is_some_and(|operations| operations > 0), "{event}");
    assert_eq!(lab.ask(&Query::new("www.gslb.test", 1)), [127, 0, 0, 3]);

    // Operators, reloads, data files.
    lab.said(&agent, &["endpoint", "disable", "www/far", "--for", "1s", "--reason", "a try"]);
    let by = ("by", Value::from("root"));
    watching.wait_for("override", &[("what", "set".into()), ("target", "www/far".into()), by]);
    watching.wait_for("endpoint", &[("endpoint", "far".into()), ("to", "Disabled".into())]);
    watching.wait_for("profile", &[("profile", "www".into()), ("serving_all", true.into())]);
    watching.wait_for("override", &[("what", "ended".into()), ("target", "www/far".into())]);
    watching.wait_for("profile", &[("profile", "www".into()), ("serving_all", false.into())]);
    configure(lab.folder.path(), 31);
    lab.said(&agent, &["reload"]);
    watching.wait_for("reload", &[("ok", true.into())]);
    watching.wait_for("written", &[("operations", Value::Null)]);
    std::fs::write(lab.folder.path().join("xroute.toml"), "nonsense").expect("writable");
    agent.hang_up();
    watching.wait_for("reload", &[("ok", false.into())]);
    latency(lab.folder.path(), "10.77.0.0/24,near,soon");
    watching.wait_for("data", &[("ok", false.into()), ("what", "latency table".into())]);
    latency(lab.folder.path(), "10.77.0.0/24,near,95");
    watching.wait_for("data", &[("ok", true.into()), ("rows", 1.into())]);

    // One who chooses gets what was chosen, and ends when it has enough.
    let chosen =
        lab.said(&agent, &["watch", "--since", "0", "--count", "2", "--kind", "verdict", "--profile", "w*"]);
    assert_eq!(chosen.lines().count(), 2, "{chosen}");
    assert!(chosen.lines().all(|line| line.contains(" verdict   www/")), "{chosen}");
    let numbers: Vec<u64> =
        watching.events().iter().map(|event| event["sequence"].as_u64().expect("a number")).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "a gap in {numbers:?}");

    // The agent ends; one goes with it, one waits for the next.
    let mut once = Watching::start(&lab, &["--once"]);
    eventually("both read", || lab.metric("xroute_event_readers") == 2.0);
    assert_eq!(lab.metric("xroute_events_missed_total"), 0.0);
    configure(lab.folder.path(), 30);
    agent.terminate();
    watching.wait_for("ending", &[("keeps_attached", true.into())]);
    assert!(once.child.wait().expect("it ends").success(), "{:#?}", once.lines());
    eventually("it says so", || watching.lines().iter().any(|line| line.contains("the agent is gone")));
    let agent = lab.start();
    watching.wait_for("started", &[("pid", agent.id().into())]);
    eventually("it says so", || watching.lines().iter().any(|line| line.contains("there is an agent again")));
    agent.terminate();
    // Whoever never had a connection has named the wrong socket.
    let output =
        Command::new(binary()).args(["watch", "--socket", "/nowhere/x.sock"]).output().expect("starts");
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere/x.sock"));
}

#[test]
fn bpf_netns_metrics_say_what_was_done() {
    let Some(lab) = Lab::new() else { return };
    let near = lab.listen("127.0.0.2");
    let _far = lab.listen("127.0.0.3");
    let agent = lab.start();
    eventually("both are online", || lab.metric(r#"xroute_events_total{kind="verdict"}"#) >= 2.0);
    // Both paths, both transports, types, subnets, cookies.
    let www = Query::new("www.gslb.test", 1);
    for _ in 0..3 {
        lab.ask(&www);
    }
    let subnet = [0, 1, 24, 0, 198, 51, 100];
    lab.ask(&Query::new("www.gslb.test", 16).edns(1232).option(8, &subnet));
    lab.ask(&www.clone().edns(1232).option(8, &subnet));
    lab.ask(&www.clone().edns(1232).option(COOKIE, b"ABCDEFGH"));
    lab.ask(&Query::new("nosuch.gslb.test", 15));
    let connection = lab.ask_by_tcp(&Query::new("gslb.test", 6));
    // A failover, with somebody who asks meanwhile.
    drop(near);
    eventually("the other one answers", || lab.ask(&www) == [127, 0, 0, 3]);
    eventually("it was seen", || lab.metric("xroute_failover_answered_seconds_count") >= 1.0);
    lab.said(&agent, &["endpoint", "enable", "www/far"]);
    assert_eq!(lab.metric("xroute_overrides"), 1.0);
    lab.said(&agent, &["override", "clear", "--all"]);
    check_values(&lab);
    drop(connection);
    eventually("the connection is gone", || lab.metric("xroute_server_tcp_connections_open") == 0.0);

    // Both formats, and who asks for what.
    let open = lab.metrics("application/openmetrics-text; version=1.0.0");
    assert!(open.ends_with("# EOF\n") && open.contains("# TYPE xroute_outcomes counter"), "{open}");
    let text = lab.pair.server.sh("curl -sf http://127.0.0.1:9153/metrics");
    promtool(&text, &["check", "metrics"]);
    // The same in status.
    let status = agent.status(&lab.pair.server);
    assert_eq!(status["server"]["queries"]["tcp"]["SOA"], 1, "{status:#}");
    assert!(status["failover"]["last_answered_ms"].as_f64() > status["failover"]["last_ms"].as_f64());
    let words = lab.said(&agent, &["status"]);
    for line in ["lease holds 1", "cells ", "maps ", "failover: 1 changes, last written "] {
        assert!(words.contains(line), "no {line:?} in\n{words}");
    }
    agent.terminate();
    drop(lab);
}

fn check_values(lab: &Lab) {
    let expected = BTreeMap::from([
        (r#"xroute_server_queries_total{transport="udp",type="TXT"}"#, 1.0),
        (r#"xroute_server_queries_total{transport="udp",type="MX"}"#, 1.0),
        (r#"xroute_server_queries_total{transport="udp",type="A"}"#, 1.0),
        (r#"xroute_server_queries_total{transport="tcp",type="SOA"}"#, 1.0),
        (r#"xroute_server_responses_total{rcode="NXDOMAIN"}"#, 1.0),
        (r#"xroute_server_responses_total{rcode="NOERROR"}"#, 3.0),
        (r#"xroute_client_subnet_queries_total{path="fast",family="ipv4"}"#, 1.0),
        (r#"xroute_client_subnet_queries_total{path="fast",family="ipv6"}"#, 0.0),
        (r#"xroute_client_subnet_queries_total{path="userspace",family="ipv4"}"#, 1.0),
        (r#"xroute_client_subnet_queries_total{path="userspace",family="none"}"#, 3.0),
        (r#"xroute_server_cookies_total{cookie="new"}"#, 1.0),
        (r#"xroute_server_tcp_connections_total{result="accepted"}"#, 1.0),
        ("xroute_server_tcp_connections_open", 1.0),
        ("xroute_failover_seconds_count", 1.0),
        (r#"xroute_failover_step_seconds_count{step="answered"}"#, 1.0),
        ("xroute_profile_serving_all{profile=\"www\"}", 0.0),
        (r#"xroute_endpoint_status{profile="www",endpoint="near",status="Degraded"}"#, 1.0),
        ("xroute_config_last_reload_successful", 1.0),
    ]);
    for (line, value) in expected {
        assert_eq!(lab.metric(line), value, "{line}");
    }
    let fast = lab.metric(r#"xroute_outcomes_total{path="fast",action="answer",outcome="answer_records"}"#);
    assert!(fast >= 4.0, "{fast}");
    let took = lab.metric("xroute_failover_seconds_sum");
    assert!((0.000_01..2.0).contains(&took), "{took}");
    assert!(lab.metric("xroute_failover_answered_seconds_sum") > took);
    let left = lab.metric("xroute_lease_remaining_seconds");
    assert!((10.0..17.0).contains(&left), "{left}");
    let (used, room) = (
        lab.metric(r#"xroute_table_elements{table="cells"}"#),
        lab.metric(r#"xroute_table_capacity{table="cells"}"#),
    );
    // One address stands in its answer: what is left is NODATA of both profiles.
    assert!(used >= 1.0 && room > used, "{used} of {room}");
    assert_eq!(lab.metric(r#"xroute_table_elements{table="owners"}"#), 3.0, "two profiles and the apex");
    assert!(lab.metric(r#"xroute_map_memory_bytes{map="CELLS"}"#) >= room * 2.0 * 64.0);
    assert!(lab.metric(r#"xroute_probe_duration_seconds_count{protocol="tcp"}"#) >= 3.0);
}

/// Has promtool look at something on its standard input.
fn promtool(text: &str, arguments: &[&str]) {
    let mut child = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts (cargo xtask setup installs it)");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].map(|octets| String::from_utf8_lossy(&octets).into_owned());
    assert!(output.status.success(), "{}\n{text}", said.join(""));
    assert_eq!(said, ["", ""], "it has something to say");
}

#[test]
fn netns_alert_rules_are_as_prometheus_wants_them() {
    if !need_netns() {
        return;
    }
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/prometheus/xroute.rules.yml");
    let output = Command::new("promtool").args(["check", "rules", rules]).output().expect("promtool starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("SUCCESS"), "{said}");
}

#[test]
fn netns_every_expression_of_the_dashboard_is_promql() {
    if !need_netns() {
        return;
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/grafana/xroute.json");
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("there")).expect("JSON");
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    let mut count = 0;
    for panel in dashboard["panels"].as_array().expect("panels") {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let mut expression = target["expr"].as_str().expect("text").to_owned();
            for (variable, value) in
                [("$__rate_interval", "5m"), ("$__range", "1h"), ("$instance", ".*"), ("$profile", ".*")]
            {
                expression = expression.replace(variable, value);
            }
            // A JSON string is one of YAML.
            let expression = serde_json::to_string(&expression).expect("text");
            rules += &format!("  - record: panel:expression:{count}\n    expr: {expression}\n");
            count += 1;
        }
    }
    assert!(count > 40, "{count} expressions");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("rules.yml");
    std::fs::write(&file, rules).expect("writable");
    let output = Command::new("promtool").args(["check", "rules"]).arg(&file).output().expect("promtool");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
