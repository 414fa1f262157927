//! Names to addresses, by the system's resolver.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use router_common::model::ProbeDestination;
use tokio::sync::{Semaphore, oneshot};

/// Most look-ups under way. A dead resolver holds each for many seconds, and a look-up cannot be given up:
/// its thread lives until the system answers.
const MOST: usize = 64;

/// Most addresses of one name that are tried.
const ADDRESSES: usize = 4;

/// Bounded access to the system's resolver.
pub(super) struct Resolver {
    free: Arc<Semaphore>,
}

/// Why there is no address.
#[derive(Debug)]
pub(super) enum Unresolved {
    /// The resolver said no, or failed.
    No(String),
    /// No thread could be started.
    Local(String),
}

impl Resolver {
    pub(super) fn new() -> Self {
        Self { free: Arc::new(Semaphore::new(MOST)) }
    }

    /// Addresses to connect to, at least one, in the system's order of preference (RFC 6724).
    ///
    /// A thread of our own for each look-up, not the runtime's blocking pool: the pool would queue without
    /// a bound what was given up, and keep the agent from ending while a dead resolver is waited for.
    pub(super) async fn addresses(
        &self,
        destination: &ProbeDestination,
        port: u16,
    ) -> Result<Vec<SocketAddr>, Unresolved> {
        let name = match destination {
            ProbeDestination::Address(address) => return Ok(vec![SocketAddr::new(*address, port)]),
            // With the final dot: absolute, so that no search domain can answer in its place.
            ProbeDestination::Domain(name) => name.to_string(),
        };
        let permit = Arc::clone(&self.free).acquire_owned().await;
        let (answer, answered) = oneshot::channel();
        let look_up = move || {
            let found = (name.as_str(), port).to_socket_addrs();
            // Nobody listens any more when the probe's time was over.
            let _ = answer.send(found.map(|all| all.take(ADDRESSES).collect::<Vec<_>>()));
            drop(permit);
        };
        std::thread::Builder::new()
            .name("resolve".to_owned())
            .stack_size(256 * 1024)
            .spawn(look_up)
            .map_err(|error| Unresolved::Local(error.to_string()))?;
        match answered.await {
            Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
            Ok(Ok(_)) => Err(Unresolved::No("no address".to_owned())),
            Ok(Err(error)) => Err(Unresolved::No(error.to_string())),
            Err(_) => Err(Unresolved::Local("the look-up thread ended".to_owned())),
        }
    }
}
