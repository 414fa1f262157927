//! Everything together as a subject: XDP on a veth, the userspace server behind it, real sockets before it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use router_common::compile::compile;
use router_common::counter::Counter;
use router_common::decide::Snapshot;
use router_common::share::Share;
use router_common::tables::Frontage;
use router_userspace::datapath::{Datapath, Error, Options, default_directory};
use router_userspace::dns::{self, Counts, Service};
use router_userspace::settings::{Stale, XdpMode};
use tokio::sync::{oneshot, watch};

use crate::netns::Pair;
use crate::reply::{self, Reply};
use crate::subject::{Answer, Question, Subject};

/// Queries for one answer; the kernel rolls its own dice.
const QUERIES: usize = 400;

/// A fast path and a userspace server that answer from the snapshot they are given.
pub struct Laboratory {
    pair: Pair,
    datapath: Option<Datapath>,
    services: Option<watch::Sender<Arc<Service>>>,
    server: Option<(std::thread::JoinHandle<()>, oneshot::Sender<()>)>,
    sources: BTreeSet<IpAddr>,
}

impl Default for Laboratory {
    fn default() -> Self {
        Self::new()
    }
}

impl Laboratory {
    /// Namespaces, without anything that answers.
    ///
    /// # Panics
    /// Without root.
    pub fn new() -> Self {
        let pair = Pair::new();
        let [ipv4, ipv6] = Pair::CLIENT_ADDRESSES;
        // Clients have addresses of everywhere; the userspace server must reach them too.
        pair.server.sh(&format!("ip route add default via {ipv4}; ip -6 route add default via {ipv6}"));
        Self { pair, datapath: None, services: None, server: None, sources: BTreeSet::new() }
    }

    /// Brings a snapshot into service on both paths.
    ///
    /// # Errors
    /// When it does not compile or cannot be installed.
    pub fn serve(&mut self, snapshot: Snapshot) -> Result<Live<'_>> {
        let addresses = Pair::SERVER_ADDRESSES.map(|address| address.parse::<IpAddr>().expect("an address"));
        let frontage = Frontage { addresses: addresses.into(), edns_size: 1232, ..Frontage::default() };
        let mut seed = 0;
        let seeds = || {
            seed += 1;
            [seed, !seed]
        };
        let tables = compile(&snapshot, &frontage, seeds, 1)?.tables;
        let datapath = &mut self.datapath;
        self.pair.server.run(|| -> Result<()> {
            let Some(running) = datapath else {
                let options = Options {
                    interfaces: &[Pair::SERVER.into()],
                    mode: XdpMode::Native,
                    pin_dir: default_directory(),
                    stale: Stale::Serve,
                    lease: Duration::from_secs(600),
                };
                *datapath = Some(Datapath::open(&options, &tables)?.0);
                return Ok(());
            };
            match running.install(&tables) {
                Err(Error::OutOfRoom(_)) => running.replace(&tables),
                other => Ok(other?),
            }
        })?;
        let service = Arc::new(Service::new(snapshot.clone(), Arc::default()));
        match &self.services {
            Some(services) => {
                services.send_replace(service);
            }
            None => self.start(service, addresses)?,
        }
        Ok(Live { laboratory: self, snapshot })
    }

    fn start(&mut self, service: Arc<Service>, addresses: [IpAddr; 2]) -> Result<()> {
        let (services, receiver) = watch::channel(service);
        let (stop, stopped) = oneshot::channel();
        let (started, ready) = std::sync::mpsc::channel();
        let listen = addresses.map(|address| SocketAddr::new(address, 53)).to_vec();
        let namespace = self.pair.server.share();
        let thread = std::thread::spawn(move || {
            namespace.run(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(async {
                    let server = dns::serve(listen, receiver, Arc::new(Counts::default())).await;
                    let server = server.expect("the server starts");
                    started.send(()).expect("somebody waits");
                    // An error means that the other end is gone: time to end as well.
                    let _ = stopped.await;
                    server.stop().await;
                });
            });
        });
        ready.recv().context("the userspace server did not start")?;
        self.services = Some(services);
        self.server = Some((thread, stop));
        Ok(())
    }

    fn answered(&self) -> Result<u64> {
        let counters = self.datapath.as_ref().context("a fast path")?.counters()?;
        Ok([Counter::AnswerRecords, Counter::AnswerNodata]
            .iter()
            .filter_map(|&counter| counters.get(counter as usize))
            .sum())
    }

    /// A socket of a client with this address.
    fn socket(&mut self, source: IpAddr) -> Result<UdpSocket> {
        if self.sources.insert(source) {
            let (bits, family) = if source.is_ipv4() { (32, "-4") } else { (128, "-6") };
            let flags = if source.is_ipv4() { "" } else { "nodad" };
            self.pair
                .client
                .sh(&format!("ip {family} addr add {source}/{bits} dev {} {flags}", Pair::CLIENT));
        }
        self.pair.client.run(|| {
            let socket = UdpSocket::bind((source, 0)).with_context(|| format!("cannot bind {source}"))?;
            let server = Pair::SERVER_ADDRESSES[usize::from(source.is_ipv6())];
            socket.connect((server, 53))?;
            socket.set_read_timeout(Some(Duration::from_secs(5)))?;
            Ok(socket)
        })
    }
}

