//! Statuses of endpoints and profiles (ROUTING.md §2), and what an endpoint can answer (§4).

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;

use foldhash::fast::FixedState;

use crate::decide::Asked;
use crate::model::{AdminStatus, AllDown, EndpointId, Method, MinChildren, Model, ProfileId, Target};
use crate::view::{Health, HealthView};

/// Status of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum EndpointStatus {
    /// Its profile is disabled.
    Inactive,
    /// Switched off: takes no part at all.
    Disabled,
    /// Switched off, or a nested profile that is off; keeps its place in methods that pin clients.
    Stopped,
    /// Takes part, whatever its health.
    Unmonitored,
    /// No verdict yet: takes part.
    CheckingEndpoint,
    /// Healthy.
    Online,
    /// Unhealthy.
    Degraded,
}

impl EndpointStatus {
    /// The word people read.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Inactive => "Inactive",
            Self::Disabled => "Disabled",
            Self::Stopped => "Stopped",
            Self::Unmonitored => "Unmonitored",
            Self::CheckingEndpoint => "CheckingEndpoint",
            Self::Online => "Online",
            Self::Degraded => "Degraded",
        }
    }

    /// Whether it is in answers.
    pub fn is_up(self) -> bool {
        matches!(self, Self::Unmonitored | Self::CheckingEndpoint | Self::Online)
    }

    /// Whether it takes part at all: up or Degraded.
    pub fn takes_part(self) -> bool {
        self.is_up() || self == Self::Degraded
    }
}

impl fmt::Display for EndpointStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Status of a profile.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProfileStatus {
    /// Switched off.
    Disabled,
    /// Some endpoint is Degraded.
    Degraded,
    /// Some endpoint is Online (or Unmonitored), none is Degraded.
    Online,
    /// Some endpoint waits for its first verdict.
    CheckingEndpoints,
    /// All endpoints are Disabled or Stopped, or there is none.
    Inactive,
}

impl ProfileStatus {
    /// The word people read.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Disabled => "Disabled",
            Self::Degraded => "Degraded",
            Self::Online => "Online",
            Self::CheckingEndpoints => "CheckingEndpoints",
            Self::Inactive => "Inactive",
        }
    }
}

impl fmt::Display for ProfileStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Status of one endpoint. To ask for many, keep a [`Statuses`].
pub fn endpoint_status(model: &Model, health: &HealthView, endpoint: EndpointId) -> EndpointStatus {
    Statuses::new(model, health).endpoint(endpoint)
}

/// Status of one profile.
pub fn profile_status(model: &Model, health: &HealthView, profile: ProfileId) -> ProfileStatus {
    Statuses::new(model, health).profile(profile)
}

/// Whether a profile serves all its endpoints because every one that takes part is Degraded.
pub fn serving_all(model: &Model, health: &HealthView, profile: ProfileId) -> bool {
    Statuses::new(model, health).serving_all(profile)
}

/// Statuses of one model at one moment, each worked out once.
pub struct Statuses<'s> {
    model: &'s Model,
    health: &'s HealthView,
    known: RefCell<HashMap<EndpointId, Known, FixedState>>,
}

/// What has been worked out of an endpoint.
#[derive(Clone, Copy, Default)]
struct Known {
    status: Option<EndpointStatus>,
    /// By [`Asked`].
    answers: [Option<bool>; 4],
}

impl<'s> Statuses<'s> {
    /// Nothing is worked out until it is asked for.
    pub fn new(model: &'s Model, health: &'s HealthView) -> Self {
        Self { model, health, known: RefCell::default() }
    }

    /// Status of an endpoint.
    pub fn endpoint(&self, id: EndpointId) -> EndpointStatus {
        if let Some(known) = self.known.borrow().get(&id).and_then(|known| known.status) {
            return known;
        }
        // A loop of profiles cannot be loaded; if one came all the same, it would end here.
        self.known.borrow_mut().entry(id).or_default().status = Some(EndpointStatus::Stopped);
        let status = self.work_out(id);
        self.known.borrow_mut().entry(id).or_default().status = Some(status);
        status
    }

    fn work_out(&self, id: EndpointId) -> EndpointStatus {
        let endpoint = self.model.endpoint(id);
        if !self.model.profile(id.profile).enabled {
            return EndpointStatus::Inactive;
        }
        match endpoint.status {
            AdminStatus::Disabled => return EndpointStatus::Disabled,
            AdminStatus::Stopped => return EndpointStatus::Stopped,
            AdminStatus::Enabled => {}
        }
        if let Target::Profile(child) = endpoint.target {
            return self.nested(child, &endpoint.min_children, endpoint.always_serve);
        }
        if endpoint.always_serve || endpoint.monitor.is_none() {
            return EndpointStatus::Unmonitored;
        }
        match self.health.health(id) {
            Health::Checking => EndpointStatus::CheckingEndpoint,
            Health::Healthy => EndpointStatus::Online,
            Health::Unhealthy => EndpointStatus::Degraded,
        }
    }

