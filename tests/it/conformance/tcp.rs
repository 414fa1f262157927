//! DNS over TCP (RFC 7766): the cases T1 to T8 of the checklist, and those named there, on a running agent.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::time::{Duration, Instant};

use router_tests::netns::{Namespace, Pair};
use router_tests::packet::{Query, rtype};

use super::{Laboratory, ask, show, socket};

/// A connection to the server.
pub struct Connection(TcpStream);

impl Connection {
    /// Connects from inside a namespace.
    ///
    /// # Panics
    /// When nobody listens.
    pub fn open(client: &Namespace, server: &str) -> Self {
        let server: IpAddr = server.parse().expect("an address");
        let stream = client.run(|| TcpStream::connect((server, 53)).expect("a connection"));
        stream.set_nodelay(true).expect("an option");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        Self(stream)
    }

    /// Sends a message after its length, in one write.
    ///
    /// # Panics
    /// When the server has closed the connection.
    pub fn send(&mut self, message: &[u8]) {
        self.raw(&framed(message));
    }

    fn raw(&mut self, octets: &[u8]) {
        self.0.write_all(octets).expect("octets are sent");
    }

    /// The next message; `None`: the server has closed the connection.
    pub fn receive(&mut self) -> Option<Vec<u8>> {
        let mut len = [0; 2];
        match self.0.read_exact(&mut len) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => {
                return None;
            }
            Err(error) => panic!("{error}"),
        }
        let mut message = vec![0; usize::from(u16::from_be_bytes(len))];
        self.0.read_exact(&mut message).expect("a whole message");
        Some(message)
    }
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

fn www(id: u16) -> Query {
    Query::new("www.example.test", rtype::A).with(|query| (query.id, query.flags) = (id, 0))
}

/// Runs a test with an agent and a way to open connections to it.
fn with_agent(test: impl FnOnce(&dyn Fn() -> Connection, &Laboratory)) {
    let Some(laboratory) = Laboratory::new() else { return };
    let agent = laboratory.example();
    test(&|| Connection::open(&laboratory.pair.client, Pair::SERVER_ADDRESSES[0]), &laboratory);
    agent.terminate();
}

/// What UDP answers, when it is not truncated there.
fn by_udp(laboratory: &Laboratory, query: &[u8]) -> Vec<u8> {
    ask(&socket(&laboratory.pair.client, Pair::SERVER_ADDRESSES[0]), query)
}

/// T1: no reply is truncated, whatever size a client tells.
#[test]
fn netns_tcp_big_and_big_edns512() {
    with_agent(|open, _| {
        for (name, qtype, answers, len) in
            [("big", rtype::TXT, 1, 652), ("many", rtype::A, 40, 675), ("huge", rtype::AAAA, 90, 2555)]
        {
            let plain = Query::new(&format!("{name}.example.test"), qtype).with(|query| query.flags = 0);
            for (query, opt) in [(plain.bytes(), ""), (plain.edns(512).bytes(), " opt(v0,1232)")] {
                let mut connection = open();
                connection.send(&query);
                let reply = connection.receive().expect("a reply");
                let (opts, more) = if opt.is_empty() { (0, 0) } else { (1, 11) };
                let expected = format!("NOERROR aa 1/{answers}/0/{opts} {}B{opt}", len + more);
                assert_eq!(show::reply(&reply, &query), expected);
            }
        }
    });
}

/// T2: the two octets of the length in two segments.
#[test]
fn netns_tcp_split_prefix() {
    with_agent(|open, laboratory| {
        let query = www(1).bytes();
        let mut connection = open();
        let octets = framed(&query);
        for part in [&octets[..1], &octets[1..2], &octets[2..]] {
            connection.raw(part);
            std::thread::sleep(Duration::from_millis(30));
        }
        assert_eq!(connection.receive(), Some(by_udp(laboratory, &query)));
    });
}

