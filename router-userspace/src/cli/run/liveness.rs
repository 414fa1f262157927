//! What the service manager is told: when the agent is ready, that it is alive, what it is doing.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::agent::Agent;
use crate::datapath;
use crate::dns::pulse::Beat;
use crate::probe::Tally;
use crate::systemd::{self, Notify};

/// How often it is looked at most.
const LOOK: Duration = Duration::from_millis(500);
/// How long a thread may go without a sign of life; one that is asked nothing gives one every second.
const STUCK: Duration = Duration::from_secs(5);

/// The service manager, and what it was told.
pub(super) struct Manager {
    pub(super) notify: Notify,
    /// When it is told that the agent is ready at the latest; `None` once it was told.
    ready_by: Option<Instant>,
    reloading: bool,
    status: String,
    watchdog: Option<Duration>,
    liveness: Liveness,
}

impl Manager {
    /// `heir`: the agent before has been told to be ready, and so is this one.
    pub(super) fn new(notify: Notify, ready_within: Duration, heir: bool) -> Self {
        Self {
            notify,
            ready_by: (!heir).then(|| Instant::now() + ready_within),
            reloading: false,
            status: String::new(),
            watchdog: systemd::watchdog(heir),
            liveness: Liveness::default(),
        }
    }

    /// How often to [`Self::look`].
    pub(super) fn interval(&self) -> Duration {
        self.watchdog.map_or(LOOK, |watchdog| (watchdog / 4).clamp(Duration::from_millis(1), LOOK))
    }

    /// Looks whether everything is alive, and tells what has changed.
    pub(super) fn look(&mut self, agent: &Agent, generation: u64, beats: &[Beat]) {
        let now = Instant::now();
        let tally = agent.tally();
        if let Some(by) = self.ready_by
            && (tally.checking == 0 || now >= by)
        {
            self.ready_by = None;
            let Tally { up, down, checking } = tally;
            log::info!("ready: {up} endpoints up, {down} down, {checking} without a probe so far");
            self.notify.tell("READY=1");
        }
        match self.liveness.stuck(beats, now) {
            None => self.alive(),
            Some(stuck) => {
                let words = format!("{stuck} gives no sign of life");
                if self.tell_status(words.clone()) {
                    log::error!("{words}: the watchdog is told nothing");
                }
                return;
            }
        }
        self.tell_status(status(generation, tally));
    }

    /// The agent's loop is alive.
    pub(super) fn alive(&self) {
        if self.watchdog.is_some() {
            self.notify.mention("WATCHDOG=1");
        }
    }

    /// Whether a new configuration is being made or put into service.
    pub(super) fn reloading(&mut self, now: bool) {
        if now == self.reloading || self.ready_by.is_some() {
            return;
        }
        self.reloading = now;
        if now {
            let microseconds = datapath::monotonic() / 1000;
            self.notify.tell(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
        } else {
            self.notify.tell("READY=1");
        }
    }

    /// The agent ends.
    pub(super) fn stopping(&self) {
        self.notify.tell("STOPPING=1");
    }

    /// Another process is the agent now, and ready.
    pub(super) fn handed_over(&self, pid: u32) {
        self.notify.tell(&format!("MAINPID={pid}\nREADY=1"));
    }

    fn tell_status(&mut self, status: String) -> bool {
        let changed = status != self.status;
        if changed {
            self.notify.mention(&format!("STATUS={status}"));
            self.status = status;
        }
        changed
    }
}

fn status(generation: u64, tally: Tally) -> String {
    let Tally { up, down, checking } = tally;
    let waiting = if checking > 0 { format!(", {checking} without a probe so far") } else { String::new() };
    format!("generation {generation} serves; endpoints: {up} up, {down} down{waiting}")
}

/// Knows when each sign of life came last.
#[derive(Default)]
struct Liveness {
    seen: HashMap<String, (u64, Instant)>,
}

impl Liveness {
    /// Whoever has been silent too long.
    fn stuck<'b>(&mut self, beats: &'b [Beat], now: Instant) -> Option<&'b str> {
        let mut stuck = None;
        for Beat { name, rounds } in beats {
            let seen = self.seen.entry(name.clone()).or_insert((*rounds, now));
            if seen.0 != *rounds {
                *seen = (*rounds, now);
            } else if now.saturating_duration_since(seen.1) > STUCK {
                stuck = Some(name.as_str());
            }
        }
        stuck
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::sync::Arc;

    use router_common::view::HealthView;
    use tokio::sync::watch;

    use super::*;
    use crate::config;
    use crate::dns::{self, sockets};

    fn beat(name: &str, rounds: u64) -> Beat {
        Beat { name: name.to_owned(), rounds }
    }

    #[test]
    fn whoever_stops_counting_is_stuck() {
        let mut liveness = Liveness::default();
        let start = Instant::now();
        let mut at = |seconds: u64, one: u64, two: u64| {
            let beats = [beat("one", one), beat("two", two)];
            liveness.stuck(&beats, start + Duration::from_secs(seconds)).map(str::to_owned)
        };
        assert_eq!(at(0, 1, 1), None);
        assert_eq!(at(4, 2, 1), None);
        assert_eq!(at(6, 3, 1).as_deref(), Some("two"));
        // It was only slow.
        assert_eq!(at(7, 4, 2), None);
        assert_eq!(at(12, 4, 3), None);
        assert_eq!(at(13, 4, 4).as_deref(), Some("one"));
    }

    fn told(socket: &UnixDatagram) -> String {
        let mut lines = vec![0; 4096];
        match socket.recv(&mut lines) {
            Ok(len) => String::from_utf8_lossy(&lines[..len]).into_owned(),
            Err(_) => String::new(),
        }
    }

    use std::os::unix::net::UnixDatagram;

    /// The watchdog is told of a server whose threads go round, and of none whose threads do not.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_server_without_a_sign_of_life_is_not_told_alive() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager_side = UnixDatagram::bind(&path).unwrap();
        manager_side.set_nonblocking(true).unwrap();
        let file = folder.path().join("xroute.toml");
        std::fs::write(&file, "[server]\nlisten = [\"127.0.0.1:53\"]\n").unwrap();
        let agent = Agent::new(config::load(&file).unwrap(), HealthView::default()).unwrap();
        let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = probe.local_addr().unwrap();
        drop(probe);
        let (_serve, services) = watch::channel(Arc::new(agent.service()));
        let listening = sockets::bind(&[address]).unwrap();
        let server = dns::serve_on(listening, services, Arc::default()).await.unwrap();
        let mut manager = Manager {
            notify: Notify::at(&path).unwrap(),
            ready_by: None,
            reloading: false,
            status: String::new(),
            watchdog: Some(Duration::from_secs(30)),
            liveness: Liveness::default(),
        };
        let first = server.beats();
        manager.look(&agent, 7, &first);
        assert_eq!(told(&manager_side), "WATCHDOG=1");
        assert_eq!(told(&manager_side), "STATUS=generation 7 serves; endpoints: 0 up, 0 down");
        // Everyone goes round, asked or not.
        let start = Instant::now();
        loop {
            let now = server.beats();
            if first.iter().zip(&now).all(|(before, now)| before.rounds < now.rounds) {
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(60), "{first:?} {now:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        // The same counts for too long.
        for seen in manager.liveness.seen.values_mut() {
            seen.1 = Instant::now().checked_sub(STUCK * 2).unwrap();
        }
        manager.look(&agent, 7, &first);
        assert!(told(&manager_side).ends_with("gives no sign of life"));
        assert_eq!(told(&manager_side), "");
        server.stop().await;
    }
}
