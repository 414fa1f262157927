//! What a `dig` line sends, octet for octet.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::time::Duration;

use router_tests::netns::Namespace;

/// Where dig is pointed at to see what it sends.
const CATCHER: &str = "127.9.0.6:53";

/// Runs a dig line (without its `@server`) and gives the message it sends, its id and the eight octets of
/// its cookie zero.
///
/// # Panics
/// When dig sends nothing.
pub fn of_dig(namespace: &Namespace, line: &str) -> Vec<u8> {
    let run = |namespace: &Namespace| {
        let (host, _) = CATCHER.split_once(':').expect("address and port");
        let arguments = format!("@{host} +tries=1 +timeout=20 {line}");
        let dig = namespace.command("dig").args(arguments.split_whitespace()).output();
        dig.expect("dig starts");
    };
    let mut query = std::thread::scope(|scope| {
        let catcher = if line.split(' ').any(|word| word == "+tcp") {
            let listener = namespace.run(|| TcpListener::bind(CATCHER).expect("a free port"));
            scope.spawn(move || catch_tcp(&listener))
        } else {
            let socket = namespace.run(|| UdpSocket::bind(CATCHER).expect("a free port"));
            scope.spawn(move || catch_udp(&socket))
        };
        run(namespace);
        catcher.join().expect("the catcher ends")
    });
    query[..2].fill(0);
    if let Some(at) = query.windows(4).position(|window| window == [0, 10, 0, 8]) {
        query[at + 4..at + 12].fill(0);
    }
    query
}

/// A query as somebody else would send it: as a response that says REFUSED, so that dig is content.
fn refuse(query: &[u8]) -> Vec<u8> {
    let mut reply = query.to_vec();
    reply[2] |= 0x80;
    reply[3] = 5;
    reply
}

fn catch_udp(socket: &UdpSocket) -> Vec<u8> {
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
    let mut query = [0; 512];
    let (len, from) = socket.recv_from(&mut query).expect("dig asks");
    socket.send_to(&refuse(&query[..len]), from).expect("it is answered");
    query[..len].to_vec()
}

fn catch_tcp(listener: &TcpListener) -> Vec<u8> {
    let (mut stream, _) = listener.accept().expect("dig connects");
    let mut len = [0; 2];
    stream.read_exact(&mut len).expect("a length");
    let mut query = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut query).expect("a query");
    stream.write_all(&[&len[..], &refuse(&query)].concat()).expect("it is answered");
    query
}
