//! The events: a closed list, as JSON and as a line for people.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::audit;

/// What happened.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Event {
    /// The agent answers.
    Started {
        /// Its version.
        version: String,
        /// Its process id.
        pid: u32,
        /// Serial number of the generation that serves.
        generation: u64,
    },
    /// The agent ends, as it was told to.
    Ending {
        /// Whether the fast path goes on.
        keeps_attached: bool,
    },
    /// A monitor changed its mind about an endpoint.
    Verdict {
        /// Name of the profile.
        profile: String,
        /// Name of the endpoint.
        endpoint: String,
        /// What was thought before: `checking`, `online` or `degraded`.
        from: String,
        /// What is thought now.
        to: String,
        /// Why the newest failure failed, when it is `degraded` now.
        reason: Option<String>,
    },
    /// An endpoint has another status (ROUTING.md §2): by a verdict, by an operator, by a reload.
    Endpoint {
        /// Name of the profile.
        profile: String,
        /// Name of the endpoint.
        endpoint: String,
        /// None: it is new.
        from: Option<String>,
        /// None: it is gone.
        to: Option<String>,
    },
    /// A profile has another status, or began or ceased to serve all its endpoints because all are down.
    Profile {
        /// Its name.
        profile: String,
        /// None: it is new.
        from: Option<String>,
        /// None: it is gone.
        to: Option<String>,
        /// Whether all its endpoints are down and all are answered with.
        serving_all: bool,
    },
    /// Operators' changes: an override was set, was cleared, or its time was over.
    Override {
        /// `set`, `cleared` or `ended`.
        what: OverrideChange,
        /// `PROFILE` or `PROFILE/ENDPOINT`.
        target: String,
        /// What it sets, in words.
        setting: String,
        /// Who did it; `xroute` when its time was over.
        by: String,
        /// When it ends by itself, seconds since the Unix epoch.
        until: Option<u64>,
        /// Why, as the one who set it says.
        reason: Option<String>,
    },
    /// The configuration was loaded anew, or was refused.
    Reload {
        /// Whether it serves.
        ok: bool,
        /// Serial number of the generation that serves.
        generation: u64,
        /// What it took; 0 when it was refused.
        milliseconds: u64,
        /// Why it was refused.
        why: Option<String>,
    },
    /// A data file changed and was taken up, or cannot be used.
    Data {
        /// Whether it is in use.
        ok: bool,
        /// `geo database`, `geo overrides` or `latency table`.
        what: String,
        /// Rows of it in use, when it is.
        rows: Option<usize>,
        /// Why it is not.
        why: Option<String>,
    },
    /// The fast path's tables changed.
    Written {
        /// Serial number of the generation that answers now.
        generation: u64,
        /// The half that answers now: 0 or 1.
        half: u8,
        /// Operations inside this half; none when the whole generation was written into the other one.
        operations: Option<usize>,
        /// What it took.
        microseconds: u64,
    },
    /// The XDP program is on an interface, or an interface has another hardware address, or is gone.
    Interface {
        /// Whether it is gone.
        away: bool,
        /// Its name.
        name: String,
        /// Its index.
        index: u32,
        /// `native` or `generic`.
        mode: String,
        /// Its hardware address.
        mac: String,
    },
    /// The lease was renewed later than planned: the agent was held up.
    Lease {
        /// Milliseconds after its time.
        late_ms: u64,
    },
    /// Secondaries were notified since the last such event.
    Notify {
        /// NOTIFY messages sent, repetitions counted.
        sent: u64,
        /// Acknowledged.
        answered: u64,
        /// Refused, or never answered.
        failed: u64,
    },
}

/// What became of an override.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum OverrideChange {
    /// It is new.
    Set,
    /// Somebody took it away, or set another one in its place.
    Cleared,
    /// Its time was over.
    Ended,
}

/// What readers are told of the stream itself, between events.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Notice {
    /// The first line.
    Hello {
        /// Which run of an agent it is; sequence numbers of another run mean nothing in this one.
        run: u64,
        /// Version of the agent.
        version: String,
        /// Oldest sequence number that is kept.
        oldest: u64,
        /// Newest sequence number so far.
        newest: u64,
    },
    /// The reader was too slow.
    Missed {
        /// Events that are gone.
        count: u64,
    },
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $variant:ident),+ $(,)?) => {
        /// The kinds of events, by the names that they have in JSON.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, ValueEnum, ToSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum Kind {
            $($(#[$doc])* $variant),+
        }

        impl Kind {
            /// Every kind, in the order of the discriminants.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
        }

        impl Event {
            /// Its kind.
            pub fn kind(&self) -> Kind {
                match self {
                    $(Self::$variant { .. } => Kind::$variant),+
                }
            }
        }
    };
}

