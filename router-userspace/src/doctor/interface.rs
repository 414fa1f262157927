//! Interfaces: whether XDP can run there, whether it does, and what hides queries from it.

use std::collections::BTreeMap;

use super::Finding;
use crate::settings::XdpMode;

/// Largest MTU that drivers take a program at whose frames lie in one page (Ethernet, 4 KiB pages).
const ONE_PAGE_MTU: u32 = 3498;
/// The largest reply of the fast path over IPv6: 1232 octets in 48 of headers.
const LARGEST_REPLY: u32 = 1280;
/// The name that our program goes by.
const OURS: &str = "xroute";

/// What there is to know of one interface.
#[derive(Clone, Debug, Default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Whether there is one of that name.
    pub exists: bool,
    /// Names of the interfaces that there are, when there is none of that name.
    pub others: Vec<String>,
    /// Switched on.
    pub up: bool,
    /// With a carrier.
    pub running: bool,
    /// Octets.
    pub mtu: u32,
    /// `veth`, `bridge`, `vlan`, …; `None` for a device.
    pub kind: Option<String>,
    /// Driver and version.
    pub driver: Option<(String, String)>,
    /// Whether the driver has native XDP, and for frames in several buffers; `None` when the kernel does not say.
    pub native: Option<(bool, bool)>,
    /// Offloads by their names, whether they are on.
    pub features: BTreeMap<String, bool>,
    /// Queues that receive: now, at most.
    pub queues: Option<(u32, u32)>,
    /// CPUs of the machine.
    pub cpus: u32,
    /// Whether queries of one client are spread over queues by their ports.
    pub spread: Option<bool>,
    /// Interrupts of its queues, and the CPUs that serve each.
    pub interrupts: Vec<(u32, String)>,
    /// Programs on it.
    pub programs: Vec<Program>,
    /// The other end.
    pub peer: Peer,
    /// The interface that it is made on.
    pub lower: Option<String>,
    /// Interfaces that are made on it, with their kinds.
    pub uppers: Vec<(String, String)>,
    /// Bridge or bond that it is part of, with its kind.
    pub master: Option<(String, String)>,
    /// What the configuration says, when it names this interface.
    pub mode: Option<XdpMode>,
    /// Whether the configuration answers on VLANs.
    pub vlans: bool,
    /// What the agent says its program runs as (`native`, `generic`), and why not natively.
    pub attached: Option<(String, Option<String>)>,
}

/// A program on an interface.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Program {
    /// `native`, `generic` or `offloaded`.
    pub place: String,
    /// Its id.
    pub id: u32,
    /// Its name; `None` without the right to ask.
    pub name: Option<String>,
    /// Whether a link that is pinned where we look holds it.
    pub pinned: bool,
    /// The link that holds it.
    pub link: Option<u32>,
}

/// What is known of the other end of a veth.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Peer {
    /// It is no veth.
    #[default]
    None,
    /// It has an XDP program, or it has none.
    Program(bool),
    /// It is in a namespace that cannot be entered from here.
    Unknown,
}

/// Judges one interface.
pub fn judge(interface: &Interface) -> Vec<Finding> {
    let topic = format!("interface {}", interface.name);
    let topic = topic.as_str();
    if !interface.exists {
        return vec![
            Finding::failure(
                topic,
                format!("there is no interface {:?} in this network namespace", interface.name),
                "the agent does not start without it",
            )
            .remedy(format!("interfaces = [{}] in [server]? ip link shows them", quoted(&interface.others))),
        ];
    }
    let mut findings = vec![state(topic, interface)];
    findings.push(place(topic, interface));
    findings.extend(programs(topic, interface));
    findings.extend(peer(topic, interface));
    findings.extend(mtu(topic, interface));
    findings.extend(offloads(topic, interface));
    findings.extend(queues(topic, interface));
    findings.extend(above(topic, interface));
    findings
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}

fn state(topic: &str, interface: &Interface) -> Finding {
    let name = &interface.name;
    if !interface.up {
        return Finding::failure(topic, "it is switched off", "no packet arrives")
            .remedy(format!("ip link set {name} up"));
    }
    if !interface.running {
        return Finding::warning(topic, "it has no carrier", "no packet arrives").remedy(format!(
            "look at cable and switch, or at the other end of a veth: ip -d link show {name}"
        ));
    }
    let driver = match (&interface.driver, &interface.kind) {
        (Some((driver, version)), _) if version.is_empty() => format!("driver {driver}"),
        (Some((driver, version)), _) => format!("driver {driver} {version}"),
        (None, Some(kind)) => format!("a {kind}"),
        (None, None) => "driver unknown".into(),
    };
    Finding::ok(topic, format!("up, {driver}, MTU {}", interface.mtu))
}

