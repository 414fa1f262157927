//! Packages of the distribution. Only Debian's are installed by us; elsewhere we say what is needed.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::shell;

/// A program that must be there.
#[derive(PartialEq, Eq)]
pub struct Program {
    /// What it is called.
    pub name: &'static str,
    /// The Debian package that holds it.
    package: &'static str,
    /// Whether building needs it, and not only the tests and the demo.
    pub builds: bool,
}

const fn program(name: &'static str, package: &'static str, builds: bool) -> Program {
    Program { name, package, builds }
}

/// All of them.
pub const PROGRAMS: &[Program] = &[
    program("cc", "build-essential", true),
    program("ip", "iproute2", false),
    program("ethtool", "ethtool", false),
    program("dnsperf", "dnsperf", false),
    program("dig", "bind9-dnsutils", false),
    program("kdig", "knot-dnsutils", false),
    program("tcpdump", "tcpdump", false),
    program("nsd", "nsd", false),
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
    shell::run(
        shell::privileged("env")
            .args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", "--quiet=2"])
            .args(["--no-install-recommends", "--no-remove", "-o", "Dpkg::Use-Pty=0"])
            .args(&packages),
    )
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
