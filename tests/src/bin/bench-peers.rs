//! `cargo xtask bench peers`: xroute's fast path beside other DNS servers.

use std::path::Path;

use anyhow::Result;
use router_tests::bench::peers::lineup::{Lineup, Size};
use router_tests::bench::peers::rate::Rates;
use router_tests::bench::peers::{OTHERS, XROUTE, XROUTE_USERSPACE};

const TABLES: &str = "/usr/share/tor";

fn main() -> Result<()> {
    let quick = std::env::args().any(|a| a == "--quick");
    let peers: Vec<_> = [&XROUTE, &XROUTE_USERSPACE]
        .into_iter()
        .chain(&OTHERS)
        .filter(|p| std::env::var("ONLY").map_or(true, |o| o.split(',').any(|o| o == p.name)))
        .collect();
    let begun = std::time::Instant::now();
    let size = if quick { Size { names: 10_000, every: 10 } } else { Size { names: 100_000, every: 1 } };
    let mut lineup = Lineup::start(&peers, Path::new(TABLES), size)?;
    eprintln!("started after {:?}", begun.elapsed());
    let mut rates = Rates::new(&mut lineup, 1 << 17)?;
    eprintln!("loaded after {:?}", begun.elapsed());
    for s in &lineup.servers {
        eprintln!("{} {:?}", s.peer.name, rates.best(s, 0.3)?);
        eprintln!("{}", s.ground.lab.far.sh("ethtool -S fl1 | grep -E 'xdp_drops|errors|queue_0_drops'; grep Udp: /proc/net/snmp | cut -c1-100;ss -uanm | grep skmem"));
    }
    eprintln!("done after {:?}", begun.elapsed());
    Ok(())
}
