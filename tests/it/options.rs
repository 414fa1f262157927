//! Cookies, NSID, names of class CH and the rate limit in a running agent, and reloads that switch them.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::Path;
use std::process::Output;
use std::time::Duration;

use router_tests::agent::Agent;
use router_tests::netns::{Pair, need_netns};
use router_tests::packet::Query;
use serde_json::Value;

const A: u16 = 1;
const COOKIE: u16 = 10;
const NSID: u16 = 3;

/// A configuration with one name, what a test adds to `[server]`, and further tables.
fn write(folder: &Path, server: &str, tables: &str) {
    let [ipv4, ipv6] = Pair::SERVER_ADDRESSES;
    let text = format!(
        r#"[server]
interfaces = ["xr0"]
listen = ["{ipv4}:53", "[{ipv6}]:53"]
control = "control.sock"
state_dir = "{folder}/state"
{server}
{tables}
[[zone]]
name = "gslb.test"
soa = {{ mname = "ns1.example.net.", rname = "hostmaster.example.net.", serial = 1, refresh = 3600, retry = 600, expire = 604800, minimum = 60 }}
ns = ["ns1.example.net."]

[[profile]]
name = "www"
names = ["www.gslb.test"]
method = "priority"
ttl = 30
monitor = "off"
  [[profile.endpoint]]
  name = "only"
  address = ["192.0.2.1"]
"#,
        folder = folder.display()
    );
    std::fs::write(folder.join("xroute.toml"), text).expect("the folder is writable");
}

/// A reply: RCODE with OPT's part, whether TC is set, records of the answer section, and options by code.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Reply {
    rcode: u16,
    truncated: bool,
    answers: u8,
    options: BTreeMap<u16, Vec<u8>>,
}

impl Reply {
    /// Reads a reply whose OPT is its last record.
    fn new(octets: &[u8]) -> Self {
        let mut rcode = u16::from(octets[3] & 0xf);
        let mut options = BTreeMap::new();
        if octets[11] > 0 {
            // The root, type 41: no other record here has an owner of one octet.
            let at = octets.windows(3).rposition(|window| window == [0, 0, 41]).expect("OPT");
            rcode |= u16::from(octets[at + 5]) << 4;
            let mut rest = &octets[at + 11..];
            while let [c0, c1, l0, l1, after @ ..] = rest {
                let (payload, after) = after.split_at(usize::from(u16::from_be_bytes([*l0, *l1])));
                options.insert(u16::from_be_bytes([*c0, *c1]), payload.to_vec());
                rest = after;
            }
        }
        Self { rcode, truncated: octets[2] & 2 != 0, answers: octets[7], options }
    }
}

/// The server, and a client in another namespace.
struct Lab {
    pair: Pair,
    folder: tempfile::TempDir,
    agent: Agent,
}

impl Lab {
    fn start() -> Option<Self> {
        if !need_netns() {
            return None;
        }
        let pair = Pair::new();
        let folder = tempfile::tempdir().expect("a folder");
        write(folder.path(), "", "");
        let agent = Agent::start(&pair.server, folder.path(), &[]);
        Some(Self { pair, folder, agent })
    }

    fn try_reload(&self, server: &str, tables: &str) -> Output {
        write(self.folder.path(), server, tables);
        self.agent.command(&self.pair.server, &["reload"]).output().expect("xroute starts")
    }

    fn reload(&self, server: &str, tables: &str) {
        let output = self.try_reload(server, tables);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Sends queries, each with an id of its own, and gives the replies in the same order; `None` for those
    /// that stay out until nothing has come for so long.
    fn ask_all(&self, queries: &[Query], patience: Duration) -> Vec<Option<Reply>> {
        self.pair.client.run(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            socket.connect((Pair::SERVER_ADDRESSES[0], 53)).expect("a route");
            socket.set_read_timeout(Some(patience)).expect("a timeout");
            for query in queries {
                socket.send(&query.bytes()).expect("sent");
            }
            let mut replies = vec![None; queries.len()];
            let mut buffer = [0; 1500];
            while replies.contains(&None) {
                let Ok(len) = socket.recv(&mut buffer) else { break };
                let id = u16::from_be_bytes([buffer[0], buffer[1]]);
                let at = queries.iter().position(|query| query.id == id).expect("an id of ours");
                replies[at] = Some(Reply::new(&buffer[..len]));
            }
            replies
        })
    }

