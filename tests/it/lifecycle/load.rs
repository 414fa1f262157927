//! Constant load, from the client's namespace: each query must be answered, and rightly.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use router_tests::agent::eventually;
use router_tests::netns::Pair;
use router_tests::packet::{Query, rtype};

/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two queries of one client: the machine has other things to do.
const PAUSE: Duration = Duration::from_micros(500);

/// What a client does all the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Client {
    /// A over UDP, which the fast path answers when there is one.
    Address,
    /// TXT over UDP, which it never answers.
    Text,
    /// A over one TCP connection, two queries at a time.
    Connection,
    /// A over a new TCP connection each.
    Connections,
    /// The same; one that is closed without an answer is tried once more (RFC 7766 §6.2.4).
    Again,
}

/// See the module.
pub struct Load {
    clients: Vec<(Client, Arc<AtomicU64>)>,
    threads: Vec<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
    wrong: Arc<Mutex<Vec<String>>>,
    allowed: Arc<Mutex<Vec<[u8; 4]>>>,
}

impl Load {
    /// Begins, over IPv4 and IPv6. Answers must be one of `allowed`.
    pub fn new(pair: &Pair, clients: &[Client], allowed: &[[u8; 4]]) -> Self {
        let mut load = Self {
            clients: Vec::new(),
            threads: Vec::new(),
            stop: Arc::default(),
            wrong: Arc::default(),
            allowed: Arc::new(Mutex::new(allowed.to_vec())),
        };
        for (number, &client) in clients.iter().enumerate() {
            let server = SocketAddr::new(Pair::SERVER_ADDRESSES[number % 2].parse().expect("an address"), 53);
            let namespace = pair.client.share();
            let count = Arc::new(AtomicU64::new(0));
            load.clients.push((client, Arc::clone(&count)));
            let (stop, wrong, allowed) =
                (Arc::clone(&load.stop), Arc::clone(&load.wrong), Arc::clone(&load.allowed));
            load.threads.push(thread::spawn(move || {
                namespace.run(|| {
                    let mut asking = Asking::new(client, server);
                    while !stop.load(Ordering::Relaxed) {
                        let id = count.fetch_add(1, Ordering::Relaxed) as u16;
                        let answered = asking.ask(id);
                        let allowed = allowed.lock().expect("no panic").clone();
                        let right = |answer: &Option<[u8; 4]>| match answer {
                            None => client == Client::Text,
                            Some(address) => allowed.contains(address),
                        };
                        let right = answered.as_ref().is_ok_and(|answers| answers.iter().all(right));
                        if !right {
                            let what = format!("{client:?} to {server}, query {id}: {answered:?}");
                            wrong.lock().expect("no panic").push(what);
                            asking = Asking::new(client, server);
                        }
                        thread::sleep(PAUSE);
                    }
                });
            }));
        }
        load
    }

    /// Waits until each client has asked so many times more.
    pub fn more(&self, count: u64) {
        let before: Vec<u64> = self.clients.iter().map(|(_, asked)| asked.load(Ordering::Relaxed)).collect();
        eventually("more queries", || {
            self.clients
                .iter()
                .zip(&before)
                .all(|((_, asked), before)| asked.load(Ordering::Relaxed) > before + count)
        });
    }

    /// Answers may be these from now on.
    pub fn allow(&self, allowed: &[[u8; 4]]) {
        *self.allowed.lock().expect("no panic") = allowed.to_vec();
    }

    /// What was lost or wrong so far.
    pub fn wrong(&self) -> Vec<String> {
        self.wrong.lock().expect("no panic").clone()
    }

    /// Ends. How many were asked.
    ///
    /// # Panics
    /// When anything was lost or wrong.
    pub fn end(mut self) -> u64 {
        self.stop();
        assert_eq!(self.wrong(), Vec::<String>::new());
        self.clients.iter().map(|(_, asked)| asked.load(Ordering::Relaxed)).sum()
    }