impl Drop for Laboratory {
    fn drop(&mut self) {
        if let Some((thread, stop)) = self.server.take() {
            drop(stop);
            // It panicked with a message of its own.
            let _ = thread.join();
        }
        if let Some(datapath) = self.datapath.take() {
            self.pair.server.run(|| datapath.detach()).expect("it detaches");
        }
    }
}

/// What is answered over the wire.
pub struct Live<'l> {
    laboratory: &'l mut Laboratory,
    snapshot: Snapshot,
}

impl Subject for Live<'_> {
    fn name(&self) -> &'static str {
        "live"
    }

    /// More than nine standard deviations of a half; the exact weights are compared in the tables.
    fn tolerance(&self) -> Share {
        Share::ratio(1, 4)
    }

    /// Everything that can be sent: between the two paths nothing is left out.
    fn must_answer(&self, question: &Question) -> bool {
        sendable(question)
    }

    fn ask(&mut self, question: &Question) -> Result<Option<Answer>> {
        if sendable(question) { self.ask_times(question, QUERIES).map(Some) } else { Ok(None) }
    }
}

impl Live<'_> {
    /// Asks so often without EDNS, and once with the source as client subnet. What the tables must answer,
    /// the fast path must have answered.
    ///
    /// # Errors
    /// When a reply is missing or wrong in itself, or came from the wrong path.
    pub fn ask_times(&mut self, question: &Question, times: usize) -> Result<Answer> {
        let source = question.asker.source;
        let socket = self.laboratory.socket(source)?;
        let before = self.laboratory.answered()?;
        let plain = reply::query(question, None);
        let replies: Result<Vec<Reply>> = (0..times).map(|_| one(&socket, &plain, question)).collect();
        let own = (source, if source.is_ipv4() { 32 } else { 128 });
        let scoped = one(&socket, &reply::query(question, Some(own)), question)?;
        let fast = self.laboratory.answered()? - before;
        if crate::sim::must_answer(&self.snapshot.model, question) {
            ensure!(fast == times as u64 + 1, "the fast path answered only {fast} of {}", times + 1);
        }
        reply::gather(&replies?, &scoped)
    }
}

/// No packet can come from a v4-mapped address.
fn sendable(question: &Question) -> bool {
    match question.asker.source {
        IpAddr::V6(source) => source.to_ipv4_mapped().is_none(),
        IpAddr::V4(_) => true,
    }
}

fn one(socket: &UdpSocket, query: &[u8], question: &Question) -> Result<Reply> {
    socket.send(query)?;
    let mut message = [0; 1500];
    let len = socket.recv(&mut message).context("no reply")?;
    reply::decode(&message[..len], question)
}
