//! What one probe saw, and what a monitor makes of it.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What one probe saw, before anybody judged it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Observation {
    /// How it ended.
    pub outcome: Outcome,
    /// From just before the connection is opened to the last octet of the response (TCP: to the
    /// connection being there; a program: from its start to its end); `None` when it did not get that far,
    /// and where nothing is measured.
    pub latency: Option<Duration>,
}

/// How a probe ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// A whole HTTP response with this status code.
    Status(u16),
    /// A TCP connection.
    Connected,
    /// A program that ended with this exit status.
    Exited(u8),
    /// A file that says: online (`true`) or degraded.
    Stated(bool),
    /// None of these.
    Fault(ProbeFault),
}

/// What a probe was waiting for when its time ran out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Stage {
    /// The address of a domain name.
    Resolve,
    /// The TCP connection.
    Connect,
    /// The TLS handshake.
    Tls,
    /// The head of the response.
    Response,
    /// The rest of the response.
    Body,
    /// The end of a program.
    Run,
}

/// Why TLS failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TlsFault {
    /// The certificate's time is over.
    Expired,
    /// The certificate's time has not come.
    NotValidYet,
    /// No trusted authority issued the certificate; self-signed ones included.
    UnknownIssuer,
    /// The certificate is for other names than the monitor's `host`.
    WrongName,
    /// Something else is wrong with the certificate.
    BadCertificate,
    /// The server refused with an alert.
    Alert,
    /// What the server sent is not TLS, or breaks its rules.
    Protocol,
}

/// Why a sample is a failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProbeFault {
    /// The time ran out.
    Timeout(Stage),
    /// The domain name has no address, or the resolver did not say.
    Resolve,
    /// The port is closed.
    Refused,
    /// No way to the host or its network.
    Unreachable,
    /// The connection was reset.
    Reset,
    /// The connection ended before the response did.
    Closed,
    /// What the server sent is not HTTP/1.
    Protocol,
    /// TLS failed.
    Tls(TlsFault),
    /// A whole response, but none of the expected status codes.
    Status(u16),
    /// The request cannot be written as configured (path, host, headers).
    Unsendable,
    /// A program ended with this exit status, above 0.
    Exit(u8),
    /// A program was ended by this signal.
    Signal(u8),
    /// A file says so.
    Stated,
    /// Our own machine could not probe: no file descriptor, no port, no memory. Says nothing about
    /// the endpoint, so [`judge`] makes no sample of it.
    Local,
    /// The monitor itself does not work: its program does not start, its file is missing or broken. Says
    /// nothing about the endpoint either.
    Blind,
}

impl ProbeFault {
    /// Whether it says nothing about the endpoint.
    pub fn is_ours(self) -> bool {
        matches!(self, Self::Local | Self::Blind)
    }

    /// Every fault without a number.
    const PLAIN: [Self; 23] = [
        Self::Timeout(Stage::Resolve),
        Self::Timeout(Stage::Connect),
        Self::Timeout(Stage::Tls),
        Self::Timeout(Stage::Response),
        Self::Timeout(Stage::Body),
        Self::Timeout(Stage::Run),
        Self::Resolve,
        Self::Refused,
        Self::Unreachable,
        Self::Reset,
        Self::Closed,
        Self::Protocol,
        Self::Tls(TlsFault::Expired),
        Self::Tls(TlsFault::NotValidYet),
        Self::Tls(TlsFault::UnknownIssuer),
        Self::Tls(TlsFault::WrongName),
        Self::Tls(TlsFault::BadCertificate),
        Self::Tls(TlsFault::Alert),
        Self::Tls(TlsFault::Protocol),
        Self::Unsendable,
        Self::Stated,
        Self::Local,
        Self::Blind,
    ];
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolve => "resolving the name",
            Self::Connect => "connecting",
            Self::Tls => "in the TLS handshake",
            Self::Response => "waiting for the response",
            Self::Body => "reading the body",
            Self::Run => "running the program",
        })
    }
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "certificate expired",
            Self::NotValidYet => "certificate not valid before a later date",
            Self::UnknownIssuer => "certificate of an unknown issuer",
            Self::WrongName => "certificate for another name",
            Self::BadCertificate => "bad certificate",
            Self::Alert => "refused by the server",
            Self::Protocol => "not proper TLS",
        })
    }
}

impl fmt::Display for ProbeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout(stage) => write!(f, "timeout {stage}"),
            Self::Resolve => f.write_str("name not resolved"),
            Self::Refused => f.write_str("connection refused"),
            Self::Unreachable => f.write_str("host unreachable"),
            Self::Reset => f.write_str("connection reset"),
            Self::Closed => f.write_str("connection closed before the end of the response"),
            Self::Protocol => f.write_str("not HTTP/1"),
            Self::Tls(fault) => write!(f, "TLS: {fault}"),
            Self::Status(code) => write!(f, "status {code}"),
            Self::Unsendable => f.write_str("the request cannot be sent as configured"),
            Self::Exit(status) => write!(f, "exit status {status}"),
            Self::Signal(signal) => write!(f, "ended by signal {signal}"),
            Self::Stated => f.write_str("degraded by its file"),
            Self::Local => f.write_str("this machine could not probe"),
            Self::Blind => f.write_str("the monitor itself does not work"),
        }
    }
}

