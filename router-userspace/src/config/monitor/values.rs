//! The values of a `monitor` table, one by one.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use router_common::model::Authorities;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use toml::de::DeValue;

use super::At;
use crate::config::files::Loader;
use crate::config::reader::{Table, shown, text};
use crate::config::values::status;

/// Most headers, and most status ranges.
const MAX_LISTED: usize = 8;
/// Longest path, header value.
const MAX_TEXT: usize = 2000;
/// Most arguments of a program, its own name included, and the longest of them.
const MAX_COMMAND: usize = 64;
const MAX_ARGUMENT: usize = 4096;

pub(super) fn path(value: &DeValue<'_>) -> Result<String, String> {
    let path = text(value)?;
    if !path.starts_with('/') || path.len() > MAX_TEXT || !path.bytes().all(|octet| octet.is_ascii_graphic())
    {
        return Err(format!(
            "found {}; a path begins with \"/\" and has no spaces, e.g. \"/health\"",
            shown(value)
        ));
    }
    if path.contains('#') {
        return Err(format!("found {}; a \"#\" is not sent to a server; write %23", shown(value)));
    }
    Ok(path.to_owned())
}

pub(super) fn host(value: &DeValue<'_>) -> Result<String, String> {
    let host = text(value)?;
    let plain = |octet: u8| octet.is_ascii_alphanumeric() || b"-._:[]".contains(&octet);
    if host.is_empty() || host.len() > 255 || !host.bytes().all(plain) {
        return Err(format!("found {}; a host name is wanted, e.g. \"www.example.com\"", shown(value)));
    }
    Ok(host.trim_end_matches('.').to_owned())
}

pub(super) fn expected_status(table: &Table<'_>) -> Option<At<Vec<(u16, u16)>>> {
    let spot = table.spot_of(table.value("expected_status")?);
    let ranges = table.items("expected_status", status)?;
    let found = table.count("expected_status");
    if !(1..=MAX_LISTED).contains(&found) {
        let message = format!("expected_status: found {found} ranges; allowed are 1 to {MAX_LISTED}");
        table.fault_at("expected_status", message);
        return None;
    }
    Some(At { value: ranges, spot })
}

/// Headers that follow from other keys, or that would break the request.
const RESERVED: [&str; 6] =
    ["host", "connection", "content-length", "transfer-encoding", "upgrade", "expect"];

pub(super) fn headers(table: &Table<'_>) -> Option<At<Vec<(String, String)>>> {
    let spot = table.spot_of(table.value("headers")?);
    let given = table.table("headers", "headers")?;
    let mut by_name: BTreeMap<String, (String, String)> = BTreeMap::new();
    let mut found = 0usize;
    for (name, name_spot, header) in given.entries() {
        found += 1;
        let fault = |message: String| table.fault_by("headers", &name_spot, message);
        let token = |octet: u8| octet.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&octet);
        let folded = name.to_ascii_lowercase();
        let Some(content) = header.get_ref().as_str() else {
            fault(format!("headers: found {} for {name:?}; a string is wanted", shown(header.get_ref())));
            continue;
        };
        if name.is_empty() || name.len() > 100 || !name.bytes().all(token) {
            fault(format!("headers: {name:?} is not the name of a header (RFC 9110 §5.1)"));
        } else if folded == "host" {
            fault("headers: the Host header is set by the key host".into());
        } else if RESERVED.contains(&folded.as_str()) {
            fault(format!("headers: {name:?} is set by the probe itself"));
        } else if content.len() > MAX_TEXT
            || !content.bytes().all(|octet| octet == b' ' || octet == b'\t' || octet.is_ascii_graphic())
        {
            fault(format!("headers: the value of {name:?} is not printable ASCII text"));
        } else if let Some((before, _)) = by_name.get(&folded) {
            fault(format!("headers: {name:?} stands twice, before as {before:?}"));
        } else {
            by_name.insert(folded, (name.to_owned(), content.to_owned()));
        }
    }
    if found > MAX_LISTED {
        table.fault_at("headers", format!("headers: found {found}; at most {MAX_LISTED} are allowed"));
        return None;
    }
    Some(At { value: by_name.into_values().collect(), spot })
}

/// A `User-Agent`.
pub(super) fn user_agent(value: &DeValue<'_>) -> Result<String, String> {
    let written = text(value)?;
    let plain = |octet: u8| octet == b' ' || octet.is_ascii_graphic();
    if written.is_empty()
        || written.len() > MAX_TEXT
        || !written.bytes().all(plain)
        || written.trim() != written
    {
        return Err(format!("found {}; printable ASCII text is wanted", shown(value)));
    }
    Ok(written.to_owned())
}

/// An address of this machine.
pub(super) fn source(value: &DeValue<'_>) -> Result<IpAddr, String> {
    let written = text(value)?;
    let address: IpAddr = written.parse().map_err(|_| {
        format!("found {written:?}; an address of this machine is wanted, e.g. \"192.0.2.1\"")
    })?;
    if address.is_unspecified() || address.is_multicast() {
        return Err(format!("found {written:?}; that is no address to come from"));
    }
    Ok(address)
}

/// The authorities in a PEM file.
pub(super) fn authorities(path: &Path, loader: &Loader<'_>) -> Result<Arc<Authorities>, String> {
    let file = path.display().to_string();
    let octets = loader.read(path).map_err(|why| format!("cannot read {file}: {why}"))?;
    let mut certificates = Vec::new();
    let mut store = rustls::RootCertStore::empty();
    for (i, found) in CertificateDer::pem_slice_iter(&octets).enumerate() {
        let bad = |why: &dyn std::fmt::Display| format!("{file}: certificate {}: {why}", i + 1);
        let certificate = found.map_err(|why| bad(&why))?;
        store.add(certificate.clone()).map_err(|why| bad(&why))?;
        certificates.push(certificate.to_vec());
    }
    if certificates.is_empty() {
        return Err(format!("{file} holds no certificate in PEM (-----BEGIN CERTIFICATE-----)"));
    }
    Ok(Arc::new(Authorities { file, certificates }))
}

/// A program with its arguments; its path is relative to the file that names it.
pub(super) fn command(table: &Table<'_>) -> Option<At<Vec<String>>> {
    let spot = table.spot_of(table.value("command")?);
    let mut words = table.items("command", |value| {
        let word = text(value)?;
        if word.contains('\0') || word.len() > MAX_ARGUMENT {
            return Err(format!(
                "found {}; a word has at most {MAX_ARGUMENT} octets, none of them 0",
                shown(value)
            ));
        }
        Ok(word.to_owned())
    })?;
    let found = table.count("command");
    let empty = words.first().is_none_or(String::is_empty);
    if !(1..=MAX_COMMAND).contains(&found) || empty {
        let message = format!(
            "command: found {found} words; wanted are the path of a program and its arguments, at most \
             {MAX_COMMAND} in all"
        );
        table.fault_at("command", message);
        return None;
    }
    if let Some(program) = words.first_mut() {
        *program = table.source().folder.join(&*program).display().to_string();
    }
    Some(At { value: words, spot })
}

/// A path, relative to the file that names it.
pub(super) fn file(folder: &Path, value: &DeValue<'_>) -> Result<String, String> {
    let written = text(value)?;
    if written.is_empty() || written.contains('\0') {
        return Err(format!("{written:?} is not a path"));
    }
    Ok(folder.join(written).display().to_string())
}
