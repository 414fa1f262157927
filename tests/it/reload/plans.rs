//! Plans, limits, other configurations and the way back.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn said(agent: &Agent, pair: &Pair, arguments: &[&str]) -> String {
    let output = xroute(agent, &pair.server, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn failed(agent: &Agent, pair: &Pair, arguments: &[&str]) -> String {
    let output = xroute(agent, &pair.server, arguments);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).expect("text")
}

fn one(pair: &Pair) -> u8 {
    dig(pair, "one.gslb.test").map_or(0, |(address, _)| address[3])
}

/// `one` answers 192.0.2.`last`, `two` 192.0.2.2; half of the answers and no more may move.
fn two_names(folder: &Path, last: u8, limit: &str) -> String {
    let profiles = fixed("one", 10, &format!("192.0.2.{last}")) + &fixed("two", 20, "192.0.2.2");
    configuration(folder, "", &(profiles + &format!("[limits]\nmoved_max = {limit}\n")))
}

/// The kept generations: number, what brought it, whether it runs.
fn kept(agent: &Agent, pair: &Pair) -> Vec<(u64, String, bool)> {
    let text = said(agent, pair, &["generations", "--format", "json"]);
    let report: Value = serde_json::from_str(&text).expect("JSON");
    let entry = |entry: &Value| {
        (
            entry["number"].as_u64().expect("a number"),
            entry["what"].as_str().expect("text").to_owned(),
            entry["runs"].as_bool().expect("a truth"),
        )
    };
    report["generations"].as_array().expect("a list").iter().map(entry).collect()
}

