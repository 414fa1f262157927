//! What one probe saw, and what a monitor makes of it.

use std::fmt;
use std::time::Duration;

/// What one probe saw, before anybody judged it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Observation {
    /// How it ended.
    pub outcome: Outcome,
    /// From just before the connection is opened to the last octet of the response (TCP: to the
    /// connection being there); `None` when it did not get that far.
    pub latency: Option<Duration>,
}

/// How a probe ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// A whole HTTP response with this status code.
    Status(u16),
    /// A TCP connection.
    Connected,
    /// Neither.
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
    /// Our own machine could not probe: no file descriptor, no port, no memory. Says nothing about
    /// the endpoint, so [`judge`] makes no sample of it.
    Local,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Resolve => "resolving the name",
            Self::Connect => "connecting",
            Self::Tls => "in the TLS handshake",
            Self::Response => "waiting for the response",
            Self::Body => "reading the body",
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
            Self::Local => f.write_str("this machine could not probe"),
        }
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
/// about the endpoint ([`ProbeFault::Local`]).
pub fn judge(observation: &Observation, expected_status: &[(u16, u16)]) -> Option<Sample> {
    let error = match observation.outcome {
        Outcome::Connected => None,
        Outcome::Status(code) => {
            let expected = expected_status.iter().any(|&(first, last)| first <= code && code <= last);
            (!expected).then_some(ProbeFault::Status(code))
        }
        Outcome::Fault(ProbeFault::Local) => return None,
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
    }
}
