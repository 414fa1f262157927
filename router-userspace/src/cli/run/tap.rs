//! Keeps those who read queries along on the fast path that runs and the configuration that serves; and logs
//! what the fast path reports.

use std::sync::Arc;

use log::Log;

use crate::datapath::{Datapath, Reports};
use crate::dnstap::Output;
use crate::settings::Dnstap;
use crate::trace::Hub;

/// See the module.
pub(super) struct Tap {
    hub: Arc<Hub>,
    output: Option<Output>,
    /// An agent before this one may still read from the ring, which has one reader at a time.
    waits: bool,
    /// Of the program with this id.
    reports: Option<(u32, Reports<&'static dyn Log>)>,
}

impl Tap {
    /// Nobody reads before [`Tap::begin`].
    pub(super) fn new(hub: Arc<Hub>) -> Self {
        Self { hub, output: None, waits: true, reports: None }
    }

    /// From now on the fast path is read, and dnstap goes out. Nothing when it was begun before.
    pub(super) fn begin(&mut self, datapath: Option<&Datapath>, dnstap: Option<&Dnstap>) {
        if std::mem::take(&mut self.waits) {
            self.follow(datapath);
            self.configure(dnstap);
        }
    }

    /// Where dnstap goes.
    pub(super) fn output(&self) -> Option<&Output> {
        self.output.as_ref()
    }

    /// The program may be another one now, and may have reported something.
    pub(super) fn follow(&mut self, datapath: Option<&Datapath>) {
        if self.waits {
            return;
        }
        self.hub.follow(datapath);
        let Some(datapath) = datapath else { return };
        let id = datapath.program_id();
        if self.reports.as_ref().is_none_or(|&(of, _)| of != id) {
            match datapath.reports(log::logger()) {
                Ok(reports) => self.reports = reports.map(|reports| (id, reports)),
                Err(error) => log::warn!("reports of the fast path cannot be read: {error:#}"),
            }
        }
        if let Some((_, reports)) = &mut self.reports {
            reports.flush();
        }
    }

    /// A configuration has come into service.
    pub(super) fn configure(&mut self, dnstap: Option<&Dnstap>) {
        if self.waits {
            return;
        }
        if let Some(output) = self.output.as_ref().filter(|output| Some(output.settings()) == dnstap) {
            output.reopen();
            return;
        }
        if let Some(output) = self.output.take() {
            output.retire();
        }
        self.output = dnstap.and_then(|settings| {
            Output::start(settings.clone(), &self.hub)
                .inspect_err(|error| log::error!("no dnstap: {error:#}"))
                .ok()
        });
    }

    /// Ends dnstap in good order, and leaves the fast path alone.
    pub(super) fn end(self) {
        let Self { hub, output, waits: _, reports: _ } = self;
        drop(output);
        hub.follow(None);
    }
}
