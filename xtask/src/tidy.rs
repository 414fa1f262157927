//! The project's own rules, as far as a look at the text can check them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::shell;

/// A word that only some places may name.
struct Ward {
    /// As it stands in Rust code.
    word: &'static str,
    /// Paths from the root where the rule holds, by how they begin.
    within: &'static str,
    /// Paths in there that may name it; a directory when it ends in `/`.
    places: &'static [&'static str],
    /// Why.
    because: &'static str,
}

const ONE_FILE: &str = "one file holds the raw accesses to packets, so one file is to be read for soundness";

const WARDS: &[Ward] = &[
    Ward {
        word: " as *const",
        within: "router-ebpf/",
        places: &["router-ebpf/src/packet.rs"],
        because: ONE_FILE,
    },
    Ward {
        word: " as *mut",
        within: "router-ebpf/",
        places: &["router-ebpf/src/packet.rs"],
        because: ONE_FILE,
    },
    Ward {
        word: "_unaligned(",
        within: "router-ebpf/",
        places: &["router-ebpf/src/packet.rs"],
        because: ONE_FILE,
    },
    Ward {
        word: "unsafe ",
        within: "router-common/",
        places: &[
            "router-common/src/abi.rs",
            "router-common/src/abi/location.rs",
            "router-common/src/lookup.rs",
        ],
        because: "only the layout of the tables, asserted beside it, may be looked at as words",
    },
    Ward {
        word: "aya::",
        within: "router-",
        places: &["router-userspace/src/datapath/", "router-userspace/src/datapath.rs"],
        because: "only the data path knows that there is a kernel",
    },
    Ward {
        word: "aya_ebpf",
        within: "router-",
        places: &["router-ebpf/"],
        because: "only the XDP program runs in the kernel",
    },
    Ward {
        word: "reqwest",
        within: "router-",
        places: &[
            "router-userspace/src/probe/",
            "router-userspace/src/probe.rs",
            "router-userspace/src/cli/",
        ],
        because: "only probes, and the command line that asks the agent, are HTTP clients",
    },
    Ward {
        word: "hickory",
        within: "router-",
        places: &["router-userspace/src/dns/", "router-userspace/src/dns.rs"],
        because: "only the userspace server reads DNS messages with it; everything else has our own wire code",
    },
];

/// Words that say that something is unfinished. Split, so that this file does not hold them.
const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("place", "holder"),
    concat!("for", " now"),
    concat!("not", " yet implemented"),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
];

/// A file longer than this holds more than one idea.
const LONGEST: usize = 700;

/// Prints every breach; an error when there is one.
pub fn run() -> Result<()> {
    let root = shell::root();
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();
    let mut breaches = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let path = file.strip_prefix(root).unwrap_or(file).to_string_lossy();
        breaches.extend(breaches_in(&path, &text));
    }
    if !breaches.is_empty() {
        bail!("{} breaches of the project's rules:\n  {}", breaches.len(), breaches.join("\n  "));
    }
    println!("{} files, tidy", files.len());
    Ok(())
}

/// The text files of the project that people write.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("cannot list {}", directory.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if path.is_symlink() || ["target", ".git", "corpus", "artifacts"].contains(&&*name) {
            continue;
        }
        if path.is_dir() {
            collect(&path, files)?;
        } else if [".rs", ".toml", ".md"].iter().any(|end| name.ends_with(end)) {
            files.push(path);
        }
    }
    Ok(())
}

/// What is wrong with one file, each with its line.
fn breaches_in(path: &str, text: &str) -> Vec<String> {
    let mut breaches = Vec::new();
    let is_code = path.ends_with(".rs");
    if is_code && text.lines().count() > LONGEST {
        breaches.push(format!("{path}: {} lines; one idea a file, {LONGEST} at most", text.lines().count()));
    }
    for (at, line) in text.lines().enumerate() {
        let place = format!("{path}:{}", at + 1);
        for word in UNFINISHED.iter().filter(|word| line.contains(**word)) {
            breaches.push(format!("{place}: `{word}`: finish it, or leave it out"));
        }
        let code = line.split("//").next().unwrap_or(line);
        for ward in WARDS.iter().filter(|ward| is_code && path.starts_with(ward.within)) {
            let allowed = ward
                .places
                .iter()
                .any(|place| if place.ends_with('/') { path.starts_with(place) } else { path == *place });
            if !allowed && code.contains(ward.word) {
                breaches.push(format!("{place}: `{}`: {}", ward.word.trim(), ward.because));
            }
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_out_of_its_place_is_found_and_one_in_a_comment_is_not() {
        assert_eq!(breaches_in("router-userspace/src/dns.rs", "use hickory_proto::op::Message;"), [""; 0]);
        assert_eq!(breaches_in("router-common/src/lib.rs", "// as hickory does"), [""; 0]);
        let found = breaches_in("router-common/src/lib.rs", "\nuse hickory_proto::op::Message;");
        assert!(
            found.len() == 1 && found[0].starts_with("router-common/src/lib.rs:2: `hickory`"),
            "{found:?}"
        );
        assert_eq!(breaches_in("router-ebpf/src/parse.rs", "let p = x as *const u8;").len(), 1);
        assert_eq!(breaches_in("router-ebpf/src/packet.rs", "let p = x as *const u8;").len(), 0);
        assert_eq!(breaches_in("router-ebpf/src/parse.rs", "fn parse(context: *mut xdp_md) {}").len(), 0);
        assert_eq!(breaches_in("router-userspace/src/agent.rs", "let p = x as *mut u8;").len(), 0);
    }

    #[test]
    fn unfinished_work_and_long_files_are_found() {
        assert_eq!(breaches_in("README.md", &format!("{}: more", UNFINISHED[0])).len(), 1);
        assert_eq!(breaches_in("a/b.rs", &"\n".repeat(LONGEST)).len(), 0);
        assert_eq!(breaches_in("a/b.rs", &"\n".repeat(LONGEST + 1)).len(), 1);
    }
}
