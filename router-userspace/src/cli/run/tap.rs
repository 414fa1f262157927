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
    /// An agent before this one may still read from the ring, which has one reader at a time.
    waits: bool,
}

impl Tap {
    /// Nobody reads before [`Tap::begin`].
    pub(super) fn new(hub: Arc<Hub>) -> Self {
        Self { hub, output: None, waits: true }
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

    /// The program may be another one now.
    pub(super) fn follow(&self, datapath: Option<&Datapath>) {
        if self.waits {
            return;
        }
        self.hub.follow(datapath);
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
        let Self { hub, output, waits: _ } = self;
        drop(output);
        hub.follow(None);
    }
}
