//! What the agent's loop tells of itself: events, and times for metrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use router_common::counter::Counter;
use router_common::model::EndpointId;

use super::RENEWAL;
use super::failover::Clock;
use crate::agent::Agent;
use crate::clock::unix_now;
use crate::control::ReloadReport;
use crate::datapath::{Attached, Datapath};
use crate::dns;
use crate::events::{Event, OverrideChange, Seen, Stream};
use crate::metrics::Figures;
use crate::overrides::Override;
use crate::reload::{BrokenFeed, LoadedFeed};

/// How much later than planned the lease is renewed before it is told.
const LATE: Duration = Duration::from_secs(1);

/// See the module.
pub(super) struct Telling {
    pub(super) stream: Arc<Stream>,
    pub(super) figures: Arc<Figures>,
    pub(super) clock: Clock,
    seen: Seen,
    /// Told when it is known whose verdicts made it necessary.
    written: Vec<(Duration, Event)>,
    interfaces: Vec<Attached>,
    renewed: Option<Instant>,
    /// Renewals of the lease that came late.
    pub(super) late: u64,
    notified: [u64; 3],
}

impl Telling {
    /// The agent is about to serve.
    pub(super) fn new(agent: &Agent) -> Self {
        let figures = Arc::new(Figures::default());
        Self {
            stream: Arc::new(Stream::new(unix_now())),
            clock: Clock::new(Arc::clone(&figures)),
            figures,
            seen: Seen::new(agent.snapshot()),
            written: Vec::new(),
            interfaces: Vec::new(),
            renewed: None,
            late: 0,
            notified: [0; 3],
        }
    }

    pub(super) fn tell(&self, event: Event) {
        self.stream.tell(unix_now(), event);
    }

    /// The fast path's tables were changed by so many operations, or as a whole; it began then.
    pub(super) fn wrote(&mut self, datapath: &Datapath, operations: Option<usize>, began: Instant) {
        self.clock.wrote();
        let event = Event::Written {
            generation: datapath.active_generation(),
            half: datapath.active_half(),
            operations,
            microseconds: u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX),
        };
        self.written.push((unix_now(), event));
    }

    /// Everything was carried out: tells which statuses are others now, and what was written for it. The health
    /// of `touched` is another.
    pub(super) fn carried_out(&mut self, agent: &Agent, touched: &[EndpointId]) {
        let why = |endpoint| agent.last_failure(endpoint);
        for event in self.seen.follow(agent.snapshot(), touched, &why) {
            self.tell(event);
        }
        self.tell_written();
    }

    /// Tells what was written.
    pub(super) fn tell_written(&mut self) {
        for (at, event) in self.written.drain(..) {
            self.stream.tell(at, event);
        }
    }

    /// The lease was renewed, as it is every [`RENEWAL`].
    pub(super) fn renewed(&mut self) {
        let now = Instant::now();
        if let Some(before) = self.renewed.replace(now) {
            let late = now.saturating_duration_since(before).saturating_sub(RENEWAL);
            if late >= LATE {
                self.late += 1;
                self.tell(Event::Lease { late_ms: u64::try_from(late.as_millis()).unwrap_or(u64::MAX) });
            }
        }
    }

    /// Looks whether the program is on other interfaces, or they are others.
    pub(super) fn look_at_interfaces(&mut self, datapath: &Datapath) {
        if self.interfaces == datapath.interfaces() {
            return;
        }
        for interface in datapath.interfaces() {
            if !self.interfaces.contains(interface) {
                let mac: Vec<String> = interface.mac.iter().map(|octet| format!("{octet:02x}")).collect();
                self.tell(Event::Interface {
                    away: interface.away,
                    name: interface.name.clone(),
                    index: interface.index,
                    mode: interface.mode.to_string(),
                    mac: mac.join(":"),
                });
            }
        }
        self.interfaces = datapath.interfaces().to_vec();
    }

    /// Looks whether secondaries were notified.
    pub(super) fn look_at_notifies(&mut self, counts: &dns::Counts) {
        let now = [Counter::ServerNotifySent, Counter::ServerNotifyAnswered, Counter::ServerNotifyFailed]
            .map(|counter| counts.get(counter));
        if now != self.notified {
            let [sent, answered, failed] = [0, 1, 2].map(|i: usize| now[i].saturating_sub(self.notified[i]));
            self.tell(Event::Notify { sent, answered, failed });
            self.notified = now;
        }
    }

    /// The configuration was loaded anew.
    pub(super) fn reloaded(&self, report: &ReloadReport) {
        let ReloadReport { generation, milliseconds, .. } = *report;
        self.figures.generation("configuration", Duration::from_millis(milliseconds));
        self.tell(Event::Reload { ok: true, generation, milliseconds, why: None });
    }

    /// The configuration was refused.
    pub(super) fn refused(&self, generation: u64, why: &str) {
        let why = Some(why.to_owned());
        self.tell(Event::Reload { ok: false, generation, milliseconds: 0, why });
    }

    /// A data file was taken up.
    pub(super) fn data_taken(&self, loaded: &LoadedFeed) {
        let what = loaded.feed.kind.to_string();
        self.tell(Event::Data { ok: true, what, rows: Some(loaded.rows), why: None });
    }

    /// A data file cannot be used.
    pub(super) fn data_broken(&self, broken: &BrokenFeed) {
        let what = broken.kind.to_string();
        self.tell(Event::Data { ok: false, what, rows: None, why: Some(broken.why.clone()) });
    }

    /// Overrides are others now. `by` is who did it; `None`: time did.
    pub(super) fn overrides(&self, touched: &[Override], agent: &Agent, by: Option<&str>) {
        for held in touched {
            let what = match by {
                None => OverrideChange::Ended,
                Some(_) if agent.overrides().list().contains(held) => OverrideChange::Set,
                Some(_) => OverrideChange::Cleared,
            };
            self.tell(Event::Override {
                what,
                target: held.target.clone(),
                setting: held.setting.to_string(),
                by: by.unwrap_or("xroute").to_owned(),
                until: held.until,
                reason: held.reason.clone(),
            });
        }
    }
}
