//! Keeps those who read queries along on the fast path that runs and the configuration that serves.

use std::sync::Arc;

use crate::datapath::Datapath;
use crate::dnstap::Output;
use crate::settings::Dnstap;
use crate::trace::Hub;

/// See the module.
pub(super) struct Tap {
    hub: Arc<Hub>,
    output: Option<Output>,
}

impl Tap {
    /// Nobody reads at first.
    pub(super) fn new(hub: Arc<Hub>) -> Self {
        Self { hub, output: None }
    }

    /// Where dnstap goes.
    pub(super) fn output(&self) -> Option<&Output> {
        self.output.as_ref()
    }

    /// The program may be another one now.
    pub(super) fn follow(&self, datapath: Option<&Datapath>) {
        self.hub.follow(datapath);
    }

    /// A configuration has come into service.
    pub(super) fn configure(&mut self, dnstap: Option<&Dnstap>) {
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
        let Self { hub, output } = self;
        drop(output);
        hub.follow(None);
    }
}
