//! The agent of xroute: probes endpoints, decides, compiles the tables, serves what the fast path
//! hands up, and is operated from the command line.
//!
//! Inside this crate only `datapath` names aya and only `config` knows the file format. hyper is the
//! HTTP client of `probe`, reqwest that of the control socket (`cli/client.rs`); hickory-proto only
//! prints records for `explain` (`dns/show.rs`) and checks replies in tests.

pub mod agent;
pub mod answers;
pub mod audit;
pub mod cli;
pub mod clock;
pub mod config;
pub mod control;
mod csv;
pub mod datapath;
pub mod dns;
pub mod dnstap;
pub mod doctor;
mod drain;
pub mod events;
pub mod explain;
pub mod fault;
pub mod feed;
pub mod generations;
pub mod geo;
pub mod handing;
pub mod latency;
pub mod map;
pub mod metrics;
pub mod overrides;
mod pattern;
pub mod plan;
pub mod privileges;
pub mod probe;
pub mod reload;
pub mod settings;
pub mod state;
pub mod systemd;
pub mod trace;
pub mod zonefile;