/// T2: one octet after the other.
#[test]
fn netns_tcp_bytewise() {
    with_agent(|open, laboratory| {
        let query = www(2).edns(1232).bytes();
        let mut connection = open();
        for octet in framed(&query) {
            connection.raw(&[octet]);
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(connection.receive(), Some(by_udp(laboratory, &query)));
    });
}

/// T3: twenty at once, all answered, in any order; and the connection stays.
#[test]
fn netns_tcp_pipeline20() {
    with_agent(|open, laboratory| {
        let mut connection = open();
        for first in [0, 20] {
            let ids = first..first + 20u16;
            let sent: Vec<u8> = ids.clone().flat_map(|id| framed(&www(id).bytes())).collect();
            connection.raw(&sent);
            let mut answered = Vec::new();
            for _ in ids.clone() {
                let reply = connection.receive().expect("a reply");
                let id = u16::from_be_bytes([reply[0], reply[1]]);
                assert_eq!(reply, by_udp(laboratory, &www(id).bytes()));
                answered.push(id);
            }
            answered.sort_unstable();
            assert!(answered.iter().copied().eq(ids));
        }
    });
}

/// T4: a connection that says nothing, and one that stays in the middle of a query, are closed after some seconds.
#[test]
fn netns_tcp_idle() {
    with_agent(|open, _| {
        let (mut quiet, mut half) = (open(), open());
        half.raw(&framed(&www(4).bytes())[..20]);
        let begun = Instant::now();
        assert_eq!((quiet.receive(), half.receive()), (None, None));
        let took = begun.elapsed();
        assert!(took > Duration::from_secs(2) && took < Duration::from_secs(25), "{took:?}");
    });
}

/// T5: a client that has sent everything gets everything.
#[test]
fn netns_tcp_halfclose() {
    with_agent(|open, laboratory| {
        let query = www(5).bytes();
        let mut connection = open();
        connection.raw(&[framed(&query), framed(&query)].concat());
        connection.0.shutdown(Shutdown::Write).expect("half a connection");
        let expected = by_udp(laboratory, &query);
        assert_eq!(connection.receive().as_ref(), Some(&expected));
        assert_eq!(connection.receive().as_ref(), Some(&expected));
        assert_eq!(connection.receive(), None);
    });
}

/// T6: a length that no message can have ends the connection, not the server.
#[test]
fn netns_tcp_len0_and_len5() {
    with_agent(|open, laboratory| {
        for scrap in [&[0, 0][..], &[0, 5, 1, 2, 3, 4, 5]] {
            let mut connection = open();
            connection.raw(scrap);
            assert_eq!(connection.receive(), None);
        }
        let mut connection = open();
        connection.send(&www(6).bytes());
        assert_eq!(connection.receive(), Some(by_udp(laboratory, &www(6).bytes())));
    });
}

/// T6: the longest message there is: a query, and octets after it.
#[test]
fn netns_tcp_len65535() {
    with_agent(|open, laboratory| {
        let query = www(7).bytes();
        let mut longest = query.clone();
        longest.resize(65535, 0);
        let mut connection = open();
        connection.send(&longest);
        let expected = by_udp(laboratory, &query);
        assert_eq!(connection.receive().as_ref(), Some(&expected));
        connection.send(&query);
        assert_eq!(connection.receive().as_ref(), Some(&expected));
        // One that is announced and does not come holds up nobody else.
        let mut liar = open();
        liar.raw(&[0xff, 0xff, 0, 0]);
        let mut other = open();
        other.send(&query);
        assert_eq!(other.receive().as_ref(), Some(&expected));
    });
}

/// T7: an error is the answer to one query.
#[test]
fn netns_tcp_formerr_then_good() {
    with_agent(|open, laboratory| {
        let bad = www(8).with(|query| query.counts = Some([2, 0, 0, 0])).bytes();
        let mut connection = open();
        connection.send(&bad);
        assert_eq!(show::reply(&connection.receive().expect("a reply"), &bad), "FORMERR 0/0/0/0 12B");
        connection.send(&www(8).bytes());
        assert_eq!(connection.receive(), Some(by_udp(laboratory, &www(8).bytes())));
    });
}

/// H1: a response is not answered over TCP either, and does not end the connection.
#[test]
fn netns_tcp_qr1() {
    with_agent(|open, laboratory| {
        let mut connection = open();
        connection.send(&www(9).with(|query| query.flags = 0x8000).bytes());
        connection.send(&www(10).bytes());
        assert_eq!(connection.receive(), Some(by_udp(laboratory, &www(10).bytes())));
    });
}

/// C6: no transfer for anybody who was not allowed one.
#[test]
fn netns_tcp_axfr() {
    with_agent(|open, _| {
        for qtype in [251, 252] {
            let query = Query::new("example.test", qtype).with(|query| query.flags = 0).bytes();
            let mut connection = open();
            connection.send(&query);
            let reply = connection.receive().expect("a reply");
            assert_eq!(show::reply(&reply, &query), "REFUSED 1/0/0/0 30B");
        }
    });
}

/// T8: length and message come in one segment.
#[test]
fn netns_tcp_length_and_message_in_one_segment() {
    with_agent(|open, _| {
        for _ in 0..20 {
            let mut connection = open();
            connection.send(&www(11).bytes());
            let mut first = [0; 4096];
            let len = connection.0.read(&mut first).expect("a reply");
            assert_eq!(len, 2 + usize::from(u16::from_be_bytes([first[0], first[1]])));
        }
    });
}
