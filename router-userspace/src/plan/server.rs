//! Settings of the machine that differ. Secrets are never shown: what holds any is only told to have changed.

use std::fmt::Debug;

use super::SettingReport;
use crate::agent::fixed;
use crate::settings::Server;

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
    shown("server.stale", &before.stale, &after.stale);
    shown("server.edns_size", &old.edns_size, &new.edns_size);
    shown("server.nsid", &old.nsid, &new.nsid);
    shown("server.version", &old.version, &new.version);
    shown("server.id", &old.id, &new.id);
    shown("tcp", &old.tcp, &new.tcp);
    shown("rate_limit", &old.rate_limit, &new.rate_limit);
    shown("probes", &before.probes, &after.probes);
    shown("limits", &before.limits, &after.limits);
    let hidden = [
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
