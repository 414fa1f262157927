//! The sockets, over loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::*;
use crate::dns::{Server, serve, serve_on, sockets};
use crate::settings::Tcp;

const LOOPBACKS: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

struct Running {
    server: Server,
    services: watch::Sender<Arc<Service>>,
    counts: Arc<Counts>,
}

async fn start(tcp: Tcp, listen: &[&str]) -> Running {
    let service = Service { settings: Arc::new(Dns { tcp, ..Dns::default() }), ..service() };
    let (services, receiver) = watch::channel(Arc::new(service));
    let counts = Arc::new(Counts::default());
    let listen = listen.iter().map(|address| address.parse().unwrap()).collect();
    let server = serve(listen, receiver, counts.clone()).await.unwrap();
    Running { server, services, counts }
}

async fn ask_udp(from: &str, to: SocketAddr, query: &[u8]) -> Vec<u8> {
    let socket = UdpSocket::bind(from).await.unwrap();
    // A connected socket takes a reply from no other address.
    socket.connect(to).await.unwrap();
    socket.send(query).await.unwrap();
    let mut reply = vec![0; 65535];
    let len = timeout(Duration::from_secs(5), socket.recv(&mut reply)).await.expect("a reply").unwrap();
    reply.truncate(len);
    reply
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

async fn read_reply(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let read = async {
        let len = stream.read_u16().await.ok()?;
        let mut reply = vec![0; usize::from(len)];
        stream.read_exact(&mut reply).await.ok()?;
        Some(reply)
    };
    timeout(Duration::from_secs(5), read).await.expect("a reply or the end")
}

fn any_port(address: SocketAddr) -> &'static str {
    if address.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }
}

#[tokio::test]
async fn udp_and_tcp_answer_on_every_address() {
    let running = start(Tcp::default(), &LOOPBACKS).await;
    let query = plain(WWW, A);
    let expected = ask(&service(), &query).unwrap();
    for &address in running.server.addresses() {
        assert_eq!(ask_udp(any_port(address), address, &query).await, expected);
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&framed(&query)).await.unwrap();
        assert_eq!(read_reply(&mut stream).await.unwrap(), expected);
    }
    assert_eq!(running.counts.get(Counter::ServerRecords), 4);
    running.server.stop().await;
}

#[tokio::test]
async fn wildcard_addresses_reply_from_the_address_that_was_asked() {
    let running = start(Tcp::default(), &["0.0.0.0:0", "[::]:0"]).await;
    let [v4, v6] = [running.server.addresses()[0].port(), running.server.addresses()[1].port()];
    let query = plain(WWW, A);
    // From the wildcard the kernel would choose 127.0.0.1, and the client would not take the reply.
    for to in ["127.0.0.1", "127.1.2.3", "127.200.0.9"] {
        let to = SocketAddr::new(to.parse().unwrap(), v4);
        assert_eq!(ask_udp("127.0.0.1:0", to, &query).await, ask(&service(), &query).unwrap());
    }
    let to = SocketAddr::new("::1".parse().unwrap(), v6);
    assert_eq!(ask_udp("[::1]:0", to, &query).await, ask(&service(), &query).unwrap());
    running.server.stop().await;
}

#[tokio::test]
async fn a_second_server_on_the_address_is_told_so() {
    let running = start(Tcp::default(), &["127.0.0.1:0"]).await;
    let address = running.server.addresses()[0];
    let (_services, receiver) = watch::channel(Arc::new(service()));
    let error = serve(vec![address], receiver, Arc::default()).await.err().expect("the address is taken");
    assert!(error.to_string().contains(&address.to_string()), "{error:#}");
    running.server.stop().await;
}

#[tokio::test]
async fn a_new_service_answers_the_next_query() {
    let running = start(Tcp::default(), &["127.0.0.1:0"]).await;
    let address = running.server.addresses()[0];
    let query = plain(WWW, A);
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&framed(&query)).await.unwrap();
    read_reply(&mut stream).await.unwrap();
    ask_udp("127.0.0.1:0", address, &query).await;
    running.services.send_replace(Arc::new(service_of(vec![zone(OTHER)], Vec::new())));
    assert_eq!(show(&ask_udp("127.0.0.1:0", address, &query).await), "REFUSED qd1\n");
    stream.write_all(&framed(&query)).await.unwrap();
    assert_eq!(show(&read_reply(&mut stream).await.unwrap()), "REFUSED qd1\n");
    running.server.stop().await;
}

