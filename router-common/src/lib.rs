//! What the XDP program and the agent must agree on: no I/O, no clock, no randomness.
//!
//! Two floors. The ground floor is `no_std` and compiled into BPF as well: [`abi`], [`wire`],
//! [`counter`], [`verdict`] and [`lookup`], [`location`], [`wildcard`], [`trace`]. The upper floor needs the feature `std` and is pure:
//! everything else. A thing is admitted here when both executors (the fast path and the userspace
//! server) must agree on it.
#![cfg_attr(not(feature = "std"), no_std)]

pub mod abi;
pub mod counter;
pub mod location;
pub mod lookup;
pub mod trace;
pub mod verdict;
pub mod wildcard;
pub mod wire;

#[cfg(feature = "std")]
pub mod atlas;
#[cfg(feature = "std")]
pub mod authority;
#[cfg(feature = "std")]
pub mod compile;
#[cfg(feature = "std")]
pub mod decide;
#[cfg(feature = "std")]
pub mod diff;
#[cfg(feature = "std")]
pub mod explain;
#[cfg(feature = "std")]
pub mod geo_regions;
#[cfg(feature = "std")]
pub mod health;
#[cfg(feature = "std")]
pub mod model;
#[cfg(feature = "std")]
pub mod name;
#[cfg(feature = "std")]
pub mod plan;
#[cfg(feature = "std")]
pub mod share;
#[cfg(feature = "std")]
pub mod sim;
#[cfg(feature = "std")]
pub mod status;
#[cfg(feature = "std")]
pub mod tables;
#[cfg(feature = "std")]
pub mod view;

#[cfg(all(test, feature = "std"))]
mod fixture;
