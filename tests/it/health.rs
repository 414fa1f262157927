//! From probes to answers: a restart with a dead endpoint, a thousand that fail at once, one probed by hand.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use router_common::compile::Room;
use router_common::decide::Asker;
use router_common::diff::Operation;
use router_common::health::{Observation, Outcome, ProbeFault};
use router_common::model::ProbeTarget;
use router_common::name::Name;
use router_common::share::Share;
use router_common::sim::{self, Sim};
use router_common::tables::Tables;
use router_common::view::HealthView;
use router_tests::agent::{Agent as Process, binary, eventually};
use router_tests::need_bpf;
use router_tests::netns::{Pair, need_netns};
use router_tests::packet::Query;
use router_userspace::agent::{Agent, Effect, Event};
use router_userspace::clock::unix_now;
use router_userspace::config;
use router_userspace::datapath::{Datapath, Options};
use router_userspace::probe::{Observed, targets_of};
use router_userspace::settings::{Stale, XdpMode};

const ZONE: &str = "[[zone]]\nname = \"gslb.test\"\nsoa = { mname = \"ns1.example.net.\", rname = \"h.example.net.\", \
                    serial = 1, refresh = 1, retry = 1, expire = 1, minimum = 1 }\nns = [\"ns1.example.net.\"]\n";

/// How long an answer may lag behind the last verdict.
const LAG: Duration = Duration::from_millis(100);

/// The one A record of an answer from the server, if there is one.
fn ask(socket: &UdpSocket, name: &str, id: u16) -> Option<Ipv4Addr> {
    let query = Query::new(name, 1).with(|query| query.id = id).bytes();
    socket.send(&query).ok()?;
    let mut reply = [0; 512];
    loop {
        let len = socket.recv(&mut reply).ok()?;
        if reply[..2] == id.to_be_bytes() {
            assert_eq!(
                (reply[3] & 0xf, reply[6..8].to_vec()),
                (0, vec![0, 1]),
                "{name}: {:02x?}",
                &reply[..len]
            );
            // The address ends the answer section; what follows is an OPT record, which was not asked for.
            return Some(Ipv4Addr::from(<[u8; 4]>::try_from(&reply[len - 4..len]).expect("four octets")));
        }
    }
}

fn socket(patience: Duration) -> UdpSocket {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect((Pair::SERVER_ADDRESSES[0], 53)).expect("a route");
    socket.set_read_timeout(Some(patience)).expect("a timeout");
    socket
}

/// Answers every request with this.
fn http(listener: TcpListener, reply: &'static str) {
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = Vec::new();
            let mut part = [0; 1024];
            while !request.ends_with(b"\r\n\r\n") {
                match stream.read(&mut part) {
                    Ok(length @ 1..) => request.extend_from_slice(&part[..length]),
                    _ => break,
                }
            }
            // The prober may be gone.
            let _ = stream.write_all(reply.as_bytes());
        }
    });
}