kinds! {
    /// The agent answers.
    Started,
    /// The agent ends.
    Ending,
    /// A monitor changed its mind.
    Verdict,
    /// An endpoint's status changed.
    Endpoint,
    /// A profile's status changed.
    Profile,
    /// Operators' changes.
    Override,
    /// The configuration was loaded anew.
    Reload,
    /// A data file changed.
    Data,
    /// The fast path's tables changed.
    Written,
    /// An interface was attached to, or changed.
    Interface,
    /// The lease was renewed late.
    Lease,
    /// Secondaries were notified.
    Notify,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Started => "started",
            Self::Ending => "ending",
            Self::Verdict => "verdict",
            Self::Endpoint => "endpoint",
            Self::Profile => "profile",
            Self::Override => "override",
            Self::Reload => "reload",
            Self::Data => "data",
            Self::Written => "written",
            Self::Interface => "interface",
            Self::Lease => "lease",
            Self::Notify => "notify",
        })
    }
}

impl Event {
    /// The profile that it is about, when it is about one.
    pub fn profile(&self) -> Option<&str> {
        match self {
            Self::Verdict { profile, .. }
            | Self::Endpoint { profile, .. }
            | Self::Profile { profile, .. } => Some(profile),
            Self::Override { target, .. } => target.split('/').next(),
            _ => None,
        }
    }
}

/// `from -> to`, where one of them may not be there.
struct Step<'s>(Option<&'s str>, Option<&'s str>);

impl fmt::Display for Step<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(Some(from), Some(to)) if from == to => f.write_str(to),
            Self(Some(from), Some(to)) => write!(f, "{from} -> {to}"),
            Self(None, Some(to)) => write!(f, "new, {to}"),
            Self(Some(from), None) => write!(f, "{from}, gone"),
            Self(None, None) => Ok(()),
        }
    }
}

