//! `cargo xtask dist`: what is handed out. A Debian package and an archive of the same files, reproducible for one
//! commit, compiler and path: their only times are those of the commit (`SOURCE_DATE_EPOCH`).

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{setup, shell};

mod check;
mod stage;
mod third_party;

pub use check::check;

/// One package to be made.
struct Order<'a> {
    /// The agent.
    binary: &'a Path,
    /// Version of the package.
    version: &'a str,
    /// Where the package goes, and the files that it is made of.
    directory: &'a Path,
    /// Whether it is to be made quickly rather than small.
    quickly: bool,
}

/// Makes both in `target/dist`.
pub fn run() -> Result<()> {
    let binary = setup::build(true)?;
    let directory = setup::target()?.join("dist");
    let version = version()?;
    if directory.exists() {
        fs::remove_dir_all(&directory).with_context(|| format!("cannot empty {}", directory.display()))?;
    }
    let package =
        package(&Order { binary: &binary, version: &version, directory: &directory, quickly: false })?;
    let archive = archive(&directory, &version)?;
    let names: Vec<_> = [&package, &archive].into_iter().filter_map(|path| path.file_name()).collect();
    let sums = shell::output(shell::command("sha256sum").current_dir(&directory).args(&names))?;
    fs::write(directory.join("SHA256SUMS"), &sums).context("cannot write SHA256SUMS")?;
    println!("in {}:\n{}", directory.display(), sums.trim_end());
    Ok(())
}

/// Makes the Debian package.
fn package(order: &Order<'_>) -> Result<PathBuf> {
    let Order { binary, version, directory, quickly } = *order;
    let cargo_deb = setup::cargo_deb()?;
    stage::make(&directory.join("stage"), binary, version)?;
    let mut command = shell::command(cargo_deb);
    command
        .current_dir(shell::root())
        .env("SOURCE_DATE_EPOCH", epoch()?)
        // The assets are named relative to the package, in this directory.
        .env("CARGO_TARGET_DIR", directory.join("cargo"))
        .args(["--package", "router-userspace", "--no-build", "--no-strip", "--locked", "--quiet"])
        .args(["--compress-system", "--deb-version", version, "--output"])
        .arg(directory);
    if quickly {
        command.arg("--fast");
    }
    // The manifest names one place; a check makes its packages beside it.
    let link = shell::root().join("target/dist-stage");
    stage::point(&link, &directory.join("stage"))?;
    let made = shell::run(&mut command);
    let _ = fs::remove_file(&link);
    made?;
    let _ = fs::remove_dir_all(directory.join("cargo"));
    let mut packages: Vec<PathBuf> = fs::read_dir(directory)
        .with_context(|| format!("cannot list {}", directory.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "deb"))
        .collect();
    match (packages.pop(), packages.is_empty()) {
        (Some(package), true) => Ok(package),
        _ => bail!("cargo-deb made no package, or several, in {}", directory.display()),
    }
}

/// Packs the files into an archive, always in the same way.
fn archive(directory: &Path, version: &str) -> Result<PathBuf> {
    let name = format!("xroute-{version}-linux-{}", std::env::consts::ARCH);
    let path = directory.join(format!("{name}.tar.gz"));
    let tar = directory.join("xroute.tar");
    stage::add_unit(&directory.join("stage"))?;
    shell::run(
        shell::command("tar")
            .args(["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=gnu"])
            .arg(format!("--mtime=@{}", epoch()?))
            .arg(format!("--transform=s,^\\.,{name},"))
            .arg("--directory")
            .arg(directory.join("stage"))
            .arg("--file")
            .arg(&tar)
            .arg("."),
    )?;
    let packed = shell::command("gzip")
        .args(["--no-name", "--best", "--stdout"])
        .arg(&tar)
        .output()
        .context("cannot start gzip")?;
    if !packed.status.success() {
        bail!("gzip failed: {}", packed.status);
    }
    fs::write(&path, packed.stdout).with_context(|| format!("cannot write {}", path.display()))?;
    fs::remove_file(&tar).context("cannot remove the archive that was packed")?;
    Ok(path)
}

/// Version of the package: the workspace's, first revision.
fn version() -> Result<String> {
    let path = shell::root().join("Cargo.toml");
    let manifest = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let manifest: toml::Table = manifest.parse().with_context(|| format!("{} is no TOML", path.display()))?;
    let version = (|| manifest.get("workspace")?.get("package")?.get("version")?.as_str())();
    Ok(format!("{}-1", version.context("the workspace has no version")?))
}

/// `SOURCE_DATE_EPOCH`, or the time of the commit; seconds since 1970.
fn epoch() -> Result<String> {
    if let Some(given) = std::env::var_os("SOURCE_DATE_EPOCH") {
        return given
            .into_string()
            .ok()
            .filter(|text| text.parse::<u64>().is_ok())
            .context("SOURCE_DATE_EPOCH is no number");
    }
    let time =
        shell::output(shell::command("git").current_dir(shell::root()).args(["log", "-1", "--format=%ct"]));
    Ok(time.map_or_else(|_| "1".to_owned(), |time| time.trim().to_owned()))
}
