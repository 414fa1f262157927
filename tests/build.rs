//! Builds the programs of the flood for `src/bench/flood.rs` to embed.

#[path = "../router-userspace/build/bpf.rs"]
mod bpf;

fn main() {
    bpf::build_or_exit("xroute-flood");
}
