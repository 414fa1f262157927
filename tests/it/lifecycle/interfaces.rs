//! Several interfaces, which go and come back while the agent runs.

use router_tests::netns::{Namespace, attach_pass};

use super::*;

/// A second wire to another client.
struct Second {
    client: Namespace,
    _receive: std::os::fd::OwnedFd,
}

impl Second {
    fn new(server: &Namespace) -> Self {
        let client = Namespace::new();
        server.sh(&format!("ip link add xr2 type veth peer name xr3 netns {}", client.path()));
        server.sh("ip link set xr2 up; ip addr add 10.78.0.53/24 dev xr2");
        client
            .sh("ip link set xr3 up; ip addr add 10.78.0.1/24 dev xr3; ip route add default via 10.78.0.53");
        let receive = client.run(|| attach_pass("xr3")).expect("XDP on the client's interface");
        Self { client, _receive: receive }
    }
}

/// Asks over a wire, and says whether the fast path has answered.
fn fast(agent: &Agent, server: &Namespace, client: &Namespace) -> bool {
    use router_tests::packet::{Query, rtype};
    let count = || agent.status(server)["counters"]["answer_records"].as_u64().expect("a number");
    let before = count();
    client.run(|| {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").expect("a socket");
        socket.connect((Pair::SERVER_ADDRESSES[0], 53)).expect("a route");
        socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a timeout");
        socket.send(&Query::new("www.gslb.test", rtype::A).bytes()).expect("it is sent");
        let mut reply = [0; 512];
        let len = socket.recv(&mut reply).expect("a reply");
        assert_eq!(reply[..len].last_chunk(), Some(&WWW));
    });
    count() > before
}

#[test]
fn netns_interfaces_go_and_come_back_while_others_answer() {
    let Some((pair, folder)) = set_up("\"xr0\", \"xr2\"") else { return };
    let folder = folder.path();
    let second = Second::new(&pair.server);
    let mut agent = Agent::start_program(&pair.server, &program(folder), folder, &[]);
    assert!(fast(&agent, &pair.server, &pair.client) && fast(&agent, &pair.server, &second.client));

    pair.server.sh("ip link del xr2");
    agent.wait_for("xr2 is gone; it is attached to when it comes back");
    let status = agent.status(&pair.server);
    let interfaces = status["interfaces"].as_array().expect("a list");
    assert_eq!(interfaces.iter().map(|one| one["away"] == true).collect::<Vec<_>>(), [false, true]);
    let text = agent.command(&pair.server, &["status"]).output().expect("xroute starts").stdout;
    assert!(
        String::from_utf8_lossy(&text).contains("interface xr2: not there; attached to when it comes back")
    );
    let metrics = pair.server.sh("curl -s http://127.0.0.1:8053/metrics");
    assert!(metrics.contains("xroute_interface_attached{interface=\"xr2\",mode=\"native\"} 0"), "{metrics}");
    assert!(metrics.contains("xroute_interface_attached{interface=\"xr0\",mode=\"native\"} 1"), "{metrics}");
    assert!(fast(&agent, &pair.server, &pair.client));

    let second = Second::new(&pair.server);
    agent.wait_for("xr2 was made anew: attached in native mode");
    eventually("the fast path answers there again", || fast(&agent, &pair.server, &second.client));
    assert!(fast(&agent, &pair.server, &pair.client));
    agent.terminate();
    let shown = pair.server.sh("ip -details link show");
    assert!(!shown.contains("xdp"), "{shown}");
}
