//! xroute as the demo runs it: configuration, start, what it says in its status and in its log.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::lab::{ENDPOINTS, Endpoint, Lab, SERVER_IPV4, SERVER_IPV6, Side};
use super::{PROFILES, ZONE};
use crate::shell;

/// Numbers by the names of [router_common's counters](../../router-common/src/counter.rs).
pub type Counters = BTreeMap<String, u64>;

/// The running agent.
pub struct Agent {
    /// Its program.
    pub binary: PathBuf,
    /// Its configuration.
    pub config: PathBuf,
    /// Its control socket.
    pub control: PathBuf,
    log: PathBuf,
}

/// When a verdict was reached and when its answers were in the tables, ns of `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// The window tipped.
    pub reached: u64,
    /// The tables hold it.
    pub applied: u64,
}

/// The verdicts on one endpoint, in the order of [`PROFILES`].
pub type Verdicts = [Verdict; PROFILES.len()];

impl Agent {
    /// Writes the configuration and starts the agent in the server's namespace.
    pub fn start(lab: &Lab, binary: &Path) -> Result<Self> {
        let agent = Self {
            binary: fs::canonicalize(binary).with_context(|| format!("no agent at {}", binary.display()))?,
            config: lab.path("xroute.toml"),
            control: lab.path("control.sock"),
            log: lab.path("xroute.log"),
        };
        fs::write(&agent.config, agent.configuration(lab)).context("cannot write the configuration")?;
        // `ip netns exec` gives the agent a /sys of its own, without bpffs; what is mounted there, and the
        // pins in it, goes when the agent does.
        let mut command = lab.inside(Side::Server, "sh");
        command
            .args(["-c", "mount -t bpf bpf /sys/fs/bpf && exec \"$@\"", "sh"])
            .arg(&agent.binary)
            .args(["run", "--config"])
            .arg(&agent.config)
            .env("RUST_LOG", "info");
        lab.start(&mut command, "xroute.log")?;
        Ok(agent)
    }

    fn configuration(&self, lab: &Lab) -> String {
        let mut text = format!(
            r#"# Written by `cargo xtask demo`.
[server]
interfaces = ["{interface}"]
xdp_mode   = "native"
listen     = ["{SERVER_IPV4}:53", "[{SERVER_IPV6}]:53"]
control    = "{control}"
state_dir  = "{state}"

[[zone]]
name = "{ZONE}"
soa  = {{ mname = "ns1.{ZONE}.", rname = "hostmaster.example.com.", serial = 1, refresh = 3600, retry = 600, expire = 604800, minimum = 60 }}
ns   = ["ns1.{ZONE}."]
ttl  = 3600
"#,
            interface = lab.interface(Side::Server),
            control = self.control.display(),
            state = lab.path("state").display(),
        );
        // Each prefers endpoint a, the one that is killed: by weight, by order, by the client's subnet.
        text +=
            &profile("www", "weighted", "", |name| format!("weight = {}", if name == "a" { 2 } else { 1 }));
        text += &profile("app", "priority", "", |_| String::new());
        text += &profile("near", "subnet", "all_down = { fallback = \"c\" }\n", |name| match name {
            "a" => "subnets = [\"198.51.100.0/24\", \"203.0.113.0/24\", \"2001:db8:53::/48\"]".to_owned(),
            "b" => "subnets = [\"192.0.2.0/24\"]".to_owned(),
            _ => String::new(), // for everybody else
        });
        text
    }

    /// Whether it answers on its control socket; an error when it has ended.
    pub fn poll_ready(&self, lab: &Lab) -> Result<Option<()>> {
        if self.counters(lab).is_ok() {
            return Ok(Some(()));
        }
        let pids = shell::output(shell::command("ip").args(["netns", "pids", &lab.namespace(Side::Server)]))?;
        if pids.lines().count() <= ENDPOINTS.len() {
            bail!("xroute has ended");
        }
        Ok(None)
    }

    /// Whether every endpoint has a verdict.
    pub fn poll_probed(&self, lab: &Lab) -> Result<Option<()>> {
        let status = shell::output(&mut self.status(lab))?.to_lowercase();
        Ok((status.contains("online") && !status.contains("checking")).then_some(()))
    }

    /// Its counters now.
    pub fn counters(&self, lab: &Lab) -> Result<Counters> {
        let status = shell::output(&mut self.status(lab))?;
        let status: Value = serde_json::from_str(&status).context("`xroute status` printed no JSON")?;
        let counters = status["counters"].as_object().context("`xroute status` has no object `counters`")?;
        Ok(counters.iter().filter_map(|(name, number)| Some((name.clone(), number.as_u64()?))).collect())
    }

