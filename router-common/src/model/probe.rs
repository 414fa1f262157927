//! What a monitor probes, and when it counts as healthy.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::name::Name;

/// What is probed, and how: two endpoints with an equal target are probed once.
///
/// Shown as one line that names everything that distinguishes it; state is kept under that line across
/// restarts.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ProbeTarget {
    /// A request over HTTP/1.1, plain or over TLS.
    Http(HttpProbe),
    /// A TCP connection, closed as soon as it is there.
    Tcp(Connection),
    /// A program of this machine: healthy when it exits with status 0.
    Exec(Program),
    /// What another tool says in a file.
    File(StateFile),
}

/// One HTTP request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HttpProbe {
    /// Over which connection.
    pub connection: Connection,
    /// Whom the server's certificate is believed; `None` without TLS.
    pub tls: Option<Trust>,
    /// Method.
    pub method: ProbeMethod,
    /// Path, with the query.
    pub path: String,
    /// `Host` header and SNI.
    pub host: String,
    /// `User-Agent`; `None` for the agent's own.
    pub user_agent: Option<String>,
    /// Further headers, in the order of their names.
    pub headers: Vec<(String, String)>,
}

/// Request method of an HTTP probe.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProbeMethod {
    /// No body wanted.
    Head,
    /// The body is read to its last byte.
    Get,
}

/// Which certificates are accepted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Trust {
    /// Any.
    Anybody,
    /// What the system's authorities have issued.
    System,
    /// What these have issued, and nobody else.
    Authorities(Arc<Authorities>),
}

/// Certificate authorities of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Authorities {
    /// The file they were read from.
    pub file: String,
    /// Certificates in DER, at least one.
    pub certificates: Vec<Vec<u8>>,
}

impl Hash for Authorities {
    /// By the file alone: kilobytes of certificates are not worth hashing with every look-up.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.file.hash(state);
    }
}

/// A TCP connection to be made.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Connection {
    /// Address or name to connect to.
    pub destination: ProbeDestination,
    /// TCP port.
    pub port: u16,
    /// Where it comes from.
    pub source: Source,
}

/// Where a probe connects to.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ProbeDestination {
    /// The endpoint's first address.
    Address(IpAddr),
    /// The endpoint's domain name, resolved by the system.
    Domain(Name),
}

/// Where a connection comes from; what is `None` is left to the system.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Source {
    /// Source address.
    pub address: Option<IpAddr>,
    /// Interface (or VRF) that every packet takes.
    pub interface: Option<String>,
}

/// A program to run.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Program {
    /// Its file.
    pub file: String,
    /// Its arguments, one by one; no shell sees them.
    pub arguments: Vec<String>,
}

/// A file that says which endpoints are online.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct StateFile {
    /// The file.
    pub file: String,
    /// The endpoint whose state is looked up, as `profile/endpoint`.
    pub endpoint: String,
}

impl ProbeTarget {
    /// The connection of a probe over the network; `None` for what is asked on this machine.
    pub fn connection(&self) -> Option<&Connection> {
        match self {
            Self::Http(probe) => Some(&probe.connection),
            Self::Tcp(connection) => Some(connection),
            Self::Exec(_) | Self::File(_) => None,
        }
    }
}

impl fmt::Display for ProbeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(probe) => probe.fmt(f),
            Self::Tcp(connection) => write!(f, "TCP {connection}{}", connection.source),
            Self::Exec(program) => {
                write!(f, "exec {:?}", program.file)?;
                program.arguments.iter().try_for_each(|argument| write!(f, " {argument:?}"))
            }
            Self::File(file) => write!(f, "file {:?} of {:?}", file.file, file.endpoint),
        }
    }
}

impl fmt::Display for HttpProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let method = match self.method {
            ProbeMethod::Head => "HEAD",
            ProbeMethod::Get => "GET",
        };
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        write!(f, "{method} {scheme}://{}{} host {:?}", self.connection, self.path, self.host)?;
        if let Some(user_agent) = &self.user_agent {
            write!(f, " user-agent {user_agent:?}")?;
        }
        self.headers.iter().try_for_each(|(name, value)| write!(f, " header {name:?} {value:?}"))?;
        match &self.tls {
            Some(Trust::Anybody) => f.write_str(" unverified")?,
            Some(Trust::Authorities(authorities)) => write!(f, " ca {:?}", authorities.file)?,
            Some(Trust::System) | None => {}
        }
        write!(f, "{}", self.connection.source)
    }
}

