//! `cargo xtask bench userspace`: dnsperf against the userspace server, NSD and Knot, one after the other in every
//! round, each on one core and dnsperf on another, all from the same zone. Prints answers a second and processor
//! time for an answer, medians of the rounds, and what they are to the median of the others; the argument is a
//! file for them in JSON. The agent is `XROUTE_BIN`, or beside this program.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::net::UdpSocket;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use router_tests::agent::BINARY;
use router_tests::bench::report::Report;
use router_tests::packet::Query;

/// Names of the zone.
const NAMES: u32 = 2000;
/// How often each server is measured with the zone.
const ROUNDS: usize = 5;
/// How long one measurement takes.
const SECONDS: u32 = 3;
/// How long a server may take to serve.
const PATIENCE: Duration = Duration::from_secs(20);
/// The same queries for everybody: of twenty, one is for a name that does not exist and one for a type that does
/// not; the others have an answer.
const MISSES: u32 = 20;

fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    fs::write(folder.join("bench.test.zone"), zone())?;
    fs::write(folder.join("zone.queries"), queries())?;
    fs::write(folder.join("weighted.queries"), "weighted.gslb.test A\n")?;
    fs::write(folder.join("geographic.queries"), "geographic.gslb.test A\n")?;
    let servers = [xroute(folder)?, nsd(folder)?, knot(folder)?];
    for server in &servers {
        server.wait()?;
    }

    let mut runs: Vec<Vec<Run>> = vec![Vec::new(); servers.len()];
    for round in 0..ROUNDS {
        for (server, runs) in servers.iter().zip(&mut runs) {
            let run = server.measure(folder, "zone.queries")?;
            eprintln!(
                "round {} of {ROUNDS}: {:<8} {:>8.0} answers/s, {:.2} µs of processor time for one, {} lost",
                round + 1,
                server.name,
                run.rate,
                run.cost,
                run.lost
            );
            runs.push(run);
        }
    }
    let [ours, nsd, knot] = runs.try_into().map_err(|_| anyhow!("three servers"))?;
    let profiles = ["weighted", "geographic"].map(|kind| -> Result<Vec<Run>> {
        (0..3).map(|_| servers[0].measure(folder, &format!("{kind}.queries"))).collect()
    });

    let mut report = Report::default();
    report.note("processor", &processor());
    report.note("load average of the last minute", &load());
    for (name, runs) in [("xroute", &ours), ("NSD", &nsd), ("Knot", &knot)] {
        report.figure(&format!("{name}: answers a second"), median(runs, |run| run.rate), "1/s", None);
        report.figure(
            &format!("{name}: processor time for an answer"),
            median(runs, |run| run.cost),
            "µs",
            None,
        );
        report.figure(
            &format!("{name}: queries lost"),
            runs.iter().map(|run| run.lost as f64).sum(),
            "",
            None,
        );
    }
    for (kind, runs) in ["weighted", "geographic"].into_iter().zip(profiles) {
        let runs = runs?;
        report.figure(
            &format!("xroute, {kind} profile: answers a second"),
            median(&runs, |run| run.rate),
            "1/s",
            None,
        );
        report.figure(
            &format!("xroute, {kind} profile: time for an answer"),
            median(&runs, |run| run.cost),
            "µs",
            None,
        );
    }
    // Two of them: their median is in the middle.
    let others = |of: fn(&Run) -> f64| (median(&nsd, of) + median(&knot, of)) / 2.0;
    let rate = others(|run| run.rate) / median(&ours, |run| run.rate);
    let cost = median(&ours, |run| run.cost) / others(|run| run.cost);
    report.figure("answers a second, theirs to ours", rate, "", Some(1.0 + NOISE));
    report.figure("time for an answer, ours to theirs", cost, "", Some(1.0 + NOISE));
    let (figures, met) = report.finish();
    if let Some(path) = std::env::args_os().nth(1) {
        fs::write(&path, serde_json::to_string_pretty(&figures)? + "\n")
            .with_context(|| format!("cannot write {}", Path::new(&path).display()))?;
    }
    if met { Ok(()) } else { Err(anyhow!("a goal was missed")) }
}

/// By how much medians of the same thing differ from run to run on a machine that does other things as well.
const NOISE: f64 = 0.05;

fn zone() -> String {
    let mut text = String::from(
        "$ORIGIN bench.test.\n$TTL 300\n@ SOA ns1 hostmaster 1 3600 600 604800 60\n@ NS ns1\n@ NS ns2\nns1 A \
         192.0.2.1\nns2 A 192.0.2.2\n",
    );
    for at in 0..NAMES {
        let [.., high, low] = at.to_be_bytes();
        writeln!(text, "host{at} A 10.0.{high}.{low}\nhost{at} AAAA 2001:db8::{at:x}").expect("a text");
    }
    text
}

