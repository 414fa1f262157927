//! `cargo xtask demo`: a failover under load, from real packets to a table of what was seen.
//!
//! ```text
//!   client namespace            server namespace
//!   dnsperf ×3, sampler         xroute: XDP on the veth's end, agent, DNS server
//!        │                      endpoints a, b, c: three HTTP servers on addresses of lo
//!        └───── veth pair ──────┘
//! ```

use std::env;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::interrupt::{self, pause, wait_for};
use crate::{setup, shell};

mod agent;
pub mod endpoint;
mod lab;
mod load;
mod message;
mod pass;
mod report;
pub mod sampler;

use agent::Agent;
use lab::{Lab, Side};
use report::{Evidence, Moments};

/// The endpoint that is killed; every profile of the demo prefers it.
const VICTIM: &str = "a";
/// The profiles, which are also the first labels of their names.
const PROFILES: [&str; 3] = ["www", "app", "near"];
/// The zone that the names are in.
const ZONE: &str = "gslb.example.com";
/// Longer than any verdict takes: the window needs two of three samples, one a second.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the demo; an error unless everything that it is meant to show was seen.
pub fn run(seconds: u64, keep: bool, binary: Option<PathBuf>) -> Result<()> {
    let binary = match binary {
        Some(binary) => binary,
        None => {
            setup::ensure(setup::Need::Everything)?;
            setup::build(true)?
        }
    };
    if !shell::is_root() {
        return as_root(seconds, keep, &binary);
    }
    interrupt::catch()?;
    lab::sweep(lab::Which::Abandoned)?;

    let mut lab = Lab::make()?;
    match play(&mut lab, seconds, &binary) {
        Ok((evidence, agent)) => {
            print!("{}", report::table(&evidence));
            let faults = report::faults(&evidence);
            if keep {
                lab.keep()?;
                println!("{}", invitation(&lab, &agent));
            }
            if !faults.is_empty() {
                bail!("the demo did not show what it is meant to:\n  {}", faults.join("\n  "));
            }
            Ok(())
        }
        Err(error) => {
            if !interrupt::came() {
                eprintln!("{}", lab.last_words());
            }
            Err(error)
        }
    }
}

/// Ends what `--keep` left running.
pub fn stop() -> Result<()> {
    if !shell::is_root() {
        let this = env::current_exe().context("cannot find this program")?;
        return shell::run(shell::privileged(this).args(["demo", "--stop"]));
    }
    let ended = lab::sweep(lab::Which::Kept)?;
    println!("{}", if ended == 0 { "No demo is running.".to_owned() } else { format!("Ended {ended}.") });
    Ok(())
}

/// Only the part that needs it runs as root: the build was the user's.
fn as_root(seconds: u64, keep: bool, binary: &Path) -> Result<()> {
    let this = env::current_exe().context("cannot find this program")?;
    let mut demo = shell::privileged(this);
    demo.args(["demo", "--seconds", &seconds.to_string(), "--binary"]).arg(binary);
    if keep {
        demo.arg("--keep");
    }
    shell::run(&mut demo)
}

/// The play in its acts: start, load, kill, verdict, revive, verdict, end.
fn play(lab: &mut Lab, seconds: u64, binary: &Path) -> Result<(Evidence, Agent)> {
    println!("Two namespaces and a veth pair; endpoints a, b and c are HTTP servers, probed every second.");
    for endpoint in &lab::ENDPOINTS {
        lab.start_endpoint(endpoint)?;
    }
    let agent = Agent::start(lab, binary)?;
    wait_for("xroute to be ready", PATIENCE, || agent.poll_ready(lab))?;
    wait_for("all endpoints to be probed", PATIENCE, || agent.poll_probed(lab))?;
    let mode = lab.xdp_mode()?;
    println!("xroute answers, XDP mode {mode}. {} dnsperf at full speed for {seconds} s.", load::LOADS.len());

    let before = agent.counters(lab)?;
    let mut sampler = lab.start_sampler()?;
    let loads = load::start(lab, seconds)?;
    let start = Instant::now();
    let share = |part: f64| Duration::from_secs_f64(seconds as f64 * part);

    pause(share(0.25))?;
    println!("{:4.1} s  killing endpoint {VICTIM}", start.elapsed().as_secs_f64());
    let killed = sampler::clock();
    lab.kill_endpoint(VICTIM)?;
    let failed =
        wait_for("the failing verdict to be applied", PATIENCE, || agent.applied(VICTIM, false, killed))?;
    println!("{:4.1} s  verdict: {VICTIM} is degraded, and applied", start.elapsed().as_secs_f64());

    pause(share(0.30))?;
    println!("{:4.1} s  starting endpoint {VICTIM} again", start.elapsed().as_secs_f64());
    let revived = sampler::clock();
    lab.start_endpoint(lab::endpoint(VICTIM)?)?;
    let healed =
        wait_for("the healing verdict to be applied", PATIENCE, || agent.applied(VICTIM, true, revived))?;
    println!("{:4.1} s  verdict: {VICTIM} is online, and applied", start.elapsed().as_secs_f64());
    let under_load = start.elapsed() < Duration::from_secs(seconds);

    pause(share(0.15))?;
    let loads = load::finish(loads, Duration::from_secs(seconds) + PATIENCE)?;
    let samples = sampler.finish()?;
    let after = agent.counters(lab)?;
    let moments = Moments { killed, failed, healed };
    let evidence = Evidence { loads, samples, before, after, mode, moments, under_load };
    Ok((evidence, agent))
}

/// What to try while it runs.
fn invitation(lab: &Lab, agent: &Agent) -> String {
    let inside = |side| format!("ip netns exec {}", lab.namespace(side));
    let (client, server) = (inside(Side::Client), inside(Side::Server));
    let (ipv4, ipv6) = (lab::SERVER_IPV4, lab::SERVER_IPV6);
    let xroute = agent.binary.display();
    let control = agent.control.display();
    let config = agent.config.display();
    format!(
        "
It goes on running. As root:
  {client} dig @{ipv4} www.{ZONE}
  {client} dig @{ipv6} WwW.{ZONE} AAAA
  {client} dig @{ipv4} near.{ZONE} +subnet=203.0.113.0/25
  {client} dig @{ipv4} app.{ZONE} +tcp
  {client} kdig @{ipv4} app.{ZONE} +noedns
  {client} dnsperf -s {ipv4} -d {queries} -q 60 -b {buffer} -l 5
  {server} {xroute} status --socket {control}
  {server} {xroute} explain near.{ZONE} A --client 203.0.113.7 --config {config}
Log: {log}
End it with: cargo xtask demo --stop",
        queries = lab.path("queries").display(),
        buffer = load::BUFFER,
        log = lab.path("xroute.log").display(),
    )
}
