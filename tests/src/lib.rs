//! The scenarios of xroute, and the subjects that they are run on.
//!
//! A scenario is a configuration and questions with the right answers (`cases/*.toml`). A subject is one
//! way to an answer: the oracle, the compiled tables, the userspace server, the program in the kernel.
//! Each scenario is run on each subject.

pub mod decide;
pub mod rendering;
pub mod scenario;
pub mod sim;
pub mod subject;
