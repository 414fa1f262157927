//! One test binary for everything that needs more than one crate.

mod cases;
mod refuse;
mod zonefile;
