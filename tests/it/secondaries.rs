//! Ordinary secondaries of a running agent: NSD fetches the zone and serves it, dig and kdig fetch it by hand.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use hickory_proto::op::Message;
use hickory_proto::rr::RecordType;
use router_tests::agent::{Agent, eventually};
use router_tests::netns::{Namespace, need_netns};
use router_tests::packet::Query;

const SECRET: &str = "b25lIHNlY3JldCBmb3IgYSB0ZXN0IG9ubHkgLi4uLi4=";
/// Enough for two messages.
const HOSTS: usize = 4000;

fn configuration(folder: &Path) -> String {
    format!(
        r#"[server]
listen = ["127.0.0.1:53"]
control = "control.sock"
state_dir = "{folder}/state"
[[key]]
name = "xfr.test"
secret = "{SECRET}"
[[zone]]
name = "gslb.test"
file = "gslb.zone"
transfer = {{ address = "127.0.0.0/8", key = "xfr.test" }}
notify = {{ address = "127.0.0.2:53", key = "xfr.test" }}
[[profile]]
name = "www"
names = ["www.gslb.test", "*.apps.gslb.test"]
method = "priority"
ttl = 20
monitor = "off"
  [[profile.endpoint]]
  name = "only"
  address = ["192.0.2.10", "192.0.2.11", "2001:db8::10"]
[[profile]]
name = "cdn"
names = ["cdn.gslb.test"]
method = "priority"
monitor = "off"
  [[profile.endpoint]]
  name = "only"
  target = "edge.example.net"
[[profile]]
name = "gone"
names = ["gone.apps.gslb.test"]
method = "priority"
monitor = "off"
  [[profile.endpoint]]
  name = "only"
  status = "disabled"
  address = ["192.0.2.12"]
"#,
        folder = folder.display()
    )
}

fn zone(serial: u32) -> String {
    let mut text = format!(
        "$TTL 300\n@ SOA ns1 hostmaster {serial} 3600 600 604800 60\n@ NS ns1\n@ NS ns.example.net.\n@ MX 10 mail\n\
         ns1 A 127.0.0.1\nmail A 192.0.2.25\nwww MX 5 mail\nalias CNAME mail\nserial TXT \"{serial}\"\n\
         a.b.ent TXT here\n*.wild TXT any\nsub NS ns.sub\nns.sub A 192.0.2.53\n"
    );
    for host in 0..HOSTS {
        writeln!(text, "host{host} A 10.0.{}.{}", host >> 8, host & 0xff).expect("a string");
    }
    text
}

/// NSD, serving what it fetches from us.
struct Nsd(Child);

impl Nsd {
    fn start(namespace: &Namespace, folder: &Path) -> Self {
        let path = folder.display();
        let configuration = format!(
            "server:\n ip-address: 127.0.0.2\n server-count: 1\n username: \"\"\n chroot: \"\"\n database: \"\"\n \
             zonelistfile: \"{path}/zone.list\"\n xfrdfile: \"{path}/xfrd.state\"\n xfrdir: \"{path}\"\n pidfile: \
             \"{path}/nsd.pid\"\n zonesdir: \"{path}\"\n logfile: \"{path}/nsd.log\"\n xfrd-reload-timeout: \
             0\nremote-control:\n control-enable: no\nkey:\n name: xfr.test\n algorithm: hmac-sha256\n secret: \
             \"{SECRET}\"\nzone:\n name: gslb.test\n zonefile: fetched.zone\n allow-notify: 127.0.0.1 xfr.test\n \
             request-xfr: 127.0.0.1@53 xfr.test\n outgoing-interface: 127.0.0.2\n"
        );
        let file = folder.join("nsd.conf");
        std::fs::write(&file, configuration).expect("the folder is writable");
        // Debian's path for daemons is not that of every user.
        let child = namespace
            .command("/usr/sbin/nsd")
            .args(["-d", "-c"])
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("nsd starts (cargo xtask setup installs it)");
        Self(child)
    }
}

impl Drop for Nsd {
    fn drop(&mut self) {
        // SAFETY: signals a child that was not waited for; it ends its own children.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGTERM) };
        // It has nothing to say any more.
        let _ = self.0.wait();
    }
}

/// RCODE, the answers, and the SOA of a negative one; none without a reply.
fn said(server: &str, name: &str, kind: RecordType) -> Option<(String, BTreeSet<String>, BTreeSet<String>)> {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a time limit");
    socket.connect((server, 53)).expect("an address");
    socket.send(&Query::new(name, u16::from(kind)).bytes()).ok()?;
    let mut reply = [0; 4096];
    let len = socket.recv(&mut reply).ok()?;
    let message = Message::from_vec(&reply[..len]).expect("a message");
    let lines = |records: &[hickory_proto::rr::Record]| records.iter().map(ToString::to_string).collect();
    let soa: Vec<_> = message
        .authorities
        .iter()
        .filter(|record| record.record_type() == RecordType::SOA)
        .cloned()
        .collect();
    Some((message.metadata.response_code.to_string(), lines(&message.answers), lines(&soa)))
}

