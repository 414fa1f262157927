//! The configuration file: text to model, every mistake with file, line and column.
//!
//! [`load`] reads from the disk, [`parse`] from anything. Nothing in a file is accepted and ignored:
//! a key that nobody knows, or that the chosen method does not use, is a mistake. All mistakes of all
//! files are reported together. Paths are relative to the file that names them.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use router_common::model::{Coordinates, Invalid, Model, Parts, Place};
use router_common::name::Name;
use router_common::view::{Geography, Latency};
use toml::de::DeTable;

use crate::fault::Fault;
use crate::feed::{Feed, FeedKind};
use crate::geo::{self, Wanted};
use crate::latency;
use crate::settings::Server;

mod cookies;
mod dnstap;
mod files;
mod key;
mod limits;
mod monitor;
mod profile;
mod rate_limit;
mod reader;
mod server;
mod source;
mod transfer;
mod values;
mod warnings;
mod zone;

pub use files::{Disk, Files};
pub use values::duration_of;

use files::Loader;
use reader::{Faults, Table, number, text};
use source::Source;
use warnings::{Sites, Warnings};

/// Most octets of a file in TOML.
const MAX_TEXT: usize = 64 << 20;

/// Something that loads, but is probably not what was meant.
pub type Warning = Fault;

/// All that a configuration says, with the files it names.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// `[server]`; the defaults, which listen nowhere, when there is none.
    pub server: Server,
    /// Zones, profiles, regions.
    pub model: Model,
    /// `[geo]`: what some profile can ask of it.
    pub geography: Geography,
    /// `[latency]`.
    pub latency: Latency,
    /// What is probably not meant, in file order.
    pub warnings: Vec<Warning>,
    /// Every file that was read, the configuration itself first.
    pub sources: Vec<PathBuf>,
    /// Those of them that hold data and are watched while the agent runs.
    pub feeds: Vec<Feed>,
}

/// Every mistake of a configuration, one a line, in file order. There is at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigErrors(Vec<Fault>);

impl ConfigErrors {
    /// The mistakes.
    pub fn faults(&self) -> &[Fault] {
        &self.0
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, fault) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{fault}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// Reads a configuration and the files it names from the disk.
///
/// # Errors
/// Every mistake.
pub fn load(path: impl AsRef<Path>) -> Result<Config, ConfigErrors> {
    load_from(path.as_ref(), &Disk)
}

/// [`load`], with the configuration itself from `files` as well.
///
/// # Errors
/// Every mistake.
pub fn load_from(path: &Path, files: &dyn Files) -> Result<Config, ConfigErrors> {
    let loader = Loader::new(files);
    match loader.read(path) {
        Ok(octets) => read(path, octets, loader),
        Err(why) => Err(ConfigErrors(vec![Fault {
            file: path.display().to_string().into(),
            line: 0,
            column: 0,
            message: format!("cannot be read: {why}"),
        }])),
    }
}

/// Reads a configuration from a text that is called `name`; the files it names come from `files`: a
/// closure, a map, or [`Disk`].
///
/// # Errors
/// Every mistake.
pub fn parse(text: &str, name: &str, files: &dyn Files) -> Result<Config, ConfigErrors> {
    read(Path::new(name), text.as_bytes().to_vec(), Loader::new(files))
}

fn read(path: &Path, octets: Vec<u8>, loader: Loader<'_>) -> Result<Config, ConfigErrors> {
    let mut load = Load {
        loader,
        faults: Faults::default(),
        warnings: Warnings::default(),
        sites: Sites::default(),
        parts: Parts::default(),
        reads: Vec::new(),
        keys: Vec::new(),
        secondaries: Vec::new(),
        server: Server::default(),
        database: None,
        geography: Geography::default(),
        latency: Latency::default(),
        feeds: Vec::new(),
    };
    load.main(path, octets);
    load.finish(path)
}

/// A load under way.
struct Load<'f> {
    loader: Loader<'f>,
    faults: Faults,
    warnings: Warnings,
    sites: Sites,
    parts: Parts,
    reads: Vec<profile::Read>,
    keys: Vec<key::Read>,
    /// By the zones' names.
    secondaries: Vec<(Name, transfer::Read)>,
    server: Server,
    /// The geo database, whose reading waits until it is known what is wanted of it.
    database: Option<(reader::Spot, PathBuf, Vec<u8>)>,
    geography: Geography,
    latency: Latency,
    feeds: Vec<Feed>,
}

