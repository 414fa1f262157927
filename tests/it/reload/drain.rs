//! Endpoints are taken out of service: what is said of when they can be stopped is right, under constant load, over
//! reloads and over a restart.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::overrides::{failed, said};
use super::*;

const EU: [u8; 4] = [192, 0, 2, 1];
const US: [u8; 4] = [192, 0, 2, 2];
/// What a loaded machine may be late.
const LATE: Duration = Duration::from_millis(900);

fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

/// `www`: two endpoints by weight, the second a pool; `pool` has a name of its own, and a longer TTL.
fn profiles(ttl: u32, pool_ttl: u32) -> String {
    format!(
        r#"
[[profile]]
name = "www"
names = ["www.gslb.test"]
method = "weighted"
ttl = {ttl}
monitor = "off"
  [[profile.endpoint]]
  name = "eu"
  address = ["192.0.2.1"]
  weight = 3
  [[profile.endpoint]]
  name = "us"
  profile = "pool"
  weight = 1
[[profile]]
name = "pool"
names = ["pool.gslb.test"]
method = "weighted"
ttl = {pool_ttl}
monitor = "off"
  [[profile.endpoint]]
  name = "us1"
  address = ["192.0.2.2"]
  [[profile.endpoint]]
  name = "us2"
  address = ["192.0.2.3"]
"#
    )
}

/// When an address was answered last, how often, and with which TTL then.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    at: Duration,
    count: u64,
    until: Duration,
}

/// Asks without a pause, by UDP in the fast path and by TCP in the userspace server, until it is told to stop.
struct Asking {
    seen: Mutex<BTreeMap<[u8; 4], Seen>>,
    lost: AtomicU64,
    stop: AtomicBool,
}

impl Asking {
    fn new() -> Self {
        Self { seen: Mutex::default(), lost: AtomicU64::new(0), stop: AtomicBool::new(false) }
    }

    fn note(&self, (address, ttl): ([u8; 4], u32)) {
        let mut seen = self.seen.lock().expect("no panic while locked");
        let held = seen.entry(address).or_default();
        held.at = unix();
        held.count += 1;
        held.until = held.until.max(held.at + Duration::from_secs(ttl.into()));
    }

    fn of(&self, address: [u8; 4]) -> Seen {
        self.seen.lock().expect("no panic while locked").get(&address).copied().unwrap_or_default()
    }

    fn by_udp(&self, pair: &Pair, names: &[&str]) {
        pair.client.run(|| {
            let socket = socket();
            for id in 0u16.. {
                if self.stop.load(Ordering::Relaxed) {
                    break;
                }
                match ask(&socket, names[usize::from(id) % names.len()], id) {
                    Ok(answer) => self.note(answer.expect("an address")),
                    Err(()) => drop(self.lost.fetch_add(1, Ordering::Relaxed)),
                }
                thread::sleep(Duration::from_millis(2));
            }
        });
    }

    /// The server is away now and then, which is no loss here.
    fn by_tcp(&self, pair: &Pair, names: &[&str]) {
        pair.client.run(|| {
            while !self.stop.load(Ordering::Relaxed) {
                let Ok(mut stream) = TcpStream::connect((Pair::SERVER_ADDRESSES[0], 53)) else {
                    thread::sleep(Duration::from_millis(20));
                    continue;
                };
                stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                for id in 0..50u16 {
                    match ask_by_tcp(&mut stream, names[usize::from(id) % names.len()], id) {
                        Ok(Some(answer)) => self.note(answer),
                        _ => break,
                    }
                    thread::sleep(Duration::from_millis(2));
                }
            }
        });
    }
}

/// `xroute drain --list --format json`, the only one.
fn drain(agent: &Agent, pair: &Pair) -> Value {
    let report: Value =
        serde_json::from_str(&said(agent, pair, &["drain", "--list", "--format", "json"])).expect("JSON");
    report["drains"][0].clone()
}

fn millis(value: &Value) -> Duration {
    Duration::from_millis(value.as_u64().expect("a number"))
}

fn distance(one: Duration, other: Duration) -> Duration {
    one.abs_diff(other)
}

