//! Many TCP connections on a running agent: idle ones, slow ones, and those that are worth it.

use std::io;
use std::mem::size_of;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use router_tests::agent::Agent;
use router_tests::netns::{Namespace, need_netns};
use router_tests::packet::Query;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

const SERVER: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 53));
const NAME: &str = "www.gslb.test";
/// Connections that say nothing.
const IDLE: usize = 10_000;
/// Connections of one address, as many as the agent allows by default.
const EACH: usize = 100;
/// Connections that send an octet a second.
const SLOW: usize = 100;
/// Good queries in 10 ms, half of them over UDP and half on as many TCP connections.
const GOOD: usize = 10;
/// Rounds of 10 ms.
const ROUNDS: usize = 500;
/// What a connection may cost the agent, in octets of its resident memory.
const CONNECTION_COST: usize = 4096;
/// How long a reply may take on a machine that does other things as well.
const PATIENCE: Duration = Duration::from_secs(20);

fn configure(folder: &Path, tcp: &str) {
    let text = format!(
        r#"
[server]
interfaces = []
listen = ["127.0.0.1:53"]
control = "{folder}/control.sock"
state_dir = "{folder}/state"
[tcp]
{tcp}
[[zone]]
name = "gslb.test"
soa = {{ mname = "ns1.example.net.", rname = "hostmaster.example.net.", serial = 1, refresh = 3600, retry = 600, expire = 604800, minimum = 60 }}
ns = ["ns1.example.net."]
ttl = 3600
[[profile]]
name = "www"
names = ["{NAME}"]
method = "priority"
ttl = 30
monitor = "off"
  [[profile.endpoint]]
  name = "one"
  address = ["192.0.2.1"]
"#,
        folder = folder.display()
    );
    std::fs::write(folder.join("xroute.toml"), text).expect("the folder is writable");
}

fn query(id: u16) -> Vec<u8> {
    Query::new(NAME, 1).with(|query| query.id = id).bytes()
}

fn framed(id: u16) -> Vec<u8> {
    let query = query(id);
    [&(query.len() as u16).to_be_bytes()[..], &query].concat()
}

/// The id of a reply that holds the one record.
fn good(reply: &[u8]) -> u16 {
    assert_eq!((reply[3] & 0xf, reply[7]), (0, 1), "{reply:02x?}");
    u16::from_be_bytes([reply[0], reply[1]])
}

async fn connect(from: [u8; 4]) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((from, 0)))?;
    socket.connect(SERVER).await
}

async fn read_reply(stream: &mut TcpStream) -> io::Result<u16> {
    let len = stream.read_u16().await?;
    let mut reply = vec![0; usize::from(len)];
    stream.read_exact(&mut reply).await?;
    Ok(good(&reply))
}

/// Raises the limit of descriptors as far as is allowed.
fn raise_descriptors() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a whole struct that outlives the calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
    }
    assert!(
        limit.rlim_max as usize > IDLE + 1000,
        "{} descriptors are too few for this test",
        limit.rlim_max
    );
}

/// Resident memory of a process, in octets.
fn resident(process: u32) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("a process");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