/// A dead endpoint is out of the answers before the first probe after a restart has ended.
fn restart_with_a_dead_endpoint(interfaces: &str) {
    let pair = Pair::new();
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().display();
    let address = Pair::SERVER_ADDRESSES[0];
    // "near" takes connections and says nothing: each of its probes lasts for its whole time.
    let silent = pair.server.run(|| TcpListener::bind("127.0.0.2:8080").expect("a free port"));
    http(
        pair.server.run(|| TcpListener::bind("127.0.0.3:8080").expect("a free port")),
        "HTTP/1.1 200 OK\r\n\r\n",
    );
    let text = format!(
        "[server]\ninterfaces = [{interfaces}]\nlisten = [\"{address}:53\"]\ncontrol = \
         \"{path}/control.sock\"\nstate_dir = \"{path}/state\"\n{ZONE}\
         [[profile]]\nname = \"www\"\nnames = [\"www.gslb.test\"]\nmethod = \"priority\"\n\
         monitor = {{ port = 8080, interval = \"4s\", timeout = \"3s\", tolerated_failures = 0 }}\n\
         [[profile.endpoint]]\nname = \"near\"\naddress = [\"127.0.0.2\"]\n\
         [[profile.endpoint]]\nname = \"far\"\naddress = [\"127.0.0.3\"]\n"
    );
    std::fs::write(folder.path().join("xroute.toml"), text).expect("the folder is writable");
    let state = folder.path().join("state/health.json");

    let mut agent = Process::start(&pair.server, folder.path(), &[]);
    agent.wait_for("verdict www/near degraded");
    eventually("the state is kept", || {
        std::fs::read_to_string(&state).is_ok_and(|text| text.contains("\"online\":false"))
    });
    assert_eq!(
        pair.client.run(|| ask(&socket(Duration::from_secs(5)), "www.gslb.test", 1)),
        Some([127, 0, 0, 3].into())
    );
    agent.kill();

    let stop = AtomicBool::new(false);
    let (seen, agent) = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            pair.client.run(|| {
                let socket = socket(Duration::from_millis(50));
                let mut seen = BTreeMap::new();
                let mut id = 1;
                while !stop.load(Ordering::Relaxed) {
                    id = id % 60_000 + 1;
                    if let Some(answer) = ask(&socket, "www.gslb.test", id) {
                        *seen.entry(answer).or_insert(0u32) += 1;
                    }
                }
                seen
            })
        });
        let agent = Process::start(&pair.server, folder.path(), &[]);
        thread::sleep(Duration::from_millis(700));
        let status = agent.status(&pair.server);
        stop.store(true, Ordering::Relaxed);
        let near = &status["profiles"][0]["endpoints"][0];
        assert_eq!((&near["status"], &near["window"]), (&"Degraded".into(), &"-".into()), "{near:#}");
        assert_eq!(near["next_probe_ms"], 0, "its first probe is still under way: {near:#}");
        (asking.join().expect("it asks"), agent)
    });
    assert!(seen.get(&Ipv4Addr::new(127, 0, 0, 3)).is_some_and(|&count| count > 20), "{seen:?}");
    assert_eq!(seen.len(), 1, "answered with the dead endpoint after the restart: {seen:?}");
    // Its next samples go on from there, and the end keeps them.
    agent.terminate();
    std::fs::write(&state, "{ broken").expect("writable");
    let mut agent = Process::start(&pair.server, folder.path(), &[]);
    agent.wait_for("every endpoint is checked anew");
    assert_eq!(
        pair.client.run(|| ask(&socket(Duration::from_secs(5)), "www.gslb.test", 1)),
        Some([127, 0, 0, 2].into())
    );
    agent.wait_for("verdict www/far online");
    agent.terminate();
    let text = std::fs::read_to_string(&state).expect("kept at the end");
    assert!(text.contains("\"endpoint\":\"far\""), "{text}");
    drop(silent);
}

#[test]
fn netns_a_dead_endpoint_stays_out_over_a_restart() {
    if need_netns() {
        restart_with_a_dead_endpoint("");
    }
}

#[test]
fn bpf_a_dead_endpoint_stays_out_over_a_restart() {
    if need_bpf() && need_netns() {
        restart_with_a_dead_endpoint(&format!("\"{}\"", Pair::SERVER));
    }
}

/// Profiles whose first endpoint, of a target of its own, fails together with all others.
const MANY: usize = 1000;

fn name(i: usize) -> String {
    format!("n{i}.gslb.test")
}

/// First endpoint of a profile.
fn near(i: usize) -> Ipv4Addr {
    Ipv4Addr::from(0x0a01_0000 + i as u32)
}

fn far(i: usize) -> Ipv4Addr {
    Ipv4Addr::from(0x0a02_0000 + i as u32)
}

