//! The `[cookies]` table: DNS cookies (RFC 7873) and the secrets that make them.

use std::fmt;

/// How DNS cookies are made and asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cookies {
    /// Secrets shared by all servers of an address, the one that signs first. None: one of this process.
    pub secrets: Vec<Secret>,
    /// Whether a UDP query with a client cookie needs a good server cookie too.
    pub require: bool,
}

/// A key of server cookies (RFC 9018 §4). Never shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(pub [u8; 16]);

impl Secret {
    /// Secrets known at one time, at most: the old one, the new one, and one to come.
    pub const MAX: usize = 3;
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
