//! The files of the package, laid out as they are installed. The assets in router-userspace/Cargo.toml take them from
//! `target/dist-stage`, a link to here.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{epoch, third_party};
use crate::shell;

/// Where documentation goes.
const DOC: &str = "usr/share/doc/xroute";

/// Lays them out anew.
pub fn make(stage: &Path, binary: &Path, version: &str) -> Result<()> {
    if stage.exists() {
        fs::remove_dir_all(stage).with_context(|| format!("cannot empty {}", stage.display()))?;
    }
    let root = shell::root();
    let program = stage.join("usr/bin/xroute");
    install(binary, &program, 0o755)?;
    shell::run(
        shell::command("strip").args(["--strip-unneeded", "--remove-section=.comment"]).arg(&program),
    )?;
    shell::run(shell::command("chmod").arg("755").arg(&program))?;

    let packaging = root.join("packaging");
    for (from, to) in [
        (packaging.join("xroute.toml"), "etc/xroute/xroute.toml".into()),
        (packaging.join("sysusers.d/xroute.conf"), "usr/lib/sysusers.d/xroute.conf".into()),
        (packaging.join("debian/copyright"), format!("{DOC}/copyright")),
        (packaging.join("debian/lintian-overrides"), "usr/share/lintian/overrides/xroute".into()),
        (root.join("README.md"), format!("{DOC}/README.md")),
        (root.join("ARCHITECTURE.md"), format!("{DOC}/ARCHITECTURE.md")),
        (root.join("CHANGELOG.md"), format!("{DOC}/changelog")),
    ] {
        install(&from, &stage.join(to), 0o644)?;
    }
    for (from, to) in [
        ("docs", format!("{DOC}/docs")),
        ("examples", format!("{DOC}/examples")),
        ("packaging/grafana", "usr/share/xroute/grafana".into()),
        ("packaging/prometheus", "usr/share/xroute/prometheus".into()),
    ] {
        install_all(&root.join(from), &stage.join(to))?;
    }
    fs::write(stage.join(DOC).join("THIRD-PARTY"), third_party::list()?)
        .context("cannot write THIRD-PARTY")?;
    fs::write(stage.join("../changelog"), changelog(version)?).context("cannot write the changelog")?;
    from_program(stage, &program)
}

/// Manual pages and completions, as the program prints them.
fn from_program(stage: &Path, program: &Path) -> Result<()> {
    let pages = stage.join("usr/share/man/man1");
    fs::create_dir_all(&pages).with_context(|| format!("cannot make {}", pages.display()))?;
    shell::run(shell::command(program).arg("man").arg(&pages))?;
    for (shell, to) in [
        ("bash", "usr/share/bash-completion/completions/xroute"),
        ("zsh", "usr/share/zsh/vendor-completions/_xroute"),
        ("fish", "usr/share/fish/vendor_completions.d/xroute.fish"),
    ] {
        let text = shell::output(shell::command(program).args(["completions", shell]))?;
        let to = stage.join(to);
        make_parent(&to)?;
        fs::write(&to, text).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}

/// Adds the unit, which cargo-deb adds to the package by itself.
pub fn add_unit(stage: &Path) -> Result<()> {
    let unit = shell::root().join("packaging/systemd/xroute.service");
    install(&unit, &stage.join("usr/lib/systemd/system/xroute.service"), 0o644)
}

/// Makes `link` point to the stage.
pub fn point(link: &Path, stage: &Path) -> Result<()> {
    if link.is_symlink() {
        fs::remove_file(link).with_context(|| format!("cannot remove {}", link.display()))?;
    }
    make_parent(link)?;
    symlink(stage, link).with_context(|| format!("cannot make the link {}", link.display()))
}

/// Copies every file below a directory; nothing when there is none.
fn install_all(from: &Path, to: &Path) -> Result<()> {
    if !from.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let path = entry.with_context(|| format!("cannot list {}", from.display()))?.path();
        let to = to.join(path.file_name().unwrap_or_default());
        if path.is_dir() {
            install_all(&path, &to)?;
        } else {
            install(&path, &to, 0o644)?;
        }
    }
    Ok(())
}

fn install(from: &Path, to: &PathBuf, mode: u32) -> Result<()> {
    make_parent(to)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))
        .with_context(|| format!("cannot set the permissions of {}", to.display()))
}

fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().context("a path with a parent")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))
}

/// A changelog in Debian's format (deb-changelog(5)); what changed is in ours.
fn changelog(version: &str) -> Result<String> {
    let epoch = epoch()?;
    let date = shell::output(shell::command("date").env("LC_ALL", "C").args([
        "--utc",
        "--rfc-email",
        &format!("--date=@{epoch}"),
    ]))?;
    Ok(format!(
        "xroute ({version}) unstable; urgency=medium\n\n  * What changed stands in /usr/share/doc/xroute/changelog.gz.\n\n \
         -- The xroute authors <xroute@packages.example.org>  {}\n",
        date.trim()
    ))
}
