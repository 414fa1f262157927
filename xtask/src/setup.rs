//! Set-up: what building, testing and the demo need, installed once, outside the repository.
//!
//! The XDP program needs a compiler that can build `core` for BPF and the linker bpf-linker, which must
//! know at least the compiler's LLVM. Both are recorded in the tools directory, where the build script of
//! router-userspace reads them:
//!
//! - `toolchain`: one line, the toolchain for `rustup run`, or `system` for Debian's own /usr/bin/cargo
//!   where there is no rustup;
//! - `bin/bpf-linker`, and beside it `bin/bpf-linker.llvm`: the LLVM it was built with.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::shell;

mod cargo_deb;
mod linker;
mod packages;
mod toolchain;

/// Installs what is missing, and says so.
pub fn run() -> Result<()> {
    let tools = directory()?;
    let missing = missing(Need::Everything)?;
    if missing.is_empty() {
        println!("Nothing to do: everything is there. Tools: {}", tools.display());
        return Ok(());
    }
    install(&missing)
}

/// What a task needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Compiler and linker.
    Build,
    /// Also dnsperf and the tools that networks are made of and looked at with.
    Everything,
}

/// Runs the set-up when something is missing that the task needs.
pub fn ensure(need: Need) -> Result<()> {
    let missing = missing(need)?;
    if missing.is_empty() { Ok(()) } else { install(&missing) }
}

/// Installs one more package, for a task that can do without. Services that it brings are not started.
pub fn install_package(package: &str) -> Result<()> {
    if !packages::is_debian() {
        bail!("only Debian's packages are installed by us");
    }
    packages::install(&[package])
}

/// cargo-deb, built when it is not there.
pub fn cargo_deb() -> Result<PathBuf> {
    cargo_deb::ensure(&directory()?)
}

/// Builds the agent and returns where it is.
pub fn build(release: bool) -> Result<PathBuf> {
    ensure(Need::Build)?;
    let mut cargo = shell::cargo();
    cargo
        .args(["build", "--locked", "--package", "router-userspace", "--bin", "xroute"])
        .env(TOOLS, directory()?);
    if release {
        cargo.arg("--release");
    }
    shell::run(&mut cargo)?;
    Ok(target()?.join(if release { "release" } else { "debug" }).join("xroute"))
}

/// clippy, fit to look at the XDP program, with the toolchain that builds it; installed when it is not there.
pub fn clippy_for_bpf() -> Result<Command> {
    ensure(Need::Build)?;
    toolchain::recorded(&directory()?).context("the set-up recorded no toolchain")?.clippy()
}

/// Where cargo puts what it builds.
pub fn target() -> Result<PathBuf> {
    Ok(match env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => env::current_dir().context("no current directory")?.join(directory),
        None => shell::root().join("target"),
    })
}

/// Names the tools directory to the build script.
pub const TOOLS: &str = "XROUTE_TOOLS";

/// The tools directory: `XROUTE_TOOLS`, else `xroute/tools` in the user's cache.
pub fn directory() -> Result<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(directory) = set(TOOLS) {
        return env::current_dir().map(|here| here.join(directory)).context("no current directory");
    }
    let cache = set("XDG_CACHE_HOME").or_else(|| Some(env::home_dir()?.join(".cache")));
    let cache = cache.context("no home directory: set XROUTE_TOOLS to where the tools should go")?;
    Ok(cache.join("xroute/tools"))
}

/// Something that has to be installed.
#[derive(PartialEq, Eq)]
enum Missing {
    Toolchain,
    Linker,
    Program(&'static packages::Program),
}

fn missing(need: Need) -> Result<Vec<Missing>> {
    let tools = directory()?;
    let mut missing = Vec::new();
    let llvm = match toolchain::recorded(&tools).and_then(|toolchain| toolchain.llvm().ok()) {
        Some(llvm) => llvm,
        None => {
            missing.push(Missing::Toolchain);
            0
        }
    };
    if !linker::suits(&tools, llvm) {
        missing.push(Missing::Linker);
    }
    for program in packages::PROGRAMS {
        let needed = need == Need::Everything || program.builds;
        if needed && !program.is_there() {
            missing.push(Missing::Program(program));
        }
    }
    Ok(missing)
}

fn install(missing: &[Missing]) -> Result<()> {
    let tools = directory()?;
    let names: Vec<&str> = missing
        .iter()
        .map(|missing| match missing {
            Missing::Toolchain => "a compiler for BPF",
            Missing::Linker => "bpf-linker",
            Missing::Program(program) => program.name,
        })
        .collect();
    println!("Set-up: missing {}.", names.join(", "));
    std::fs::create_dir_all(&tools).with_context(|| format!("cannot make {}", tools.display()))?;

    let programs: Vec<_> = missing
        .iter()
        .filter_map(|missing| if let Missing::Program(program) = missing { Some(*program) } else { None })
        .collect();
    packages::install_programs(&programs)?;
    let mut llvm = match toolchain::recorded(&tools) {
        Some(toolchain) if !missing.contains(&Missing::Toolchain) => toolchain.llvm()?,
        _ => toolchain::install(&tools)?,
    };
    if !linker::suits(&tools, llvm) {
        linker::install(&tools, llvm)?;
        llvm = toolchain::recorded(&tools).context("the toolchain is gone")?.llvm()?;
    }
    if !linker::suits(&tools, llvm) {
        bail!("bpf-linker in {} does not run, or knows only an LLVM before {llvm}", tools.display());
    }
    println!("Set-up: done. Tools: {}", tools.display());
    Ok(())
}