/// Every name in an order that no cache likes.
fn queries() -> String {
    let mut text = String::new();
    for at in 0..NAMES {
        let name = at * 7919 % NAMES;
        let line = match at % MISSES {
            0 => format!("absent{name}.bench.test A"),
            1 => format!("host{name}.bench.test TXT"),
            even if even % 2 == 0 => format!("host{name}.bench.test A"),
            _ => format!("host{name}.bench.test AAAA"),
        };
        writeln!(text, "{line}").expect("a text");
    }
    text
}

/// One measurement.
#[derive(Clone, Copy)]
struct Run {
    /// Answers a second.
    rate: f64,
    /// Processor time of the server for an answer, in microseconds.
    cost: f64,
    lost: u64,
}

fn median(runs: &[Run], of: fn(&Run) -> f64) -> f64 {
    let mut values: Vec<f64> = runs.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A running server on the last core; ended with the value.
struct Server {
    name: &'static str,
    port: u16,
    child: Child,
}

impl Server {
    fn start(name: &'static str, port: u16, program: &Path, arguments: &[&str]) -> Result<Self> {
        let mut command = Command::new("taskset");
        command.args(["--cpu-list", &cores().1]).arg(program).args(arguments);
        // A group of its own, so that all of its processes end.
        let child = command
            .process_group(0)
            .env("RUST_LOG", "error")
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        Ok(Self { name, port, child })
    }

    /// Waits until it answers, and well.
    fn wait(&self) -> Result<()> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.connect(("127.0.0.1", self.port))?;
        socket.set_read_timeout(Some(Duration::from_millis(100)))?;
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let query = Query::new("host77.bench.test", 1).bytes();
            let mut reply = [0; 512];
            // Nobody may be there.
            let len = socket.send(&query).and_then(|_| socket.recv(&mut reply)).unwrap_or(0);
            if len > 12 && reply[3] & 0xf == 0 {
                ensure!(
                    reply[len - 4..len] == [10, 0, 0, 77] || reply[7] == 1,
                    "{} answers otherwise",
                    self.name
                );
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Err(anyhow!("{} does not answer on port {}", self.name, self.port))
    }

    fn measure(&self, folder: &Path, queries: &str) -> Result<Run> {
        let before = self.processor_time()?;
        let output = Command::new("taskset")
            .args(["--cpu-list", &cores().0, "dnsperf", "-s", "127.0.0.1", "-e", "-W"])
            .args(["-p", &self.port.to_string(), "-l", &SECONDS.to_string()])
            .args(["-c", "8", "-T", "1", "-q", "200", "-d"])
            .arg(folder.join(queries))
            .output()
            .context("cannot run dnsperf")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "dnsperf: {text}");
        let used = self.processor_time()? - before;
        let figure = |label: &str| -> Result<f64> {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(label));
            let word = line.and_then(|rest| rest.split_whitespace().next());
            word.and_then(|word| word.parse().ok()).with_context(|| format!("no {label:?} in {text}"))
        };
        let answered = figure("Queries completed:")?;
        ensure!(answered > 0.0, "{} answered nothing", self.name);
        Ok(Run {
            rate: figure("Queries per second:")?,
            cost: used * 1e6 / answered,
            lost: figure("Queries lost:")? as u64,
        })
    }

    /// Seconds of processor time of the server and of all processes that it started.
    fn processor_time(&self) -> Result<f64> {
        let mut processes = HashMap::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            // It may have ended meanwhile.
            let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
            // The fields after the name, which is in brackets and may hold anything: state is the first.
            let Some((_, fields)) = stat.rsplit_once(") ") else { continue };
            let fields: Vec<u64> = fields.split(' ').map(|field| field.parse().unwrap_or(0)).collect();
            if let [_, parent, ..] = fields[..] {
                let time = fields.get(11).copied().unwrap_or(0) + fields.get(12).copied().unwrap_or(0);
                processes.insert(id, (parent as u32, time));
            }
        }
        let is_ours = |mut id: u32| {
            while id != self.child.id() {
                match processes.get(&id) {
                    Some(&(parent, _)) if parent != id => id = parent,
                    _ => return false,
                }
            }
            true
        };
        let ticks: u64 = processes.iter().filter(|(id, _)| is_ours(**id)).map(|(_, (_, time))| time).sum();
        // USER_HZ is 100 on every Linux.
        Ok(ticks as f64 / 100.0)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let group = -(self.child.id() as i32);
        // SAFETY: signals the group of a child that was not waited for.
        unsafe { libc::kill(group, libc::SIGTERM) };
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) && !matches!(self.child.try_wait(), Ok(Some(_))) {
            std::thread::sleep(Duration::from_millis(20));
        }
        // SAFETY: as above; when the child has ended, others of its group can be left.
        unsafe { libc::kill(group, libc::SIGKILL) };
        let _ = self.child.wait();
    }
}