#[test]
fn netns_ten_thousand_idle_connections_and_slow_ones_cost_good_clients_nothing() {
    if !need_netns() {
        return;
    }
    raise_descriptors();
    let folder = tempfile::tempdir().expect("a folder");
    configure(folder.path(), "idle = \"1m\"");
    let namespace = Namespace::new();
    let agent = Agent::start(&namespace, folder.path(), &[]);
    let process = agent.id();
    namespace.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let before = resident(process);
            let begun = Instant::now();
            let mut idle = Vec::with_capacity(IDLE);
            for at in 0..IDLE {
                idle.push(connect([127, 0, 1, (at / EACH) as u8]).await.expect("a connection"));
            }
            let mut slow = JoinSet::new();
            for _ in 0..SLOW {
                let mut stream = connect([127, 0, 2, 1]).await.expect("a connection");
                slow.spawn(async move {
                    for octet in framed(7) {
                        if stream.write_all(&[octet]).await.is_err() {
                            return;
                        }
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                });
            }
            // The last of them is accepted before a good client is.
            let mut late = connect([127, 0, 0, 9]).await.expect("a connection");
            late.write_all(&framed(1)).await.expect("a connection");
            assert_eq!(timeout(PATIENCE, read_reply(&mut late)).await.expect("a reply").expect("a reply"), 1);
            let opened = begun.elapsed();
            let after = resident(process);
            let slowest = ask_well().await;
            let end = resident(process);
            println!(
                "{} connections opened in {opened:?}; agent {} KiB before, {} after, {} at the end: {} octets each; \
                 slowest of {} good replies {slowest:?}",
                IDLE + SLOW,
                before >> 10,
                after >> 10,
                end >> 10,
                after.saturating_sub(before) / (IDLE + SLOW),
                GOOD * ROUNDS,
            );
            let bound = before + (IDLE + SLOW) * CONNECTION_COST + (16 << 20);
            assert!(after.max(end) < bound, "{after} or {end} octets, not below {bound}");
            // Nobody was closed for it.
            for stream in idle.iter_mut().step_by(97) {
                stream.write_all(&framed(2)).await.expect("still open");
                let reply = timeout(PATIENCE, read_reply(stream)).await;
                assert_eq!(reply.expect("in time").expect("still open"), 2);
            }
        });
    });
    agent.terminate();
}

/// A thousand good queries a second, over UDP and TCP; all are answered. How long the slowest took.
async fn ask_well() -> Duration {
    let over_udp = GOOD / 2;
    let udp = std::sync::Arc::new(UdpSocket::bind("127.0.0.1:0").await.expect("a socket"));
    udp.connect(SERVER).await.expect("a route");
    let mut readers = JoinSet::new();
    let sent = std::sync::Arc::new(std::sync::Mutex::new(vec![Instant::now(); GOOD * ROUNDS]));
    {
        let (udp, sent) = (udp.clone(), sent.clone());
        readers.spawn(async move {
            let mut seen = vec![false; GOOD * ROUNDS];
            let mut slowest = Duration::ZERO;
            let mut reply = [0; 512];
            for _ in 0..over_udp * ROUNDS {
                let len = udp.recv(&mut reply).await.expect("a reply");
                let id = usize::from(good(&reply[..len]));
                assert!(!std::mem::replace(&mut seen[id], true), "two replies to {id}");
                slowest = slowest.max(sent.lock().expect("no panic")[id].elapsed());
            }
            slowest
        });
    }
    let mut writers = Vec::new();
    for at in over_udp..GOOD {
        let (mut read, write) = connect([127, 0, 0, 1]).await.expect("a connection").into_split();
        writers.push(write);
        let sent = sent.clone();
        readers.spawn(async move {
            let mut slowest = Duration::ZERO;
            for round in 0..ROUNDS {
                let len = read.read_u16().await.expect("a reply");
                let mut reply = vec![0; usize::from(len)];
                read.read_exact(&mut reply).await.expect("a reply");
                let id = usize::from(good(&reply));
                assert_eq!(id, round * GOOD + at);
                slowest = slowest.max(sent.lock().expect("no panic")[id].elapsed());
            }
            slowest
        });
    }
    let mut clock = interval(Duration::from_millis(10));
    clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for round in 0..ROUNDS {
        clock.tick().await;
        for at in 0..GOOD {
            let id = round * GOOD + at;
            sent.lock().expect("no panic")[id] = Instant::now();
            match at.checked_sub(over_udp) {
                None => drop(udp.send(&query(id as u16)).await.expect("sent")),
                Some(at) => writers[at].write_all(&framed(id as u16)).await.expect("sent"),
            }
        }
        if round % 10 == 0 {
            // And somebody who comes anew each time.
            let mut stream = connect([127, 0, 0, 3]).await.expect("a connection");
            stream.write_all(&framed(3)).await.expect("sent");
            let reply = timeout(PATIENCE, read_reply(&mut stream)).await;
            assert_eq!(reply.expect("in time").expect("a reply"), 3);
        }
    }
    let all = async {
        let mut slowest = Duration::ZERO;
        while let Some(each) = readers.join_next().await {
            slowest = slowest.max(each.expect("a reader"));
        }
        slowest
    };
    timeout(PATIENCE, all).await.expect("every query is answered")
}

