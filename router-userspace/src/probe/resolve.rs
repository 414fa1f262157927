//! Names to addresses, by the system's resolver.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
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

    /// Addresses to connect to, in the system's order of preference (RFC 6724).
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
            ProbeDestination::Domain(name) => name.to_string(),
        };
        let permit = Arc::clone(&self.free).acquire_owned().await;
        let (answer, answered) = oneshot::channel();
        let thread = move || {
            // Nobody listens any more when the probe's time was over.
            let _ = answer.send(look_up(&name, port));
            drop(permit);
        };
        std::thread::Builder::new()
            .name("resolve".to_owned())
            .stack_size(256 * 1024)
            .spawn(thread)
            .map_err(|error| Unresolved::Local(error.to_string()))?;
        match answered.await {
            Ok(Ok(addresses)) if !addresses.is_empty() => Ok(addresses),
            Ok(Ok(_)) => Err(Unresolved::No("no address".to_owned())),
            Ok(Err(error)) => Err(Unresolved::No(error.to_string())),
            Err(_) => Err(Unresolved::Local("the look-up thread ended".to_owned())),
        }
    }
}

/// Asks the system, for the name with its final dot: absolute, so that no search domain can answer in
/// its place. Written so, the system does not look into `/etc/hosts`; that is done here, first.
fn look_up(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    let mut found: Vec<SocketAddr> =
        listed(&hosts, name).map(|address| SocketAddr::new(address, port)).collect();
    if found.is_empty() {
        found = (name, port).to_socket_addrs()?.collect();
    }
    found.truncate(ADDRESSES);
    Ok(found)
}

/// The addresses of a name (with its final dot) in a hosts file (hosts(5)).
fn listed<'a>(hosts: &'a str, name: &'a str) -> impl Iterator<Item = IpAddr> + 'a {
    let name = name.strip_suffix('.').unwrap_or(name);
    hosts.lines().filter_map(move |line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|word| word.strip_suffix('.').unwrap_or(word).eq_ignore_ascii_case(name)).then_some(address)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_file() {
        let hosts = "# a comment\n127.0.0.1 localhost\n::1\tlocalhost ip6-localhost # eu1\n\nbroken eu1.test\n\
                     192.0.2.1 EU1.test eu1\n192.0.2.2\n";
        let found = |name| listed(hosts, name).map(|a| a.to_string()).collect::<Vec<_>>();
        assert_eq!(found("localhost."), ["127.0.0.1", "::1"]);
        assert_eq!(found("eu1.test."), ["192.0.2.1"]);
        assert_eq!(found("eu1."), ["192.0.2.1"]);
        assert!(found("eu2.").is_empty() && found(".").is_empty());
    }
}
