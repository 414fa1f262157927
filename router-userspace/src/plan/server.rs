//! Settings of the machine that differ. Secrets are never shown: what holds any is only told to have changed.

use std::fmt::{self, Debug};

use super::SettingReport;
use crate::agent::fixed;
use crate::settings::{Server, Stale};

/// Settings that need a restart, and those that do not.
pub(super) fn differing(before: &Server, after: &Server) -> (Vec<SettingReport>, Vec<SettingReport>) {
    let restart = fixed(before, after)
        .into_iter()
        .map(|(key, before, after)| SettingReport { key: format!("server.{key}"), before, after })
        .collect();
    let mut settings = Vec::new();
    let mut shown = |key: &str, before: &dyn Debug, after: &dyn Debug| {
        let (before, after) = (format!("{before:?}"), format!("{after:?}"));
        if before != after {
            settings.push(SettingReport { key: key.to_owned(), before, after });
        }
    };
    let (old, new) = (&before.dns, &after.dns);
    shown("server.vlans", &before.vlans, &after.vlans);
    let word = |stale: Stale| if stale == Stale::Pass { "pass" } else { "serve" };
    shown("server.stale", &word(before.stale), &word(after.stale));
    shown("server.edns_size", &old.edns_size, &new.edns_size);
    let text = |octets: &Option<Vec<u8>>| {
        Optional(octets.as_deref().map(|octets| octets.escape_ascii().to_string()))
    };
    shown("server.nsid", &text(&old.nsid), &text(&new.nsid));
    shown("server.version", &Optional(old.version.as_ref()), &Optional(new.version.as_ref()));
    shown("server.id", &Optional(old.id.as_ref()), &Optional(new.id.as_ref()));
    shown("tcp.connections", &old.tcp.connections, &new.tcp.connections);
    shown("tcp.connections_per_client", &old.tcp.connections_per_client, &new.tcp.connections_per_client);
    shown("tcp.idle", &old.tcp.idle, &new.tcp.idle);
    shown("tcp.fast_open", &old.tcp.fast_open, &new.tcp.fast_open);
    shown("probes.per_second", &before.probes.per_second, &after.probes.per_second);
    shown("probes.in_flight", &before.probes.in_flight, &after.probes.in_flight);
    shown("probes.programs", &before.probes.programs, &after.probes.programs);
    let (one, other) = (&before.limits, &after.limits);
    shown("limits.moved_max", &Optional(one.moved_max), &Optional(other.moved_max));
    shown("limits.profile_moved_max", &Optional(one.profile_moved_max), &Optional(other.profile_moved_max));
    shown("limits.nodata_max", &Optional(one.nodata_max), &Optional(other.nodata_max));
    shown("limits.removed_names_max", &Optional(one.removed_names_max), &Optional(other.removed_names_max));
    let removed = (&Optional(one.removed_endpoints_max), &Optional(other.removed_endpoints_max));
    shown("limits.removed_endpoints_max", removed.0, removed.1);
    let hidden = [
        ("rate_limit", old.rate_limit != new.rate_limit),
        ("dnstap", before.dnstap != after.dnstap),
        ("cookies", old.cookies != new.cookies),
        ("key", old.keys != new.keys),
        ("zone.transfer, zone.notify", old.secondaries != new.secondaries),
    ];
    for (key, _) in hidden.into_iter().filter(|(_, differs)| *differs) {
        let said = |word: &str| word.to_owned();
        settings.push(SettingReport {
            key: key.to_owned(),
            before: said("as before"),
            after: said("changed"),
        });
    }
    (restart, settings)
}

/// A setting that may be missing.
struct Optional<T>(Option<T>);

impl<T: Debug> Debug for Optional<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("none"),
        }
    }
}
