//! One probe against servers that misbehave: the right outcome, in bounded time, with nothing left behind.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use router_common::health::{Observation, Outcome, ProbeFault, Stage};
use router_common::model::{Connection, HttpProbe, ProbeDestination, ProbeMethod, ProbeTarget, Trust};

use super::server::{Act, OK, Server, client_sockets};
use super::{connection, get, http, https, request, tcp};
use crate::probe::{BODY_LIMIT, Prober, Settings, USER_AGENT, probe_once, sendable};

const TIMEOUT: Duration = Duration::from_millis(700);

/// Probes; fails when it takes much longer than the timeout, or leaves a task or a connection.
async fn probe(target: &ProbeTarget, server: &Server) -> Observation {
    let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let connections = server.connections();
    let prober = Prober::new(Settings::default());
    let begun = Instant::now();
    let observation = prober.probe(target, TIMEOUT).await;
    assert!(begun.elapsed() < 2 * TIMEOUT, "{:?}", begun.elapsed());
    server.assert_no_connection().await;
    // What the server's own tasks do is its business: they end when the connection does, or still sleep.
    let now = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let served = server.connections() - connections;
    assert!(now <= tasks + served, "{tasks} tasks before, {now} after");
    observation
}

fn fault(fault: ProbeFault) -> Outcome {
    Outcome::Fault(fault)
}

fn head(text: &str) -> Vec<u8> {
    text.replace('\n', "\r\n").into_bytes()
}

#[tokio::test]
async fn each_misbehaviour_has_its_outcome() {
    let slow = Duration::from_millis(100);
    let hundred = b"x".repeat(100);
    for (what, act, outcome) in [
        ("answers", Act::Reply(OK.to_vec()), Outcome::Status(200)),
        ("answers and closes", Act::Close(OK.to_vec()), Outcome::Status(200)),
        ("answers late, within the time", Act::Late(slow, OK.to_vec()), Outcome::Status(200)),
        (
            "answers too late",
            Act::Late(Duration::from_secs(30), OK.to_vec()),
            fault(ProbeFault::Timeout(Stage::Response)),
        ),
        ("never answers", Act::Silent, fault(ProbeFault::Timeout(Stage::Response))),
        (
            "drips the head",
            Act::Drip(Vec::new(), OK.to_vec(), slow),
            fault(ProbeFault::Timeout(Stage::Response)),
        ),
        (
            "drips the body",
            Act::Drip(head("HTTP/1.1 200 OK\nContent-Length: 100\n\n"), hundred.clone(), slow),
            fault(ProbeFault::Timeout(Stage::Body)),
        ),
        ("resets", Act::Reset(Vec::new()), fault(ProbeFault::Reset)),
        (
            "resets in the body",
            Act::Reset(head("HTTP/1.1 200 OK\nContent-Length: 100\n\nhalf")),
            fault(ProbeFault::Reset),
        ),
        ("closes without a word", Act::Close(Vec::new()), fault(ProbeFault::Closed)),
        ("half a head", Act::Close(head("HTTP/1.1 200 OK\nContent-Le")), fault(ProbeFault::Closed)),
        (
            "half a body",
            Act::Close(head("HTTP/1.1 200 OK\nContent-Length: 100\n\nhalf")),
            fault(ProbeFault::Closed),
        ),
        (
            "half a chunked body",
            Act::Close(head("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n64\nhalf")),
            fault(ProbeFault::Closed),
        ),
        (
            "claims more than it has, and waits",
            Act::Reply(head("HTTP/1.1 200 OK\nContent-Length: 100\n\nhalf")),
            fault(ProbeFault::Timeout(Stage::Body)),
        ),
        (
            "claims less than it sends",
            Act::Reply(head("HTTP/1.1 200 OK\nContent-Length: 2\n\nlonger than two")),
            Outcome::Status(200),
        ),
        (
            "claims no number",
            Act::Reply(head("HTTP/1.1 200 OK\nContent-Length: many\n\nx")),
            fault(ProbeFault::Protocol),
        ),
        (
            "a whole chunked body",
            Act::Reply(head("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n4\nfour\n0\n\n")),
            Outcome::Status(200),
        ),
        ("a body up to the end", Act::Close(head("HTTP/1.0 200 OK\n\nall there is")), Outcome::Status(200)),
        (
            "redirects",
            Act::Reply(head("HTTP/1.1 302 Found\nLocation: http://127.0.0.1:1/\nContent-Length: 0\n\n")),
            Outcome::Status(302),
        ),
        ("an error", Act::Reply(head("HTTP/1.1 503 No\nContent-Length: 0\n\n")), Outcome::Status(503)),
        (
            "an interim response first",
            Act::Reply(head("HTTP/1.1 103 Early Hints\n\nHTTP/1.1 200 OK\nContent-Length: 0\n\n")),
            Outcome::Status(200),
        ),
        (
            "another protocol",
            Act::Reply(b"220 mail.example.test ESMTP\r\n".to_vec()),
            fault(ProbeFault::Protocol),
        ),
        ("a head without end", Act::Flood(head("HTTP/1.1 200 OK\nX-Long: ")), fault(ProbeFault::Protocol)),
        (
            "a body without end",
            Act::Flood(head("HTTP/1.1 200 OK\nContent-Type: text/plain\n\n")),
            Outcome::Status(200),
        ),
    ] {
        let server = Server::start(act).await;
        let observation = probe(&get(server.address), &server).await;
        assert_eq!(observation.outcome, outcome, "{what}");
        assert_eq!(observation.latency.is_some(), matches!(outcome, Outcome::Status(_)), "{what}");
        assert_eq!(server.connections(), 1, "{what}");
        server.stop().await;
    }
    assert_eq!(tokio::runtime::Handle::current().metrics().num_alive_tasks(), 0);
}

