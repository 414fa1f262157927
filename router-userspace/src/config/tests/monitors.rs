//! What monitors come of which keys.

use router_common::model::{HttpProbe, Monitor, ProbeTarget, Trust};

use super::*;

fn monitors(text: &str, files: &[(&str, &str)]) -> Vec<Monitor> {
    let config = accepted_with(&with_zone(text), files);
    let endpoints = config.model.profiles().iter().flat_map(|profile| &profile.endpoints);
    endpoints.map(|endpoint| endpoint.monitor.clone().unwrap()).collect()
}

fn lines(text: &str) -> Vec<String> {
    monitors(text, &[]).iter().map(|monitor| monitor.target.to_string()).collect()
}

pub(super) fn authority() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.self_signed(&key).unwrap().pem()
}

#[test]
fn where_from_and_as_whom() {
    let found = lines(
        "[[profile]]\nname = \"a\"\nmethod = \"weighted\"\n\
         monitor = { user_agent = \"mine 1.0\", source = \"192.0.2.9\", source_interface = \"eth1\" }\n\
         [[profile.endpoint]]\nname = \"e\"\naddress = [\"192.0.2.1\"]\n\
         [[profile.endpoint]]\nname = \"f\"\naddress = [\"2001:db8::1\"]\nmonitor = { source = \"2001:db8::9\" }\n\
         [[profile.endpoint]]\nname = \"g\"\ntarget = \"g.example.net\"\nmonitor = { protocol = \"tcp\", port = 1 }\n",
    );
    assert_eq!(
        found,
        [
            "HEAD http://192.0.2.1:80/ host \"192.0.2.1\" user-agent \"mine 1.0\" from 192.0.2.9 via eth1",
            "HEAD http://[2001:db8::1]:80/ host \"[2001:db8::1]\" user-agent \"mine 1.0\" from 2001:db8::9 via \
             eth1",
            "TCP g.example.net.:1 from 192.0.2.9 via eth1",
        ]
    );
}

#[test]
fn an_authority_of_its_own() {
    let (one, other) = (authority(), authority());
    let both = one.clone() + &other;
    let found = monitors(
        "[[profile]]\nname = \"a\"\nmethod = \"weighted\"\nmonitor = { protocol = \"https\", ca = \"both.pem\" }\n\
         [[profile.endpoint]]\nname = \"e\"\naddress = [\"192.0.2.1\"]\n\
         [[profile.endpoint]]\nname = \"f\"\naddress = [\"192.0.2.1\"]\nmonitor = { ca = \"one.pem\" }\n\
         [[profile.endpoint]]\nname = \"g\"\naddress = [\"192.0.2.1\"]\nmonitor = { verify = false }\n\
         [[profile.endpoint]]\nname = \"h\"\naddress = [\"192.0.2.1\"]\nmonitor = { verify = true }\n\
         [[profile.endpoint]]\nname = \"i\"\naddress = [\"192.0.2.1\"]\nmonitor = { protocol = \"http\" }\n",
        &[("both.pem", &both), ("one.pem", &one)],
    );
    let trust: Vec<String> = found
        .iter()
        .map(|monitor| match &monitor.target {
            ProbeTarget::Http(HttpProbe { tls: Some(Trust::Authorities(authorities)), .. }) => {
                format!("{} {}", authorities.file, authorities.certificates.len())
            }
            ProbeTarget::Http(HttpProbe { tls, .. }) => format!("{tls:?}"),
            other => panic!("{other}"),
        })
        .collect();
    assert_eq!(trust, ["both.pem 2", "one.pem 1", "Some(Anybody)", "Some(System)", "None"]);
}

#[test]
fn programs_and_files() {
    let text = "[[profile]]\nname = \"a\"\nmethod = \"weighted\"\n\
         monitor = { protocol = \"exec\", command = [\"bin/check\", \"-H\", \"{address}\", \"{x}\"], interval = \
         \"5s\", hold = \"1m\", tolerated_failures = 1 }\n\
         [[profile.endpoint]]\nname = \"e\"\naddress = [\"2001:db8::1\", \"192.0.2.1\"]\n\
         [[profile.endpoint]]\nname = \"f\"\ntarget = \"f.example.net.\"\n\
         [[profile.endpoint]]\nname = \"g\"\naddress = [\"192.0.2.2\"]\nmonitor = { protocol = \"file\", file = \
         \"/run/states.json\" }\n\
         [[profile.endpoint]]\nname = \"h\"\naddress = [\"192.0.2.3\"]\nmonitor = { command = \"/bin/true\" }\n";
    assert_eq!(
        lines(text),
        [
            "exec \"bin/check\" \"-H\" \"2001:db8::1\" \"{x}\"",
            "exec \"bin/check\" \"-H\" \"f.example.net\" \"{x}\"",
            "file \"/run/states.json\" of \"a/g\"",
            "exec \"/bin/true\"",
        ]
    );
    let found = monitors(text, &[]);
    let e = &found[0];
    assert_eq!((e.interval.as_secs(), e.timeout.as_secs(), e.hold.as_secs()), (5, 4, 60));
    assert_eq!(e.window, WindowRule::Tolerated { failures: 1 });
    let g = &found[2];
    assert_eq!((g.interval.as_secs(), g.hold.as_secs()), (5, 60));
    assert_eq!(g.window, WindowRule::Samples { size: 1, successful: 1 }, "what a file says holds at once");
    let alone = "[[profile]]\nname = \"a\"\nmethod = \"weighted\"\nmonitor = { protocol = \"file\", file = \"s\" }\n\
         [[profile.endpoint]]\nname = \"e\"\naddress = [\"192.0.2.1\"]\n";
    assert_eq!(monitors(alone, &[])[0].interval.as_secs(), 1);
}
