//! README's first configuration and its operator's day, command by command, as they stand there: in a namespace
//! with the addresses that the configuration names, `/etc/xroute`, `/run` and `/var/lib` of its own.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use router_tests::agent::{Agent, adopt_orphans, binary, eventually, wait_for_orphan};
use router_tests::netns::{Namespace, attach_pass, need_netns};
use router_tests::packet::Query;
use serde_json::Value;

/// The commands of the day, and what each has to say.
const DAY: &[(&str, &[&str])] = &[
    ("xroute status", &["www", "eu1", "us1", "Online"]),
    ("xroute top --once", &["www", "eu1", "us1"]),
    ("xroute explain www.gslb.example.com A --client 203.0.113.7", &["192.0.2.10", "3/4", "1/4"]),
    ("xroute map 198.51.100.7", &["198.51.100.7"]),
    ("xroute probe www/eu1", &["HEAD /health HTTP/1.1", "200", "healthy"]),
    ("xroute check /etc/xroute/new.toml", &["new.toml"]),
    ("xroute plan /etc/xroute/new.toml", &["new.gslb.example.com", "us1", "weight"]),
    ("xroute apply /etc/xroute/new.toml --reason \"more for us1\"", &["new.gslb.example.com"]),
    ("xroute generations", &["more for us1"]),
    ("xroute rollback --reason \"not on a Friday\"", &["new.gslb.example.com"]),
    ("xroute reload", &["generation"]),
    (
        "xroute endpoint disable 'www/eu*' --for 30m --reason \"kernel update\"",
        &["www/eu1: status enabled -> status disabled"],
    ),
    ("xroute override list", &["www/eu1: status disabled, by root", "(kernel update)", "ends in"]),
    ("xroute override clear www/eu1", &["www/eu1: status disabled -> status enabled"]),
    ("xroute endpoint weight 5 www/us1 --for 1h", &["www/us1: weight 1 -> weight 5"]),
    ("xroute drain www/us1 --wait", &["www/us1", "safe to stop"]),
    ("xroute endpoint enable www/us1", &["www/us1: status disabled -> status enabled"]),
    ("xroute watch --since 0 --count 5", &["started"]),
    (
        "xroute trace --name '*.gslb.example.com' --count 2",
        &["www.gslb.example.com. A answer_records NOERROR"],
    ),
    ("xroute doctor", &["eth0"]),
    ("xroute upgrade", &["serves instead of"]),
];

/// The text of the first block in such a fence behind a heading.
fn block<'t>(readme: &'t str, heading: &str, fence: &str) -> &'t str {
    let (_, section) = readme.split_once(heading).expect("the heading");
    let (_, block) = section.split_once(fence).expect("the block");
    block.split_once("```").expect("its end").0
}

/// A command line of README without what is said about it. No command has ` # ` in it.
fn command(line: &str) -> &str {
    line.split_once(" # ").map_or(line, |(command, _)| command).trim()
}

/// Namespaces joined by a wire, the server's with all that README's first configuration names.
fn set_up(readme: &str, program: &Path) -> (Namespace, Namespace) {
    let (server, client) = (Namespace::new(), Namespace::new());
    server.sh(&format!("ip link add eth0 type veth peer name xr1 netns {}", client.path()));
    server.sh("ip addr add 192.0.2.53/24 dev eth0; ip -6 addr add 2001:db8::53/64 dev eth0 nodad; ip link set eth0 up");
    client.sh("ip addr add 192.0.2.1/24 dev xr1; ip link set xr1 up");
    for address in ["192.0.2.10/32", "198.51.100.10/32", "2001:db8::10/128", "2001:db8:1::10/128"] {
        server.sh(&format!("ip addr add {address} dev lo"));
    }
    // Mounts of this namespace only, gone with it.
    server.sh("mount -t tmpfs none /mnt; mkdir /mnt/upper /mnt/work; \
         mount -t overlay -o lowerdir=/etc,upperdir=/mnt/upper,workdir=/mnt/work overlay /etc; \
         mount -t tmpfs none /run; mount -t tmpfs none /var/lib; mkdir -p /etc/xroute");
    let first = block(readme, "## First configuration", "```toml\n");
    let new = first
        .replace("weight  = 1\n", "weight  = 2\n")
        .replace("[\"www.gslb.example.com\"]", "[\"www.gslb.example.com\", \"new.gslb.example.com\"]");
    assert_ne!(first, new);
    server.run(|| {
        std::fs::write("/etc/xroute/xroute.toml", first).expect("writable");
        std::fs::write("/etc/xroute/new.toml", new).expect("writable");
    });
    server.sh(&format!("mkdir /mnt/bin; cp {} /mnt/bin/xroute", program.display()));
    (server, client)
}

