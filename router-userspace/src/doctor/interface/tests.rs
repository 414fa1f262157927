use super::super::Level;
use super::*;

fn good() -> Interface {
    Interface {
        name: "eth0".into(),
        exists: true,
        up: true,
        running: true,
        mtu: 1500,
        driver: Some(("mlx5_core".into(), "6.1.0".into())),
        native: Some((true, true)),
        features: [("rx-checksum".to_owned(), true)].into(),
        queues: Some((8, 8)),
        cpus: 8,
        spread: Some(true),
        interrupts: (0..8).map(|at| (30 + at, at.to_string())).collect(),
        mode: Some(XdpMode::Auto),
        ..Interface::default()
    }
}

/// The findings that are worse than ok; each says why.
fn bad(interface: &Interface) -> Vec<Finding> {
    let findings = judge(interface);
    assert!(findings.iter().all(|finding| finding.topic == "interface eth0"));
    let bad: Vec<Finding> = findings.into_iter().filter(|finding| finding.level > Level::Ok).collect();
    assert!(bad.iter().all(|finding| !finding.why.is_empty()), "{bad:?}");
    bad
}

#[track_caller]
fn one(interface: &Interface, level: Level, found: &str, remedy: &str) {
    let findings = bad(interface);
    let [finding] = findings.as_slice() else { panic!("{findings:?}") };
    assert_eq!(finding.level, level, "{finding:?}");
    assert!(finding.found.contains(found), "{finding:?}");
    assert!(finding.remedy.as_deref().unwrap_or_default().contains(remedy), "{finding:?}");
}

#[test]
fn a_good_interface_has_nothing_against_it() {
    assert_eq!(bad(&good()), []);
    assert!(judge(&good())[0].found.contains("driver mlx5_core 6.1.0, MTU 1500"));
}

#[test]
fn one_that_is_away_is_named_beside_those_that_are_there() {
    let away = Interface { exists: false, others: vec!["ens3".into(), "lo".into()], ..good() };
    one(&away, Level::Failure, "no interface \"eth0\"", "[\"ens3\", \"lo\"]");
}

#[test]
fn state_of_the_link() {
    one(&Interface { up: false, running: false, ..good() }, Level::Failure, "off", "ip link set eth0 up");
    one(&Interface { running: false, ..good() }, Level::Warning, "carrier", "ip -d link show eth0");
}

#[test]
fn native_xdp_or_why_not() {
    let generic = Interface { native: Some((false, false)), ..good() };
    one(&generic, Level::Warning, "no native XDP", "another driver");
    let demanded = Interface { mode: Some(XdpMode::Native), ..generic };
    one(&demanded, Level::Failure, "no native XDP", "xdp_mode = \"auto\"");
    one(&Interface { native: None, ..good() }, Level::Note, "does not say", "");
    let vlan = Interface { kind: Some("vlan".into()), lower: Some("eth9".into()), ..good() };
    one(&vlan, Level::Warning, "a vlan", "interfaces = [\"eth9\"] and vlans");
    one(&Interface { kind: Some("bridge".into()), ..good() }, Level::Warning, "a bridge", "interfaces");
    one(&Interface { kind: Some("bond".into()), ..good() }, Level::Note, "a bond", "");
}

