//! dnstap (<https://dnstap.info>): sampled queries and replies in the form that other tools collect.
//!
//! A message is a protocol buffer of `dnstap.proto`, written by hand ([`message`]): it is a dozen fields. What
//! carries it is Frame Streams ([`stream`]): to a unix socket with a handshake, to a file without.

use std::net::SocketAddr;
use std::time::Duration;

use crate::dns::Transport;

pub mod message;
mod output;
pub mod stream;

pub use output::{Output, State};

/// Who says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Speaker {
    /// `identity`: usually the name of the host.
    pub identity: String,
    /// `version`: of the server.
    pub version: String,
}

impl Speaker {
    /// What is said when nothing is configured.
    pub fn usual() -> Self {
        let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        Self {
            identity: host.unwrap_or_else(|| String::from("xroute")),
            version: concat!("xroute ", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

/// A query, and the reply if there was one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exchange<'e> {
    /// When, since the epoch.
    pub at: Duration,
    /// Who asked.
    pub client: SocketAddr,
    /// Who was asked.
    pub server: SocketAddr,
    /// Over what.
    pub transport: Transport,
    /// The query's octets.
    pub query: &'e [u8],
    /// The reply's octets.
    pub reply: Option<&'e [u8]>,
}

/// Appends the frames of an exchange: AUTH_QUERY, and AUTH_RESPONSE when there was a reply. How many.
pub fn write(exchange: &Exchange<'_>, speaker: &Speaker, out: &mut Vec<u8>) -> u64 {
    stream::data(&message::auth_query(exchange, speaker), out);
    if exchange.reply.is_none() {
        return 1;
    }
    stream::data(&message::auth_response(exchange, speaker), out);
    2
}
