//! What becomes of a packet in the fast path, and why.

use crate::counter::Counter;
use crate::lookup::Miss;

/// What becomes of a packet. The counter is the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The packet has become the reply: back out where it came in.
    Answer {
        /// [`Counter::AnswerRecords`] or [`Counter::AnswerNodata`].
        counter: Counter,
        /// The lease had lapsed: [`Counter::AnswerStale`] counts as well.
        stale: bool,
    },
    /// Not for the fast path, and untouched: up the normal stack.
    Pass(Counter),
    /// Ours, and never to be answered by anybody.
    Drop(Counter),
    /// The packet was resized or half written and is no use to anybody. No input leads here; the kernel's
    /// verifier wants a way out of every bounds check.
    Abort(Counter),
}

impl From<Miss> for Verdict {
    #[inline(always)]
    fn from(miss: Miss) -> Self {
        Self::Pass(match miss {
            Miss::UnknownName => Counter::PassUnknownName,
            Miss::Deferred => Counter::PassDeferred,
            Miss::DeferredShare => Counter::PassDeferredShare,
            Miss::Broken => Counter::PassBroken,
        })
    }
}
