//! `monitor`: the profile's table, an endpoint's that overrides single keys, and what comes of both.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use router_common::model::{Authorities, Monitor, ProbeDestination, ProbeMethod, WindowRule};
use toml::de::DeValue;

use super::files::Loader;
use super::reader::{Faults, Spot, Table, choice, shown, text, truth, whole};
use super::server::interface;
use super::values::{duration, show};

mod target;
mod values;

/// Longest interval, timeout or hold.
const MAX_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);

/// The word of `protocol`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http,
    Https,
    Tcp,
    Exec,
    File,
}

const PROTOCOLS: [(&str, Protocol); 5] = [
    ("http", Protocol::Http),
    ("https", Protocol::Https),
    ("tcp", Protocol::Tcp),
    ("exec", Protocol::Exec),
    ("file", Protocol::File),
];

/// Which protocols use a key; those that are not here use all of them.
const USERS: [(&str, &[Protocol]); 17] = [
    ("port", &[Protocol::Http, Protocol::Https, Protocol::Tcp]),
    ("path", &[Protocol::Http, Protocol::Https]),
    ("method", &[Protocol::Http, Protocol::Https]),
    ("host", &[Protocol::Http, Protocol::Https]),
    ("headers", &[Protocol::Http, Protocol::Https]),
    ("user_agent", &[Protocol::Http, Protocol::Https]),
    ("expected_status", &[Protocol::Http, Protocol::Https]),
    ("verify", &[Protocol::Https]),
    ("ca", &[Protocol::Https]),
    ("source", &[Protocol::Http, Protocol::Https, Protocol::Tcp]),
    ("source_interface", &[Protocol::Http, Protocol::Https, Protocol::Tcp]),
    ("command", &[Protocol::Exec]),
    ("file", &[Protocol::File]),
    ("timeout", &[Protocol::Http, Protocol::Https, Protocol::Tcp, Protocol::Exec]),
    ("sample_size", &[Protocol::Http, Protocol::Https, Protocol::Tcp, Protocol::Exec]),
    ("successful_samples", &[Protocol::Http, Protocol::Https, Protocol::Tcp, Protocol::Exec]),
    ("tolerated_failures", &[Protocol::Http, Protocol::Https, Protocol::Tcp, Protocol::Exec]),
];

impl Protocol {
    fn word(self) -> &'static str {
        PROTOCOLS.iter().find(|(_, protocol)| *protocol == self).map_or("", |(word, _)| word)
    }

    fn uses(self, key: &str) -> bool {
        USERS.iter().find(|(known, _)| *known == key).is_none_or(|(_, users)| users.contains(&self))
    }
}

/// `monitor` of a profile.
pub(super) enum Wish {
    /// `monitor = "off"`.
    Off,
    /// The table; all defaults when there is none.
    Keys(Box<Keys>),
}

/// A value and where it was written.
#[derive(Clone)]
struct At<T> {
    value: T,
    spot: Spot,
}

/// The keys that a monitor table sets.
#[derive(Clone, Default)]
pub(super) struct Keys {
    /// Something in the table was refused: nothing more is concluded from the rest.
    broken: bool,
    protocol: Option<At<Protocol>>,
    port: Option<At<u16>>,
    path: Option<At<String>>,
    method: Option<At<ProbeMethod>>,
    host: Option<At<String>>,
    headers: Option<At<Vec<(String, String)>>>,
    user_agent: Option<At<String>>,
    verify: Option<At<bool>>,
    ca: Option<At<Arc<Authorities>>>,
    source: Option<At<IpAddr>>,
    source_interface: Option<At<String>>,
    command: Option<At<Vec<String>>>,
    file: Option<At<String>>,
    expected_status: Option<At<Vec<(u16, u16)>>>,
    interval: Option<At<Duration>>,
    timeout: Option<At<Duration>>,
    sample_size: Option<At<u8>>,
    successful_samples: Option<At<u8>>,
    tolerated_failures: Option<At<u8>>,
    hold: Option<At<Duration>>,
}

