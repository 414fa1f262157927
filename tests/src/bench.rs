//! What the benchmarks measure with, and what they measure.

pub mod cases;
pub mod contest;
pub mod estate;
pub mod flood;
pub mod interpreter;
pub mod lab;
pub mod maps;
pub mod peers;
pub mod plot;
pub mod report;
pub mod serving;
pub mod world;
