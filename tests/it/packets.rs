//! The XDP program, packet by packet: what is answered, what is not, and which counters move.
//!
//! Tables are written by hand through the ABI, so that nothing here depends on the compiler of tables.

mod answers;
mod client_subnet;
mod fixture;
mod measure;
mod picks;
mod refused;
mod sizes;
mod tallies;
mod trace;
