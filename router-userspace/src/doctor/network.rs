//! Addresses, ports, rules and buffers: what the userspace server needs, and what XDP goes round.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::Finding;

const TOPIC: &str = "network";
/// What `net.core.rmem_max` should allow for bursts of queries, octets: that of the userspace server's sockets.
pub const RECEIVE_BUFFER: u64 = crate::dns::RECEIVE_BUFFER as u64;

/// What there is to know.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// Addresses of `listen`.
    pub listen: Vec<SocketAddr>,
    /// Addresses of the machine, and the interface that each is on.
    pub addresses: BTreeMap<IpAddr, String>,
    /// `net.ipv4.ip_nonlocal_bind`, `net.ipv6.ip_nonlocal_bind`.
    pub nonlocal: [bool; 2],
    /// Sockets that are bound to the ports of `listen`.
    pub sockets: Vec<Socket>,
    /// Rules of netfilter that name port 53.
    pub rules: Vec<String>,
    /// `net.core.rmem_max`.
    pub receive_buffer: Option<u64>,
    /// Addresses and broadcast addresses that the fast path leaves to the kernel, and how many it can.
    pub locals: Option<(usize, usize)>,
}

/// A bound socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Socket {
    /// `udp` or `tcp`.
    pub protocol: &'static str,
    /// What it is bound to.
    pub address: SocketAddr,
    /// Whether it receives for both families.
    pub both: bool,
    /// Its process, by id and name; `None` when it cannot be seen.
    pub process: Option<(u32, String)>,
    /// Whether that is the agent.
    pub agent: bool,
}

impl Socket {
    /// Whether the agent could not bind this address because of it.
    fn is_in_the_way(&self, listen: &SocketAddr) -> bool {
        let (bound, wanted) = (self.address.ip(), listen.ip());
        let wildcard = bound.is_unspecified() && (bound.is_ipv4() == wanted.is_ipv4() || self.both);
        let any = wanted.is_unspecified() && bound.is_ipv4() == wanted.is_ipv4();
        !self.agent && self.address.port() == listen.port() && (bound == wanted || wildcard || any)
    }
}

/// Judges; `fast` says whether a fast path is wanted.
pub fn judge(network: &Network, fast: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    for listen in &network.listen {
        findings.push(address(network, listen));
        findings.extend(taken(network, listen));
    }
    if fast {
        findings.extend(rules(&network.rules));
        findings.extend(network.locals.and_then(locals));
    }
    findings.extend(network.receive_buffer.map(buffer));
    findings
}

fn address(network: &Network, listen: &SocketAddr) -> Finding {
    let ip = listen.ip();
    if ip.is_unspecified() {
        return Finding::ok(TOPIC, format!("{listen} is every address of its family"));
    }
    let nonlocal = network.nonlocal[usize::from(ip.is_ipv6())];
    match network.addresses.get(&ip) {
        Some(interface) if interface == "lo" && !ip.is_loopback() => {
            Finding::ok(TOPIC, format!("{ip} is on lo, as anycast addresses are: routes must lead here"))
        }
        Some(interface) => Finding::ok(TOPIC, format!("{ip} is on {interface}")),
        None if nonlocal => Finding::warning(
            TOPIC,
            format!("{ip} of `listen` is on no interface; ip_nonlocal_bind lets the agent start all the same"),
            "the fast path answers for it, but TCP and what the fast path passes reach nobody until it is added",
        )
        .remedy(add(&ip)),
        None => Finding::failure(
            TOPIC,
            format!("{ip} of `listen` is on no interface"),
            "the agent does not start: an address must be here to listen on it",
        )
        .remedy(add(&ip)),
    }
}

fn add(ip: &IpAddr) -> String {
    format!(
        "ip address add {ip}/{} dev lo; or correct listen in [server]",
        if ip.is_ipv4() { 32 } else { 128 }
    )
}

fn taken(network: &Network, listen: &SocketAddr) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for socket in network.sockets.iter().filter(|socket| socket.is_in_the_way(listen)) {
        let Socket { protocol, address, .. } = socket;
        let (who, remedy) = match &socket.process {
            Some((id, name)) => (format!("{name} (pid {id})"), remedy_for(name, *id)),
            None => ("a process that this user cannot see".into(), "sudo ss -lnpu 'sport = :53'".to_owned()),
        };
        let finding = Finding::failure(
            TOPIC,
            format!("{protocol} {address} is taken by {who}, {listen} is wanted"),
            "the agent does not start: address already in use",
        )
        .remedy(remedy);
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    findings
}

/// What to do about the usual ones.
fn remedy_for(name: &str, id: u32) -> String {
    match name {
        "systemd-resolve" | "systemd-resolved" => {
            "DNSStubListener=no in /etc/systemd/resolved.conf, then: systemctl restart systemd-resolved".into()
        }
        "dnsmasq" => "port=0, or bind-interfaces and except-interface=…, in /etc/dnsmasq.conf; then: systemctl restart dnsmasq".into(),
        "named" | "unbound" | "nsd" | "knotd" | "pdns_server" | "coredns" | "gdnsd" => {
            format!("systemctl stop {}; or let it listen on other addresses", if name == "knotd" { "knot" } else { name })
        }
        "xroute" => format!("another agent runs (pid {id}): end it, or ask that one with --socket"),
        _ => format!("see what it is: ps -fp {id}; end it, or listen on another address"),
    }
}

fn rules(rules: &[String]) -> Option<Finding> {
    let first = rules.first()?;
    let more = if rules.len() > 1 { format!(" and {} more", rules.len() - 1) } else { String::new() };
    Some(
        Finding::note(
            TOPIC,
            format!("netfilter has rules for port 53: {first}{more}"),
            "a query that is answered in XDP meets none of them: no filter, no limit, no conntrack",
        )
        .remedy("filter and limit before this machine, or leave the interface out of interfaces"),
    )
}