/// Whether XDP is in the right place here.
fn place(topic: &str, interface: &Interface) -> Finding {
    let below = "frames are counted, and answered, once they are in the stack, which costs more than the fast path saves";
    match interface.kind.as_deref() {
        Some(kind @ ("vlan" | "bridge" | "macvlan" | "ipvlan" | "vrf")) => {
            let remedy = match (&interface.lower, kind) {
                (Some(lower), "vlan") => {
                    format!("interfaces = [\"{lower}\"] and vlans = [its id] in [server]")
                }
                (Some(lower), _) => format!("interfaces = [\"{lower}\"] in [server]"),
                (None, _) => "name the device in whose driver frames arrive in [server] interfaces".into(),
            };
            return Finding::warning(
                topic,
                format!("it is a {kind}, made on top of another interface"),
                below,
            )
            .remedy(remedy);
        }
        Some("bond" | "team") => {
            return Finding::note(
                topic,
                "it is a bond: native XDP works in modes that hash or fail over, on members whose drivers have it",
                "else it runs generically",
            );
        }
        _ => {}
    }
    match interface.native {
        Some((true, _)) => Finding::ok(topic, "its driver has native XDP"),
        Some((false, _)) if interface.mode == Some(XdpMode::Native) => {
            Finding::failure(topic, "its driver has no native XDP", "xdp_mode = \"native\" does not start")
                .remedy("xdp_mode = \"auto\" in [server], or another network card")
        }
        Some((false, _)) => Finding::warning(
            topic,
            "its driver has no native XDP: generic XDP is used",
            "each query costs a socket buffer, several times as much",
        )
        .remedy("another driver or network card is the only way; interfaces = [] answers in userspace"),
        None => Finding::note(
            topic,
            "the kernel does not say whether its driver has native XDP (Linux 6.3 does)",
            "with xdp_mode = \"auto\" the agent tries, and `xroute status` says what came of it",
        ),
    }
}

fn programs(topic: &str, interface: &Interface) -> Vec<Finding> {
    let name = &interface.name;
    let mut findings = Vec::new();
    if let Some((mode, why)) = &interface.attached {
        findings.push(match why {
            None => Finding::ok(topic, format!("the agent answers on it, {mode}")),
            Some(why) => Finding::warning(
                topic,
                format!("the agent answers on it, {mode}, not natively: {why}"),
                "each query costs several times as much",
            )
            .remedy("dmesg | tail says what the driver objects to; then: systemctl restart xroute"),
        });
    } else if interface.programs.is_empty() {
        findings.push(Finding::ok(topic, "no XDP program is attached"));
    }
    for program in &interface.programs {
        if program.pinned {
            continue;
        }
        let called = program.name.as_deref().unwrap_or("not told to this user");
        let found = format!("another XDP program is on it: {called} (id {}, {})", program.id, program.place);
        let why = if called == OURS {
            "it is xroute's, but pinned somewhere else, or held by a process: the agent does not start over it"
        } else {
            "xroute never takes a program away: it does not start on this interface"
        };
        let switch = match program.place.as_str() {
            "native" => "xdp",
            "generic" => "xdpgeneric",
            _ => "xdpoffload",
        };
        let remedy = match program.link {
            Some(link) => format!(
                "end the process that has it, or: bpftool link detach id {link}{}",
                if called == OURS { "; or give the agent its --pin-dir" } else { "" }
            ),
            None => format!("ip link set dev {name} {switch} off"),
        };
        let finding = if program.name.is_none() {
            Finding::note(topic, found, "it may be xroute's own, which only root can see")
        } else {
            Finding::failure(topic, found, why)
        };
        findings.push(finding.remedy(remedy));
    }
    findings
}

fn peer(topic: &str, interface: &Interface) -> Option<Finding> {
    let generic = interface.mode == Some(XdpMode::Generic);
    match interface.peer {
        Peer::None => None,
        Peer::Program(true) => Some(Finding::ok(topic, "the other end of the veth has an XDP program")),
        Peer::Program(false) if generic => {
            Some(Finding::ok(topic, "the other end of the veth needs no XDP program in generic mode"))
        }
        Peer::Program(false) => Some(
            Finding::warning(
                topic,
                "the other end of the veth has no XDP program",
                "a veth hands over what XDP sends back only to an end that has one: replies are lost in native mode",
            )
            .remedy("xdp_mode = \"generic\" in [server], or any program that passes on the other end (or `ethtool -K PEER gro on`)"),
        ),
        Peer::Unknown => Some(
            Finding::note(
                topic,
                "the other end of the veth is in a network namespace that cannot be looked into from here",
                "without an XDP program there, replies of native XDP are lost",
            )
            .remedy("run it as root, or look there: nsenter --net=… ip link | grep xdp"),
        ),
    }
}

fn mtu(topic: &str, interface: &Interface) -> Option<Finding> {
    let (name, mtu) = (&interface.name, interface.mtu);
    if mtu < LARGEST_REPLY {
        return Some(
            Finding::warning(
                topic,
                format!("its MTU is {mtu}"),
                "replies of the fast path have up to 1280 octets with their headers, and IPv6 needs that much",
            )
            .remedy(format!("ip link set {name} mtu 1500; or edns_size = {} in [server]", mtu.saturating_sub(48).max(512))),
        );
    }
    match interface.native {
        Some((true, false)) if mtu > ONE_PAGE_MTU => Some(
            Finding::warning(
                topic,
                format!("its MTU is {mtu}, and its driver has no XDP for frames in several buffers"),
                "drivers refuse native XDP above about 3498 octets then",
            )
            .remedy(format!("ip link set {name} mtu 1500")),
        ),
        _ => None,
    }
}