#[tokio::test]
async fn latency_is_up_to_the_last_octet() {
    let pause = Duration::from_millis(30);
    let act = Act::Drip(head("HTTP/1.1 200 OK\nContent-Length: 5\n\n"), b"12345".to_vec(), pause);
    let server = Server::start(act).await;
    let latency = probe(&get(server.address), &server).await.latency.unwrap();
    assert!((5 * pause..TIMEOUT).contains(&latency), "{latency:?}");
    // To HEAD there is no body, whatever the head claims: the farewell is not part of the latency either.
    let silent_after = Server::start(Act::Reply(head("HTTP/1.1 200 OK\nContent-Length: 5\n\n"))).await;
    let observation = probe(&http(silent_after.address), &silent_after).await;
    assert_eq!(observation.outcome, Outcome::Status(200));
    assert!(observation.latency.unwrap() < TIMEOUT / 2);
}

#[tokio::test]
async fn sends_what_is_configured() {
    let server = Server::start(Act::Reply(OK.to_vec())).await;
    let plain = http(server.address);
    probe(&plain, &server).await;
    let full = HttpProbe {
        method: ProbeMethod::Get,
        path: "/health?deep=1".to_owned(),
        host: "2001:db8::1".to_owned(),
        headers: vec![("X-Probe".to_owned(), "a b".to_owned()), ("user-agent".to_owned(), "mine".to_owned())],
        ..request(server.address)
    };
    probe(&ProbeTarget::Http(full), &server).await;
    let named = HttpProbe { user_agent: Some("monitor 7".to_owned()), ..request(server.address) };
    probe(&ProbeTarget::Http(named), &server).await;
    assert_eq!(
        server.requests(),
        [
            format!(
                "HEAD / HTTP/1.1\r\nHost: www.example.test\r\nUser-Agent: {USER_AGENT}\r\nAccept: */*\r\n\
                 Connection: close\r\n\r\n"
            ),
            "GET /health?deep=1 HTTP/1.1\r\nHost: [2001:db8::1]\r\nAccept: */*\r\nX-Probe: a b\r\n\
             User-Agent: mine\r\nConnection: close\r\n\r\n"
                .to_owned(),
            "HEAD / HTTP/1.1\r\nHost: www.example.test\r\nUser-Agent: monitor 7\r\nAccept: */*\r\n\
             Connection: close\r\n\r\n"
                .to_owned(),
        ]
    );
    assert_eq!(server.connections(), 3, "a new connection each time");
    assert_eq!(USER_AGENT, format!("xroute/{} health-probe", env!("CARGO_PKG_VERSION")));
}

