//! The old agent's part of an upgrade: it starts the new one, hands everything over, and ends; or goes on as if
//! nothing had happened.
//!
//! 1. The new one, started beside this one, loads the configuration. What is wrong until then concerns nobody.
//! 2. This one stops changing anything ("frozen"): it writes its state for the last time, gives sockets and lock, and
//!    only renews the lease. Its userspace server goes on.
//! 3. The new one takes up the state, comes into the fast path, begins to read from the sockets, and says so. When it
//!    ends before it says so, this one takes back what it may have changed.
//! 4. This one leaves the sockets, gives its connections, and ends without detaching anything.
//!
//! The new one is a child because then it has the same namespaces, limits, control group and capabilities, and
//! nobody needs to be trusted to be it.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tokio::sync::{mpsc, oneshot};

use super::LEASE;
use super::serving::Serving;
use crate::audit::{self, Entry, Who};
use crate::clock::unix_now;
use crate::control::{Request, UpgradeReport};
use crate::handing::{Channel, Message, Offer, Taken};
use crate::{dns, privileges};

/// Variable of the environment that tells a new agent that it is one, by the old one's process.
pub(super) const MARK: &str = "XROUTE_TAKES_OVER_FROM";
/// How long the new agent may take to load the configuration, and then again to serve. It is killed when it takes
/// longer: it may be about to change what this one goes on with.
const PATIENCE: Duration = Duration::from_secs(300);

/// The way back to one who asked for an upgrade.
pub(super) type Reply = oneshot::Sender<Result<UpgradeReport, String>>;

/// The program that this process runs, as it was called when it started: what is on disk under that name later is what
/// an upgrade starts.
pub(super) struct Program(Option<PathBuf>);

impl Program {
    /// To be asked at the start, before anybody can have replaced it.
    pub(super) fn find() -> Self {
        Self(std::env::current_exe().ok())
    }

    /// Starts it with the arguments of this process.
    fn start(&self) -> anyhow::Result<(Child, Channel)> {
        let path = self.0.clone().context("it is not known which program this process runs")?;
        if std::process::id() == 1 {
            bail!("the agent is process 1: when it ends, everything does; replace the container instead");
        }
        let (ours, theirs) = Channel::pair().context("cannot make a pair of sockets")?;
        let mut command = Command::new(&path);
        command
            .args(std::env::args_os().skip(1))
            .env(MARK, std::process::id().to_string())
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_FDNAMES")
            .stdin(Stdio::from(OwnedFd::from(theirs)));
        // A thread of its own, because what a child inherits is a matter of the thread that starts it.
        let start = move || {
            privileges::pass_on()?;
            command.spawn().with_context(|| format!("cannot start {}", path.display()))
        };
        let started = std::thread::Builder::new().name("upgrade".into()).spawn(start)?.join();
        Ok((started.unwrap_or_else(|_| bail!("starting it panicked"))?, ours))
    }
}

/// An upgrade that is under way.
pub(super) struct Upgrade {
    who: Who,
    reply: Reply,
    began: Instant,
    pid: u32,
    /// `None` once it is being waited for.
    child: Arc<Mutex<Option<Child>>>,
    channel: Arc<Channel>,
    heard: mpsc::UnboundedReceiver<Message>,
}

/// How an upgrade ended for the old agent.
pub(super) enum Ended {
    /// The new one serves.
    HandedOver(Handed),
    /// This one goes on.
    Failed,
}

/// What is left to do.
pub(super) struct Handed {
    pub(super) taken: Taken,
    channel: Arc<Channel>,
    pub(super) pid: u32,
}

impl Handed {
    /// Where connections go.
    pub(super) fn heir(&self) -> (dns::Heir, tokio::task::JoinHandle<()>) {
        let (heir, mut given) = mpsc::unbounded_channel::<dns::Connection>();
        let channel = Arc::clone(&self.channel);
        let give = move || {
            while let Some(dns::Connection { stream, held }) = given.blocking_recv() {
                if let Err(error) = channel.send(&Message::Connection(stream.into(), held)) {
                    log::warn!("a DNS connection is closed, the new agent does not take it: {error}");
                }
            }
        };
        (heir, tokio::task::spawn_blocking(give))
    }
}

impl Upgrade {
    /// What the new agent says; waits for ever when there is none. `None`: it is gone, or took too long.
    pub(super) async fn hear(upgrade: &mut Option<Self>) -> Option<Message> {
        let Some(upgrade) = upgrade else { return std::future::pending().await };
        let until = tokio::time::Instant::from_std(upgrade.began + PATIENCE);
        match tokio::time::timeout_at(until, upgrade.heard.recv()).await {
            Ok(heard) => heard,
            Err(_) => {
                upgrade.kill();
                None
            }
        }
    }

