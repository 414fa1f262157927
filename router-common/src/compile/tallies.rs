//! Which answers are counted together: those that come by the same endpoints, with the same TTL.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::store::{OutOfRoom, Shelf};
use crate::abi::{CREDIT_NAMES, Credit, MAX_TALLIES, endpoint_hash};
use crate::decide::Credits;
use crate::model::EndpointId;

/// Tallies by what they count. One that was given out stays as long as the generation: an answer that comes back,
/// after an endpoint was down for a while, goes on where it was.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Tallies {
    known: HashMap<(Credits, u32), u32, FixedState>,
    /// The last place that is taken; the first is nobody's.
    last: u32,
    full: bool,
}

impl Tallies {
    /// The tally of answers by these endpoints with this TTL, put in place when it is new; 0, which is not counted,
    /// when there are too many.
    ///
    /// # Errors
    /// The maps have no room for another one, larger ones would.
    pub fn tally(&mut self, credits: &Credits, ttl: u32, shelf: &mut Shelf<'_>) -> Result<u32, OutOfRoom> {
        let key = (Arc::clone(credits), ttl);
        if let Some(&known) = self.known.get(&key) {
            return Ok(known);
        }
        let parts = credits.len().div_ceil(CREDIT_NAMES) as u32;
        let first = self.last + 1;
        let last = self.last.saturating_add(parts);
        // The place after the last one is beyond the half's end, or somebody's.
        if self.full || last >= MAX_TALLIES {
            self.full = true;
            return Ok(0);
        }
        if last >= shelf.room.tallies {
            return Err(OutOfRoom);
        }
        for (index, names) in (first..).zip(credits.chunks(CREDIT_NAMES)) {
            let (ttl, count) = if index == first { (ttl, credits.len() as u32) } else { (0, 0) };
            let mut credit = Credit { ttl, count, ..Credit::EMPTY };
            for (to, &endpoint) in credit.names.iter_mut().zip(names) {
                *to = hash(endpoint, shelf);
            }
            shelf.put_credit(index, credit);
        }
        self.last = last;
        self.known.insert(key, first);
        Ok(first)
    }

    /// Whether there were too many.
    pub fn is_full(&self) -> bool {
        self.full
    }
}

fn hash(endpoint: EndpointId, shelf: &Shelf<'_>) -> u64 {
    endpoint_hash(&shelf.model.profile(endpoint.profile).name, &shelf.model.endpoint(endpoint).name)
}