    fn ask(&self, query: &Query) -> Reply {
        let replies = self.ask_all(std::slice::from_ref(query), Duration::from_secs(5));
        replies.into_iter().next().flatten().expect("a reply")
    }

    fn ask_tcp(&self, query: &Query) -> Reply {
        self.pair.client.run(|| {
            let mut stream = TcpStream::connect((Pair::SERVER_ADDRESSES[0], 53)).expect("a connection");
            stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
            let query = query.bytes();
            let framed = [&(query.len() as u16).to_be_bytes()[..], &query].concat();
            stream.write_all(&framed).expect("sent");
            let mut len = [0; 2];
            stream.read_exact(&mut len).expect("a reply");
            let mut reply = vec![0; usize::from(u16::from_be_bytes(len))];
            stream.read_exact(&mut reply).expect("all of it");
            Reply::new(&reply)
        })
    }

    /// Counters by name.
    fn counters(&self) -> BTreeMap<String, u64> {
        let status = self.agent.status(&self.pair.server);
        let Value::Object(counters) = &status["counters"] else { panic!("{status}") };
        counters.iter().map(|(name, count)| (name.clone(), count.as_u64().expect("a number"))).collect()
    }

    /// Counters that move while something is done.
    fn moved(&self, what: impl FnOnce()) -> BTreeMap<String, u64> {
        let before = self.counters();
        what();
        let after = self.counters();
        let moved = after.into_iter().map(|(name, count)| {
            let before = before[&name];
            (name, count - before)
        });
        // Other traffic of a network namespace (neighbour discovery, say) is not about DNS.
        moved
            .filter(|(name, count)| {
                *count > 0
                    && !matches!(
                        &**name,
                        "pass_not_ip"
                            | "pass_not_dns"
                            | "pass_mac"
                            | "pass_martian"
                            | "pass_extension_header"
                    )
            })
            .collect()
    }

    fn dig(&self, words: &str) -> String {
        self.pair.client.sh(&format!("dig @{} {words} +tries=1 +timeout=5", Pair::SERVER_ADDRESSES[0]))
    }
}

