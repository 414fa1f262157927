//! A message of any octets, to the whole server without a socket.

use std::net::IpAddr;
use std::time::Duration;

use router_userspace::dns::{Client, Counts, Transport, respond};

use super::service::SERVICE;
use crate::invariants;

/// Puts the octets as a query over UDP and TCP, from clients of both families, and checks each reply.
///
/// # Panics
/// When a reply breaks an invariant, or a query gets one over one transport only.
pub fn message(octets: &[u8]) {
    let sources: [IpAddr; 2] = [[203, 0, 113, 7].into(), [0x2001, 0xdb8, 2, 0, 0, 0, 0, 7].into()];
    let counts = Counts::default();
    for source in sources {
        let [udp, tcp] = [Transport::Udp, Transport::Tcp].map(|transport| {
            let client = Client { source, transport, now: Duration::from_secs(1_790_000_000) };
            let reply = respond(&SERVICE, octets, &client, &mut || 0x1234_5678_9abc_def0, &counts);
            if let Some(reply) = &reply {
                let tcp = transport == Transport::Tcp;
                if let Err(fault) = invariants::check(octets, reply, tcp, SERVICE.settings.edns_size) {
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
