//! How long an answer takes at a moderate rate, as dnsperf sees it.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};

use super::ground::Cores;
use super::server::Server;
use crate::bench::lab::SERVICE;

/// Times of answers, in microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Half of them are not above this.
    pub p50: f64,
    /// 99 of a hundred.
    pub p99: f64,
    /// 999 of a thousand.
    pub p999: f64,
    /// Share of queries without an answer.
    pub lost: f64,
    /// Answers.
    pub answers: usize,
}

/// Asks a server at a rate (1/s) for some seconds.
///
/// # Errors
/// When dnsperf is not there, or nothing is answered.
pub fn measure(server: &Server, questions: &Path, rate: u32, seconds: u32, cores: &Cores) -> Result<Latency> {
    // taskset and nice before it enters the namespace are inherited.
    let mut command = server.ground.lab.near.command("taskset");
    let mut child = command
        .args(["--cpu-list", &cores.client.to_string(), "nice", "-n", "-19", "dnsperf", "-v", "-e"])
        .args(["-s", &SERVICE.to_string(), "-c", "8", "-T", "1", "-q", "1000", "-t", "1"])
        .args(["-Q", &rate.to_string(), "-l", &seconds.to_string(), "-d"])
        .arg(questions)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot run dnsperf")?;
    let mut times: Vec<f64> = Vec::new();
    let mut sent = 0.0;
    let output = child.stdout.take().context("a pipe")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        // > NOERROR h0000001.bench.test A 0.000123
        if let Some(reply) = line.strip_prefix("> NOERROR ") {
            times.extend(
                reply.rsplit(' ').next().and_then(|time| time.parse::<f64>().ok()).map(|time| time * 1e6),
            );
        } else if let Some(count) = line.trim().strip_prefix("Queries sent:") {
            sent = count.trim().parse().unwrap_or(0.0);
        }
    }
    ensure!(child.wait()?.success() && !times.is_empty(), "{}: dnsperf failed", server.peer.name);
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
    let lost = (1.0 - times.len() as f64 / sent).max(0.0);
    Ok(Latency { p50: at(0.5), p99: at(0.99), p999: at(0.999), lost, answers: times.len() })
}