fn offloads(topic: &str, interface: &Interface) -> Vec<Finding> {
    let name = &interface.name;
    let on = |feature: &str| interface.features.get(feature) == Some(&true);
    let mut findings = Vec::new();
    if on("rx-vlan-hw-parse") && interface.vlans {
        findings.push(
            Finding::failure(
                topic,
                "the driver takes VLAN tags away before XDP sees them (rxvlan)",
                "queries on the `vlans` of the configuration look untagged, and replies would leave untagged",
            )
            .remedy(format!("ethtool -K {name} rxvlan off")),
        );
    } else if on("rx-vlan-hw-parse") && interface.uppers.iter().any(|(_, kind)| kind == "vlan") {
        findings.push(
            Finding::warning(
                topic,
                "VLAN devices are on it, and the driver takes tags away before XDP sees them (rxvlan)",
                "a tagged query to a service address looks untagged, and its reply would leave untagged",
            )
            .remedy(format!("ethtool -K {name} rxvlan off")),
        );
    }
    for (feature, short, what) in [("rx-lro", "lro", "LRO"), ("rx-gro-hw", "rx-gro-hw", "GRO in hardware")] {
        if on(feature) {
            findings.push(
                Finding::warning(
                    topic,
                    format!("{what} is on"),
                    "frames are merged before XDP sees them: some drivers refuse XDP, others switch it off by themselves",
                )
                .remedy(format!("ethtool -K {name} {short} off")),
            );
        }
    }
    if interface.features.get("rx-checksum") == Some(&false) && interface.kind.is_none() {
        findings.push(Finding::note(
            topic,
            "the device does not check checksums of what it receives",
            "the fast path sums up each query by itself; only what is passed to the kernel is checked twice",
        ));
    }
    findings
}

fn receiving(queues: u32) -> String {
    if queues == 1 { "1 queue receives".into() } else { format!("{queues} queues receive") }
}

fn queues(topic: &str, interface: &Interface) -> Vec<Finding> {
    let name = &interface.name;
    let mut findings = Vec::new();
    if let Some((now, most)) = interface.queues {
        let best = most.min(interface.cpus);
        if now < best {
            findings.push(
                Finding::note(
                    topic,
                    format!("{}, for {} CPUs; the device has up to {most}", receiving(now), interface.cpus),
                    "each queue is served by one CPU at a time: that many CPUs answer",
                )
                .remedy(format!("ethtool -L {name} combined {best} (or rx {best})")),
            );
        } else {
            findings.push(Finding::ok(topic, format!("{}, for {} CPUs", receiving(now), interface.cpus)));
        }
        if now > 1 && interface.spread == Some(false) {
            findings.push(
                Finding::note(
                    topic,
                    "UDP is spread over queues by addresses alone",
                    "all queries of one resolver are answered by one CPU",
                )
                .remedy(format!(
                    "ethtool -N {name} rx-flow-hash udp4 sdfn; ethtool -N {name} rx-flow-hash udp6 sdfn"
                )),
            );
        }
    }
    let served: Vec<&str> = interface.interrupts.iter().map(|(_, cpus)| cpus.as_str()).collect();
    let distinct = served.iter().collect::<std::collections::BTreeSet<_>>().len();
    if served.len() > 1 && distinct < served.len() && distinct < interface.cpus as usize {
        let (interrupt, _) = interface.interrupts[0];
        findings.push(
            Finding::note(
                topic,
                format!("{} interrupts of its queues are served by {distinct} CPUs", served.len()),
                "the other CPUs have no part in answering",
            )
            .remedy(format!(
                "irqbalance, or by hand: echo CPU > /proc/irq/{interrupt}/smp_affinity_list, and so on"
            )),
        );
    }
    findings
}

/// What is made on the interface, or what it is part of.
fn above(topic: &str, interface: &Interface) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some((master, kind)) = &interface.master {
        findings.push(Finding::note(
            topic,
            format!("it is part of the {kind} {master}"),
            "frames to that one's hardware address, where it is another, pass to the userspace server",
        ));
    }
    let virtual_macs: Vec<&str> = interface
        .uppers
        .iter()
        .filter(|(_, kind)| kind == "macvlan" || kind == "ipvlan")
        .map(|(name, _)| name.as_str())
        .collect();
    if !virtual_macs.is_empty() {
        findings.push(Finding::note(
            topic,
            format!("{} have hardware addresses of their own on it", virtual_macs.join(", ")),
            "frames to those (VRRP, containers) pass to the stack and are not answered in XDP",
        ));
    }
    findings
}

#[cfg(test)]
mod tests;
