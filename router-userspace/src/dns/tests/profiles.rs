//! Names that a profile decides: types, aliases, wildcards, client subnet (ROUTING.md §4, §7).

use std::sync::Arc;

use router_common::atlas::Atlas;
use router_common::decide::Snapshot;
use router_common::model::{AddressRange, AdminStatus, AllDown, Endpoint, Method, MinChildren, Target};

use super::*;

const PROFILE_ZONE: &str = "
profile.test 3600 SOA
profile.test 3600 NS ns1.example.test
www.profile.test 300 MX 10 mail.example.test
alias.profile.test 120 CNAME www.profile.test
subalias.profile.test 120 CNAME subnet.profile.test
aliasalias.profile.test 120 CNAME cname.profile.test
mx.apps.profile.test 300 MX 10 mail.example.test
subnet.profile.test 300 TXT here
";

const SOA_LINE: &str = "ns profile.test. 300 SOA ns1.example.test. 300";

pub fn snapshot(model: Model) -> Snapshot {
    let model = Arc::new(model);
    let atlas = Arc::new(Atlas::build(&model, &Default::default(), &Default::default()));
    Snapshot { model, atlas, health: Arc::default() }
}

fn endpoint(name: &str, target: Target) -> Endpoint {
    Endpoint {
        name: name.to_owned(),
        target,
        status: AdminStatus::Enabled,
        always_serve: false,
        priority: 1,
        weight: 1,
        region: None,
        geo: Vec::new(),
        subnets: Vec::new(),
        dial: 100,
        min_children: MinChildren::default(),
        monitor: None,
    }
}

pub fn addresses(list: &[&str]) -> Target {
    let ips: Vec<IpAddr> = list.iter().map(|ip| ip.parse().unwrap()).collect();
    let ipv4 = ips.iter().filter_map(|ip| if let IpAddr::V4(ip) = ip { Some(*ip) } else { None });
    let ipv6 = ips.iter().filter_map(|ip| if let IpAddr::V6(ip) = ip { Some(*ip) } else { None });
    Target::Addresses { ipv4: ipv4.collect(), ipv6: ipv6.collect() }
}

pub fn profile(label: &str, method: Method, targets: &[Target]) -> Profile {
    let numbered = targets.iter().zip(1..);
    Profile {
        name: label.to_owned(),
        names: vec![name(&format!("{label}.profile.test"))],
        method,
        ttl: 30,
        enabled: true,
        ecs: true,
        all_down: AllDown::ServeAll,
        endpoints: numbered
            .map(|(target, number)| Endpoint {
                priority: number,
                ..endpoint(&format!("e{number}"), target.clone())
            })
            .collect(),
    }
}

fn subnet_profile(label: &str) -> Profile {
    let mut made = profile(label, Method::Subnet, &[addresses(&["192.0.2.60", "2001:db8::60"])]);
    made.endpoints[0].subnets = ["198.51.100.0/24", "2001:db8:5::/48"].map(range).into();
    made
}

fn range(prefix: &str) -> AddressRange {
    let prefix: ipnet::IpNet = prefix.parse().unwrap();
    AddressRange { first: prefix.network(), last: prefix.broadcast() }
}

/// The static zones and one with profiles.
pub fn service() -> Service {
    let mut apps =
        profile("*.apps", Method::Weighted, &[addresses(&["192.0.2.31"]), addresses(&["192.0.2.32"])]);
    apps.endpoints[0].weight = 3;
    let mut disabled = profile("disabled", Method::Priority, &[addresses(&["192.0.2.40"])]);
    disabled.enabled = false;
    let mut off = subnet_profile("off");
    off.ecs = false;
    let mut nodata = profile("nodata", Method::Priority, &[addresses(&["192.0.2.41"])]);
    nodata.endpoints[0].status = AdminStatus::Disabled;
    let profiles = vec![
        profile("www", Method::Priority, &[addresses(&["192.0.2.10", "2001:db8::10"])]),
        profile("v4only", Method::Priority, &[addresses(&["192.0.2.11"])]),
        profile("several", Method::Priority, &[addresses(&["192.0.2.21", "192.0.2.22", "192.0.2.23"])]),
        profile("cname", Method::Priority, &[Target::Domain(name("www.profile.test"))]),
        profile("away", Method::Priority, &[Target::Domain(name("www.example.org"))]),
        profile(
            "multi",
            Method::Multivalue { max_return: 2 },
            &[addresses(&["192.0.2.51"]), addresses(&["192.0.2.52"]), addresses(&["192.0.2.53"])],
        ),
        apps,
        disabled,
        nodata,
        subnet_profile("subnet"),
        off,
    ];
    service_of([ZONE, OTHER, CHILD, PROFILE_ZONE].map(zone).into(), profiles)
}

