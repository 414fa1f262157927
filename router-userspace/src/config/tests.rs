use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use router_common::model::{AllDown, Method, Target, WindowRule};
use router_common::name::Name;

use super::*;
use crate::settings::{
    Algorithm, ChangeLimits, Cookies, Dns, DnstapTarget, Key, Probes, RateLimit, Secret, Stale, Tcp, XdpMode,
};

mod monitors;
mod refusals;
mod warned;

/// A configuration with a zone, the text of a test after it.
fn with_zone(rest: &str) -> String {
    format!(
        "[[zone]]\nname = \"x.example\"\nsoa = {{ mname = \"ns.y.example.\", rname = \"h.y.example.\", serial = 1, \
         refresh = 2, retry = 3, expire = 4, minimum = 5 }}\nns = [\"ns.y.example.\"]\n{rest}"
    )
}

/// What a configuration is refused with, one line each.
fn refused(text: &str) -> Vec<String> {
    refused_with(text, &[])
}

fn refused_with(text: &str, files: &[(&str, &str)]) -> Vec<String> {
    match parse(text, "c.toml", &map(files)) {
        Ok(_) => vec!["accepted".into()],
        Err(errors) => errors.to_string().lines().map(str::to_owned).collect(),
    }
}

fn map(files: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
    files.iter().map(|(name, text)| ((*name).to_owned(), text.as_bytes().to_vec())).collect()
}

fn accepted(text: &str) -> Config {
    accepted_with(text, &[])
}

fn accepted_with(text: &str, files: &[(&str, &str)]) -> Config {
    parse(text, "c.toml", &map(files)).unwrap_or_else(|errors| panic!("{errors}"))
}

/// Everything of CONFIG.md in one file.
const WHOLE: &str = r#"
include = ["profiles/*.toml"]
[server]
interfaces = ["eth0"]
xdp_mode = "generic"
listen = ["192.0.2.53:53", "[2001:db8::53]:53"]
vlans = [7, 4094]
stale = "pass"
control = "/run/x.sock"
control_group = "dns"
admin_group = "dns-admin"
http = "127.0.0.1:8053"
state_dir = "state"
ready_within = "2s"
edns_size = 1200
nsid = "0x00fF7a"
version = "x 1"
id = "pop1"
[tcp]
connections = 500
connections_per_client = 20
idle = "1m"
fast_open = false
[cookies]
enabled = true
secret_file = "cookies.secret"
require = true
[rate_limit]
responses_per_second = 20
nodata_per_second = 0
nxdomains_per_second = 5
referrals_per_second = 6
window = 3
slip = 1
ipv4_prefix = 32
ipv6_prefix = 64
exempt = ["10.0.0.0/8", "192.0.2.1-192.0.2.3"]
dry_run = true
table_size = 4096
[probes]
per_second = 100
in_flight = 10
programs = 1
[dnstap]
file = "taps"
identity = "lab"
sample = 100
per_second = 5
path = "fast"
[limits]
moved_max = 0.25
profile_moved_max = 1
nodata_max = 0
removed_names_max = 10
removed_endpoints_max = 0
[geo]
overrides = "geo.csv"
[latency]
table = "latency.csv"
[latency.regions.westeurope]
latitude = 52.37
longitude = 4
[[key]]
name = "XFR.example.com"
algorithm = "hmac-sha512"
secret = "c2VjcmV0IHNlY3JldCBzZWNyZXQ="
[[zone]]
name = "gslb.example.com"
transfer = ["192.0.2.7", "2001:db8::/32", { key = "xfr.example.com." }, { address = "10.0.0.0/8", key = "later.example" }]
notify = ["192.0.2.7:53", { address = "[2001:db8::7]:5353", key = "xfr.example.com", source = "2001:db8::53" }]
soa = { mname = "ns1.gslb.example.com.", rname = "hostmaster.example.com.", serial = 4294967295, refresh = 3600, retry = 600, expire = 604800, minimum = 60 }
ns = ["ns1.other.example.", "ns2.other.example."]
records = '''
mail 300 A 192.0.2.25
         MX 10 mail
$INCLUDE more.txt sub
'''
[[zone]]
name = "file.example"
file = "file.zone"
[[profile]]
name = "www"
names = ["www.gslb.example.com", "*.apps.gslb.example.com"]
method = "priority"
ttl = 0
ecs = "off"
all_down = { fallback = "us1" }
  [profile.monitor]
  protocol = "https"
  path = "/health"
  method = "GET"
  headers = { "X-b" = "2", "X-A" = "1" }
  verify = false
  expected_status = ["200", "300-399", 404]
  interval = "5s"
  timeout = "1500ms"
  tolerated_failures = 3
  [[profile.endpoint]]
  name = "eu1"
  address = ["2001:db8::10", "192.0.2.10"]
  priority = 7
  dial = 50
  monitor = { protocol = "tcp", port = 8443, sample_size = 1 }
  [[profile.endpoint]]
  name = "us1"
  target = "US1.example.net"
  priority = 3
  status = "stopped"
  always_serve = true
