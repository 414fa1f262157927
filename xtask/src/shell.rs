//! Starting other programs, and saying clearly which one failed.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The root of the workspace.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("/"))
}

/// `program`, found also in the directories of system programs, which an ordinary user's PATH may lack.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let program = program.as_ref();
    let mut command = Command::new(find(program).unwrap_or_else(|| program.into()));
    command.env("PATH", search_path());
    command
}

/// The cargo that runs this program, in the root of the workspace.
pub fn cargo() -> Command {
    let mut command = command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// `program` as root: itself, or through sudo with the environment kept.
pub fn privileged(program: impl AsRef<OsStr>) -> Command {
    if is_root() {
        return command(program);
    }
    let mut sudo = command("sudo");
    sudo.arg("-E").arg(find(program.as_ref()).unwrap_or_else(|| program.as_ref().into()));
    sudo
}

/// Whether this process may do what only root may.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Where `program` is.
pub fn find(program: impl AsRef<OsStr>) -> Option<PathBuf> {
    let program = Path::new(program.as_ref());
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_path_buf());
    }
    env::split_paths(&search_path()).map(|directory| directory.join(program)).find(|path| path.is_file())
}

/// PATH, with the system directories after it.
fn search_path() -> std::ffi::OsString {
    let mut path = env::var_os("PATH").unwrap_or_default();
    path.push(":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin");
    path
}

/// Runs it with its output on ours; an exit other than 0 is an error.
pub fn run(command: &mut Command) -> Result<()> {
    eprintln!("+ {}", line(command));
    let status = command.status().with_context(|| format!("cannot start `{}`", line(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", line(command));
    }
    Ok(())
}

/// Runs it quietly and returns what it printed; an exit other than 0 is an error that holds its last words.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot start `{}`", line(command)))?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed: {}\n{}", line(command), output.status, words.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command as one would type it.
fn line(command: &Command) -> String {
    let mut line = Path::new(command.get_program())
        .file_name()
        .unwrap_or(command.get_program())
        .to_string_lossy()
        .into_owned();
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}
