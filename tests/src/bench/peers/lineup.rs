//! All servers of a comparison at once, each on a ground of its own: idle but for the one that is measured.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use super::ground::{Cores, Ground, Weight};
use super::server::Server;
use super::world::{Part, World};
use super::{Peer, Way};
use crate::bench::estate::Estate;
use crate::bench::lab::NEAR;
use crate::bench::report::Report;

/// The nice value of the generator and of dnsperf: before others, after the sink that has the same core. It would lose
/// answers else.
const GENERATOR: i32 = -10;
/// Names that all must give the same answers for, spread over the zone.
const COMPARED: u32 = 40;

/// Servers that run.
pub struct Lineup {
    /// Those that are there, in the order they were named.
    pub servers: Vec<Server>,
    /// Those that are not on this machine.
    pub missing: Vec<&'static str>,
    /// What they serve.
    pub world: World,
    /// Who works where.
    pub cores: Cores,
    /// Of this process, which makes the queries.
    _weight: Weight,
    /// Their files; goes last.
    folder: TempDir,
}

/// Sizes of what is served.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Names of the zone.
    pub names: u32,
    /// Of the country table every how manieth row is taken.
    pub every: usize,
}

impl Lineup {
    /// Starts those of `peers` that are on this machine, on the country table of tor-geoipdb in `tables`, or a made
    /// one, and waits until all answer.
    ///
    /// # Errors
    /// When one that is there cannot be made to answer.
    pub fn start(peers: &[&'static Peer], tables: &Path, size: Size) -> Result<Self> {
        let rows = Estate::new(tables).files.remove("countries.csv").context("no country table")?;
        let rows = String::from_utf8(rows)?;
        let rows: Vec<&str> = rows.lines().step_by(size.every).collect();
        Self::on(peers, &rows.join("\n"), size.names)
    }

    /// The same, on a table of `rows`.
    ///
    /// # Errors
    /// As [`Lineup::start`].
    pub fn on(peers: &[&'static Peer], rows: &str, names: u32) -> Result<Self> {
        let cores = Cores::choose()?;
        let folder = tempfile::tempdir()?;
        let world = World::write(folder.path(), names, rows)?;
        fs::write(folder.path().join(QUESTIONS), world.questions())?;
        let mut lineup = Self {
            servers: Vec::new(),
            missing: Vec::new(),
            world,
            cores,
            _weight: Weight::give(std::process::id(), GENERATOR),
            folder,
        };
        for (number, &peer) in peers.iter().enumerate() {
            if peer.find().is_none() {
                lineup.missing.push(peer.name);
                continue;
            }
            let folder = lineup.folder.path().join(number.to_string());
            fs::create_dir(&folder)?;
            let ground = Ground::new(&folder, &cores)?;
            lineup.servers.push(Server::start(peer, &lineup.world, ground, &folder, &cores)?);
        }
        for server in &mut lineup.servers {
            server.wait()?;
        }
        Ok(lineup)
    }

    /// Says who is there and what they serve, and compares their answers.
    ///
    /// # Errors
    /// When an answer is another than it should be.
    pub fn tell(&self, report: &mut Report) -> Result<()> {
        report.section("Servers");
        for server in &self.servers {
            let version = server.peer.version().unwrap_or_else(|| "version unknown".into());
            let place = if server.peer.geography { ", answers by the client's place" } else { "" };
            let way = match server.peer.way {
                Way::Sockets => "on sockets",
                Way::AfXdp => "by AF_XDP",
                Way::Xdp => "in XDP",
            };
            report.note(server.peer.name, &format!("{version}, {way}{place}"));
        }
        for name in &self.missing {
            report.note(name, "not there");
        }
        report.count("names", self.world.names.into());
        report.count("prefixes of the country table", self.world.prefixes as u64);
        report.count("answers compared, all of them right", self.compare()? as u64);
        Ok(())
    }

    /// Questions for dnsperf.
    pub fn questions(&self) -> std::path::PathBuf {
        self.folder.path().join(QUESTIONS)
    }

    /// Asks everybody the same, from clients of several countries, and compares what they answer with what they
    /// should: the same for all that have geography, and for the others what is for the rest of the world. How
    /// many answers were compared.
    ///
    /// # Errors
    /// With the first answer that is another.
    pub fn compare(&self) -> Result<usize> {
        let mut compared = 0;
        for server in &self.servers {
            for (at, &(client, part)) in self.world.clients.iter().enumerate() {
                let end = format!("{client}/32 dev {NEAR}");
                server.ground.lab.near.sh(&format!("ip addr add {end}"));
                for number in (0..COMPARED)
                    .map(|step| (step * (self.world.names / COMPARED) + at as u32) % self.world.names)
                {
                    let answer = server.ask(&self.world, number, client)?;
                    let expected = expected(server.peer, number, part);
                    ensure!(
                        answer == expected,
                        "{} gives {client} {answer} for {}, expected {expected}",
                        server.peer.name,
                        self.world.name(number)
                    );
                    compared += 1;
                }
                server.ground.lab.near.sh(&format!("ip addr del {end}"));
            }
        }
        Ok(compared)
    }
}

const QUESTIONS: &str = "questions";

fn expected(peer: &Peer, number: u32, part: Part) -> Ipv4Addr {
    World::address(number, if peer.geography { part } else { Part::Rest })
}
