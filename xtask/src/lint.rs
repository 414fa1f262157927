//! `cargo xtask lint`: what CI checks besides the tests.

use anyhow::Result;

use crate::{licences, setup, shell, tidy};

/// Everything, in the order of how soon it fails; an error at the first that does.
pub fn run() -> Result<()> {
    setup::ensure(setup::Need::Build)?;
    tidy::run()?;
    licences::run()?;
    if shell::find("cargo-deny").is_some() {
        // Advisories need a network, which a build machine may lack.
        shell::run(shell::cargo().args(["deny", "--offline", "check", "licenses", "bans", "sources"]))?;
    }
    let tools = setup::directory()?;
    let cargo = |arguments: &[&str]| {
        let mut cargo = shell::cargo();
        cargo.args(arguments).env(setup::TOOLS, &tools).env("RUSTDOCFLAGS", "-D warnings");
        shell::run(&mut cargo)
    };
    cargo(&["fmt", "--all", "--check"])?;
    cargo(&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"])?;
    cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    clippy_for_bpf()?;
    cargo(&["doc", "--locked", "--workspace", "--no-deps", "--document-private-items"])
}

/// The XDP program as its target sees it: `cfg(target_arch = "bpf")` hides most of it from the host.
fn clippy_for_bpf() -> Result<()> {
    let mut clippy = setup::clippy_for_bpf()?;
    clippy
        .current_dir(shell::root())
        .args(["--locked", "--package", "router-ebpf", "--release", "--target", "bpfel-unknown-none"])
        .args(["-Z", "build-std=core", "--target-dir"])
        .arg(setup::target()?.join("bpf-clippy"))
        .args(["--", "-D", "warnings"])
        .env("RUSTFLAGS", format!("--cfg=bpf_target_arch=\"{}\"", std::env::consts::ARCH));
    shell::run(&mut clippy)
}