[[profile]]
name = "near"
names = "near.gslb.example.com"
method = "performance"
source = "probe"
sensitivity = "20ms"
  [[profile.endpoint]]
  name = "pool"
  profile = "multi"
  weight = 10
  min_child_endpoints = 2
  min_child_endpoints_ipv6 = 1
  [[profile.endpoint]]
  name = "one"
  address = "192.0.2.20"
  subnets = ["198.51.100.0/24", "203.0.113.7-203.0.113.40", "192.0.2.1"]
"#;

const WHOLE_FILES: [(&str, &str); 8] = [
    ("cookies.secret", "000102030405060708090a0b0c0d0e0f\nFFffFFffFFffFFffFFffFFffFFffFFff\n"),
    ("profiles/later.secret", "c2VjcmV0IHNlY3\nJldCBzZWNyZXQ=\n"),
    ("geo.csv", "prefix,code\n10.0.0.0/8,US-CA\n"),
    ("latency.csv", "prefix,region,milliseconds\n10.0.0.0/8,westeurope,3.5\n"),
    ("more.txt", "@ TXT \"in a file\"\n"),
    ("file.zone", "$TTL 60\n@ SOA ns h 1 2 3 4 5\n@ NS ns\nns A 192.0.2.1\n"),
    (
        "profiles/b.toml",
        "[[key]]\nname = \"later.example\"\nsecret_file = \"later.secret\"\n[[profile]]\nname = \"multi\"\nnames = [\"multi.file.example\"]\nmethod = \"multivalue\"\nmonitor = \
         \"off\"\nmax_return = 4\n[[profile.endpoint]]\nname = \"a\"\naddress = [\"192.0.2.1\", \"2001:db8::1\"]\n\
         [[profile.endpoint]]\nname = \"b\"\naddress = [\"192.0.2.2\"]\n",
    ),
    ("profiles/other.txt", "not TOML"),
];

