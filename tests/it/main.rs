//! One test binary for everything that needs more than one crate.
//!
//! Names that begin with `bpf_` load BPF programs, with `netns_` make network namespaces; both need root.

mod agent;
mod cases;
mod conformance;
mod datapath;
mod differential;
mod examples;
mod health;
mod large;
mod options;
mod packets;
mod ready;
mod refuse;
mod reload;
mod tcp;
mod zonefile;
