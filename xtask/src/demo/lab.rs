//! The network of the demo: two namespaces, a veth pair, the processes in them, and their end.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, process};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal};
use serde_json::Value;

use super::pass;
use super::sampler::Sampler;
use crate::shell;

/// The service address of the demo.
pub const SERVER_IPV4: &str = "198.51.100.53";
/// The same for IPv6.
pub const SERVER_IPV6: &str = "2001:db8:53::53";
const CLIENT_IPV4: &str = "198.51.100.7";
const CLIENT_IPV6: &str = "2001:db8:53::7";
/// Namespaces and directories are called this, the id of the process that made them, and the side.
const PREFIX: &str = "xroute-demo-";
/// In the directory: it is to stay when the process that made it has ended.
const KEPT: &str = "kept";

/// A server that queries are steered to.
pub struct Endpoint {
    /// Its name in every profile.
    pub name: &'static str,
    /// Its IPv4 address.
    pub ipv4: &'static str,
    /// Its IPv6 address.
    pub ipv6: &'static str,
}

/// All of them.
pub const ENDPOINTS: [Endpoint; 3] = [
    Endpoint { name: "a", ipv4: "192.0.2.10", ipv6: "2001:db8::10" },
    Endpoint { name: "b", ipv4: "192.0.2.20", ipv6: "2001:db8::20" },
    Endpoint { name: "c", ipv4: "192.0.2.30", ipv6: "2001:db8::30" },
];

/// The endpoint of that name.
pub fn endpoint(name: &str) -> Result<&'static Endpoint> {
    ENDPOINTS.iter().find(|endpoint| endpoint.name == name).with_context(|| format!("no endpoint {name}"))
}

/// An end of the veth pair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Where queries come from.
    Client,
    /// Where xroute and the endpoints are.
    Server,
}

/// The namespaces and everything that runs in them; gone when dropped, unless kept.
pub struct Lab {
    owner: u32,
    directory: PathBuf,
    endpoints: Vec<(&'static str, Child)>,
    kept: bool,
}

impl Lab {
    /// Makes the network.
    pub fn make() -> Result<Self> {
        let owner = process::id();
        let directory = env::temp_dir().join(format!("{PREFIX}{owner}"));
        fs::create_dir(&directory).with_context(|| format!("cannot make {}", directory.display()))?;
        let lab = Self { owner, directory, endpoints: Vec::new(), kept: false };
        lab.connect().context("cannot make the demo's network")?;
        Ok(lab)
    }

    fn connect(&self) -> Result<()> {
        if !Path::new("/proc/net/if_inet6").exists() {
            bail!("this kernel has no IPv6");
        }
        let (server, client) = (self.namespace(Side::Server), self.namespace(Side::Client));
        let (inner, outer) = (self.interface(Side::Server), self.interface(Side::Client));
        ip(&["netns", "add", &server])?;
        ip(&["netns", "add", &client])?;
        ip(&[
            "link", "add", &inner, "netns", &server, "type", "veth", "peer", "name", &outer, "netns", &client,
        ])?;
        for (namespace, device, ipv4, ipv6) in
            [(&server, &inner, SERVER_IPV4, SERVER_IPV6), (&client, &outer, CLIENT_IPV4, CLIENT_IPV6)]
        {
            ip(&["-n", namespace, "link", "set", "lo", "up"])?;
            ip(&["-n", namespace, "address", "add", &format!("{ipv4}/24"), "dev", device])?;
            ip(&["-n", namespace, "address", "add", &format!("{ipv6}/64"), "dev", device, "nodad"])?;
            ip(&["-n", namespace, "link", "set", device, "up"])?;
        }
        for endpoint in &ENDPOINTS {
            ip(&["-n", &server, "address", "add", &format!("{}/32", endpoint.ipv4), "dev", "lo"])?;
            ip(&["-n", &server, "address", "add", &format!("{}/128", endpoint.ipv6), "dev", "lo"])?;
        }
        ip(&["-n", &client, "route", "add", "192.0.2.0/24", "via", SERVER_IPV4])?;
        // Without a program on the client's end, a veth does not deliver what XDP_TX sends back.
        let object = self.path("pass.o");
        fs::write(&object, pass::object()).context("cannot write an XDP program")?;
        let mut attach = self.inside(Side::Client, "ip");
        attach
            .args(["link", "set", "dev", &outer, "xdp", "object"])
            .arg(&object)
            .args(["section", pass::SECTION]);
        shell::output(&mut attach)?;
        Ok(())
    }