/// Reads `monitor` of a profile. An absent one is the default monitor.
pub(super) fn of_profile(profile: &Table<'_>, loader: &Loader<'_>) -> Wish {
    match profile.value("monitor").map(|value| value.get_ref()) {
        None => Wish::Keys(Box::default()),
        Some(DeValue::Table(_)) => {
            let table = profile.table("monitor", "[profile.monitor]");
            Wish::Keys(Box::new(table.map(|table| keys(table, loader)).unwrap_or_default()))
        }
        Some(_) => {
            if profile.take("monitor", off).is_some() {
                Wish::Off
            } else {
                Wish::Keys(Box::default())
            }
        }
    }
}

/// Reads `monitor` of an endpoint, which overrides single keys of the profile's.
pub(super) fn of_endpoint(endpoint: &Table<'_>, profile: &Wish, loader: &Loader<'_>) -> Option<Keys> {
    let own = match endpoint.value("monitor")?.get_ref() {
        DeValue::Table(_) => keys(endpoint.table("monitor", "monitor of the endpoint")?, loader),
        other => {
            let found = shown(other);
            endpoint.fault_at(
                "monitor",
                format!(
                    "monitor: found {found}; an endpoint's monitor is a table, e.g. {{ port = 8443 }}; to \
                     serve it whatever its health, set always_serve = true"
                ),
            );
            return None;
        }
    };
    if let Wish::Off = profile {
        let message = "monitor: the profile's monitor is \"off\": there is nothing to override";
        endpoint.fault_at("monitor", message.into());
        return None;
    }
    Some(own)
}

fn off(value: &DeValue<'_>) -> Result<(), String> {
    match value.as_str() {
        Some("off") => Ok(()),
        _ => Err(format!("found {}; allowed are a table, [profile.monitor], and \"off\"", shown(value))),
    }
}

fn keys(table: Table<'_>, loader: &Loader<'_>) -> Keys {
    /// Takes the value of a key together with its place.
    fn at<'t, T>(
        table: &Table<'t>,
        key: &'static str,
        take: impl FnOnce(&'t DeValue<'t>) -> Result<T, String>,
    ) -> Option<At<T>> {
        let spot = table.spot_of(table.value(key)?);
        Some(At { value: table.take(key, take)?, spot })
    }
    let folder = &table.source().folder;
    let methods = [("HEAD", ProbeMethod::Head), ("GET", ProbeMethod::Get)];
    let mut read = Keys {
        broken: false,
        protocol: at(&table, "protocol", |value| choice(value, &PROTOCOLS)),
        port: at(&table, "port", |value| whole(value, 1..=65535)),
        path: at(&table, "path", values::path),
        method: at(&table, "method", |value| choice(value, &methods)),
        host: at(&table, "host", values::host),
        headers: values::headers(&table),
        user_agent: at(&table, "user_agent", values::user_agent),
        verify: at(&table, "verify", truth),
        ca: at(&table, "ca", |value| values::authorities(&folder.join(text(value)?), loader)),
        source: at(&table, "source", values::source),
        source_interface: at(&table, "source_interface", interface),
        command: values::command(&table),
        file: at(&table, "file", |value| values::file(folder, value)),
        expected_status: values::expected_status(&table),
        interval: at(&table, "interval", |value| duration(value, Duration::from_secs(1)..=MAX_INTERVAL)),
        timeout: at(&table, "timeout", |value| duration(value, Duration::from_millis(1)..=MAX_INTERVAL)),
        sample_size: at(&table, "sample_size", |value| whole(value, 1..=64)),
        successful_samples: at(&table, "successful_samples", |value| whole(value, 1..=64)),
        tolerated_failures: at(&table, "tolerated_failures", |value| whole(value, 0..=9)),
        hold: at(&table, "hold", |value| duration(value, Duration::ZERO..=MAX_INTERVAL)),
    };
    if read.tolerated_failures.is_some() && (read.sample_size.is_some() || read.successful_samples.is_some())
    {
        let message = "tolerated_failures: found beside sample_size or successful_samples; allowed is one \
                       window or the other";
        table.fault_at("tolerated_failures", message.into());
    }
    if read.ca.is_some() && read.verify.as_ref().is_some_and(|at| !at.value) {
        let message = "ca: found beside verify = false, which accepts any certificate";
        table.fault_at("ca", message.into());
    }
    read.broken = !table.is_sound();
    table.finish();
    read
}

