//! An estate in service in the kernel, and the clients that ask for it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use ipnet::Ipv4Net;
use router_common::atlas::Atlas;
use router_common::compile::compile;
use router_common::decide::{Asker, Snapshot};
use router_common::model::{EndpointId, Model, ProfileId};
use router_common::name::Name;
use router_common::sim::{self, Sim};
use router_common::tables::{Frontage, Tables};
use router_common::view::{Health, HealthView};
use router_userspace::config;
use router_userspace::datapath::{Datapath, Mode, Options};
use router_userspace::settings::{Stale, XdpMode};
use tempfile::TempDir;

use super::estate::Estate;
use super::flood::Ask;
use super::lab::{FAR, Lab, SERVICE};
use crate::netns::Namespace;
use crate::packet::{Query, rtype};
use crate::random::Rng;

/// A compiled estate.
pub struct Serving {
    /// Its tables.
    pub tables: Tables,
    /// Profiles, and names of each.
    size: [usize; 2],
    /// IPv4 prefixes of its country table: where clients come from.
    networks: Vec<Ipv4Net>,
}

/// What queries are like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// No OPT record.
    Bare,
    /// An OPT record.
    Edns,
    /// An OPT record with a Client Subnet option.
    Subnet,
}

impl Serving {
    /// Compiles it, every endpoint healthy, answered from [`SERVICE`].
    ///
    /// # Errors
    /// When it is no good configuration, or too large for tables.
    pub fn new(estate: &Estate) -> Result<Self> {
        let config =
            config::parse(&estate.text, "bench.toml", &estate.files).map_err(|errors| anyhow!("{errors}"))?;
        let model = Arc::new(config.model);
        let atlas = Arc::new(Atlas::build(&model, &config.geography, &config.latency));
        let health = Arc::new(healthy(&model));
        let snapshot = Snapshot { model: model.clone(), atlas, health };
        let frontage = Frontage { addresses: vec![SERVICE.into()], edns_size: 1232, ..Frontage::default() };
        let mut keys = Rng::new(1);
        let tables = compile(&snapshot, &frontage, || [keys.draw(), keys.draw()], 1)?.tables;
        let countries = estate.files.get("countries.csv").context("an estate has a country table")?;
        let networks: Vec<Ipv4Net> = String::from_utf8_lossy(countries)
            .lines()
            .filter_map(|line| line.split(',').next()?.parse().ok())
            .filter(|network: &Ipv4Net| can_be_a_client(network.network()))
            .collect();
        ensure!(!networks.is_empty(), "no clients");
        Ok(Self { tables, size: estate.size, networks })
    }

    /// Query number `number` of a sequence: a random name, asked for by a random client (the source address) on behalf
    /// of another (the Client Subnet, /24). Random is first the prefix of the country table, then the address in it.
    ///
    /// # Errors
    /// When the fast path does not answer it.
    pub fn ask(&self, form: Form, number: usize) -> Result<Ask> {
        let mut rng = Rng::new(number as u64 ^ 0x5bd1_e995_0000_0000);
        let name = Estate::name(rng.below(self.size[0] * self.size[1]), self.size[1]);
        let (source, other) = (self.client(&mut rng), self.client(&mut rng));
        let query = Query::new(&name, rtype::A);
        let subnet = Ipv4Net::new(other, 24)?.trunc();
        let (query, ecs) = match form {
            Form::Bare => (query, None),
            Form::Edns => (query.edns(1232), None),
            Form::Subnet => {
                (query.edns(1232).ecs(&subnet.to_string()), Some((IpAddr::V4(subnet.network()), 24)))
            }
        };
        let asker = Asker { source: source.into(), ecs };
        let name: Name = name.parse().map_err(|error| anyhow!("{name}: {error:?}"))?;
        let possible = Sim::new(&self.tables)
            .enumerate(&sim::query(&name, false, &asker))
            .map_err(|miss| anyhow!("{name} is not answered: {miss:?}"))?;
        let counts = possible.iter().map(|possible| possible.ancount);
        let least = counts.clone().min().context("an answer without cells")?;
        Ok(Ask { query, source, records: (least, counts.max().unwrap_or(least)) })
    }

    fn client(&self, rng: &mut Rng) -> Ipv4Addr {
        loop {
            let network = self.networks[rng.below(self.networks.len())];
            let hosts = u32::MAX.checked_shr(network.prefix_len().into()).unwrap_or(0);
            let address = Ipv4Addr::from_bits(network.network().to_bits() | rng.draw() as u32 & hosts);
            if can_be_a_client(address) {
                return address;
            }
        }
    }

    /// Brings it into service at the far end of a lab, in the driver.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start(&self, lab: &Lab) -> Result<Responder> {
        let pins = tempfile::tempdir()?;
        let options = Options {
            interfaces: &[FAR.to_owned()],
            mode: XdpMode::Native,
            pin_dir: pins.path().join("pins"),
            stale: Stale::Serve,
            lease: Duration::from_secs(3600),
        };
        let (datapath, _) = lab.far.run(|| Datapath::open(&options, &self.tables))?;
        let namespace = lab.far.share();
        let native = datapath.interfaces().iter().all(|attached| attached.mode == Mode::Native);
        let responder = Responder { datapath: Some(datapath), namespace, _pins: pins };
        ensure!(native, "it does not run in the driver");
        Ok(responder)
    }
}

/// The program in service; it is taken away with the value.
pub struct Responder {
    datapath: Option<Datapath>,
    namespace: Namespace,
    _pins: TempDir,
}

impl Responder {
    /// The data path.
    pub fn datapath(&self) -> Option<&Datapath> {
        self.datapath.as_ref()
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        if let Some(datapath) = self.datapath.take()
            && let Err(error) = self.namespace.run(|| datapath.detach())
        {
            eprintln!("{error:#}");
        }
    }
}

/// Whether queries come from an address: not from a special one, and not from the lab's own network.
fn can_be_a_client(address: Ipv4Addr) -> bool {
    let first = address.octets()[0];
    !matches!(first, 0 | 10 | 127 | 224..)
}

/// Every monitor says healthy.
fn healthy(model: &Model) -> HealthView {
    let ids = (0..).map(ProfileId).zip(model.profiles());
    let endpoints = ids.flat_map(|(profile, found)| {
        (0..found.endpoints.len() as u32).map(move |index| EndpointId { profile, index })
    });
    let verdicts = endpoints
        .filter(|&id| model.endpoint(id).monitor.is_some())
        .map(|id| (id, Health::Healthy))
        .collect();
    HealthView { verdicts, ..HealthView::default() }
}