/// The words are none that a fault is shown with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownFault;

impl fmt::Display for UnknownFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not the name of a fault")
    }
}

impl std::error::Error for UnknownFault {}

impl FromStr for ProbeFault {
    type Err = UnknownFault;

    /// Reads what is shown, so that a fault can be kept as people see it.
    fn from_str(words: &str) -> Result<Self, UnknownFault> {
        let number = |before: &str| words.strip_prefix(before);
        let plain = || Self::PLAIN.into_iter().find(|fault| fault.to_string() == words);
        if let Some(code) = number("status ") {
            return code.parse().map(Self::Status).map_err(|_| UnknownFault);
        }
        if let Some(status) = number("exit status ") {
            return status.parse().map(Self::Exit).map_err(|_| UnknownFault);
        }
        if let Some(signal) = number("ended by signal ") {
            return signal.parse().map(Self::Signal).map_err(|_| UnknownFault);
        }
        plain().ok_or(UnknownFault)
    }
}

impl std::error::Error for ProbeFault {}

/// An observation as one monitor judged it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Success or failure.
    pub ok: bool,
    /// As observed, of failures too where there is one.
    pub latency: Option<Duration>,
    /// Why it is a failure; `None` for a success.
    pub error: Option<ProbeFault>,
}

/// Judges an observation by inclusive ranges of healthy status codes. `None` when it says nothing
/// about the endpoint ([`ProbeFault::is_ours`]).
pub fn judge(observation: &Observation, expected_status: &[(u16, u16)]) -> Option<Sample> {
    let error = match observation.outcome {
        Outcome::Connected | Outcome::Exited(0) | Outcome::Stated(true) => None,
        Outcome::Exited(status) => Some(ProbeFault::Exit(status)),
        Outcome::Stated(false) => Some(ProbeFault::Stated),
        Outcome::Status(code) => {
            let expected = expected_status.iter().any(|&(first, last)| first <= code && code <= last);
            (!expected).then_some(ProbeFault::Status(code))
        }
        Outcome::Fault(fault) if fault.is_ours() => return None,
        Outcome::Fault(fault) => Some(fault),
    };
    Some(Sample { ok: error.is_none(), latency: observation.latency, error })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_monitor_judges_by_its_own_ranges() {
        let seen = |outcome| Observation { outcome, latency: Some(Duration::from_millis(3)) };
        let error = |outcome, ranges: &[(u16, u16)]| judge(&seen(outcome), ranges).map(|s| (s.ok, s.error));
        let only_200 = [(200, 200)];
        let wide = [(200, 299), (401, 401)];
        assert_eq!(error(Outcome::Status(200), &only_200), Some((true, None)));
        assert_eq!(error(Outcome::Status(204), &only_200), Some((false, Some(ProbeFault::Status(204)))));
        assert_eq!(error(Outcome::Status(204), &wide), Some((true, None)));
        assert_eq!(error(Outcome::Status(401), &wide), Some((true, None)));
        assert_eq!(error(Outcome::Status(300), &wide), Some((false, Some(ProbeFault::Status(300)))));
        assert_eq!(error(Outcome::Connected, &[]), Some((true, None)));
        let timeout = ProbeFault::Timeout(Stage::Body);
        assert_eq!(error(Outcome::Fault(timeout), &wide), Some((false, Some(timeout))));
        assert_eq!(error(Outcome::Fault(ProbeFault::Local), &wide), None);
        assert_eq!(error(Outcome::Fault(ProbeFault::Blind), &wide), None);
        assert_eq!(error(Outcome::Exited(0), &[]), Some((true, None)));
        assert_eq!(error(Outcome::Exited(200), &wide), Some((false, Some(ProbeFault::Exit(200)))));
        assert_eq!(error(Outcome::Stated(true), &[]), Some((true, None)));
        assert_eq!(error(Outcome::Stated(false), &wide), Some((false, Some(ProbeFault::Stated))));
    }

    #[test]
    fn a_fault_is_read_back_from_what_is_shown() {
        let numbered =
            [ProbeFault::Status(503), ProbeFault::Exit(2), ProbeFault::Exit(255), ProbeFault::Signal(9)];
        for fault in ProbeFault::PLAIN.into_iter().chain(numbered) {
            assert_eq!(fault.to_string().parse(), Ok(fault), "{fault}");
        }
        for words in ["", "status", "status 99999", "exit status -1", "timeout", "ended by signal x"] {
            assert_eq!(words.parse::<ProbeFault>(), Err(UnknownFault), "{words}");
        }
    }
}