/// Half the profiles prefer their first endpoint, half share between both.
fn many() -> Agent {
    let mut text = format!("[server]\nlisten = [\"{}:53\"]\n{ZONE}", Pair::SERVER_ADDRESSES[0]);
    for i in 0..MANY {
        let method = if i % 2 == 0 { "priority" } else { "weighted" };
        text += &format!(
            "[[profile]]\nname = \"p{i}\"\nnames = [\"{}\"]\nmethod = \"{method}\"\nmonitor = {{ protocol = \
             \"tcp\", port = 80, tolerated_failures = 0 }}\n\
             [[profile.endpoint]]\nname = \"near\"\naddress = [\"{}\"]\n\
             [[profile.endpoint]]\nname = \"far\"\naddress = [\"{}\"]\n",
            name(i),
            near(i),
            far(i)
        );
    }
    let files = BTreeMap::<String, Vec<u8>>::new();
    let config = config::parse(&text, "many.toml", &files).expect("valid");
    Agent::new(config, HealthView::default()).expect("compiles")
}

/// The failure of every first endpoint, in an order of its own, as the engine hands it over.
fn failures(agent: &Agent) -> Vec<Vec<Observed>> {
    let mut failed: Vec<Observed> = targets_of(&agent.snapshot().model)
        .into_iter()
        .filter(|(target, _)| target.to_string().starts_with("TCP 10.1."))
        .map(|(target, _)| observed(target, false))
        .collect();
    assert_eq!(failed.len(), MANY);
    failed.sort_by_cached_key(|observed| {
        let shown = observed.target.to_string();
        shown.bytes().fold(7u32, |hash, octet| hash.wrapping_mul(16_777_619) ^ u32::from(octet))
    });
    failed.chunks(230).map(<[Observed]>::to_vec).collect()
}

fn observed(target: ProbeTarget, ok: bool) -> Observed {
    let outcome = if ok { Outcome::Connected } else { Outcome::Fault(ProbeFault::Refused) };
    let observation = Observation { outcome, latency: ok.then_some(Duration::from_millis(3)) };
    Observed { target: Arc::new(target), observation, said: None, at: Instant::now() }
}

fn all_healthy(agent: &mut Agent) {
    let all = targets_of(&agent.snapshot().model).into_iter().map(|(target, _)| observed(target, true));
    agent.handle(Event::Observed(all.collect()), unix_now()).expect("compiles");
}

/// What can be answered, by record data, with its share.
type Possible = BTreeMap<Vec<u8>, Share>;

fn possible(tables: &Tables, i: usize) -> Possible {
    let owner: Name = name(i).parse().expect("a name");
    let asker = Asker { source: "203.0.113.1".parse().expect("an address"), ecs: None };
    let found = Sim::new(tables).enumerate(&sim::query(&owner, false, &asker)).expect("it answers");
    found.into_iter().map(|one| (one.piece, one.share)).collect()
}

fn carry_out(image: &mut Tables, operation: &Operation) {
    match *operation {
        Operation::WriteCredit { index, credit } => {
            let len = image.credits.len().max(index as usize + 1);
            image.credits.resize(len, credit);
            image.credits[index as usize] = credit;
        }
        Operation::WriteLine { index, line } => {
            let len = image.lines.len().max(index as usize + 1);
            image.lines.resize(len, line);
            image.lines[index as usize] = line;
        }
        Operation::WriteCell { index, cell } => {
            let len = image.cells.len().max(index as usize + 1);
            image.cells.resize(len, cell);
            image.cells[index as usize] = cell;
        }
        Operation::SetAnswer { index, answer } => image.answers[index as usize] = answer,
    }
}

