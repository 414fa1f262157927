//! The harness: what the tests of `tests/it` share.

pub mod netns;
