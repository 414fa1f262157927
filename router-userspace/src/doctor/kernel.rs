//! The kernel, its BPF, and what this process may do there.

use std::collections::BTreeMap;

use super::Finding;

const TOPIC: &str = "kernel";
/// The first Linux with all that the program uses: XDP with several buffers.
const NEEDED: (u32, u32) = (5, 18);

/// Capabilities (`linux/capability.h`) that the agent needs, with their bits.
const CAPABILITIES: [(&str, u32); 4] =
    [("CAP_NET_BIND_SERVICE", 10), ("CAP_NET_ADMIN", 12), ("CAP_PERFMON", 38), ("CAP_BPF", 39)];
/// Sees everything that those four see, and more.
const SYS_ADMIN: u32 = 21;

/// What there is to know.
#[derive(Clone, Debug, Default)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    /// Effective user id.
    pub uid: u32,
    /// Effective capabilities, one bit each.
    pub capabilities: u64,
    /// `net.core.bpf_jit_enable`.
    pub jit: Option<String>,
    /// `kernel.unprivileged_bpf_disabled`.
    pub unprivileged: Option<String>,
    /// `/sys/kernel/security/lockdown`.
    pub lockdown: Option<String>,
    /// Most descriptors that a process here may open.
    pub descriptors: u64,
    /// Descriptors that the configuration may need, when there is one.
    pub needed: Option<u64>,
    /// Kinds of maps, and whether one could be made; empty without the right to try.
    pub maps: BTreeMap<String, Result<(), String>>,
    /// Loading the program and asking it one query: nanoseconds of a run, or what went wrong. `None` without the
    /// right to try.
    pub trial: Option<Result<u32, String>>,
}

impl Kernel {
    /// Whether it may load and attach the program.
    pub fn is_privileged(&self) -> bool {
        let has = |bit: u32| self.capabilities >> bit & 1 == 1;
        has(12) && (has(SYS_ADMIN) || (has(38) && has(39)))
    }
}

/// Judges; `fast` says whether a fast path is wanted.
pub fn judge(kernel: &Kernel, fast: bool) -> Vec<Finding> {
    let mut findings = vec![version(&kernel.release).unless(fast), rights(kernel, fast)];
    findings.extend(trial(kernel).map(|finding| finding.unless(fast)));
    for (kind, made) in &kernel.maps {
        if let Err(why) = made {
            findings.push(map(kind, why).unless(fast));
        }
    }
    findings.extend(kernel.jit.as_deref().map(jit).map(|finding| finding.unless(fast)));
    findings.extend(kernel.unprivileged.as_deref().map(unprivileged));
    findings.extend(kernel.lockdown.as_deref().and_then(lockdown));
    findings.push(descriptors(kernel.descriptors, kernel.needed));
    findings
}