fn moved(expected: &[(&str, u64)]) -> BTreeMap<String, u64> {
    expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

fn www() -> Query {
    Query::new("www.gslb.test", A).edns(1232)
}

const SECRETS: [&str; 2] = ["000102030405060708090a0b0c0d0e0f", "f0e0d0c0b0a090807060504030201000"];

#[test]
fn netns_cookies_nsid_and_names_of_class_ch_are_switched_by_reloads() {
    let Some(lab) = Lab::start() else { return };
    let both = www().option(COOKIE, b"ABCDEFGH").option(NSID, &[]);
    let chaos = Query::new("version.bind", 16).with(|query| query.qclass = 3);
    // Off: the fast path answers, and ignores both.
    let off = lab.moved(|| {
        let reply = lab.ask(&both);
        assert_eq!((reply.rcode, reply.answers, reply.options.len()), (0, 1, 0));
        assert_eq!(lab.ask(&chaos).rcode, 5);
    });
    assert_eq!(off, moved(&[("answer_records", 1), ("pass_class", 1), ("server_refused", 1)]));

    // On: the server answers them, and the fast path all others.
    let secret_file = lab.folder.path().join("cookies.secret");
    std::fs::write(&secret_file, SECRETS[0]).expect("the folder is writable");
    let identity = "nsid = \"pop1\"\nversion = \"xroute of a test\"\nid = \"pop1\"";
    let cookies = |require: bool| {
        format!("[cookies]\nenabled = true\nsecret_file = \"cookies.secret\"\nrequire = {require}")
    };
    lab.reload(identity, &cookies(false));
    let mut learned = Vec::new();
    let on = lab.moved(|| {
        let reply = lab.ask(&both);
        assert_eq!((reply.rcode, reply.answers), (0, 1));
        assert_eq!(reply.options[&NSID], b"pop1");
        learned.clone_from(&reply.options[&COOKIE]);
        assert_eq!((learned.len(), &learned[..8]), (24, &b"ABCDEFGH"[..]));
        assert_eq!(lab.ask(&www().option(NSID, &[])).options[&NSID], b"pop1");
        assert_eq!(lab.ask(&www()).answers, 1);
        assert_eq!(lab.ask(&www().option(COOKIE, b"short")).rcode, 1);
        // Whoever has a good cookie gets the same one for half an hour.
        assert_eq!(lab.ask(&www().option(COOKIE, &learned)).options[&COOKIE], learned);
        assert_eq!(lab.ask(&chaos).answers, 1);
    });
    let expected = [
        ("answer_records", 1),
        ("pass_class", 1),
        ("pass_cookie", 3),
        ("pass_nsid", 1),
        ("server_formerr", 1),
        ("server_records", 4),
    ];
    assert_eq!(on, moved(&expected));

    // A client without a server cookie learns one from BADCOOKIE; over TCP it needs none.
    lab.reload(identity, &cookies(true));
    let reply = lab.ask(&both);
    assert_eq!((reply.rcode, reply.answers, reply.options[&COOKIE].len()), (23, 0, 24));
    assert_eq!(lab.ask(&www().option(COOKIE, &learned)).answers, 1);
    assert_eq!(lab.ask(&www()).answers, 1, "a client without cookies");
    assert_eq!(lab.ask_tcp(&both).answers, 1);
    // dig comes again with the cookie that it was given.
    let dug = lab.dig("www.gslb.test A +nsid +cookie +norecurse");
    for words in ["status: NOERROR", "NSID: 70 6f 70 31", "(good)", "192.0.2.1"] {
        assert!(dug.contains(words), "no {words:?} in\n{dug}");
    }
    assert!(lab.dig("version.bind CH TXT +short").contains("\"xroute of a test\""));
    assert!(lab.dig("hostname.bind CH TXT +short").contains("\"pop1\""));
    let dug = lab.dig("www.gslb.test A +tcp +keepalive");
    assert!(dug.contains("TCP-KEEPALIVE: 10.0 secs") || dug.contains("TCP KEEPALIVE: 10.0 secs"), "{dug}");

    // Another secret signs, the old one is still good.
    std::fs::write(&secret_file, format!("{}\n{}\n", SECRETS[1], SECRETS[0])).expect("writable");
    lab.reload(identity, &cookies(true));
    let rolled = lab.ask(&www().option(COOKIE, &learned));
    assert_eq!((rolled.rcode, rolled.answers), (0, 1));
    assert_ne!(rolled.options[&COOKIE], learned);
    std::fs::write(&secret_file, SECRETS[1]).expect("writable");
    lab.reload(identity, &cookies(true));
    assert_eq!(lab.ask(&www().option(COOKIE, &learned)).rcode, 23);
    assert_eq!(lab.ask(&www().option(COOKIE, &rolled.options[&COOKIE])).answers, 1);

    // A broken file of secrets changes nothing, and no secret is told.
    std::fs::write(&secret_file, format!("{}\n{}00\n", SECRETS[0], SECRETS[1])).expect("writable");
    let output = lab.try_reload(identity, &cookies(true));
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && why.contains("cookies.secret:2: a secret is 32"), "{why}");
    assert!(!why.contains(SECRETS[1]), "{why}");
    assert_eq!(lab.ask(&www().option(COOKIE, &rolled.options[&COOKIE])).answers, 1);

    // Off again.
    lab.reload("", "");
    let off = lab.moved(|| assert_eq!(lab.ask(&both).options.len(), 0));
    assert_eq!(off, moved(&[("answer_records", 1)]));
    assert_eq!(lab.ask(&chaos).rcode, 5);
    lab.agent.terminate();
}