#[test]
fn programs_of_others_and_of_us() {
    let program =
        Program { place: "native".into(), id: 7, name: Some("filter".into()), ..Program::default() };
    let foreign = Interface { programs: vec![program.clone()], ..good() };
    one(&foreign, Level::Failure, "filter (id 7, native)", "ip link set dev eth0 xdp off");
    let generic = Program { place: "generic".into(), ..program.clone() };
    one(&Interface { programs: vec![generic], ..good() }, Level::Failure, "generic", "xdpgeneric off");
    let linked = Program { link: Some(3), ..program.clone() };
    one(
        &Interface { programs: vec![linked], ..good() },
        Level::Failure,
        "filter",
        "bpftool link detach id 3",
    );
    let elsewhere = Program { name: Some("xroute".into()), link: Some(3), ..program.clone() };
    one(&Interface { programs: vec![elsewhere], ..good() }, Level::Failure, "xroute", "--pin-dir");
    let unseen = Program { name: None, ..program.clone() };
    one(&Interface { programs: vec![unseen], ..good() }, Level::Note, "not told", "xdp off");
    let ours = Program { name: Some("xroute".into()), pinned: true, ..program };
    let attached = Interface { programs: vec![ours], attached: Some(("native".into(), None)), ..good() };
    assert_eq!(bad(&attached), []);
    let slow =
        Interface { attached: Some(("generic".into(), Some("its driver has no XDP".into()))), ..attached };
    one(&slow, Level::Warning, "its driver has no XDP", "dmesg");
}

#[test]
fn the_other_end_of_a_veth() {
    let veth = |peer, mode| Interface { peer, mode: Some(mode), ..good() };
    one(&veth(Peer::Program(false), XdpMode::Auto), Level::Warning, "no XDP program", "generic");
    assert_eq!(bad(&veth(Peer::Program(false), XdpMode::Generic)), []);
    assert_eq!(bad(&veth(Peer::Program(true), XdpMode::Native)), []);
    one(&veth(Peer::Unknown, XdpMode::Auto), Level::Note, "cannot be looked into", "nsenter");
}

#[test]
fn sizes() {
    one(&Interface { mtu: 1000, ..good() }, Level::Warning, "MTU is 1000", "edns_size = 952");
    let jumbo = Interface { mtu: 9000, ..good() };
    assert_eq!(bad(&jumbo), []);
    one(&Interface { native: Some((true, false)), ..jumbo }, Level::Warning, "several buffers", "mtu 1500");
}

#[test]
fn offloads_that_stand_before_xdp() {
    let with = |feature: &str, on: bool| Interface { features: [(feature.to_owned(), on)].into(), ..good() };
    assert_eq!(bad(&with("rx-vlan-hw-parse", true)), [], "nobody looks at tags");
    let tagged = Interface { vlans: true, ..with("rx-vlan-hw-parse", true) };
    one(&tagged, Level::Failure, "rxvlan", "ethtool -K eth0 rxvlan off");
    let device =
        Interface { uppers: vec![("eth0.7".into(), "vlan".into())], ..with("rx-vlan-hw-parse", true) };
    one(&device, Level::Warning, "rxvlan", "rxvlan off");
    one(&with("rx-lro", true), Level::Warning, "LRO", "ethtool -K eth0 lro off");
    one(&with("rx-gro-hw", true), Level::Warning, "GRO", "rx-gro-hw off");
    one(&with("rx-checksum", false), Level::Note, "checksums", "");
    assert_eq!(bad(&with("rx-lro", false)), []);
}

#[test]
fn queues_and_their_cpus() {
    one(
        &Interface { queues: Some((2, 16)), ..good() },
        Level::Note,
        "2 queues",
        "ethtool -L eth0 combined 8",
    );
    one(
        &Interface { spread: Some(false), ..good() },
        Level::Note,
        "addresses alone",
        "rx-flow-hash udp4 sdfn",
    );
    let crowded =
        Interface { interrupts: (0..8).map(|at| (30 + at, (at / 4).to_string())).collect(), ..good() };
    one(&crowded, Level::Note, "8 interrupts of its queues are served by 2 CPUs", "/proc/irq/30/");
    assert_eq!(
        bad(&Interface { queues: Some((1, 1)), spread: Some(false), interrupts: Vec::new(), ..good() }),
        []
    );
}

#[test]
fn what_is_above_is_told() {
    let member = Interface { master: Some(("br0".into(), "bridge".into())), ..good() };
    one(&member, Level::Note, "bridge br0", "");
    let macvlan = Interface { uppers: vec![("vrrp1".into(), "macvlan".into())], ..good() };
    one(&macvlan, Level::Note, "vrrp1", "");
}
