//! From what system and libraries say to the faults that we name.

use std::error::Error;
use std::io;

use router_common::health::{ProbeFault, TlsFault};
use rustls::CertificateError;

/// A failed probe: the fault, and the words of whoever reported it.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) fault: ProbeFault,
    pub(super) said: String,
}

impl Failed {
    pub(super) fn new(fault: ProbeFault, said: impl Into<String>) -> Self {
        Self { fault, said: said.into() }
    }

    /// Names the fault by the first error of the chain that tells; `otherwise` when none does.
    pub(super) fn from_chain(error: &(dyn Error + 'static), otherwise: ProbeFault) -> Self {
        let mut said = error.to_string();
        let mut fault = None;
        let mut at = Some(error);
        while let Some(error) = at {
            fault = fault.or_else(|| name(error));
            let words = error.to_string();
            if !said.contains(&words) {
                said = format!("{said}: {words}");
            }
            at = beneath(error);
        }
        Self { fault: fault.unwrap_or(otherwise), said }
    }
}

/// What an error wraps. `io::Error` does not give its inner error as the source, but that one's source.
fn beneath<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

fn name(error: &(dyn Error + 'static)) -> Option<ProbeFault> {
    if let Some(error) = error.downcast_ref::<rustls::Error>() {
        return Some(ProbeFault::Tls(of_tls(error)));
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return of_io(error);
    }
    let error = error.downcast_ref::<hyper::Error>()?;
    if error.is_parse() {
        return Some(ProbeFault::Protocol);
    }
    error.is_incomplete_message().then_some(ProbeFault::Closed)
}

fn of_io(error: &io::Error) -> Option<ProbeFault> {
    match error.raw_os_error() {
        // Our own machine's shortage is not the endpoint's fault.
        Some(
            libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS | libc::EADDRNOTAVAIL | libc::EAGAIN,
        ) => return Some(ProbeFault::Local),
        Some(libc::ECONNREFUSED) => return Some(ProbeFault::Refused),
        Some(libc::ECONNRESET | libc::ECONNABORTED | libc::EPIPE) => return Some(ProbeFault::Reset),
        // EACCES and EPERM are a local firewall's words, EINVAL an address that no packet can go to.
        Some(
            libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::ENETDOWN
            | libc::EHOSTDOWN
            | libc::ETIMEDOUT
            | libc::EACCES
            | libc::EPERM
            | libc::EINVAL,
        ) => return Some(ProbeFault::Unreachable),
        _ => {}
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof => Some(ProbeFault::Closed),
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => Some(ProbeFault::Reset),
        _ => None,
    }
}

fn of_tls(error: &rustls::Error) -> TlsFault {
    use CertificateError as Certificate;
    match error {
        rustls::Error::InvalidCertificate(error) => match error {
            Certificate::Expired | Certificate::ExpiredContext { .. } => TlsFault::Expired,
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => TlsFault::NotValidYet,
            Certificate::UnknownIssuer => TlsFault::UnknownIssuer,
            Certificate::NotValidForName | Certificate::NotValidForNameContext { .. } => TlsFault::WrongName,
            _ => TlsFault::BadCertificate,
        },
        rustls::Error::NoCertificatesPresented => TlsFault::BadCertificate,
        rustls::Error::AlertReceived(_) => TlsFault::Alert,
        _ => TlsFault::Protocol,
    }
}
