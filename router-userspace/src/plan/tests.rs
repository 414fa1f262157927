use std::collections::BTreeMap;

use super::*;
use crate::config;

const TEXT: &str = r#"
[server]
listen = ["192.0.2.53:53"]
[limits]
moved_max = 0.25
profile_moved_max = 0.5
nodata_max = 0
removed_names_max = 0
removed_endpoints_max = 1
[[zone]]
name = "gslb.test"
soa = { mname = "ns1.gslb.test.", rname = "h.gslb.test.", serial = 1, refresh = 1, retry = 1, expire = 1, minimum = 1 }
ns = ["ns1.example.net."]
[[profile]]
name = "www"
names = ["www.gslb.test", "web.gslb.test"]
method = "weighted"
ttl = 30
monitor = "off"
  [[profile.endpoint]]
  name = "eu"
  address = ["192.0.2.1"]
  weight = 3
  [[profile.endpoint]]
  name = "us"
  address = ["192.0.2.2"]
[[profile]]
name = "near"
names = ["near.gslb.test"]
method = "subnet"
ttl = 30
monitor = "off"
  [[profile.endpoint]]
  name = "office"
  address = ["192.0.2.3"]
  subnets = ["10.0.0.0/8"]
  [[profile.endpoint]]
  name = "rest"
  address = ["192.0.2.4"]
"#;

fn planned(changes: &[(&str, &str)]) -> PlanReport {
    let mut after = TEXT.to_owned();
    for (from, to) in changes {
        assert!(after.contains(from), "{from}");
        after = after.replace(from, to);
    }
    let load = |text: &str| {
        let files: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        config::parse(text, "c.toml", &files).unwrap_or_else(|errors| panic!("{errors}"))
    };
    let mut plan = of_files(load(TEXT), load(&after), (Path::new("old.toml"), Path::new("new.toml")));
    plan.milliseconds = 0;
    plan
}

#[test]
fn nothing_is_said_to_be_nothing() {
    let plan = planned(&[]);
    assert!(plan.empty);
    assert_eq!(plan.to_string(), "plan: new.toml in place of old.toml\nno change\n");
    assert_eq!(plan.summary.to_string(), "no change");
}

#[test]
fn a_plan_reads_from_the_top() {
    let plan = planned(&[
        ("weight = 3", "weight = 1"),
        (", \"web.gslb.test\"", ", \"new.gslb.test\""),
        ("192.0.2.53:53\"]", "192.0.2.54:53\"]\nstale = \"pass\""),
        ("10.0.0.0/8", "10.0.0.0/9"),
        ("removed_names_max = 0\n", ""),
    ]);
    assert_eq!(
        plan.to_string(),
        r#"plan: new.toml in place of old.toml
  ! server.listen [192.0.2.53:53] -> [192.0.2.54:53], needs a restart
  ~ server.stale "serve" -> "pass"
  ~ limits.removed_names_max 0 -> none
names +1 -1 ~0
  + new.gslb.test.  profile www
  - web.gslb.test.  profile www
endpoints +0 -0 ~2
  ~ near/office  subnets 10.0.0.0/8 -> 10.0.0.0/9
  ~ www/eu  weight 3 -> 1
traffic (by address space, every name alike): 12.6 % (IPv4) and 12.5 % (IPv6 clients) of A answers move
  www (www.gslb.test.): 25.0 % of A answers move, for 100 % of clients
      www/eu 75.0 % -> 50.0 % (A, IPv4 clients)
      www/us 25.0 % -> 50.0 % (A, IPv4 clients)
      e.g. 128.0.0.0/1: www/eu 75.0 %, www/us 25.0 % -> www/eu 50.0 %, www/us 50.0 %
      e.g. 8000::/1: www/eu 75.0 %, www/us 25.0 % -> www/eu 50.0 %, www/us 50.0 %
  near (near.gslb.test.): 0.2 % (IPv4 clients) of A answers move, for 0.2 % of clients
      near/office 0.5 % -> 0.2 % (A, IPv4 clients)
      near/rest 99.5 % -> 99.8 % (A, IPv4 clients)
      e.g. 10.128.0.0/9: near/office -> near/rest
limit exceeded: removed_names_max = 0: 1 names would go
"#
    );
}

#[test]
fn limits_name_what_is_beyond_them() {
    assert!(planned(&[("weight = 3", "weight = 2")]).exceeded.is_empty());
    let beyond = |changes: &[(&str, &str)]| planned(changes).exceeded;
    assert_eq!(
        beyond(&[("\"192.0.2.1\"", "\"192.0.2.9\"")]),
        ["moved_max = 0.25: 50.0 % of all answers would be others", "profile_moved_max = 0.5: www 75.0 %"]
    );
    // Private addresses count nothing in IPv6, and nobody may get NODATA.
    let rest = "  [[profile.endpoint]]\n  name = \"rest\"\n  address = [\"192.0.2.4\"]\n";
    let all = "\"0.0.0.0/0\", \"::/1\", \"8000::/2\", \"c000::/3\", \"e000::/4\"";
    assert_eq!(
        beyond(&[(rest, ""), ("192.0.2.3", "192.0.2.4"), ("\"10.0.0.0/8\"", all)]),
        ["nodata_max = 0: 0 % of all answers would be NODATA, e.g. near for f000::/4"]
    );
    assert_eq!(
        beyond(&[
            ("names = [\"near.gslb.test\"]\n", ""),
            ("[\"www.gslb.test\", \"web.gslb.test\"]", "[\"www.gslb.test\"]")
        ]),
        ["removed_names_max = 0: 2 names would go"]
    );
    // What is new may not loosen what is old.
    let all = &TEXT[TEXT.find("[[profile]]").expect("there")..];
    assert_eq!(
        beyond(&[(all, ""), ("removed_endpoints_max = 1\n", ""), ("removed_names_max = 0\n", "")]),
        ["removed_names_max = 0: 3 names would go", "removed_endpoints_max = 1: 4 endpoints would go"]
    );
}

#[test]
fn a_report_is_read_back_from_json() {
    let plan = planned(&[("weight = 3", "weight = 1")]);
    let text = serde_json::to_string(&plan).expect("JSON");
    assert_eq!(serde_json::from_str::<PlanReport>(&text).expect("read"), plan);
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(value["traffic"]["profiles"][0]["moved"]["a"]["ipv4"], 0.25);
    assert_eq!(value["summary"]["endpoints"]["changed"], 1);
}

#[test]
fn long_lists_are_cut() {
    let names: Vec<String> = (0..50).map(|at| format!("\"n{at:02}.gslb.test\"")).collect();
    let plan = planned(&[("\"near.gslb.test\"", &names.join(", "))]);
    let text = plan.to_string();
    assert!(
        text.contains("  + n19.gslb.test.  profile near\n  … and 31 more (--all shows them)\n"),
        "{text}"
    );
    assert!(plan.text(true).contains("  + n49.gslb.test.  profile near\n"), "all");
}
