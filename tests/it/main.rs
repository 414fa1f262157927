//! One test binary: linked once, and one list of tests. Names that begin with `bpf_` load BPF programs,
//! with `netns_` make network namespaces; both need root.

mod datapath;
mod packets;
