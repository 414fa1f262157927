//! NOTIFY on the network: sends what the planner says, and takes the answers.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use router_common::counter::Counter;
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::{Planner, Step, Way, message};
use crate::clock::unix_now;
use crate::dns::Service;
use crate::dns::query::Query;
use crate::dns::random::Random;
use crate::dns::server::Shared;
use crate::dns::tsig::{Signer, answers};
use crate::settings::{Key, Notified};

/// Longest answer that is looked at.
const MAX_ANSWER: usize = 4096;

/// Tells the secondaries of every zone, now and whenever a serial number changed, until the server is
/// stopped. `listen` are the server's addresses, which secondaries know it by.
pub(in crate::dns) async fn run(mut shared: Shared, listen: Vec<IpAddr>) {
    let service = shared.services.borrow_and_update().clone();
    let (answered, mut received) = mpsc::channel(64);
    let mut notifier = Notifier {
        service,
        listen,
        shared: shared.clone(),
        started: Instant::now(),
        random: Random::new(),
        planner: Planner::default(),
        sent: HashMap::new(),
        sockets: HashMap::new(),
        readers: JoinSet::new(),
        answered,
    };
    notifier.aim();
    loop {
        let due = notifier.planner.next().map(|due| notifier.started + due);
        tokio::select! {
            changed = shared.services.changed() => {
                if changed.is_err() {
                    return;
                }
                let service = shared.services.borrow_and_update().clone();
                notifier.serve(service);
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => notifier.step().await,
            Some((from, answer)) = received.recv() => notifier.take(from, &answer),
            () = stopped(&mut shared.stopped) => return,
        }
    }
}

async fn stopped(stopped: &mut watch::Receiver<bool>) {
    // An error says that whoever could stop the server is gone, which is the end too.
    let _ = stopped.wait_for(|&stopped| stopped).await;
}

struct Notifier {
    service: Arc<Service>,
    listen: Vec<IpAddr>,
    shared: Shared,
    started: Instant,
    random: Random,
    planner: Planner,
    /// What waits for an answer, as it was sent: every repetition is the same message.
    sent: HashMap<Way, Sent>,
    /// By the address that they send from. There are none while nothing waits for an answer.
    sockets: HashMap<IpAddr, Arc<UdpSocket>>,
    readers: JoinSet<()>,
    answered: mpsc::Sender<(SocketAddr, Vec<u8>)>,
}

struct Sent {
    id: u16,
    serial: u32,
    octets: Vec<u8>,
    /// The key it is signed with, and the MAC that an answer signs besides itself.
    signed: Option<(Arc<Key>, Vec<u8>)>,
    source: Option<IpAddr>,
    /// What is told when nobody answers as wanted.
    trouble: Option<String>,
}

impl Notifier {
    /// Another service answers now; most differ in what the monitors say only.
    fn serve(&mut self, service: Arc<Service>) {
        let before = std::mem::replace(&mut self.service, service);
        let (old, new) = (&before.snapshot.model, &self.service.snapshot.model);
        if !Arc::ptr_eq(old, new) || !Arc::ptr_eq(&before.settings, &self.service.settings) {
            self.aim();
        }
    }

    fn aim(&mut self) {
        let model = &self.service.snapshot.model;
        let zones = self.service.settings.secondaries.iter().filter_map(|(name, secondaries)| {
            let zone = model.zone(model.zone_at(name)?);
            let ways = secondaries.notify.iter();
            Some(ways.map(|notified| ((name.clone(), notified.address), zone.soa.serial)))
        });
        let random = &mut self.random;
        self.planner.aim(zones.flatten(), self.started.elapsed(), &mut || random.next());
    }

    async fn step(&mut self) {
        for step in self.planner.due(self.started.elapsed()) {
            match step {
                Step::Send(way, id) => self.send(way, id).await,
                Step::GiveUp(way) => {
                    let sent = self.sent.remove(&way);
                    let why = sent.as_ref().and_then(|sent| sent.trouble.as_deref()).unwrap_or("no answer");
                    let serial = sent.as_ref().map_or(0, |sent| sent.serial);
                    log::warn!("NOTIFY of {} serial {serial} to {}: {why}, given up", way.0, way.1);
                    self.shared.counts.add(Counter::ServerNotifyFailed);
                }
            }
        }
        self.rest();
    }

    async fn send(&mut self, way: Way, id: u16) {
        if self.sent.get(&way).is_none_or(|sent| sent.id != id) {
            let Some(made) = self.make(&way, id) else { return self.planner.close(&way) };
            self.sent.insert(way.clone(), made);
        }
        let Some(source) = self.sent.get(&way).map(|sent| source(sent.source, &self.listen, way.1)) else {
            return;
        };
        let socket = self.socket(source);
        let Some(sent) = self.sent.get_mut(&way) else { return };
        self.shared.counts.add(Counter::ServerNotifySent);
        let result = match socket {
            Ok(socket) => socket.send_to(&sent.octets, way.1).await.map(drop),
            Err(error) => Err(error),
        };
        if let Err(error) = result {
            log::debug!("NOTIFY of {} to {} from {source}: {error}", way.0, way.1);
            sent.trouble = Some(format!("cannot be sent from {source}: {error}"));
        }
    }

    /// The message to send; none when a reload has just taken zone or secondary away.
    fn make(&self, way: &Way, id: u16) -> Option<Sent> {
        let Service { snapshot, settings, .. } = &*self.service;
        let zone = snapshot.model.zone(snapshot.model.zone_at(&way.0)?);
        let notified = settings.secondaries.get(&way.0)?.notify.iter();
        let Notified { key, source, .. } = notified.clone().find(|notified| notified.address == way.1)?;
        let mut octets = message::write(zone, id);
        let key = key.as_ref().and_then(|key| settings.keys.iter().find(|held| held.name == *key));
        let signed = key.map(|key| {
            let mut signer = Signer::query(Arc::clone(key));
            signer.sign(&mut octets, unix_now());
            (Arc::clone(key), signer.mac().to_vec())
        });
        Some(Sent { id, serial: zone.soa.serial, octets, signed, source: *source, trouble: None })
    }

    /// The socket that sends from an address, from a port that the system chooses.
    fn socket(&mut self, source: IpAddr) -> io::Result<Arc<UdpSocket>> {
        if let Some(socket) = self.sockets.get(&source) {
            return Ok(Arc::clone(socket));
        }
        let socket = std::net::UdpSocket::bind(SocketAddr::new(source, 0))?;
        socket.set_nonblocking(true)?;
        let socket = Arc::new(UdpSocket::from_std(socket)?);
        self.readers.spawn(read(Arc::clone(&socket), self.answered.clone()));
        self.sockets.insert(source, Arc::clone(&socket));
        Ok(socket)
    }

    /// A datagram came to one of the sockets.
    fn take(&mut self, from: SocketAddr, answer: &[u8]) {
        let Some((id, rcode)) = message::read(answer) else { return };
        let Some(way) = self.planner.awaited(from, id).cloned() else { return };
        let Some(sent) = self.sent.get_mut(&way) else { return };
        if let Some((key, mac)) = &sent.signed
            && !is_signed(answer, key, mac, unix_now())
        {
            // Anybody can write that; the next repetition may have a better answer.
            sent.trouble = Some(format!("answered with RCODE {rcode}, and not signed with {}", key.name));
            return;
        }
        let (zone, to, serial) = (&way.0, way.1, sent.serial);
        if rcode == 0 {
            log::info!("NOTIFY of {zone} serial {serial} to {to}: acknowledged");
            self.shared.counts.add(Counter::ServerNotifyAnswered);
        } else {
            log::warn!("NOTIFY of {zone} serial {serial} to {to}: refused with RCODE {rcode}");
            self.shared.counts.add(Counter::ServerNotifyFailed);
        }
        self.planner.close(&way);
        self.sent.remove(&way);
        self.rest();
    }

    /// Closes the sockets when nothing waits for an answer.
    fn rest(&mut self) {
        if self.planner.next().is_none() {
            self.sent.clear();
            self.sockets.clear();
            self.readers.abort_all();
        }
        while self.readers.try_join_next().is_some() {}
    }
}

/// Hands on what comes to a socket.
async fn read(socket: Arc<UdpSocket>, answered: mpsc::Sender<(SocketAddr, Vec<u8>)>) {
    let mut octets = vec![0; MAX_ANSWER];
    loop {
        // An error here is that of a message sent before (ICMP), which is repeated anyway.
        let Ok((len, from)) = socket.recv_from(&mut octets).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        if answered.send((from, octets.get(..len).unwrap_or_default().to_vec())).await.is_err() {
            return;
        }
    }
}

/// Whether an answer is signed as an answer to the message with this MAC.
fn is_signed(answer: &[u8], key: &Key, request_mac: &[u8], now: Duration) -> bool {
    // Its records are read as those of a query.
    let mut as_query = answer.to_vec();
    if let Some(flags) = as_query.get_mut(2) {
        *flags &= 0x7f;
    }
    let signature = Query::parse(&as_query).and_then(|query| query.signature);
    answers(answer, signature.as_ref(), key, request_mac, now)
}

/// The address to send from: the one that the configuration says, else the first of ours that can reach the
/// secondary, else the system's choice.
fn source(said: Option<IpAddr>, listen: &[IpAddr], to: SocketAddr) -> IpAddr {
    let to = to.ip();
    let can = |ours: &&IpAddr| {
        ours.is_ipv4() == to.is_ipv4() && !ours.is_unspecified() && ours.is_loopback() == to.is_loopback()
    };
    let any = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    said.or_else(|| listen.iter().find(can).copied()).unwrap_or(any)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_is_an_address_that_secondaries_know() {
        let listen = ["127.0.0.1", "0.0.0.0", "192.0.2.53", "192.0.2.54", "::", "::1"].map(ip);
        for (said, to, expected) in [
            (None, "198.51.100.1:53", "192.0.2.53"),
            (None, "127.0.0.2:53", "127.0.0.1"),
            (None, "[2001:db8::1]:53", "::"),
            (None, "[::1]:53", "::1"),
            (Some("192.0.2.99"), "198.51.100.1:53", "192.0.2.99"),
        ] {
            assert_eq!(source(said.map(ip), &listen, to.parse().unwrap()), ip(expected), "{to}");
        }
        assert_eq!(source(None, &[], "192.0.2.1:53".parse().unwrap()), ip("0.0.0.0"));
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }
}
