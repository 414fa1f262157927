//! `monitor`: the profile's table, an endpoint's that overrides single keys, and what comes of both.

use std::collections::BTreeMap;
use std::time::Duration;

use router_common::model::{Monitor, ProbeDestination, ProbeMethod, ProbeProtocol, ProbeTarget, WindowRule};
use toml::de::DeValue;

use super::reader::{Faults, Spot, Table, choice, shown, text, truth, whole};
use super::values::{duration, show, status};

/// Longest interval or timeout.
const MAX_INTERVAL: Duration = Duration::from_secs(24 * 60 * 60);
/// Most headers, and most status ranges.
const MAX_LISTED: usize = 8;
/// Longest path, header value.
const MAX_TEXT: usize = 2000;

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
    protocol: Option<At<ProbeProtocol>>,
    port: Option<At<u16>>,
    path: Option<At<String>>,
    method: Option<At<ProbeMethod>>,
    host: Option<At<String>>,
    headers: Option<At<Vec<(String, String)>>>,
    verify: Option<At<bool>>,
    expected_status: Option<At<Vec<(u16, u16)>>>,
    interval: Option<At<Duration>>,
    timeout: Option<At<Duration>>,
    sample_size: Option<At<u8>>,
    successful_samples: Option<At<u8>>,
    tolerated_failures: Option<At<u8>>,
}

