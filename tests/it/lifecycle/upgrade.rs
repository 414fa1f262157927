//! `xroute upgrade` under load: nothing is lost, nothing is wrong, and one that fails changes nothing.

use std::time::Instant;

use super::load::Client;
use super::*;

const ALL: [Client; 6] = [
    Client::Address,
    Client::Text,
    Client::Connection,
    Client::Connection,
    Client::Connections,
    Client::Connections,
];
const OTHER: [u8; 4] = [192, 0, 2, 99];

fn upgrades(interfaces: &str) {
    let Some((pair, folder)) = set_up(interfaces) else { return };
    let folder = folder.path();
    let fast = !interfaces.is_empty();
    let mut agent = Agent::start_program(&pair.server, &program(folder), folder, &["--keep-attached"]);
    let load = Load::new(&pair, &ALL, &[WWW]);
    load.more(200);
    let cookie = fresh_cookie(&pair);

    // The same build, twice: what it was handed it can hand on.
    for _ in 0..2 {
        let old = agent.id();
        let report =
            agent.upgrade(&pair.server).unwrap_or_else(|why| panic!("{why}\n{}", agent.log().join("\n")));
        assert_eq!(report["old_pid"], old);
        assert_ne!(agent.id(), old);
        load.more(200);
        assert_eq!(load.wrong(), Vec::<String>::new());
    }
    if fast {
        agent.wait_for("adopted what was running");
    }
    assert!(cookie_is_good(&pair, &cookie), "the secret of cookies went over");

    // Another build with another configuration.
    install(folder, &another_build());
    configure(folder, OTHER, interfaces, "", "");
    load.allow(&[WWW, OTHER]);
    agent.upgrade(&pair.server).unwrap_or_else(|why| panic!("{why}\n{}", agent.log().join("\n")));
    if fast {
        agent.wait_for("replaced what was running: it is another build");
    }
    load.allow(&[OTHER]);
    load.more(200);
    let connections: Vec<String> =
        agent.log().into_iter().filter(|line| line.contains("has handed over everything")).collect();
    assert_eq!(connections.len(), 3, "{connections:?}");
    let status = agent.status(&pair.server);
    assert_eq!(status["pid"], agent.id());

    // Nobody was left over, and everything is put away at the end.
    let asked = load.end();
    assert!(asked > 1000, "{asked}");
    agent.terminate();
    assert!(!folder.join("control.sock").exists());
}

#[test]
fn netns_an_upgrade_loses_nothing_with_a_fast_path() {
    upgrades("\"xr0\"");
}

#[test]
fn netns_an_upgrade_loses_nothing_without_one() {
    upgrades("");
}

/// Upgrades that cannot be, each for another reason; the old agent goes on.
fn failures(interfaces: &str) {
    let Some((pair, folder)) = set_up(interfaces) else { return };
    let folder = folder.path();
    let mut agent = Agent::start_program(&pair.server, &program(folder), folder, &[]);
    let load = Load::new(&pair, &ALL, &[WWW]);
    load.more(100);
    let old = agent.id();
    let good = fs::read(binary()).expect("the program");
    let refuse = |agent: &mut Agent, what: &str, expected: &str| {
        let began = Instant::now();
        let why = agent.upgrade(&pair.server).expect_err(what);
        assert!(why.contains(expected), "{what}: {why}");
        assert!(began.elapsed() < Duration::from_secs(60), "{what} took {:?}", began.elapsed());
        assert_eq!((agent.id(), agent.status(&pair.server)["pid"].as_u64()), (old, Some(u64::from(old))));
        load.more(100);
        assert_eq!(load.wrong(), Vec::<String>::new(), "{what}");
    };
    for (program, expected) in [
        ("no program", "cannot start"),
        ("#!/bin/sh\nexit 3\n", "ended before it had a configuration"),
        ("#!/bin/sh\nkill -9 $$\n", "ended before it had a configuration"),
        ("#!/bin/sh\necho something else >&0\n", "out of turn"),
    ] {
        install(folder, program.as_bytes());
        refuse(&mut agent, program, if program.contains("echo") { "the new agent ended" } else { expected });
    }
    install(folder, &another_build());
    configure(folder, OTHER, interfaces, "nonsense = 1", "");
    refuse(&mut agent, "a configuration with a mistake", "xroute.toml:7:1: unknown key");
    // It is found only after everything was handed over.
    configure(folder, OTHER, "\"nowhere0\"", "", "");
    let expected =
        if interfaces.is_empty() { "has given up the capabilities for them: restart it" } else { "nowhere0" };
    refuse(&mut agent, "an interface that is not there", expected);
    configure(folder, OTHER, interfaces, "", "");
    fs::create_dir_all(folder.join("state")).expect("writable");
    fs::write(folder.join("state/overrides.json"), "{").expect("writable");
    refuse(&mut agent, "overrides that cannot be read", "overrides.json");
    fs::remove_file(folder.join("state/overrides.json")).expect("it is there");
    fs::rename(folder.join("xroute.toml"), folder.join("aside")).expect("renamed");
    refuse(&mut agent, "no configuration", "xroute.toml");
    assert_eq!(
        agent.log().iter().filter(|line| line.contains("upgrade failed, this agent goes on")).count(),
        7
    );

    // And all is as before: a change, then an upgrade that succeeds.
    configure(folder, WWW, interfaces, "", "");
    install(folder, &good);
    let disable =
        agent.command(&pair.server, &["override", "clear", "--all"]).output().expect("xroute starts");
    assert!(disable.status.success() || String::from_utf8_lossy(&disable.stderr).contains("override"));
    agent.upgrade(&pair.server).expect("a good one");
    load.more(100);
    load.end();
    agent.terminate();
    let shown = pair.server.sh("ip -details link show xr0");
    assert!(!shown.contains("xdp"), "{shown}");
}

#[test]
fn netns_an_upgrade_that_fails_changes_nothing_with_a_fast_path() {
    failures("\"xr0\"");
}

#[test]
fn netns_an_upgrade_that_fails_changes_nothing_without_one() {
    failures("");
}

/// A query's reply with a COOKIE option, for a client cookie and perhaps a server cookie; its option and RCODE.
fn with_cookie(pair: &Pair, option: &[u8]) -> Vec<u8> {
    use router_tests::packet::{Query, rtype};
    let query = Query::new("www.gslb.test", rtype::TXT).edns(1232).option(10, option).bytes();
    pair.client.run(|| {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
        socket.connect((Pair::SERVER_ADDRESSES[0], 53)).expect("a route");
        socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        socket.send(&query).expect("it is sent");
        let mut reply = [0; 1500];
        let len = socket.recv(&mut reply).expect("a reply");
        let at = reply[..len].windows(4).position(|octets| octets == [0, 10, 0, 24]).expect("a cookie");
        reply[at + 4..at + 28].to_vec()
    })
}

fn fresh_cookie(pair: &Pair) -> Vec<u8> {
    with_cookie(pair, b"a client")
}

/// A good cookie that is young comes back as it is; any other is made anew.
fn cookie_is_good(pair: &Pair, cookie: &[u8]) -> bool {
    // So that one made anew has another time.
    std::thread::sleep(Duration::from_millis(1100));
    with_cookie(pair, cookie) == cookie
}