    fn status(&self, lab: &Lab) -> Command {
        let mut command = lab.inside(Side::Server, &self.binary);
        command.args(["status", "--format", "json", "--socket"]).arg(&self.control);
        command
    }

    /// The verdicts on an endpoint that every profile reached after the moment `since`, once they are applied.
    pub fn applied(&self, endpoint: &str, online: bool, since: u64) -> Result<Option<Verdicts>> {
        let log = fs::read_to_string(&self.log).context("cannot read the log of xroute")?;
        Ok(verdicts(&log, endpoint, online, since))
    }
}

/// A `[[profile]]` with all endpoints.
fn profile(name: &str, method: &str, more: &str, of_endpoint: impl Fn(&str) -> String) -> String {
    let mut text = format!(
        r#"
[[profile]]
name   = "{name}"
names  = ["{name}.{ZONE}"]
method = "{method}"
ttl    = 5
{more}
  [profile.monitor]
  protocol = "http"
  port     = 80
  path     = "/health"
  interval = "1s"
  timeout  = "500ms"
  sample_size = 3
  successful_samples = 2
"#
    );
    for Endpoint { name, ipv4, ipv6 } in &ENDPOINTS {
        text += &format!(
            "\n  [[profile.endpoint]]\n  name = \"{name}\"\n  address = [\"{ipv4}\", \"{ipv6}\"]\n  {}\n",
            of_endpoint(name)
        );
    }
    text
}

/// Reads lines such as `verdict www/a degraded at_ns=1` and, after them, `applied … at_ns=2`.
fn verdicts(log: &str, endpoint: &str, online: bool, since: u64) -> Option<Verdicts> {
    let mut verdicts = Vec::with_capacity(PROFILES.len());
    for profile in PROFILES {
        let subject = format!("{profile}/{endpoint}");
        let mut lines = log.lines();
        let reached = lines.by_ref().find_map(|line| {
            let mut words = line.split_once("verdict ")?.1.split_whitespace();
            let matches = words.next()? == subject && (words.next()? == "degraded") != online;
            at_ns(line).filter(|at| matches && *at > since)
        })?;
        let applied = lines.find_map(|line| at_ns(line).filter(|_| line.contains("applied ")))?;
        verdicts.push(Verdict { reached, applied });
    }
    verdicts.try_into().ok()
}

/// The moment that a line of the log names.
fn at_ns(line: &str) -> Option<u64> {
    line.split_once("at_ns=")?.1.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
[2026-01-01T00:00:00Z INFO  router_userspace::agent] verdict www/a online at_ns=5
[2026-01-01T00:00:00Z INFO  router_userspace::agent] applied generation=1 at_ns=6
[2026-01-01T00:00:01Z INFO  router_userspace::agent] verdict www/a degraded at_ns=10
[2026-01-01T00:00:01Z INFO  router_userspace::agent] verdict app/a degraded at_ns=10
[2026-01-01T00:00:01Z INFO  router_userspace::agent] applied profile=www at_ns=12
[2026-01-01T00:00:01Z INFO  router_userspace::agent] verdict near/a degraded at_ns=13
[2026-01-01T00:00:01Z INFO  router_userspace::agent] verdict near/b degraded at_ns=13
";

    #[test]
    fn a_verdict_counts_once_it_is_applied_for_every_profile() {
        assert_eq!(verdicts(LOG, "a", false, 0), None, "near is not applied");
        let log = format!("{LOG}applied profile=near at_ns=15\n");
        let early = Verdict { reached: 10, applied: 12 };
        let expected = [early, early, Verdict { reached: 13, applied: 15 }];
        assert_eq!(verdicts(&log, "a", false, 0), Some(expected));
        assert_eq!(verdicts(&log, "a", false, 10), None, "only what came after");
        assert_eq!(verdicts(&log, "b", false, 0), None, "only one profile");
        assert_eq!(verdicts(&log, "a", true, 0), None, "only www came online");
    }

    #[test]
    fn the_configuration_is_toml_with_all_profiles() {
        let text = profile("near", "subnet", "all_down = { fallback = \"c\" }\n", |_| String::new());
        let table: toml::Table = text.parse().unwrap();
        let profile = &table["profile"][0];
        assert_eq!(profile["endpoint"].as_array().unwrap().len(), ENDPOINTS.len());
        assert_eq!(profile["monitor"]["timeout"].as_str(), Some("500ms"));
    }
}
