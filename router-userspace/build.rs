//! Builds the XDP program for `src/datapath/object.rs` to embed.

#[path = "build/bpf.rs"]
mod bpf;

fn main() {
    bpf::build_or_exit("xroute-xdp");
}
