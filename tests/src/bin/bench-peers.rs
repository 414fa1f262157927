//! `cargo xtask bench peers`: xroute's fast path beside other DNS servers.

use std::path::Path;

use anyhow::Result;
use router_tests::bench::peers::contest::{Contest, Size};
use router_tests::bench::peers::{OTHERS, XROUTE, XROUTE_USERSPACE, latency};

const TABLES: &str = "/usr/share/tor";

fn main() -> Result<()> {
    let quick = std::env::args().any(|a| a == "--quick");
    let peers: Vec<_> = [&XROUTE, &XROUTE_USERSPACE].into_iter().chain(&OTHERS).collect();
    let begun = std::time::Instant::now();
    let size = if quick { Size { names: 10_000, every: 10 } } else { Size { names: 100_000, every: 1 } };
    let contest = Contest::start(&peers, Path::new(TABLES), size)?;
    eprintln!("started after {:?}", begun.elapsed());
    for s in &contest.servers {
        eprintln!("{} {:?} {:?}", s.peer.name, s.peer.version(), s.processor_time()?);
    }
    eprintln!("{} answers compared", contest.compare()?);
    for s in &contest.servers {
        eprintln!(
            "{} {:?}",
            s.peer.name,
            latency::measure(s, &contest.questions(), 20_000, 2, &contest.cores)?
        );
    }
    Ok(())
}
