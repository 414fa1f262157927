//! One test binary: linked once, and one list of tests.

mod packets;