#[test]
fn a_thousand_endpoints_fail_at_once_in_the_tables() {
    let mut agent = many();
    all_healthy(&mut agent);
    let mut image = agent.compiled().tables.clone();
    let old: Vec<Possible> = (0..MANY).map(|i| possible(&image, i)).collect();
    let batches = failures(&agent);
    let last = batches.len() - 1;
    let mut seen: Vec<BTreeSet<Possible>> = vec![BTreeSet::new(); MANY];
    let mut written = 0;
    let mut verdicts = 0;
    let mut took = Duration::ZERO;
    for (batch, failed) in batches.into_iter().enumerate() {
        let began = Instant::now();
        let effects = agent.handle(Event::Observed(failed), unix_now()).expect("compiles");
        if batch == last {
            took = began.elapsed();
        }
        for effect in effects {
            match effect {
                Effect::Apply(operations) => {
                    for operation in operations {
                        carry_out(&mut image, &operation);
                        // A few at every step; the walk comes by every name many times.
                        for step in 0..4 {
                            let i = (written * 4 + step) * 619 % MANY;
                            seen[i].insert(possible(&image, i));
                        }
                        written += 1;
                    }
                }
                Effect::Install => image = agent.compiled().tables.clone(),
                Effect::Verdict(..) => verdicts += 1,
                Effect::Serve(_) | Effect::Probe(_) => {}
            }
        }
    }
    assert_eq!(verdicts, MANY);
    assert!(written >= MANY, "only {written} operations: was it a recompilation?");
    assert_eq!(image, agent.compiled().tables);
    for i in 0..MANY {
        let new = possible(&image, i);
        assert_eq!(new.len(), 1, "{}", name(i));
        assert!(new.keys().all(|piece| piece.ends_with(&far(i).octets())), "{}", name(i));
        assert_ne!(old[i], new);
        assert!(!seen[i].is_empty(), "{} was never looked at", name(i));
        assert!(
            seen[i].iter().all(|seen| *seen == old[i] || *seen == new),
            "{}: neither old nor new",
            name(i)
        );
    }
    println!("{written} operations, the last of {} batches took {took:?}", last + 1);
    assert!(took < LAG, "the last verdict was in the tables after {took:?}");
}

#[test]
fn bpf_a_thousand_endpoints_fail_at_once_on_the_wire() {
    if !(need_bpf() && need_netns()) {
        return;
    }
    let pair = Pair::new();
    let root = tempfile::tempdir().expect("a folder");
    let interfaces = [Pair::SERVER.to_owned()];
    let mut agent = many();
    all_healthy(&mut agent);
    let mut datapath = pair.server.run(|| {
        let options = Options {
            interfaces: &interfaces,
            mode: XdpMode::Auto,
            pin_dir: root.path().join("pins"),
            stale: Stale::Serve,
            lease: Duration::from_secs(600),
        };
        Datapath::open(&options, &agent.compiled().tables).expect("it opens").0
    });
    let capacity = datapath.capacity();
    agent.set_room(Room { cells: capacity.cells, lines: capacity.lines, tallies: capacity.tallies });
    let stop = AtomicBool::new(false);
    let (answers, last) = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            pair.client.run(|| {
                let socket = socket(Duration::from_secs(2));
                let mut answers = Vec::new();
                for round in 0u32.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let i = round as usize * 619 % MANY;
                    let asked = Instant::now();
                    let answer = ask(&socket, &name(i), round as u16);
                    answers.push((asked, i, answer));
                }
                answers
            })
        });
        thread::sleep(Duration::from_millis(300));
        let mut last = Instant::now();
        for failed in failures(&agent) {
            last = Instant::now();
            let effects = agent.handle(Event::Observed(failed), unix_now()).expect("compiles");
            for effect in effects {
                match effect {
                    Effect::Apply(operations) => {
                        datapath.apply(&operations).expect("it fits");
                    }
                    Effect::Install => datapath.install(&agent.compiled().tables).expect("it fits"),
                    _ => {}
                }
            }
        }
        println!("written {:?} after the last verdict", last.elapsed());
        thread::sleep(Duration::from_millis(400));
        stop.store(true, Ordering::Relaxed);
        (asking.join().expect("it asks"), last)
    });
    // Every name once more, when all is over.
    let settled = pair.client.run(|| {
        let socket = socket(Duration::from_secs(2));
        (0..MANY).filter(|&i| ask(&socket, &name(i), i as u16) != Some(far(i))).count()
    });
    pair.server.run(|| datapath.detach()).expect("it detaches");
    assert_eq!(settled, 0, "names that are not answered with what is healthy");
    let mut late = 0;
    let mut after = 0;
    for (asked, i, answer) in &answers {
        let answer = answer.unwrap_or_else(|| panic!("no answer for {}", name(*i)));
        assert!(answer == near(*i) || answer == far(*i), "{}: {answer} is neither old nor new", name(*i));
        if *asked >= last + LAG {
            after += 1;
            late += usize::from(answer != far(*i));
        }
    }
    println!("{} answers, {after} of them more than {LAG:?} after the last verdict", answers.len());
    assert!(after > 100, "{after} answers are too few to judge by");
    assert_eq!(late, 0, "old answers more than {LAG:?} after the last verdict");
}

