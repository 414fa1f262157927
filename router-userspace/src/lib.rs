//! The agent of xroute: probes endpoints, decides, compiles the tables, serves what the fast path
//! hands up, and is operated from the command line.
//!
//! Inside this crate only `datapath` names aya, only `probe` reqwest, only `dns` hickory-proto,
//! only `config` the file format.

pub mod datapath;
pub mod settings;