    /// Ends, after an agent without a fast path was killed once. What it had read and not answered died with it: of
    /// each UDP client at most the one query that it was waiting for.
    ///
    /// # Panics
    /// When more was lost, or anything was wrong.
    pub fn end_after_a_kill(mut self) {
        self.stop();
        let mut wrong = self.wrong();
        for client in [Client::Address, Client::Text] {
            let waited = |text: &String| {
                text.starts_with(&format!("{client:?} to ")) && text.contains("kind: WouldBlock")
            };
            if let Some(at) = wrong.iter().position(waited) {
                wrong.remove(at);
            }
        }
        assert_eq!(wrong, Vec::<String>::new());
    }

    fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("a client ends");
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

struct Asking {
    client: Client,
    server: SocketAddr,
    udp: Option<UdpSocket>,
    tcp: Option<TcpStream>,
}

impl Asking {
    fn new(client: Client, server: SocketAddr) -> Self {
        Self { client, server, udp: None, tcp: None }
    }

    /// The addresses that are answered; none when there is no record.
    fn ask(&mut self, id: u16) -> io::Result<Vec<Option<[u8; 4]>>> {
        let one = match self.client {
            Client::Address => self.by_udp(id, rtype::A),
            Client::Text => self.by_udp(id, rtype::TXT),
            Client::Connection => {
                if self.tcp.is_none() {
                    self.tcp = Some(connect(self.server)?);
                }
                let Some(stream) = &mut self.tcp else { return Err(io::ErrorKind::NotConnected.into()) };
                let second = id.wrapping_add(1);
                // The second query comes in two parts.
                let both = [framed(id), framed(second)].concat();
                let (first, rest) = both.split_at(both.len() - 7);
                stream.write_all(first)?;
                let answer = read(stream, id)?;
                stream.write_all(rest)?;
                return Ok(vec![answer, read(stream, second)?]);
            }
            Client::Connections => once(self.server, id),
            Client::Again => match once(self.server, id) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => once(self.server, id),
                other => other,
            },
        };
        one.map(|answer| vec![answer])
    }

    fn by_udp(&mut self, id: u16, qtype: u16) -> io::Result<Option<[u8; 4]>> {
        if self.udp.is_none() {
            let any = if self.server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any)?;
            socket.connect(self.server)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            self.udp = Some(socket);
        }
        let Some(socket) = &self.udp else { return Err(io::ErrorKind::NotConnected.into()) };
        socket.send(&query(id, qtype))?;
        let mut reply = [0; 1500];
        let len = socket.recv(&mut reply)?;
        answer(&reply[..len], id)
    }
}

fn connect(server: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn once(server: SocketAddr, id: u16) -> io::Result<Option<[u8; 4]>> {
    let mut stream = connect(server)?;
    stream.write_all(&framed(id))?;
    read(&mut stream, id)
}

fn query(id: u16, qtype: u16) -> Vec<u8> {
    Query::new("www.gslb.test", qtype).with(|query| query.id = id).bytes()
}

fn framed(id: u16) -> Vec<u8> {
    let query = query(id, rtype::A);
    [&u16::try_from(query.len()).expect("short").to_be_bytes()[..], &query].concat()
}

fn read(stream: &mut TcpStream, id: u16) -> io::Result<Option<[u8; 4]>> {
    let mut len = [0; 2];
    stream.read_exact(&mut len)?;
    let mut reply = vec![0; usize::from(u16::from_be_bytes(len))];
    stream.read_exact(&mut reply)?;
    answer(&reply, id)
}

fn answer(reply: &[u8], id: u16) -> io::Result<Option<[u8; 4]>> {
    let odd = || io::Error::new(io::ErrorKind::InvalidData, format!("{reply:02x?}"));
    let head = reply.get(..12).ok_or_else(odd)?;
    if head[..2] != id.to_be_bytes() || head[3] & 0xf != 0 {
        return Err(odd());
    }
    match head[7] {
        0 => Ok(None),
        1 => Ok(reply.last_chunk().copied()),
        _ => Err(odd()),
    }
}
