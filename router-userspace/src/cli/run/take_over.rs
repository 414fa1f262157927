//! The new agent's part of an upgrade: it takes what the old one serves with.
//!
//! The old agent has started this process, with one end of a [`Channel`] as standard input. Until [`Predecessor::serving`]
//! the old one can go on as if nothing had happened, whatever becomes of this process.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use anyhow::{Context, bail};

use super::sockets::Given;
use super::upgrade::MARK;
use crate::dns::{self, Connection, Heir};
use crate::handing::{Channel, Message, Newcomer, Offer, Taken};

/// The agent that is replaced.
pub(super) struct Predecessor {
    channel: Channel,
    /// Lock on the pins of the fast path, when it has one.
    pub(super) lock: Option<OwnedFd>,
    pub(super) offer: Offer,
}

impl Predecessor {
    /// The one that started this process; `None` when somebody else did.
    ///
    /// # Errors
    /// When standard input cannot be taken.
    pub(super) fn find() -> anyhow::Result<Option<Self>> {
        if std::env::var_os(MARK)
            .is_none_or(|pid| pid != std::os::unix::process::parent_id().to_string().as_str())
        {
            return Ok(None);
        }
        let input = std::io::stdin();
        let channel = input.as_fd().try_clone_to_owned()?;
        // Nothing else shall read from it, and no program that is started shall have it.
        let nothing: OwnedFd = std::fs::File::open("/dev/null")?.into();
        // SAFETY: both are open; what had the number 0 is closed, which `channel` is a duplicate of.
        if unsafe { libc::dup2(nothing.as_raw_fd(), libc::STDIN_FILENO) } < 0 {
            return Err(std::io::Error::last_os_error()).context("cannot give up standard input");
        }
        Ok(Some(Self { channel: channel.into(), lock: None, offer: Offer::default() }))
    }

    /// Says that the configuration is in order and takes what there is. From here on the old agent changes nothing.
    ///
    /// # Errors
    /// When it is gone, or gives something else.
    pub(super) fn take(&mut self) -> anyhow::Result<Given> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        self.channel.send(&Message::Wanted(Newcomer { version })).context("the old agent is gone")?;
        let mut sockets = Vec::new();
        loop {
            match self.channel.receive().context("the old agent is not understood")? {
                Some(Message::Socket(socket)) => sockets.push(socket),
                Some(Message::Lock(lock)) => self.lock = Some(lock),
                Some(Message::Offered(offer)) => {
                    self.offer = offer;
                    break;
                }
                None => bail!("the old agent is gone"),
                Some(other) => bail!("the old agent says something out of turn: {other:?}"),
            }
        }
        if let Some(secret) = self.offer.cookie_secret {
            dns::adopt_secret(secret);
        }
        Given::of_agent(sockets, self.offer.control_stays)
    }

    /// Tells why this process ends before it serves.
    pub(super) fn failed(&self, why: &anyhow::Error) {
        // An old agent that is gone needs no reason.
        let _ = self.channel.send(&Message::Failed(format!("{why:#}")));
    }

    /// Says that this agent serves. The old one gives its connections, and `ended` is called when it is gone.
    ///
    /// # Errors
    /// When no thread can be made.
    pub(super) fn serving(
        self,
        taken: Taken,
        arrivals: Heir,
        ended: impl FnOnce() + Send + 'static,
    ) -> anyhow::Result<()> {
        let Self { channel, offer, .. } = self;
        if channel.send(&Message::Serving(taken)).is_err() {
            log::warn!(
                "the old agent, process {}, was gone before it could hand over its connections",
                offer.pid
            );
        }
        let listen = move || {
            let mut count = 0usize;
            loop {
                match channel.receive() {
                    Ok(Some(Message::Connection(stream, held))) => {
                        count += 1;
                        // A server that has ended closes it.
                        let _ = arrivals.send(Connection { stream: stream.into(), held });
                    }
                    Ok(None) => break,
                    Ok(Some(other)) => log::warn!("the old agent says something out of turn: {other:?}"),
                    Err(error) => {
                        log::warn!("the old agent is not understood: {error}");
                        break;
                    }
                }
            }
            log::info!(
                "xroute {}, process {}, has handed over everything, with {count} DNS connections",
                offer.version,
                offer.pid
            );
            ended();
        };
        std::thread::Builder::new()
            .name("taking-over".into())
            .spawn(listen)
            .context("cannot start a thread")?;
        Ok(())
    }
}