#[test]
fn netns_the_rate_limit_is_switched_by_reloads() {
    const FLOOD: usize = 60;
    let Some(lab) = Lab::start() else { return };
    // NXDOMAIN under ever new names, which is always the server's.
    let flood: Vec<Query> = (0..FLOOD)
        .map(|i| Query::new(&format!("n{i}.gslb.test"), A).edns(1232).with(|query| query.id = i as u16))
        .collect();
    let brief = Duration::from_secs(1);
    let count = |replies: &[Option<Reply>]| {
        let whole = replies.iter().flatten().filter(|reply| !reply.truncated).count();
        (whole, replies.iter().flatten().count() - whole)
    };
    assert_eq!(count(&lab.ask_all(&flood, Duration::from_secs(5))), (FLOOD, 0));

    let limit = |more: &str| {
        format!(
            "[rate_limit]\nresponses_per_second = 1000\nnxdomains_per_second = 2\nwindow = 600\nslip = 3\n{more}\n"
        )
    };
    lab.reload("", &limit(""));
    let mut replies = Vec::new();
    let limited = lab.moved(|| replies = lab.ask_all(&flood, brief));
    let (whole, truncated) = count(&replies);
    // A slow machine earns a little credit on the way.
    assert!((2..=6).contains(&whole), "{whole} whole replies");
    assert_eq!(truncated, (FLOOD - whole) / 3);
    assert!(replies.iter().flatten().all(|reply| reply.rcode == 3 && reply.answers == 0));
    assert_eq!(limited["server_nxdomain"], FLOOD as u64);
    assert_eq!(limited["server_rate_slipped"], truncated as u64);
    assert_eq!(limited["server_rate_dropped"], (FLOOD - whole - truncated) as u64);
    // Other kinds, TCP and the fast path are as they were.
    assert_eq!(lab.ask(&Query::new("www.gslb.test", 16).edns(1232)).rcode, 0);
    assert_eq!(lab.ask_tcp(&flood[0]).rcode, 3);
    assert_eq!(lab.ask(&www()).answers, 1);
    let metrics = lab.pair.server.sh(&format!(
        "curl -s --unix-socket {}/control.sock http://xroute/metrics",
        lab.folder.path().display()
    ));
    let line = format!(
        r#"xroute_outcomes_total{{path="userspace",action="beside",outcome="server_rate_slipped"}} {truncated}"#
    );
    assert!(metrics.lines().any(|found| found == line), "no {line} in\n{metrics}");

    // The accounts outlive a reload, also one that changes settings.
    lab.reload("", &limit("ipv6_prefix = 48\n[cookies]\nenabled = true"));
    let (whole, _) = count(&lab.ask_all(&flood[..6], brief));
    assert_eq!(whole, 0, "the debt is known");
    // A good cookie shows that nobody forged the address.
    let learned = lab.ask_tcp(&www().option(COOKIE, b"ABCDEFGH")).options.remove(&COOKIE).expect("a cookie");
    let with_cookie: Vec<Query> = flood.iter().map(|query| query.clone().option(COOKIE, &learned)).collect();
    assert_eq!(count(&lab.ask_all(&with_cookie, Duration::from_secs(5))), (FLOOD, 0));
    let [client, _] = Pair::CLIENT_ADDRESSES;
    lab.reload("", &limit(&format!("exempt = [\"{client}\"]")));
    assert_eq!(count(&lab.ask_all(&flood, Duration::from_secs(5))), (FLOOD, 0));
    lab.reload("", &limit("dry_run = true"));
    let dry = lab.moved(|| assert_eq!(count(&lab.ask_all(&flood, Duration::from_secs(5))), (FLOOD, 0)));
    assert!(dry["server_rate_dry_run"] > 0, "{dry:?}");
    assert!(!dry.contains_key("server_rate_dropped") && !dry.contains_key("server_rate_slipped"), "{dry:?}");
    lab.reload("", "");
    assert_eq!(count(&lab.ask_all(&flood, Duration::from_secs(5))), (FLOOD, 0));
    lab.agent.terminate();
}