#[test]
fn every_key_arrives() {
    let config = accepted_with(WHOLE, &WHOLE_FILES);
    let server = &config.server;
    assert_eq!(server.interfaces, ["eth0"]);
    assert_eq!(server.xdp_mode, XdpMode::Generic);
    assert_eq!(server.listen, ["192.0.2.53:53".parse().unwrap(), "[2001:db8::53]:53".parse().unwrap()]);
    assert_eq!((server.vlans.as_slice(), server.stale), (&[7, 4094][..], Stale::Pass));
    assert_eq!(server.control, Path::new("/run/x.sock"));
    assert_eq!(
        (server.control_group.as_deref(), server.admin_group.as_deref()),
        (Some("dns"), Some("dns-admin"))
    );
    assert_eq!(server.http, Some("127.0.0.1:8053".parse().unwrap()));
    assert_eq!((server.state_dir.as_path(), server.dns.edns_size), (Path::new("state"), 1200));
    assert_eq!(server.ready_within, Duration::from_secs(2));
    let tcp =
        Tcp { connections: 500, connections_per_client: 20, idle: Duration::from_secs(60), fast_open: false };
    assert_eq!(server.dns.tcp, tcp);
    assert_eq!(server.dns.nsid.as_deref(), Some(&[0, 0xff, b'z'][..]));
    assert_eq!((server.dns.version.as_deref(), server.dns.id.as_deref()), (Some("x 1"), Some("pop1")));
    let secrets = vec![Secret(std::array::from_fn(|i| i as u8)), Secret([255; 16])];
    assert_eq!(server.dns.cookies, Some(Cookies { secrets, require: true }));
    let limit = server.dns.rate_limit.as_ref().unwrap();
    let exempt: Vec<String> = limit.exempt.iter().map(ToString::to_string).collect();
    assert_eq!(exempt, ["10.0.0.0/8", "192.0.2.1-192.0.2.3"]);
    let expected = RateLimit {
        responses_per_second: 20,
        nodata_per_second: 0,
        nxdomains_per_second: 5,
        referrals_per_second: 6,
        errors_per_second: 20,
        window: 3,
        slip: 1,
        ipv4_prefix: 32,
        ipv6_prefix: 64,
        exempt: limit.exempt.clone(),
        dry_run: true,
        table_size: 4096,
    };
    assert_eq!(*limit, expected);
    let dnstap = server.dnstap.as_ref().unwrap();
    assert_eq!(dnstap.target, DnstapTarget::File("taps".into()));
    assert_eq!(dnstap.speaker.as_ref().unwrap().identity, "lab");
    assert_eq!((dnstap.sample, dnstap.per_second), (100, 5));
    assert_eq!(dnstap.path, Some(crate::trace::Path::Fast));
    let probes = Probes { per_second: 100, in_flight: 10, programs: 1 };
    assert_eq!(server.probes, probes);
    let limits = ChangeLimits {
        moved_max: Some(0.25),
        profile_moved_max: Some(1.0),
        nodata_max: Some(0.0),
        removed_names_max: Some(10),
        removed_endpoints_max: Some(0),
    };
    assert_eq!(server.limits, limits);
    assert_eq!(config.geography.overrides.len(), 1);
    assert_eq!(config.latency.rows, [("10.0.0.0/8".parse().unwrap(), "westeurope".into(), 3.5)]);
    let place = config.model.regions()["westeurope"];
    assert_eq!((place.latitude, place.longitude), (52.37, 4.0));
    let sources: Vec<String> = config.sources.iter().map(|path| path.display().to_string()).collect();
    assert_eq!(
        sources,
        [
            "c.toml",
            "cookies.secret",
            "geo.csv",
            "latency.csv",
            "more.txt",
            "file.zone",
            "profiles/b.toml",
            "profiles/later.secret",
        ]
    );

    let [xfr, later] = server.dns.keys.as_slice() else { panic!("two keys") };
    assert_eq!(
        format!("{xfr:?} {later:?}"),
        "Key(xfr.example.com. HmacSha512) Key(later.example. HmacSha256)"
    );
    let same = Key::new(later.name.clone(), Algorithm::HmacSha256, b"secret secret secret".to_vec());
    assert_eq!(**later, same);
    let secondaries = &server.dns.secondaries[&"gslb.example.com".parse().unwrap()];
    assert_eq!(server.dns.secondaries.len(), 1);
    let allowed: Vec<String> = secondaries
        .transfer
        .iter()
        .map(|one| format!("{:?} {:?}", one.from.map(|from| from.to_string()), one.key))
        .collect();
    assert_eq!(
        allowed,
        [
            "Some(\"192.0.2.7/32\") None",
            "Some(\"2001:db8::/32\") None",
            "None Some(xfr.example.com.)",
            "Some(\"10.0.0.0/8\") Some(later.example.)",
        ]
    );
    let [plain, signed] = secondaries.notify.as_slice() else { panic!("two secondaries") };
    assert_eq!((plain.address, &plain.key, plain.source), ("192.0.2.7:53".parse().unwrap(), &None, None));
    assert_eq!(signed.key.as_ref(), Some(&xfr.name));
    assert_eq!(signed.source, Some("2001:db8::53".parse().unwrap()));

    let [gslb, file] = config.model.zones() else { panic!("two zones") };
    assert_eq!((gslb.ttl, gslb.soa.serial, gslb.negative_ttl()), (3600, u32::MAX, 60));
    assert_eq!(gslb.nodes[&gslb.name].len(), 2);
    let ttls = |owner: &str, rtype| gslb.nodes[&owner.parse::<Name>().unwrap()][&rtype].ttl;
    assert_eq!((ttls("mail.gslb.example.com", 1), ttls("mail.gslb.example.com", 15)), (300, 3600));
    assert_eq!(ttls("sub.gslb.example.com", 16), 3600);
    assert_eq!((file.ttl, file.soa.minimum, file.nodes.len()), (60, 5, 2));

    let [www, near, multi] = config.model.profiles() else { panic!("three profiles") };
    assert_eq!((www.ttl, www.ecs, www.all_down), (0, false, AllDown::Fallback(1)));
    assert_eq!(www.names[1].to_string(), "*.apps.gslb.example.com.");
    let [eu1, us1] = www.endpoints.as_slice() else { panic!("two endpoints") };
    assert_eq!((eu1.priority, eu1.dial, us1.priority, us1.always_serve), (7, 50, 3, true));
    assert_eq!(us1.target, Target::Domain("us1.example.net".parse().unwrap()));
    let tcp = eu1.monitor.as_ref().unwrap();
    assert_eq!(tcp.target.to_string(), "TCP [2001:db8::10]:8443");
    assert_eq!(tcp.window, WindowRule::Samples { size: 1, successful: 1 });
    assert_eq!((tcp.interval.as_millis(), tcp.timeout.as_millis()), (5000, 1500));
    let https = us1.monitor.as_ref().unwrap();
    assert_eq!(
        https.target.to_string(),
        "GET https://us1.example.net.:443/health host \"us1.example.net\" header \"X-A\" \"1\" header \"X-b\" \
         \"2\" unverified"
    );
    assert_eq!(https.expected_status, [(200, 200), (300, 399), (404, 404)]);
    assert_eq!(https.window, WindowRule::Tolerated { failures: 3 });

    assert_eq!(near.method, Method::Fastest { sensitivity: std::time::Duration::from_millis(20) });
    assert_eq!(near.endpoints[0].target, Target::Profile(config.model.profile_named("multi").unwrap()));
    assert_eq!((near.endpoints[0].weight, near.endpoints[0].min_children.any), (10, 2));
    assert_eq!(near.endpoints[0].min_children.ipv6, Some(1));
    let ranges: Vec<String> = near.endpoints[1].subnets.iter().map(ToString::to_string).collect();
    assert_eq!(ranges, ["198.51.100.0/24", "203.0.113.7-203.0.113.40", "192.0.2.1/32"]);
    assert_eq!((near.ttl, multi.method), (30, Method::Multivalue { max_return: 4 }));
    assert!(multi.endpoints.iter().all(|endpoint| endpoint.monitor.is_none()));
}

