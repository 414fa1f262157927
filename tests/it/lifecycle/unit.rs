//! The systemd unit, as far as it can be checked where systemd does not run.

use std::process::Command;

use router_tests::agent::{adopt_orphans, wait_for_orphan};

use super::*;

/// What `systemd-analyze security` may give the unit at most, of 100; 26 now.
const EXPOSURE: &str = "--threshold=30";

fn unit() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/systemd/xroute.service")
}

fn text() -> String {
    fs::read_to_string(unit()).expect("the unit is there")
}

/// Values of a key, in order.
fn values<'t>(text: &'t str, key: &str) -> Vec<&'t str> {
    text.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

fn analyze(arguments: &[&str]) -> Option<(bool, String)> {
    let output = match Command::new("systemd-analyze").args(arguments).output() {
        Ok(output) => output,
        Err(error) => {
            println!("SKIPPED systemd-analyze: {error}");
            return None;
        }
    };
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

#[test]
fn the_unit_is_in_order_and_sandboxed() {
    let folder = tempfile::tempdir().expect("a folder");
    // The program is not installed on this machine.
    let copy = folder.path().join("xroute.service");
    fs::write(&copy, text().replace("/usr/bin/xroute", "/bin/true")).expect("writable");
    let path = copy.to_str().expect("text");
    let Some((fine, said)) = analyze(&["verify", "--man=no", path]) else { return };
    assert!(fine && !said.contains("xroute.service"), "{said}");
    let Some((fine, said)) = analyze(&["security", "--offline=true", "--no-pager", EXPOSURE, path]) else {
        return;
    };
    assert!(fine, "{said}");
}

/// What the agent cannot do without, option by option.
#[test]
fn the_unit_leaves_the_agent_what_it_needs() {
    let text = text();
    let one = |key: &str| values(&text, key).concat();
    for key in ["CapabilityBoundingSet", "AmbientCapabilities"] {
        let mut set: Vec<&str> = values(&text, key).into_iter().flat_map(str::split_whitespace).collect();
        set.sort_unstable();
        assert_eq!(set, ["CAP_BPF", "CAP_NET_ADMIN", "CAP_NET_BIND_SERVICE", "CAP_PERFMON"], "{key}");
    }
    // bpffs must stay writable and the one that is there: pins outlive the unit's own mounts only so.
    assert_eq!(one("ProtectKernelTunables"), "", "it makes /sys/fs/bpf read-only");
    assert_eq!(one("ReadWritePaths"), "/sys/fs/bpf");
    assert_eq!(one("RequiresMountsFor"), "/sys/fs/bpf");
    // Its network namespace is the machine's.
    assert_eq!(one("PrivateNetwork"), "");
    assert_eq!(one("Type"), "notify");
    assert_eq!(one("NotifyAccess"), "main");
    assert!(one("ExecStart").contains(" run --keep-attached"), "{}", one("ExecStart"));
    assert!(one("ExecReload").ends_with(" reload"), "{}", one("ExecReload"));
    assert!(one("FileDescriptorStoreMax").parse::<u32>().expect("a number") >= 32 * 17 + 2);
    let families = one("RestrictAddressFamilies");
    for family in ["AF_INET", "AF_INET6", "AF_NETLINK", "AF_UNIX"] {
        assert!(families.split(' ').any(|one| one == family), "{family}");
    }
}

/// Every system call that a life makes is in the unit's filter: start, queries, reload, change, upgrade, end.
#[test]
fn netns_the_filter_of_system_calls_has_what_the_agent_calls() {
    let Some((pair, folder)) = set_up("\"xr0\"") else { return };
    let folder = folder.path();
    if Command::new("strace").arg("-V").output().is_err() {
        println!("SKIPPED strace is not installed");
        return;
    }
    let Some(allowed) = allowed() else { return };
    // As systemd does; the agent may not mount it by itself.
    pair.server.sh("mount -t bpf bpf /sys/fs/bpf");
    let trace = folder.join("trace");
    adopt_orphans();
    let mut command = pair.server.command("strace");
    command.args(["-f", "-qq", "-o"]).arg(&trace).arg(program(folder)).arg("run");
    command.arg("--config").arg(folder.join("xroute.toml"));
    let mut agent = Agent::spawn(command, folder);
    agent.wait_for("serving DNS");
    let load =
        Load::new(&pair, &[load::Client::Text, load::Client::Connection, load::Client::Connections], &[WWW]);
    load.more(20);
    for command in [&["reload"][..], &["endpoint", "weight", "3", "www"], &["status"], &["upgrade"]] {
        // A refusal is a way through the program as well.
        let _ = agent.command(&pair.server, command).output().expect("xroute starts");
    }
    load.more(20);
    let _ = load.end();
    let pid = agent.status(&pair.server)["pid"].as_i64().expect("a process");
    // SAFETY: signals the agent that this test started and that still serves.
    unsafe { libc::kill(i32::try_from(pid).expect("a process"), libc::SIGTERM) };
    // The tracer ends with the last of those it traces.
    assert!(wait_for_orphan(i32::try_from(pid).expect("a process")), "{:?}", agent.log());
    agent.end_of_child();
    let trace = fs::read_to_string(&trace).expect("a trace");
    let mut missing: Vec<&str> =
        trace.lines().filter_map(call).filter(|call| !allowed.contains(*call)).collect();
    missing.sort_unstable();
    missing.dedup();
    assert_eq!(missing, Vec::<&str>::new());
    assert!(trace.lines().filter_map(call).any(|call| call == "bpf"));
}

/// The call of a line such as `1234  bpf(BPF_MAP_CREATE, …) = 3`.
fn call(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(char::is_whitespace)?;
    let rest = rest.trim_start();
    let name = match rest.strip_prefix("<... ") {
        Some(resumed) => resumed.split(' ').next()?,
        None => rest.split_once('(')?.0,
    };
    name.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'_').then_some(name)
}

/// The calls of the unit's `SystemCallFilter`, groups resolved.
fn allowed() -> Option<std::collections::BTreeSet<String>> {
    let text = text();
    let mut allowed = std::collections::BTreeSet::new();
    for value in values(&text, "SystemCallFilter") {
        let (without, value) = match value.strip_prefix('~') {
            Some(rest) => (true, rest),
            None => (false, value),
        };
        for name in value.split(' ') {
            for call in resolve(name)? {
                if without {
                    allowed.remove(&call);
                } else {
                    allowed.insert(call);
                }
            }
        }
    }
    // What systemd itself always allows (systemd.exec(5)).
    allowed.extend(resolve("@default")?);
    allowed.insert("execve".to_owned());
    Some(allowed)
}

fn resolve(name: &str) -> Option<Vec<String>> {
    if !name.starts_with('@') {
        return Some(vec![name.to_owned()]);
    }
    let (fine, said) = analyze(&["--no-pager", "syscall-filter", name])?;
    assert!(fine, "{said}");
    let mut calls = Vec::new();
    for line in said.lines().skip(1).map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
    {
        calls.extend(resolve(line)?);
    }
    Some(calls)
}