#[test]
fn netns_limits_refuse_and_a_return_is_never_refused() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), &two_names(folder.path(), 1, "0.4"));
    let mut agent = Agent::start(&pair.server, folder.path(), &[]);
    assert_eq!(one(&pair), 1);
    let nothing = xroute(&agent, &pair.server, &["plan", "--exit-code"]);
    assert_eq!(nothing.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&nothing.stdout).ends_with("no change\n"));

    // Half of the answers move, and what runs allows less, whatever the file allows.
    write(folder.path(), &two_names(folder.path(), 9, "0.3"));
    let plan = xroute(&agent, &pair.server, &["plan", "--exit-code"]);
    assert_eq!(plan.status.code(), Some(6));
    let own = folder.path().join("xroute.toml");
    let text = String::from_utf8(plan.stdout).expect("text");
    assert_eq!(
        text,
        format!(
            "plan: {} in place of what runs (generation 1)
  ~ limits.moved_max 0.4 -> 0.3
endpoints +0 -0 ~1
  ~ one/only  address 192.0.2.1 -> 192.0.2.9
traffic (by address space, every name alike): 50.0 % of A answers move
  weighed by the queries counted for each profile: 100 % of A answers move
  one (one.gslb.test.): 100 % of A answers move, for 100 % of clients
      e.g. 0.0.0.0/0: 192.0.2.1 -> 192.0.2.9
      e.g. 8000::/1: 192.0.2.1 -> 192.0.2.9
limit exceeded: moved_max = 0.4: 50.0 % of all answers would be others
",
            own.display()
        )
    );
    let why = failed(&agent, &pair, &["reload"]);
    assert!(
        why.contains(
            "the limits of what runs forbid it:\n  moved_max = 0.4: 50.0 % of all answers would be others\n"
        ),
        "{why}"
    );
    assert_eq!(failed(&agent, &pair, &["apply"]), why);
    agent.hang_up();
    agent.wait_for("the limits of what runs forbid it:");
    eventually("the refused signal", || {
        agent.status(&pair.server)["reloads"]["configuration_failed"].as_u64() == Some(3)
    });
    let status = said(&agent, &pair, &["status"]);
    assert!(
        status.contains("the last reload was refused:\n  the limits of what runs forbid it:"),
        "{status}"
    );
    assert_eq!(one(&pair), 1);

    let text = said(&agent, &pair, &["apply", "--force", "--reason", "moving house"]);
    assert!(text.contains("\ngeneration 2 serves: 1 zones, 2 profiles, "), "{text}");
    assert!(text.ends_with("changed: endpoints +0 -0 ~1, 1 settings, 50.0 % of answers move\n"), "{text}");
    assert_eq!(one(&pair), 9);
    let list = said(&agent, &pair, &["generations"]);
    let lines: Vec<&str> = list.lines().collect();
    assert!(lines[0].starts_with("*      2  ") && lines[0].contains("reload by root: 2 profiles"), "{list}");
    assert!(
        lines[0].ends_with("; endpoints +0 -0 ~1, 1 settings, 50.0 % of answers move (moving house)"),
        "{list}"
    );
    assert!(lines[1].starts_with("       1  ") && lines[1].contains("start by xroute"), "{list}");
    let plan = said(&agent, &pair, &["plan", "--generation", "1"]);
    assert!(plan.starts_with("plan: generation 1 in place of what runs (generation 2)\n"), "{plan}");

    // What runs allows 0.3, and half moves back.
    said(&agent, &pair, &["endpoint", "disable", "two/only"]);
    let text = said(&agent, &pair, &["rollback", "--reason", "it rains"]);
    assert!(text.contains("\ngeneration 4 serves: "), "{text}");
    assert!(text.contains("\n1 overrides stay laid over it"), "{text}");
    assert_eq!((one(&pair), dig(&pair, "two.gslb.test")), (1, None));
    let brought = |number, what: &str, runs| (number, what.to_owned(), runs);
    let expected = [brought(4, "rollback", true), brought(2, "reload", false), brought(1, "start", false)];
    assert_eq!(kept(&agent, &pair), expected);
    let status = said(&agent, &pair, &["status"]);
    let held = format!("generation 1, to which was returned, runs in place of {}", own.display());
    assert!(status.contains(&held), "{status}");

    // A restart, be it a crash, does not bring back what an operator left.
    agent.kill();
    let mut agent = Agent::start(&pair.server, folder.path(), &[]);
    agent.wait_for(&held);
    assert_eq!((one(&pair), dig(&pair, "two.gslb.test")), (1, None));
    let now = kept(&agent, &pair);
    assert_eq!((now.len(), now[0].1.as_str(), now[0].2), (3, "rollback", true), "{now:?}");
    assert_eq!(now[0].0, agent.status(&pair.server)["generation"].as_u64().expect("a number"));
    // A reload is of the file again.
    said(&agent, &pair, &["reload", "--force"]);
    assert_eq!(one(&pair), 9);
    assert_eq!(agent.status(&pair.server)["held"], Value::Null);

    // Nor does what an operator wrote into the file since wait for anything.
    said(&agent, &pair, &["rollback", "1"]);
    assert_eq!(one(&pair), 1);
    agent.terminate();
    write(folder.path(), &two_names(folder.path(), 7, "1"));
    let mut agent = Agent::start(&pair.server, folder.path(), &[]);
    agent.wait_for("was changed since generation 1, to which was returned, ran: starting from the file");
    assert_eq!(one(&pair), 7);

    let audit = std::fs::read_to_string(folder.path().join("state/audit.jsonl")).expect("written");
    let lines: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let what: Vec<&str> = lines.iter().filter_map(|line| line["what"].as_str()).collect();
    assert_eq!(what, ["reload", "override", "rollback", "reload", "rollback"]);
    assert_eq!(lines[0]["asked"], format!("{} --force", own.display()));
    assert_eq!(lines[0]["plan"], "endpoints +0 -0 ~1, 1 settings, 50.0 % of answers move");
    assert_eq!((&lines[2]["reason"], &lines[2]["generation"]), (&Value::from("it rains"), &Value::from(4)));
    agent.terminate();
}