fn probe(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(binary());
    command.arg("probe").args(arguments).arg("--config").arg(folder.join("xroute.toml"));
    command.output().expect("xroute starts")
}

#[test]
fn an_endpoint_is_probed_by_hand() {
    let folder = tempfile::tempdir().expect("a folder");
    let good = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address: SocketAddr = good.local_addr().expect("bound");
    http(good, "HTTP/1.1 204 No Content\r\nServer: test\r\n\r\n");
    let dead = {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        taken.local_addr().expect("bound").port()
    };
    std::fs::write(folder.path().join("states.json"), "{\"www/file\": \"degraded\"}").expect("writable");
    let text = format!(
        "{ZONE}[[profile]]\nname = \"www\"\nmethod = \"weighted\"\n\
         monitor = {{ port = {port}, path = \"/health\", host = \"www.example.test\", expected_status = [\"204\"] }}\n\
         [[profile.endpoint]]\nname = \"good\"\naddress = [\"127.0.0.1\"]\n\
         [[profile.endpoint]]\nname = \"strict\"\naddress = [\"127.0.0.1\"]\nmonitor = {{ expected_status = \
         [\"200\", \"301-302\"] }}\nstatus = \"disabled\"\n\
         [[profile.endpoint]]\nname = \"dead\"\naddress = [\"127.0.0.1\"]\nmonitor = {{ port = {dead} }}\n\
         [[profile.endpoint]]\nname = \"exec\"\naddress = [\"127.0.0.1\"]\nmonitor = {{ protocol = \"exec\", command \
         = [\"/bin/sh\", \"-c\", \"echo checking $0; exit 3\", \"{{address}}\"] }}\n\
         [[profile.endpoint]]\nname = \"file\"\naddress = [\"127.0.0.1\"]\nmonitor = {{ protocol = \"file\", file = \
         \"states.json\" }}\n\
         [[profile]]\nname = \"off\"\nmethod = \"weighted\"\nmonitor = \"off\"\n\
         [[profile.endpoint]]\nname = \"e\"\naddress = [\"127.0.0.1\"]\n\
         [[profile.endpoint]]\nname = \"n\"\nprofile = \"www\"\n",
        port = address.port(),
    );
    std::fs::write(folder.path().join("xroute.toml"), text).expect("writable");
    let told = |arguments: &[&str]| {
        let output = probe(folder.path(), arguments);
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        (output.status.code(), text)
    };
    for arguments in [&["www/good"][..], &["www/good", "--once"]] {
        let (code, text) = told(arguments);
        assert_eq!(code, Some(0), "{text}");
        for line in [
            format!("* www/good: HEAD http://{address}/health host \"www.example.test\", timeout 10s"),
            format!("* connect to {address}"),
            "> HEAD /health HTTP/1.1".into(),
            "> Host: www.example.test".into(),
            "> Connection: close".into(),
            "< HTTP/1.1 204 No Content".into(),
            "< Server: test".into(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(
            text.lines().last().is_some_and(|line| line.starts_with("healthy: status 204 in ")),
            "{text}"
        );
    }
    for (endpoint, expected) in [
        (
            "www/strict",
            &["* the agent does not probe it: status = \"disabled\"", "expected is 200, 301-302"][..],
        ),
        ("www/dead", &["unhealthy: connection refused", "Connection refused"]),
        ("www/exec", &["< checking 127.0.0.1", "unhealthy: exit status 3"]),
        ("www/file", &["says degraded of www/file", "unhealthy: degraded"]),
        ("www/god", &["there is no endpoint www/god", "did you mean www/good?"]),
        ("off/e", &["off/e is not monitored"]),
        ("off/n", &["off/n is the nested profile www"]),
    ] {
        let (code, text) = told(&[endpoint]);
        assert_eq!(code, Some(1), "{text}");
        for words in expected {
            assert!(text.contains(words), "{words} is not in\n{text}");
        }
    }
}
