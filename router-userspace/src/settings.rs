//! The `[server]` and `[probes]` parts of the configuration: where and how the agent runs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use router_common::name::Name;

mod cookies;
mod dnstap;
mod key;
mod limits;
mod rate_limit;
mod secondaries;

pub use cookies::{Cookies, Secret};
pub use dnstap::{Dnstap, DnstapTarget};
pub use key::{Algorithm, Key};
pub use limits::ChangeLimits;
pub use rate_limit::RateLimit;
pub use secondaries::{Allowed, Notified, Secondaries};

/// How the XDP program is attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum XdpMode {
    /// Native, else generic; and say which.
    #[default]
    Auto,
    /// In the driver, or fail.
    Native,
    /// In the stack, for drivers without XDP.
    Generic,
}

/// What the fast path does when the agent is gone and the lease has lapsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Stale {
    /// Goes on answering.
    #[default]
    Serve,
    /// Passes everything up.
    Pass,
}

/// What probing may cost this machine: the `[probes]` table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Probes {
    /// Probes started per second, at least 1.
    pub per_second: u32,
    /// Probes under way at one time, at least 1.
    pub in_flight: usize,
    /// Programs of `exec` monitors running at one time, at least 1.
    pub programs: usize,
}

impl Default for Probes {
    fn default() -> Self {
        Self { per_second: 5000, in_flight: 1000, programs: 32 }
    }
}

/// How the userspace server answers, besides what it answers from. A reload may change all of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dns {
    /// Largest UDP payload sent, 512..=1232.
    pub edns_size: u16,
    /// What tells this server from others on its address, for those who ask by NSID (RFC 5001); 1..=255
    /// octets.
    pub nsid: Option<Vec<u8>>,
    /// TXT of `version.bind` and `version.server`, 1..=255 octets.
    pub version: Option<String>,
    /// TXT of `id.server` and `hostname.bind` (RFC 4892), 1..=255 octets.
    pub id: Option<String>,
    /// DNS cookies; `None`: not known here.
    pub cookies: Option<Cookies>,
    /// Response rate limiting over UDP; `None`: off.
    pub rate_limit: Option<RateLimit>,
    /// `[tcp]`.
    pub tcp: Tcp,
    /// TSIG keys, each name once.
    pub keys: Vec<Arc<Key>>,
    /// The secondaries of the zones that have any, by the zones' names.
    pub secondaries: BTreeMap<Name, Secondaries>,
}

impl Default for Dns {
    fn default() -> Self {
        Self {
            edns_size: 1232,
            nsid: None,
            version: None,
            id: None,
            tcp: Tcp::default(),
            cookies: None,
            rate_limit: None,
            keys: Vec::new(),
            secondaries: BTreeMap::new(),
        }
    }
}

/// What DNS over TCP may take: the `[tcp]` table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tcp {
    /// Connections open at a time, on all listen addresses, at least 1.
    pub connections: usize,
    /// Of those, connections of one client: an IPv4 address or an IPv6 /56. At least 1.
    pub connections_per_client: usize,
    /// How long a connection may go without a reply, also when a query is being sent or a reply is not being
    /// taken, while at least half of `connections` are free; less when fewer are.
    pub idle: Duration,
    /// Whether a query may come with the first segment (RFC 7413), where the kernel can.
    pub fast_open: bool,
}

impl Default for Tcp {
    fn default() -> Self {
        Self {
            connections: 20_000,
            connections_per_client: 100,
            idle: Duration::from_secs(10),
            fast_open: true,
        }
    }
}

/// The `[server]` table, and with it what else belongs to the machine and not to a profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Server {
    /// Interfaces that the XDP program is attached to; none = userspace server only.
    pub interfaces: Vec<String>,
    /// How it is attached.
    pub xdp_mode: XdpMode,
    /// Addresses of the userspace server, and the only destinations the fast path answers for.
    pub listen: Vec<SocketAddr>,
    /// VLAN ids, 1..=4094, that the fast path answers on besides untagged frames.
    pub vlans: Vec<u16>,
    /// What happens when the agent is gone.
    pub stale: Stale,
    /// The control socket.
    pub control: PathBuf,
    /// Group of the control socket: its members may look.
    pub control_group: Option<String>,
    /// Group whose members may change something.
    pub admin_group: Option<String>,
    /// Address of metrics and status page.
    pub http: Option<SocketAddr>,
    /// Where state is kept.
    pub state_dir: PathBuf,
    /// How long a service manager waits for the first probes at most before it is told that the agent is ready.
    pub ready_within: Duration,
    /// How queries are answered, besides what they are answered from.
    pub dns: Arc<Dns>,
    /// `[probes]`.
    pub probes: Probes,
    /// `[dnstap]`; `None`: none.
    pub dnstap: Option<Dnstap>,
    /// `[limits]`.
    pub limits: ChangeLimits,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            xdp_mode: XdpMode::default(),
            listen: Vec::new(),
            vlans: Vec::new(),
            stale: Stale::default(),
            control: PathBuf::from("/run/xroute/control.sock"),
            control_group: None,
            admin_group: None,
            http: None,
            state_dir: PathBuf::from("/var/lib/xroute"),
            ready_within: Duration::from_secs(10),
            dns: Arc::default(),
            probes: Probes::default(),
            dnstap: None,
            limits: ChangeLimits::default(),
        }
    }
}
