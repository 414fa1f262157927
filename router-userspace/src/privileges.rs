//! What the agent may do once it has started: a few capabilities, and no way to more.
//!
//! Capabilities belong to threads, and a thread begins with its maker's. So they are given up while there is one
//! thread, after everything that needs more: ports below 1024, the mount of a bpffs, the group of the control socket.

use std::io;

use anyhow::{Context, Result};
use caps::{CapSet, Capability, CapsHashSet};

/// What the agent goes on with when it has interfaces: new maps and programs at a reload or an interface that comes
/// back, and a listen address that an upgrade brings.
pub const FAST_PATH: [Capability; 4] = [
    Capability::CAP_BPF,
    Capability::CAP_NET_ADMIN,
    Capability::CAP_NET_BIND_SERVICE,
    Capability::CAP_PERFMON,
];
/// And without interfaces.
pub const USERSPACE: [Capability; 1] = [Capability::CAP_NET_BIND_SERVICE];

/// uid 0 gives a program that is executed no capabilities (`SECBIT_NOROOT`), and it stays so (`…_LOCKED`).
const NO_ROOT: libc::c_ulong = 0b11;

/// Gives up every capability but `needed`, for good: also out of the bounding set and for programs that are executed,
/// which get none, and no new privileges whatever their file says. What this process does not have it does not get.
///
/// Call it while the process has one thread.
///
/// # Errors
/// When the kernel refuses.
pub fn keep_only(needed: &[Capability]) -> Result<()> {
    let held = caps::read(None, CapSet::Permitted).context("cannot read the capabilities")?;
    let kept: CapsHashSet = needed.iter().copied().filter(|needed| held.contains(needed)).collect();
    if held.contains(&Capability::CAP_SETPCAP) {
        let bits = prctl(libc::PR_GET_SECUREBITS, 0).context("cannot read the secure bits")?;
        prctl(libc::PR_SET_SECUREBITS, bits as libc::c_ulong | NO_ROOT)
            .context("cannot set the secure bits")?;
        for capability in caps::read(None, CapSet::Bounding).context("cannot read the bounding set")? {
            if !needed.contains(&capability) {
                caps::drop(None, CapSet::Bounding, capability)
                    .with_context(|| format!("cannot take {capability} out of the bounding set"))?;
            }
        }
    }
    caps::clear(None, CapSet::Ambient).context("cannot give up the ambient capabilities")?;
    caps::clear(None, CapSet::Inheritable).context("cannot give up the inheritable capabilities")?;
    caps::set(None, CapSet::Effective, &kept).context("cannot give up capabilities")?;
    caps::set(None, CapSet::Permitted, &kept).context("cannot give up capabilities")?;
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1).context("cannot give up new privileges")?;
    if nix::unistd::geteuid().is_root() && prctl(libc::PR_GET_SECUREBITS, 0)? as libc::c_ulong & NO_ROOT == 0
    {
        log::warn!(
            "programs of `exec` monitors run with this agent's capabilities: it is root without CAP_SETPCAP; \
             in a systemd unit set SecureBits=noroot noroot-locked and AmbientCapabilities="
        );
    }
    Ok(())
}

/// Whether this process may do all of it.
///
/// # Errors
/// When the kernel does not say.
pub fn has(needed: &[Capability]) -> Result<bool> {
    let held = caps::read(None, CapSet::Permitted).context("cannot read the capabilities")?;
    Ok(needed.iter().all(|needed| held.contains(needed)))
}

/// Makes a program that this thread executes begin with the capabilities that the thread has.
///
/// # Errors
/// When the kernel refuses.
pub fn pass_on() -> Result<()> {
    let held = caps::read(None, CapSet::Permitted).context("cannot read the capabilities")?;
    caps::set(None, CapSet::Inheritable, &held).context("cannot pass on the capabilities")?;
    for capability in held {
        caps::raise(None, CapSet::Ambient, capability)
            .with_context(|| format!("cannot pass on {capability}"))?;
    }
    Ok(())
}

fn prctl(option: libc::c_int, value: libc::c_ulong) -> io::Result<libc::c_int> {
    // SAFETY: the options used here take and return numbers.
    match unsafe { libc::prctl(option, value, 0, 0, 0) } {
        result if result >= 0 => Ok(result),
        _ => Err(io::Error::last_os_error()),
    }
}