#[tokio::test]
async fn tcp_takes_queries_in_any_pieces() {
    let running = start(Tcp::default(), &["127.0.0.1:0"]).await;
    let query = plain(WWW, A);
    let mut stream = TcpStream::connect(running.server.addresses()[0]).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for octet in framed(&query) {
        stream.write_all(&[octet]).await.unwrap();
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(read_reply(&mut stream).await, ask(&service(), &query));
    // One and a half queries at once, then the rest.
    let both = [framed(&query), framed(&query)].concat();
    let (first, rest) = both.split_at(both.len() * 3 / 4);
    stream.write_all(first).await.unwrap();
    assert_eq!(read_reply(&mut stream).await, ask(&service(), &query));
    stream.write_all(rest).await.unwrap();
    assert_eq!(read_reply(&mut stream).await, ask(&service(), &query));
    running.server.stop().await;
}

#[tokio::test]
async fn tcp_answers_twenty_pipelined_queries_after_a_half_close() {
    let running = start(Tcp::default(), &["127.0.0.1:0"]).await;
    let mut stream = TcpStream::connect(running.server.addresses()[0]).await.unwrap();
    let mut sent = Vec::new();
    for id in 0..20u8 {
        let mut query = plain(WWW, A);
        query[1] = id;
        sent.extend_from_slice(&framed(&query));
    }
    stream.write_all(&sent).await.unwrap();
    stream.shutdown().await.unwrap();
    for id in 0..20u8 {
        assert_eq!(read_reply(&mut stream).await.unwrap()[1], id);
    }
    assert_eq!(read_reply(&mut stream).await, None);
    running.server.stop().await;
}

#[tokio::test]
async fn tcp_closes_on_messages_without_a_header() {
    let running = start(Tcp::default(), &["127.0.0.1:0"]).await;
    for scrap in [vec![0, 0], vec![0, 5, 1, 2, 3, 4, 5], vec![0, 11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]] {
        let mut stream = TcpStream::connect(running.server.addresses()[0]).await.unwrap();
        stream.write_all(&scrap).await.unwrap();
        assert_eq!(read_reply(&mut stream).await, None);
    }
    // The longest message, and a response, which gets no reply, leave the connection usable.
    let mut stream = TcpStream::connect(running.server.addresses()[0]).await.unwrap();
    let query = plain(WWW, A);
    let mut longest = query.clone();
    longest.resize(65535, 0);
    stream.write_all(&framed(&longest)).await.unwrap();
    assert_eq!(read_reply(&mut stream).await, ask(&service(), &query));
    let mut response = query.clone();
    response[2] |= 0x80;
    stream.write_all(&[framed(&response), framed(&query)].concat()).await.unwrap();
    assert_eq!(read_reply(&mut stream).await, ask(&service(), &query));
    running.server.stop().await;
}

#[tokio::test]
async fn tcp_goes_on_after_a_format_error() {
    let running = start(Tcp::default(), &["127.0.0.1:0"]).await;
    let mut stream = TcpStream::connect(running.server.addresses()[0]).await.unwrap();
    let bad = [header(0, [2, 0, 0, 0]), question(WWW, A, 1)].concat();
    stream.write_all(&framed(&bad)).await.unwrap();
    assert_eq!(show(&read_reply(&mut stream).await.unwrap()), "FORMERR qd0\n");
    stream.write_all(&framed(&plain(WWW, A))).await.unwrap();
    assert_eq!(read_reply(&mut stream).await, ask(&service(), &plain(WWW, A)));
    running.server.stop().await;
}

#[tokio::test]
async fn tcp_closes_idle_connections_and_half_sent_queries() {
    let idle = Duration::from_millis(200);
    let running = start(Tcp { idle, ..Tcp::default() }, &["127.0.0.1:0"]).await;
    let begun = Instant::now();
    let mut quiet = TcpStream::connect(running.server.addresses()[0]).await.unwrap();
    let mut slow = TcpStream::connect(running.server.addresses()[0]).await.unwrap();
    // An octet of a long query now and then does not keep a connection.
    let drip = async {
        let mut octet = [0];
        while begun.elapsed() < Duration::from_secs(4) {
            let sent = slow.write_all(&[0xff]).await;
            if sent.is_err() || timeout(Duration::from_millis(50), slow.read(&mut octet)).await.is_ok() {
                return;
            }
        }
        panic!("still open");
    };
    let (closed, ()) = tokio::join!(read_reply(&mut quiet), drip);
    assert_eq!(closed, None);
    assert!(begun.elapsed() >= idle);
    running.server.stop().await;
}

#[tokio::test]
async fn tcp_closes_clients_that_do_not_take_their_replies() {
    let idle = Duration::from_millis(300);
    let running = start(Tcp { idle, ..Tcp::default() }, &["127.0.0.1:0"]).await;
    let mut stream = TcpStream::connect(running.server.addresses()[0]).await.unwrap();
    let queries = framed(&plain("deleg.example.test", A)).repeat(100);
    let begun = Instant::now();
    // First the replies fill what the kernel holds, then the server reads no more, then it closes.
    while let Ok(Ok(())) = timeout(Duration::from_secs(5), stream.write_all(&queries)).await {}
    assert!(begun.elapsed() < Duration::from_secs(20));
    let answered = running.counts.get(Counter::ServerReferral);
    tokio::time::sleep(idle).await;
    assert_eq!(running.counts.get(Counter::ServerReferral), answered);
    running.server.stop().await;
}

#[tokio::test]
async fn tcp_replies_to_queries_that_came_together_leave_together() {
    let running = start(Tcp::default(), &["127.0.0.1:0"]).await;
    let mut stream = TcpStream::connect(running.server.addresses()[0]).await.unwrap();
    let query = plain(WWW, A);
    let reply = framed(&ask(&service(), &query).unwrap());
    stream.write_all(&framed(&query).repeat(20)).await.unwrap();
    let mut read = vec![0; 4096];
    let len = timeout(Duration::from_secs(5), stream.read(&mut read)).await.unwrap().unwrap();
    assert_eq!(read[..len], reply.repeat(20));
    // And more than is gathered at once.
    stream.write_all(&framed(&query).repeat(2000)).await.unwrap();
    for _ in 0..2000 {
        assert_eq!(framed(&read_reply(&mut stream).await.unwrap()), reply);
    }
    running.server.stop().await;
}

#[tokio::test]
async fn udp_takes_the_longest_datagram_and_stops_at_once() {
    let running = start(Tcp::default(), &LOOPBACKS).await;
    let query = plain(WWW, A);
    for &address in running.server.addresses() {
        let mut longest = query.clone();
        longest.resize(if address.is_ipv4() { 65_507 } else { 65_487 }, 0);
        assert_eq!(ask_udp(any_port(address), address, &longest).await, ask(&service(), &query).unwrap());
        assert_eq!(ask_udp(any_port(address), address, &query).await, ask(&service(), &query).unwrap());
    }
    let begun = Instant::now();
    running.server.stop().await;
    // Not by looking around.
    assert!(begun.elapsed() < Duration::from_millis(900), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn tcp_connections_are_limited_in_all_and_by_client() {
    let limits = Tcp { connections: 3, connections_per_client: 2, ..Tcp::default() };
    let running = start(limits, &["0.0.0.0:0"]).await;
    let port = running.server.addresses()[0].port();
    let connect = async |client: &str| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("{client}:0").parse().unwrap()).unwrap();
        let mut stream = socket.connect(format!("127.0.0.1:{port}").parse().unwrap()).await.unwrap();
        // A refused one may be reset before or after this.
        let _ = stream.write_all(&framed(&plain(WWW, A))).await;
        read_reply(&mut stream).await.map(|_| stream)
    };
    let mut first = connect("127.0.0.1").await.expect("the first of a client");
    let second = connect("127.0.0.1").await.expect("the second of a client");
    assert!(connect("127.0.0.1").await.is_none(), "a third of the same client");
    let _third = connect("127.0.0.2").await.expect("the first of another client");
    let _fourth = connect("127.0.0.3").await.expect("a fourth in all, for which the longest idle one goes");
    assert_eq!(read_reply(&mut first).await, None);
    drop(second);
    // The place is free again as soon as the server has seen the end.
    let mut again = None;
    for _ in 0..100 {
        again = connect("127.0.0.1").await;
        if again.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(again.is_some());
    running.server.stop().await;
}

#[tokio::test]
async fn stopping_ends_every_task_and_closes_connections() {
    let running = start(Tcp::default(), &LOOPBACKS).await;
    let address = running.server.addresses()[0];
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(&framed(&plain(WWW, A))).await.unwrap();
    read_reply(&mut stream).await.unwrap();
    let counts = Arc::downgrade(&running.counts);
    let Running { server, services, counts: held } = running;
    drop(held);
    server.stop().await;
    assert_eq!(counts.strong_count(), 0, "a task still holds the counters");
    assert_eq!(services.receiver_count(), 0);
    assert_eq!(read_reply(&mut stream).await, None);
    // The addresses are free.
    let (_services, receiver) = watch::channel(Arc::new(service()));
    serve(vec![address], receiver, Arc::default()).await.unwrap().stop().await;
}

#[tokio::test]
async fn udp_survives_scraps_and_answers_the_next_query() {
    let running = start(Tcp::default(), &["127.0.0.1:0"]).await;
    let address = running.server.addresses()[0];
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for len in [0, 1, 11] {
        socket.send_to(&vec![0; len], address).await.unwrap();
    }
    let query = plain(WWW, A);
    assert_eq!(ask_udp("127.0.0.1:0", address, &query).await, ask(&service(), &query).unwrap());
    running.server.stop().await;
}

/// Sockets and connections go over to another server, as to another process: a query that came in part is answered.
#[tokio::test(flavor = "multi_thread")]
async fn one_server_leaves_everything_to_another() {
    let old = start(Tcp::default(), &LOOPBACKS).await;
    let addresses = old.server.addresses().to_vec();
    let query = plain(WWW, A);
    let mut streams = Vec::new();
    for &address in &addresses {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(&framed(&query)).await.unwrap();
        read_reply(&mut stream).await.expect("the old one answers");
        let (half, rest) = {
            let whole = framed(&query);
            (whole[..9].to_vec(), whole[9..].to_vec())
        };
        stream.write_all(&half).await.unwrap();
        streams.push((stream, rest));
    }
    // So that the old one has read it.
    tokio::time::sleep(Duration::from_millis(100)).await;

    let mut given = sockets::Given::default();
    for descriptor in old.server.descriptors().unwrap() {
        let socket = socket2::SockRef::from(&descriptor);
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        if socket.r#type().unwrap() == socket2::Type::DGRAM {
            given.udp.push((address, descriptor.into()));
        } else {
            given.tcp.push((address, descriptor.into()));
        }
    }
    let listening = sockets::open(&addresses, &mut given).unwrap();
    assert!(listening.iter().all(|listening| listening.shared));
    let (_services, receiver) = watch::channel(Arc::new(service()));
    let counts = Arc::new(Counts::default());
    let new = serve_on(listening, receiver, counts.clone()).await.unwrap();
    let began = Instant::now();
    old.server.leave(new.arrivals()).await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let before = old.counts.get(Counter::ServerRecords);

    for (mut stream, rest) in streams {
        stream.write_all(&rest).await.unwrap();
        read_reply(&mut stream).await.expect("the new one answers");
    }
    for address in addresses {
        for _ in 0..8 {
            assert_eq!(ask_udp(any_port(address), address, &query).await[3] & 0xf, 0);
        }
    }
    assert_eq!(old.counts.get(Counter::ServerRecords), before);
    assert_eq!(counts.get(Counter::ServerRecords), 2 + 16);
    new.stop().await;
}
