//! Zones in master file format (RFC 1035 §5): text to record sets in wire form.
//!
//! `$ORIGIN`, `$TTL` (RFC 2308 §4), `$INCLUDE`, parentheses, comments, quoted strings, `@`, relative
//! names, class IN, the usual record types, and any other as `TYPE123 \# length hex` (RFC 3597 §5).
//! TTLs may carry units (`1h30m`), as every name server takes them.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use router_common::model::{MAX_TTL, Node, RrSet, Soa, Zone, rtype};
use router_common::name::Name;

use crate::fault::{Fault, MAX_FAULTS};

mod lexer;
mod rdata;
mod svcb;
mod types;

use lexer::{Entry, Token};

/// Deepest `$INCLUDE`.
const MAX_INCLUDES: usize = 8;
/// Most files that are included, each counted as often as it is: a few that include each other many times would
/// never come to an end.
const MAX_INCLUDED: usize = 1000;

/// Reads the zone whose apex is `apex` from a file; `include` reads what it includes.
///
/// # Errors
/// Every mistake, at most `MAX_FAULTS` of them: lines that are not records, records outside the zone,
/// an apex without exactly one SOA or without NS records, a CNAME beside other records, TTLs that
/// differ within a record set (RFC 2181 §5.2).
pub fn parse(
    apex: &Name,
    path: &Path,
    octets: &[u8],
    include: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<Zone, Vec<Fault>> {
    let mut reading = Reading::of(apex, include);
    reading.file(path, octets, apex.as_wire(), 0);
    reading.finish(path)
}

/// Adds the records of a text to a zone that has its SOA and NS records. A record without a TTL has the zone's.
///
/// # Errors
/// As for [`parse`].
pub fn add(
    zone: Zone,
    path: &Path,
    octets: &[u8],
    include: &dyn Fn(&Path) -> io::Result<Vec<u8>>,
) -> Result<Zone, Vec<Fault>> {
    let Zone { name: apex, ttl, nodes, .. } = zone;
    let mut reading = Reading { nodes, default_ttl: Some(ttl), ..Reading::of(&apex, include) };
    reading.file(path, octets, apex.as_wire(), 0);
    reading.finish(path)
}

/// Where a record was written.
#[derive(Clone)]
struct Place {
    file: Arc<str>,
    line: usize,
    column: usize,
}

impl Place {
    fn of(file: &Arc<str>, token: &Token) -> Self {
        Self { file: file.clone(), line: token.line, column: token.column }
    }

    fn fault(&self, message: String) -> Fault {
        Fault { file: self.file.clone(), line: self.line, column: self.column, message }
    }
}

struct Reading<'z> {
    apex: &'z Name,
    include: &'z dyn Fn(&Path) -> io::Result<Vec<u8>>,
    nodes: BTreeMap<Name, Node>,
    places: BTreeMap<(Name, u16), Place>,
    faults: Vec<Fault>,
    default_ttl: Option<u32>,
    last_ttl: Option<u32>,
    /// Files included so far.
    included: usize,
}

/// What is wrong at which token (by position; past the last one: at the first).
type Wrong = (usize, String);

impl<'z> Reading<'z> {
    /// A zone of which nothing is read.
    fn of(apex: &'z Name, include: &'z dyn Fn(&Path) -> io::Result<Vec<u8>>) -> Self {
        Self {
            apex,
            include,
            nodes: BTreeMap::new(),
            places: BTreeMap::new(),
            faults: Vec::new(),
            default_ttl: None,
            last_ttl: None,
            included: 0,
        }
    }

    fn file(&mut self, path: &Path, octets: &[u8], origin: &[u8], depth: usize) {
        let file: Arc<str> = path.display().to_string().into();
        let mut origin = origin.to_vec();
        let mut owner: Option<Name> = None;
        for entry in lexer::entries(octets) {
            if self.faults.len() >= MAX_FAULTS {
                return;
            }
            let entry = match entry {
                Ok(entry) => entry,
                Err(lexer::Broken { line, column, message }) => {
                    self.faults.push(Fault { file: file.clone(), line, column, message });
                    continue;
                }
            };
            let Some(first) = entry.tokens.first() else { continue };
            let read = if !entry.indented && first.text.starts_with('$') {
                self.directive(path, &entry, &mut origin, depth)
            } else {
                self.record(&file, &entry, &origin, &mut owner)
            };
            if let Err((at, message)) = read {
                let token = entry.tokens.get(at).unwrap_or(first);
                self.faults.push(Place::of(&file, token).fault(message));
            }
        }
    }