    /// Status of an endpoint that nests `child`: an aggregate, never a probe of its own.
    fn nested(&self, child: ProfileId, least: &MinChildren, always_serve: bool) -> EndpointStatus {
        let mut takes_part = false;
        let mut online = [0u32; 3];
        let mut checking = [0u32; 3];
        for id in self.endpoints(child) {
            let status = self.endpoint(id);
            takes_part |= status.takes_part();
            let counts = match status {
                EndpointStatus::Online | EndpointStatus::Unmonitored => &mut online,
                EndpointStatus::CheckingEndpoint => &mut checking,
                _ => continue,
            };
            counts[0] += 1;
            counts[1] += u32::from(self.can_answer(id, Asked::A));
            counts[2] += u32::from(self.can_answer(id, Asked::Aaaa));
        }
        if !takes_part {
            return EndpointStatus::Stopped;
        }
        if always_serve {
            return EndpointStatus::Unmonitored;
        }
        let thresholds = [Some(least.any), least.ipv4, least.ipv6];
        let holds = |count: &dyn Fn(usize) -> u32| {
            thresholds
                .iter()
                .enumerate()
                .all(|(i, threshold)| threshold.is_none_or(|least| count(i) >= least))
        };
        if holds(&|i| online[i]) {
            EndpointStatus::Online
        } else if holds(&|i| online[i] + checking[i]) {
            EndpointStatus::CheckingEndpoint
        } else {
            EndpointStatus::Degraded
        }
    }

    /// Whether an endpoint can answer a type, whatever its health. `multivalue` is about addresses
    /// only, so nothing else of such a profile can.
    pub fn can_answer(&self, id: EndpointId, asked: Asked) -> bool {
        if let Some(known) = self.known.borrow().get(&id).and_then(|known| known.answers[asked as usize]) {
            return known;
        }
        self.known.borrow_mut().entry(id).or_default().answers[asked as usize] = Some(false);
        let addresses_only = matches!(self.model.profile(id.profile).method, Method::Multivalue { .. });
        let can = match &self.model.endpoint(id).target {
            Target::Addresses { ipv4, ipv6 } => match asked {
                Asked::A => !ipv4.is_empty(),
                Asked::Aaaa => !ipv6.is_empty(),
                Asked::Cname => false,
                Asked::Any => !(ipv4.is_empty() && ipv6.is_empty()),
            },
            _ if addresses_only => false,
            Target::Domain(_) => true,
            Target::Profile(child) => self
                .endpoints(*child)
                .any(|below| self.endpoint(below).takes_part() && self.can_answer(below, asked)),
        };
        self.known.borrow_mut().entry(id).or_default().answers[asked as usize] = Some(can);
        can
    }

    /// Status of a profile.
    pub fn profile(&self, profile: ProfileId) -> ProfileStatus {
        if !self.model.profile(profile).enabled {
            return ProfileStatus::Disabled;
        }
        let (mut online, mut checking) = (false, false);
        for id in self.endpoints(profile) {
            match self.endpoint(id) {
                EndpointStatus::Degraded => return ProfileStatus::Degraded,
                EndpointStatus::Online | EndpointStatus::Unmonitored => online = true,
                EndpointStatus::CheckingEndpoint => checking = true,
                EndpointStatus::Inactive | EndpointStatus::Disabled | EndpointStatus::Stopped => {}
            }
        }
        if online {
            ProfileStatus::Online
        } else if checking {
            ProfileStatus::CheckingEndpoints
        } else {
            ProfileStatus::Inactive
        }
    }

    /// See [`serving_all`].
    pub fn serving_all(&self, profile: ProfileId) -> bool {
        if self.model.profile(profile).all_down != AllDown::ServeAll {
            return false;
        }
        let mut degraded = false;
        for id in self.endpoints(profile) {
            let status = self.endpoint(id);
            if status.is_up() {
                return false;
            }
            degraded |= status == EndpointStatus::Degraded;
        }
        degraded
    }

    /// The endpoints of a profile, in file order.
    pub fn endpoints(&self, profile: ProfileId) -> impl Iterator<Item = EndpointId> + use<> {
        let count = self.model.profile(profile).endpoints.len() as u32;
        (0..count).map(move |index| EndpointId { profile, index })
    }
}
