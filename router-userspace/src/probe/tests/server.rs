//! A server that misbehaves as told.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

pub const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// What the server does once the head of the request has been read.
#[derive(Clone)]
pub enum Act {
    /// Sends this, waits for the client to end.
    Reply(Vec<u8>),
    /// Waits, then as `Reply`.
    Late(Duration, Vec<u8>),
    /// Sends the first part, then the second octet by octet with a pause before each.
    Drip(Vec<u8>, Vec<u8>, Duration),
    /// Sends this and closes.
    Close(Vec<u8>),
    /// Sends this and resets the connection.
    Reset(Vec<u8>),
    /// Sends octets for ever.
    Flood(Vec<u8>),
    /// Says nothing, keeps the connection.
    Silent,
}

pub struct Server {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    names: Arc<Mutex<Vec<Option<String>>>>,
    connections: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub async fn start(act: Act) -> Self {
        Self::bind("127.0.0.1:0", act, None).await
    }

    pub async fn bind(address: &str, act: Act, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let names: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
        let connections: Arc<AtomicUsize> = Arc::default();
        let (heard, told, count) = (Arc::clone(&requests), Arc::clone(&names), Arc::clone(&connections));
        let task = tokio::spawn(async move {
            let mut served = tokio::task::JoinSet::new();
            loop {
                let Ok((stream, _)) = listener.accept().await else { continue };
                count.fetch_add(1, Ordering::SeqCst);
                let (act, heard, told, tls) =
                    (act.clone(), Arc::clone(&heard), Arc::clone(&told), tls.clone());
                served.spawn(async move {
                    match tls {
                        None => serve_plain(stream, act, heard).await,
                        Some(config) => {
                            let Ok(stream) = TlsAcceptor::from(config).accept(stream).await else { return };
                            let name = stream.get_ref().1.server_name().map(str::to_owned);
                            told.lock().unwrap().push(name);
                            serve(stream, act, heard).await;
                        }
                    }
                });
                while served.try_join_next().is_some() {}
            }
        });
        Self { address, requests, names, connections, task }
    }

    /// The heads of all requests.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    /// The server names of all handshakes.
    pub fn names(&self) -> Vec<Option<String>> {
        self.names.lock().unwrap().clone()
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Fails when this process still holds the client end of a connection to the server.
    pub async fn assert_no_connection(&self) {
        let mut held = Vec::new();
        for _ in 0..100 {
            held = client_sockets(self.address.port());
            if held.is_empty() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("connections left behind:\n{}", held.join("\n"));
    }

    /// Ends the server and all that it serves.
    pub async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// Lines of the kernel's socket table whose remote port is this and that a process still holds open.
pub fn client_sockets(port: u16) -> Vec<String> {
    let tables =
        ["/proc/self/net/tcp", "/proc/self/net/tcp6"].map(|path| std::fs::read_to_string(path).unwrap());
    let remote = format!(":{port:04X}");
    let held = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // rem_address is field 2; inode, 0 when no descriptor is left, is field 9.
        fields.len() > 9 && fields[2].ends_with(&remote) && fields[9] != "0"
    };
    tables.iter().flat_map(|table| table.lines().filter(held)).map(str::to_owned).collect()
}

async fn serve_plain(mut stream: TcpStream, act: Act, heard: Arc<Mutex<Vec<String>>>) {
    if let Act::Reset(first) = act {
        read_head(&mut stream, &heard).await;
        stream.write_all(&first).await.unwrap();
        // The client shall see the octets before the reset overtakes them.
        tokio::time::sleep(Duration::from_millis(20)).await;
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        return;
    }
    serve(stream, act, heard).await;
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, act: Act, heard: Arc<Mutex<Vec<String>>>) {
    if !read_head(&mut stream, &heard).await {
        return;
    }
    // The client may be gone at any moment; that is its right.
    let _ = perform(&mut stream, act).await;
}

async fn perform<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, act: Act) -> std::io::Result<()> {
    match act {
        Act::Reply(reply) => stream.write_all(&reply).await?,
        Act::Late(pause, reply) => {
            tokio::time::sleep(pause).await;
            stream.write_all(&reply).await?;
        }
        Act::Drip(first, rest, pause) => {
            stream.write_all(&first).await?;
            for octet in rest {
                tokio::time::sleep(pause).await;
                stream.write_all(&[octet]).await?;
                stream.flush().await?;
            }
        }
        Act::Close(reply) | Act::Reset(reply) => {
            stream.write_all(&reply).await?;
            stream.flush().await?;
            return stream.shutdown().await;
        }
        Act::Flood(first) => {
            stream.write_all(&first).await?;
            loop {
                stream.write_all(&[b'x'; 4096]).await?;
            }
        }
        Act::Silent => {}
    }
    stream.flush().await?;
    let mut rest = [0; 64];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// Reads up to the empty line; whether it came.
async fn read_head<S: AsyncRead + Unpin>(stream: &mut S, heard: &Mutex<Vec<String>>) -> bool {
    let mut head = Vec::new();
    let mut octet = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut octet).await {
            Ok(1) => head.push(octet[0]),
            _ => return false,
        }
    }
    heard.lock().unwrap().push(String::from_utf8(head).unwrap());
    true
}
