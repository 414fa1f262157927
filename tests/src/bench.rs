//! What the benchmarks measure with, and what they measure.

pub mod cases;
pub mod estate;
pub mod interpreter;
pub mod maps;
pub mod plot;
pub mod report;
pub mod world;