#[tokio::test]
async fn the_transcript_is_what_went_over_the_wire() {
    let reply = head("HTTP/1.1 404 Nothing Here\nX-From: \u{9b}31mred\nContent-Length: 4\n\ngone");
    let server = Server::start(Act::Reply(reply.clone())).await;
    let (observation, transcript) = probe_once(&get(server.address), TIMEOUT).await;
    assert_eq!(observation.outcome, Outcome::Status(404));
    assert_eq!(vec![String::from_utf8(transcript.sent.clone()).unwrap()], server.requests());
    assert_eq!(transcript.got, reply);
    assert_eq!(transcript.status_line().as_deref(), Some("HTTP/1.1 404 Nothing Here"));
    assert_eq!((transcript.body, transcript.body_cut), (4, false));
    assert_eq!(transcript.tried, [server.address]);
    let times = transcript.timings;
    assert!(times.connected <= times.answered && times.answered <= times.finished, "{times:?}");
    let text = transcript.to_string();
    for line in
        ["* connect to 127.0.0.1:", "> GET / HTTP/1.1\n", "> Host: www.example.test\n", "< HTTP/1.1 404"]
    {
        assert!(text.contains(line), "{line} in\n{text}");
    }
    assert!(!text.contains('\u{9b}'), "no control characters from a server on a terminal");
}

#[tokio::test]
async fn a_failure_is_told_as_far_as_it_came() {
    let server = Server::start(Act::Close(head("HTTP/1.1 200 OK\nContent-Length: 100\n\nhalf"))).await;
    let (observation, transcript) = probe_once(&get(server.address), TIMEOUT).await;
    assert_eq!(observation.outcome, fault(ProbeFault::Closed));
    assert_eq!(transcript.stage, Stage::Body);
    assert_eq!(transcript.status_line().as_deref(), Some("HTTP/1.1 200 OK"));
    assert!(transcript.error.is_some());
    let silent = Server::start(Act::Silent).await;
    let (_, transcript) = probe_once(&get(silent.address), TIMEOUT).await;
    assert!(transcript.to_string().contains("timeout waiting for the response, after 700ms"), "{transcript}");
    assert!(transcript.status_line().is_none());
}

#[tokio::test]
async fn a_long_body_is_cut_and_counts() {
    let length = 10 * BODY_LIMIT;
    let act = Act::Flood(head(&format!("HTTP/1.1 200 OK\nContent-Length: {length}\n\n")));
    let server = Server::start(act).await;
    let (observation, transcript) = probe_once(&get(server.address), Duration::from_secs(5)).await;
    assert_eq!(observation.outcome, Outcome::Status(200));
    assert!(transcript.body_cut && (BODY_LIMIT..2 * BODY_LIMIT).contains(&transcript.body));
    assert!(transcript.got.len() <= 16 * 1024);
    server.assert_no_connection().await;
}

#[tokio::test]
async fn tcp_is_healthy_when_it_connects() {
    let server = Server::start(Act::Silent).await;
    let observation = probe(&tcp(server.address), &server).await;
    assert_eq!(observation.outcome, Outcome::Connected);
    assert!(observation.latency.unwrap() < TIMEOUT);
    assert!(server.requests().is_empty());
    let address = server.address;
    server.stop().await;
    for target in [tcp(address), http(address)] {
        let (observation, _) = probe_once(&target, TIMEOUT).await;
        assert_eq!(observation.outcome, fault(ProbeFault::Refused));
    }
}

#[tokio::test]
async fn ipv6_works_alike() {
    let server = Server::bind("[::1]:0", Act::Reply(OK.to_vec()), None).await;
    assert_eq!(probe(&http(server.address), &server).await.outcome, Outcome::Status(200));
}

