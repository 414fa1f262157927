//! Where program and maps are pinned, and what is left there.

use std::path::{Path, PathBuf};

use super::Finding;

const TOPIC: &str = "pins";

/// What there is to know.
#[derive(Clone, Debug)]
pub struct Pins {
    /// Where an agent would pin.
    pub directory: PathBuf,
    /// Whether that is on a bpffs.
    pub on_bpffs: bool,
    /// Whether this process could mount one there.
    pub may_mount: bool,
    /// Whether the bpffs is mounted so that nothing can be written.
    pub read_only: bool,
    /// What is pinned for this network namespace, or why it could not be seen.
    pub left: Result<Option<Left>, String>,
}

/// Pins of one network namespace.
#[derive(Clone, Debug, Default)]
pub struct Left {
    /// Where.
    pub directory: PathBuf,
    /// An agent holds them.
    pub agent: bool,
    /// Interfaces with the program, by name or index.
    pub interfaces: Vec<(u32, String)>,
    /// Sets that nothing uses.
    pub unused: Vec<PathBuf>,
    /// Seconds that the lease has left, negative since it lapsed.
    pub lease: Option<i64>,
}

/// Judges; `fast` says whether a fast path is wanted.
pub fn judge(pins: &Pins, fast: bool) -> Vec<Finding> {
    let mut findings = vec![place(pins).unless(fast)];
    match &pins.left {
        Err(why) => findings.push(
            Finding::note(
                TOPIC,
                format!("pins cannot be looked at: {why}"),
                "a program that an agent left would not be seen",
            )
            .remedy("sudo xroute doctor"),
        ),
        Ok(None) => {}
        Ok(Some(left)) => findings.extend(judge_left(left, &pins.directory)),
    }
    findings
}

fn place(pins: &Pins) -> Finding {
    let shown = pins.directory.display();
    if pins.on_bpffs && pins.read_only {
        return Finding::failure(
            TOPIC,
            format!("{shown} is on a bpffs that is mounted read-only here"),
            "the agent cannot pin program and maps",
        )
        .remedy("remove ProtectKernelTunables from the unit, or: mount -o remount,rw /sys/fs/bpf");
    }
    if pins.on_bpffs {
        return Finding::ok(TOPIC, format!("program and maps go to {shown}, on a bpffs"));
    }
    let found = format!("no bpffs is mounted on /sys/fs/bpf; an agent mounts one on {shown}");
    let remedy = "mount -t bpf bpf /sys/fs/bpf";
    if pins.may_mount {
        Finding::note(TOPIC, found, "that needs CAP_SYS_ADMIN, which the systemd unit does not give")
            .remedy(remedy)
    } else {
        Finding::warning(TOPIC, found, "mounting needs CAP_SYS_ADMIN, which this process lacks")
            .remedy(remedy)
    }
}

fn judge_left(left: &Left, root: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    let names: Vec<&str> = left.interfaces.iter().map(|(_, name)| name.as_str()).collect();
    let names = names.join(", ");
    let shown = left.directory.display();
    match (left.agent, left.interfaces.is_empty()) {
        (true, true) => findings.push(Finding::ok(TOPIC, format!("an agent holds {shown}"))),
        (true, false) => match left.lease {
            Some(lease) if lease < 0 => findings.push(
                Finding::failure(
                    TOPIC,
                    format!("an agent runs, but its lease on {names} lapsed {} s ago", -lease),
                    "it renews every 2 s: it hangs, or has stopped",
                )
                .remedy("look at its log (journalctl -u xroute), then: systemctl restart xroute"),
            ),
            _ => findings.push(Finding::ok(TOPIC, format!("an agent holds the program on {names}"))),
        },
        (false, false) => findings.push(dead(left, &names, root)),
        (false, true) => {}
    }
    if !left.unused.is_empty() {
        let paths: Vec<String> = left.unused.iter().map(|path| path.display().to_string()).collect();
        let finding = Finding::note(
            TOPIC,
            format!("{} sets of maps that no program uses", left.unused.len()),
            "a crash left them; they take memory until an agent starts, which removes them",
        );
        findings.push(if left.agent {
            finding
        } else {
            finding.remedy(format!("rm -r {}", paths.join(" ")))
        });
    }
    findings
}