/// The first line of a text that may have many.
fn first(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// One line, without its kind.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Started { version, pid, generation } => {
                write!(f, "xroute {version}, pid {pid}, generation {generation} serves")
            }
            Self::Ending { keeps_attached: true } => f.write_str("the agent ends, the fast path goes on"),
            Self::Ending { keeps_attached: false } => f.write_str("the agent ends"),
            Self::Verdict { profile, endpoint, from, to, reason } => {
                write!(f, "{profile}/{endpoint} {from} -> {to}")?;
                reason.iter().try_for_each(|reason| write!(f, ": {}", first(reason)))
            }
            Self::Endpoint { profile, endpoint, from, to } => {
                write!(f, "{profile}/{endpoint} {}", Step(from.as_deref(), to.as_deref()))
            }
            Self::Profile { profile, from, to, serving_all } => {
                write!(f, "{profile} {}", Step(from.as_deref(), to.as_deref()))?;
                f.write_str(if *serving_all { ", every endpoint is down: serving all" } else { "" })
            }
            Self::Override { what, target, setting, by, until, reason } => {
                match what {
                    OverrideChange::Set => write!(f, "{target} {setting}, by {by}")?,
                    OverrideChange::Cleared => write!(f, "{target} {setting}, cleared by {by}")?,
                    OverrideChange::Ended => write!(f, "{target} {setting}, its time is over")?,
                }
                if let Some(until) = until.filter(|_| *what == OverrideChange::Set) {
                    write!(f, ", until {}", audit::written(std::time::Duration::from_secs(until)))?;
                }
                reason.iter().try_for_each(|reason| write!(f, " ({})", first(reason)))
            }
            Self::Reload { ok: true, generation, milliseconds, .. } => {
                write!(f, "generation {generation} serves, made in {milliseconds} ms")
            }
            Self::Reload { ok: false, generation, why, .. } => {
                write!(f, "refused, generation {generation} goes on")?;
                why.iter().try_for_each(|why| write!(f, ": {}", first(why)))
            }
            Self::Data { ok: true, what, rows, .. } => {
                write!(f, "{what} taken up")?;
                rows.iter().try_for_each(|rows| write!(f, ", {rows} rows"))
            }
            Self::Data { ok: false, what, why, .. } => {
                write!(f, "{what} cannot be used, what was loaded before stays")?;
                why.iter().try_for_each(|why| write!(f, ": {}", first(why)))
            }
            Self::Written { generation, half, operations, microseconds } => {
                write!(f, "generation {generation}, half {half}: ")?;
                match operations {
                    Some(operations) => write!(f, "{operations} operations")?,
                    None => f.write_str("all tables")?,
                }
                write!(f, ", {microseconds} µs")
            }
            Self::Interface { name, away: true, .. } => write!(f, "{name} is gone"),
            Self::Interface { name, index, mode, mac, .. } => {
                write!(f, "{name} (index {index}, {mac}): XDP {mode}")
            }
            Self::Lease { late_ms } => write!(f, "renewed {late_ms} ms late, the agent was held up"),
            Self::Notify { sent, answered, failed } => {
                write!(f, "{sent} sent to secondaries, {answered} answered, {failed} failed")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Told;
    use super::*;

    fn one_of_each() -> Vec<Event> {
        let name = || String::from("www");
        vec![
            Event::Started { version: name(), pid: 7, generation: 1 },
            Event::Ending { keeps_attached: true },
            Event::Verdict {
                profile: name(),
                endpoint: String::from("eu1"),
                from: String::from("online"),
                to: String::from("degraded"),
                reason: Some(String::from("connection refused\nmore")),
            },
            Event::Endpoint { profile: name(), endpoint: name(), from: None, to: Some(name()) },
            Event::Profile { profile: name(), from: Some(name()), to: Some(name()), serving_all: true },
            Event::Override {
                what: OverrideChange::Set,
                target: String::from("www/eu1"),
                setting: String::from("weight 5"),
                by: String::from("root"),
                until: Some(1_700_000_000),
                reason: Some(String::from("kernel update")),
            },
            Event::Reload { ok: false, generation: 3, milliseconds: 0, why: Some(name()) },
            Event::Data { ok: true, what: String::from("latency table"), rows: Some(3), why: None },
            Event::Written { generation: 3, half: 1, operations: Some(2), microseconds: 40 },
            Event::Interface {
                away: false,
                name: name(),
                index: 2,
                mode: String::from("native"),
                mac: name(),
            },
            Event::Lease { late_ms: 2500 },
            Event::Notify { sent: 2, answered: 1, failed: 0 },
        ]
    }

    #[test]
    fn every_kind_is_named_alike_in_json_on_the_command_line_and_in_metrics() {
        let events = one_of_each();
        let kinds: Vec<Kind> = events.iter().map(Event::kind).collect();
        assert_eq!(kinds, Kind::ALL);
        for (i, event) in events.into_iter().enumerate() {
            let kind = event.kind();
            assert_eq!(kind as usize, i);
            let told = Told { sequence: 9, at_ms: 8, event };
            let json = serde_json::to_value(&told).expect("JSON");
            assert_eq!(json["kind"], kind.to_string());
            assert_eq!((&json["sequence"], &json["at_ms"]), (&9.into(), &8.into()));
            let value = kind.to_possible_value().expect("a value");
            assert_eq!(value.get_name(), kind.to_string());
            assert_eq!(serde_json::from_value::<Told>(json).expect("read back"), told);
            let line = told.event.to_string();
            assert!(!line.is_empty() && !line.contains('\n'), "{line:?}");
        }
    }

    #[test]
    fn lines_for_people() {
        let lines: Vec<String> = one_of_each().iter().map(Event::to_string).collect();
        assert_eq!(lines[2], "www/eu1 online -> degraded: connection refused");
        assert_eq!(lines[3], "www/www new, www");
        assert_eq!(lines[5], "www/eu1 weight 5, by root, until 2023-11-14T22:13:20Z (kernel update)");
        assert_eq!(lines[8], "generation 3, half 1: 2 operations, 40 µs");
    }

    #[test]
    fn a_notice_is_no_event() {
        for notice in [
            Notice::Hello { run: 1, version: String::new(), oldest: 1, newest: 0 },
            Notice::Missed { count: 3 },
        ] {
            let json = serde_json::to_string(&notice).expect("JSON");
            assert!(serde_json::from_str::<Told>(&json).is_err());
            assert_eq!(serde_json::from_str::<Notice>(&json).expect("a notice"), notice);
        }
        let told = Told { sequence: 1, at_ms: 1, event: Event::Lease { late_ms: 1 } };
        assert!(serde_json::from_str::<Notice>(&serde_json::to_string(&told).expect("JSON")).is_err());
    }
}