#[test]
fn what_is_not_set_is_off() {
    let config = accepted("[server]\nlisten = [\"192.0.2.1:53\"]\n");
    assert_eq!(*config.server.dns, Dns::default());
    let config = accepted("[cookies]\nenabled = true\n[rate_limit]\nresponses_per_second = 7\n");
    assert_eq!(config.server.dns.cookies, Some(Cookies::default()));
    let limit = config.server.dns.rate_limit.clone().unwrap();
    let RateLimit {
        nodata_per_second, nxdomains_per_second, referrals_per_second, errors_per_second, ..
    } = limit;
    assert_eq!([nodata_per_second, nxdomains_per_second, referrals_per_second, errors_per_second], [7; 4]);
    assert_eq!((limit.window, limit.slip, limit.ipv4_prefix, limit.ipv6_prefix), (15, 2, 24, 56));
    assert_eq!((limit.exempt, limit.dry_run, limit.table_size), (Vec::new(), false, 131_072));
}

#[test]
fn no_monitor_is_the_default_monitor() {
    let config = accepted(&with_zone(
        "[[profile]]\nname = \"a\"\nmethod = \"weighted\"\n[[profile.endpoint]]\nname = \"e\"\naddress = \
         [\"2001:db8::1\"]\n",
    ));
    let monitor = config.model.profiles()[0].endpoints[0].monitor.clone().unwrap();
    assert_eq!(monitor.target.to_string(), "HEAD http://[2001:db8::1]:80/ host \"[2001:db8::1]\"");
    assert_eq!(monitor.hold.as_secs(), 0);
    assert_eq!((monitor.interval.as_secs(), monitor.timeout.as_secs()), (30, 10));
    assert_eq!(monitor.window, WindowRule::Samples { size: 4, successful: 2 });
}