impl Load<'_> {
    fn main(&mut self, path: &Path, octets: Vec<u8>) {
        let Some(source) = self.source(path, octets) else { return };
        let Some(tree) = self.tree(&source) else { return };
        let faults = std::mem::take(&mut self.faults);
        let top = Table::new("the configuration", &source, &faults, &tree, 0..0);
        if let Some(table) = top.table("server", "[server]") {
            self.server = server::read(table, &mut self.warnings);
        }
        if let Some(table) = top.table("tcp", "[tcp]") {
            Arc::make_mut(&mut self.server.dns).tcp = server::tcp(table);
        }
        if let Some(table) = top.table("probes", "[probes]") {
            self.server.probes = server::probes(table);
        }
        if let Some(table) = top.table("dnstap", "[dnstap]") {
            self.server.dnstap = dnstap::read(table);
        }
        if let Some(table) = top.table("limits", "[limits]") {
            self.server.limits = limits::read(table);
        }
        if let Some(table) = top.table("cookies", "[cookies]") {
            let file = self.named(&table, "secret_file");
            let file = file.map(|(path, octets)| (path.display().to_string(), octets));
            let cookies = cookies::read(table, file, &mut self.warnings);
            Arc::make_mut(&mut self.server.dns).cookies = cookies;
        }
        if let Some(table) = top.table("rate_limit", "[rate_limit]") {
            let limit = rate_limit::read(table, &self.server, &mut self.warnings);
            Arc::make_mut(&mut self.server.dns).rate_limit = Some(limit);
        }
        if let Some(table) = top.table("geo", "[geo]") {
            self.geo(table);
        }
        if let Some(table) = top.table("latency", "[latency]") {
            self.latency(table);
        }
        self.zones_and_profiles(&top);
        let mut included = Vec::new();
        top.items("include", |value| {
            let pattern = text(value)?;
            let found = self.loader.matching(&source.folder, pattern)?;
            if found.is_empty() {
                let spot = reader::Spot { source: source.clone(), at: 0 };
                self.warnings.add(&spot, format!("include: {pattern:?} matches no file"));
            }
            for path in found {
                if !included.contains(&path) {
                    let octets = self
                        .loader
                        .read(&path)
                        .map_err(|why| format!("cannot read {}: {why}", path.display()))?;
                    included.push(path.clone());
                    if let Some(source) = self.source(&path, octets) {
                        self.include(&source, &faults);
                    }
                }
            }
            Ok(())
        });
        top.finish();
        // What `source` and `tree` reported meanwhile is kept as well.
        let meanwhile = std::mem::replace(&mut self.faults, faults);
        self.faults.extend(meanwhile.into_inner());
    }

    /// A further file: zones and profiles.
    fn include(&mut self, source: &Arc<Source>, faults: &Faults) {
        let Some(tree) = self.tree(source) else { return };
        let top = Table::new("an included file", source, faults, &tree, 0..0);
        for key in
            ["server", "probes", "dnstap", "limits", "cookies", "rate_limit", "geo", "latency", "include"]
        {
            top.refuse(key, "is allowed in the main file only");
        }
        self.zones_and_profiles(&top);
        top.finish();
    }

    fn source(&mut self, path: &Path, octets: Vec<u8>) -> Option<Arc<Source>> {
        let file: Arc<str> = path.display().to_string().into();
        let whole = |message: String| Fault { file: file.clone(), line: 0, column: 0, message };
        if octets.len() > MAX_TEXT {
            self.faults.add(whole(format!("{} octets; allowed are {MAX_TEXT}", octets.len())));
            return None;
        }
        match String::from_utf8(octets) {
            Ok(text) => Some(Arc::new(Source::new(path, text))),
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let octets = error.into_bytes();
                let text = String::from_utf8_lossy(octets.get(..at).unwrap_or_default()).into_owned();
                let message = "an octet that is not UTF-8 text";
                self.faults.add(Source::new(path, text).fault(at, message.into()));
                None
            }
        }
    }

    /// The text as a tree; nothing more is read of a file that is not TOML.
    fn tree<'s>(&self, source: &'s Arc<Source>) -> Option<DeTable<'s>> {
        let (tree, errors) = DeTable::parse_recoverable(&source.text);
        if errors.is_empty() {
            return Some(tree.into_inner());
        }
        for error in errors {
            let span = error.span().unwrap_or(0..0);
            let found = source.excerpt(span.clone()).lines().next().unwrap_or_default();
            let message = match found {
                // Nothing of a line that may hold a secret is shown.
                _ if source.line(span.start).contains("secret") => error.message().to_owned(),
                "" => error.message().to_owned(),
                found => format!("{}: {found}", error.message()),
            };
            self.faults.add(source.fault(span.start, message));
        }
        None
    }

    fn zones_and_profiles(&mut self, top: &Table<'_>) {
        for table in top.tables("zone", "[[zone]]") {
            if let (Some(zone), site, secondaries) = zone::read(table, &self.loader, &mut self.warnings) {
                self.secondaries.push((zone.name.clone(), secondaries));
                self.parts.zones.push(zone);
                self.sites.zones.push(site);
            }
        }
        for table in top.tables("key", "[[key]]") {
            self.keys.extend(key::read(table, &self.loader, &mut self.warnings));
        }
        for table in top.tables("profile", "[[profile]]") {
            self.reads.push(profile::read(table, &self.loader));
        }
    }

    fn geo(&mut self, table: Table<'_>) {
        self.sites.geo = Some(table.spot());
        if let Some(value) = table.value("database")
            && let Some((path, octets)) = self.named(&table, "database")
        {
            self.feeds.push(Feed { kind: FeedKind::GeoDatabase, path: path.clone() });
            self.database = Some((table.spot_of(value), path, octets));
        }
        if let Some((path, octets)) = self.named(&table, "overrides") {
            match geo::overrides(&path.display().to_string(), &octets) {
                Ok(rows) => self.geography.overrides = rows,
                Err(faults) => table.faults().extend(faults),
            }
            self.feeds.push(Feed { kind: FeedKind::GeoOverrides, path });
        }
        if !table.has("database") && !table.has("overrides") {
            table.fault("[geo] has neither database nor overrides".into());
        }
        table.finish();
    }

    fn latency(&mut self, table: Table<'_>) {
        if let Some(value) = table.value("table")
            && let Some((path, octets)) = self.named(&table, "table")
        {
            self.sites.table = Some(table.spot_of(value));
            match latency::parse(&path.display().to_string(), &octets) {
                Ok(rows) => self.latency = rows,
                Err(faults) => table.faults().extend(faults),
            }
            self.feeds.push(Feed { kind: FeedKind::LatencyTable, path });
        }
        if let Some(regions) = table.table("regions", "[latency.regions.…]") {
            for (name, spot, value) in regions.entries() {
                let Some(place) = regions.sub("[latency.regions.…]", name, value) else { continue };
                let degrees = |key: &'static str, most: f64| {
                    if !place.has(key) {
                        place.missing(key, "52.37");
                    }
                    place.take(key, |value| number(value, -most..=most))
                };
                let (latitude, longitude) = (degrees("latitude", 90.0), degrees("longitude", 180.0));
                place.finish();
                if name.is_empty() {
                    table.faults().add(spot.fault("a region has a name".into()));
                }
                if let (Some(latitude), Some(longitude)) = (latitude, longitude) {
                    self.parts.regions.insert(name.to_owned(), Coordinates { latitude, longitude });
                    self.sites.regions.insert(name.to_owned(), spot);
                }
            }
        }
        table.finish();
    }

    /// The file that a key names.
    fn named(&self, table: &Table<'_>, key: &'static str) -> Option<(PathBuf, Vec<u8>)> {
        table.take(key, |value| {
            let path = table.source().folder.join(text(value)?);
            match self.loader.read(&path) {
                Ok(octets) => Ok((path, octets)),
                Err(why) => Err(format!("cannot read {}: {why}", path.display())),
            }
        })
    }

    fn finish(mut self, path: &Path) -> Result<Config, ConfigErrors> {
        profile::nest(&mut self.reads, &self.faults);
        let keys = key::all(self.keys, &self.faults);
        let secondaries = transfer::all(self.secondaries, &keys, &self.faults);
        let dns = Arc::make_mut(&mut self.server.dns);
        (dns.keys, dns.secondaries) = (keys.held, secondaries);
        for read in self.reads {
            self.parts.profiles.push(read.profile);
            self.sites.profiles.push(read.sites);
        }
        let model = match Model::new(self.parts) {
            Ok(model) => Some(model),
            Err(invalid) => {
                // What a reported mistake explains is not said again.
                let anew = invalid.iter().filter_map(|fault| placed(&self.sites, fault, false));
                self.faults.extend(anew.collect::<Vec<_>>());
                if self.faults.is_empty() {
                    self.faults.extend(invalid.iter().filter_map(|fault| placed(&self.sites, fault, true)));
                }
                None
            }
        };
        if let (Some(model), Some((spot, path, octets))) = (&model, self.database) {
            match geo::database(&octets, Wanted::by(model)) {
                Ok(rows) => self.geography.database = rows,
                Err(why) => {
                    let message = format!("database: {} is not a geo database: {why}", path.display());
                    self.faults.add(spot.fault(message));
                }
            }
        }
        let mut sources = vec![path.to_path_buf()];
        sources.extend(self.loader.into_seen().into_iter().filter(|seen| seen != path));
        let names: Vec<String> = sources.iter().map(|source| source.display().to_string()).collect();
        let sort = |faults: &mut Vec<Fault>| {
            let order = |fault: &Fault| names.iter().position(|name| **name == *fault.file);
            faults.sort_by_cached_key(|fault| (order(fault), fault.line, fault.column));
            faults.dedup();
        };
        let mut faults = self.faults.into_inner();
        match model {
            Some(model) if faults.is_empty() => {
                warnings::of_model(&model, &self.latency, &self.sites, &mut self.warnings);
                let mut warnings = self.warnings.into_inner();
                sort(&mut warnings);
                Ok(Config {
                    server: self.server,
                    model,
                    geography: self.geography,
                    latency: self.latency,
                    warnings,
                    sources,
                    feeds: self.feeds,
                })
            }
            _ => {
                sort(&mut faults);
                Err(ConfigErrors(faults))
            }
        }
    }
}

/// A fault of the model at its place in the text; none when its key was reported already, unless `again`.
fn placed(sites: &Sites, fault: &Invalid, again: bool) -> Option<Fault> {
    let site = match fault.place {
        Place::Zone(zone) => sites.zones.get(zone)?,
        Place::Profile(profile) => &sites.profiles.get(profile)?.profile,
        Place::Endpoint(profile, endpoint) => sites.profiles.get(profile)?.endpoints.get(endpoint)?,
    };
    if !again && fault.item.is_none() && fault.key.is_some_and(|key| site.is_faulty(key)) {
        return None;
    }
    Some(site.spot(fault.key, fault.item).fault(fault.message.clone()))
}

#[cfg(test)]
mod tests;
