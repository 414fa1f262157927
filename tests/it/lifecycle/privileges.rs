//! What the agent may do when it runs, and that it can do with it everything it has to.

use super::load::Client;
use super::*;

/// CAP_NET_BIND_SERVICE.
const BIND: u64 = 1 << 10;
/// And CAP_NET_ADMIN, CAP_PERFMON, CAP_BPF.
const FAST: u64 = BIND | 1 << 12 | 1 << 38 | 1 << 39;

/// Permitted, effective, inheritable, ambient and bounding set of a process, of all its threads.
fn capabilities(pid: u32) -> [u64; 5] {
    let mut sets = Vec::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).expect("a process") {
        // One that has ended meanwhile has no say.
        let Ok(text) = fs::read_to_string(thread.expect("an entry").path().join("status")) else { continue };
        let line = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
            line.trim().to_owned()
        };
        assert_eq!(line("NoNewPrivs:"), "1");
        sets.push(
            ["CapPrm:", "CapEff:", "CapInh:", "CapAmb:", "CapBnd:"]
                .map(|name| u64::from_str_radix(&line(name), 16).expect("hexadecimal digits")),
        );
    }
    assert!(sets.windows(2).all(|sets| sets[0] == sets[1]), "threads differ: {sets:x?}");
    sets[0]
}

