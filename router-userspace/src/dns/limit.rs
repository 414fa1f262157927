//! Response rate limiting: how many like replies one network gets over UDP.
//!
//! Whoever forges a victim's address can have us send to it. Each network has an account for each kind of
//! reply about each name ([`Account`]); a second adds what the configuration allows, a reply takes one, and
//! once in debt an account gets nothing until its owner has been silent for a while. So a flood does not go
//! on at the allowed rate, it ends. As in BIND, what a client that is not the attacker may still need comes
//! as a truncated reply (slip), which sends it to TCP, where addresses cannot be forged.
//!
//! All threads share one table: the kernel spreads a victim's forged ports over all sockets, so a table for
//! each thread would allow the rate once for each. It is cut into shards with a lock each; a lock is held
//! for a search in one set of accounts, and two threads rarely want the same one.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use router_common::counter::Counter;

use super::Counts;
use super::account::{Account, Class};
use crate::settings::RateLimit;

/// Parts of the table with a lock each.
const SHARDS: usize = 64;
/// Accounts that a hash may be kept at.
const WAYS: usize = 8;
/// Milliseconds by which one thread's time may be behind another's; what is further back is a clock that
/// was set.
const SKEW: u64 = 1000;
/// Units of an account: thousandths of a reply, so that a millisecond earns as many as a second earns replies.
const REPLY: i64 = 1000;

/// What is to be done with a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Send it.
    Send,
    /// Send header, question and OPT, with TC.
    Truncate,
    /// Send nothing.
    Drop,
}

/// Every network's accounts. Outlives reloads; the settings are given with each reply.
pub(super) struct Limiter {
    /// Nobody can choose names or addresses that meet in the table.
    key: RandomState,
    shards: Box<[Mutex<Vec<Entry>>]>,
}

impl Default for Limiter {
    /// An empty table; it takes memory when the first reply is judged.
    fn default() -> Self {
        Self { key: RandomState::new(), shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl Limiter {
    /// Judges a reply that is about to leave over UDP, and counts what is over the limit. `now` is any clock,
    /// one that is set back too.
    pub fn judge(
        &self,
        limit: Option<&RateLimit>,
        account: &Account,
        source: IpAddr,
        now: Duration,
        counts: &Counts,
    ) -> Action {
        let Some(limit) = limit else { return Action::Send };
        let action = self.decide(limit, account, source.to_canonical(), now);
        let counter = match action {
            Action::Send => return Action::Send,
            _ if limit.dry_run => Counter::ServerRateDryRun,
            Action::Truncate => Counter::ServerRateSlipped,
            Action::Drop => Counter::ServerRateDropped,
        };
        counts.add(counter);
        if limit.dry_run { Action::Send } else { action }
    }

    fn decide(&self, limit: &RateLimit, account: &Account, source: IpAddr, now: Duration) -> Action {
        let rate = rate(limit, account.class);
        if rate == 0 || limit.exempt.iter().any(|range| (range.first..=range.last).contains(&source)) {
            return Action::Send;
        }
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        // 0 marks an entry that is free.
        let hash = self.key.hash_one((network(limit, source), account)).max(1);
        let Some(shard) = self.shards.get(hash as usize % SHARDS) else { return Action::Send };
        let mut entries = shard.lock().unwrap_or_else(PoisonError::into_inner);
        let sets = (limit.table_size as usize).div_ceil(SHARDS * WAYS).max(1);
        if entries.len() != sets * WAYS {
            // First use, or another size since the last reload.
            *entries = vec![Entry::default(); sets * WAYS];
        }
        let set = ((hash >> 32) as usize * sets) >> 32;
        let Some(ways) = entries.get_mut(set * WAYS..(set + 1) * WAYS) else { return Action::Send };
        let Some(entry) = find(ways, hash, now, rate) else { return Action::Send };
        let lowest = -(i64::from(rate) * i64::from(limit.window) * REPLY);
        entry.refill(rate, lowest, now);
        entry.spend(lowest, limit.slip)
    }
}

/// The account with this hash; if there is none, a new one in credit, in place of the one that was not used
/// for the longest time. That one's debt is forgotten: a table that is too small limits less, never a client
/// that did nothing.
fn find(ways: &mut [Entry], hash: u64, now: u64, rate: u32) -> Option<&mut Entry> {
    let at = match ways.iter().position(|entry| entry.hash == hash) {
        Some(at) => at,
        None => {
            // Of times that lie ahead, since the clock was set back, the furthest is the stalest too.
            let stalest = |entry: &Entry| if entry.hash == 0 { u64::MAX } else { now.abs_diff(entry.at) };
            let (at, entry) = ways.iter_mut().enumerate().max_by_key(|(_, entry)| stalest(entry))?;
            *entry = Entry { hash, at: now, balance: i64::from(rate) * REPLY, over: 0 };
            at
        }
    };
    ways.get_mut(at)
}

/// One account.
#[derive(Clone, Copy, Default)]
struct Entry {
    /// Hash of network and account; 0 = free.
    hash: u64,
    /// Milliseconds: when it was last filled.
    at: u64,
    /// Thousandths of replies: at most what a second adds, at least minus what the window does.
    balance: i64,
    /// Replies over the limit.
    over: u32,
}

impl Entry {
    /// Adds what the time since the last reply is worth.
    fn refill(&mut self, rate: u32, lowest: i64, now: u64) {
        // A debt made under a higher rate or a longer window is not held against a client.
        self.balance = self.balance.max(lowest);
        if now < self.at {
            if self.at - now > SKEW {
                self.at = now;
            }
            return;
        }
        let earned = i64::from(rate).saturating_mul(i64::try_from(now - self.at).unwrap_or(i64::MAX));
        self.balance = self.balance.saturating_add(earned).min(i64::from(rate) * REPLY);
        self.at = now;
    }

    /// Takes one reply, and says what becomes of it.
    fn spend(&mut self, lowest: i64, slip: u32) -> Action {
        self.balance = (self.balance - REPLY).max(lowest);
        if self.balance >= 0 {
            return Action::Send;
        }
        self.over = self.over.wrapping_add(1);
        if slip > 0 && self.over.is_multiple_of(slip) { Action::Truncate } else { Action::Drop }
    }
}

/// Replies per second of a class; 0 = without limit.
fn rate(limit: &RateLimit, class: Class) -> u32 {
    match class {
        Class::Answer => limit.responses_per_second,
        Class::Nodata => limit.nodata_per_second,
        Class::Nxdomain => limit.nxdomains_per_second,
        Class::Referral => limit.referrals_per_second,
        Class::Error => limit.errors_per_second,
        Class::Exempt => 0,
    }
}

/// The network that an address belongs to: family, and address with its host bits zero.
fn network(limit: &RateLimit, source: IpAddr) -> (bool, u128) {
    match source {
        IpAddr::V4(address) => {
            let host = 32u32.saturating_sub(limit.ipv4_prefix.into());
            let mask = u32::MAX.checked_shl(host).unwrap_or(0);
            (false, u128::from(address.to_bits() & mask))
        }
        IpAddr::V6(address) => {
            let host = 128u32.saturating_sub(limit.ipv6_prefix.into());
            (true, address.to_bits() & u128::MAX.checked_shl(host).unwrap_or(0))
        }
    }
}
