//! `[[key]]`: TSIG keys (RFC 8945).

use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use router_common::name::Name;
use toml::de::DeValue;

use super::files::Loader;
use super::reader::{Faults, Spot, Table, choice, text};
use super::values::name;
use super::warnings::Warnings;
use crate::settings::{Algorithm, Key};

/// A secret of fewer octets can be guessed (RFC 8945 §10 wants as many as the MAC has, 16 at least).
const SHORT: usize = 16;

/// A key as far as it could be read: one with a mistake is still known by its name.
pub(super) struct Read {
    name: Name,
    spot: Spot,
    key: Option<Key>,
}

/// All keys of a configuration.
pub(super) struct Keys {
    /// Those that could be read.
    pub(super) held: Vec<Arc<Key>>,
    /// The names of all.
    names: Vec<Name>,
}

impl Keys {
    /// Whether there is a key of this name.
    pub(super) fn has(&self, name: &Name) -> bool {
        self.names.contains(name)
    }

    /// The names, for messages.
    pub(super) fn names(&self) -> Vec<String> {
        self.names.iter().map(ToString::to_string).collect()
    }
}

/// Reads a key. No message ever shows a secret, also not one that is wrong.
pub(super) fn read(table: Table<'_>, loader: &Loader<'_>, warnings: &mut Warnings) -> Option<Read> {
    let name = table.take("name", name);
    if !table.has("name") {
        table.missing("name", "\"xfr.example.com\"");
    }
    let spot = table.value("name").map_or_else(|| table.spot(), |value| table.spot_of(value));
    let algorithm = match table.has("algorithm") {
        true => table.take("algorithm", |value| choice(value, &Algorithm::ALL)),
        false => Some(Algorithm::HmacSha256),
    };
    let secret = match (table.has("secret"), table.has("secret_file")) {
        (true, true) => {
            table.fault_at("secret_file", "secret_file: found beside secret; allowed is one of them".into());
            None
        }
        (false, false) => {
            table.missing("secret", "\"…\" in base64, or secret_file = \"xfr.secret\"");
            None
        }
        (true, false) => {
            let file = Path::new(&*table.source().file);
            let secret = table.take("secret", |value| decoded(shown(value)?.as_bytes()));
            warn_of_readers(&table, "secret", file, loader, warnings);
            secret
        }
        (false, true) => from_file(&table, loader, warnings),
    };
    if let Some(secret) = secret.as_ref().filter(|secret| secret.len() < SHORT) {
        let key = if table.has("secret") { "secret" } else { "secret_file" };
        warn(&table, key, warnings, format!("{} octets can be guessed; take {SHORT} or more", secret.len()));
    }
    if algorithm == Some(Algorithm::HmacSha1) {
        warn(&table, "algorithm", warnings, "\"hmac-sha1\" is for old peers only (RFC 8945 §6)".into());
    }
    table.finish();
    let name = name?;
    let key = algorithm.zip(secret).map(|(algorithm, secret)| Key::new(name.clone(), algorithm, secret));
    Some(Read { name, spot, key })
}

/// Puts the keys of all files together.
pub(super) fn all(reads: Vec<Read>, faults: &Faults) -> Keys {
    let mut keys = Keys { held: Vec::new(), names: Vec::new() };
    for Read { name, spot, key } in reads {
        if keys.has(&name) {
            faults.add(spot.fault(format!("name: a key named {name} already exists")));
            continue;
        }
        keys.names.push(name);
        keys.held.extend(key.map(Arc::new));
    }
    keys
}

fn from_file(table: &Table<'_>, loader: &Loader<'_>, warnings: &mut Warnings) -> Option<Vec<u8>> {
    let (path, secret) = table.take("secret_file", |value| {
        let path = table.source().folder.join(text(value)?);
        let octets = loader.read(&path).map_err(|why| format!("cannot read {}: {why}", path.display()))?;
        let secret = decoded(&octets).map_err(|why| format!("{}: {why}", path.display()))?;
        Ok((path, secret))
    })?;
    warn_of_readers(table, "secret_file", &path, loader, warnings);
    Some(secret)
}

/// The text of a value that must not be shown.
fn shown<'t>(value: &'t DeValue<'t>) -> Result<&'t str, String> {
    value.as_str().ok_or_else(|| "a string in base64 is wanted".into())
}

/// Octets in base64, white space ignored.
fn decoded(written: &[u8]) -> Result<Vec<u8>, String> {
    let written: Vec<u8> = written.iter().copied().filter(|octet| !octet.is_ascii_whitespace()).collect();
    match STANDARD.decode(written) {
        Ok(secret) if secret.is_empty() => Err("it is empty; a secret in base64 is wanted".into()),
        Ok(secret) => Ok(secret),
        Err(_) => Err("not a secret in base64, as `tsig-keygen` and `keymgr -t` write it".into()),
    }
}

fn warn_of_readers(
    table: &Table<'_>,
    key: &'static str,
    file: &Path,
    loader: &Loader<'_>,
    warnings: &mut Warnings,
) {
    if let Some(mode) = loader.open_to_all(file) {
        let message = format!("{} is open to every user (mode {mode:04o}); chmod 640 it", file.display());
        warn(table, key, warnings, message);
    }
}

fn warn(table: &Table<'_>, key: &'static str, warnings: &mut Warnings, message: String) {
    let spot = table.value(key).map_or_else(|| table.spot(), |value| table.spot_of(value));
    warnings.add(&spot, format!("{key}: {message}"));
}
