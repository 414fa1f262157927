//! The scenarios of xroute, and the subjects that they are run on.
//!
//! A scenario is a configuration and questions with the right answers (`cases/*.toml`). A subject is one
//! way to an answer: the oracle, the compiled tables, the userspace server, the program in the kernel.
//! Each scenario is run on each subject.

pub mod agent;
pub mod bench;
pub mod decide;
pub mod delivery;
pub mod exact;
pub mod fuzz;
pub mod http;
pub mod invariants;
pub mod kernel;
pub mod live;
pub mod mutation;
pub mod netns;
pub mod packet;
pub mod prog_run;
pub mod python;
pub mod random;
pub mod rendering;
pub mod reply;
pub mod scenario;
pub mod server;
pub mod sim;
pub mod subject;

/// Set to 1 to make a missing permission for BPF an error instead of a skip; `cargo xtask test` does.
pub const REQUIRE_BPF: &str = "XROUTE_REQUIRE_BPF";

/// Whether tests that load BPF programs can run. When not, says so on a line that starts with
/// `SKIPPED bpf:` (which the test runner counts), or panics when [`REQUIRE_BPF`] is set.
///
/// What is asked is the kernel itself: it makes a small map or says why not.
pub fn need_bpf() -> bool {
    match prog_run::probe_bpf() {
        Ok(()) => true,
        Err(error) => {
            let required = std::env::var(REQUIRE_BPF).is_ok_and(|value| value == "1");
            assert!(!required, "{REQUIRE_BPF}=1, but BPF cannot be used: {error}");
            println!("SKIPPED bpf: {error}");
            false
        }
    }
}