    fn directive(
        &mut self,
        path: &Path,
        entry: &Entry,
        origin: &mut Vec<u8>,
        depth: usize,
    ) -> Result<(), Wrong> {
        let texts: Vec<&str> = entry.tokens.iter().map(|token| token.text.as_str()).collect();
        let Some((word, values)) = texts.split_first() else { return Ok(()) };
        match (word.to_ascii_uppercase().as_str(), values) {
            ("$ORIGIN", [to]) => {
                *origin = types::written(to, origin).map_err(|why| (1, why))?;
                Ok(())
            }
            ("$TTL", [ttl]) => {
                self.default_ttl = Some(types::ttl(ttl).map_err(|why| (1, why))?);
                Ok(())
            }
            ("$INCLUDE", [file, rest @ ..]) if rest.len() <= 1 => {
                let start = match rest.first() {
                    Some(to) => types::written(to, origin).map_err(|why| (2, why))?,
                    None => origin.clone(),
                };
                if depth == MAX_INCLUDES {
                    return Err((0, format!("files include each other more than {MAX_INCLUDES} deep")));
                }
                self.included += 1;
                if self.included > MAX_INCLUDED {
                    return Err((0, format!("more than {MAX_INCLUDED} files are included")));
                }
                let folder = path.parent().map(Path::to_path_buf).unwrap_or_default();
                let octets = types::octets(file).map_err(|why| (1, why))?;
                let named = String::from_utf8(octets).map_err(|_| (1, "not a path".to_owned()))?;
                let included: PathBuf = folder.join(named);
                let octets = (self.include)(&included)
                    .map_err(|why| (1, format!("cannot read {}: {why}", included.display())))?;
                self.file(&included, &octets, &start, depth + 1);
                Ok(())
            }
            ("$ORIGIN" | "$TTL" | "$INCLUDE", _) => Err((
                0,
                format!(
                    "{word} with {} values; allowed are $ORIGIN name, $TTL seconds, $INCLUDE file [origin]",
                    values.len()
                ),
            )),
            _ => Err((0, format!("unknown directive {word}; allowed are $ORIGIN, $TTL, $INCLUDE"))),
        }
    }

    fn record(
        &mut self,
        file: &Arc<str>,
        entry: &Entry,
        origin: &[u8],
        last_owner: &mut Option<Name>,
    ) -> Result<(), Wrong> {
        let mut at = 0;
        let owner = if entry.indented {
            last_owner.clone().ok_or((0, "the first record has no owner name".to_owned()))?
        } else {
            let written = entry.tokens.first().map_or("", |token| token.text.as_str());
            at = 1;
            // A line whose owner is wrong must not leave the next ones to the owner before it.
            *last_owner = None;
            let owner = types::name(written, origin).map_err(|why| (0, why))?;
            *last_owner = Some(owner.clone());
            owner
        };
        let mut ttl = None;
        let mut class = false;
        let number = loop {
            let Some(token) = entry.tokens.get(at) else {
                return Err((at, "the record ends before its type".into()));
            };
            let word = token.text.to_ascii_uppercase();
            if ttl.is_none() && word.starts_with(|first: char| first.is_ascii_digit()) {
                ttl = Some(types::ttl(&word).map_err(|why| (at, why))?);
            } else if !class && matches!(word.as_str(), "IN" | "CLASS1") {
                class = true;
            } else if !class && matches!(word.as_str(), "CH" | "HS" | "CS") || word.starts_with("CLASS") {
                return Err((at, format!("class {word}; allowed is IN")));
            } else {
                break types::number(&word).map_err(|why| (at, why))?;
            }
            at += 1;
        };
        let type_at = at;
        let values = entry.tokens.get(at + 1..).unwrap_or_default();
        let rdata = rdata::read(number, values, origin)
            .map_err(|(value, why)| (if value < values.len() { at + 1 + value } else { type_at }, why))?;
        let ttl = match ttl.or(self.default_ttl).or(self.last_ttl) {
            Some(ttl) => ttl,
            None if number == rtype::SOA => soa(&rdata).map(|soa| soa.minimum).unwrap_or_default(),
            None => return Err((type_at, "the record has no TTL, and no $TTL stands before it".into())),
        };
        self.last_ttl = Some(ttl);
        if !owner.is_within(self.apex) {
            return Err((0, format!("{owner} is outside the zone {}", self.apex)));
        }
        let Some(token) = entry.tokens.get(type_at) else { return Ok(()) };
        let place = Place::of(file, token);
        self.insert(owner, number, ttl, rdata, place).map_err(|why| (type_at, why))
    }