#[test]
fn a_short_interval_shortens_the_default_timeout() {
    for (interval, timeout) in [("30s", 10_000), ("11s", 10_000), ("5s", 4000), ("2s", 1000), ("1s", 500)] {
        let config = accepted(&with_zone(&format!(
            "[[profile]]\nname = \"a\"\nmethod = \"weighted\"\nmonitor = {{ interval = \"{interval}\" }}\n\
             [[profile.endpoint]]\nname = \"e\"\naddress = [\"192.0.2.1\"]\n"
        )));
        let monitor = config.model.profiles()[0].endpoints[0].monitor.clone().unwrap();
        assert_eq!(monitor.timeout.as_millis(), timeout, "{interval}");
    }
}

#[test]
fn priorities_left_out_are_the_order_in_the_file() {
    let endpoints: String = (0..3)
        .map(|i| format!("[[profile.endpoint]]\nname = \"e{i}\"\naddress = [\"192.0.2.{i}\"]\n"))
        .collect();
    let text = with_zone(&format!("[[profile]]\nname = \"a\"\nmethod = \"priority\"\n{endpoints}"));
    let config = accepted(&text);
    let priorities: Vec<u16> =
        config.model.profiles()[0].endpoints.iter().map(|endpoint| endpoint.priority).collect();
    assert_eq!(priorities, [1, 2, 3]);
}

#[test]
fn a_missing_file_is_a_message() {
    let errors = load("/nonexistent/xroute.toml").unwrap_err().to_string();
    assert!(errors.starts_with("/nonexistent/xroute.toml: cannot be read: "), "{errors}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// A word of a sound configuration, replaced: an answer, never a panic; and never an empty refusal.
    #[test]
    fn no_damage_panics(
        at in any::<prop::sample::Index>(),
        with in prop_oneof![
            Just(""), Just("\""), Just("]"), Just("= {"), Just("-1"), Just("99999999999999999999"),
            Just("[[profile]]"), Just("name"), Just("\"off\""), Just("[]"), Just("{}"), Just("0x7fffffff"),
            Just("1979-05-27"), Just("\u{fffd}"), Just("\n"), Just("\"::/0\""), Just("\"*\""), Just("nan"),
        ],
    ) {
        let words: Vec<&str> = WHOLE.split_inclusive([' ', '\n']).collect();
        let at = at.index(words.len());
        let damaged: String = words
            .iter()
            .enumerate()
            .map(|(i, word)| if i == at { format!("{with} ") } else { (*word).to_owned() })
            .collect();
        if let Err(errors) = parse(&damaged, "c.toml", &map(&WHOLE_FILES)) {
            prop_assert!(!errors.faults().is_empty());
        }
    }

    #[test]
    fn no_cut_panics(at in any::<prop::sample::Index>(), octets in proptest::collection::vec(any::<u8>(), 0..8)) {
        let mut text = WHOLE.as_bytes().to_vec();
        text.truncate(at.index(text.len()));
        text.extend(octets);
        let files = map(&WHOLE_FILES);
        let _ = read(Path::new("c.toml"), text, Loader::new(&files));
    }
}
