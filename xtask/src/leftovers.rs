//! What a test or a demo could leave behind on the machine. CI compares the list before with the one after.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::shell;

/// Prints the list.
pub fn run() -> Result<()> {
    for line in list()? {
        println!("{line}");
    }
    Ok(())
}

/// Namespaces, XDP programs, veth pairs, pins, agents that run, directories of the demo; sorted.
fn list() -> Result<Vec<String>> {
    let mut found = Vec::new();
    let namespaces = shell::output(shell::command("ip").args(["netns", "list"]))?;
    found.extend(namespaces.lines().filter_map(|l| Some(format!("namespace {}", l.split(' ').next()?))));

    let links = shell::output(shell::command("ip").args(["-details", "-json", "link", "show"]))?;
    let links: Value = serde_json::from_str(&links).context("`ip -json link show` printed no JSON")?;
    for link in links.as_array().into_iter().flatten() {
        let name = link["ifname"].as_str().unwrap_or("?");
        if link.get("xdp").is_some() {
            found.push(format!("xdp {name}"));
        }
        if link["linkinfo"]["info_kind"] == "veth" {
            found.push(format!("veth {name}"));
        }
    }
    for (kind, directory) in [("pin", "/sys/fs/bpf"), ("demo", "/tmp")] {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if kind == "pin" || name.starts_with("xroute-") {
                found.push(format!("{kind} {directory}/{name}"));
            }
        }
    }
    for entry in fs::read_dir("/proc").context("cannot read /proc")?.flatten() {
        if fs::read_to_string(entry.path().join("comm")).is_ok_and(|name| name.trim() == "xroute") {
            found.push(format!("process xroute {}", entry.file_name().to_string_lossy()));
        }
    }
    found.sort();
    Ok(found)
}
