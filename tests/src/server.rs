//! The userspace server as a subject: octets in, octets out, without a socket.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use router_common::decide::Snapshot;
use router_common::share::Share;
use router_userspace::dns::{Client, Counts, Service, Transport, respond};

use crate::reply::{self, Reply};
use crate::subject::{Answer, Question, Subject};

/// Queries for one answer. Their random numbers are spread evenly, so that a share is met to one query
/// for each of its ends.
const QUERIES: u64 = 720;

/// What the userspace server answers.
pub struct Server {
    service: Service,
    counts: Counts,
}

impl Server {
    /// A server that answers from a snapshot.
    pub fn new(snapshot: Snapshot) -> Self {
        Self { service: Service::new(snapshot, Arc::default()), counts: Counts::default() }
    }

    fn one(&self, question: &Question, random: u64, with_own_address: bool) -> Result<Reply> {
        let source = question.asker.source;
        let own = with_own_address.then_some((source, if source.is_ipv4() { 32 } else { 128 }));
        let query = reply::query(question, own);
        let client = Client { source, transport: Transport::Udp, now: Duration::ZERO };
        let message = respond(&self.service, &query, &client, &mut || random, &self.counts);
        reply::decode(&message.context("no reply")?, question)
    }
}

impl Subject for Server {
    fn name(&self) -> &'static str {
        "server"
    }

    /// Two queries for each of a few stretches of random numbers.
    fn tolerance(&self) -> Share {
        Share::ratio(8, QUERIES)
    }

    fn must_answer(&self, _: &Question) -> bool {
        true
    }

    fn ask(&mut self, question: &Question) -> Result<Option<Answer>> {
        let step = u64::MAX / QUERIES;
        let replies: Result<Vec<Reply>> =
            (0..QUERIES).map(|at| self.one(question, at * step + step / 2, false)).collect();
        let scoped = self.one(question, 0, true)?;
        Ok(Some(reply::gather(&replies?, &scoped)?))
    }
}