/// The two numbers that a release begins with.
fn numbers(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

fn version(release: &str) -> Finding {
    let (major, minor) = NEEDED;
    match numbers(release) {
        Some(found) if found >= NEEDED => {
            Finding::ok(TOPIC, format!("Linux {release} ({major}.{minor} or newer is needed)"))
        }
        _ => Finding::failure(
            TOPIC,
            format!("Linux {release}; the fast path needs {major}.{minor} or newer"),
            "XDP in several buffers, BPF links and mappable arrays are used",
        )
        .remedy("install a newer kernel, or set interfaces = [] and answer in userspace"),
    }
}

fn rights(kernel: &Kernel, fast: bool) -> Finding {
    let missing: Vec<&str> = CAPABILITIES
        .iter()
        .filter(|(_, bit)| kernel.capabilities >> bit & 1 == 0)
        // CAP_SYS_ADMIN stands for the two that were once part of it.
        .filter(|(_, bit)| *bit < SYS_ADMIN || kernel.capabilities >> SYS_ADMIN & 1 == 0)
        .map(|(name, _)| *name)
        .collect();
    if missing.is_empty() {
        return Finding::ok(TOPIC, format!("user {} has every capability that the agent needs", kernel.uid));
    }
    let found = format!("user {} lacks {}", kernel.uid, missing.join(", "));
    let why = "this is about the process that looks now: what it may not see is left out below";
    if kernel.uid == 0 && fast {
        // A container, most likely, in which the agent would have no more.
        Finding::warning(TOPIC, found, "an agent started from here could not attach the XDP program")
            .remedy("add them to the container (docker run --cap-add BPF --cap-add PERFMON --cap-add NET_ADMIN), or to the unit's CapabilityBoundingSet")
    } else {
        Finding::note(TOPIC, found, why).remedy("sudo xroute doctor")
    }
}

fn trial(kernel: &Kernel) -> Option<Finding> {
    Some(match kernel.trial.as_ref()? {
        Ok(nanoseconds) => Finding::ok(
            TOPIC,
            format!(
                "the XDP program loads, and answers a query that the kernel runs it on ({nanoseconds} ns with its cold start)"
            ),
        ),
        Err(why) => Finding::failure(
            TOPIC,
            format!("the XDP program was tried, attached to nothing: {why}"),
            "the agent would not start with a fast path, or would not answer from it",
        )
        .remedy("see what the kernel says: dmesg | tail; meanwhile interfaces = [] answers in userspace"),
    })
}

fn map(kind: &str, why: &str) -> Finding {
    let found = format!("the kernel makes no BPF map of kind {kind}: {why}");
    if kind == "ring buffer" {
        Finding::warning(TOPIC, found, "queries cannot be sampled from the fast path")
    } else {
        Finding::failure(TOPIC, found, "the tables of the fast path are of this kind")
    }
    .remedy("a kernel with CONFIG_BPF_SYSCALL, Linux 5.18 or newer; and no seccomp filter on bpf(2)")
}

fn jit(value: &str) -> Finding {
    match value.trim() {
        "0" => Finding::warning(
            TOPIC,
            "BPF programs are interpreted (net.core.bpf_jit_enable = 0)",
            "each query costs several times as much",
        )
        .remedy("sysctl -w net.core.bpf_jit_enable=1"),
        "2" => Finding::warning(
            TOPIC,
            "the BPF compiler writes its output to the kernel's log (net.core.bpf_jit_enable = 2)",
            "that is for debugging, and tells kernel addresses",
        )
        .remedy("sysctl -w net.core.bpf_jit_enable=1"),
        _ => Finding::ok(TOPIC, "BPF programs are compiled (net.core.bpf_jit_enable = 1)"),
    }
}

fn unprivileged(value: &str) -> Finding {
    match value.trim() {
        "0" => Finding::note(
            TOPIC,
            "every user may load BPF programs (kernel.unprivileged_bpf_disabled = 0)",
            "xroute does not need it, and it has helped attackers",
        )
        .remedy("sysctl -w kernel.unprivileged_bpf_disabled=2"),
        value => Finding::ok(
            TOPIC,
            format!("BPF is for the privileged (kernel.unprivileged_bpf_disabled = {value})"),
        ),
    }
}

fn lockdown(text: &str) -> Option<Finding> {
    let mode = text.split_once('[')?.1.split_once(']')?.0;
    Some(match mode {
        "confidentiality" => Finding::note(
            TOPIC,
            "lockdown is in mode confidentiality",
            "BPF programs may not read the kernel's memory; xroute's does not, tools that watch it may fail",
        ),
        mode => Finding::ok(TOPIC, format!("lockdown: {mode}")),
    })
}

fn descriptors(most: u64, needed: Option<u64>) -> Finding {
    let shown = if most == u64::MAX { "any number of".to_owned() } else { most.to_string() };
    match needed {
        Some(needed) if most < needed => Finding::warning(
            TOPIC,
            format!("a process started here may open {shown} files, the configuration may need {needed}"),
            "probes fail and TCP connections are refused when descriptors run out",
        )
        .remedy(format!(
            "ulimit -Hn {needed}, or LimitNOFILE={needed} in the unit; or allow less in [tcp] and [probes]"
        )),
        _ => Finding::ok(TOPIC, format!("a process started here may open {shown} files")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn good() -> Kernel {
        Kernel {
            release: "6.1.0-18-amd64".into(),
            capabilities: u64::MAX,
            jit: Some("1\n".into()),
            unprivileged: Some("2\n".into()),
            lockdown: Some("[none] integrity confidentiality\n".into()),
            descriptors: 1 << 20,
            needed: Some(22_000),
            maps: [("array of maps".to_owned(), Ok(()))].into(),
            trial: Some(Ok(800)),
            ..Kernel::default()
        }
    }

    /// What is worse than ok.
    fn bad(kernel: &Kernel) -> Vec<(Level, String)> {
        judge(kernel, true)
            .into_iter()
            .filter(|finding| finding.level > Level::Ok)
            .inspect(|finding| assert!(!finding.why.is_empty(), "{finding:?}"))
            .map(|finding| (finding.level, finding.found))
            .collect()
    }

    #[test]
    fn a_good_kernel_has_nothing_to_say_against_it() {
        assert_eq!(bad(&good()), []);
        assert!(good().is_privileged());
    }

    #[test]
    fn old_kernels_fail_only_who_wants_a_fast_path() {
        for (release, level) in [
            ("5.17.15", Level::Failure),
            ("4.19.0", Level::Failure),
            ("strange", Level::Failure),
            ("5.18.0-rc1", Level::Ok),
            ("10.0", Level::Ok),
        ] {
            let kernel = Kernel { release: release.into(), ..good() };
            assert_eq!(judge(&kernel, true)[0].level, level, "{release}");
            assert!(judge(&kernel, false)[0].level <= Level::Note);
        }
    }

    #[test]
    fn each_switch_in_the_wrong_position_is_one_finding_with_its_command() {
        let cases: [(Kernel, Level, &str, &str); 6] = [
            (Kernel { jit: Some("0".into()), ..good() }, Level::Warning, "interpreted", "bpf_jit_enable=1"),
            (Kernel { jit: Some("2".into()), ..good() }, Level::Warning, "log", "bpf_jit_enable=1"),
            (
                Kernel { unprivileged: Some("0".into()), ..good() },
                Level::Note,
                "every user",
                "unprivileged_bpf_disabled=2",
            ),
            (Kernel { descriptors: 1024, ..good() }, Level::Warning, "1024", "LimitNOFILE=22000"),
            (
                Kernel { trial: Some(Err("refused by the verifier".into())), ..good() },
                Level::Failure,
                "verifier",
                "dmesg",
            ),
            (
                Kernel { maps: [("ring buffer".into(), Err("no".into()))].into(), ..good() },
                Level::Warning,
                "ring buffer",
                "CONFIG_BPF_SYSCALL",
            ),
        ];
        for (kernel, level, found, remedy) in cases {
            let findings: Vec<Finding> =
                judge(&kernel, true).into_iter().filter(|finding| finding.level > Level::Ok).collect();
            let [finding] = findings.as_slice() else { panic!("{findings:?}") };
            assert_eq!(finding.level, level);
            assert!(finding.found.contains(found), "{finding:?}");
            assert!(finding.remedy.as_ref().is_some_and(|text| text.contains(remedy)), "{finding:?}");
        }
        let locked = Kernel { lockdown: Some("none integrity [confidentiality]".into()), ..good() };
        assert_eq!(bad(&locked), [(Level::Note, "lockdown is in mode confidentiality".into())]);
    }

    #[test]
    fn missing_rights_are_named_and_what_was_not_tried_is_not_judged() {
        let user =
            Kernel { uid: 1000, capabilities: 0, jit: None, trial: None, maps: BTreeMap::new(), ..good() };
        assert!(!user.is_privileged());
        let found = bad(&user);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].0, Level::Note);
        assert!(found[0].1.contains("CAP_BPF"), "{found:?}");
        // Root in a container.
        let container = Kernel { uid: 0, capabilities: 1 << 10, ..good() };
        assert_eq!(bad(&container)[0].0, Level::Warning);
        // Before CAP_BPF there was CAP_SYS_ADMIN.
        let old = Kernel { capabilities: 1 << 10 | 1 << 12 | 1 << 21, ..good() };
        assert!(old.is_privileged());
        assert_eq!(bad(&old), []);
    }
}
