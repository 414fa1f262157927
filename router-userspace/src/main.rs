//! `xroute`: everything is in the library; this only wires the command line to it.

use std::process::ExitCode;

fn main() -> ExitCode {
    router_userspace::cli::main()
}
