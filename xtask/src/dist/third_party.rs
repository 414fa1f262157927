//! What the binary holds of others: names, versions and licences, and the texts of the licences, each once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::licences;

/// The crates that become part of it: the agent, and the XDP program inside.
const ROOTS: [&str; 2] = ["router-userspace", "router-ebpf"];

/// The list as text.
pub fn list() -> Result<String> {
    let metadata = licences::metadata()?;
    let linked = linked(&metadata).context("`cargo metadata` tells no dependencies")?;
    let packages: Vec<&Value> = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|package| is_in(package, &linked))
        .collect();
    let mut text = String::from(
        "The program xroute holds code of the following projects, under the licences named. An expression with OR is a\n\
         choice. The texts follow, each once, with the projects that bring it.\n\n",
    );
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages {
        let field = |name: &str| package[name].as_str().unwrap_or("?");
        let name = format!("{} {}", field("name"), field("version"));
        let source = package["repository"].as_str().unwrap_or_default();
        let _ = writeln!(text, "{name}: {} {source}", field("license"));
        let manifest = Path::new(field("manifest_path"));
        for licence in manifest.parent().map(texts_in).unwrap_or_default() {
            texts.entry(licence).or_default().push(name.clone());
        }
    }
    for (licence, names) in texts {
        let _ = write!(text, "\n{}\n{}\n\n{}\n", "=".repeat(78), names.join(", "), licence);
    }
    Ok(text)
}

fn is_in(package: &Value, linked: &BTreeSet<&str>) -> bool {
    // What has no source is ours.
    !package["source"].is_null() && package["id"].as_str().is_some_and(|id| linked.contains(id))
}

/// Ids of the packages that the roots need when they run: not what only builds or tests.
fn linked(metadata: &Value) -> Option<BTreeSet<&str>> {
    let named = |id: &str| {
        metadata["packages"].as_array()?.iter().find(|package| package["id"] == id)?["name"].as_str()
    };
    let nodes: BTreeMap<&str, &Value> = metadata["resolve"]["nodes"]
        .as_array()?
        .iter()
        .filter_map(|node| Some((node["id"].as_str()?, node)))
        .collect();
    let mut open: Vec<&str> =
        nodes.keys().copied().filter(|id| named(id).is_some_and(|name| ROOTS.contains(&name))).collect();
    let mut found = BTreeSet::new();
    while let Some(id) = open.pop() {
        if !found.insert(id) {
            continue;
        }
        let dependencies = nodes.get(id).and_then(|node| node["deps"].as_array());
        open.extend(dependencies.into_iter().flatten().filter_map(|dependency| {
            let kinds = dependency["dep_kinds"].as_array()?;
            // A normal dependency has no kind.
            kinds.iter().any(|kind| kind["kind"].is_null()).then(|| dependency["pkg"].as_str())?
        }));
    }
    Some(found)
}

/// The texts of licences that lie in a crate.
fn texts_in(directory: &Path) -> Vec<String> {
    let mut paths: Vec<_> =
        fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
        .into_iter()
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
            path.is_file()
                && ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"]
                    .iter()
                    .any(|word| name.starts_with(word))
        })
        .filter_map(|path| Some(fs::read_to_string(path).ok()?.trim().replace("\r\n", "\n")))
        .filter(|text| !text.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_what_is_linked_and_not_what_only_tests() {
        let text = list().expect("cargo knows its workspace");
        for part in ["aya ", "tokio ", "clap ", "aya-ebpf ", "Permission is hereby granted"] {
            assert!(text.contains(part), "{part}");
        }
        assert!(!text.contains("\nproptest "), "only tests need it");
        assert!(!text.contains("\nrouter-common "), "that is ours");
    }
}
