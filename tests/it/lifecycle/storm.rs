//! A bad day in one test: under full load the configuration is reloaded, endpoints are changed by hand, the agent is
//! restarted, upgraded to another build and killed. No query is lost, and every answer is one of a state that was
//! in service while the query was on its way.

use std::net::UdpSocket;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use router_tests::netns::Namespace;
use router_tests::packet::Query;

use super::*;

/// Rounds; in each one reload and one change by hand.
const ROUNDS: u32 = 20;
/// In these rounds the agent is ended and started again,
const RESTARTS: [u32; 3] = [4, 9, 14];
/// upgraded to another build,
const UPGRADE: u32 = 12;
/// and killed.
const KILL: u32 = 17;
/// Names of the profile; all answer alike.
const NAMES: usize = 64;
/// Seconds that dnsperf runs at most.
const SECONDS: u32 = 240;

/// What every answer shows of the state it was made in: the address tells the endpoint, the TTL the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    address: [u8; 4],
    ttl: u32,
}

const EU: [u8; 4] = [192, 0, 2, 1];
const US: [u8; 4] = [192, 0, 2, 2];

/// The states in the order in which they came into service. A query may be answered from what was in service when
/// it was sent, from what is when the reply is there, and from all between.
struct History {
    states: Mutex<Vec<State>>,
    /// Twice the number of the state in service; odd: the next one is on its way.
    epoch: AtomicU64,
}

impl History {
    fn new(state: State) -> Self {
        Self { states: Mutex::new(vec![state]), epoch: AtomicU64::new(0) }
    }

    fn newest(&self) -> State {
        *self.states.lock().expect("no panic").last().expect("the first one")
    }

    /// Runs what brings the next state into service.
    fn advance(&self, state: State, change: impl FnOnce()) {
        self.states.lock().expect("no panic").push(state);
        self.epoch.fetch_add(1, Ordering::SeqCst);
        change();
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    fn allows(&self, before: u64, after: u64, state: State) -> bool {
        let (first, last) = (before / 2, after.div_ceil(2));
        self.states.lock().expect("no panic")[first as usize..=last as usize].contains(&state)
    }
}

/// The state that a reply with one A record shows.
fn state(reply: &[u8]) -> Option<State> {
    let (rcode, answers) = (reply.get(3)? & 0xf, reply.get(7)?);
    let (head, address) = reply.split_last_chunk::<4>()?;
    let (head, _) = head.split_last_chunk::<2>()?;
    let (_, ttl) = head.split_last_chunk::<4>()?;
    (rcode == 0 && *answers == 1).then_some(State { address: *address, ttl: u32::from_be_bytes(*ttl) })
}

/// The configuration in which every answer has this TTL.
fn configure_ttl(folder: &Path, ttl: u32) {
    let [ipv4, ipv6] = Pair::SERVER_ADDRESSES;
    let names: Vec<String> = (0..NAMES).map(|number| format!("\"w{number}.gslb.test\"")).collect();
    let text = format!(
        r#"[server]
interfaces = ["{interface}"]
listen = ["{ipv4}:53", "[{ipv6}]:53"]
control = "control.sock"
state_dir = "{folder}/state"
[[zone]]
name = "gslb.test"
soa = {{ mname = "ns1.example.net.", rname = "hostmaster.example.net.", serial = 1, refresh = 3600, retry = 600, expire = 604800, minimum = 60 }}
ns = ["ns1.example.net."]
ttl = 3600
[[profile]]
name = "www"
names = [{names}]
method = "priority"
ttl = {ttl}
monitor = "off"
  [[profile.endpoint]]
  name = "eu"
  address = ["192.0.2.1"]
  [[profile.endpoint]]
  name = "us"
  address = ["192.0.2.2"]
"#,
        interface = Pair::SERVER,
        folder = folder.display(),
        names = names.join(", "),
    );
    let aside = folder.join("xroute.toml.new");
    fs::write(&aside, text).expect("the folder is writable");
    fs::rename(aside, folder.join("xroute.toml")).expect("renamed");
}

/// What those that ask have found.
#[derive(Default)]
struct Findings {
    stop: AtomicBool,
    asked: AtomicU64,
    wrong: Mutex<Vec<String>>,
}

impl Findings {
    fn tell(&self, what: String) {
        self.wrong.lock().expect("no panic").push(what);
    }

    /// Waits until so many more queries were asked, or something was wrong.
    fn more(&self, count: u64) {
        let before = self.asked.load(Ordering::Relaxed);
        eventually("more queries", || {
            self.asked.load(Ordering::Relaxed) >= before + count
                || !self.wrong.lock().expect("no panic").is_empty()
        });
    }
}

/// Asks over IPv4 or IPv6 for what the fast path answers, and looks at every answer.
fn ask(findings: &Findings, history: &History, server: &str) {
    let any = if server.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any).expect("a socket");
    socket.connect((server, 53)).expect("a route");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    let mut reply = [0; 512];
    for id in 0u64.. {
        if findings.stop.load(Ordering::Relaxed) {
            return;
        }
        let (name, id) = (format!("w{}.gslb.test", id as usize % NAMES), id as u16);
        let query = Query::new(&name, 1).with(|query| query.id = id).bytes();
        let before = history.epoch.load(Ordering::SeqCst);
        findings.asked.fetch_add(1, Ordering::Relaxed);
        let len = match socket.send(&query).and_then(|_| socket.recv(&mut reply)) {
            Ok(len) => len,
            Err(error) => {
                findings.tell(format!("{name} in {before}: {error}"));
                continue;
            }
        };
        let after = history.epoch.load(Ordering::SeqCst);
        let shown = state(&reply[..len]).filter(|_| reply[..2] == id.to_be_bytes());
        if !shown.is_some_and(|shown| history.allows(before, after, shown)) {
            findings.tell(format!("{name} in {before}..{after}: {shown:?}"));
        }
    }
}

