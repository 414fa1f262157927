//! Configurations that load, and what is said of them.

use super::*;

fn warned(text: &str) -> Vec<String> {
    warned_with(text, &[])
}

fn warned_with(text: &str, files: &[(&str, &str)]) -> Vec<String> {
    accepted_with(text, files).warnings.iter().map(Fault::to_string).collect()
}

/// A profile "a" bound to a name, with these endpoints: the method's line is line 8.
fn bound(method: &str, rest: &str) -> String {
    with_zone(&format!("[[profile]]\nname = \"a\"\nnames = [\"a.x.example\"]\nmethod = \"{method}\"\n{rest}"))
}

fn endpoint(name: &str, more: &str) -> String {
    format!("[[profile.endpoint]]\nname = \"{name}\"\naddress = [\"192.0.2.1\"]\n{more}\n")
}

#[test]
fn nothing_is_said_of_what_is_right() {
    let config = bound("weighted", &(endpoint("e", "") + &endpoint("f", "")));
    assert_eq!(warned(&config), Vec::<String>::new());
}

#[test]
fn server() {
    let found = warned("[server]\ninterfaces = [\"eth0\"]\nlisten = [\"192.0.2.1:5353\", \"0.0.0.0:53\"]\n");
    assert_eq!(
        found,
        [
            "c.toml:3:10: listen: 192.0.2.1:5353: the fast path answers on port 53 only; this address is always slow",
            "c.toml:3:10: listen: 0.0.0.0:53: the fast path answers for the addresses listed here, which this is \
             none of; what arrives elsewhere is always slow",
        ]
    );
    assert!(warned("[server]\nlisten = [\"0.0.0.0:5353\"]\n").is_empty());
}

#[test]
fn cookies_that_are_off_and_limits_that_do_not_hold() {
    assert_eq!(
        warned("[cookies]\nrequire = true\n"),
        ["c.toml:1:1: [cookies] without enabled = true: cookies are off"]
    );
    assert!(warned("[cookies]\nenabled = false\n").is_empty());
    let limited = |interfaces: &str| {
        warned(&format!(
            "[server]\nlisten = [\"192.0.2.1:53\"]\ninterfaces = [{interfaces}]\n[rate_limit]\nresponses_per_second = 5\n"
        ))
    };
    assert_eq!(
        limited("\"eth0\""),
        ["c.toml:4:1: [rate_limit]: the fast path has no limit; only what the userspace server answers is \
             limited"]
    );
    assert!(limited("").is_empty());
}

#[test]
fn geographic_profiles_that_end_in_nodata() {
    let config = bound(
        "geographic",
        &(endpoint("e", "geo = [\"IE\"]") + &endpoint("f", "geo = [\"GEO-EU\"]\nstatus = \"stopped\"")),
    );
    assert_eq!(
        warned(&config),
        [
            "c.toml:8:10: a: no endpoint has the code WORLD: other clients get NODATA; resolvers keep a NODATA \
             answer for clients of every place",
            "c.toml:8:10: a: clients of the stopped endpoint \"f\" get NODATA; resolvers keep a NODATA answer for \
             clients of every place",
            "c.toml:8:10: a: there is no [geo]: no client has a place, and only WORLD matches",
        ]
    );
    let whole = bound("geographic", &endpoint("e", "geo = [\"WORLD\"]"));
    assert_eq!(warned(&whole), Vec::<String>::new());
}

#[test]
fn endpoints_of_different_families_that_clients_are_pinned_to() {
    let config = bound(
        "subnet",
        "endpoint = [{ name = \"e\", address = [\"192.0.2.1\", \"2001:db8::1\"] }, { name = \"f\", address = \
         [\"192.0.2.2\"], subnets = [\"198.51.100.0/24\"] }]\n",
    );
    assert_eq!(
        warned(&config),
        [
            "c.toml:8:10: a: endpoint \"f\" has no AAAA record and others have: its clients get NODATA for AAAA; \
          resolvers keep a NODATA answer for clients of every place"
        ]
    );
}

