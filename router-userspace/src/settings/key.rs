//! TSIG keys (RFC 8945): what two servers share to know each other's messages by.

use std::fmt;

use ring::hmac;
use router_common::name::Name;

/// How messages are signed with a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// HMAC with SHA-1, which RFC 8945 §6 keeps for old peers only.
    HmacSha1,
    /// HMAC with SHA-256.
    HmacSha256,
    /// HMAC with SHA-384.
    HmacSha384,
    /// HMAC with SHA-512.
    HmacSha512,
}

impl Algorithm {
    /// Every one, by the name that RFC 8945 §6 gives it.
    pub const ALL: [(&'static str, Self); 4] = [
        ("hmac-sha1", Self::HmacSha1),
        ("hmac-sha256", Self::HmacSha256),
        ("hmac-sha384", Self::HmacSha384),
        ("hmac-sha512", Self::HmacSha512),
    ];

    /// Its name as a domain name in wire form, as it stands in a TSIG record.
    pub fn wire(self) -> &'static [u8] {
        match self {
            Self::HmacSha1 => b"\x09hmac-sha1\0",
            Self::HmacSha256 => b"\x0bhmac-sha256\0",
            Self::HmacSha384 => b"\x0bhmac-sha384\0",
            Self::HmacSha512 => b"\x0bhmac-sha512\0",
        }
    }

    /// Octets of a whole MAC.
    pub fn mac_len(self) -> usize {
        match self {
            Self::HmacSha1 => 20,
            Self::HmacSha256 => 32,
            Self::HmacSha384 => 48,
            Self::HmacSha512 => 64,
        }
    }

    fn digest(self) -> hmac::Algorithm {
        match self {
            Self::HmacSha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::HmacSha256 => hmac::HMAC_SHA256,
            Self::HmacSha384 => hmac::HMAC_SHA384,
            Self::HmacSha512 => hmac::HMAC_SHA512,
        }
    }
}

/// A key. Its secret leaves this type as a running HMAC only; it is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// The name that both sides know it by.
    pub name: Name,
    /// The only algorithm it is used with (RFC 8945 §5.2.1 counts another one as another key).
    pub algorithm: Algorithm,
    secret: Box<[u8]>,
}

impl Key {
    /// A key of some octets, which the configuration holds in base64.
    pub fn new(name: Name, algorithm: Algorithm, secret: Vec<u8>) -> Self {
        Self { name, algorithm, secret: secret.into_boxed_slice() }
    }

    /// An HMAC of nothing, to be fed.
    pub fn hmac(&self) -> hmac::Context {
        hmac::Context::with_key(&hmac::Key::new(self.algorithm.digest(), &self.secret))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({} {:?})", self.name, self.algorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_never_printed() {
        let key = Key::new("k.example".parse().unwrap(), Algorithm::HmacSha256, b"hush, hush".to_vec());
        assert_eq!(format!("{key:?} {key:#?}"), "Key(k.example. HmacSha256) Key(k.example. HmacSha256)");
    }

    #[test]
    fn names_and_lengths_are_those_of_the_rfc() {
        for (name, algorithm) in Algorithm::ALL {
            let wire = [&[name.len() as u8][..], name.as_bytes(), &[0]].concat();
            assert_eq!(algorithm.wire(), wire);
            let key = Key::new(Name::root(), algorithm, vec![1]);
            assert_eq!(key.hmac().sign().as_ref().len(), algorithm.mac_len());
        }
    }
}