/// Reads `monitor` of a profile. An absent one is the default monitor.
pub(super) fn of_profile(profile: &Table<'_>) -> Wish {
    match profile.value("monitor").map(|value| value.get_ref()) {
        None => Wish::Keys(Box::default()),
        Some(DeValue::Table(_)) => {
            let table = profile.table("monitor", "[profile.monitor]");
            Wish::Keys(Box::new(table.map(keys).unwrap_or_default()))
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
pub(super) fn of_endpoint(endpoint: &Table<'_>, profile: &Wish) -> Option<Keys> {
    let own = match endpoint.value("monitor")?.get_ref() {
        DeValue::Table(_) => endpoint.table("monitor", "monitor of the endpoint").map(keys)?,
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

fn keys(table: Table<'_>) -> Keys {
    /// Takes the value of a key together with its place.
    fn at<'t, T>(
        table: &Table<'t>,
        key: &'static str,
        take: impl FnOnce(&'t DeValue<'t>) -> Result<T, String>,
    ) -> Option<At<T>> {
        let spot = table.spot_of(table.value(key)?);
        Some(At { value: table.take(key, take)?, spot })
    }
    let protocols =
        [("http", ProbeProtocol::Http), ("https", ProbeProtocol::Https), ("tcp", ProbeProtocol::Tcp)];
    let methods = [("HEAD", ProbeMethod::Head), ("GET", ProbeMethod::Get)];
    let mut read = Keys {
        broken: false,
        protocol: at(&table, "protocol", |value| choice(value, &protocols)),
        port: at(&table, "port", |value| whole(value, 1..=65535)),
        path: at(&table, "path", path),
        method: at(&table, "method", |value| choice(value, &methods)),
        host: at(&table, "host", host),
        headers: headers(&table),
        verify: at(&table, "verify", truth),
        expected_status: expected_status(&table),
        interval: at(&table, "interval", |value| duration(value, Duration::from_secs(1)..=MAX_INTERVAL)),
        timeout: at(&table, "timeout", |value| duration(value, Duration::from_millis(1)..=MAX_INTERVAL)),
        sample_size: at(&table, "sample_size", |value| whole(value, 1..=64)),
        successful_samples: at(&table, "successful_samples", |value| whole(value, 1..=64)),
        tolerated_failures: at(&table, "tolerated_failures", |value| whole(value, 0..=9)),
    };
    if read.tolerated_failures.is_some() && (read.sample_size.is_some() || read.successful_samples.is_some())
    {
        let message = "tolerated_failures: found beside sample_size or successful_samples; allowed is one \
                       window or the other";
        table.fault_at("tolerated_failures", message.into());
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
        let kind = protocol.as_ref().map_or(ProbeProtocol::Http, |at| at.value);
        let http = protocol_stays || kind != ProbeProtocol::Tcp;
        let tls = protocol_stays || kind == ProbeProtocol::Https;
        let samples = self.sample_size.is_some() || self.successful_samples.is_some();
        let tolerated = self.tolerated_failures.is_some();
        Self {
            broken: self.broken || base.broken,
            protocol,
            port: self.port.or_else(|| base.port.clone()),
            path: self.path.or_else(|| base.path.clone().filter(|_| http)),
            method: self.method.or_else(|| base.method.clone().filter(|_| http)),
            host: self.host.or_else(|| base.host.clone().filter(|_| http)),
            headers: self.headers.or_else(|| base.headers.clone().filter(|_| http)),
            verify: self.verify.or_else(|| base.verify.clone().filter(|_| tls)),
            expected_status: self.expected_status.or_else(|| base.expected_status.clone().filter(|_| http)),
            interval: self.interval.or_else(|| base.interval.clone()),
            timeout: self.timeout.or_else(|| base.timeout.clone()),
            sample_size: self.sample_size.or_else(|| base.sample_size.clone().filter(|_| !tolerated)),
            successful_samples: self
                .successful_samples
                .or_else(|| base.successful_samples.clone().filter(|_| !tolerated)),
            tolerated_failures: self
                .tolerated_failures
                .or_else(|| base.tolerated_failures.clone().filter(|_| !samples)),
        }
    }

    /// The monitor of an endpoint. Reports what does not go together; then there is none.
    pub(super) fn settle(
        &self,
        destination: ProbeDestination,
        here: &Spot,
        faults: &Faults,
    ) -> Option<Monitor> {
        if self.broken {
            return None;
        }
        let protocol = value(&self.protocol).unwrap_or(ProbeProtocol::Http);
        let used = self.check_protocol(protocol, faults);
        let port = match (value(&self.port), protocol) {
            (Some(port), _) => Some(port),
            (None, ProbeProtocol::Http) => Some(80),
            (None, ProbeProtocol::Https) => Some(443),
            (None, ProbeProtocol::Tcp) => {
                let spot = self.protocol.as_ref().map_or(here, |at| &at.spot);
                faults.add(spot.fault("protocol: \"tcp\" needs a port".into()));
                None
            }
        };
        let timing = self.timing(faults);
        let window = self.window(faults);
        let (Some(port), Some((interval, timeout)), Some(window), true) = (port, timing, window, used) else {
            return None;
        };
        let http = protocol != ProbeProtocol::Tcp;
        let default_host = || match &destination {
            ProbeDestination::Address(address) if address.is_ipv6() => format!("[{address}]"),
            ProbeDestination::Address(address) => address.to_string(),
            ProbeDestination::Domain(name) => name.to_string().trim_end_matches('.').to_owned(),
        };
        // What a protocol does not use has one value, so that equal probes are equal targets.
        let host = if http { value(&self.host).unwrap_or_else(default_host) } else { String::new() };
        Some(Monitor {
            target: ProbeTarget {
                destination,
                port,
                protocol,
                method: value(&self.method).filter(|_| http).unwrap_or(ProbeMethod::Head),
                path: value(&self.path).filter(|_| http).unwrap_or_else(|| "/".into()),
                host,
                headers: value(&self.headers).filter(|_| http).unwrap_or_default(),
                verify: value(&self.verify).filter(|_| protocol == ProbeProtocol::Https).unwrap_or(true),
            },
            expected_status: value(&self.expected_status)
                .filter(|_| http)
                .unwrap_or_else(|| vec![(200, 200)]),
            interval,
            timeout,
            window,
        })
    }

    /// No key is accepted that the protocol does not use.
    fn check_protocol(&self, protocol: ProbeProtocol, faults: &Faults) -> bool {
        let spot = |spot: &Spot| spot.clone();
        let http: [(&str, Option<Spot>); 5] = [
            ("path", self.path.as_ref().map(|at| spot(&at.spot))),
            ("method", self.method.as_ref().map(|at| spot(&at.spot))),
            ("host", self.host.as_ref().map(|at| spot(&at.spot))),
            ("headers", self.headers.as_ref().map(|at| spot(&at.spot))),
            ("expected_status", self.expected_status.as_ref().map(|at| spot(&at.spot))),
        ];
        let mut sound = true;
        for (key, spot) in http {
            if let Some(spot) = spot.filter(|_| protocol == ProbeProtocol::Tcp) {
                faults.add(spot.fault(format!("{key} is not used by the protocol \"tcp\"")));
                sound = false;
            }
        }
        if let Some(at) = self.verify.as_ref().filter(|_| protocol != ProbeProtocol::Https) {
            faults.add(at.spot.fault("verify is used by the protocol \"https\" only".into()));
            sound = false;
        }
        sound
    }

    fn timing(&self, faults: &Faults) -> Option<(Duration, Duration)> {
        let interval = value(&self.interval).unwrap_or(Duration::from_secs(30));
        let Some(timeout) = &self.timeout else {
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

    fn window(&self, faults: &Faults) -> Option<WindowRule> {
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

fn path(value: &DeValue<'_>) -> Result<String, String> {
    let path = text(value)?;
    if !path.starts_with('/') || path.len() > MAX_TEXT || !path.bytes().all(|octet| octet.is_ascii_graphic())
    {
        return Err(format!(
            "found {}; a path begins with \"/\" and has no spaces, e.g. \"/health\"",
            shown(value)
        ));
    }
    if path.contains('#') {
        return Err(format!("found {}; a \"#\" is not sent to a server; write %23", shown(value)));
    }
    Ok(path.to_owned())
}

fn host(value: &DeValue<'_>) -> Result<String, String> {
    let host = text(value)?;
    let plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-._:[]".contains(&octet);
    if host.is_empty() || host.len() > 255 || !host.bytes().all(plain) {
        return Err(format!("found {}; a host name is wanted, e.g. \"www.example.com\"", shown(value)));
    }
    Ok(host.trim_end_matches('.').to_owned())
}

fn expected_status(table: &Table<'_>) -> Option<At<Vec<(u16, u16)>>> {
    let spot = table.spot_of(table.value("expected_status")?);
    let ranges = table.items("expected_status", status)?;
    let found = table.count("expected_status");
    if !(1..=MAX_LISTED).contains(&found) {
        let message = format!("expected_status: found {found} ranges; allowed are 1 to {MAX_LISTED}");
        table.fault_at("expected_status", message);
        return None;
    }
    Some(At { value: ranges, spot })
}

/// Headers that follow from other keys, or that would break the request.
const RESERVED: [&str; 6] =
    ["host", "connection", "content-length", "transfer-encoding", "upgrade", "expect"];

fn headers(table: &Table<'_>) -> Option<At<Vec<(String, String)>>> {
    let spot = table.spot_of(table.value("headers")?);
    let given = table.table("headers", "headers")?;
    let mut by_name: BTreeMap<String, (String, String)> = BTreeMap::new();
    let mut found = 0usize;
    for (name, name_spot, header) in given.entries() {
        found += 1;
        let fault = |message: String| table.fault_by("headers", &name_spot, message);
        let token = |octet: u8| octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&octet);
        let folded = name.to_ascii_lowercase();
        let Some(content) = header.get_ref().as_str() else {
            fault(format!("headers: found {} for {name:?}; a string is wanted", shown(header.get_ref())));
            continue;
        };
        if name.is_empty() || name.len() > 100 || !name.bytes().all(token) {
            fault(format!("headers: {name:?} is not the name of a header (RFC 9110 §5.1)"));
        } else if folded == "host" {
            fault("headers: the Host header is set by the key host".into());
        } else if RESERVED.contains(&folded.as_str()) {
            fault(format!("headers: {name:?} is set by the probe itself"));
        } else if content.len() > MAX_TEXT
            || !content.bytes().all(|octet| octet == b' ' || octet == b'\t' || octet.is_ascii_graphic())
        {
            fault(format!("headers: the value of {name:?} is not printable ASCII text"));
        } else if let Some((before, _)) = by_name.get(&folded) {
            fault(format!("headers: {name:?} stands twice, before as {before:?}"));
        } else {
            by_name.insert(folded, (name.to_owned(), content.to_owned()));
        }
    }
    if found > MAX_LISTED {
        table.fault_at("headers", format!("headers: found {found}; at most {MAX_LISTED} are allowed"));
        return None;
    }
    Some(At { value: by_name.into_values().collect(), spot })
}
