//! Transfers and NOTIFY over loopback.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::*;
use crate::dns::{Server, serve};
use crate::settings::{Algorithm, Allowed, Notified, Secondaries, Tcp};

const AXFR: u16 = 252;
const PATIENCE: Duration = Duration::from_secs(20);

struct Running {
    server: Server,
    services: watch::Sender<Arc<Service>>,
    counts: Arc<Counts>,
}

impl Running {
    fn address(&self) -> SocketAddr {
        self.server.addresses()[0]
    }

    async fn counted(&self, counter: Counter, wanted: u64) {
        let begun = Instant::now();
        while self.counts.get(counter) != wanted {
            let found = self.counts.get(counter);
            assert!(begun.elapsed() < PATIENCE, "{} is {found}, not {wanted}", counter.name());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

async fn start(service: Service, idle: Duration) -> Running {
    let settings = Dns { tcp: Tcp { idle, ..Tcp::default() }, ..(*service.settings).clone() };
    let (services, receiver) = watch::channel(Arc::new(configured(service, settings)));
    let counts = Arc::new(Counts::default());
    let listen = vec!["127.0.0.1:0".parse().unwrap()];
    let server = serve(listen, receiver, counts.clone()).await.unwrap();
    Running { server, services, counts }
}

/// A zone of many hosts, the serial in place of the usual 7.
fn large(serial: u32, hosts: u32) -> Zone {
    let rows: String = (0..hosts)
        .map(|i| format!("host{i}.example.test 60 A 10.{}.{}.1\n", i >> 8 & 0xff, i & 0xff))
        .collect();
    let mut zone = zone(&(ZONE.to_owned() + &rows));
    zone.soa.serial = serial;
    let soa = zone.soa.to_wire();
    let apex = zone.nodes.get_mut(&zone.name).unwrap();
    apex.get_mut(&SOA).unwrap().rdata = vec![soa];
    zone
}

/// Of the zone example.test, for everybody on loopback.
fn open(zone: Zone, notify: Vec<Notified>) -> Service {
    let snapshot = service_of(vec![zone], Vec::new()).snapshot;
    let loopback = router_common::model::AddressRange {
        first: "127.0.0.0".parse().unwrap(),
        last: "127.255.255.255".parse().unwrap(),
    };
    let transfer = vec![Allowed { from: Some(loopback), key: None }];
    let settings = Dns {
        keys: vec![tsig::key(Algorithm::HmacSha256)],
        secondaries: BTreeMap::from([(name("example.test"), Secondaries { transfer, notify })]),
        ..Dns::default()
    };
    Service::new(snapshot, Arc::new(settings))
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

async fn read_message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let read = async {
        let len = stream.read_u16().await.ok()?;
        let mut message = vec![0; usize::from(len)];
        stream.read_exact(&mut message).await.ok()?;
        Some(message)
    };
    timeout(PATIENCE, read).await.expect("a message or the end")
}

/// Reads up to the second SOA; the number of records, and the serial numbers of both SOAs.
async fn read_zone(stream: &mut TcpStream) -> (usize, Vec<u32>) {
    let (mut records, mut serials) = (0, Vec::new());
    while serials.len() < 2 {
        let message = read_message(stream).await.expect("more of the zone");
        let message = Message::from_vec(&message).unwrap();
        records += message.answers.len();
        serials.extend(message.answers.iter().filter_map(|record| match &record.data {
            RData::SOA(soa) => Some(soa.serial),
            _ => None,
        }));
    }
    (records, serials)
}

#[tokio::test]
async fn a_transfer_is_of_one_generation_and_the_connection_goes_on() {
    let running = start(open(large(1, 30_000), Vec::new()), PATIENCE).await;
    // A small window, so that most of the zone is made after the reload.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(running.address()).await.unwrap();
    // What is asked before and after the transfer is answered before and after it.
    let queries = [plain(WWW, A), plain("example.test", AXFR), plain(WWW, AAAA)].map(|query| framed(&query));
    stream.write_all(&queries.concat()).await.unwrap();
    assert_eq!(read_message(&mut stream).await, ask(&service(), &plain(WWW, A)));
    running.counted(Counter::ServerTransfer, 1).await;
    running.services.send_replace(Arc::new(open(large(2, 10), Vec::new())));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (records, serials) = read_zone(&mut stream).await;
    let whole =
        large(1, 30_000).nodes.values().flat_map(Node::values).map(|set| set.rdata.len()).sum::<usize>();
    assert_eq!((records, serials), (whole + 1, vec![1, 1]));
    assert_eq!(read_message(&mut stream).await, ask(&service(), &plain(WWW, AAAA)));
    running.counted(Counter::ServerTransferFinished, 1).await;
    stream.write_all(&queries[1]).await.unwrap();
    assert_eq!(read_zone(&mut stream).await.1, [2, 2]);
    assert_eq!(running.counts.get(Counter::ServerTransferFailed), 0);
    running.server.stop().await;
}

#[tokio::test]
async fn who_does_not_read_is_left_and_places_are_limited() {
    // More than the system buffers of a connection.
    let mut bulky = large(1, 1);
    for i in 0..200u32 {
        let set = RrSet { ttl: 60, rdata: vec![[&[255][..], &[7; 255]].concat().repeat(200)] };
        bulky.nodes.insert(name(&format!("bulk{i}.example.test")), Node::from([(TXT, set)]));
    }
    let running = start(open(bulky, Vec::new()), Duration::from_millis(1500)).await;
    let begin = async || {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(running.address()).await.unwrap();
        stream.write_all(&framed(&plain("example.test", AXFR))).await.unwrap();
        stream
    };
    let mut waiting = Vec::new();
    for _ in 0..32 {
        waiting.push(begin().await);
    }
    running.counted(Counter::ServerTransfer, 32).await;
    let mut late = begin().await;
    let refused = read_message(&mut late).await.expect("a refusal");
    assert_eq!(show(&refused), "ServFail qd1\n");
    assert_eq!(running.counts.get(Counter::ServerTransferRefused), 1);
    running.counted(Counter::ServerTransferFailed, 32).await;
    // Their places are free again; queries were answered all the time.
    let mut next = begin().await;
    assert_eq!(read_zone(&mut next).await.1, [1, 1]);
    running.server.stop().await;
}

/// A secondary that takes NOTIFY.
struct Secondary(UdpSocket);

impl Secondary {
    async fn new() -> Self {
        Self(UdpSocket::bind("127.0.0.1:0").await.unwrap())
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    async fn receive(&self) -> (Vec<u8>, SocketAddr) {
        let mut octets = vec![0; 2048];
        let received = timeout(PATIENCE, self.0.recv_from(&mut octets)).await;
        let (len, from) = received.expect("a NOTIFY").unwrap();
        octets.truncate(len);
        (octets, from)
    }

    async fn is_quiet(&self, time: Duration) -> bool {
        timeout(time, self.0.recv_from(&mut [0; 2048])).await.is_err()
    }
}

/// The answer to a NOTIFY, its records left out.
fn answer(notify: &[u8], rcode: u8) -> Vec<u8> {
    let mut answer = notify[..12 + wire("example.test").len() + 4].to_vec();
    (answer[2], answer[3]) = (0xa4, rcode);
    answer[6..12].fill(0);
    answer
}

fn to(address: SocketAddr, key: Option<&str>) -> Vec<Notified> {
    vec![Notified { address, key: key.map(name), source: None }]
}

fn serial_of(notify: &[u8]) -> u32 {
    let message = Message::from_vec(notify).unwrap();
    let Some(RData::SOA(soa)) = message.answers.first().map(|record| &record.data) else { panic!("no SOA") };
    soa.serial
}

#[tokio::test]
async fn notify_is_repeated_until_it_is_answered_and_sent_anew_for_a_new_serial() {
    let secondary = Secondary::new().await;
    let way = to(secondary.address(), None);
    let running = start(open(large(1, 1), way.clone()), PATIENCE).await;
    let (first, from) = secondary.receive().await;
    assert_eq!(from.ip(), running.address().ip());
    assert_ne!(from.port(), running.address().port());
    assert_eq!((first[2], serial_of(&first)), (0x24, 1));
    // None of these is an answer: another id, a query, another opcode; or from somebody else.
    for (at, bits) in [(1, 1), (2, 0x80), (2, 0x20)] {
        let mut wrong = answer(&first, 0);
        wrong[at] ^= bits;
        secondary.0.send_to(&wrong, from).await.unwrap();
    }
    Secondary::new().await.0.send_to(&answer(&first, 0), from).await.unwrap();
    let (second, again) = secondary.receive().await;
    assert_eq!((&second, again), (&first, from));
    secondary.0.send_to(&answer(&second, 0), from).await.unwrap();
    running.counted(Counter::ServerNotifyAnswered, 1).await;
    assert_eq!(running.counts.get(Counter::ServerNotifySent), 2);
    // A verdict or a reload with the same serial tells nobody.
    running.services.send_replace(Arc::new(open(large(1, 2), way.clone())));
    assert!(secondary.is_quiet(Duration::from_millis(300)).await);
    running.services.send_replace(Arc::new(open(large(2, 2), way)));
    let (third, from) = secondary.receive().await;
    assert_eq!(serial_of(&third), 2);
    assert_ne!(third[..2], first[..2]);
    // A refusal is an answer too.
    secondary.0.send_to(&answer(&third, 9), from).await.unwrap();
    running.counted(Counter::ServerNotifyFailed, 1).await;
    assert!(secondary.is_quiet(Duration::from_millis(1300)).await);
    running.server.stop().await;
}

#[tokio::test]
async fn a_signed_notify_wants_a_signed_answer() {
    let secondary = Secondary::new().await;
    let way = to(secondary.address(), Some("xfr.example.test"));
    let running = start(open(large(1, 1), way), PATIENCE).await;
    let (notify, from) = secondary.receive().await;
    assert_eq!(notify[11], 1, "one additional record, TSIG");
    let query = crate::dns::query::Query::parse(&notify).unwrap();
    let keys = [tsig::key(Algorithm::HmacSha256)];
    let now = crate::clock::unix_now();
    let standing = crate::dns::tsig::Standing::of(&query, &keys, now);
    assert_eq!(standing.key(), Some(&name("xfr.example.test")));
    let bare = answer(&notify, 0);
    secondary.0.send_to(&bare, from).await.unwrap();
    let (again, _) = secondary.receive().await;
    assert_eq!(again, notify, "an answer without a signature ends nothing");
    let mut signed = bare;
    standing.finish(&mut signed, now);
    secondary.0.send_to(&signed, from).await.unwrap();
    running.counted(Counter::ServerNotifyAnswered, 1).await;
    running.server.stop().await;
}