fn dead(left: &Left, names: &str, root: &Path) -> Finding {
    let lease = match left.lease {
        Some(lease) if lease < 0 => format!("its lease lapsed {} s ago", -lease),
        Some(lease) => format!("its lease lapses in {lease} s"),
        None => "it has no lease".into(),
    };
    let paths: Vec<String> = left
        .interfaces
        .iter()
        .map(|(index, _)| left.directory.join(format!("link-{index}")).display().to_string())
        .collect();
    Finding::warning(
        TOPIC,
        format!("the program of an agent that has ended is on {names}; {lease}"),
        "what it answers is as old as that agent's end, and nobody takes a dead endpoint out of it",
    )
    .remedy(format!(
        "start an agent, which goes on with it: xroute run --pin-dir {}; or detach it: rm {}",
        root.display(),
        paths.join(" ")
    ))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn nothing() -> Pins {
        Pins {
            directory: PathBuf::new(),
            on_bpffs: false,
            may_mount: false,
            read_only: false,
            left: Ok(None),
        }
    }

    fn pins(left: Option<Left>) -> Pins {
        Pins { directory: "/sys/fs/bpf/xroute".into(), on_bpffs: true, left: Ok(left), ..nothing() }
    }

    fn left() -> Left {
        Left {
            directory: "/sys/fs/bpf/xroute/net-7".into(),
            interfaces: vec![(2, "eth0".into())],
            ..Left::default()
        }
    }

    fn last(pins: &Pins) -> Finding {
        judge(pins, true).pop().expect("a finding")
    }

    #[test]
    fn a_bpffs_is_looked_for() {
        assert_eq!(last(&pins(None)).level, Level::Ok);
        let none = Pins { on_bpffs: false, may_mount: true, ..pins(None) };
        assert_eq!(last(&none).level, Level::Note);
        let no_right = Pins { may_mount: false, ..none };
        assert_eq!(last(&no_right).level, Level::Warning);
        assert_eq!(last(&no_right).remedy.as_deref(), Some("mount -t bpf bpf /sys/fs/bpf"));
        assert_eq!(judge(&no_right, false)[0].level, Level::Note);
        assert_eq!(last(&Pins { read_only: true, ..pins(None) }).level, Level::Failure);
        let blind = Pins { left: Err("Permission denied".into()), ..pins(None) };
        assert_eq!(last(&blind).level, Level::Note);
    }

    #[test]
    fn what_a_dead_agent_left_is_told_with_both_ways_out() {
        let finding = last(&pins(Some(Left { lease: Some(-90), ..left() })));
        assert_eq!(finding.level, Level::Warning);
        assert!(finding.found.contains("eth0") && finding.found.contains("lapsed 90 s ago"), "{finding:?}");
        let remedy = finding.remedy.expect("one");
        assert!(remedy.contains("rm /sys/fs/bpf/xroute/net-7/link-2"), "{remedy}");
        assert!(remedy.contains("--pin-dir /sys/fs/bpf/xroute"), "{remedy}");
    }

    #[test]
    fn a_living_agent_is_well_unless_its_lease_lapsed() {
        let alive = Left { agent: true, lease: Some(13), ..left() };
        assert_eq!(last(&pins(Some(alive.clone()))).level, Level::Ok);
        assert_eq!(last(&pins(Some(Left { lease: Some(-3), ..alive.clone() }))).level, Level::Failure);
        let crashed = Left { unused: vec!["/p/v4-1-0".into()], ..alive.clone() };
        let finding = last(&pins(Some(crashed.clone())));
        assert_eq!((finding.level, finding.remedy), (Level::Note, None), "the agent's to remove");
        let finding = last(&pins(Some(Left { agent: false, interfaces: Vec::new(), ..crashed })));
        assert_eq!(finding.remedy.as_deref(), Some("rm -r /p/v4-1-0"));
    }
}