#[track_caller]
fn expect(text: &str, qtype: u16, expected: &str) {
    check(&service(), &plain(&format!("{text}.profile.test"), qtype), &expected.replace("$SOA", SOA_LINE));
}

#[test]
fn types_of_addresses_and_static_records_beside_them() {
    expect("www", A, "NOERROR aa qd1\nan www.profile.test. 30 A 192.0.2.10");
    expect("www", AAAA, "NOERROR aa qd1\nan www.profile.test. 30 AAAA 2001:db8::10");
    expect("www", CNAME, "NOERROR aa qd1\n$SOA");
    expect("www", MX, "NOERROR aa qd1\nan www.profile.test. 300 MX 10 mail.example.test.");
    expect("www", TXT, "NOERROR aa qd1\n$SOA");
    expect("www", 65, "NOERROR aa qd1\n$SOA");
    expect("v4only", AAAA, "NOERROR aa qd1\n$SOA");
    expect("x.www", A, "NXDOMAIN aa qd1\n$SOA");
    let reply = ask(&service(), &plain("www.profile.test", ANY)).unwrap();
    let message = Message::from_vec(&reply).unwrap();
    assert_eq!(message.answers.len(), 1, "one set of records");
    assert!(matches!(u16::from(message.answers[0].record_type()), A | AAAA));
}

#[test]
fn an_alias_that_a_profile_answers_with_is_not_followed() {
    for qtype in [A, AAAA, CNAME, ANY] {
        expect("cname", qtype, "NOERROR aa qd1\nan cname.profile.test. 30 CNAME www.profile.test.");
        expect("away", qtype, "NOERROR aa qd1\nan away.profile.test. 30 CNAME www.example.org.");
    }
    expect("cname", TXT, "NOERROR aa qd1\n$SOA");
}

#[test]
fn static_aliases_lead_to_profiles() {
    expect(
        "alias",
        A,
        "NOERROR aa qd1
        an alias.profile.test. 120 CNAME www.profile.test.
        an www.profile.test. 30 A 192.0.2.10",
    );
    expect(
        "alias",
        MX,
        "NOERROR aa qd1
        an alias.profile.test. 120 CNAME www.profile.test.
        an www.profile.test. 300 MX 10 mail.example.test.",
    );
    expect(
        "aliasalias",
        A,
        "NOERROR aa qd1
        an aliasalias.profile.test. 120 CNAME cname.profile.test.
        an cname.profile.test. 30 CNAME www.profile.test.",
    );
}

#[test]
fn several_addresses_are_one_set() {
    expect(
        "several",
        A,
        "NOERROR aa qd1
        an several.profile.test. 30 A 192.0.2.21
        an several.profile.test. 30 A 192.0.2.22
        an several.profile.test. 30 A 192.0.2.23",
    );
    let reply = ask(&service(), &plain("multi.profile.test", A)).unwrap();
    let message = Message::from_vec(&reply).unwrap();
    assert_eq!(message.answers.len(), 2);
    assert!(message.answers.iter().all(|held| held.ttl == 30));
}

#[test]
fn wildcards_of_profiles() {
    expect("x.apps", A, "NOERROR aa qd1\nan x.apps.profile.test. 30 A 192.0.2.31");
    expect("x.y.apps", A, "NOERROR aa qd1\nan x.y.apps.profile.test. 30 A 192.0.2.31");
    expect("*.apps", A, "NOERROR aa qd1\nan *.apps.profile.test. 30 A 192.0.2.31");
    expect("x.apps", TXT, "NOERROR aa qd1\n$SOA");
    expect("apps", A, "NOERROR aa qd1\n$SOA");
    // A name with records of its own is not covered.
    expect("mx.apps", A, "NOERROR aa qd1\n$SOA");
    expect("x.mx.apps", A, "NXDOMAIN aa qd1\n$SOA");
}

#[test]
fn the_random_number_picks_by_share() {
    let service = service();
    let query = plain("x.apps.profile.test", A);
    let pick = |random: u64| {
        let reply =
            respond(&service, &query, &from(CLIENT, Transport::Udp), &mut || random, &Counts::default())
                .unwrap();
        reply[reply.len() - 1]
    };
    // 3 : 1.
    for (random, host) in [(0, 31), (u64::MAX / 4 * 3, 31), (u64::MAX / 4 * 3 + 4, 32), (u64::MAX, 32)] {
        assert_eq!(pick(random), host, "{random}");
    }
}

#[test]
fn disabled_and_empty_profiles() {
    expect("disabled", A, "NXDOMAIN aa qd1\n$SOA");
    expect("nodata", A, "NOERROR aa qd1\n$SOA");
    expect("nodata", ANY, "NOERROR aa qd1\n$SOA");
}

