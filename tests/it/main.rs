//! One test binary for everything that needs more than one crate.
//!
//! Names that begin with `bpf_` load BPF programs, with `netns_` make network namespaces; both need root.

mod agent;
mod api;
mod cases;
mod conformance;
mod corpus;
mod datapath;
mod day;
mod delivery;
mod differential;
mod doctor;
mod examples;
mod flood;
mod health;
mod large;
mod lifecycle;
mod mutation;
mod observe;
mod options;
mod packets;
mod peers;
mod ready;
mod refuse;
mod reload;
mod replay;
mod secondaries;
mod tcp;
mod trace;
mod zonefile;
