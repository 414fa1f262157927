//! Health probes: what is sent, when, and what the answers mean for every profile.
//!
//! [`targets_of`] finds what a model wants probed, each target once. An [`Engine`] probes them over
//! and over and reports raw [`Observed`] outcomes. [`Monitors`] hands each to the endpoints that watch
//! the target and says whose verdict changed. [`probe_once`] runs a single probe and tells exactly what
//! was sent and got. `docs/health.md` explains it to operators.
//!
//! The probe speaks HTTP/1.1 over a connection that it opens itself, with hyper's single-connection client:
//! it connects to one place, names another in `Host` and SNI (an IP address included), ends with the
//! probe, and shows the octets that really went over it. A pooling client can do none of this.

mod connect;
mod engine;
mod fault;
mod http;
mod monitors;
mod planner;
mod prober;
mod program;
mod resolve;
mod state_file;
mod targets;
mod tls;
mod transcript;

pub use engine::{Applied, Engine, NextProbe, Observed, Stats};
pub use monitors::{EndpointHealth, Kept, Monitors, Percentiles, Tally};
pub use planner::{Limits, Schedule};
pub use prober::{BODY_LIMIT, Prober, Settings, USER_AGENT, probe_once, sendable};
pub use targets::targets_of;
pub use tls::Roots;
pub use transcript::{Timings, TlsSession, Transcript};

#[cfg(test)]
mod tests;
