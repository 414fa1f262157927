//! Health as a state machine: observations become samples, samples fill a window, the window gives
//! a verdict (ROUTING.md §6).
//!
//! A probe of a target yields one raw [`Observation`]. Every profile that watches the target judges it
//! by its own [`expected status`](crate::model::Monitor::expected_status) with [`judge`], and steps its
//! own [`Window`] with the resulting [`Sample`]: one probe on the wire, as many verdicts as profiles.
//!
//! Time is an argument: a [`Duration`](std::time::Duration) since the Unix epoch, so that what is
//! remembered still means the same after a restart.

mod observation;
mod strip;
mod window;

pub use observation::{Observation, Outcome, ProbeFault, Sample, Stage, TlsFault, UnknownFault, judge};
pub use strip::Strip;
pub use window::{LATENCY_WEIGHT, LastSample, Record, Window, smooth, step, verdict};
