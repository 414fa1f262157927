//! `xroute doctor` on machines that something is wrong with: what it finds, and that what it says to do helps.

use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command};

use router_tests::agent::{Agent, binary};
use router_tests::netns::{Namespace, Pair, attach_pass, need_netns};
use serde_json::Value;
use tempfile::TempDir;

/// A configuration without probes.
fn configure(folder: &Path, interfaces: &str) {
    let [ipv4, ipv6] = Pair::SERVER_ADDRESSES;
    let text = format!(
        r#"
[server]
interfaces = [{interfaces}]
listen = ["{ipv4}:53", "[{ipv6}]:53"]
control = "{folder}/control.sock"
state_dir = "{folder}/state"

# Fewer descriptors than a test machine may allow.
[probes]
in_flight = 50
[tcp]
connections = 500
connections_per_client = 50

[[zone]]
name = "gslb.test"
soa = {{ mname = "ns1.example.net.", rname = "hostmaster.example.net.", serial = 1, refresh = 3600, retry = 600, expire = 604800, minimum = 60 }}
ns = ["ns1.example.net."]

[[profile]]
name = "www"
names = ["www.gslb.test"]
method = "weighted"
monitor = "off"
  [[profile.endpoint]]
  name = "a"
  address = ["192.0.2.1"]
"#,
        folder = folder.display()
    );
    std::fs::write(folder.join("xroute.toml"), text).expect("the folder is writable");
}

/// What the doctor found, as JSON, and whether it was content.
struct Found {
    report: Value,
    content: bool,
}

impl Found {
    /// The findings about a topic that are worse than ok: level, and all of its text.
    fn about(&self, topic: &str) -> Vec<(String, String)> {
        let findings = self.report["findings"].as_array().expect("a list");
        let text = |finding: &Value, key: &str| finding[key].as_str().unwrap_or_default().to_owned();
        findings
            .iter()
            .filter(|finding| text(finding, "topic") == topic && text(finding, "level") != "ok")
            .map(|finding| {
                let all = ["found", "why", "remedy"].map(|key| text(finding, key)).join(" | ");
                (text(finding, "level"), all)
            })
            .collect()
    }

    /// Whether there is such a finding.
    #[track_caller]
    fn has(&self, topic: &str, level: &str, parts: &[&str]) {
        let found = self.about(topic);
        let there =
            |(of, text): &(String, String)| of == level && parts.iter().all(|part| text.contains(part));
        assert!(found.iter().any(there), "no {level} with {parts:?} about {topic}: {found:#?}");
        assert_eq!(self.content, self.report["failures"] == 0, "the exit status");
    }

    /// Whether there is nothing but what is well, and notes.
    #[track_caller]
    fn is_well(&self, topic: &str) {
        let bad: Vec<_> = self.about(topic).into_iter().filter(|(level, _)| level != "note").collect();
        assert!(bad.is_empty(), "{topic}: {bad:#?}");
    }
}

/// A server's namespace, a configuration, and a place for pins.
struct Patient {
    pair: Pair,
    folder: TempDir,
}

