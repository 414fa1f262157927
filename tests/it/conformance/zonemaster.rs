//! zonemaster-cli in undelegated mode, through XDP. Nothing leaves the namespaces: the root it starts from, with
//! everything else it asks about, is a second agent beside it.

use std::fs;

use router_tests::agent::Agent;
use router_tests::netns::Pair;

use super::{Laboratory, configure};

/// Addresses of the zone's servers, two of a family, in networks and systems of their own. Public ones, since
/// a server with a private address is an error to zonemaster; they exist inside the namespaces only.
const SERVERS: [(&str, &str, &str); 2] =
    [("ns1", "11.0.0.53", "2600:11::53"), ("ns2", "21.0.0.53", "2a00:21::53")];
/// Of the root.
const ROOT: (&str, &str) = ("31.0.0.53", "2400:31::53");

const SOA: &str = "2026113001 14400 3600 1209600 3600";

/// The zone under test: its addresses are static, its web site is a profile.
fn zone() -> String {
    let mut text = format!(
        "$TTL 86400\n@ SOA ns1 hostmaster {SOA}\n@ NS ns1\n@ NS ns2\n@ A 11.0.0.80\n@ MX 10 mail\n@ TXT \"v=spf1 mx \
         -all\"\nmail A 11.0.0.25\n"
    );
    for (name, ipv4, ipv6) in SERVERS {
        text.push_str(&format!("{name} A {ipv4}\n{name} AAAA {ipv6}\n"));
    }
    text
}

const PROFILE: &str = "[[zone]]\nname = \"well-formed.test\"\nfile = \"well-formed.zone\"\n\n[[profile]]\nname = \
                       \"www\"\nnames = [\"www.well-formed.test\"]\nmethod = \"weighted\"\nmonitor = \"off\"\n  \
                       [[profile.endpoint]]\n  name = \"one\"\n  address = [\"11.0.0.81\", \"2600:11::81\"]\n";

/// Names in `ip6.arpa` are long.
fn reverse(address: &str) -> String {
    match address.parse().expect("an address") {
        std::net::IpAddr::V4(address) => {
            let [a, b, c, d] = address.octets();
            format!("{d}.{c}.{b}.{a}.in-addr.arpa.")
        }
        std::net::IpAddr::V6(address) => {
            let nibbles: String = address
                .octets()
                .iter()
                .rev()
                .map(|octet| format!("{:x}.{:x}.", octet & 15, octet >> 4))
                .collect();
            format!("{nibbles}ip6.arpa.")
        }
    }
}

/// The root, with all that lies between it and the zone, the addresses' names, and the routing systems of the
/// addresses, which zonemaster asks asnlookup.zonemaster.net for.
fn root() -> String {
    let mut text = format!(
        "$TTL 86400\n. SOA ns.root.test. hostmaster.root.test. {SOA}\n. NS ns.root.test.\nns.root.test. A \
         {}\nns.root.test. AAAA {}\n",
        ROOT.0, ROOT.1
    );
    for (number, (name, ipv4, ipv6)) in SERVERS.iter().enumerate() {
        text.push_str(&format!("well-formed.test. NS {name}.well-formed.test.\n"));
        for (address, kind, bits) in [(ipv4, "A", 24), (ipv6, "AAAA", 32)] {
            let reverse = reverse(address);
            let system = reverse
                .replace("in-addr.arpa", "origin.asnlookup.zonemaster.net")
                .replace("ip6.arpa", "origin6.asnlookup.zonemaster.net");
            text.push_str(&format!(
                "{name}.well-formed.test. {kind} {address}\n{reverse} PTR {name}.well-formed.test.\n{system} TXT \"{} | \
                 {address}/{bits} | US | arin | 2026-01-01\"\n",
                64 + number
            ));
        }
    }
    text
}

#[test]
fn netns_zonemaster_finds_no_error() {
    let Some(laboratory) = Laboratory::new() else { return };
    let Laboratory { pair, folder } = &laboratory;
    let (server, client) = (Pair::SERVER, Pair::CLIENT);
    for (_, ipv4, ipv6) in SERVERS {
        pair.server
            .sh(&format!("ip addr add {ipv4}/32 dev {server}; ip -6 addr add {ipv6}/128 dev {server} nodad"));
        pair.client.sh(&format!("ip route add {ipv4} dev {client}; ip -6 route add {ipv6} dev {client}"));
    }
    let (ipv4, ipv6) = ROOT;
    pair.client.sh(&format!(
        "ip addr add {ipv4}/32 dev lo; ip -6 addr add {ipv6}/128 dev lo nodad
         ip route add unreachable default; ip -6 route add unreachable default"
    ));

    fs::write(folder.path().join("well-formed.zone"), zone()).expect("the zone is written");
    let listen: Vec<String> =
        SERVERS.iter().map(|(_, ipv4, ipv6)| format!("\"{ipv4}:53\", \"[{ipv6}]:53\"")).collect();
    configure(folder.path(), "\"xr0\"", &listen.join(", "), PROFILE);
    let agent = Agent::start(&pair.server, folder.path(), &[]);

    let above = tempfile::tempdir().expect("a folder");
    fs::write(above.path().join("root.zone"), root()).expect("the zone is written");
    let listen = format!("\"{ipv4}:53\", \"[{ipv6}]:53\"");
    configure(above.path(), "", &listen, "[[zone]]\nname = \".\"\nfile = \"root.zone\"\n");
    let root = Agent::start(&pair.client, above.path(), &[]);
    let hints = above.path().join("hints");
    fs::write(
        &hints,
        format!(
            ". 3600000 NS ns.root.test.\nns.root.test. 3600000 A {ipv4}\nns.root.test. 3600000 AAAA {ipv6}\n"
        ),
    )
    .expect("the hints are written");

    let mut command = pair.client.command("zonemaster-cli");
    command.args([
        "--level",
        "INFO",
        "--show-module",
        "--show-testcase",
        "--no-progress",
        "--no-time",
        "--hints",
    ]);
    command.arg(&hints);
    for (name, ipv4, ipv6) in SERVERS {
        for address in [ipv4, ipv6] {
            command.arg("--ns").arg(format!("{name}.well-formed.test/{address}"));
        }
    }
    let output =
        command.arg("well-formed.test").env("LC_ALL", "C.UTF-8").output().expect("zonemaster-cli starts");
    let told = String::from_utf8_lossy(&output.stderr);
    let printed = String::from_utf8_lossy(&output.stdout);
    println!("{printed}{told}");
    assert!(output.status.success(), "{told}");
    for level in ["CRITICAL", "ERROR", "WARNING"] {
        assert!(!printed.lines().any(|line| line.starts_with(level)), "{level}:\n{printed}");
    }
    // What it prints when it has really looked.
    for module in ["BASIC02", "CONSISTENCY06", "DELEGATION07", "NAMESERVER09", "ZONE10"] {
        assert!(printed.contains(module), "{module} was not tested:\n{printed}");
    }
    root.terminate();
    agent.terminate();
}
