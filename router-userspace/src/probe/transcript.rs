//! What a probe sent and got, for people.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use router_common::health::Stage;

/// Everything about one probe, as far as it came.
#[derive(Clone, Debug)]
pub struct Transcript {
    /// Addresses tried, in order; the last one is the one connected to, if any was.
    pub tried: Vec<SocketAddr>,
    /// What is worth telling of a probe without a connection.
    pub notes: Vec<String>,
    /// Local end of the connection.
    pub local: Option<SocketAddr>,
    /// The TLS session, when there was one.
    pub tls: Option<TlsSession>,
    /// The octets of the request as they went into the connection (before TLS).
    pub sent: Vec<u8>,
    /// The first octets that came out of it (after TLS), or that a program wrote; at most 16 KiB.
    pub got: Vec<u8>,
    /// Octets of body read, decoded.
    pub body: u64,
    /// Whether the body was longer than [`BODY_LIMIT`](super::BODY_LIMIT) and the rest left unread.
    pub body_cut: bool,
    /// How far it came.
    pub stage: Stage,
    /// When it came so far.
    pub timings: Timings,
    /// What the system or the library said of the failure.
    pub error: Option<String>,
    /// Whether anybody will read this; what costs a system call is left out otherwise.
    pub(super) wanted: bool,
}

/// Times from the start of the probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Timings {
    /// The address was known; latency counts from here (of several addresses: from the one that connected).
    pub resolved: Option<Duration>,
    /// The TCP connection was there.
    pub connected: Option<Duration>,
    /// The TLS handshake was done.
    pub secured: Option<Duration>,
    /// The head of the response was there.
    pub answered: Option<Duration>,
    /// The last octet was there.
    pub finished: Option<Duration>,
}

/// What was agreed in the TLS handshake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsSession {
    /// Server name sent; `None` for an IP address, which is not sent (RFC 6066 §3).
    pub sni: Option<String>,
    /// Whether the certificate was verified.
    pub verified: bool,
    /// Such as `TLSv1_3`.
    pub version: String,
    /// Such as `TLS13_AES_256_GCM_SHA384`.
    pub cipher: String,
}

impl Default for Transcript {
    fn default() -> Self {
        Self {
            tried: Vec::new(),
            notes: Vec::new(),
            local: None,
            tls: None,
            sent: Vec::new(),
            got: Vec::new(),
            body: 0,
            body_cut: false,
            stage: Stage::Resolve,
            timings: Timings::default(),
            error: None,
            wanted: false,
        }
    }
}

impl Transcript {
    /// Most octets noted in each direction.
    pub(super) const MOST: usize = 16 * 1024;

    /// Notes what was got, as far as there is room.
    pub(super) fn note_got(&mut self, octets: &[u8]) {
        let room = Self::MOST.saturating_sub(self.got.len()).min(octets.len());
        self.got.extend_from_slice(octets.get(..room).unwrap_or_default());
    }

    /// The head of the response: what came before the first empty line.
    pub fn response_head(&self) -> String {
        let end = self.got.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(self.got.len());
        String::from_utf8_lossy(self.got.get(..end).unwrap_or_default()).into_owned()
    }

    /// The first line of the response; `None` when nothing came.
    pub fn status_line(&self) -> Option<String> {
        let head = self.response_head();
        head.lines().next().map(str::to_owned).filter(|line| !line.is_empty())
    }
}

impl fmt::Display for Transcript {
    /// As curl's `--verbose` shows it: `*` facts, `>` sent, `<` got; control characters escaped.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |time: Option<Duration>| time.map_or(String::new(), |t| format!(" ({t:.1?})"));
        for address in &self.tried {
            writeln!(f, "* connect to {address}")?;
        }
        if let Some(local) = self.local {
            writeln!(f, "* connected from {local}{}", at(self.timings.connected))?;
        }
        if let Some(tls) = &self.tls {
            let sni = tls.sni.as_deref().map_or("no SNI".to_owned(), |name| format!("SNI {name}"));
            let verified = if tls.verified { "certificate verified" } else { "certificate not verified" };
            let time = at(self.timings.secured);
            writeln!(f, "* {} {}, {sni}, {verified}{time}", tls.version, tls.cipher)?;
        }
        for line in String::from_utf8_lossy(&self.sent).trim_end().lines() {
            writeln!(f, "> {}", line.escape_debug())?;
        }
        // A program's output has no head that ends.
        let got = match self.stage {
            Stage::Run => String::from_utf8_lossy(&self.got).into_owned(),
            _ => self.response_head(),
        };
        for line in got.lines() {
            writeln!(f, "< {}", line.escape_debug())?;
        }
        for note in &self.notes {
            writeln!(f, "* {}", note.escape_debug())?;
        }
        if self.timings.answered.is_some() {
            let cut = if self.body_cut { ", rest not read" } else { "" };
            writeln!(f, "* {} octets of body{cut}{}", self.body, at(self.timings.finished))?;
        }
        if let Some(error) = &self.error {
            // It may quote what the other side said.
            writeln!(f, "* {}", Plain(error))?;
        }
        Ok(())
    }
}

/// A text without control characters.
struct Plain<'t>(&'t str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        self.0.chars().try_for_each(|c| f.write_char(if c.is_control() { '\u{fffd}' } else { c }))
    }
}