    /// Name of the namespace.
    pub fn namespace(&self, side: Side) -> String {
        format!("{PREFIX}{}-{}", self.owner, if side == Side::Client { "client" } else { "server" })
    }

    /// Name of this side's end of the veth pair; at most 15 octets.
    pub fn interface(&self, side: Side) -> String {
        format!("xd{}{}", self.owner, if side == Side::Client { "c" } else { "s" })
    }

    /// A file in the directory of the demo.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// A program in a namespace. `ip` becomes the program, so that the child's id is the program's.
    pub fn inside(&self, side: Side, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = shell::command("ip");
        command.args(["netns", "exec", &self.namespace(side)]).arg(program);
        command
    }

    /// Starts it in the background, its output in a file. Ctrl-C reaches this program only, which then
    /// ends the others in order.
    pub fn start(&self, command: &mut Command, log: &str) -> Result<Child> {
        use std::os::unix::process::CommandExt;

        let log =
            File::options().create(true).append(true).open(self.path(log)).context("cannot write a log")?;
        let same = log.try_clone().context("cannot write a log")?;
        command
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(same)
            .process_group(0)
            .spawn()
            .context("cannot start a program in a namespace")
    }

    /// Starts an HTTP server.
    pub fn start_endpoint(&mut self, endpoint: &Endpoint) -> Result<()> {
        let name =
            ENDPOINTS.iter().find(|known| known.name == endpoint.name).context("no such endpoint")?.name;
        let this = env::current_exe().context("cannot find this program")?;
        let mut command = self.inside(Side::Server, this);
        command.args(["endpoint", name]);
        command.args(["--listen", &format!("{}:80", endpoint.ipv4)]);
        command.args(["--listen", &format!("[{}]:80", endpoint.ipv6)]);
        let child = self.start(&mut command, "endpoints.log")?;
        self.endpoints.push((name, child));
        Ok(())
    }

    /// Kills an HTTP server.
    pub fn kill_endpoint(&mut self, name: &str) -> Result<()> {
        let at = self.endpoints.iter().position(|(known, _)| *known == name).context("it does not run")?;
        let (_, mut child) = self.endpoints.remove(at);
        child.kill().context("cannot kill an endpoint")?;
        child.wait().context("cannot wait for an endpoint")?;
        Ok(())
    }

    /// Starts asking for the names of all profiles.
    pub fn start_sampler(&self) -> Result<Sampler> {
        Sampler::start(self)
    }

    /// How the kernel runs the XDP program on the server's end, as the kernel says.
    pub fn xdp_mode(&self) -> Result<&'static str> {
        let device = self.interface(Side::Server);
        let namespace = self.namespace(Side::Server);
        let link = shell::output(
            shell::command("ip")
                .args(["-n", &namespace, "-details", "-json", "link", "show", "dev", &device]),
        )?;
        let link: Value = serde_json::from_str(&link).context("`ip -json link show` printed no JSON")?;
        // IFLA_XDP_ATTACHED of if_link.h.
        Ok(match link[0]["xdp"]["mode"].as_u64() {
            Some(1) => "native",
            Some(2) => "generic",
            Some(3) => "offloaded",
            _ => "none",
        })
    }

    /// The end of each log, for when something failed.
    pub fn last_words(&self) -> String {
        let mut words = String::new();
        for name in ["xroute.log", "endpoints.log", "sampler.log"] {
            let text = fs::read_to_string(self.path(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(15)..].join("\n");
            words += &format!("--- {name}\n{}\n", if last.is_empty() { "(empty)" } else { &last });
        }
        words
    }

    /// From now on it stays when this program ends.
    pub fn keep(&mut self) -> Result<()> {
        File::create(self.path(KEPT)).context("cannot mark the demo as kept")?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if !self.kept
            && let Err(error) = tear_down(self.owner)
        {
            eprintln!("{error:#}");
        }
        for (_, child) in &mut self.endpoints {
            // Already ended; this only takes note of it. A kept one goes on.
            if !self.kept {
                let _ = child.wait();
            }
        }
    }
}

/// Which labs to remove.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those whose maker ended without cleaning up, and not on purpose.
    Abandoned,
    /// These, and those that were kept.
    Kept,
}