fn dnsperf(pair: &Pair, folder: &Path) -> Child {
    let names: String = (0..NAMES).map(|number| format!("w{number}.gslb.test A\n")).collect();
    fs::write(folder.join("queries"), names).expect("the folder is writable");
    pair.client
        .command("dnsperf")
        .args(["-s", Pair::SERVER_ADDRESSES[0], "-c", "2", "-l", &SECONDS.to_string(), "-t", "5", "-d"])
        .arg(folder.join("queries"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("dnsperf starts")
}

/// Ends dnsperf; its figures.
fn figures(mut dnsperf: Child) -> String {
    // SAFETY: signals a child that was not waited for; dnsperf prints its figures when it is interrupted.
    unsafe { libc::kill(dnsperf.id() as i32, libc::SIGINT) };
    let mut figures = String::new();
    if let Some(mut output) = dnsperf.stdout.take() {
        std::io::Read::read_to_string(&mut output, &mut figures).expect("text");
    }
    dnsperf.wait().expect("it ends");
    figures
}

fn done(agent: &Agent, namespace: &Namespace, arguments: &[&str]) {
    let output = agent.command(namespace, arguments).output().expect("xroute starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The number after a word of dnsperf's figures.
fn figure(figures: &str, words: &str) -> u64 {
    let line = figures.lines().find(|line| line.contains(words)).expect("dnsperf's figures");
    line.split_whitespace().nth(2).and_then(|number| number.parse().ok()).expect("a number")
}

#[test]
fn netns_reloads_changes_restarts_an_upgrade_and_a_kill_lose_nothing() {
    let Some((pair, folder)) = set_up("\"xr0\"") else { return };
    let folder = folder.path();
    configure_ttl(folder, 10);
    let start = || Agent::start_program(&pair.server, &program(folder), folder, &["--keep-attached"]);
    let mut agent = start();
    let history = History::new(State { address: EU, ttl: 10 });
    let findings = Findings::default();
    let dnsperf = dnsperf(&pair, folder);
    thread::scope(|scope| {
        for server in Pair::SERVER_ADDRESSES {
            let (findings, history, client) = (&findings, &history, &pair.client);
            scope.spawn(move || client.run(|| ask(findings, history, server)));
        }
        // A failure must end those that ask, too.
        let rounds = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            findings.more(200);
            for round in 1..=ROUNDS {
                configure_ttl(folder, 10 + round);
                let next = State { ttl: 10 + round, ..history.newest() };
                history.advance(next, || done(&agent, &pair.server, &["reload"]));
                findings.more(100);

                let (address, change) = if round % 2 == 1 { (US, "disable") } else { (EU, "enable") };
                let next = State { address, ..history.newest() };
                history.advance(next, || done(&agent, &pair.server, &["endpoint", change, "www/eu"]));
                findings.more(100);

                if RESTARTS.contains(&round) || round == KILL {
                    if round == KILL {
                        agent.kill();
                    } else {
                        agent.terminate();
                    }
                    findings.more(100);
                    agent = start();
                    agent.wait_for("adopted what was running");
                }
                if round == UPGRADE {
                    install(folder, &another_build());
                    let upgraded = agent.upgrade(&pair.server);
                    upgraded.unwrap_or_else(|why| panic!("{why}\n{}", agent.log().join("\n")));
                    agent.wait_for("replaced what was running: it is another build");
                }
                findings.more(100);
            }
            agent
        }));
        findings.stop.store(true, Ordering::Relaxed);
        match rounds {
            Ok(agent) => {
                let status = agent.status(&pair.server);
                assert_eq!(status["counters"]["answer_stale"], 0, "the lease never lapsed");
                agent.terminate();
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    let figures = figures(dnsperf);
    let wrong = findings.wrong.into_inner().expect("no panic");
    println!("{} looked at, {} wrong\n{figures}", findings.asked.load(Ordering::Relaxed), wrong.len());
    assert!(wrong.is_empty(), "{} wrong, the first: {:#?}", wrong.len(), &wrong[..wrong.len().min(10)]);
    assert_eq!(figure(&figures, "Queries lost"), 0, "{figures}");
    assert!(figure(&figures, "Queries sent") > 10_000, "{figures}");
    // `--keep-attached` left it there; it goes with the namespace.
    assert!(pair.server.sh("ip -details link show xr0").contains("prog/xdp"));
}
