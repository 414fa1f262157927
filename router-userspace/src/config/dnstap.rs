//! `[dnstap]`: where sampled queries and replies go.

use super::reader::{Table, choice, text, whole};
use super::server::{MAX_SOCKET_PATH, path};
use super::values::short_text;
use crate::dnstap::Speaker;
use crate::settings::{Dnstap, DnstapTarget};
use crate::trace::Path;

/// Reads the table; `None` when it says nothing of use.
pub(super) fn read(table: Table<'_>) -> Option<Dnstap> {
    let folder = &table.source().folder;
    let socket = table.take("socket", |value| path(text(value)?)).map(|path| folder.join(path));
    let file = table.take("file", |value| path(text(value)?)).map(|path| folder.join(path));
    if socket.as_ref().is_some_and(|path| path.as_os_str().len() > MAX_SOCKET_PATH) {
        let message = format!("socket: the path of a socket has at most {MAX_SOCKET_PATH} octets");
        table.fault_at("socket", message);
    }
    if table.has("socket") && table.has("file") {
        table.fault_at("file", "file: it goes to a socket or to a file, and socket is given".into());
    }
    if !table.has("socket") && !table.has("file") {
        table.missing("socket", "\"/run/dnstap.sock\", or file = \"/var/log/xroute.fstrm\"");
    }
    let usual = Speaker::usual();
    let identity = table.take("identity", short_text);
    let version = table.take("version", short_text);
    let speaker = (identity.is_some() || version.is_some()).then(|| Speaker {
        identity: identity.unwrap_or(usual.identity),
        version: version.unwrap_or(usual.version),
    });
    let sample = table.take("sample", |value| whole(value, 1..=1_000_000)).unwrap_or(1);
    let per_second = table.take("per_second", |value| whole(value, 1..=1_000_000)).unwrap_or(10_000);
    let paths = [("both", None), ("fast", Some(Path::Fast)), ("userspace", Some(Path::Userspace))];
    let of = table.take("path", |value| choice(value, &paths)).unwrap_or_default();
    table.finish();
    let target = socket.map(DnstapTarget::Socket).or_else(|| file.map(DnstapTarget::File))?;
    Some(Dnstap { target, speaker, sample, per_second, path: of })
}
