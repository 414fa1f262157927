//! What was measured on: a figure without its machine says nothing.

use std::fs;
use std::path::Path;

use crate::shell;

/// Facts by name, in the order of the report. What cannot be found out says so.
pub fn facts() -> Vec<(&'static str, String)> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = cpuinfo.lines().find_map(|line| line.strip_prefix(name));
        line.map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_owned())
    };
    let cores = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let mhz = field("cpu MHz").map_or_else(String::new, |mhz| format!(", {mhz} MHz"));
    let stepping = match (field("cpu family"), field("model\t")) {
        (Some(family), Some(model)) => format!(", family {family} model {model}"),
        _ => String::new(),
    };
    vec![
        ("date", output("date", &["--utc", "+%-d %B %Y, %H:%M UTC"])),
        ("revision", revision()),
        ("processor", format!("{}{stepping}{mhz}", field("model name").unwrap_or_else(unknown))),
        ("cores", format!("{cores}, {} thread(s) each", threads())),
        ("caches", caches()),
        ("memory", memory()),
        ("virtual machine", output("systemd-detect-virt", &[])),
        ("governor", governor()),
        ("kernel", format!("Linux {}", file("/proc/sys/kernel/osrelease"))),
        ("system", system()),
        ("BPF JIT", jit()),
        ("mitigations", mitigations()),
        ("other load when it began", load()),
    ]
}

/// The load average of one minute, and the processes that want a core now.
pub fn load() -> String {
    let text = file("/proc/loadavg");
    let fields: Vec<&str> = text.split(' ').collect();
    match fields[..] {
        [minute, five, _, tasks, ..] => {
            let running = tasks.split('/').next().and_then(|running| running.parse::<u32>().ok());
            // One is this program, which reads.
            let others = running.map_or(0, |running| running.saturating_sub(1));
            format!("load average {minute} (1 min), {five} (5 min); {others} other tasks running")
        }
        _ => unknown(),
    }
}

fn revision() -> String {
    let root = shell::root().to_string_lossy().into_owned();
    let git = |arguments: &[&str]| output("git", &[&["-C", &root], arguments].concat());
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
    let changed = if changed.is_empty() { "" } else { ", with changes that are not committed" };
    format!("{}{changed}", git(&["describe", "--always", "--tags", "--abbrev=10"]))
}

fn threads() -> String {
    let siblings = file("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list");
    let ends: Option<Vec<usize>> = siblings.split(['-', ',']).map(|end| end.parse().ok()).collect();
    match ends.as_deref() {
        Some([first, last]) if siblings.contains('-') => (last - first + 1).to_string(),
        Some(list) => list.len().to_string(),
        None => unknown(),
    }
}

fn caches() -> String {
    let mut found = Vec::new();
    for index in 0..8 {
        let folder = format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
        let read = |name: &str| fs::read_to_string(format!("{folder}/{name}")).ok();
        if let (Some(level), Some(size), Some(kind)) = (read("level"), read("size"), read("type"))
            && kind.trim() != "Instruction"
        {
            found.push(format!("L{} {}", level.trim(), size.trim()));
        }
    }
    if found.is_empty() { unknown() } else { found.join(", ") }
}

fn memory() -> String {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = kib.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map_or_else(unknown, |kib| format!("{} GiB", (kib + (1 << 19)) >> 20))
}

fn governor() -> String {
    let path = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
    if Path::new(path).exists() { file(path) } else { "none that the system can see".into() }
}

fn system() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map_or_else(unknown, |name| name.trim_matches('"').to_owned())
}

fn jit() -> String {
    let harden = match &*file("/proc/sys/net/core/bpf_jit_harden") {
        "0" => "not hardened".to_owned(),
        other => format!("bpf_jit_harden {other}"),
    };
    match &*file("/proc/sys/net/core/bpf_jit_enable") {
        "0" => "off".into(),
        "1" => format!("on, {harden}"),
        other => format!("bpf_jit_enable {other}, {harden}"),
    }
}

/// What the kernel does about the processor's flaws; those that do not concern this one are left out.
fn mitigations() -> String {
    let mut found = Vec::new();
    for entry in fs::read_dir("/sys/devices/system/cpu/vulnerabilities").into_iter().flatten().flatten() {
        let text = fs::read_to_string(entry.path()).unwrap_or_default();
        let text = text.trim();
        if !text.is_empty() && text != "Not affected" {
            found.push(format!("{}: {text}", entry.file_name().to_string_lossy()));
        }
    }
    found.sort();
    if found.is_empty() { "none needed".into() } else { found.join("; ") }
}

fn file(path: &str) -> String {
    fs::read_to_string(path).map_or_else(|_| unknown(), |text| text.trim().to_owned())
}

/// What a program says, even when it says it with failure, as systemd-detect-virt does for "none".
fn output(program: &str, arguments: &[&str]) -> String {
    match shell::command(program).args(arguments).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).trim().to_owned(),
        Err(_) => unknown(),
    }
}

fn unknown() -> String {
    "unknown".into()
}
