//! The 216 queries of `wireprobe.py`: what each is answered with stands in `wireprobe.expect`, and who answers,
//! the fast path or the userspace server, shows in no octet.

use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;

use router_tests::agent::Agent;
use router_tests::netns::Pair;
use serde_json::Value;

use super::{EXAMPLE, Laboratory, shared, show, socket};

/// How many cases the tool has.
const CASES: usize = 216;

/// Replies of the fast path, at least, when the names are profiles: every well-formed query for an address that exists
/// and fits, or for the other family. The rest of the 216 is not in the form that it answers.
const FAST: u64 = 45;

/// One query.
struct Case {
    id: String,
    query: Vec<u8>,
}

/// All of them, from the tool itself.
fn cases(laboratory: &Laboratory) -> Vec<Case> {
    let dump = laboratory.folder.path().join("cases.json");
    let output = std::process::Command::new("python3")
        .arg(shared("wireprobe.py"))
        .arg("--dump")
        .arg(&dump)
        .output()
        .expect("python3 starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let listed: Vec<Value> = serde_json::from_slice(&fs::read(dump).expect("a file")).expect("JSON");
    let text = |case: &Value, key: &str| case[key].as_str().expect("text").to_owned();
    let cases: Vec<Case> = listed
        .iter()
        .map(|case| {
            let hex = text(case, "query");
            let octet = |at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
            Case { id: text(case, "id"), query: (0..hex.len()).step_by(2).map(octet).collect() }
        })
        .collect();
    assert_eq!(cases.len(), CASES);
    cases
}

/// Asks every case; `None` where no reply came. After each a query follows that userspace answers: what has
/// not come before its reply does not come.
fn replies(laboratory: &Laboratory, server: &str, cases: &[Case]) -> Vec<Option<Vec<u8>>> {
    let socket = socket(&laboratory.pair.client, server);
    cases.iter().map(|case| reply(&socket, &case.query)).collect()
}

fn reply(socket: &UdpSocket, query: &[u8]) -> Option<Vec<u8>> {
    const MARK: [u8; 2] = [0xfe, 0xed];
    let mut mark = MARK.to_vec();
    mark.extend_from_slice(b"\0\0\0\x01\0\0\0\0\0\0\x07example\x04test\0\0\x06\0\x01");
    socket.send(query).expect("the query is sent");
    socket.send(&mark).expect("the mark is sent");
    let mut found = None;
    let mut buffer = [0; 65535];
    loop {
        let len = socket.recv(&mut buffer).expect("a reply to the mark");
        if buffer[..2] == MARK {
            return found;
        }
        assert!(found.is_none(), "two replies to one query");
        found = Some(buffer[..len].to_vec());
    }
}

/// Reply and records of each case, as they are expected.
fn expectations() -> BTreeMap<String, (String, String)> {
    let text = fs::read_to_string(shared("wireprobe.expect")).expect("the expectation file");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let expected: BTreeMap<_, _> = lines
        .map(|line| {
            let mut fields = line.split('|').map(|field| field.trim().to_owned());
            let mut field = || fields.next().unwrap_or_else(|| panic!("too few fields: {line}"));
            let (id, _rules, reply, records) = (field(), field(), field(), field());
            (id, (reply, records))
        })
        .collect();
    expected
}

fn compare(cases: &[Case], found: &[Option<Vec<u8>>], what: &str) {
    let expected = expectations();
    let mut wrong = Vec::new();
    for (case, reply) in cases.iter().zip(found) {
        let (shown, records) = match reply {
            Some(reply) => (show::reply(reply, &case.query), show::records(reply).trim().to_owned()),
            None => ("-".into(), String::new()),
        };
        let right = expected.get(&case.id);
        if right != Some(&(shown.clone(), records.clone())) {
            wrong.push(format!("{} | {shown} | {records}\n    expected {right:?}", case.id));
        }
    }
    assert!(wrong.is_empty(), "{what}: {} of {CASES} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(expected.len(), CASES, "the expectation file has other cases than the tool");
}

/// Octet for octet.
fn same(cases: &[Case], one: &[Option<Vec<u8>>], other: &[Option<Vec<u8>>], what: &str) {
    for ((case, one), other) in cases.iter().zip(one).zip(other) {
        assert_eq!(one, other, "{}: {what}", case.id);
    }
}

#[test]
fn netns_wireprobe_is_answered_as_expected() {
    let Some(laboratory) = Laboratory::new() else { return };
    let cases = cases(&laboratory);
    let agent = laboratory.example();
    let [ipv4, ipv6] = Pair::SERVER_ADDRESSES.map(|server| replies(&laboratory, server, &cases));
    compare(&cases, &ipv4, "the userspace server");
    same(&cases, &ipv4, &ipv6, "another reply over IPv6");
    agent.terminate();

    // The fast path has none of these names, and must not be noticed either.
    let agent = laboratory.start("\"xr0\"", EXAMPLE);
    for server in Pair::SERVER_ADDRESSES {
        let behind = replies(&laboratory, server, &cases);
        same(&cases, &ipv4, &behind, "another reply with XDP attached");
    }
    agent.terminate();
}

/// The zone file without its addresses, as far as profiles can have them, and those profiles. Every record stays,
/// with its TTL and its place in its RRset.
fn as_profiles(zone: &str) -> (String, String) {
    let mut kept = String::new();
    let mut addresses: BTreeMap<&str, (u32, Vec<&str>)> = BTreeMap::new();
    for line in zone.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let parsed = match words.as_slice() {
            [owner, "IN", "A" | "AAAA", address] => Some((*owner, 300, *address)),
            [owner, ttl, "IN", "A" | "AAAA", address] => {
                Some((*owner, ttl.parse().expect("a TTL"), *address))
            }
            _ => None,
        };
        match parsed {
            // Glue below a delegation is nobody's answer.
            Some((owner, ttl, address)) if owner != "ns.deleg" => {
                addresses.entry(owner).or_insert((ttl, Vec::new())).1.push(address);
            }
            _ => {
                kept.push_str(line);
                kept.push('\n');
            }
        }
    }
    let mut profiles = String::new();
    for (number, (owner, (ttl, addresses))) in addresses.iter().enumerate() {
        let name = if *owner == "@" { "example.test".into() } else { format!("{owner}.example.test") };
        profiles.push_str(&format!(
            "[[profile]]\nname = \"p{number}\"\nnames = [\"{name}\"]\nmethod = \"priority\"\nmonitor = \"off\"\nttl = \
             {ttl}\n  [[profile.endpoint]]\n  name = \"e\"\n  address = {addresses:?}\n\n"
        ));
    }
    (kept, profiles)
}

#[test]
fn netns_wireprobe_finds_no_difference_between_the_paths() {
    let Some(laboratory) = Laboratory::new() else { return };
    let cases = cases(&laboratory);
    let zone = fs::read_to_string(shared("../zones/example.test.zone")).expect("the zone");
    let (kept, profiles) = as_profiles(&zone);
    fs::write(laboratory.folder.path().join("example.test.zone"), kept).expect("the zone is written");
    let zones = format!("{EXAMPLE}\n{profiles}");

    let agent = laboratory.start("", &zones);
    let slow = replies(&laboratory, Pair::SERVER_ADDRESSES[0], &cases);
    compare(&cases, &slow, "names that are profiles");
    agent.terminate();

    let agent = laboratory.start("\"xr0\"", &zones);
    for server in Pair::SERVER_ADDRESSES {
        let before = fast(&laboratory, &agent);
        let found = replies(&laboratory, server, &cases);
        same(&cases, &slow, &found, "the paths differ");
        let fast = fast(&laboratory, &agent) - before;
        assert!(fast >= FAST, "{server}: the fast path answered only {fast} of {CASES}");
    }
    agent.terminate();
}

/// Replies that the fast path has sent.
fn fast(laboratory: &Laboratory, agent: &Agent) -> u64 {
    let status = agent.status(&laboratory.pair.server);
    let count = |name: &str| status["counters"][name].as_u64().expect("a counter");
    count("answer_records") + count("answer_nodata")
}