impl Keys {
    /// These keys where they are set, else the profile's. What the profile sets for another protocol or
    /// another kind of window does not carry over.
    pub(super) fn over(self, base: &Self) -> Self {
        let protocol_stays = self.protocol.is_none();
        let protocol = self.protocol.or_else(|| base.protocol.clone());
        let kind = protocol.as_ref().map_or(Protocol::Http, |at| at.value);
        let samples = self.sample_size.is_some() || self.successful_samples.is_some();
        let tolerated = self.tolerated_failures.is_some();
        // Either says whom to believe.
        let trust = self.verify.is_some() || self.ca.is_some();
        let carries = |key: &str| protocol_stays || kind.uses(key);
        Self {
            broken: self.broken || base.broken,
            protocol,
            port: self.port.or_else(|| base.port.clone().filter(|_| carries("port"))),
            path: self.path.or_else(|| base.path.clone().filter(|_| carries("path"))),
            method: self.method.or_else(|| base.method.clone().filter(|_| carries("method"))),
            host: self.host.or_else(|| base.host.clone().filter(|_| carries("host"))),
            headers: self.headers.or_else(|| base.headers.clone().filter(|_| carries("headers"))),
            user_agent: self.user_agent.or_else(|| base.user_agent.clone().filter(|_| carries("user_agent"))),
            verify: self.verify.or_else(|| base.verify.clone().filter(|_| carries("verify") && !trust)),
            ca: self.ca.or_else(|| base.ca.clone().filter(|_| carries("ca") && !trust)),
            source: self.source.or_else(|| base.source.clone().filter(|_| carries("source"))),
            source_interface: self
                .source_interface
                .or_else(|| base.source_interface.clone().filter(|_| carries("source_interface"))),
            command: self.command.or_else(|| base.command.clone().filter(|_| carries("command"))),
            file: self.file.or_else(|| base.file.clone().filter(|_| carries("file"))),
            expected_status: self
                .expected_status
                .or_else(|| base.expected_status.clone().filter(|_| carries("expected_status"))),
            interval: self.interval.or_else(|| base.interval.clone()),
            timeout: self.timeout.or_else(|| base.timeout.clone().filter(|_| carries("timeout"))),
            sample_size: self
                .sample_size
                .or_else(|| base.sample_size.clone().filter(|_| !tolerated && carries("sample_size"))),
            successful_samples: self.successful_samples.or_else(|| {
                base.successful_samples.clone().filter(|_| !tolerated && carries("successful_samples"))
            }),
            tolerated_failures: self.tolerated_failures.or_else(|| {
                base.tolerated_failures.clone().filter(|_| !samples && carries("tolerated_failures"))
            }),
            hold: self.hold.or_else(|| base.hold.clone()),
        }
    }

    /// The monitor of an endpoint, which is called `path`. Reports what does not go together; then there is
    /// none.
    pub(super) fn settle(
        &self,
        destination: ProbeDestination,
        path: &str,
        here: &Spot,
        faults: &Faults,
    ) -> Option<Monitor> {
        if self.broken {
            return None;
        }
        let protocol = value(&self.protocol).unwrap_or(Protocol::Http);
        let used = self.check_protocol(protocol, faults);
        let timing = self.timing(protocol, faults);
        let window = self.window(protocol, faults);
        let target = self.target(protocol, destination, path, here, faults);
        let (Some(target), Some((interval, timeout)), Some(window), true) = (target, timing, window, used)
        else {
            return None;
        };
        Some(Monitor {
            target,
            expected_status: value(&self.expected_status).unwrap_or_else(|| vec![(200, 200)]),
            interval,
            timeout,
            window,
            hold: value(&self.hold).unwrap_or_default(),
        })
    }