#[test]
fn subnet_profiles_that_end_in_nodata() {
    let config = bound(
        "subnet",
        &("all_down = \"nodata\"\n".to_owned() + &endpoint("e", "subnets = [\"198.51.100.0/24\"]")),
    );
    assert_eq!(
        warned(&config),
        [
            "c.toml:8:10: a: no endpoint is without subnets: other clients get NODATA; resolvers keep a NODATA \
             answer for clients of every place",
            "c.toml:8:10: a: all_down = \"nodata\": clients of an endpoint that is down get NODATA; resolvers keep \
             a NODATA answer for clients of every place",
        ]
    );
}

#[test]
fn policies_and_monitors_that_do_nothing() {
    let config = bound(
        "priority",
        &("monitor = \"off\"\nall_down = { fallback = \"f\" }\n".to_owned()
            + &endpoint("e", "")
            + &endpoint("g", "")
            + &endpoint("f", "status = \"disabled\"")),
    );
    assert_eq!(
        warned(&config),
        [
            "c.toml:9:11: a: without a monitor, endpoints that are down stay in the answers",
            "c.toml:10:12: a: an endpoint that is always served keeps all_down from being used",
            "c.toml:10:12: a: the fallback \"f\" is disabled: it ends in NODATA",
        ]
    );
    // One enabled endpoint may go without a monitor.
    let one = bound(
        "priority",
        &("monitor = \"off\"\n".to_owned() + &endpoint("e", "") + &endpoint("f", "status = \"stopped\"")),
    );
    assert_eq!(warned(&one), Vec::<String>::new());
    let geographic =
        bound("geographic", &("all_down = \"nodata\"\n".to_owned() + &endpoint("e", "geo = [\"WORLD\"]")));
    assert_eq!(
        warned(&geographic),
        [
            "c.toml:9:12: a: the geographic method returns its match whatever its health: all_down is never used"
        ]
    );
}

#[test]
fn profiles_that_nothing_reaches_or_that_answer_nothing() {
    let config = with_zone(&format!(
        "[[profile]]\nname = \"a\"\nmethod = \"weighted\"\necs = \"off\"\n{}[[profile]]\nname = \"b\"\nnames = \
         [\"b.x.example\"]\nstatus = \"disabled\"\nmethod = \"weighted\"\n",
        endpoint("e", "")
    ));
    assert_eq!(
        warned(&config),
        [
            "c.toml:6:8: a: neither bound to a name nor nested: nothing reaches this profile",
            "c.toml:8:7: a: ecs counts at the profile that a name is bound to, which this is not",
            "c.toml:14:8: b: no endpoint is enabled: every answer is NODATA",
        ]
    );
}

#[test]
fn nested_profiles() {
    let config = bound(
        "weighted",
        "monitor = { port = 81 }\nendpoint = [{ name = \"e\", profile = \"b\" }, { name = \"f\", profile = \"c\", \
         min_child_endpoints = 2 }]\n[[profile]]\nname = \"b\"\nmethod = \"weighted\"\nstatus = \
         \"disabled\"\nendpoint = [{ name = \"e\", address = [\"192.0.2.1\"] }]\n[[profile]]\nname = \"c\"\nmethod = \
         \"weighted\"\nendpoint = [{ name = \"e\", address = [\"192.0.2.1\"] }, { name = \"f\", address = \
         [\"192.0.2.2\"], status = \"stopped\" }]\n",
    );
    assert_eq!(
        warned(&config),
        [
            "c.toml:9:11: a: nested profiles are never probed themselves: this monitor is not used",
            "c.toml:10:37: a/e: profile \"b\" is disabled, so that this endpoint is stopped",
            "c.toml:10:95: a/f: min_child_endpoints is 2, but only 1 of the endpoints of profile \"c\" can count: it \
             is always Degraded",
        ]
    );
}

