//! A message of any octets, to the whole server without a socket.

use std::net::IpAddr;
use std::time::Duration;

use router_userspace::dns::{Client, Counts, Service, Transport, respond};

use super::service::{FULL_SERVICE, SERVICE};
use crate::invariants;

/// When they come, seconds since the epoch: signed messages of the corpus are of this time.
const NOW: u64 = 1_790_000_000;

/// Puts the octets as a query over UDP and TCP, from clients of both families, and checks each reply; with
/// everything off that can be, and with everything on.
///
/// # Panics
/// When a reply breaks an invariant, or a query gets one over one transport only.
pub fn message(octets: &[u8]) {
    for service in [&SERVICE, &FULL_SERVICE] {
        ask(service, octets);
    }
}

fn ask(service: &Service, octets: &[u8]) {
    let sources: [IpAddr; 2] = [[203, 0, 113, 7].into(), [0x2001, 0xdb8, 2, 0, 0, 0, 0, 7].into()];
    let counts = Counts::default();
    for source in sources {
        let [udp, tcp] = [Transport::Udp, Transport::Tcp].map(|transport| {
            let client = Client { source, transport, now: Duration::from_secs(NOW) };
            let reply = respond(service, octets, &client, &mut || 0x1234_5678_9abc_def0, &counts);
            if let Some(reply) = &reply {
                let tcp = transport == Transport::Tcp;
                if let Err(fault) = invariants::check(octets, reply, tcp, service.settings.edns_size) {
                    panic!("{transport:?} from {source}: {fault}");
                }
            }
            reply
        });
        assert_eq!(
            udp.is_some(),
            tcp.is_some(),
            "a reply over one transport only: {}",
            invariants::hex(octets)
        );
    }
}