/// Removes labs whose maker has ended; returns how many.
pub fn sweep(which: Which) -> Result<usize> {
    let namespaces = shell::output(shell::command("ip").args(["netns", "list"]))?;
    let directories =
        fs::read_dir(env::temp_dir()).context("cannot list the directory for temporary files")?;
    let directories = directories.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let names = namespaces.lines().map(str::to_owned).chain(directories);
    let mut owners: Vec<u32> = names.filter_map(|name| owner(&name)).collect();
    owners.sort_unstable();
    owners.dedup();
    let mut ended = 0;
    for owner in owners {
        let kept = env::temp_dir().join(format!("{PREFIX}{owner}")).join(KEPT).exists();
        let runs = !kept
            && fs::read_to_string(format!("/proc/{owner}/comm")).is_ok_and(|name| name.trim() == "xtask");
        if !runs && (which == Which::Kept || !kept) {
            tear_down(owner)?;
            ended += 1;
        }
    }
    Ok(ended)
}

/// Whose a namespace or directory is.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split(['-', ' ']).next()?.parse().ok()
}

/// Ends the processes in the namespaces of a lab, removes the namespaces, and with them the veth pair,
/// and the directory. Pins go with the mount namespace of the agent.
fn tear_down(owner: u32) -> Result<()> {
    let mut errors = Vec::new();
    let existing = shell::output(shell::command("ip").args(["netns", "list"]))?;
    for side in ["client", "server"] {
        let namespace = format!("{PREFIX}{owner}-{side}");
        if !existing.lines().any(|line| line.split(' ').next() == Some(&namespace)) {
            continue;
        }
        if let Err(error) = end_processes(&namespace).and_then(|()| ip(&["netns", "delete", &namespace])) {
            errors.push(format!("{error:#}"));
        }
    }
    match fs::remove_dir_all(env::temp_dir().join(format!("{PREFIX}{owner}"))) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => errors.push(error.to_string()),
        _ => {}
    }
    if !errors.is_empty() {
        bail!("cannot clean up after the demo: {}", errors.join("; "));
    }
    Ok(())
}

/// Asks every process in the namespace to end, and kills what is still there after three seconds. All of
/// them are ours: nobody else knows the namespace.
fn end_processes(namespace: &str) -> Result<()> {
    let start = Instant::now();
    let mut signal = Signal::TERM;
    loop {
        let pids = shell::output(shell::command("ip").args(["netns", "pids", namespace]))?;
        let pids: Vec<Pid> = pids
            .lines()
            .filter_map(|pid| Pid::from_raw(pid.trim().parse().ok()?))
            .filter(|pid| lives(*pid))
            .collect();
        if pids.is_empty() {
            return Ok(());
        }
        if start.elapsed() > Duration::from_secs(10) {
            bail!("processes in {namespace} do not end: {pids:?}");
        }
        if start.elapsed() > Duration::from_secs(3) {
            signal = Signal::KILL;
        }
        for pid in pids {
            // One that has just ended is as good.
            let _ = rustix::process::kill_process(pid, signal);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// Whether a process has not ended; a zombie has.
fn lives(pid: Pid) -> bool {
    fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))
        .is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z')))
}

fn ip(arguments: &[&str]) -> Result<()> {
    shell::output(shell::command("ip").args(arguments)).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maker_of_a_namespace_or_directory_is_read_from_its_name() {
        assert_eq!(owner("xroute-demo-4711-server (id: 3)"), Some(4711));
        assert_eq!(owner("xroute-demo-4711"), Some(4711));
        assert_eq!(owner("xroute-demo-"), None);
        assert_eq!(owner("other-4711"), None);
    }

    #[test]
    fn names_of_interfaces_fit_the_kernel_with_the_largest_process_id() {
        let lab = Lab { owner: 4_194_304, directory: PathBuf::new(), endpoints: Vec::new(), kept: true };
        assert!(lab.interface(Side::Server).len() <= 15);
        assert_ne!(lab.interface(Side::Server), lab.interface(Side::Client));
    }
}
