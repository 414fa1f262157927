//! Which endpoint is nearest to a client by the latency table (ROUTING.md §3, performance).

use std::cmp::Ordering;

use crate::model::Coordinates;

/// Mean radius of the earth, kilometres.
const EARTH_RADIUS: f64 = 6371.0;

/// How near a region is to a client: what the table gives comes first, then what has a distance.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Nearness {
    /// Milliseconds by the table.
    Latency(f64),
    /// Kilometres along a great circle.
    Distance(f64),
    /// Nothing is known.
    Unknown,
}

impl Nearness {
    fn rank(self) -> (u8, f64) {
        match self {
            Self::Latency(milliseconds) => (0, milliseconds),
            Self::Distance(kilometres) => (1, kilometres),
            Self::Unknown => (2, 0.0),
        }
    }

    fn order(self, other: Self) -> Ordering {
        let (mine, theirs) = (self.rank(), other.rank());
        mine.0.cmp(&theirs.0).then(mine.1.total_cmp(&theirs.1))
    }
}

/// Sorts endpoints (positions in their profile, ascending) from near to far; ties keep the file's order.
pub(crate) fn nearest_first(
    endpoints: impl Iterator<Item = u32>,
    nearness: impl Fn(u32) -> Nearness,
) -> Vec<u32> {
    let mut ranked: Vec<(Nearness, u32)> = endpoints.map(|index| (nearness(index), index)).collect();
    ranked.sort_by(|a, b| a.0.order(b.0).then(a.1.cmp(&b.1)));
    ranked.into_iter().map(|(_, index)| index).collect()
}

/// Nearness of a region: its latency when the table gives one, else by the two places.
pub(crate) fn nearness(
    latency: Option<f64>,
    client: Option<Coordinates>,
    region: Option<Coordinates>,
) -> Nearness {
    match (latency, client, region) {
        (Some(milliseconds), ..) => Nearness::Latency(milliseconds),
        (None, Some(client), Some(region)) => Nearness::Distance(great_circle(client, region)),
        _ => Nearness::Unknown,
    }
}

/// Kilometres between two places (haversine formula).
fn great_circle(a: Coordinates, b: Coordinates) -> f64 {
    let (latitude_a, latitude_b) = (a.latitude.to_radians(), b.latitude.to_radians());
    let half_latitude = ((latitude_b - latitude_a) / 2.0).sin();
    let half_longitude = ((b.longitude - a.longitude).to_radians() / 2.0).sin();
    let square = half_latitude.powi(2) + latitude_a.cos() * latitude_b.cos() * half_longitude.powi(2);
    2.0 * EARTH_RADIUS * square.sqrt().min(1.0).asin()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_those_of_the_globe() {
        let amsterdam = Coordinates { latitude: 52.37, longitude: 4.90 };
        let new_york = Coordinates { latitude: 40.71, longitude: -74.01 };
        let kilometres = great_circle(amsterdam, new_york);
        assert!((5_800.0..5_950.0).contains(&kilometres), "{kilometres}");
        // Across the date line is the short way.
        let fiji = Coordinates { latitude: -18.0, longitude: 179.0 };
        let samoa = Coordinates { latitude: -14.0, longitude: -172.0 };
        assert!(great_circle(fiji, samoa) < 1_200.0);
        assert_eq!(great_circle(fiji, fiji), 0.0);
    }

    #[test]
    fn known_before_near_before_unknown_before_later_in_the_file() {
        let nearness = |index: u32| match index {
            0 => Nearness::Unknown,
            1 => Nearness::Distance(10.0),
            2 => Nearness::Latency(300.0),
            3 => Nearness::Latency(20.0),
            4 => Nearness::Distance(5.0),
            5 => Nearness::Latency(20.0),
            _ => Nearness::Unknown,
        };
        assert_eq!(nearest_first(0..7, nearness), [3, 5, 2, 4, 1, 0, 6]);
    }
}
