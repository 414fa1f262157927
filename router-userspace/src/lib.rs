//! The agent of xroute: probes endpoints, decides, compiles the tables, serves what the fast path
//! hands up, and is operated from the command line.
//!
//! Inside this crate only `datapath` names aya, only `probe` reqwest, only `dns` hickory-proto,
//! only `config` the file format.

pub mod config;
mod csv;
pub mod fault;
pub mod geo;
pub mod latency;
pub mod settings;
pub mod standin;
pub mod zonefile;
