//! The life of an agent under load: upgrades, restarts, the service manager, privileges, interfaces that come and go.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use router_tests::agent::{Agent, binary, eventually};
use router_tests::netns::{Pair, need_netns};
use router_userspace::datapath::object::OBJECT;
use tempfile::TempDir;

mod interfaces;
mod load;
mod privileges;
mod service_manager;
mod storm;
mod unit;
mod upgrade;

use load::Load;

/// `www.gslb.test`, one unmonitored endpoint.
const WWW: [u8; 4] = [192, 0, 2, 1];

/// Writes a configuration that answers `www.gslb.test` with this address. `server` is more of `[server]`, `more`
/// comes behind everything.
fn configure(folder: &Path, address: [u8; 4], interfaces: &str, server: &str, more: &str) {
    let [ipv4, ipv6] = Pair::SERVER_ADDRESSES;
    let address = std::net::Ipv4Addr::from(address);
    let text = format!(
        r#"[server]
interfaces = [{interfaces}]
listen = ["{ipv4}:53", "[{ipv6}]:53"]
control = "control.sock"
http = "127.0.0.1:8053"
state_dir = "{folder}/state"
{server}
[cookies]
enabled = true
[[zone]]
name = "gslb.test"
soa = {{ mname = "ns1.example.net.", rname = "hostmaster.example.net.", serial = 1, refresh = 3600, retry = 600, expire = 604800, minimum = 60 }}
ns = ["ns1.example.net."]
ttl = 3600
[[profile]]
name = "www"
names = ["www.gslb.test"]
method = "priority"
ttl = 10
monitor = "off"
  [[profile.endpoint]]
  name = "only"
  address = ["{address}"]
{more}"#,
        folder = folder.display()
    );
    let aside = folder.join("xroute.toml.new");
    fs::write(&aside, text).expect("the folder is writable");
    fs::rename(aside, folder.join("xroute.toml")).expect("renamed");
}

/// Namespaces and a folder with a configuration and a copy of the program; `None` where there can be none.
fn set_up(interfaces: &str) -> Option<(Pair, TempDir)> {
    if !need_netns() {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    configure(folder.path(), WWW, interfaces, "", "");
    install(folder.path(), &fs::read(binary()).expect("the program"));
    Some((Pair::new(), folder))
}

fn program(folder: &Path) -> PathBuf {
    folder.join("xroute")
}

/// Puts a program where the agent was started from, as a package manager does.
fn install(folder: &Path, octets: &[u8]) {
    let aside = folder.join("xroute.new");
    fs::write(&aside, octets).expect("the folder is writable");
    fs::set_permissions(&aside, fs::Permissions::from_mode(0o755)).expect("ours");
    // A program that is still open for writing cannot be started.
    File::open(&aside).expect("it is there").sync_all().expect("it is written");
    fs::rename(aside, program(folder)).expect("renamed");
}

/// The program, with one letter changed in a text of its BPF object that means nothing to the kernel: for an agent
/// that is another build.
fn another_build() -> Vec<u8> {
    let mut octets = fs::read(binary()).expect("the program");
    let at = octets.windows(OBJECT.len()).position(|octets| octets == OBJECT);
    let at = at.expect("the program embeds the object; both are of one build");
    // Names of source files are there for those who read disassemblies.
    let text = b"router-ebpf/src/main.rs";
    let within =
        OBJECT.windows(text.len()).position(|octets| octets == text).expect("a name of a source file");
    octets[at + within] = b'R';
    octets
}

#[test]
fn another_build_differs_in_one_octet() {
    let (one, other) = (fs::read(binary()).expect("the program"), another_build());
    assert_eq!(one.iter().zip(&other).filter(|(one, other)| one != other).count(), 1);
}
