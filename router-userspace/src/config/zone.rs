//! `[[zone]]`: inline SOA, NS and records, or a master file.

use std::collections::BTreeMap;

use router_common::model::{MAX_TTL, Node, RrSet, Soa, Zone, rtype};
use router_common::name::Name;

use super::files::Loader;
use super::reader::{Site, Table, Value, text, whole};
use super::transfer::{self, Read};
use super::values::{name, name_of};
use super::warnings::Warnings;
use crate::zonefile;

/// TTL of an inline zone's records when it gives none, seconds.
const DEFAULT_TTL: u32 = 3600;

/// Reads a zone; what could not be read is replaced and reported, so that names in the zone are still
/// recognised as such.
pub(super) fn read(
    table: Table<'_>,
    loader: &Loader<'_>,
    warnings: &mut Warnings,
) -> (Option<Zone>, Site, Read) {
    let secondaries = transfer::read(&table, warnings);
    let apex = table.take("name", name);
    if !table.has("name") {
        table.missing("name", "\"gslb.example.com\"");
    }
    let from_file = table.take("file", text);
    let mut zone = None;
    if table.has("file") {
        for key in ["soa", "ns", "ttl", "records"] {
            table.refuse(key, "stands in the zone file; allowed is file or soa, ns, ttl and records");
        }
        if let (Some(apex), Some(file)) = (&apex, from_file) {
            zone = master_file(&table, loader, apex, file);
        }
    } else {
        let faulty = table.faults().count();
        zone = apex.as_ref().map(|apex| inline(&table, apex));
        let records = table.value("records");
        let written = table.take("records", text);
        // Records of a zone without a sound SOA and NS would be reported for what these lack.
        if let (Some(value), Some(written), true) = (records, written, table.faults().count() == faulty) {
            zone = zone.and_then(|zone| add_records(&table, loader, zone, value, written));
        }
    }
    let mut site = table.finish();
    if zone.is_none() {
        // Of a zone that could not be read nothing is missing that was not reported.
        site.excuse(&["soa", "ns"]);
        zone = apex.map(|name| Zone { name, soa: no_soa(), ttl: 0, nodes: BTreeMap::new() });
    }
    (zone, site, secondaries)
}

fn master_file(table: &Table<'_>, loader: &Loader<'_>, apex: &Name, file: &str) -> Option<Zone> {
    let path = table.source().folder.join(file);
    let octets = match loader.read(&path) {
        Ok(octets) => octets,
        Err(why) => {
            table.fault_at("file", format!("file: cannot read {}: {why}", path.display()));
            return None;
        }
    };
    match zonefile::parse(apex, &path, &octets, &|path| loader.read(path)) {
        Ok(zone) => Some(zone),
        Err(faults) => {
            table.faults().extend(faults);
            None
        }
    }
}

/// Adds the records of a master file's text that stands in the configuration itself.
fn add_records(
    table: &Table<'_>,
    loader: &Loader<'_>,
    zone: Zone,
    value: &Value<'_>,
    written: &str,
) -> Option<Zone> {
    // With the line breaks before it, what is wrong in the text is told by its line in this file.
    let (lines, columns) = table.source().before_text(value.span());
    let mut octets = vec![b'\n'; lines];
    octets.extend_from_slice(written.as_bytes());
    match zonefile::add(zone, &table.source().path(), &octets, &|path| loader.read(path)) {
        Ok(zone) => Some(zone),
        Err(mut faults) => {
            for fault in &mut faults {
                if fault.line == lines + 1 && fault.file == table.source().file {
                    fault.column += columns;
                }
            }
            table.faults().extend(faults);
            None
        }
    }
}

fn inline(table: &Table<'_>, apex: &Name) -> Zone {
    let ttl = table.take("ttl", |value| whole(value, 0..=i64::from(MAX_TTL))).unwrap_or(DEFAULT_TTL);
    let soa = match table.table("soa", "soa") {
        Some(given) => soa(given),
        None => {
            if !table.has("soa") {
                table.missing("soa", "{ mname = \"ns1.example.com.\", … }, or file = \"example.com.zone\"");
            }
            no_soa()
        }
    };
    let servers = table.items("ns", name);
    match &servers {
        Some(servers) => {
            table.no_twins("ns", servers);
            if table.count("ns") == 0 {
                table.fault_at("ns", "ns: at least one name server is needed".into());
            }
        }
        None => table.missing("ns", "[\"ns1.example.com.\"]"),
    }
    let mut node = Node::new();
    node.insert(rtype::SOA, RrSet { ttl, rdata: vec![soa.to_wire()] });
    let rdata: Vec<Vec<u8>> =
        servers.unwrap_or_default().iter().map(|server| server.as_wire().to_vec()).collect();
    if !rdata.is_empty() {
        node.insert(rtype::NS, RrSet { ttl, rdata });
    }
    Zone { name: apex.clone(), soa, ttl, nodes: BTreeMap::from([(apex.clone(), node)]) }
}

fn soa(table: Table<'_>) -> Soa {
    let domain = |key: &'static str, example: &str| {
        let found = table.take(key, |value| {
            let written = text(value)?;
            match written.split_once('@') {
                Some((person, host)) => Err(format!(
                    "{written:?} is a mail address; in a SOA it is written {:?}",
                    format!("{}.{host}.", person.replace('.', "\\."))
                )),
                None => name_of(written),
            }
        });
        if !table.has(key) {
            table.missing(key, example);
        }
        found.unwrap_or_else(Name::root)
    };
    let mname = domain("mname", "\"ns1.example.com.\"");
    let rname = domain("rname", "\"hostmaster.example.com.\"");
    let number = |key: &'static str, most: u32, example: &str| -> u32 {
        let found = table.take(key, |value| whole(value, 0..=i64::from(most)));
        if !table.has(key) {
            table.missing(key, example);
        }
        found.unwrap_or_default()
    };
    let read = Soa {
        mname,
        rname,
        serial: number("serial", u32::MAX, "1"),
        refresh: number("refresh", MAX_TTL, "3600"),
        retry: number("retry", MAX_TTL, "600"),
        expire: number("expire", MAX_TTL, "604800"),
        minimum: number("minimum", MAX_TTL, "60"),
    };
    table.finish();
    read
}

fn no_soa() -> Soa {
    Soa { mname: Name::root(), rname: Name::root(), serial: 0, refresh: 0, retry: 0, expire: 0, minimum: 0 }
}
