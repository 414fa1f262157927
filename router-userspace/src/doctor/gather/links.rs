//! Interfaces, their drivers, and the other ends of veths.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::super::interface::{Interface, Peer, Program};
use crate::datapath::survey::{self, Link};

/// Processes whose network namespaces are looked at, so that a machine with very many is no matter.
const MOST_PROCESSES: usize = 20_000;

/// One interface by its name. `pinned`: a link of ours is pinned for it.
pub fn interface(name: &str, all: &[Link], pinned: bool) -> Interface {
    let Some(link) = all.iter().find(|link| link.name == name) else {
        let others = all.iter().map(|link| link.name.clone()).collect();
        return Interface { name: name.to_owned(), others, ..Interface::default() };
    };
    let named = |index: u32| all.iter().find(|other| other.index == index);
    let is_veth = link.kind.as_deref() == Some("veth");
    let programs = link.programs.iter().map(|&(place, id)| {
        let called = survey::program_name(id);
        Program {
            place: place.to_owned(),
            id,
            pinned: pinned && called.as_deref() == Some("xroute"),
            name: called,
            link: survey::holding_link(link.index, id),
        }
    });
    Interface {
        name: name.to_owned(),
        exists: true,
        others: Vec::new(),
        up: link.up,
        running: link.running,
        mtu: link.mtu,
        kind: link.kind.clone(),
        driver: survey::driver(name).ok().map(|driver| (driver.name, driver.version)),
        native: survey::native_xdp(link.index),
        features: survey::features(name).unwrap_or_default(),
        queues: survey::channels(name).ok().map(|channels| (channels.now, channels.most)),
        cpus: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
        spread: survey::hashes_ports(name).ok(),
        interrupts: interrupts(name),
        programs: programs.collect(),
        peer: if is_veth { peer(link, all) } else { Peer::None },
        lower: link
            .lower
            .filter(|_| !is_veth && link.namespace.is_none())
            .and_then(named)
            .map(|lower| lower.name.clone()),
        uppers: all
            .iter()
            .filter(|upper| {
                upper.lower == Some(link.index)
                    && upper.namespace.is_none()
                    && upper.kind.as_deref() != Some("veth")
            })
            .map(|upper| (upper.name.clone(), upper.kind.clone().unwrap_or_default()))
            .collect(),
        master: link
            .master
            .and_then(named)
            .map(|master| (master.name.clone(), master.kind.clone().unwrap_or_default())),
        mode: None,
        vlans: false,
        attached: None,
    }
}

/// The other end of a veth, in this namespace or in another that can be entered.
fn peer(link: &Link, all: &[Link]) -> Peer {
    let Some(index) = link.lower else { return Peer::Unknown };
    let judge = |links: &[Link]| {
        let end = links.iter().find(|end| end.index == index && end.kind.as_deref() == Some("veth"));
        end.map(|end| Peer::Program(!end.programs.is_empty()))
    };
    let Some(namespace) = link.namespace else { return judge(all).unwrap_or(Peer::Unknown) };
    for file in namespaces() {
        if survey::namespace_id(&file) == Some(namespace)
            && let Ok(links) = survey::links_in(&file)
        {
            return judge(&links).unwrap_or(Peer::Unknown);
        }
    }
    Peer::Unknown
}

/// The network namespaces that this process can see: those with names, and those of processes. Each once.
fn namespaces() -> impl Iterator<Item = File> {
    let list = |path: &str| fs::read_dir(path).into_iter().flatten().flatten();
    let named = list("/run/netns").map(|entry| entry.path());
    let of_processes = list("/proc")
        .filter(|entry| entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit))
        .take(MOST_PROCESSES)
        .map(|entry| entry.path().join("ns/net"));
    let paths: Vec<PathBuf> = named.chain(of_processes).collect();
    let mut seen = BTreeSet::new();
    paths.into_iter().filter_map(move |path| {
        let file = File::open(path).ok()?;
        seen.insert(file.metadata().ok()?.ino()).then_some(file)
    })
}

/// Interrupts of an interface's queues: number, and the CPUs that serve it.
fn interrupts(name: &str) -> Vec<(u32, String)> {
    let text = fs::read_to_string("/proc/interrupts").unwrap_or_default();
    numbers_for(&text, name)
        .into_iter()
        .filter_map(|number| {
            let path = format!("/proc/irq/{number}/effective_affinity_list");
            Some((number, fs::read_to_string(path).ok()?.trim().to_owned()))
        })
        .collect()
}

/// The numbers of interrupts whose names hold an interface's as a whole word (`eth0-TxRx-3`, `virtio0-input.0` is
/// not told by name).
fn numbers_for(text: &str, name: &str) -> Vec<u32> {
    let is_for = |line: &str| {
        line.split(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '_').any(|word| word == name)
    };
    text.lines()
        .filter_map(|line| {
            let (number, rest) = line.split_once(':')?;
            is_for(rest).then(|| number.trim().parse().ok())?
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_told_by_whole_words() {
        let text = "            CPU0       CPU1\n  24:  1  2 IR-PCI-MSI 524288-edge  eth0-TxRx-0\n  25:  1  2 IR-PCI-MSI \
                    524289-edge  eth01-TxRx-0\n  26:  0  9 IR-PCI-MSI 3-edge  mlx5_comp1@pci:0000:01:00.0\nNMI:  0  0 \
                    Non-maskable interrupts\n  27:  0  9 PCI-MSI 4-edge  eth0-TxRx-1\n";
        assert_eq!(numbers_for(text, "eth0"), [24, 27]);
        assert_eq!(numbers_for(text, "eth1"), [0u32; 0]);
    }

    #[test]
    fn loopback_is_described_and_others_are_named() {
        let all = survey::links().expect("every namespace has one");
        let loopback = interface("lo", &all, false);
        assert!(loopback.exists && loopback.kind.is_none());
        assert_eq!(loopback.peer, Peer::None);
        let away = interface("nowhere0", &all, false);
        assert!(!away.exists && away.others.contains(&"lo".to_owned()));
    }
}