#[test]
fn regions() {
    let config = bound(
        "performance",
        &(endpoint("e", "region = \"eu\"")
            + &endpoint("f", "region = \"us\"")
            + &endpoint("g", "region = \"ap\"")
            + "[latency]\ntable = \"l.csv\"\n[latency.regions.ap]\nlatitude = 1\nlongitude = \
               2\n[latency.regions.af]\nlatitude = 1\nlongitude = 2\n"),
    );
    let table = "10.0.0.0/8,eu,1\n10.0.0.0/8,uk,1\n10.0.0.0/8,sa,1\n";
    assert_eq!(
        warned_with(&config, &[("l.csv", table)]),
        [
            "c.toml:16:10: a/f: region \"us\" is neither in the latency table nor in [latency.regions]: it comes \
             last for every client",
            "c.toml:22:9: the latency table has regions without an endpoint: sa and 1 more",
            "c.toml:26:18: no endpoint is in the region \"af\"",
        ]
    );
    let probed =
        bound("performance", &("source = \"probe\"\n".to_owned() + &endpoint("e", "region = \"eu\"")));
    assert_eq!(
        warned(&probed),
        ["c.toml:13:10: a/e: with source = \"probe\" the measured latency decides; region is not used"]
    );
}

#[test]
fn name_servers_without_an_address() {
    let zone = "[[zone]]\nname = \"y.example\"\nsoa = { mname = \"ns\", rname = \"h\", serial = 1, refresh = 2, retry = \
                3, expire = 4, minimum = 5 }\nns = [\"ns.elsewhere.example\", \"ns1.y.example\"]\n";
    assert_eq!(
        warned(zone),
        [
            "c.toml:4:31: ns1.y.example. is a name server inside the zone y.example., which has no address for it"
        ]
    );
}

#[test]
fn sources_that_nobody_asks() {
    let config = "[geo]\noverrides = \"g.csv\"\n";
    assert_eq!(
        warned_with(config, &[("g.csv", "10.0.0.0/8,IE\n")]),
        ["c.toml:1:1: no profile looks at geography: [geo] is not used"]
    );
    assert_eq!(warned("include = [\"p/*.toml\"]\n"), ["c.toml:1:1: include: \"p/*.toml\" matches no file"]);
}

#[test]
fn keys_and_secondaries() {
    let zone = with_zone("transfer = [\"0.0.0.0/0\", \"::/0\", { address = \"0.0.0.0/0\", key = \"k\" }]\n");
    let keys = "[[key]]\nname = \"k\"\nalgorithm = \"hmac-sha1\"\nsecret = \"c2hvcnQ=\"\n";
    assert_eq!(
        warned(&(zone + keys)),
        [
            "c.toml:5:13: transfer: 0.0.0.0/0 without a key lets everybody fetch the zone",
            "c.toml:5:26: transfer: ::/0 without a key lets everybody fetch the zone",
            "c.toml:8:13: algorithm: \"hmac-sha1\" is for old peers only (RFC 8945 §6)",
            "c.toml:9:10: secret: 5 octets can be guessed; take 16 or more",
        ]
    );
}

#[test]
fn secrets_that_every_user_can_read() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let secret = "c2VjcmV0IHNlY3JldCBzZWNyZXQ=";
    let write = |name: &str, text: &str, mode: u32| {
        std::fs::write(at(name), text).unwrap();
        std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    let inline = format!("[[key]]\nname = \"a\"\nsecret = \"{secret}\"\n");
    let named = "[[key]]\nname = \"b\"\nsecret_file = \"b.secret\"\n";
    let warnings = || -> Vec<String> {
        let config = load(at("c.toml")).unwrap_or_else(|errors| panic!("{errors}"));
        config.warnings.iter().map(Fault::to_string).collect()
    };
    write("b.secret", secret, 0o640);
    write("c.toml", &(inline.clone() + named), 0o640);
    assert_eq!(warnings(), Vec::<String>::new());
    write("b.secret", secret, 0o644);
    write("c.toml", &(inline + named), 0o604);
    let path = at("c.toml");
    let path = path.display();
    assert_eq!(
        warnings(),
        [
            format!("{path}:3:10: secret: {path} is open to every user (mode 0604); chmod 640 it"),
            format!(
                "{path}:6:15: secret_file: {} is open to every user (mode 0644); chmod 640 it",
                at("b.secret").display()
            ),
        ]
    );
}

#[test]
fn a_secret_is_not_shown_by_a_mistake_of_syntax() {
    for text in
        ["[[key]]\nname = \"a\"\nsecret = c2VjcmV0\n", "key = [{ name = \"a\", secret = \"c2VjcmV0 }]\n"]
    {
        let said = refused(text).join("\n");
        assert!(said.starts_with("c.toml:") && !said.contains("c2VjcmV0"), "{said}");
    }
}
