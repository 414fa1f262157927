//! `cargo xtask dist --check`: is the package one that can be lived with? On a copy of this machine that vanishes:
//! a mount namespace in which a file system in memory lies over the real one, with a network of its own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::{Order, package};
use crate::{setup, shell};

/// What is done on the copy; it stops at the first thing that is wrong and says which.
const STEPS: &str = "xtask/src/dist/check.sh";

/// What the package must hold, as `dpkg --contents` prints paths.
const CONTENTS: &[&str] = &[
    "./usr/bin/xroute",
    "./etc/xroute/xroute.toml",
    "./usr/lib/systemd/system/xroute.service",
    "./usr/lib/sysusers.d/xroute.conf",
    "./usr/share/bash-completion/completions/xroute",
    "./usr/share/zsh/vendor-completions/_xroute",
    "./usr/share/fish/vendor_completions.d/xroute.fish",
    "./usr/share/man/man1/xroute.1.gz",
    "./usr/share/doc/xroute/copyright",
    "./usr/share/doc/xroute/changelog.gz",
    "./usr/share/doc/xroute/changelog.Debian.gz",
    "./usr/share/doc/xroute/THIRD-PARTY",
    "./usr/share/doc/xroute/README.md",
    "./usr/share/doc/xroute/docs/configuration.md",
    "./usr/share/doc/xroute/docs/operations.md",
    "./usr/share/doc/xroute/examples/weighted.toml",
];

/// Makes two versions of the debug build, and does with them what an administrator does.
pub fn check() -> Result<()> {
    let binary = setup::build(false)?;
    let directory = setup::target()?.join("dist-check");
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| format!("cannot empty {}", directory.display()))?;
    }
    let make = |version: &str, place: &str| -> Result<PathBuf> {
        let directory = directory.join(place);
        package(&Order { binary: &binary, version, directory: &directory, quickly: true })
    };
    let first = make("0.0.1-1", "first")?;
    let again = make("0.0.1-1", "again")?;
    let second = make("0.0.2-1", "second")?;
    if fs::read(&first)? != fs::read(&again)? {
        bail!("the same package made twice differs: {} and {}", first.display(), again.display());
    }
    look_inside(&first)?;
    lint(&first)?;
    let place = directory.join("copy");
    fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    shell::run(
        shell::privileged("unshare")
            .args(["--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-eu"])
            .args([&shell::root().join(STEPS), &place, &first, &second]),
    )
    .context("the package was tried on a copy of this machine, which is gone again")?;
    println!("the package is installed, runs, is upgraded, removed and purged");
    Ok(())
}

/// The list of contents, and who owns them.
fn look_inside(package: &Path) -> Result<()> {
    let contents = shell::output(shell::command("dpkg").arg("--contents").arg(package))?;
    let paths: Vec<&str> = contents.lines().filter_map(|line| line.split_whitespace().nth(5)).collect();
    let missing: Vec<&&str> = CONTENTS.iter().filter(|path| !paths.contains(path)).collect();
    if !missing.is_empty() {
        bail!("the package lacks {missing:?}:\n{contents}");
    }
    if let Some(line) = contents.lines().find(|line| !line.contains(" 0/0 ") && !line.contains(" root/root "))
    {
        bail!("not everything belongs to root: {line}");
    }
    let conffiles = shell::output(shell::command("dpkg").args(["--info"]).arg(package).arg("conffiles"))?;
    if conffiles.trim() != "/etc/xroute/xroute.toml" {
        bail!("the conffiles are {conffiles:?}");
    }
    Ok(())
}

/// What lintian calls an error, or a warning, is one.
fn lint(package: &Path) -> Result<()> {
    if shell::find("lintian").is_none() {
        setup::install_package("lintian")?;
    }
    shell::run(
        shell::command("lintian")
            .args(["--allow-root", "--fail-on", "error,warning", "--info", "--tag-display-limit", "0"])
            .arg(package),
    )
}
