//! Which part of a profile's answers each of its endpoints is to have.

use crate::atlas::Location;
use crate::model::{Method, Profile, ProfileId};

use super::oracle::{Oracle, What};
use super::{Asked, Snapshot};

/// Decides for many profiles; statuses are worked out once.
pub struct Expectations<'s> {
    snapshot: &'s Snapshot,
    oracle: Oracle<'s>,
}

impl<'s> Expectations<'s> {
    /// Of this moment.
    pub fn new(snapshot: &'s Snapshot) -> Self {
        Self { snapshot, oracle: Oracle::new(snapshot) }
    }

    /// By position, the part of a profile's endpoint answers that each endpoint is to have, 0..=1. `None` when that
    /// depends on who asks, or on whether addresses of one family or the other are asked for, or when nothing is
    /// answered.
    pub fn of(&self, id: ProfileId) -> Option<Vec<f64>> {
        let profile = self.snapshot.model.profile(id);
        if !is_for_everybody(profile) {
            return None;
        }
        let location = self.snapshot.atlas.default_location();
        let [ipv4, ipv6] = [Asked::A, Asked::Aaaa].map(|asked| self.parts(id, profile, asked, location));
        match (ipv4, ipv6) {
            (Some(ipv4), Some(ipv6)) => (ipv4 == ipv6).then_some(ipv4),
            (one, other) => one.or(other),
        }
    }

    /// `None` for NODATA.
    fn parts(&self, id: ProfileId, profile: &Profile, asked: Asked, location: &Location) -> Option<Vec<f64>> {
        let mut parts = vec![0.0; profile.endpoints.len()];
        let mut add = |index: u32, part: f64| {
            if let Some(held) = parts.get_mut(index as usize) {
                *held += part;
            }
        };
        match self.oracle.verdict(id, asked, location).what {
            What::Nodata | What::Hashed(_) => return None,
            What::One(index) => add(index, 1.0),
            What::Shares(shares) => shares.iter().for_each(|(share, index)| add(*index, share.to_f64())),
            // An answer counts for each endpoint in it.
            What::Sets(sets) => {
                let all = sets.iter().map(|(_, of)| of.len()).sum::<usize>().max(1) as f64;
                sets.iter().flat_map(|(_, of)| of).for_each(|&index| add(index, 1.0 / all));
            }
        }
        Some(parts)
    }
}

/// Whether all clients are answered alike, as far as the profile itself decides.
fn is_for_everybody(profile: &Profile) -> bool {
    let has_subnets = || profile.endpoints.iter().any(|endpoint| !endpoint.subnets.is_empty());
    match profile.method {
        Method::Priority | Method::Weighted | Method::Multivalue { .. } => true,
        Method::Fastest { .. } => !has_subnets(),
        Method::Performance | Method::Geographic | Method::Subnet => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::*;

    fn expected(profile: Profile, state: &[&str]) -> Option<Vec<f64>> {
        let snapshot = World::new(vec![profile]).with_state(state).snapshot();
        Expectations::new(&snapshot).of(ProfileId(0))
    }

    #[test]
    fn by_weight_of_what_is_available() {
        let mut weighted =
            profile("w", Method::Weighted, vec![endpoint("a", "192.0.2.1"), endpoint("b", "192.0.2.2")]);
        weighted.endpoints[0].weight = 3;
        assert_eq!(expected(weighted.clone(), &[]), Some(vec![0.75, 0.25]));
        assert_eq!(expected(weighted.clone(), &["w/b=unhealthy"]), Some(vec![1.0, 0.0]));
        // Of one family only one endpoint has addresses.
        weighted.endpoints[1] = endpoint("b", "2001:db8::1");
        assert_eq!(expected(weighted, &[]), None);
    }

    #[test]
    fn multivalue_counts_each_endpoint_of_an_answer() {
        let three = (1..4).map(|at| endpoint(&format!("e{at}"), &format!("192.0.2.{at}"))).collect();
        let parts = expected(profile("m", Method::Multivalue { max_return: 2 }, three), &[])
            .expect("the same for all");
        assert!(parts.iter().all(|part| (part - 1.0 / 3.0).abs() < 1e-9), "{parts:?}");
    }

    #[test]
    fn nothing_is_expected_where_the_client_decides() {
        let mut near = endpoint("a", "192.0.2.1");
        near.region = Some("eu".into());
        assert_eq!(expected(profile("p", Method::Performance, vec![near]), &[]), None);
    }
}
