//! Everything around the product: `cargo xtask setup`, `build`, `test`, `demo` and the checks of CI.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod bench;
mod demo;
mod dist;
mod fuzz;
mod interrupt;
mod leftovers;
mod licences;
mod lint;
mod setup;
mod shell;
mod suite;
mod tidy;

/// Work on xroute: set-up, build, tests, demo.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install what building, testing and the demo need; does nothing when all of it is there.
    Setup,
    /// Build the agent, with the XDP program inside.
    Build {
        /// Optimised.
        #[arg(long)]
        release: bool,
    },
    /// Run every test, those in the kernel and in network namespaces included.
    Test,
    /// Measure, print figures beside goals, and write one report to target/bench.
    Bench {
        /// What to measure; without a name prog, flood, peers and userspace, in less than 15 minutes.
        #[arg(value_parser = bench::subjects())]
        subject: Vec<bench::Subject>,
        /// Fewer cases and shorter runs: everything in less than 2 minutes.
        #[arg(long)]
        quick: bool,
    },
    /// Run the fuzz targets on the kept corpus and beyond; CI does for ten seconds each.
    Fuzz {
        /// One target; all of them when left out.
        target: Option<String>,
        /// Seconds for each.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
        seconds: u64,
    },
    /// Show a failover under load: namespaces, XDP, dnsperf, an endpoint killed and revived.
    Demo {
        /// Seconds that dnsperf runs.
        #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(10..=3600))]
        seconds: u64,
        /// Leave it running and print what to try.
        #[arg(long)]
        keep: bool,
        /// End what `--keep` left running.
        #[arg(long, conflicts_with_all = ["seconds", "keep"])]
        stop: bool,
        /// An agent that is built already.
        #[arg(long, value_name = "PATH")]
        binary: Option<PathBuf>,
    },
    /// Make a Debian package and an archive in target/dist, with their checksums.
    Dist {
        /// Make a package of the debug build, look at it with lintian, and install, run, upgrade, remove and purge it
        /// on a copy of this machine.
        #[arg(long)]
        check: bool,
    },
    /// Format, clippy for host and BPF, documentation, tidy, licences: what CI checks besides the tests.
    Lint,
    /// Check the project's own rules: who may name what, and how long a file is.
    Tidy,
    /// Check the licences of all dependencies against deny.toml.
    Licences,
    /// Print the namespaces, XDP programs, veth pairs and pins that exist now, one a line.
    Leftovers,
    /// A small HTTP server that the demo probes.
    #[command(hide = true)]
    Endpoint {
        /// Its name, which is its answer.
        name: String,
        /// Addresses to listen on.
        #[arg(long, required = true)]
        listen: Vec<SocketAddr>,
    },
    /// Ask for A records all the time and write down when each was answered, and how.
    #[command(hide = true)]
    Sample(demo::sampler::Order),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Setup => setup::run(),
        Task::Build { release } => setup::build(release).map(|_| ()),
        Task::Test => suite::run(),
        Task::Bench { subject, quick } => bench::run(&subject, quick),
        Task::Fuzz { target, seconds } => fuzz::run(target.as_deref(), seconds),
        Task::Demo { stop: true, .. } => demo::stop(),
        Task::Demo { seconds, keep, binary, .. } => demo::run(seconds, keep, binary),
        Task::Dist { check: true } => dist::check(),
        Task::Dist { check: false } => dist::run(),
        Task::Lint => lint::run(),
        Task::Tidy => tidy::run(),
        Task::Licences => licences::run(),
        Task::Leftovers => leftovers::run(),
        Task::Endpoint { name, listen } => demo::endpoint::serve(&name, &listen),
        Task::Sample(order) => demo::sampler::run(&order),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Not as the result of `main`: a backtrace would bury the sentence.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
