//! The tests that need more than one crate. Names that begin with `bpf_` load BPF programs, with `netns_`
//! make network namespaces; both need root.

mod datapath;
