//! Where probes come from.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use router_common::health::{Outcome, ProbeFault};
use router_common::model::{Connection, HttpProbe, ProbeDestination, ProbeTarget, Source};

use super::server::{Act, OK, Server};
use super::{connection, request};
use crate::probe::{Prober, Settings};

const TIMEOUT: Duration = Duration::from_secs(3);

fn from(server: &Server, address: Option<&str>, interface: Option<&str>) -> ProbeTarget {
    let source = Source {
        address: address.map(|address| address.parse().unwrap()),
        interface: interface.map(str::to_owned),
    };
    let connection = Connection { source, ..connection(server.address) };
    ProbeTarget::Http(HttpProbe { connection, ..request(server.address) })
}

#[tokio::test]
async fn a_source_is_where_it_comes_from() {
    let server = Server::start(Act::Reply(OK.to_vec())).await;
    let prober = Prober::new(Settings::default());
    for (address, interface, seen) in [
        (None, None, Ipv4Addr::LOCALHOST),
        (Some("127.0.0.9"), None, Ipv4Addr::new(127, 0, 0, 9)),
        (None, Some("lo"), Ipv4Addr::LOCALHOST),
        (Some("127.0.0.8"), Some("lo"), Ipv4Addr::new(127, 0, 0, 8)),
    ] {
        let target = from(&server, address, interface);
        let (observation, transcript) = prober.probe_recorded(&target, TIMEOUT).await;
        assert_eq!(observation.outcome, Outcome::Status(200), "{target}\n{transcript}");
        assert_eq!(transcript.local.map(|local| local.ip()), Some(IpAddr::V4(seen)), "{target}");
    }
    server.assert_no_connection().await;
}

#[tokio::test]
async fn a_source_we_do_not_have_says_nothing_about_the_endpoint() {
    let server = Server::start(Act::Reply(OK.to_vec())).await;
    let prober = Prober::new(Settings::default());
    for (address, interface, word) in
        [(Some("192.0.2.77"), None, "source 192.0.2.77"), (None, Some("nosuch0"), "source_interface nosuch0")]
    {
        let (observation, said) = prober.probe_with_words(&from(&server, address, interface), TIMEOUT).await;
        assert_eq!(observation.outcome, Outcome::Fault(ProbeFault::Local));
        assert!(said.as_deref().is_some_and(|said| said.starts_with(word)), "{said:?}");
    }
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn of_a_name_only_the_addresses_of_the_sources_family_are_tried() {
    let server = Server::start(Act::Reply(OK.to_vec())).await;
    let prober = Prober::new(Settings::default());
    let source = Source { address: Some(Ipv4Addr::new(127, 0, 0, 7).into()), interface: None };
    let destination = ProbeDestination::Domain("localhost".parse().unwrap());
    let connection = Connection { destination, source, ..connection(server.address) };
    let target = ProbeTarget::Http(HttpProbe { connection, ..request(server.address) });
    let (observation, transcript) = prober.probe_recorded(&target, TIMEOUT).await;
    assert_eq!(observation.outcome, Outcome::Status(200), "{transcript}");
    assert_eq!(transcript.tried, [server.address]);
}