/// What README's monitor asks for, on every address.
fn web(server: &Namespace) {
    for any in ["0.0.0.0:80", "[::]:80"] {
        // The second takes both families where the first could not be had.
        let Ok(listener) = server.run(|| TcpListener::bind(any)) else { continue };
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                // A probe that went away needs no answer.
                let _ = stream.read(&mut [0; 1024]);
                let _ =
                    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            }
        });
    }
}

/// Runs a line of a shell in the namespace, where `xroute` is the program under test.
fn run(server: &Namespace, line: &str) -> Output {
    let path = format!("/mnt/bin:{}", std::env::var("PATH").unwrap_or_default());
    server.command("sh").args(["-c", line]).env("PATH", path).output().expect("sh starts")
}

#[test]
fn netns_the_operators_day_is_as_the_readme_says() {
    if !need_netns() {
        return;
    }
    let readme = concat!(env!("CARGO_MANIFEST_DIR"), "/../README.md");
    let readme = std::fs::read_to_string(readme).expect("README");
    let lines: Vec<&str> = block(&readme, "## An operator's day", "```\n").lines().map(command).collect();
    let expected: Vec<&str> = DAY.iter().map(|(command, _)| *command).collect();
    assert_eq!(lines, expected, "README and this test have the same commands");

    adopt_orphans();
    let (server, client) = set_up(&readme, &binary());
    let _receive = client.run(|| attach_pass("xr1")).expect("XDP on the client's interface");
    web(&server);
    let check = run(&server, "xroute check");
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    let mut start = server.command("/mnt/bin/xroute");
    start.arg("run");
    let mut agent = Agent::spawn(start, Path::new("/run/xroute"));
    agent.wait_for("serving DNS");
    let ask = |socket: &UdpSocket, reply: &mut [u8]| {
        let query = Query::new("www.gslb.example.com", 1).bytes();
        socket.send(&query).and_then(|_| socket.recv(reply))
    };
    let stop = AtomicBool::new(false);
    let (day, heir, lost) = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            client.run(|| {
                let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
                socket.connect("192.0.2.53:53").expect("a route");
                socket.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
                let mut lost = 0;
                while !stop.load(Ordering::Relaxed) {
                    lost += usize::from(ask(&socket, &mut [0; 512]).is_err());
                    thread::sleep(Duration::from_millis(5));
                }
                lost
            })
        });
        let day = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually("both endpoints online", || {
                let status = run(&server, "xroute status");
                String::from_utf8_lossy(&status.stdout).matches("Online").count() >= 3
            });
            for (line, words) in DAY {
                let output = run(&server, line);
                let said = String::from_utf8_lossy(&output.stdout).into_owned();
                let why = String::from_utf8_lossy(&output.stderr).into_owned();
                println!("$ {line}\n{said}{why}");
                assert!(output.status.success(), "{line}: {}\n{said}{why}", output.status);
                for word in *words {
                    assert!(said.contains(word), "{line}: no {word:?} in\n{said}{why}");
                }
            }
        }));
        // The last command has made another process the agent.
        let status = run(&server, "xroute status --format json");
        let status: Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
        let heir = status["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        stop.store(true, Ordering::Relaxed);
        (day, heir.filter(|&pid| pid as u32 != agent.id()), asking.join().expect("it ends"))
    });
    let ended_well = heir.map(|heir| {
        // SAFETY: signals a process that this one has adopted and not waited for.
        unsafe { libc::kill(heir, libc::SIGTERM) };
        wait_for_orphan(heir)
    });
    if let Err(panic) = day {
        std::panic::resume_unwind(panic);
    }
    assert_eq!(ended_well, Some(true), "the upgrade made another process, which ended well");
    assert_eq!(lost, 0, "queries were lost");
    agent.end_of_child();
}