    fn insert(
        &mut self,
        owner: Name,
        number: u16,
        ttl: u32,
        rdata: Vec<u8>,
        place: Place,
    ) -> Result<(), String> {
        if number == rtype::SOA && owner != *self.apex {
            return Err(format!("a SOA record stands only at the apex, {}", self.apex));
        }
        let node = self.nodes.entry(owner.clone()).or_default();
        if number == rtype::CNAME && node.keys().any(|&other| other != rtype::CNAME)
            || number != rtype::CNAME && node.contains_key(&rtype::CNAME)
        {
            return Err(format!("{owner}: a CNAME cannot stand beside other records (RFC 1034 §3.6.2)"));
        }
        let set = node.entry(number).or_insert_with(|| RrSet { ttl, rdata: Vec::new() });
        if set.rdata.iter().any(|held| rdata::same(number, held, &rdata)) {
            return Ok(()); // the same record twice is one (RFC 2181 §5)
        }
        if matches!(number, rtype::SOA | rtype::CNAME | rtype::DNAME) && !set.rdata.is_empty() {
            return Err(format!("{owner} has such a record already; only one is allowed"));
        }
        if set.ttl != ttl {
            return Err(format!(
                "ttl {ttl}, where the record before it has {}; allowed is one for all of {owner} of a type",
                set.ttl
            ));
        }
        set.rdata.push(rdata);
        self.places.entry((owner, number)).or_insert(place);
        Ok(())
    }

    fn finish(mut self, path: &Path) -> Result<Zone, Vec<Fault>> {
        let whole =
            |message: String| Fault { file: path.display().to_string().into(), line: 0, column: 0, message };
        let apex = self.nodes.get(self.apex);
        let start = apex.and_then(|node| node.get(&rtype::SOA));
        let zone_soa = start.and_then(|set| set.rdata.first()).and_then(|rdata| soa(rdata));
        if self.faults.is_empty() {
            if zone_soa.is_none() {
                self.faults.push(whole(format!("no SOA record at {}", self.apex)));
            }
            if apex.is_none_or(|node| !node.contains_key(&rtype::NS)) {
                self.faults.push(whole(format!("no NS record at {}", self.apex)));
            }
        }
        // Names below a DNAME or at a CNAME's descendants are hidden, which is never meant (RFC 6672 §2.4).
        for (owner, node) in &self.nodes {
            if !node.contains_key(&rtype::DNAME) {
                continue;
            }
            let below = self.nodes.range(owner.clone()..).skip(1).map(|(name, _)| name);
            if let Some(hidden) = below.take_while(|name| name.is_within(owner)).next()
                && let Some(place) =
                    self.places.iter().find(|((name, _), _)| name == hidden).map(|(_, place)| place)
            {
                let message = format!("{hidden} is below the DNAME at {owner}, which hides it");
                self.faults.push(place.fault(message));
            }
        }
        let ttl = start.map(|set| set.ttl);
        match (zone_soa, ttl) {
            (Some(soa), Some(ttl)) if self.faults.is_empty() => {
                Ok(Zone { name: self.apex.clone(), soa, ttl, nodes: self.nodes })
            }
            _ => Err(self.faults),
        }
    }
}

/// SOA record data from its wire form.
fn soa(rdata: &[u8]) -> Option<Soa> {
    let (mname, rest) = rdata::split_name(rdata)?;
    let (rname, rest) = rdata::split_name(rest)?;
    let octets: [u8; 20] = rest.try_into().ok()?;
    let mut numbers = octets.chunks_exact(4).map(|word| match *word {
        [a, b, c, d] => u32::from_be_bytes([a, b, c, d]),
        _ => 0,
    });
    let soa = Soa {
        mname,
        rname,
        serial: numbers.next()?,
        refresh: numbers.next()?,
        retry: numbers.next()?,
        expire: numbers.next()?,
        minimum: numbers.next()?,
    };
    [soa.refresh, soa.retry, soa.expire, soa.minimum].iter().all(|&timer| timer <= MAX_TTL).then_some(soa)
}

#[cfg(test)]
mod tests;
