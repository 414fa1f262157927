//! cargo-deb, which makes the Debian package: in the tools directory, built there once.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::shell;

/// The release that packages are made with.
const VERSION: &str = "3.8.0";

/// The program, built when it is not there.
pub fn ensure(tools: &Path) -> Result<PathBuf> {
    let program = tools.join("bin/cargo-deb");
    if suits(&program) {
        return Ok(program);
    }
    println!("Set-up: building cargo-deb {VERSION}");
    let mut cargo = shell::cargo();
    // Neither flags nor a target directory meant for this repository.
    for variable in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_TARGET_DIR"] {
        cargo.env_remove(variable);
    }
    shell::run(
        // Unoptimised and without a packer of its own, because it is run once and leaves packing to xz: a minute of
        // building instead of four.
        cargo
            .args(["install", "cargo-deb", "--version", VERSION, "--locked", "--force", "--quiet"])
            .args(["--debug", "--no-default-features", "--root"])
            .arg(tools),
    )
    .with_context(|| {
        format!(
            "cargo-deb {VERSION} could not be built: without a way to crates.io, put the program at {} yourself",
            program.display()
        )
    })?;
    Ok(program)
}

fn suits(program: &Path) -> bool {
    program.is_file()
        && shell::output(shell::command(program).arg("--version"))
            .is_ok_and(|version| version.contains(VERSION))
}
