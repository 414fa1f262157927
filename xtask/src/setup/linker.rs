//! bpf-linker: one that is there, or built here against the compiler's LLVM.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::packages;
use crate::shell;

/// The release that this project is built with.
const VERSION: &str = "0.13.0";
/// LLVM versions that this release can be built with.
const LLVM: std::ops::RangeInclusive<u32> = 21..=23;
/// The LLVM of a linker that does not have it recorded beside it: Debian's for rustc 1.96.
const UNRECORDED: u32 = 22;

/// Whether the linker in the tools directory runs and knows this LLVM: each LLVM reads the bitcode of those before it.
pub fn suits(tools: &Path, llvm: u32) -> bool {
    let linker = tools.join("bin/bpf-linker");
    let known =
        fs::read_to_string(record(tools)).ok().map_or(Some(UNRECORDED), |text| text.trim().parse().ok());
    known.is_some_and(|known| llvm <= known)
        && linker.is_file()
        && shell::output(shell::command(&linker).arg("--version"))
            .is_ok_and(|version| version.contains(VERSION))
}

/// Builds the linker against this LLVM.
pub fn install(tools: &Path, llvm: u32) -> Result<()> {
    if !LLVM.contains(&llvm) {
        bail!("the compiler has LLVM {llvm}, bpf-linker {VERSION} knows {} to {}", LLVM.start(), LLVM.end());
    }
    if packages::is_debian() {
        let packages =
            [&format!("llvm-{llvm}-dev"), &format!("libpolly-{llvm}-dev"), "libzstd-dev", "zlib1g-dev"];
        if packages::candidate(packages[0]).is_some() {
            packages::install(&packages)?;
        }
    }
    let prefix = llvm_prefix(llvm).with_context(|| {
        format!(
            "LLVM {llvm} with its headers is not installed (looked at LLVM_PREFIX, /usr/lib/llvm-{llvm} and \
             llvm-config). Install it (apt.llvm.org, or your distribution's llvm-devel), or put bpf-linker \
             {VERSION} from https://github.com/aya-rs/bpf-linker/releases at {} yourself, and the number \
             {llvm} into the file {}",
            tools.join("bin/bpf-linker").display(),
            record(tools).display(),
        )
    })?;
    println!("Set-up: building bpf-linker {VERSION} with LLVM {llvm} in {}", prefix.display());
    let mut cargo = shell::cargo();
    // Neither flags nor a target directory meant for this repository.
    for variable in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_TARGET_DIR"] {
        cargo.env_remove(variable);
    }
    shell::run(
        cargo
            .env("LLVM_PREFIX", &prefix)
            .args(["install", "bpf-linker", "--version", VERSION, "--locked", "--force", "--quiet"])
            .args(["--no-default-features", "--features", &format!("llvm-{llvm}"), "--root"])
            .arg(tools),
    )?;
    fs::write(record(tools), format!("{llvm}\n")).context("cannot record the linker's LLVM")
}

/// Holds the LLVM that the linker was built with.
fn record(tools: &Path) -> PathBuf {
    tools.join("bin/bpf-linker.llvm")
}

/// Where this LLVM is installed.
fn llvm_prefix(llvm: u32) -> Option<PathBuf> {
    if let Some(prefix) = env::var_os("LLVM_PREFIX") {
        return Some(prefix.into());
    }
    let debian = PathBuf::from(format!("/usr/lib/llvm-{llvm}"));
    if debian.join("bin/llvm-config").is_file() {
        return Some(debian);
    }
    [format!("llvm-config-{llvm}"), "llvm-config".to_owned()].into_iter().find_map(|program| {
        let ask = |what| shell::output(shell::command(&program).arg(what)).ok();
        let version = ask("--version")?;
        (version.split('.').next()?.parse() == Ok(llvm)).then_some(())?;
        Some(PathBuf::from(ask("--prefix")?.trim()))
    })
}
