//! What the fuzz targets of `fuzz/` do with octets. It stands here so that the kept corpus is run by an
//! ordinary test, too (`it/corpus.rs`): libFuzzer finds inputs, and a crash that it found stays a test.
//!
//! A target takes any octets, and panics when something is wrong.

mod client_subnet;
mod config;
mod message;
mod parts;
mod service;
mod tables;
mod zonefile;

pub use client_subnet::client_subnet;
pub use config::config;
pub use message::message;
pub use service::{FULL_SERVICE, SERVICE, frontage};
pub use tables::{database, tables};
pub use zonefile::zonefile;

/// A target: its name, which is that of its corpus and of its binary, and what it does.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 6] = [
    ("client_subnet", client_subnet),
    ("config", config),
    ("database", database),
    ("message", message),
    ("tables", tables),
    ("zonefile", zonefile),
];
