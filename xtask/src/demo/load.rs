//! dnsperf at full speed: without EDNS, with Client Subnet, and over IPv6, all at the same time.

use std::fs;
use std::io::Read;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::lab::{Lab, SERVER_IPV4, SERVER_IPV6, Side};
use super::{PROFILES, ZONE};
use crate::interrupt::wait_for;

/// One dnsperf.
pub struct Load {
    title: &'static str,
    server: &'static str,
    options: &'static [&'static str],
}

/// All that run at the same time.
pub const LOADS: [Load; 3] = [
    Load { title: "IPv4, no EDNS", server: SERVER_IPV4, options: &[] },
    // Option 8 (RFC 7871): family 1, source 24, scope 0, 203.0.113.
    Load {
        title: "IPv4, EDNS with 203.0.113.0/24",
        server: SERVER_IPV4,
        options: &["-E", "8:00011800cb0071"],
    },
    Load { title: "IPv6, EDNS", server: SERVER_IPV6, options: &["-e"] },
];

/// Queries that each keeps outstanding: all of them and the sampler's fit the 256 packets of a veth's ring.
const OUTSTANDING: &str = "60";
/// Socket buffer, kB: what the kernel grants at most. A packet that XDP sent back counts as a whole page.
pub const BUFFER: &str = "208";

/// What dnsperf says in the end.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Which load.
    pub title: &'static str,
    /// Queries sent.
    pub sent: u64,
    /// Queries answered.
    pub answered: u64,
    /// Queries lost.
    pub lost: u64,
    /// Answers with NOERROR.
    pub noerror: u64,
    /// Queries a second.
    pub rate: f64,
}

/// Starts all loads for so many seconds.
pub fn start(lab: &Lab, seconds: u64) -> Result<Vec<(&'static Load, Child)>> {
    let queries = lab.path("queries");
    fs::write(&queries, query_file()).context("cannot write the queries")?;
    LOADS
        .iter()
        .map(|load| {
            let child = lab
                .inside(Side::Client, "dnsperf")
                .args([
                    "-s",
                    load.server,
                    "-l",
                    &seconds.to_string(),
                    "-q",
                    OUTSTANDING,
                    "-b",
                    BUFFER,
                    "-t",
                    "3",
                ])
                .args(load.options)
                .arg("-d")
                .arg(&queries)
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .context("cannot start dnsperf")?;
            Ok((load, child))
        })
        .collect()
}

/// A and AAAA of every profile, half of them in mixed case.
fn query_file() -> String {
    let mut lines = String::new();
    for profile in PROFILES {
        for rtype in ["A", "AAAA"] {
            lines += &format!("{profile}.{ZONE} {rtype}\n");
            let mixed: String = format!("{profile}.{ZONE}")
                .char_indices()
                .map(|(at, c)| if at % 2 == 0 { c.to_ascii_uppercase() } else { c })
                .collect();
            lines += &format!("{mixed} {rtype}\n");
        }
    }
    lines
}

/// Waits for all of them.
pub fn finish(loads: Vec<(&'static Load, Child)>, patience: Duration) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::new();
    for (load, mut child) in loads {
        let status =
            wait_for("dnsperf to end", patience, || child.try_wait().context("cannot wait for dnsperf"))?;
        let mut text = String::new();
        if let Some(output) = &mut child.stdout {
            output.read_to_string(&mut text).context("cannot read what dnsperf printed")?;
        }
        if let Some(output) = &mut child.stderr {
            output.read_to_string(&mut text).context("cannot read what dnsperf printed")?;
        }
        let outcome = status.success().then(|| read(load.title, &text)).flatten();
        outcomes.push(outcome.with_context(|| format!("dnsperf ({}) {status}:\n{text}", load.title))?);
    }
    if outcomes.is_empty() {
        bail!("no dnsperf ran");
    }
    Ok(outcomes)
}

/// Reads dnsperf's statistics.
fn read(title: &'static str, text: &str) -> Option<Outcome> {
    let after = |label: &str| Some(text.lines().find_map(|line| line.trim().strip_prefix(label))?.trim());
    let number = |label: &str| after(label)?.split(' ').next()?.parse().ok();
    let codes = after("Response codes:").unwrap_or_default();
    let noerror = codes
        .split(',')
        .find_map(|code| code.trim().strip_prefix("NOERROR ")?.split(' ').next()?.parse().ok());
    Some(Outcome {
        title,
        sent: number("Queries sent:")?,
        answered: number("Queries completed:")?,
        lost: number("Queries lost:")?,
        noerror: noerror.unwrap_or(0),
        rate: after("Queries per second:")?.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_dnsperf_are_read() {
        let text = "Statistics:\n\n  Queries sent:         89493\n  Queries completed:    89473 (99.98%)\n  \
                    Queries lost:         20 (0.02%)\n\n  Response codes:       NOERROR 89470 (99.99%), REFUSED 3 (0.01%)\n  \
                    Average packet size:  request 50, response 50\n  Run time (s):         1.986820\n  \
                    Queries per second:   45033.269244\n";
        let outcome = read("x", text).unwrap();
        assert_eq!(
            (outcome.sent, outcome.answered, outcome.lost, outcome.noerror),
            (89493, 89473, 20, 89470)
        );
        assert!((outcome.rate - 45033.269).abs() < 0.01);
        assert_eq!(read("x", "Error: cannot open"), None);
    }

    #[test]
    fn every_name_is_asked_for_in_both_types_and_in_mixed_case() {
        let file = query_file();
        assert_eq!(file.lines().count(), PROFILES.len() * 4);
        assert!(file.contains("WwW.GsLb.eXaMpLe.cOm AAAA\n"), "{file}");
    }
}
