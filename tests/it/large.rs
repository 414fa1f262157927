//! A reload at full size: 100,000 names in 10,000 profiles over a country table, while queries are answered.

use std::net::UdpSocket;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use router_tests::agent::{Agent, eventually};
use router_tests::bench::estate::{Estate, NAMES, PROFILES};
use router_tests::netns::{Pair, need_netns};
use router_tests::packet::Query;

/// Threads that ask and look at every answer.
const ASKING: usize = 1;
/// Seconds that dnsperf runs at most, without looking at answers.
const SECONDS: u32 = 180;

/// The two generations. Every record of the first has a TTL of 20 or 30 and an address that begins with 44 or
/// 203; of the second, 21 or 31 and 45 or 198.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Generation {
    First,
    Second,
}

/// Writes a generation of the configuration. Nothing is probed: the addresses are made up.
fn configure(folder: &Path, estate: &Estate, generation: Generation) {
    let [ipv4, ipv6] = Pair::SERVER_ADDRESSES;
    let (_, without_server) = estate.text.split_once("[geo]").expect("it begins with [server] and [geo]");
    let mut text = format!("[geo]{without_server}")
        .replace("monitor = { protocol = \"tcp\", port = 80 }", "monitor = \"off\"");
    if generation == Generation::Second {
        for (first, second) in [
            ("ttl = 30", "ttl = 31"),
            ("ttl = 20", "ttl = 21"),
            ("[\"44.", "[\"45."),
            ("[\"203.0.113.", "[\"198.18.113."),
        ] {
            assert!(text.contains(first), "the configuration has no {first}");
            text = text.replace(first, second);
        }
    }
    let server = format!(
        "[server]\ninterfaces = [\"{}\"]\nlisten = [\"{ipv4}:53\", \"[{ipv6}]:53\"]\ncontrol = \"{folder}/control.sock\"\n\
         state_dir = \"{folder}/state\"\n",
        Pair::SERVER,
        folder = folder.display()
    );
    std::fs::write(folder.join("xroute.toml"), server + &text).expect("the folder is writable");
}

/// The generation of an answer with one or several A records; `None` for one without.
fn generation(reply: &[u8]) -> Option<Result<Generation, String>> {
    let answers = usize::from(u16::from_be_bytes([*reply.get(6)?, *reply.get(7)?]));
    if answers == 0 || *reply.get(3)? & 0xf != 0 {
        return None;
    }
    let mut found = None;
    // Owner pointer, type, class, TTL, length, address: 16 octets each, at the end of the message.
    for at in 0..answers {
        let record = reply.get(reply.len() - 16 * (answers - at)..)?.first_chunk::<16>()?;
        let ttl = u32::from_be_bytes([record[6], record[7], record[8], record[9]]);
        let one = match (ttl, record[12]) {
            (20 | 30, 44 | 203) => Generation::First,
            (21 | 31, 45 | 198) => Generation::Second,
            other => return Some(Err(format!("TTL and address of no generation: {other:?}"))),
        };
        if *found.get_or_insert(one) != one {
            return Some(Err(String::from("records of two generations in one answer")));
        }
    }
    found.map(Ok)
}

#[derive(Default)]
struct Tally {
    stop: AtomicBool,
    /// Only the second generation may be seen from now on.
    reloaded: AtomicBool,
    asked: AtomicU64,
    lost: AtomicU64,
    wrong: AtomicU64,
}

fn ask(tally: &Tally, seed: u64) {
    let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
    socket.connect((Pair::SERVER_ADDRESSES[0], 53)).expect("a route");
    socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
    let mut state = seed;
    while !tally.stop.load(Ordering::Relaxed) {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = (state >> 33) as usize;
        let name = format!("host{}.service{}.gslb.example.com", number % NAMES, number / NAMES % PROFILES);
        let query = Query::new(&name, 1).with(|query| query.id = number as u16).bytes();
        let reloaded = tally.reloaded.load(Ordering::SeqCst);
        tally.asked.fetch_add(1, Ordering::Relaxed);
        let mut reply = [0; 1500];
        let Ok(len) = socket.send(&query).and_then(|_| socket.recv(&mut reply)) else {
            tally.lost.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        match generation(&reply[..len]) {
            None | Some(Ok(Generation::Second)) => {}
            Some(Ok(Generation::First)) if !reloaded => {}
            Some(other) => {
                eprintln!("{name}: {other:?}");
                tally.wrong.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[test]
fn netns_a_large_configuration_is_reloaded_under_load() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().expect("a folder");
    let estate = Estate::new(Path::new("/usr/share/tor"));
    for (name, content) in &estate.files {
        std::fs::write(folder.path().join(name), content).expect("the folder is writable");
    }
    configure(folder.path(), &estate, Generation::First);
    let names: String = (0..PROFILES)
        .step_by(7)
        .map(|at| format!("host{}.service{at}.gslb.example.com {}\n", at % NAMES, ["A", "AAAA"][at % 2]))
        .collect();
    std::fs::write(folder.path().join("queries"), names).expect("the folder is writable");

    let agent = Agent::start(&pair.server, folder.path(), &[]);
    let tally = Tally::default();
    let mut dnsperf = pair
        .client
        .command("dnsperf")
        .args(["-s", Pair::SERVER_ADDRESSES[0], "-c", "2", "-l", &SECONDS.to_string(), "-t", "5", "-d"])
        .arg(folder.path().join("queries"))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("dnsperf starts");
    thread::scope(|scope| {
        for seed in 0..ASKING as u64 {
            let (tally, client) = (&tally, &pair.client);
            scope.spawn(move || client.run(|| ask(tally, seed)));
        }
        eventually("queries", || tally.asked.load(Ordering::Relaxed) > 2000);
        configure(folder.path(), &estate, Generation::Second);
        let reload = agent.command(&pair.server, &["reload"]).output().expect("xroute starts");
        let told = String::from_utf8_lossy(&reload.stderr).into_owned();
        tally.reloaded.store(true, Ordering::SeqCst);
        let after = tally.asked.load(Ordering::Relaxed);
        eventually("queries after the reload", || tally.asked.load(Ordering::Relaxed) > after + 2000);
        tally.stop.store(true, Ordering::Relaxed);
        assert!(reload.status.success(), "{told}");
    });
    // SAFETY: signals a child that was not waited for; dnsperf prints its figures when it is interrupted.
    unsafe { libc::kill(dnsperf.id() as i32, libc::SIGINT) };
    let mut figures = String::new();
    if let Some(mut output) = dnsperf.stdout.take() {
        std::io::Read::read_to_string(&mut output, &mut figures).expect("text");
    }
    dnsperf.wait().expect("it ends");
    println!(
        "{} checked, {} wrong\n{figures}",
        tally.asked.load(Ordering::Relaxed),
        tally.wrong.load(Ordering::Relaxed)
    );
    assert_eq!(tally.wrong.load(Ordering::Relaxed), 0, "answers of no generation, or of the old one");
    assert_eq!(tally.lost.load(Ordering::Relaxed), 0, "queries were lost");
    let lost = figures.lines().find(|line| line.contains("Queries lost")).expect("dnsperf's figures");
    assert!(lost.split_whitespace().nth(2) == Some("0"), "{figures}");
    agent.terminate();
}
