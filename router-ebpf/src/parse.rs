//! Query bytes to [`Query`].
use router_common::lookup::Query;

/// Per-CPU working memory.
#[repr(C)]
pub struct Scratch {
    /// The query.
    pub query: Query,
}