    /// No key is accepted that the protocol does not use.
    fn check_protocol(&self, protocol: Protocol, faults: &Faults) -> bool {
        fn spot<T>(at: &Option<At<T>>) -> Option<&Spot> {
            at.as_ref().map(|at| &at.spot)
        }
        let set = [
            ("port", spot(&self.port)),
            ("path", spot(&self.path)),
            ("method", spot(&self.method)),
            ("host", spot(&self.host)),
            ("headers", spot(&self.headers)),
            ("user_agent", spot(&self.user_agent)),
            ("expected_status", spot(&self.expected_status)),
            ("verify", spot(&self.verify)),
            ("ca", spot(&self.ca)),
            ("source", spot(&self.source)),
            ("source_interface", spot(&self.source_interface)),
            ("command", spot(&self.command)),
            ("file", spot(&self.file)),
            ("timeout", spot(&self.timeout)),
            ("sample_size", spot(&self.sample_size)),
            ("successful_samples", spot(&self.successful_samples)),
            ("tolerated_failures", spot(&self.tolerated_failures)),
        ];
        let mut sound = true;
        for (key, spot) in set {
            let Some(spot) = spot.filter(|_| !protocol.uses(key)) else { continue };
            let message = match USERS.iter().find(|(known, _)| *known == key) {
                Some((_, [only])) => format!("{key} is used by the protocol {:?} only", only.word()),
                _ => format!("{key} is not used by the protocol {:?}", protocol.word()),
            };
            faults.add(spot.fault(message));
            sound = false;
        }
        sound
    }

    fn timing(&self, protocol: Protocol, faults: &Faults) -> Option<(Duration, Duration)> {
        // Looking into a file costs next to nothing, and what it says holds at once.
        let usual = if protocol == Protocol::File { 1 } else { 30 };
        let interval = value(&self.interval).unwrap_or(Duration::from_secs(usual));
        let Some(timeout) = self.timeout.as_ref().filter(|_| protocol.uses("timeout")) else {
            // 10 s, or one second less than the interval; half of an interval that is too short for that.
            let room = interval.saturating_sub(Duration::from_secs(1)).max(interval / 2);
            return Some((interval, room.min(Duration::from_secs(10))));
        };
        if timeout.value >= interval {
            let message = format!(
                "timeout: found {}; it must be shorter than the interval, {}",
                show(timeout.value),
                show(interval)
            );
            faults.add(timeout.spot.fault(message));
            return None;
        }
        Some((interval, timeout.value))
    }

    fn window(&self, protocol: Protocol, faults: &Faults) -> Option<WindowRule> {
        if protocol == Protocol::File {
            // Whoever writes the file has made up his mind.
            return Some(WindowRule::Samples { size: 1, successful: 1 });
        }
        if let Some(at) = &self.tolerated_failures {
            return Some(WindowRule::Tolerated { failures: at.value });
        }
        let size = value(&self.sample_size).unwrap_or(4);
        let Some(successful) = &self.successful_samples else {
            return Some(WindowRule::Samples { size, successful: size.min(2) });
        };
        if successful.value > size {
            let message = format!(
                "successful_samples: found {}; allowed is 1 to {size}, the sample_size",
                successful.value
            );
            faults.add(successful.spot.fault(message));
            return None;
        }
        Some(WindowRule::Samples { size, successful: successful.value })
    }
}

fn value<T: Clone>(at: &Option<At<T>>) -> Option<T> {
    at.as_ref().map(|at| at.value.clone())
}
