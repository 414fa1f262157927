//! Facts of this machine, read where they stand. What cannot be read is left out, never guessed.

use std::fs;
use std::path::{Path, PathBuf};

use crate::config::{self, Config};
use crate::datapath::{self, survey};
use crate::settings::Server;

use super::agent::{Agent, Answer};
use super::configuration::{Configuration, DataFile, Read, StateDir};
use super::network::Network;
use super::pins::{Left, Pins};
use super::{Finding, Report, agent, clock, configuration, interface, kernel, network, pins, trial};

mod links;
mod machine;
mod rules;
mod sockets;

/// What is looked at.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Interfaces; none: those of the configuration, else all that are switched on.
    pub interfaces: Vec<String>,
    /// The configuration file.
    pub config: PathBuf,
    /// Where pins are looked for; by default where an agent would put them.
    pub pin_dir: Option<PathBuf>,
}

/// What the files say.
pub struct Files {
    /// For the findings.
    pub configuration: Configuration,
    /// The configuration, when it is valid.
    pub config: Option<Config>,
}

/// Reads the configuration and looks at what it names.
pub fn files(path: &Path) -> Files {
    let (read, config) = match fs::File::open(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => (Read::Absent, None),
        Err(error) => (Read::Unreadable(error.to_string()), None),
        Ok(_) => match config::load(path) {
            Ok(config) => {
                (Read::Valid(config.warnings.iter().map(ToString::to_string).collect()), Some(config))
            }
            Err(errors) => (Read::Invalid(errors.faults().iter().map(ToString::to_string).collect()), None),
        },
    };
    let data = |feed: &crate::feed::Feed| {
        let age = fs::metadata(&feed.path).ok()?.modified().ok()?.elapsed().unwrap_or_default();
        Some(DataFile { kind: feed.kind.to_string(), path: feed.path.clone(), age: age.as_secs() })
    };
    let configuration = Configuration {
        file: path.to_path_buf(),
        read,
        files: config.iter().flat_map(|config| &config.feeds).filter_map(data).collect(),
        state: config.as_ref().map(|config| {
            let path = config.server.state_dir.clone();
            let state = state_dir(&path);
            (path, state)
        }),
    };
    Files { configuration, config }
}

/// Whether the state directory can be written to.
fn state_dir(path: &Path) -> StateDir {
    if !path.exists() {
        return StateDir::Absent;
    }
    match machine::is_writable(path) {
        true => StateDir::Writable,
        false if nix::unistd::geteuid().is_root() => StateDir::ReadOnly,
        false => StateDir::OthersOnly,
    }
}

/// Looks at the machine, and judges.
pub fn examine(scope: &Scope, files: &Files, agent: Agent) -> Report {
    let settings = files.config.as_ref().map(|config| &config.server);
    let fast =
        !scope.interfaces.is_empty() || settings.is_none_or(|settings| !settings.interfaces.is_empty());
    let mut kernel = machine::kernel(settings);
    let privileged = kernel.is_privileged();
    if privileged {
        let maps = survey::try_maps().into_iter();
        kernel.maps =
            maps.map(|(kind, made)| (kind.to_owned(), made.map_err(|error| error.to_string()))).collect();
        kernel.trial = Some(trial::run());
    }
    let mut findings = kernel::judge(&kernel, fast);
    findings.extend(clock::judge(&machine::clock()));
    findings.extend(configuration::judge(&files.configuration));

    let pins = look_at_pins(scope, &kernel);
    findings.extend(pins::judge(&pins, fast));
    findings.extend(interfaces(scope, settings, &agent, &pins));
    findings.extend(network::judge(&network(settings, &agent, fast), fast));
    findings.extend(agent::judge(&agent));
    Report::new(privileged && kernel.uid == 0, findings)
}

