//! The compiler for BPF: Debian's where it is new enough, else rustup's nightly.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::packages;
use crate::shell;

/// Debian's compiler, its cargo and the sources of `core` that belong to it.
const DEBIAN: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];
/// The linter that belongs to it; only CI needs it.
const DEBIAN_CLIPPY: &str = "rust-web-clippy";
/// The oldest of them that builds the XDP program: major and minor.
const DEBIAN_SINCE: (u32, u32) = (1, 96);
/// What Debian's compiler is called in rustup.
const LINKED: &str = "bpf";
/// What stands for Debian's compiler where there is no rustup.
const SYSTEM: &str = "system";

/// A toolchain by the name under which the build script finds it.
pub struct Toolchain(String);

/// The toolchain that an earlier set-up chose.
pub fn recorded(tools: &Path) -> Option<Toolchain> {
    let text = fs::read_to_string(tools.join("toolchain")).ok()?;
    let name = text.lines().next()?.trim();
    (!name.is_empty()).then(|| Toolchain(name.to_owned()))
}

/// Chooses a toolchain, installs it when it is not there, records it, and returns its LLVM.
pub fn install(tools: &Path) -> Result<u32> {
    let mut told = Vec::new();
    for attempt in [debian, nightly] {
        match attempt().and_then(|toolchain| Ok((toolchain.llvm()?, toolchain))) {
            Ok((llvm, Toolchain(name))) => {
                println!("Set-up: the XDP program is built with toolchain `{name}` (LLVM {llvm})");
                fs::write(tools.join("toolchain"), format!("{name}\n"))
                    .context("cannot record the toolchain")?;
                return Ok(llvm);
            }
            Err(error) => told.push(format!("{error:#}")),
        }
    }
    bail!(
        "no compiler that can build the XDP program.\n  Debian's: {}\n  rustup's nightly: {}",
        told[0],
        told[1]
    );
}

impl Toolchain {
    /// Major version of the compiler's LLVM; an error when it cannot build `core` from its sources.
    pub fn llvm(&self) -> Result<u32> {
        let sysroot = shell::output(self.rustc().args(["--print", "sysroot"]))?;
        let core = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core/src/lib.rs");
        if !core.is_file() {
            bail!("toolchain `{}` is without the sources of core (rust-src)", self.0);
        }
        let version = shell::output(self.rustc().arg("-vV"))?;
        let llvm = version.lines().find_map(|line| line.strip_prefix("LLVM version: "));
        llvm.and_then(|llvm| llvm.split('.').next()?.parse().ok())
            .with_context(|| format!("toolchain `{}` does not say which LLVM it has", self.0))
    }

    /// `cargo clippy` of this toolchain, with what the compiler needs to build `core`.
    pub fn clippy(&self) -> Result<Command> {
        let clippy = || {
            let mut cargo = self.program("cargo");
            // What rustup set for the cargo that runs us.
            for variable in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
                cargo.env_remove(variable);
            }
            cargo.env("RUSTC_BOOTSTRAP", "1").arg("clippy");
            cargo
        };
        if shell::output(clippy().arg("--version")).is_err() {
            match self.0.as_str() {
                SYSTEM | LINKED => packages::install(&[DEBIAN_CLIPPY])?,
                name => shell::run(shell::command("rustup").args([
                    "component",
                    "add",
                    "clippy",
                    "--toolchain",
                    name,
                ]))?,
            }
        }
        shell::output(clippy().arg("--version"))?;
        Ok(clippy())
    }

    fn rustc(&self) -> Command {
        self.program("rustc")
    }

    fn program(&self, name: &str) -> Command {
        if self.0 == SYSTEM {
            return shell::command(Path::new("/usr/bin").join(name));
        }
        let mut rustup = shell::command("rustup");
        rustup.args(["run", &self.0, name]);
        rustup
    }
}

/// Debian's compiler, known to rustup as `bpf` when there is a rustup.
fn debian() -> Result<Toolchain> {
    if !packages::is_debian() {
        bail!("this is not Debian");
    }
    if packages::candidate(DEBIAN[0]).is_none() {
        packages::refresh()?;
    }
    let version = packages::candidate(DEBIAN[0]).with_context(|| format!("no package {}", DEBIAN[0]))?;
    if major_minor(&version).is_none_or(|version| version < DEBIAN_SINCE) {
        bail!("{} {version} is older than {}.{}", DEBIAN[0], DEBIAN_SINCE.0, DEBIAN_SINCE.1);
    }
    packages::install(&DEBIAN)?;
    if shell::find("rustup").is_none() {
        return Ok(Toolchain(SYSTEM.to_owned()));
    }
    let linked = Toolchain(LINKED.to_owned());
    if linked.llvm().is_err() {
        shell::run(shell::command("rustup").args(["toolchain", "link", LINKED, "/usr"]))?;
    }
    Ok(linked)
}

/// rustup's nightly. One that is there is kept as it is and only given the sources it may lack.
fn nightly() -> Result<Toolchain> {
    if shell::find("rustup").is_none() {
        bail!("there is no rustup (https://rustup.rs)");
    }
    let nightly = Toolchain("nightly".to_owned());
    if nightly.llvm().is_ok() {
        return Ok(nightly);
    }
    let rustup = |arguments: &[&str]| shell::run(shell::command("rustup").args(arguments));
    if rustup(&["component", "add", "rust-src", "--toolchain", "nightly"]).is_err() {
        rustup(&["toolchain", "install", "nightly", "--profile", "minimal", "--component", "rust-src"])?;
    }
    Ok(nightly)
}

/// `1.96.0+dfsg1-1` → (1, 96).
fn major_minor(version: &str) -> Option<(u32, u32)> {
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_versions_are_read_and_compared_as_numbers() {
        assert_eq!(major_minor("1.96.0+dfsg1-1~deb12u2"), Some((1, 96)));
        assert!(major_minor("1.100.0-1").unwrap() > DEBIAN_SINCE);
        assert!(major_minor("1.85.0-1").unwrap() < DEBIAN_SINCE);
        assert_eq!(major_minor("web"), None);
    }
}