#[test]
fn netns_another_file_is_applied_and_the_last_ten_are_kept() {
    if !need_netns() {
        return;
    }
    let pair = Pair::new();
    let folder = tempfile::tempdir().expect("a folder");
    write(
        folder.path(),
        &two_names(folder.path(), 1, "1").replace("[server]", "[server]\nadmin_group = \"adm\""),
    );
    let agent = Agent::start(&pair.server, folder.path(), &[]);
    let other = folder.path().join("other.toml");
    let other_text = std::fs::read_to_string(folder.path().join("xroute.toml")).expect("there");
    std::fs::write(&other, other_text.replace("192.0.2.1\"", "192.0.2.5\"")).expect("writable");
    let other = other.to_str().expect("text");

    // Without an agent, file against file.
    let own = folder.path().join("xroute.toml");
    let output = pair
        .server
        .command(binary().to_str().expect("text"))
        .args(["plan", other, "--against", own.to_str().expect("text"), "--format", "json"])
        .output()
        .expect("xroute starts");
    let plan: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(plan["traffic"]["moved"]["a"]["ipv4"], 0.5);
    assert_eq!(plan["changes"][0]["settings"][0]["after"], "192.0.2.5");
    assert!(said(&agent, &pair, &["plan", other]).contains("~ one/only  address 192.0.2.1 -> 192.0.2.5"));

    // Who may change something may not have the agent read any file.
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).expect("ours");
    let program = folder.path().join("xroute");
    std::fs::copy(binary(), &program).expect("copied");
    let as_admin = |arguments: &[&str]| {
        let mut command = pair.server.command("setpriv");
        command.args(["--reuid", "nobody", "--regid", "adm", "--clear-groups"]).arg(&program);
        command.args(arguments).arg("--socket").arg(folder.path().join("control.sock"));
        let output = command.output().expect("setpriv is there");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for arguments in [["plan", other], ["apply", other], ["plan", "/etc/shadow"]] {
        let (code, why) = as_admin(&arguments);
        assert_eq!(code, Some(4));
        assert_eq!(
            why,
            "xroute: another file than the agent's own is for root: the agent reads it with its own rights\n"
        );
    }
    assert_eq!(as_admin(&["plan", own.to_str().expect("text")]).0, Some(0), "the agent's own file");
    assert_eq!(one(&pair), 1);

    let text = said(&agent, &pair, &["apply", other]);
    assert!(text.contains("generation 2 serves"), "{text}");
    assert_eq!(one(&pair), 5);
    let held = agent.status(&pair.server)["held"].as_str().expect("text").to_owned();
    assert!(held.starts_with(&format!("{other} runs in place of {}", own.display())), "{held}");

    for ttl in 11..=21 {
        std::fs::write(&own, other_text.replace("ttl = 10", &format!("ttl = {ttl}"))).expect("writable");
        reload(&agent, &pair.server);
    }
    let now = kept(&agent, &pair);
    assert_eq!(now.iter().map(|entry| entry.0).collect::<Vec<_>>(), (4..=13).rev().collect::<Vec<_>>());
    assert_eq!(dig(&pair, "one.gslb.test"), Some(([192, 0, 2, 1], 21)));

    // The file that an operator overwrote is of no matter: what is kept is whole.
    std::fs::write(&own, "nonsense").expect("writable");
    said(&agent, &pair, &["rollback", "4"]);
    assert_eq!(dig(&pair, "one.gslb.test"), Some(([192, 0, 2, 1], 12)));
    let generations = folder.path().join("state/generations");
    std::fs::write(generations.join("6/file-0"), "something").expect("writable");
    std::fs::write(generations.join("7/generation.json"), "{").expect("writable");
    std::fs::create_dir(generations.join(".new-15")).expect("made");
    assert!(said(&agent, &pair, &["generations"]).contains("\n       7  damaged: generation.json: "));
    let why = failed(&agent, &pair, &["rollback", "6"]);
    assert!(why.contains("generation 6 is damaged: file-0, of "), "{why}");
    let why = failed(&agent, &pair, &["rollback", "3"]);
    assert!(why.contains("generation 3 is not kept; there are 14, 13, "), "{why}");
    assert_eq!(dig(&pair, "one.gslb.test"), Some(([192, 0, 2, 1], 12)));
    said(&agent, &pair, &["rollback"]);
    assert_eq!(dig(&pair, "one.gslb.test"), Some(([192, 0, 2, 1], 21)));
    assert!(!generations.join(".new-15").exists());
    agent.terminate();
}