/// The core of dnsperf, and that of the servers.
fn cores() -> (String, String) {
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    ("0".into(), count.saturating_sub(1).min(1).to_string())
}

fn xroute(folder: &Path) -> Result<Server> {
    let beside = || Some(std::env::current_exe().ok()?.with_file_name("xroute"));
    let binary = std::env::var_os(BINARY).map(PathBuf::from).or_else(beside).context("no agent")?;
    let port = free_port()?;
    let text = format!(
        r#"
[server]
interfaces = []
listen = ["127.0.0.1:{port}"]
control = "{folder}/control.sock"
state_dir = "{folder}/state"
[geo]
overrides = "geo.csv"
[[zone]]
name = "bench.test"
file = "bench.test.zone"
[[zone]]
name = "gslb.test"
soa = {{ mname = "ns1.bench.test.", rname = "h.bench.test.", serial = 1, refresh = 3600, retry = 600, expire = 604800, minimum = 60 }}
ns = ["ns1.bench.test."]
[[profile]]
name = "weighted"
names = ["weighted.gslb.test"]
method = "weighted"
ttl = 30
monitor = "off"
endpoint = [
  {{ name = "a", address = "192.0.2.1", weight = 50 }},
  {{ name = "b", address = "192.0.2.2", weight = 30 }},
  {{ name = "c", address = "192.0.2.3", weight = 20 }},
]
[[profile]]
name = "geographic"
names = ["geographic.gslb.test"]
method = "geographic"
ttl = 30
monitor = "off"
endpoint = [
  {{ name = "ireland", address = "192.0.2.1", geo = ["IE"] }},
  {{ name = "europe", address = "192.0.2.2", geo = ["GEO-EU"] }},
  {{ name = "world", address = "192.0.2.3", geo = ["WORLD"] }},
]
"#,
        folder = folder.display()
    );
    fs::write(folder.join("geo.csv"), "127.0.0.0/8,IE\n192.0.2.0/24,FR\n")?;
    let config = folder.join("xroute.toml");
    fs::write(&config, text)?;
    let config = config.to_str().context("a path of text")?.to_owned();
    Server::start("xroute", port, &binary, &["run", "--config", &config])
}

fn nsd(folder: &Path) -> Result<Server> {
    let port = free_port()?;
    let text = format!(
        "server:\n ip-address: 127.0.0.1@{port}\n server-count: 1\n username: \"\"\n chroot: \"\"\n zonesdir: \
         \"{folder}\"\n database: \"\"\n pidfile: \"{folder}/nsd.pid\"\n xfrdfile: \"{folder}/xfrd.state\"\n \
         zonelistfile: \"{folder}/nsd.list\"\n xfrdir: \"{folder}\"\n minimal-responses: yes\n rrl-ratelimit: 0\n \
         rrl-whitelist-ratelimit: 0\nremote-control:\n control-enable: no\nzone:\n name: bench.test\n zonefile: \
         bench.test.zone\n",
        folder = folder.display()
    );
    let config = folder.join("nsd.conf");
    fs::write(&config, text)?;
    let config = config.to_str().context("a path of text")?.to_owned();
    Server::start("NSD", port, Path::new("nsd"), &["-d", "-c", &config])
}

fn knot(folder: &Path) -> Result<Server> {
    let port = free_port()?;
    let text = format!(
        "server:\n  listen: 127.0.0.1@{port}\n  udp-workers: 1\n  tcp-workers: 1\n  background-workers: 1\n  \
         rundir: {folder}/knot\ndatabase:\n  storage: {folder}/knot\nlog:\n  - target: stderr\n    any: \
         error\nzone:\n  - domain: bench.test\n    storage: {folder}\n    file: bench.test.zone\n    \
         zonefile-load: whole\n    zonefile-sync: -1\n    journal-content: none\n",
        folder = folder.display()
    );
    fs::create_dir(folder.join("knot"))?;
    let config = folder.join("knot.conf");
    fs::write(&config, text)?;
    let config = config.to_str().context("a path of text")?.to_owned();
    Server::start("Knot", port, Path::new("knotd"), &["-c", &config])
}

/// A port that nobody holds, on UDP and on TCP.
fn free_port() -> Result<u16> {
    let udp = UdpSocket::bind("127.0.0.1:0")?;
    Ok(udp.local_addr()?.port())
}

fn processor() -> String {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let count = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!("{}, {count} cores", line.trim_start_matches([' ', '\t', ':']))
}

fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}
