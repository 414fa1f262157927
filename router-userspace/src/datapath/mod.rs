//! The kernel side of the agent: the only module that names aya.

pub mod object;