fn locals((there, room): (usize, usize)) -> Option<Finding> {
    (there > room).then(|| {
        Finding::note(
            TOPIC,
            format!(
                "the machine has {there} IPv4 addresses and broadcast addresses, the fast path knows {room}"
            ),
            "forged queries from the others are answered by it; the kernel would drop them",
        )
    })
}

fn buffer(octets: u64) -> Finding {
    if octets < RECEIVE_BUFFER {
        return Finding::note(
            TOPIC,
            format!("sockets may buffer {octets} octets (net.core.rmem_max), {RECEIVE_BUFFER} are asked for"),
            "bursts of queries to the userspace server may be lost",
        )
        .remedy(format!("sysctl -w net.core.rmem_max={RECEIVE_BUFFER}"));
    }
    Finding::ok(TOPIC, format!("sockets may buffer {octets} octets (net.core.rmem_max)"))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn socket(protocol: &'static str, address: &str, name: &str) -> Socket {
        Socket {
            protocol,
            address: address.parse().expect("an address"),
            both: false,
            process: (!name.is_empty()).then(|| (77, name.to_owned())),
            agent: false,
        }
    }

    fn listening(listen: &str) -> Network {
        Network {
            listen: vec![listen.parse().expect("an address")],
            addresses: [
                ("192.0.2.53".parse().expect("an address"), "eth0".to_owned()),
                ("198.51.100.1".parse().expect("an address"), "lo".to_owned()),
            ]
            .into(),
            ..Network::default()
        }
    }

    fn bad(network: &Network) -> Vec<Finding> {
        judge(network, true).into_iter().filter(|finding| finding.level > Level::Ok).collect()
    }

    #[test]
    fn addresses_are_here_or_are_to_be_added() {
        for here in ["192.0.2.53:53", "198.51.100.1:53", "0.0.0.0:53", "[::]:53"] {
            assert_eq!(bad(&listening(here)), [], "{here}");
        }
        assert!(judge(&listening("198.51.100.1:53"), true)[0].found.contains("anycast"));
        let away = listening("[2001:db8::53]:53");
        let [finding] = &bad(&away)[..] else { panic!("one") };
        assert_eq!(finding.level, Level::Failure);
        assert!(
            finding
                .remedy
                .as_deref()
                .is_some_and(|text| text.starts_with("ip address add 2001:db8::53/128 dev lo"))
        );
        assert_eq!(bad(&Network { nonlocal: [false, true], ..away.clone() })[0].level, Level::Warning);
        assert_eq!(bad(&Network { nonlocal: [true, false], ..away })[0].level, Level::Failure);
    }

    #[test]
    fn who_has_the_port_is_named_with_what_to_do() {
        let taken =
            |listen: &str, socket: Socket| bad(&Network { sockets: vec![socket], ..listening(listen) });
        let [finding] = &taken("192.0.2.53:53", socket("udp", "0.0.0.0:53", "dnsmasq"))[..] else {
            panic!("one")
        };
        assert_eq!(finding.level, Level::Failure);
        assert!(finding.found.contains("udp 0.0.0.0:53 is taken by dnsmasq (pid 77)"), "{finding:?}");
        assert!(finding.remedy.as_deref().is_some_and(|text| text.contains("/etc/dnsmasq.conf")));
        let [resolver] = &taken("0.0.0.0:53", socket("udp", "127.0.0.53:53", "systemd-resolve"))[..] else {
            panic!("one")
        };
        assert!(resolver.remedy.as_deref().is_some_and(|text| text.contains("DNSStubListener=no")));
        let [unseen] = &taken("192.0.2.53:53", socket("tcp", "192.0.2.53:53", ""))[..] else { panic!("one") };
        assert!(unseen.remedy.as_deref().is_some_and(|text| text.starts_with("sudo ss")));

        // What does no harm.
        for other in ["127.0.0.53:53", "192.0.2.53:5353", "[::]:53", "192.0.2.54:53"] {
            assert_eq!(taken("192.0.2.53:53", socket("udp", other, "named")), [], "{other}");
        }
        let both = Socket { both: true, ..socket("udp", "[::]:53", "named") };
        assert_eq!(taken("192.0.2.53:53", both.clone()).len(), 1);
        assert_eq!(taken("192.0.2.53:53", Socket { agent: true, ..both }), []);
    }

    #[test]
    fn rules_buffers_and_addresses_beyond_the_table_are_notes() {
        let base = listening("192.0.2.53:53");
        let ruled =
            Network { rules: vec!["udp dport 53 drop".into(), "tcp dport 53 accept".into()], ..base.clone() };
        let [finding] = &bad(&ruled)[..] else { panic!("one") };
        assert!(finding.found.contains("udp dport 53 drop and 1 more"), "{finding:?}");
        assert!(
            judge(&ruled, false).iter().all(|finding| finding.level == Level::Ok),
            "no XDP, no way round"
        );
        let small = Network { receive_buffer: Some(212_992), ..base.clone() };
        let [finding] = &bad(&small)[..] else { panic!("one") };
        assert!(
            finding.remedy.as_deref().is_some_and(|text| text.contains("net.core.rmem_max=")),
            "{finding:?}"
        );
        assert_eq!(bad(&Network { locals: Some((90, 64)), ..base.clone() })[0].level, Level::Note);
        assert_eq!(bad(&Network { locals: Some((9, 64)), receive_buffer: Some(1 << 26), ..base }), []);
    }
}