fn look_at_pins(scope: &Scope, kernel: &kernel::Kernel) -> Pins {
    let directory = scope.pin_dir.clone().unwrap_or_else(datapath::default_directory);
    let existing = directory.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let name = |index: u32| {
        survey::links()
            .ok()
            .and_then(|links| links.into_iter().find(|link| link.index == index))
            .map_or_else(|| format!("interface {index}"), |link| link.name)
    };
    let left = survey::pinned(&directory).map_err(|error| format!("{error:#}")).map(|pinned| {
        pinned.map(|pinned| Left {
            interfaces: pinned.links.iter().map(|&(index, _)| (index, name(index))).collect(),
            directory: pinned.directory,
            agent: pinned.agent,
            unused: pinned.unused,
            lease: pinned.lease,
        })
    });
    Pins {
        on_bpffs: survey::is_bpffs(existing),
        read_only: machine::is_read_only(existing),
        may_mount: kernel.capabilities >> 21 & 1 == 1,
        directory,
        left,
    }
}

fn interfaces(scope: &Scope, settings: Option<&Server>, agent: &Agent, pins: &Pins) -> Vec<Finding> {
    let all = match survey::links() {
        Ok(all) => all,
        Err(error) => {
            return vec![Finding::note(
                "interfaces",
                format!("the kernel does not list them: {error}"),
                "they are left out",
            )];
        }
    };
    let configured = settings.map_or(&[][..], |settings| &settings.interfaces);
    let mut wanted: Vec<&str> = scope.interfaces.iter().map(String::as_str).collect();
    if wanted.is_empty() {
        wanted = configured.iter().map(String::as_str).collect();
    }
    if wanted.is_empty() && settings.is_none() {
        wanted =
            all.iter().filter(|link| link.up && link.index != 1).map(|link| link.name.as_str()).collect();
    }
    let pinned: &[(u32, String)] = match &pins.left {
        Ok(Some(left)) => &left.interfaces,
        _ => &[],
    };
    let mut findings = Vec::new();
    for name in wanted {
        let pinned = pinned.iter().any(|(_, on)| on == name);
        let mut facts = links::interface(name, &all, pinned);
        facts.mode = settings.map(|settings| settings.xdp_mode);
        facts.vlans = settings.is_some_and(|settings| !settings.vlans.is_empty());
        if let Answer::Status(status) = &agent.answer {
            facts.attached = status
                .interfaces
                .iter()
                .find(|interface| interface.name == name && !interface.away)
                .map(|interface| (interface.mode.clone(), interface.why_not_native.clone()));
            // What the agent has attached is its own, wherever it is pinned.
            if facts.attached.is_some() {
                for program in
                    facts.programs.iter_mut().filter(|program| program.name.as_deref() == Some("xroute"))
                {
                    program.pinned = true;
                }
            }
        }
        findings.extend(interface::judge(&facts));
    }
    findings
}

fn network(settings: Option<&Server>, agent: &Agent, fast: bool) -> Network {
    let listen = settings.map(|settings| settings.listen.clone()).unwrap_or_default();
    let agent = match &agent.answer {
        Answer::Status(status) => Some(status.pid),
        _ => None,
    };
    let ports: Vec<u16> = listen.iter().map(std::net::SocketAddr::port).collect();
    let on = |path: &str| fs::read_to_string(path).is_ok_and(|text| text.trim() == "1");
    Network {
        addresses: sockets::addresses(),
        nonlocal: [on("/proc/sys/net/ipv4/ip_nonlocal_bind"), on("/proc/sys/net/ipv6/ip_nonlocal_bind")],
        sockets: sockets::bound(&ports, agent),
        rules: if fast { rules::for_port_53() } else { Vec::new() },
        receive_buffer: fs::read_to_string("/proc/sys/net/core/rmem_max")
            .ok()
            .and_then(|text| text.trim().parse().ok()),
        locals: survey::locals().map(|there| (there, router_common::abi::MAX_LOCALS)),
        listen,
    }
}
