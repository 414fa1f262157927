//! `cargo xtask test`: every test of the project, and proof that those in the kernel were really run.
//!
//! Three passes, told apart by name: what needs neither root nor BPF; tests that load the XDP program
//! (`bpf_…`); tests in network namespaces (`netns_…`). The passes are complements of one another, so that
//! no test is left out and none runs twice.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{setup, shell};

/// Set for all passes: a test that needs BPF and cannot have it fails instead of being skipped.
const REQUIRE_BPF: &str = "XROUTE_REQUIRE_BPF";
/// Tuples of the differential run; the kernel gets a tenth of them.
const TUPLES: (&str, &str) = ("XROUTE_TUPLES", "100000");
/// Tells tests where the agent is.
const BINARY: &str = "XROUTE_BIN";

/// Runs all passes; an error when a test failed, or one in the kernel was skipped, or there were none.
pub fn run() -> Result<()> {
    let start = Instant::now();
    setup::ensure(setup::Need::Everything)?;
    let agent = setup::build(false)?;

    let mut told = Vec::new();
    let mut pass = |title: &str, targets: &[&str], names: &[&str], privileged: bool| -> Result<Tally> {
        eprintln!("\n== {title}");
        let mut cargo = shell::cargo();
        cargo
            .args(["test", "--locked", "--workspace", "--no-fail-fast"])
            .args(targets)
            .arg("--")
            .args(names)
            .env(REQUIRE_BPF, "1")
            .env(TUPLES.0, TUPLES.1)
            .env(BINARY, &agent)
            .env(setup::TOOLS, setup::directory()?);
        if privileged {
            cargo.arg("--test-threads=1"); // they measure time, and share two processors with the kernel's work
            if !shell::is_root() {
                // Built as the user, run as root; the variable reaches cargo only, no configuration file does.
                cargo.env(format!("CARGO_TARGET_{}_RUNNER", host()?), "sudo -E");
            }
        }
        let (tally, success) = follow(&mut cargo)?;
        if !success && tally.failed == 0 {
            told.push(format!("{title}: cargo test ended with an error outside of a test"));
        }
        Ok(tally)
    };
    let code = ["--lib", "--bins", "--tests"];
    let host = pass("tests on the host", &[], &["--skip", "bpf_", "--skip", "netns_"], false)?;
    let bpf = pass("tests in BPF", &code, &["bpf_"], true)?;
    let netns = pass("tests in network namespaces", &code, &["netns_", "--skip", "bpf_"], true)?;

    if bpf.skipped + netns.skipped > 0 {
        told.push(format!("{} tests in the kernel were skipped", bpf.skipped + netns.skipped));
    }
    for (tally, kind) in [(&bpf, "BPF"), (&netns, "namespace")] {
        if tally.passed + tally.failed == 0 {
            told.push(format!("no {kind} test ran"));
        }
    }
    let all = host + bpf + netns;
    eprintln!(
        "\nTests: {} passed, of them {} BPF and {} namespace tests; {} failed; {} skipped; {} s",
        all.passed,
        bpf.passed,
        netns.passed,
        all.failed,
        all.skipped,
        start.elapsed().as_secs()
    );
    for line in &told {
        eprintln!("{line}");
    }
    println!("{} passed, {} failed, {} skipped", all.passed, all.failed, all.skipped);
    std::io::stdout().flush().context("cannot write")?;
    if all.failed > 0 || !told.is_empty() {
        // The line with the numbers is to be the last one.
        std::process::exit(1);
    }
    Ok(())
}

/// How many tests there were.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl std::ops::Add for Tally {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }
}

/// Runs cargo, shows what it prints, and adds up the results of all test binaries.
fn follow(cargo: &mut Command) -> Result<(Tally, bool)> {
    let mut child =
        cargo.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let mut tally = Tally::default();
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.context("cannot read the output of cargo")?;
            let line = String::from_utf8_lossy(&line);
            // Binaries without a test of this pass are not worth a line.
            if !is_noise(&line) {
                eprintln!("{line}");
            }
            if let Some(result) = result_of(&line) {
                tally = tally + result;
            }
        }
    }
    let status = child.wait().context("cannot wait for cargo")?;
    Ok((tally, status.success()))
}

fn is_noise(line: &str) -> bool {
    line.is_empty()
        || line == "running 0 tests"
        || line.contains("test result: ok. 0 passed; 0 failed; 0 ignored")
}

/// The result in libtest's last line for a binary, wherever in the line it begins: a test may have left
/// the line before without an end.
fn result_of(line: &str) -> Option<Tally> {
    let (_, result) = line.split_once("test result: ")?;
    let (_, counts) = result.split_once(". ")?;
    let mut tally = Tally::default();
    for part in counts.split(';') {
        let mut words = part.split_whitespace();
        let (Some(number), Some(kind)) = (words.next(), words.next()) else { continue };
        let Ok(number) = number.parse() else { continue };
        match kind {
            "passed" => tally.passed = number,
            "failed" => tally.failed = number,
            "ignored" => tally.skipped = number,
            _ => {} // "measured", "filtered out", "finished in"
        }
    }
    Some(tally)
}

/// The host's target as it is spelt in the names of cargo's environment variables.
fn host() -> Result<String> {
    let version = shell::output(shell::command("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).context("rustc names no host")?;
    if host.is_empty() {
        bail!("rustc names no host");
    }
    Ok(host.to_uppercase().replace(['-', '.'], "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_result_line_of_a_test_binary_is_read() {
        let line = "test result: FAILED. 12 passed; 1 failed; 3 ignored; 0 measured; 40 filtered out; finished in 0.31s";
        let tally = Tally { passed: 12, failed: 1, skipped: 3 };
        assert_eq!(result_of(line), Some(tally));
        assert_eq!(result_of(&format!("noise without an end{line}")), Some(tally));
        assert_eq!(result_of("test a::b ... ok"), None);
        assert_eq!(result_of("running 3 tests"), None);
    }
}
