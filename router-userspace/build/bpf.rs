//! Builds a binary of router-ebpf with the BPF toolchain that `cargo xtask setup` prepared. Part of two build
//! scripts: this package's, and that of the tests.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Directory of the BPF toolchain; default `$XDG_CACHE_HOME/xroute/tools`.
const TOOLS: &str = "XROUTE_TOOLS";

/// The binary that measures the product, and the directory of its own sources.
const FLOOD: &str = "xroute-flood";
const MEASURES: &str = "flood";

/// Name of the toolchain that is not rustup's.
const SYSTEM: &str = "system";

/// What cargo and rustup hand to a build script and would make the inner cargo build for the host, with
/// the host's compiler or the host's flags.
const NOT_FOR_BPF: &[&str] = &[
    "CARGO",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_MAKEFLAGS",
    "CARGO_TARGET_DIR",
    "LD_LIBRARY_PATH",
    "RUSTC",
    "RUSTC_LINKER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTDOC",
    "RUSTDOCFLAGS",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
    "TARGET",
];

/// Builds this binary of router-ebpf, or ends the build script.
pub fn build_or_exit(binary: &str) {
    if let Err(error) = build(binary) {
        // A panic would bury the sentence under a backtrace note.
        eprintln!("{error}");
        println!("cargo:warning=xroute: {error}");
        std::process::exit(1);
    }
}

/// Builds this binary of router-ebpf and copies it to `OUT_DIR`.
fn build(binary: &str) -> Result<(), Box<dyn Error>> {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("CARGO_MANIFEST_DIR is not set")?);
    let workspace = package.parent().ok_or("the package has no parent directory")?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);

    for path in ["router-ebpf/Cargo.toml", "router-common/src", "router-common/Cargo.toml", "Cargo.lock"] {
        println!("cargo:rerun-if-changed={}", workspace.join(path).display());
    }
    let sources = workspace.join("router-ebpf/src");
    for entry in fs::read_dir(&sources).map_err(|error| format!("{}: {error}", sources.display()))? {
        let entry = entry?;
        // The product does not change with what measures it.
        if entry.file_name() != MEASURES || binary == FLOOD {
            println!("cargo:rerun-if-changed={}", entry.path().display());
        }
    }
    for path in ["build.rs", "../router-userspace/build/bpf.rs"] {
        println!("cargo:rerun-if-changed={path}");
    }
    for name in [TOOLS, "XDG_CACHE_HOME"] {
        println!("cargo:rerun-if-env-changed={name}");
    }

    let tools = tools_directory().ok_or("neither XROUTE_TOOLS nor HOME is set")?;
    let linker = tools.join("bin/bpf-linker");
    let toolchain_file = tools.join("toolchain");
    println!("cargo:rerun-if-changed={}", toolchain_file.display());
    let toolchain = fs::read_to_string(&toolchain_file).unwrap_or_default().trim().to_owned();
    if toolchain.is_empty() || !linker.is_file() {
        return Err(format!(
            "the BPF toolchain is not set up in {}: run `cargo xtask setup`",
            tools.display()
        )
        .into());
    }

    let target_dir = target_directory(&out).join("bpf");
    // Debian's compiler on a machine without rustup.
    let mut cargo = if toolchain == SYSTEM {
        Command::new("/usr/bin/cargo")
    } else {
        let mut cargo = Command::new("rustup");
        cargo.args(["run", &toolchain, "cargo"]);
        cargo
    };
    for name in NOT_FOR_BPF {
        cargo.env_remove(name);
    }
    // What the outer build sets for its own profile (`CARGO_PROFILE_…`, `CARGO_CFG_…`, `CARGO_FEATURE_…`).
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| {
            ["CARGO_CFG_", "CARGO_FEATURE_", "CARGO_PKG_", "CARGO_PROFILE_"]
                .iter()
                .any(|p| name.starts_with(p))
        }) {
            cargo.env_remove(name);
        }
    }
    let arch = env::var("CARGO_CFG_TARGET_ARCH")?;
    let flags = [
        &format!("--cfg=bpf_target_arch=\"{arch}\""),
        "-Cdebuginfo=2",
        "-Clink-arg=--btf",
        // 32-bit instructions, which the kernel has from 5.1 on.
        "-Ctarget-cpu=v3",
    ];
    cargo
        .args(["build", "--quiet", "--locked", "-Z", "build-std=core"])
        .args(["--package", "router-ebpf", "--bin", binary, "--release", "--target", "bpfel-unknown-none"])
        .arg("--target-dir")
        .arg(&target_dir)
        .current_dir(workspace)
        // Debian's compiler is a stable one; -Z build-std needs this. Harmless on a nightly.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", &linker)
        // The linker gets bitcode and optimises the whole program itself.
        .env("CARGO_PROFILE_RELEASE_LTO", "false")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
    let output = cargo.output().map_err(|error| {
        format!("cargo of toolchain `{toolchain}` did not start ({error}): run `cargo xtask setup`")
    })?;
    if !output.status.success() {
        eprintln!("{}", String::from_utf8_lossy(&output.stderr));
        return Err(format!(
            "`{binary}` did not build with toolchain `{toolchain}` ({}); if the toolchain is at fault, run `cargo xtask setup`",
            output.status
        )
        .into());
    }
    let object = target_dir.join("bpfel-unknown-none/release").join(binary);
    fs::copy(&object, out.join(binary))
        .map_err(|error| format!("cannot copy {}: {error}", object.display()))?;
    Ok(())
}

/// Where `cargo xtask setup` puts the BPF toolchain.
fn tools_directory() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set(TOOLS).or_else(|| {
        let cache = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
        Some(cache.join("xroute/tools"))
    })
}

/// The target directory that holds `OUT_DIR` (`<target>/<profile>/build/<package>/out`); a directory of
/// its own below it keeps the two cargos from waiting for each other's lock, and is shared by all profiles.
fn target_directory(out: &Path) -> &Path {
    out.ancestors()
        .find(|path| path.ends_with("build"))
        .and_then(|path| path.parent()?.parent())
        .unwrap_or(out)
}