fn succeeds(agent: &Agent, pair: &Pair, arguments: &[&str]) {
    let output = agent.command(&pair.server, arguments).output().expect("xroute starts");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Everything that makes maps and programs, or attaches.
fn everything(agent: &mut Agent, pair: &Pair, folder: &Path, expected: [u64; 5]) {
    let load = Load::new(pair, &[Client::Address, Client::Text, Client::Connections], &[WWW]);
    load.more(50);
    assert_eq!(capabilities(agent.id()), expected);
    // A reload that outgrows the maps.
    let names: Vec<String> = (0..3000).map(|number| format!("\"n{number}.gslb.test\"")).collect();
    let more = format!(
        "[[profile]]\nname = \"many\"\nnames = [{}]\nmethod = \"priority\"\nttl = 10\nmonitor = \"off\"\n\
         [[profile.endpoint]]\nname = \"only\"\naddress = [\"192.0.2.7\"]\n",
        names.join(", ")
    );
    configure(folder, WWW, "\"xr0\"", "", &more);
    succeeds(agent, pair, &["reload"]);
    succeeds(agent, pair, &["endpoint", "disable", "many/only"]);
    succeeds(agent, pair, &["override", "clear", "--all"]);
    load.more(50);
    // Another build.
    install(folder, &another_build());
    agent.upgrade(&pair.server).unwrap_or_else(|why| panic!("{why}\n{}", agent.log().join("\n")));
    agent.wait_for("replaced what was running: it is another build");
    assert_eq!(capabilities(agent.id()), expected);
    load.more(50);
    load.end();
    // An interface that goes and comes back.
    pair.server
        .sh("ip link set xr0 down; ip link set xr0 name xr7; ip link add xr0 type veth peer name xr8; ip link set xr0 up; ip addr add fd77::53/64 dev xr0 nodad");
    eventually("the new interface is attached to", || {
        pair.server.sh("ip -details link show xr0").contains("xdp")
    });
    agent.wait_for("xr0 was made anew");
}

#[test]
fn netns_root_keeps_four_capabilities() {
    let Some((pair, folder)) = set_up("\"xr0\"") else { return };
    let folder = folder.path();
    let mut agent = Agent::start_program(&pair.server, &program(folder), folder, &["--keep-attached"]);
    everything(&mut agent, &pair, folder, [FAST, FAST, 0, 0, FAST]);
    // The next one adopts it.
    agent.kill();
    let mut agent = Agent::start_program(&pair.server, &program(folder), folder, &[]);
    agent.wait_for("adopted what was running");
    agent.terminate();
}

#[test]
fn netns_without_interfaces_one_capability_is_kept() {
    let Some((pair, folder)) = set_up("") else { return };
    let folder = folder.path();
    let agent = Agent::start_program(&pair.server, &program(folder), folder, &[]);
    assert_eq!(capabilities(agent.id()), [BIND, BIND, 0, 0, BIND]);
    agent.terminate();
}

#[test]
fn netns_another_user_can_do_with_four_capabilities() {
    let Some((pair, folder)) = set_up("\"xr0\"") else { return };
    let folder = folder.path();
    let pins = folder.join("bpf");
    fs::create_dir(&pins).expect("a new folder");
    pair.server.sh(&format!(
        "mount -t bpf bpf {0}; chown 65534:65534 {0} {1}",
        pins.display(),
        folder.display()
    ));
    let sets = "+bpf,+net_admin,+net_bind_service,+perfmon";
    let mut command = pair.server.command("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.args([format!("--inh-caps={sets}"), format!("--ambient-caps={sets}")]);
    command.arg(program(folder)).arg("run").arg("--config").arg(folder.join("xroute.toml"));
    command.arg("--keep-attached").arg("--pin-dir").arg(&pins);
    let mut agent = Agent::spawn(command, folder);
    agent.wait_for("serving DNS");
    // The bounding set is whoever's who started it.
    let bounding = capabilities(agent.id())[4];
    assert_eq!(bounding & FAST, FAST);
    everything(&mut agent, &pair, folder, [FAST, FAST, 0, 0, bounding]);
    agent.terminate();
}

/// As the unit does it: root whose name gives no capabilities, in a bounding set of four.
#[test]
fn netns_root_without_its_powers_can_do_with_four_capabilities() {
    let Some((pair, folder)) = set_up("\"xr0\"") else { return };
    let folder = folder.path();
    pair.server.sh("mount -t bpf bpf /sys/fs/bpf");
    let sets = "+bpf,+net_admin,+net_bind_service,+perfmon";
    let mut command = pair.server.command("setpriv");
    command.args([format!("--bounding-set=-all,{sets}"), "--securebits=+noroot,+noroot_locked".to_owned()]);
    command.args([
        format!("--inh-caps=-all,{sets}"),
        format!("--ambient-caps={sets}"),
        "--no-new-privs".to_owned(),
    ]);
    command.arg(program(folder)).arg("run").arg("--config").arg(folder.join("xroute.toml"));
    let mut agent = Agent::spawn(command, folder);
    agent.wait_for("serving DNS");
    assert!(!agent.log().iter().any(|line| line.contains("SecureBits")), "{:?}", agent.log());
    everything(&mut agent, &pair, folder, [FAST, FAST, 0, 0, FAST]);
    agent.terminate();
}

/// A program of an `exec` monitor has no capabilities.
#[test]
fn netns_programs_of_monitors_get_no_capabilities() {
    let Some((pair, folder)) = set_up("\"xr0\"") else { return };
    let folder = folder.path();
    let found = folder.join("found");
    let script = folder.join("look");
    fs::write(
        &script,
        format!(
            "#!/bin/sh\ngrep -E 'Cap(Prm|Eff|Inh|Amb)|NoNew' /proc/self/status > {0}.new\nmv {0}.new {0}\n",
            found.display()
        ),
    )
    .expect("writable");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("ours");
    let more = format!(
        "[[profile]]\nname = \"app\"\nnames = [\"app.gslb.test\"]\nmethod = \"priority\"\nttl = 10\n\
         [profile.monitor]\nprotocol = \"exec\"\ncommand = [\"{}\"]\ninterval = \"1s\"\ntimeout = \"900ms\"\n\
         [[profile.endpoint]]\nname = \"only\"\naddress = [\"192.0.2.7\"]\n",
        script.display()
    );
    configure(folder, WWW, "\"xr0\"", "", &more);
    let agent = Agent::start_program(&pair.server, &program(folder), folder, &[]);
    eventually("the program has run", || found.exists());
    let text = fs::read_to_string(&found).expect("it is there");
    assert!(text.contains("NoNewPrivs:\t1"), "{text}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert!(text.contains(&format!("{set}:\t0000000000000000")), "{text}");
    }
    agent.terminate();
}