/// First line of the reply, and the client subnet in it.
fn ask_subnet(text: &str, qtype: u16, options: &[u8]) -> (String, String) {
    let query = with_opt(&format!("{text}.profile.test"), qtype, 1232, options);
    let udp = ask(&service(), &query).unwrap();
    assert_eq!(ask_over(&service(), &query, Transport::Tcp), Some(udp.clone()), "both transports alike");
    let shown = show(&udp);
    let answer = shown.lines().nth(1).unwrap().to_owned();
    (answer, shown.lines().last().unwrap().to_owned())
}

fn echoed(family: u16, source: u8, scope: u8, address: &[u8]) -> String {
    format!("opt v0 1232 [{}]", hex(&ecs(family, source, scope, address)))
}

#[test]
fn the_client_subnet_decides_and_its_scope_is_told() {
    let inside = "an subnet.profile.test. 30 A 192.0.2.60";
    for (options, answer, opt) in [
        // The source, 198.51.100.7, is inside.
        (vec![], inside, "opt v0 1232 []".to_owned()),
        (ecs(1, 24, 0, &[198, 51, 100]), inside, echoed(1, 24, 24, &[198, 51, 100])),
        (ecs(1, 32, 0, &[198, 51, 100, 9]), inside, echoed(1, 32, 24, &[198, 51, 100, 9])),
        (
            ecs(2, 56, 0, &[0x20, 1, 0xd, 0xb8, 0, 5, 0]),
            inside,
            echoed(2, 56, 48, &[0x20, 1, 0xd, 0xb8, 0, 5, 0]),
        ),
        // Negative answers hold for everybody.
        (ecs(1, 24, 0, &[203, 0, 113]), SOA_LINE, echoed(1, 24, 0, &[203, 0, 113])),
        // SOURCE 0: the source decides.
        (ecs(1, 0, 0, &[]), inside, echoed(1, 0, 0, &[])),
        (ecs(2, 0, 0, &[]), inside, echoed(2, 0, 0, &[])),
        // A private block that no table mentions: the source decides, for the whole block.
        (ecs(1, 24, 0, &[10, 1, 2]), inside, echoed(1, 24, 8, &[10, 1, 2])),
    ] {
        assert_eq!(ask_subnet("subnet", A, &options), (answer.to_owned(), opt), "{}", hex(&options));
    }
    // Mapped and NAT64 addresses are the IPv4 addresses in them.
    for head in [[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff], [0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0]] {
        let address = [&head[..], &[198, 51, 100]].concat();
        let (answer, opt) = ask_subnet("subnet", A, &ecs(2, 120, 0, &address));
        assert_eq!((answer.as_str(), opt), (inside, echoed(2, 120, 120, &address)));
    }
}

#[test]
fn other_types_echo_the_option_with_scope_zero() {
    let option = ecs(1, 24, 0, &[198, 51, 100]);
    let (answer, opt) = ask_subnet("subnet", TXT, &option);
    assert_eq!(
        (answer.as_str(), opt),
        ("an subnet.profile.test. 300 TXT here", echoed(1, 24, 0, &[198, 51, 100]))
    );
    let (answer, opt) = ask_subnet("subnet", 65, &option);
    assert_eq!((answer.as_str(), opt), (SOA_LINE, echoed(1, 24, 0, &[198, 51, 100])));
    // A profile that does not look at the client.
    let (_, opt) = ask_subnet("www", A, &option);
    assert_eq!(opt, echoed(1, 24, 0, &[198, 51, 100]));
}

#[test]
fn an_alias_to_a_tailored_name_carries_its_scope() {
    let (_, opt) = ask_subnet("subalias", A, &ecs(1, 32, 0, &[198, 51, 100, 1]));
    assert_eq!(opt, echoed(1, 32, 24, &[198, 51, 100, 1]));
    let (_, opt) = ask_subnet("subalias", A, &ecs(1, 32, 0, &[203, 0, 113, 1]));
    assert_eq!(opt, echoed(1, 32, 0, &[203, 0, 113, 1]));
}

#[test]
fn ecs_off_ignores_the_option_and_echoes_it() {
    let inside = "an off.profile.test. 30 A 192.0.2.60";
    let (answer, opt) = ask_subnet("off", A, &ecs(1, 24, 0, &[203, 0, 113]));
    assert_eq!((answer.as_str(), opt), (inside, echoed(1, 24, 0, &[203, 0, 113])));
}

#[test]
fn mapped_sources_are_ipv4() {
    let source = IpAddr::V6(Ipv4Addr::new(198, 51, 100, 7).to_ipv6_mapped());
    let service = service();
    let query = plain("subnet.profile.test", A);
    let reply =
        respond(&service, &query, &from(source, Transport::Udp), &mut || 0, &Counts::default()).unwrap();
    assert!(show(&reply).contains("A 192.0.2.60"), "{}", show(&reply));
}
