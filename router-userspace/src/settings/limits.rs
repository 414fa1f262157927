//! `[limits]`: what a new configuration may change at once, unless it is forced.

/// Limits of what a change may do; `None`: no limit. Those of what runs count, so that a broken file cannot bring
/// its own.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ChangeLimits {
    /// Share of all answers that may become others, 0..=1.
    pub moved_max: Option<f64>,
    /// Share of any one profile's answers that may become others, 0..=1.
    pub profile_moved_max: Option<f64>,
    /// Share of all answers that may become NODATA, 0..=1; 0 allows no client at all.
    pub nodata_max: Option<f64>,
    /// Names that may go.
    pub removed_names_max: Option<u32>,
    /// Endpoints that may go, with profiles that go or without.
    pub removed_endpoints_max: Option<u32>,
}

// Shares come from a file, where "not a number" is refused.
impl Eq for ChangeLimits {}

impl ChangeLimits {
    /// Whether there is any.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}