#[test]
fn netns_a_drain_is_over_when_the_last_answer_has_expired() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), &configuration(folder.path(), "", &profiles(3, 6)));
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    let asking = Asking::new();
    thread::scope(|scope| {
        scope.spawn(|| asking.by_udp(&pair, &["www.gslb.test"]));
        scope.spawn(|| asking.by_tcp(&pair, &["www.gslb.test"]));
        eventually("answers by both", || asking.of(EU).count > 150 && asking.of(US).count > 20);

        let began = Instant::now();
        let text = said(&agent, &pair, &["drain", "www/eu", "--wait", "--reason", "new disks"]);
        let (waited, ended) = (began.elapsed(), unix());
        let last = asking.of(EU);
        assert!(text.contains("www/eu: status enabled -> status disabled\ngeneration 2 serves it"), "{text}");
        assert!(text.contains("safe to stop at ") && text.contains("(new disks)"), "{text}");
        assert!(text.ends_with("www/eu: safe to stop\n"), "{text}");
        // It has waited for the TTL of the last answer, and not much more.
        assert!(ended >= last.until - Duration::from_millis(20), "{:?} too early", last.until - ended);
        assert!(distance(ended, last.until) < LATE, "{ended:?}, last {last:?}");
        assert!(waited < Duration::from_secs(3) + 2 * LATE, "{waited:?}");

        let report = drain(&agent, &pair);
        assert_eq!(report["target"], "www/eu");
        assert_eq!((report["left"].as_u64(), report["still_answered"].as_bool()), (Some(0), Some(false)));
        let safe = millis(&report["safe_at"]);
        // No answer with it is younger than the time named minus the TTL.
        assert!(
            last.at <= safe - Duration::from_secs(3) + Duration::from_millis(50),
            "{last:?}, safe {safe:?}"
        );
        assert!(distance(safe, last.until) < Duration::from_secs(1), "{safe:?}, last {last:?}");
        // Every one was counted, by whichever path it came; what comes in is counted before it is noted.
        assert!(report["answers"].as_u64() >= Some(last.count), "{report}, {last:?}");
        thread::sleep(Duration::from_millis(500));
        assert_eq!(asking.of(EU).count, last.count, "answered with after the drain");

        let status = said(&agent, &pair, &["status", "www"]);
        assert!(status.contains("draining, safe to stop since "), "{status}");
        assert!(status.contains("www/eu: draining, by root "), "{status}");
        // Back in service, it is drained no more.
        said(&agent, &pair, &["endpoint", "enable", "www/eu"]);
        assert!(said(&agent, &pair, &["drain"]).starts_with("nothing is being drained"));
        eventually("it answers again", || asking.of(EU).count > last.count);
        asking.stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(asking.lost.load(Ordering::Relaxed), 0);

    // Counted are exactly the answers that came; those of the pool for it and for what nests it.
    let status = agent.status(&pair.server);
    let endpoint = |profile: usize, at: usize| status["profiles"][profile]["endpoints"][at].clone();
    let both = |endpoint: &Value| {
        let count = |key: &str| endpoint[key].as_u64().expect("a number");
        assert!(count("answers_fast") > 0 && count("answers_userspace") > 0, "{endpoint}");
        count("answers_fast") + count("answers_userspace")
    };
    assert_eq!(both(&endpoint(0, 0)), asking.of(EU).count);
    let pool = asking.of(US).count + asking.of([192, 0, 2, 3]).count;
    assert_eq!(both(&endpoint(0, 1)), pool);
    assert_eq!(both(&endpoint(1, 0)) + both(&endpoint(1, 1)), pool);
    assert_eq!(endpoint(0, 0)["expected_share"], 0.75);
    agent.terminate();
}

#[test]
fn netns_a_drain_holds_over_reloads_and_a_restart() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().expect("a folder");
    // It is handed out with 12 s until a reload, then with 3 s.
    write(folder.path(), &configuration(folder.path(), "", &profiles(12, 12)));
    let agent = Agent::start(&pair.server, folder.path(), &["--keep-attached"]);
    let asking = Asking::new();
    let agent = thread::scope(|scope| {
        scope.spawn(|| asking.by_udp(&pair, &["pool.gslb.test", "www.gslb.test"]));
        eventually("answers", || asking.of(US).count > 50);
        write(folder.path(), &configuration(folder.path(), "", &profiles(3, 3)));
        reload(&agent, &pair.server);
        thread::sleep(Duration::from_millis(300));
        said(&agent, &pair, &["drain", "pool/us1"]);
        let last = asking.of(US);
        let safe = |agent: &Agent| millis(&drain(agent, &pair)["safe_at"]);
        let before = safe(&agent);
        assert!(last.until > last.at + Duration::from_secs(9), "the TTL that it had counts: {last:?}");
        assert!(distance(before, last.until) < Duration::from_secs(1), "{before:?} {last:?}");

        for round in 4..7 {
            write(folder.path(), &configuration(folder.path(), "", &profiles(round, round)));
            reload(&agent, &pair.server);
            assert!(distance(safe(&agent), before) < Duration::from_millis(20), "reload {round}");
        }
        // What it has counted is on disk within seconds.
        thread::sleep(Duration::from_secs(4));
        agent.kill();
        let mut agent = Agent::start(&pair.server, folder.path(), &[]);
        agent.wait_for("fast path: adopted");
        let after = drain(&agent, &pair);
        assert!(
            distance(millis(&after["safe_at"]), before) < Duration::from_millis(100),
            "{after}, was {before:?}"
        );
        assert_eq!(after["notes"], serde_json::json!([]), "{after}");
        let text = said(&agent, &pair, &["drain", "pool/us1", "--wait"]);
        let ended = unix();
        assert!(text.ends_with("pool/us1: safe to stop\n"), "{text}");
        assert!(ended >= before && ended < before + LATE + Duration::from_secs(1), "{ended:?} {before:?}");
        assert_eq!(asking.of(US).count, last.count, "answered with after the drain");
        asking.stop.store(true, Ordering::Relaxed);
        agent
    });
    assert_eq!(asking.lost.load(Ordering::Relaxed), 0, "queries to the fast path");
    // Every answer that came was counted once, over generations and agents.
    let status = agent.status(&pair.server);
    let pool = &status["profiles"][1]["endpoints"];
    assert_eq!(pool[0]["answers_fast"], asking.of(US).count);
    assert_eq!(pool[1]["answers_fast"], asking.of([192, 0, 2, 3]).count);
    agent.terminate();

    // Nothing was attached any more: what was kept says the same.
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    let status = agent.status(&pair.server);
    assert_eq!(status["profiles"][1]["endpoints"][0]["answers_fast"], asking.of(US).count);
    let report = drain(&agent, &pair);
    assert_eq!((report["left"].as_u64(), report["answers"].as_u64()), (Some(0), Some(asking.of(US).count)));
    agent.terminate();
}