#[test]
fn netns_a_reload_changes_how_many_connections_there_may_be() {
    if !need_netns() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    configure(folder.path(), "connections_per_client = 2\nfast_open = false");
    let namespace = Namespace::new();
    let agent = Agent::start(&namespace, folder.path(), &[]);
    let ask = async |stream: &mut TcpStream| {
        stream.write_all(&framed(5)).await?;
        timeout(PATIENCE, read_reply(stream)).await.expect("a reply or the end")
    };
    let open = async |count: usize| {
        let mut streams = Vec::new();
        for _ in 0..count {
            let mut stream = connect([127, 0, 3, 1]).await.expect("a connection");
            if ask(&mut stream).await.is_ok() {
                streams.push(stream);
            }
        }
        streams.len()
    };
    namespace.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            assert_eq!(open(4).await, 2);
            configure(folder.path(), "connections_per_client = 30\nconnections = 3\nfast_open = true");
            let reloaded = agent.command(&namespace, &["reload"]).output().expect("xroute starts");
            assert!(reloaded.status.success(), "{}", String::from_utf8_lossy(&reloaded.stderr));
            // Each is answered; the first ones were closed for the last ones.
            assert_eq!(open(20).await, 20);
            let mut first = connect([127, 0, 3, 1]).await.expect("a connection");
            ask(&mut first).await.expect("a reply");
            assert_eq!(open(20).await, 20);
            assert!(ask(&mut first).await.is_err());
        });
        assert_eq!(fast_open(), [false, true], "the second query comes in the first segment");
    });
    agent.terminate();
}

/// Asks twice over connections that are opened by the first octets; whether these came with the first segment.
/// The first time there is no cookie for it.
fn fast_open() -> [bool; 2] {
    std::fs::write("/proc/sys/net/ipv4/tcp_fastopen", "3").expect("a setting of this namespace");
    [9u16, 10].map(|id| {
        // SAFETY: a descriptor that is checked and then owned.
        let socket = unsafe {
            let socket = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
            assert!(socket >= 0, "{}", io::Error::last_os_error());
            OwnedFd::from_raw_fd(socket)
        };
        let octets = framed(id);
        let address = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: 53u16.to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
            sin_zero: [0; 8],
        };
        // SAFETY: pointers to octets and an address that outlive the call, with their lengths.
        let sent = unsafe {
            libc::sendto(
                socket.as_raw_fd(),
                octets.as_ptr().cast(),
                octets.len(),
                libc::MSG_FASTOPEN,
                (&raw const address).cast(),
                size_of::<libc::sockaddr_in>() as u32,
            )
        };
        assert_eq!(sent, octets.len() as isize, "{}", io::Error::last_os_error());
        let mut stream = std::net::TcpStream::from(socket);
        let mut reply = [0; 2];
        io::Read::read_exact(&mut stream, &mut reply).expect("a reply");
        let mut reply = vec![0; usize::from(u16::from_be_bytes(reply))];
        io::Read::read_exact(&mut stream, &mut reply).expect("a reply");
        assert_eq!(good(&reply), id);
        // SAFETY: all zeros is a valid value of this struct of numbers.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut len = size_of::<libc::tcp_info>() as u32;
        // SAFETY: the kernel writes at most the given length into the struct.
        let got = unsafe {
            libc::getsockopt(
                stream.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info).cast(),
                &raw mut len,
            )
        };
        assert_eq!(got, 0, "{}", io::Error::last_os_error());
        // TCPI_OPT_SYN_DATA: data in the SYN was acknowledged.
        info.tcpi_options & 32 != 0
    })
}