#[tokio::test]
async fn a_server_that_never_accepts() {
    // The kernel completes connections up to the backlog; what is said over them nobody reads.
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let prober = Prober::new(Settings::default());
    let first = prober.probe(&http(address), TIMEOUT).await;
    assert_eq!(first.outcome, fault(ProbeFault::Timeout(Stage::Response)));
    // With the backlog full, not even the connection comes about.
    let mut held = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(Duration::from_millis(200), tokio::net::TcpStream::connect(address)).await
    {
        held.push(stream);
        assert!(held.len() < 100, "the backlog has no end");
    }
    let before = client_sockets(address.port()).len();
    for target in [tcp(address), http(address), https(address, Trust::System)] {
        let begun = Instant::now();
        let full = prober.probe(&target, TIMEOUT).await;
        assert_eq!(full.outcome, fault(ProbeFault::Timeout(Stage::Connect)));
        assert!(begun.elapsed() < 2 * TIMEOUT);
    }
    assert_eq!(client_sockets(address.port()).len(), before);
}

#[tokio::test]
async fn a_dropped_probe_is_gone() {
    let server = Server::start(Act::Silent).await;
    let prober = Prober::new(Settings::default());
    let target = get(server.address);
    let given_up =
        tokio::time::timeout(Duration::from_millis(100), prober.probe(&target, Duration::from_secs(60)));
    assert!(given_up.await.is_err());
    assert_eq!(server.connections(), 1);
    server.assert_no_connection().await;
}

#[tokio::test]
async fn names_are_resolved_by_the_system() {
    let server = Server::start(Act::Reply(OK.to_vec())).await;
    let named = |name: &str| {
        let destination = ProbeDestination::Domain(name.parse().unwrap());
        let connection = Connection { destination, ..connection(server.address) };
        ProbeTarget::Http(HttpProbe { connection, ..request(server.address) })
    };
    // localhost may be ::1 first, where nobody listens: the next address is tried.
    let (observation, transcript) = probe_once(&named("localhost"), Duration::from_secs(2)).await;
    assert_eq!(observation.outcome, Outcome::Status(200), "{transcript}");
    assert_eq!(transcript.tried.last(), Some(&server.address));
    let (observation, transcript) = probe_once(&named("no-such-host.invalid"), Duration::from_secs(2)).await;
    assert!(
        matches!(
            observation.outcome,
            Outcome::Fault(ProbeFault::Resolve | ProbeFault::Timeout(Stage::Resolve))
        ),
        "{observation:?} {transcript}"
    );
    assert!(transcript.error.is_some());
}

#[tokio::test]
async fn what_cannot_be_sent_is_not_sent() {
    let server = Server::start(Act::Reply(OK.to_vec())).await;
    let good = request(server.address);
    assert_eq!(sendable(&http(server.address)), Ok(()));
    let header = |name: &str, value: &str| vec![(name.to_owned(), value.to_owned())];
    for (bad, word) in [
        (HttpProbe { path: "health".into(), ..good.clone() }, "health"),
        (HttpProbe { path: "/a b".into(), ..good.clone() }, "/a b"),
        (HttpProbe { host: "a\r\nX-Injected: 1".into(), ..good.clone() }, "Injected"),
        (HttpProbe { headers: header("X Y", "1"), ..good.clone() }, "X Y"),
        (HttpProbe { headers: header("X-Y", "1\r\nZ: 2"), ..good.clone() }, "X-Y"),
        (HttpProbe { headers: header("Content-Length", "5"), ..good.clone() }, "Content-Length"),
        (HttpProbe { headers: header("Connection", "keep-alive"), ..good.clone() }, "Connection"),
        (HttpProbe { tls: Some(Trust::System), host: "not a name".into(), ..good.clone() }, "not a name"),
    ] {
        let plain = bad.tls.is_none();
        let bad = ProbeTarget::Http(bad);
        let said = sendable(&bad).unwrap_err();
        assert!(said.contains(word), "{said}");
        if plain {
            assert_eq!(probe(&bad, &server).await.outcome, fault(ProbeFault::Unsendable));
        }
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn hosts_without_a_way_are_unreachable() {
    // Class E: the kernel has no way to send there.
    let nowhere = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(255, 255, 255, 255)), 80);
    let (observation, transcript) = probe_once(&http(nowhere), TIMEOUT).await;
    assert_eq!(observation.outcome, fault(ProbeFault::Unreachable), "{transcript}");
}