impl Patient {
    fn new(interfaces: &str) -> Option<Self> {
        if !need_netns() {
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        configure(folder.path(), interfaces);
        std::fs::create_dir(folder.path().join("pins")).expect("it is made");
        Some(Self { pair: Pair::new(), folder })
    }

    fn pins(&self) -> String {
        self.folder.path().join("pins").display().to_string()
    }

    fn doctor(&self, arguments: &[&str]) -> Command {
        let mut command = self.doctor_elsewhere(arguments);
        command.args(["--pin-dir", &self.pins()]);
        command
    }

    /// One that looks for pins where none are.
    fn doctor_elsewhere(&self, arguments: &[&str]) -> Command {
        let mut command = self.pair.server.command(binary().to_str().expect("a path of text"));
        command.arg("doctor").arg("--config").arg(self.folder.path().join("xroute.toml"));
        command.args(arguments);
        command
    }

    fn examine(&self, arguments: &[&str]) -> Found {
        Found::of(self.doctor(arguments))
    }

    fn sh(&self, line: &str) {
        self.pair.server.sh(line);
    }
}

impl Found {
    fn of(mut command: Command) -> Self {
        let output = command.args(["--format", "json"]).output().expect("xroute starts");
        let said = String::from_utf8_lossy(&output.stderr);
        let report = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {said}"));
        Self { report, content: output.status.success() }
    }
}

const TOPIC: &str = "interface xr0";

#[test]
fn netns_a_machine_that_is_well_and_one_without_its_interface() {
    let Some(patient) = Patient::new("\"xr0\"") else { return };
    let found = patient.examine(&[]);
    assert!(found.content, "{:#}", found.report);
    for topic in ["kernel", TOPIC, "network", "configuration"] {
        found.is_well(topic);
    }
    found.has(TOPIC, "note", &["cannot be looked into"]);
    found.has("agent", "note", &["no agent runs"]);
    let text = String::from_utf8(patient.doctor(&[]).output().expect("xroute starts").stdout).expect("text");
    for part in
        ["kernel\n  ok ", "answers a query that the kernel runs it on", "interface xr0\n", "0 failures"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    // With a process in it, the namespace of the other end can be found; it has a program.
    let mut inside = Inside::of(&patient.pair.client);
    let found = patient.examine(&[]);
    found.is_well(TOPIC);
    assert!(
        !found.about(TOPIC).iter().any(|(_, text)| text.contains("other end")),
        "{:#?}",
        found.about(TOPIC)
    );
    inside.end();

    let other = patient.examine(&["--interface", "xr9"]);
    other.has("interface xr9", "failure", &["no interface \"xr9\"", "\"xr0\""]);
    assert!(!other.content);
}

/// A process in a namespace that does nothing.
struct Inside(Child);

impl Inside {
    fn of(namespace: &Namespace) -> Self {
        Self(namespace.command("sleep").arg("600").spawn().expect("sleep starts"))
    }

    fn end(&mut self) {
        self.0.kill().expect("it runs");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // It has ended already, unless the test failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn netns_interfaces_that_are_down_small_or_lonely_are_told_with_remedies_that_help() {
    let Some(patient) = Patient::new("\"xr0\"") else { return };
    patient.sh("ip link set xr0 down");
    let found = patient.examine(&[]);
    found.has(TOPIC, "failure", &["switched off", "ip link set xr0 up"]);
    assert!(!found.content);
    patient.sh("ip link set xr0 up; ip addr add fd77::53/64 dev xr0 nodad");
    patient.pair.client.sh("ip link set xr1 down");
    patient.examine(&[]).has(TOPIC, "warning", &["no carrier"]);
    patient.pair.client.sh("ip link set xr1 up");

    patient.sh("ip link set xr0 mtu 1100");
    patient.examine(&[]).has(
        TOPIC,
        "warning",
        &["MTU is 1100", "ip link set xr0 mtu 1500", "edns_size = 1052"],
    );
    patient.sh("ip link set xr0 mtu 1500; ip addr replace fd77::53/64 dev xr0 nodad");
    patient.examine(&[]).is_well(TOPIC);

    patient.sh("ip link add xr2 type veth peer name xr3; ip link set xr2 up; ip link set xr3 up");
    let lonely = patient.examine(&["--interface", "xr2"]);
    lonely.has(
        "interface xr2",
        "warning",
        &["other end of the veth has no XDP program", "xdp_mode = \"generic\""],
    );
    let _receive = patient.pair.server.run(|| attach_pass("xr3")).expect("it is attached");
    patient.examine(&["--interface", "xr2"]).is_well("interface xr2");

    let top = patient.pair.server.sh("ip link add link xr0 name xr0.7 type vlan id 7 2>&1 || echo none");
    if top.is_empty() {
        patient.sh("ip link set xr0.7 up");
        let found = patient.examine(&["--interface", "xr0.7,xr0"]);
        found.has("interface xr0.7", "warning", &["a vlan", "interfaces = [\"xr0\"] and vlans"]);
    }
    patient.sh("ip link add xrb type bridge; ip link set xrb up; ip link set xr2 master xrb");
    let found = patient.examine(&["--interface", "xrb", "--interface", "xr2"]);
    found.has("interface xrb", "warning", &["a bridge"]);
    found.has("interface xr2", "note", &["part of the bridge xrb"]);
}

#[test]
fn netns_programs_of_others_and_of_dead_agents_are_told_apart() {
    let Some(patient) = Patient::new("\"xr0\"") else { return };
    let foreign = patient.pair.server.run(|| attach_pass("xr0")).expect("it is attached");
    let found = patient.examine(&[]);
    found.has(TOPIC, "failure", &["another XDP program", "native", "bpftool link detach id"]);
    assert!(!found.content);
    drop(foreign);

    let agent = Agent::start(&patient.pair.server, patient.folder.path(), &["--pin-dir", &patient.pins()]);
    let found = patient.examine(&[]);
    for topic in [TOPIC, "pins", "network", "agent"] {
        found.is_well(topic);
    }
    assert!(found.content);
    let elsewhere = Found::of(patient.doctor_elsewhere(&["--socket", "/nowhere.sock"]));
    elsewhere.has(TOPIC, "failure", &["xroute (id ", "pinned somewhere else", "--pin-dir"]);

    agent.kill();
    let found = patient.examine(&[]);
    found.has(
        "pins",
        "warning",
        &["an agent that has ended is on xr0", "its lease lapses in", "xroute run --pin-dir"],
    );
    found.has("agent", "warning", &["nobody listens"]);
    found.is_well(TOPIC);
    let (_, text) = &found.about("pins")[0];
    let remedy = text.split("or detach it: ").nth(1).expect("a command");
    patient.sh(remedy);
    let found = patient.examine(&[]);
    found.has("pins", "note", &["sets of maps that no program uses", "rm -r "]);
    let (_, text) = &found.about("pins")[0];
    patient.sh(text.rsplit(" | ").next().expect("a command"));
    patient.examine(&[]).is_well("pins");
    assert_eq!(patient.examine(&[]).about("pins").len(), 0);
    assert!(!patient.pair.server.sh("ip link show xr0").contains("xdp"), "it was detached");
}

#[test]
fn netns_a_port_that_is_taken_and_an_address_that_is_not_here() {
    let Some(patient) = Patient::new("\"xr0\"") else { return };
    let taken = patient.pair.server.run(|| {
        (
            UdpSocket::bind("0.0.0.0:53").expect("a free port"),
            TcpListener::bind("[fd77::53]:53").expect("a free port"),
        )
    });
    let found = patient.examine(&[]);
    let pid = format!("(pid {})", std::process::id());
    found.has(
        "network",
        "failure",
        &["udp 0.0.0.0:53 is taken by", &pid, "10.77.0.53:53 is wanted", "ps -fp"],
    );
    found.has("network", "failure", &["tcp [fd77::53]:53 is taken by", &pid]);
    assert_eq!(found.about("network").len(), 2, "{:#?}", found.about("network"));
    drop(taken);
    patient.examine(&[]).is_well("network");

    patient.sh("ip addr del 10.77.0.53/24 dev xr0");
    let found = patient.examine(&[]);
    found.has(
        "network",
        "failure",
        &["10.77.0.53 of `listen` is on no interface", "ip address add 10.77.0.53/32 dev lo"],
    );
    patient.sh("echo 1 > /proc/sys/net/ipv4/ip_nonlocal_bind");
    patient.examine(&[]).has("network", "warning", &["ip_nonlocal_bind"]);
    patient.sh("ip address add 10.77.0.53/32 dev lo");
    patient.examine(&[]).is_well("network");
}

#[test]
fn netns_files_that_are_broken_or_not_for_this_user() {
    let Some(patient) = Patient::new("") else { return };
    let file = patient.folder.path().join("xroute.toml");
    let text = std::fs::read_to_string(&file).expect("it is there");
    std::fs::write(&file, text.replace("weighted", "wieghted")).expect("it is written");
    let found = patient.examine(&[]);
    found.has("configuration", "failure", &["is not valid, 1 errors", "wieghted", "xroute check"]);
    std::fs::remove_file(&file).expect("it is removed");
    patient.examine(&[]).has("configuration", "warning", &["there is no"]);
    std::fs::write(&file, text).expect("it is written");
    patient.examine(&[]).is_well("configuration");

    // A user without rights sees less, and says so; nothing is taken for broken because of it.
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    let folder = patient.folder.path();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let copy = folder.join("xroute");
    std::fs::copy(binary(), &copy).expect("a copy that everybody can read");
    let mut command = patient.pair.server.command(copy.to_str().expect("a path of text"));
    command.args(["doctor", "--format", "json", "--config"]).arg(&file);
    let set_user = || match become_nobody() {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: two system calls between fork and exec.
    unsafe { command.pre_exec(set_user) };
    let output = command.output().expect("xroute starts");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(output.status.success(), "{report:#}");
    assert_eq!((&report["privileged"], &report["failures"]), (&Value::Bool(false), &Value::from(0)));
    let found = Found { report, content: true };
    found.has("kernel", "note", &["user 65534 lacks", "CAP_BPF", "sudo xroute doctor"]);
}

/// Becomes the user nobody.
fn become_nobody() -> i32 {
    // SAFETY: system calls without pointers.
    unsafe { libc::setgid(65_534) | libc::setuid(65_534) }
}
