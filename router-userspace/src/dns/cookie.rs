//! DNS cookies (RFC 7873) as all servers make them (RFC 9018), so that servers that share an address and a
//! secret take each other's.

use std::hash::Hasher;
use std::net::IpAddr;
use std::sync::OnceLock;

use siphasher::sip::SipHasher24;

use crate::settings::{Cookies, Secret};

/// Octets of a client cookie.
const CLIENT: usize = 8;
/// Octets of a server cookie that we make.
const SERVER: usize = 16;
/// Octets of the option's payload with a server cookie, of any server (RFC 7873 §4).
const WITH_SERVER: std::ops::RangeInclusive<usize> = 16..=40;
/// VERSION of a server cookie (RFC 9018 §4.1).
const VERSION: u8 = 1;
/// Seconds that a server cookie is good for (RFC 9018 §4.3).
const LIFETIME: i32 = 3600;
/// Seconds that another server's clock may be ahead of ours.
const AHEAD: i32 = 300;
/// Seconds after which a server cookie is made anew.
const RENEWAL: i32 = 1800;

/// The payload of a reply's option: client and server cookie.
pub(super) type Payload = [u8; CLIENT + SERVER];

/// What a query's COOKIE option is, and what the reply says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cookie {
    /// A length that no option has: FORMERR (RFC 7873 §5.2.2).
    Malformed,
    /// A client cookie alone.
    New(Payload),
    /// A server cookie that we would not have made, or one out of date.
    Bad(Payload),
    /// A good one: the client receives what is sent to its address.
    Good(Payload),
}

impl Cookie {
    /// What the reply carries.
    pub fn payload(&self) -> Option<Payload> {
        match self {
            Self::Malformed => None,
            Self::New(payload) | Self::Bad(payload) | Self::Good(payload) => Some(*payload),
        }
    }
}

/// Makes and checks server cookies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Jar {
    signs: Secret,
    /// Secrets accepted besides.
    others: Vec<Secret>,
    /// Whether a UDP query with a client cookie needs a good server cookie too.
    pub require: bool,
}

impl Jar {
    /// `None` when there is no secret: none is set, and the system has no random numbers.
    pub fn new(settings: &Cookies) -> Option<Self> {
        let (signs, others) = match settings.secrets.split_first() {
            Some((first, others)) => (*first, others.to_vec()),
            None => (Secret(own_secret()?), Vec::new()),
        };
        Some(Self { signs, others, require: settings.require })
    }

    /// Reads a query's option. `now` is in seconds since the epoch, of which cookies carry the low 32 bits.
    pub fn read(&self, option: &[u8], client: IpAddr, now: u64) -> Cookie {
        let now = now as u32;
        let Some((client_cookie, server_cookie)) = option.split_first_chunk::<CLIENT>() else {
            return Cookie::Malformed;
        };
        let fresh = || self.fresh(*client_cookie, client, now);
        if server_cookie.is_empty() {
            return Cookie::New(fresh());
        }
        if !WITH_SERVER.contains(&option.len()) {
            return Cookie::Malformed;
        }
        let Ok(sent) = Payload::try_from(option) else { return Cookie::Bad(fresh()) };
        let [.., v, r0, r1, r2, t0, t1, t2, t3, h0, h1, h2, h3, h4, h5, h6, h7] = sent;
        // Serial arithmetic (RFC 1982), so that 2106 is a year like others.
        let age = now.wrapping_sub(u32::from_be_bytes([t0, t1, t2, t3])) as i32;
        if v != VERSION || !(-AHEAD..=LIFETIME).contains(&age) {
            return Cookie::Bad(fresh());
        }
        let head = [v, r0, r1, r2, t0, t1, t2, t3];
        let hash = u64::from_le_bytes([h0, h1, h2, h3, h4, h5, h6, h7]);
        // One comparison of whole words for each secret: the time it takes says nothing of the hash.
        let by_first = hash_of(&self.signs, client_cookie, &head, client) ^ hash == 0;
        let by_other = self
            .others
            .iter()
            .fold(false, |good, secret| good | (hash_of(secret, client_cookie, &head, client) ^ hash == 0));
        match (by_first, by_other) {
            (true, _) if age <= RENEWAL => Cookie::Good(sent),
            (false, false) => Cookie::Bad(fresh()),
            _ => Cookie::Good(fresh()),
        }
    }

    fn fresh(&self, client_cookie: [u8; CLIENT], client: IpAddr, now: u32) -> Payload {
        let [t0, t1, t2, t3] = now.to_be_bytes();
        let head = [VERSION, 0, 0, 0, t0, t1, t2, t3];
        let hash = hash_of(&self.signs, &client_cookie, &head, client).to_le_bytes();
        let mut payload = Payload::default();
        let octets = client_cookie.iter().chain(&head).chain(&hash);
        for (to, from) in payload.iter_mut().zip(octets) {
            *to = *from;
        }
        payload
    }
}

/// The hash of a server cookie (RFC 9018 §4.4): over the client cookie, the cookie's own first half and the
/// client's address.
fn hash_of(secret: &Secret, client_cookie: &[u8; CLIENT], head: &[u8; 8], client: IpAddr) -> u64 {
    let mut hasher = SipHasher24::new_with_key(&secret.0);
    hasher.write(client_cookie);
    hasher.write(head);
    match client.to_canonical() {
        IpAddr::V4(address) => hasher.write(&address.octets()),
        IpAddr::V6(address) => hasher.write(&address.octets()),
    }
    hasher.finish()
}

static OWN: OnceLock<Option<[u8; 16]>> = OnceLock::new();

/// The secret of this process, the same until it ends. `None` when the system has no random numbers.
pub fn own_secret() -> Option<[u8; 16]> {
    *OWN.get_or_init(|| {
        let mut octets = [0; 16];
        match getrandom::fill(&mut octets) {
            Ok(()) => Some(octets),
            Err(error) => {
                log::error!("no DNS cookies: the system has no random numbers: {error}");
                None
            }
        }
    })
}

/// Goes on with the secret of the process before, so that its cookies stay good. Does nothing once this process has
/// one of its own.
pub fn adopt_secret(secret: [u8; 16]) {
    // What is set already has signed cookies.
    let _ = OWN.set(Some(secret));
}
