//! Overrides: what an operator changes by hand is shown by the fast path when the command ends, and lasts.

use std::os::unix::fs::PermissionsExt;

use super::*;

const FIRST: [u8; 4] = [192, 0, 2, 1];
const SECOND: [u8; 4] = [192, 0, 2, 2];

/// `www`: two endpoints by priority.
fn www() -> String {
    fixed("www", 10, "192.0.2.1").replace("\"only\"", "\"eu1\"")
        + "  [[profile.endpoint]]\n  name = \"us1\"\n  address = [\"192.0.2.2\"]\n"
}

/// What a command prints; it must succeed.
pub(super) fn said(agent: &Agent, pair: &Pair, arguments: &[&str]) -> String {
    let output = xroute(agent, &pair.server, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// What a command says that must fail.
pub(super) fn failed(agent: &Agent, pair: &Pair, arguments: &[&str]) -> String {
    let output = xroute(agent, &pair.server, arguments);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).expect("text")
}

fn now(pair: &Pair) -> Option<[u8; 4]> {
    dig(pair, "www.gslb.test").map(|(address, _)| address)
}

#[test]
fn netns_overrides_are_shown_at_once_and_last() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().expect("a folder");
    let text = configuration(folder.path(), "", &www());
    write(folder.path(), &text);
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    assert_eq!(now(&pair), Some(FIRST));

    let disable = ["endpoint", "disable", "w*/eu?", "--reason", "kernel update"];
    let text_said = said(&agent, &pair, &disable);
    assert_eq!(now(&pair), Some(SECOND));
    assert!(
        text_said.starts_with("www/eu1: status enabled -> status disabled\ngeneration 2 "),
        "{text_said}"
    );
    let list = said(&agent, &pair, &["override", "list"]);
    assert!(list.starts_with("www/eu1: status disabled, by root "), "{list}");
    assert!(list.trim_end().ends_with("(kernel update)"), "{list}");
    assert!(said(&agent, &pair, &["status"]).contains("overrides:\n  www/eu1: status disabled"), "in status");

    // Over a reload, over a restart.
    write(folder.path(), &text.replace("ttl = 10", "ttl = 11"));
    reload(&agent, &pair.server);
    assert_eq!(dig(&pair, "www.gslb.test"), Some((SECOND, 11)));
    agent.terminate();
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    assert_eq!(now(&pair), Some(SECOND));

    // What cannot be done changes nothing.
    let why = failed(&agent, &pair, &["endpoint", "enable", "www/eu1", "www/asia*"]);
    assert!(why.contains("\"www/asia*\" names no endpoint"), "{why}");
    let why = failed(&agent, &pair, &["endpoint", "weight", "5", "www/eu1"]);
    assert!(why.contains("www/eu1: weight is not used by the method \"priority\""), "{why}");
    let why = failed(&agent, &pair, &["override", "clear", "www/us1"]);
    assert!(why.contains("there is no override on it"), "{why}");
    assert_eq!(now(&pair), Some(SECOND));

    // A whole profile, for a second; other settings stay.
    said(&agent, &pair, &["profile", "disable", "www", "--for", "1s"]);
    assert_eq!(now(&pair), None);
    eventually("the end of the override", || now(&pair) == Some(SECOND));

    said(&agent, &pair, &["override", "clear", "www"]);
    assert_eq!(now(&pair), Some(FIRST));
    assert!(said(&agent, &pair, &["override", "list"]).starts_with("no overrides"));

    let mut lines = Vec::new();
    eventually("the audit file", || {
        let audit = std::fs::read_to_string(folder.path().join("state/audit.jsonl")).unwrap_or_default();
        lines = audit.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")).collect();
        lines.len() == 5
    });
    let what: Vec<&str> = lines.iter().filter_map(|line| line["what"].as_str()).collect();
    assert_eq!(what, ["override", "reload", "override", "end", "clear"]);
    assert_eq!(lines[0]["who"]["user"], "root");
    assert_eq!(lines[0]["who"]["uid"], 0);
    assert_eq!(lines[0]["asked"], "status disabled w*/eu?");
    assert_eq!(lines[0]["reason"], "kernel update");
    let changed = serde_json::json!(
        [{"target": "www/eu1", "before": {"status": "enabled"}, "after": {"status": "disabled"}}]
    );
    assert_eq!(lines[0]["changed"], changed);
    assert_eq!(lines[3]["who"]["user"], "xroute");
    assert!(lines[2]["until"].is_string());

    // A file that cannot be read keeps the agent from starting: nothing comes back by accident.
    agent.terminate();
    std::fs::write(folder.path().join("state/overrides.json"), "{").expect("writable");
    let output = pair
        .server
        .command(binary().to_str().expect("text"))
        .args(["run", "--config"])
        .arg(folder.path().join("xroute.toml"))
        .output()
        .expect("xroute starts");
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(why.contains("overrides.json is not what was written there"), "{why}");
}

/// Groups that every Debian has.
const LOOKS: &str = "daemon";
const CHANGES: &str = "adm";

#[test]
fn netns_who_may_look_and_who_may_change() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().expect("a folder");
    let groups = format!("control_group = \"{LOOKS}\"\nadmin_group = \"{CHANGES}\"");
    write(folder.path(), &configuration(folder.path(), &groups, &www()));
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    // Others reach folder and program.
    let open = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755));
    open(folder.path()).expect("ours");
    let program = folder.path().join("xroute");
    std::fs::copy(binary(), &program).expect("copied");
    open(&program).expect("ours");
    let as_user = |group: &str, also: Option<&str>, arguments: &[&str]| {
        let mut command = pair.server.command("setpriv");
        command.args(["--reuid", "nobody", "--regid", group]);
        match also {
            Some(groups) => command.args(["--groups", groups]),
            None => command.arg("--clear-groups"),
        };
        command.arg(&program).args(arguments).arg("--socket").arg(folder.path().join("control.sock"));
        let output = command.output().expect("setpriv is there");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let disable = ["endpoint", "disable", "www/eu1"];

    let (code, why) = as_user("nogroup", None, &["status"]);
    assert_eq!(code, Some(4));
    assert!(why.contains("cannot reach the agent") && why.contains("ermission denied"), "{why}");

    assert_eq!(as_user(LOOKS, None, &["status"]).0, Some(0));
    for change in [&disable[..], &["reload"], &["override", "clear", "--all"]] {
        let (code, why) = as_user(LOOKS, None, change);
        assert_eq!(code, Some(4), "{change:?}");
        assert!(why.contains("nobody may look, and change nothing"), "{why}");
        assert!(why.contains("members of the group adm"), "{why}");
    }
    assert_eq!(now(&pair), Some(FIRST));

    let (code, why) = as_user(CHANGES, Some(LOOKS), &disable);
    assert_eq!(code, Some(0), "{why}");
    assert_eq!(now(&pair), Some(SECOND));
    assert!(said(&agent, &pair, &["override", "list"]).contains("by nobody"));
    agent.terminate();
}
