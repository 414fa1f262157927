//! Reports of the program (`router-ebpf/src/report.rs`), for the log.
//!
//! aya-log reads the ring of an object that was just loaded, or finds it by the program's id, for which the
//! kernel wants CAP_SYS_ADMIN. An adopted program has neither: so its pinned ring is put into an object that is
//! read for that and then dropped, without its program ever being loaded.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use anyhow::{Context, Result};
use aya::EbpfLoader;
use aya_log::EbpfLogger;
use log::Log;
use router_common::abi::map;

use super::object::OBJECT;

/// See the module.
pub struct Reports<L>(EbpfLogger<L>);

impl<L: Log> Reports<L> {
    /// Those of the instance that is pinned as a set.
    pub(super) fn open(set: &Path, logger: L) -> Result<Self> {
        let mut object = EbpfLoader::new()
            .map_pin_path(map::REPORTS, set.join(map::REPORTS))
            .load(OBJECT)
            .context("cannot read the object")?;
        let reports = EbpfLogger::init_with_logger(&mut object, logger).context("cannot read the ring")?;
        Ok(Self(reports))
    }

    /// Logs what was reported since the last time.
    pub fn flush(&mut self) {
        // aya-log panics on a report that it cannot read, which would be no reason to end.
        if catch_unwind(AssertUnwindSafe(|| self.0.flush())).is_err() {
            log::error!("the fast path reports what this agent cannot read");
        }
    }
}