    /// Ends the new agent, which has not said that it serves.
    fn kill(&self) {
        log::error!("the new agent, process {}, is killed", self.pid);
        kill(&self.child);
    }

    fn failed(self, why: &str) {
        log::error!("upgrade failed, this agent goes on: {why}");
        // The one who asked may be gone.
        let _ = self.reply.send(Err(why.to_owned()));
    }
}

fn kill(child: &Mutex<Option<Child>>) {
    if let Some(child) = &mut *child.lock().unwrap_or_else(PoisonError::into_inner) {
        // One that has just ended cannot be killed, and need not.
        let _ = child.kill();
    }
}

impl Serving {
    /// Starts the new agent.
    pub(super) fn upgrade(&mut self, who: Who, reply: Reply) {
        // Whoever asked may be gone, which is no matter.
        if self.upgrade.is_some() {
            return drop(reply.send(Err(String::from("an upgrade is under way"))));
        }
        let began = Instant::now();
        let (child, channel) = match tokio::task::block_in_place(|| self.program.start()) {
            Ok(started) => started,
            Err(error) => return drop(reply.send(Err(format!("{error:#}")))),
        };
        let pid = child.id();
        log::info!("upgrade: process {pid} is starting, for {}", who.user);
        let (channel, child) = (Arc::new(channel), Arc::new(Mutex::new(Some(child))));
        let (said, heard) = mpsc::unbounded_channel();
        let (listening, ending) = (Arc::clone(&channel), Arc::clone(&child));
        let listen = move || {
            loop {
                match listening.receive() {
                    Ok(Some(message)) => drop(said.send(message)),
                    Ok(None) => break,
                    Err(error) => {
                        log::error!("the new agent is not understood: {error}");
                        // It must not go on by itself.
                        kill(&ending);
                        break;
                    }
                }
            }
            let child = ending.lock().unwrap_or_else(PoisonError::into_inner).take();
            let status = child.map(|mut child| child.wait());
            // Only now is it certain that it changes nothing any more.
            drop(said);
            if let Some(Ok(status)) = status
                && !status.success()
            {
                log::warn!("process {pid} has ended: {status}");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("upgrade".into()).spawn(listen) {
            // The child sees the channel closed, and ends.
            return drop(reply.send(Err(format!("cannot start a thread: {error}"))));
        }
        self.upgrade = Some(Upgrade { who, reply, began, pid, child, channel, heard });
    }

    /// The new agent has said something, or is gone. When this returns [`Ended::HandedOver`] nothing may be changed any
    /// more.
    ///
    /// # Errors
    /// What this agent cannot go on with.
    pub(super) async fn heard(
        &mut self,
        message: Option<Message>,
        descriptors: impl Fn() -> std::io::Result<Vec<OwnedFd>>,
        requests: &mut mpsc::Receiver<Request>,
    ) -> anyhow::Result<Ended> {
        let Some(upgrade) = self.upgrade.take() else { return Ok(Ended::Failed) };
        match message {
            Some(Message::Wanted(newcomer)) => {
                return self.hand_over(upgrade, newcomer.version, descriptors, requests).await;
            }
            Some(Message::Failed(why)) => upgrade.failed(&why),
            Some(other) => {
                upgrade.kill();
                upgrade.failed(&format!("the new agent says something out of turn: {other:?}"));
            }
            None => upgrade.failed("the new agent ended before it had a configuration; the log may say why"),
        }
        Ok(Ended::Failed)
    }

    async fn hand_over(
        &mut self,
        mut upgrade: Upgrade,
        version: String,
        descriptors: impl Fn() -> std::io::Result<Vec<OwnedFd>>,
        requests: &mut mpsc::Receiver<Request>,
    ) -> anyhow::Result<Ended> {
        let frozen = Instant::now();
        let answers = self.kept_answers();
        self.keeper.flush(self.agent.kept(), answers).await;
        let given = descriptors().context("cannot duplicate the sockets").and_then(|sockets| {
            for socket in sockets {
                upgrade.channel.send(&Message::Socket(socket))?;
            }
            if let Some(lock) =
                self.datapath.as_ref().map(crate::datapath::Datapath::lend).transpose()?.flatten()
            {
                upgrade.channel.send(&Message::Lock(lock))?;
            }
            let offer = Offer {
                pid: std::process::id(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                cookie_secret: dns::own_secret(),
                control_stays: self.control_stays,
            };
            Ok(upgrade.channel.send(&Message::Offered(offer))?)
        });
        let mut waiting = Vec::new();
        let answer = match given {
            Err(error) => {
                upgrade.kill();
                Err(format!("{error:#}"))
            }
            Ok(()) => self.wait_for(&mut upgrade, requests, &mut waiting).await,
        };
        match answer {
            Ok(taken) => {
                let report = UpgradeReport {
                    old_pid: std::process::id(),
                    old_version: env!("CARGO_PKG_VERSION").to_owned(),
                    pid: upgrade.pid,
                    version,
                    milliseconds: u64::try_from(upgrade.began.elapsed().as_millis()).unwrap_or(u64::MAX),
                    frozen_milliseconds: u64::try_from(frozen.elapsed().as_millis()).unwrap_or(u64::MAX),
                };
                log::info!("upgraded: {}", report.to_string().trim_end());
                self.note(Entry {
                    at: audit::written(unix_now()),
                    who: upgrade.who,
                    what: "upgrade",
                    asked: format!("{} to {}", report.old_version, report.version),
                    changed: Vec::new(),
                    plan: None,
                    until: None,
                    reason: None,
                    generation: super::status::generation(self),
                });
                for request in waiting {
                    refuse(request);
                }
                let handed = Handed { taken, channel: upgrade.channel, pid: upgrade.pid };
                // The one who asked may be gone.
                let _ = upgrade.reply.send(Ok(report));
                Ok(Ended::HandedOver(handed))
            }
            Err(why) => {
                // Until it is gone it may still be changing something.
                while upgrade.heard.recv().await.is_some() {}
                if let Some(datapath) = &mut self.datapath {
                    let taken_back = tokio::task::block_in_place(|| {
                        datapath.renew_lease(LEASE);
                        datapath.reclaim(&self.agent.compiled().tables)
                    });
                    taken_back.context("cannot take the fast path back from an upgrade that failed")?;
                    self.agent.set_room(super::room(self.datapath.as_ref().context("it was there")?));
                }
                upgrade.failed(&why);
                for request in waiting {
                    self.answer(request);
                }
                Ok(Ended::Failed)
            }
        }
    }

    /// Changes nothing until the new agent says that it serves, or is gone. Who only wants to know something is
    /// answered, others wait.
    async fn wait_for(
        &self,
        upgrade: &mut Upgrade,
        requests: &mut mpsc::Receiver<Request>,
        waiting: &mut Vec<Request>,
    ) -> Result<Taken, String> {
        let mut renewal = tokio::time::interval(super::RENEWAL);
        let patience = tokio::time::sleep(PATIENCE);
        tokio::pin!(patience);
        loop {
            tokio::select! {
                heard = upgrade.heard.recv() => return match heard {
                    Some(Message::Serving(taken)) => Ok(taken),
                    Some(Message::Failed(why)) => Err(why),
                    Some(other) => {
                        upgrade.kill();
                        Err(format!("the new agent says something out of turn: {other:?}"))
                    }
                    None => Err(String::from("the new agent ended before it served; the log may say why")),
                },
                _ = renewal.tick() => {
                    self.manager.alive();
                    if let Some(datapath) = &self.datapath {
                        datapath.renew_lease(LEASE);
                    }
                }
                () = &mut patience => {
                    upgrade.kill();
                    return Err(format!("the new agent did not serve within {} s", PATIENCE.as_secs()));
                }
                Some(request) = requests.recv() => match request {
                    request @ (Request::Status(_)
                    | Request::Metrics(_)
                    | Request::Events(_)
                    | Request::Explain(..)
                    | Request::Readers(_)
                    | Request::Service(_)
                    | Request::Standing(_)
                    | Request::Overrides(_)
                    | Request::Drains(_)) => self.tell(request),
                    request => waiting.push(request),
                },
            }
        }
    }
}

/// Says that what is asked for is the new agent's to do.
fn refuse(request: Request) {
    let why = String::from("the agent was upgraded meanwhile and nothing was changed: ask again");
    // The one who asked may be gone.
    match request {
        Request::Load(_, _, reply) => drop(reply.send(Err(why))),
        Request::Change(_, _, reply) => drop(reply.send(Err(why))),
        Request::Upgrade(_, reply) => drop(reply.send(Err(why))),
        // They were answered when they came.
        Request::Status(_)
        | Request::Metrics(_)
        | Request::Events(_)
        | Request::Explain(..)
        | Request::Readers(_)
        | Request::Service(_)
        | Request::Standing(_)
        | Request::Overrides(_)
        | Request::Drains(_) => {}
    }
}
