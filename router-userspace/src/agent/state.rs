//! Health across restarts: what the agent wants kept, and how it takes up what was kept.

use std::collections::HashMap;
use std::time::Duration;

use router_common::model::{EndpointId, Model, Monitor, ProfileId};

use super::{Agent, Refused};
use crate::config::Config;
use crate::overrides::Overrides;
use crate::probe::{Kept, Monitors, Tally};
use crate::state::Saved;

/// State is used up to this age, or to [`INTERVALS`] where that is more.
const AGE: Duration = Duration::from_secs(600);
/// Intervals of the monitor.
const INTERVALS: u32 = 10;

impl Agent {
    /// As [`Agent::with_overrides`], with the health that was kept: the first tables know it, and it holds
    /// until the first new samples. Left out is what is too old, of another target or expected status, or broken.
    /// Also returns how many endpoints took it up. `now` is the time since the epoch.
    ///
    /// # Errors
    /// When the configuration does not compile, or the overrides make no sound one of it.
    pub fn resume(
        config: Config,
        overrides: Overrides,
        saved: &Saved,
        now: Duration,
    ) -> Result<(Self, usize), Refused> {
        let model = overrides.over(&config.model).map_err(Refused::Overrides)?;
        let mut monitors = Monitors::new(&model);
        let taken = restore(&mut monitors, &model, saved, now);
        let mut agent = Self::with_overrides(config, overrides, monitors.health_view())?;
        agent.monitors = monitors;
        Ok((agent, taken))
    }

    /// How many probed endpoints are in which state.
    pub fn tally(&self) -> Tally {
        self.monitors.tally()
    }

    /// What is to be kept.
    pub fn kept(&self) -> Vec<Kept> {
        self.monitors.kept()
    }
}

fn restore(monitors: &mut Monitors, model: &Model, saved: &Saved, now: Duration) -> usize {
    let mut places: HashMap<(&str, &str), (EndpointId, &Monitor)> = HashMap::new();
    for (i, profile) in (0u32..).zip(model.profiles()) {
        for (index, endpoint) in (0u32..).zip(&profile.endpoints) {
            if let Some(monitor) = &endpoint.monitor {
                let id = EndpointId { profile: ProfileId(i), index };
                places.insert((&profile.name, &endpoint.name), (id, monitor));
            }
        }
    }
    let mut taken = 0;
    for kept in saved.endpoints() {
        let Some(&(id, monitor)) = places.get(&(kept.profile.as_str(), kept.endpoint.as_str())) else {
            continue;
        };
        // A clock that was set back makes the state seem young, never old.
        let age = now.saturating_sub(kept.last_at());
        let fits = age <= AGE.max(monitor.interval * INTERVALS)
            && kept.expected_status == monitor.expected_status
            && kept.target == monitor.target.to_string();
        let Some((rule, record)) = kept.record().filter(|_| fits) else { continue };
        taken += usize::from(monitors.restore(id, &monitor.target, rule, record, now));
    }
    taken
}

#[cfg(test)]
mod tests {
    use router_common::view::{Health, HealthView};

    use super::*;
    use crate::agent::tests::{NOW, agent, configuration, fail, probe, serving};

    const BOTH: [(&str, u8); 2] = [("eu", 1), ("us", 2)];

    fn id(index: u32) -> EndpointId {
        EndpointId { profile: ProfileId(0), index }
    }

    /// Two endpoints, the first down.
    fn down() -> Saved {
        let mut agent = agent(&BOTH);
        for _ in 0..4 {
            fail(&mut agent, 1);
            probe(&mut agent, 2, true);
        }
        Saved::new(&agent.kept())
    }

    fn resumed(config: Config, saved: &Saved, later: Duration) -> (HealthView, usize) {
        let (agent, taken) =
            Agent::resume(config, Overrides::default(), saved, NOW + later).expect("compiles");
        ((*agent.snapshot().health).clone(), taken)
    }

    fn resume(saved: &Saved, at: Duration) -> Result<(Agent, usize), Refused> {
        Agent::resume(configuration(&BOTH), Overrides::default(), saved, at)
    }

    #[test]
    fn the_first_tables_know_what_was_kept() {
        let saved = down();
        let (mut resumed, taken) = resume(&saved, NOW + Duration::from_secs(20)).expect("compiles");
        assert_eq!(taken, 2);
        let health = &resumed.snapshot().health;
        assert_eq!((health.health(id(0)), health.health(id(1))), (Health::Unhealthy, Health::Healthy));
        assert!(health.latency.contains_key(&id(1)));
        assert_eq!(serving(&resumed), "us");
        // Kept on and on: what is saved without a new sample is what was read.
        assert_eq!(Saved::new(&resumed.kept()), saved);
        // New samples go on from there.
        probe(&mut resumed, 1, true);
        assert_eq!(resumed.snapshot().health.health(id(0)), Health::Unhealthy);
        probe(&mut resumed, 1, true);
        assert_eq!(resumed.snapshot().health.health(id(0)), Health::Healthy);
        assert_eq!(serving(&resumed), "eu");
    }

    #[test]
    fn identity_is_by_name_and_target() {
        let saved = down();
        let (view, taken) = resumed(configuration(&[("us", 2), ("eu", 1)]), &saved, Duration::ZERO);
        assert_eq!((view.health(id(0)), view.health(id(1)), taken), (Health::Healthy, Health::Unhealthy, 2));
        let (view, taken) = resumed(configuration(&[("eu", 3), ("us", 2)]), &saved, Duration::ZERO);
        assert_eq!((view.health(id(0)), taken), (Health::Checking, 1), "another address");
        let (view, taken) = resumed(configuration(&[("new", 1), ("us", 2)]), &saved, Duration::ZERO);
        assert_eq!((view.health(id(0)), taken), (Health::Checking, 1), "another name");
    }

    #[test]
    fn old_state_is_dropped() {
        let saved = down();
        let aged = |seconds| resumed(configuration(&BOTH), &saved, Duration::from_secs(seconds)).1;
        assert_eq!((aged(600), aged(601)), (2, 0));
        // A clock that was set back.
        let (_, taken) = resumed(configuration(&BOTH), &Saved::default(), Duration::ZERO);
        assert_eq!(taken, 0);
        let before = resume(&saved, NOW - Duration::from_secs(3600));
        assert_eq!(before.expect("compiles").1, 2);
    }
}
