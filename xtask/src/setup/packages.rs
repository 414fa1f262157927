//! Packages of the distribution. Only Debian's are installed by us; elsewhere we say what is needed.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::shell;

/// A program, or a module of Python, that must be there.
#[derive(PartialEq, Eq)]
pub struct Program {
    /// What it is called.
    pub name: &'static str,
    /// The Debian package that holds it.
    package: &'static str,
    /// Whether building needs it, and not only the tests and the demo.
    pub builds: bool,
    /// Whether it is a module of Python, not a program.
    module: bool,
}

impl Program {
    /// Whether it is there. A module is looked for in Debian's Python too, to which its package belongs.
    pub fn is_there(&self) -> bool {
        if !self.module {
            return shell::find(self.name).is_some();
        }
        ["python3", "/usr/bin/python3"].iter().any(|python| {
            let import = format!("import {}", self.name);
            shell::command(python).args(["-c", &import]).output().is_ok_and(|output| output.status.success())
        })
    }
}

const fn program(name: &'static str, package: &'static str, builds: bool) -> Program {
    Program { name, package, builds, module: false }
}

const fn module(name: &'static str, package: &'static str) -> Program {
    Program { name, package, builds: false, module: true }
}

/// All of them.
pub const PROGRAMS: &[Program] = &[
    program("cc", "build-essential", true),
    program("c++", "build-essential", false), // of libFuzzer
    program("ip", "iproute2", false),
    program("ethtool", "ethtool", false),
    program("dnsperf", "dnsperf", false),
    program("dig", "bind9-dnsutils", false),
    program("kdig", "knot-dnsutils", false),
    program("drill", "ldnsutils", false),
    program("zonemaster-cli", "zonemaster-cli", false),
    program("python3", "python3", false),
    module("dns.message", "python3-dnspython"),
    module("jsonschema", "python3-jsonschema"),
    program("man", "man-db", false), // looks at the manual pages
    program("zsh", "zsh", false),    // and it at the completions
    program("setpriv", "util-linux", false),
    program("curl", "curl", false),
    program("tcpdump", "tcpdump", false),
    program("nsd", "nsd", false),
    program("promtool", "prometheus", false), // of it only this; the service is not started
    program("strace", "strace", false),
    program("systemd-analyze", "systemd", false), // checks the unit; it need not run
    program("dnstap-ldns", "dnstap-ldns", false),
    program("fstrm_capture", "fstrm-bin", false),
];

/// Whether this is Debian or made from it, with apt.
pub fn is_debian() -> bool {
    shell::find("apt-get").is_some() && fs::metadata("/etc/debian_version").is_ok()
}

/// Installs what holds these programs.
pub fn install_programs(programs: &[&Program]) -> Result<()> {
    if programs.is_empty() {
        return Ok(());
    }
    let packages: Vec<&str> = programs.iter().map(|program| program.package).collect();
    if is_debian() {
        return install(&packages);
    }
    let names: Vec<&str> = programs.iter().map(|program| program.name).collect();
    bail!(
        "this is not Debian, so please install the packages that hold these programs, then run it again: {}\n\
         (on Debian they are {})",
        names.join(", "),
        packages.join(", ")
    );
}

/// Installs Debian packages that are not there; refuses to remove any for it.
pub fn install<P: AsRef<str>>(packages: &[P]) -> Result<()> {
    let packages: Vec<&str> =
        packages.iter().map(AsRef::as_ref).filter(|package| !is_installed(package)).collect();
    if packages.is_empty() {
        return Ok(());
    }
    refresh()?;
    println!("Set-up: installing Debian packages {}", packages.join(" "));
    let _still = Stillness::begin()?;
    shell::run(
        shell::privileged("env")
            .args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", "--quiet=2"])
            .args(["--no-install-recommends", "--no-remove", "-o", "Dpkg::Use-Pty=0"])
            .args(&packages),
    )
}

/// As long as this lives, packages that are installed start no services: they are wanted for their programs.
struct Stillness {
    /// Whether the policy is ours to remove.
    ours: bool,
}

/// Debian asks this program before it starts a service; 101 is "no" (invoke-rc.d(8)).
const POLICY: &str = "/usr/sbin/policy-rc.d";

impl Stillness {
    fn begin() -> Result<Self> {
        if fs::exists(POLICY).unwrap_or(false) {
            return Ok(Self { ours: false });
        }
        let line = format!("printf '#!/bin/sh\\nexit 101\\n' > {POLICY} && chmod 755 {POLICY}");
        shell::run(shell::privileged("sh").args(["-c", &line]))?;
        Ok(Self { ours: true })
    }
}

impl Drop for Stillness {
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = shell::run(shell::privileged("rm").arg(POLICY))
        {
            eprintln!("{POLICY} is left and keeps services from being started by packages: {error:#}");
        }
    }
}

/// The version that apt would install, when it knows the package.
pub fn candidate(package: &str) -> Option<String> {
    let policy = shell::output(shell::command("apt-cache").args(["policy", package])).ok()?;
    let version = policy.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    (version != "(none)").then(|| version.to_owned())
}

/// Fetches apt's lists, once in the life of this process.
pub fn refresh() -> Result<()> {
    static ONCE: std::sync::Once = std::sync::Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
        result = shell::run(shell::privileged("apt-get").args(["update", "--quiet=2"]))
            .context("cannot fetch the lists of Debian packages");
    });
    result
}

fn is_installed(package: &str) -> bool {
    shell::output(shell::command("dpkg-query").args(["--show", "--showformat=${db:Status-Status}", package]))
        .is_ok_and(|status| status == "installed")
}