impl fmt::Display for Connection {
    /// Address or name, and port, as in a URL.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.destination {
            ProbeDestination::Address(IpAddr::V6(address)) => write!(f, "[{address}]:{}", self.port),
            ProbeDestination::Address(IpAddr::V4(address)) => write!(f, "{address}:{}", self.port),
            ProbeDestination::Domain(name) => write!(f, "{name}:{}", self.port),
        }
    }
}

impl fmt::Display for Source {
    /// Nothing when all is left to the system; begins with a space otherwise.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(address) = self.address {
            write!(f, " from {address}")?;
        }
        match &self.interface {
            Some(interface) => write!(f, " via {interface}"),
            None => Ok(()),
        }
    }
}

/// When a sequence of samples counts as healthy (ROUTING.md §6).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WindowRule {
    /// At least `successful` of the last `size`; missing ones count as successes.
    Samples {
        /// 1..=64.
        size: u8,
        /// 1..=size.
        successful: u8,
    },
    /// Unhealthy when more than this many consecutive ones failed; healthy after one success.
    Tolerated {
        /// 0..=9.
        failures: u8,
    },
}

/// An endpoint's effective monitor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Monitor {
    /// What is probed.
    pub target: ProbeTarget,
    /// Inclusive ranges of healthy status codes, 1..=8 of them; only HTTP has any to compare.
    pub expected_status: Vec<(u16, u16)>,
    /// At least 1 s.
    pub interval: Duration,
    /// Shorter than the interval.
    pub timeout: Duration,
    /// When it counts as healthy.
    pub window: WindowRule,
    /// Least time in a state once it is reached, at most a day; zero for none.
    pub hold: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_everything_that_distinguishes_targets() {
        let plain = HttpProbe {
            connection: Connection {
                destination: ProbeDestination::Address("2001:db8::1".parse().unwrap()),
                port: 443,
                source: Source::default(),
            },
            tls: Some(Trust::System),
            method: ProbeMethod::Head,
            path: "/health".into(),
            host: "www.example.test".into(),
            user_agent: None,
            headers: Vec::new(),
        };
        assert_eq!(
            ProbeTarget::Http(plain.clone()).to_string(),
            "HEAD https://[2001:db8::1]:443/health host \"www.example.test\""
        );
        let authorities = Authorities { file: "ca.pem".into(), certificates: vec![vec![1]] };
        let source = Source { address: "2001:db8::2".parse().ok(), interface: Some("eth1".into()) };
        let destination = ProbeDestination::Domain("eu1.example.net".parse().unwrap());
        let full = HttpProbe {
            connection: Connection { destination, port: 8443, source: source.clone() },
            tls: Some(Trust::Authorities(Arc::new(authorities))),
            method: ProbeMethod::Get,
            user_agent: Some("mine".into()),
            headers: vec![("X-A".into(), "b \"c\"".into())],
            ..plain.clone()
        };
        assert_eq!(
            ProbeTarget::Http(full).to_string(),
            "GET https://eu1.example.net.:8443/health host \"www.example.test\" user-agent \"mine\" header \
             \"X-A\" \"b \\\"c\\\"\" ca \"ca.pem\" from 2001:db8::2 via eth1"
        );
        let unverified = HttpProbe { tls: Some(Trust::Anybody), ..plain.clone() };
        assert!(ProbeTarget::Http(unverified).to_string().ends_with(" unverified"));
        assert!(ProbeTarget::Http(HttpProbe { tls: None, ..plain }).to_string().starts_with("HEAD http://"));
        let tcp = Connection {
            destination: ProbeDestination::Address("192.0.2.1".parse().unwrap()),
            port: 25,
            source,
        };
        assert_eq!(ProbeTarget::Tcp(tcp).to_string(), "TCP 192.0.2.1:25 from 2001:db8::2 via eth1");
        let program = Program { file: "/bin/check".into(), arguments: vec!["-H".into(), "a b".into()] };
        assert_eq!(ProbeTarget::Exec(program).to_string(), "exec \"/bin/check\" \"-H\" \"a b\"");
        let file = StateFile { file: "/run/states.json".into(), endpoint: "www/eu1".into() };
        assert_eq!(ProbeTarget::File(file).to_string(), "file \"/run/states.json\" of \"www/eu1\"");
    }
}