#[test]
fn netns_a_secondary_serves_what_it_fetched_and_is_told_of_changes() {
    if !need_netns() {
        return;
    }
    let namespace = Namespace::new();
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("xroute.toml"), configuration(folder.path())).expect("written");
    std::fs::write(folder.path().join("gslb.zone"), zone(1)).expect("written");
    let mut agent = Agent::start(&namespace, folder.path(), &[]);
    let nsd_folder = tempfile::tempdir().expect("a folder");
    let nsd = Nsd::start(&namespace, nsd_folder.path());

    let serial_at = |server: &str, wanted: &str| {
        let found = said(server, "serial.gslb.test", RecordType::TXT);
        found.is_some_and(|(_, answers, _)| answers.iter().any(|line| line.ends_with(wanted)))
    };
    namespace.run(|| {
        eventually("NSD serves the zone", || serial_at("127.0.0.2", "TXT 1"));
        let mut records = 0;
        for label in [
            "",
            "ns1.",
            "mail.",
            "www.",
            "a.apps.",
            "apps.",
            "cdn.",
            "gone.apps.",
            "x.gone.apps.",
            "alias.",
            "b.ent.",
            "a.b.ent.",
            "x.wild.",
            "host7.",
            "host3999.",
            "absent.",
            "sub.",
            "x.sub.",
        ] {
            for kind in [
                RecordType::A,
                RecordType::AAAA,
                RecordType::MX,
                RecordType::TXT,
                RecordType::SOA,
                RecordType::NS,
                RecordType::CNAME,
                RecordType::SRV,
            ] {
                // A profile answers for its own types; at a secondary its alias stands for every type.
                let ours = !matches!(kind, RecordType::A | RecordType::AAAA | RecordType::CNAME);
                if label == "cdn." && ours {
                    continue;
                }
                let name = format!("{label}gslb.test");
                let ours = said("127.0.0.1", &name, kind).expect("our reply");
                assert_eq!(said("127.0.0.2", &name, kind), Some(ours.clone()), "{name} {kind}");
                records += ours.1.len();
            }
        }
        assert!(records > 25, "{records} records compared");
    });

    std::fs::write(folder.path().join("gslb.zone"), zone(2)).expect("written");
    let reload = agent.command(&namespace, &["reload"]).output().expect("xroute starts");
    assert!(reload.status.success(), "{}", String::from_utf8_lossy(&reload.stderr));
    // Nobody waits for the SOA's hour: NOTIFY brings it.
    namespace.run(|| eventually("NSD has the new serial", || serial_at("127.0.0.2", "TXT 2")));
    agent.wait_for("NOTIFY of gslb.test. serial 2 to 127.0.0.2:53: acknowledged");
    let status = agent.status(&namespace);
    let counted = |name: &str| status["counters"][name].as_u64().expect("a number");
    assert!(counted("server_transfer_finished") >= 2, "{status}");
    assert!(counted("server_notify_answered") >= 1 && counted("server_notify_sent") >= 2, "{status}");
    assert_eq!((counted("server_transfer_failed"), counted("server_transfer_refused")), (0, 0));
    drop(nsd);

    fetched_by_hand(&namespace);
    agent.terminate();
}

/// Two other implementations check every message's signature.
fn fetched_by_hand(namespace: &Namespace) {
    let good = format!("hmac-sha256:xfr.test:{SECRET}");
    let wrong = "hmac-sha256:xfr.test:d3JvbmcgYnV0IG9mIGEgZ29vZCBsZW5ndGggISEhISE=";
    let unknown = format!("hmac-sha256:other.test:{SECRET}");
    for program in ["dig", "kdig"] {
        let fetch = |more: &[&str]| {
            let mut command = namespace.command(program);
            command.args(["@127.0.0.1", "gslb.test", "AXFR"]).args(more);
            let output = command.output().expect("it is installed by cargo xtask setup");
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
        };
        let whole = fetch(&["-y", &good]);
        let records = whole.lines().filter(|line| line.contains("\tIN\t")).count();
        // 13 of the file and the SOA again; three of each name of "www", one of "cdn", one that holds "gone".
        assert_eq!(records, HOSTS + 14 + 8, "{program}: {}", &whole[..whole.len().min(2000)]);
        let failed = whole.to_lowercase();
        assert!(!failed.contains("failed") && !failed.contains("badsig"), "{program}");
        for key in [&["-y", wrong][..], &["-y", &unknown], &[]] {
            let refused = fetch(key);
            assert!(!refused.contains("\tSOA\t"), "{program} {key:?}: {refused}");
            let said = refused.to_uppercase();
            let why = if key.is_empty() {
                &["REFUSED", "TRANSFER FAILED"][..]
            } else {
                &["BADSIG", "BADKEY", "NOTAUTH"]
            };
            assert!(why.iter().any(|word| said.contains(word)), "{program} {key:?}: {refused}");
        }
    }
}