#[test]
fn netns_a_drain_that_clients_would_notice_is_refused() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().expect("a folder");
    let text = configuration(folder.path(), "", &(fixed("one", 10, "192.0.2.1") + &profiles(1, 1)));
    write(folder.path(), &text);
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    let why = failed(&agent, &pair, &["drain", "one/only"]);
    assert!(why.contains("not drained, since clients would notice (--force does it all the same)"), "{why}");
    assert!(
        why.contains("one: no endpoint that is up would be left; nothing is left to answer with"),
        "{why}"
    );
    assert!(dig(&pair, "one.gslb.test").is_some());
    assert!(said(&agent, &pair, &["drain"]).starts_with("nothing is being drained"));

    let forced = said(
        &agent,
        &pair,
        &["drain", "one/only", "--force", "--wait", "--timeout", "30s", "--format", "json"],
    );
    let forced: Value = serde_json::from_str(&forced).expect("JSON");
    assert_eq!(forced["drains"][0]["left"], 0);
    assert_eq!(forced["changed"][0]["target"], "one/only");
    assert_eq!(dig(&pair, "one.gslb.test"), None);
    // The same address is in another profile, which goes on handing it out.
    let note = forced["drains"][0]["notes"][0].as_str().expect("a note");
    assert!(note.contains("192.0.2.1 is handed out as www/eu too, which is not being drained"), "{note}");

    // Not in time: it stays out of the answers.
    said(&agent, &pair, &["override", "clear", "one"]);
    assert!(dig(&pair, "one.gslb.test").is_some());
    let why = failed(&agent, &pair, &["drain", "one/only", "--force", "--wait", "--timeout", "1s"]);
    assert!(why.contains("it takes longer than 1 s: one/only: safe to stop at "), "{why}");
    assert_eq!(dig(&pair, "one.gslb.test"), None);
    let misused = xroute(&agent, &pair.server, &["drain", "www"]);
    assert_eq!(misused.status.code(), Some(2));
    let why = String::from_utf8_lossy(&misused.stderr).into_owned();
    assert!(why.contains("\"www\": PROFILE/ENDPOINT is wanted"), "{why}");

    // Its time is over: it comes back by itself.
    said(&agent, &pair, &["drain", "one/only", "--force", "--for", "1s"]);
    eventually("the end of the drain", || dig(&pair, "one.gslb.test").is_some());
    let audit = std::fs::read_to_string(folder.path().join("state/audit.jsonl")).expect("readable");
    assert!(audit.contains(r#""what":"drain","asked":"one/only --force""#), "{audit}");
    agent.terminate();
}
