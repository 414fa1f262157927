//! The way to a decision, in words: which profile chose what, and why.

use crate::decide::{Asked, Asker, Oracle, Snapshot, Verdict, What, dial, hashed_index, stand};
use crate::model::{AllDown, EndpointId, Method, ProfileId, Target};
use crate::status::EndpointStatus;

/// What one profile on the way decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The profile's name.
    pub profile: String,
    /// Its method.
    pub method: &'static str,
    /// What it chose: `NODATA`, an endpoint, or several with their shares.
    pub chose: String,
    /// Why.
    pub because: String,
    /// The walk over traffic dials (ROUTING.md §5), a line for each endpoint; empty without dials.
    pub arithmetic: Vec<String>,
    /// Its endpoints, in file order.
    pub candidates: Vec<Candidate>,
}

/// An endpoint as the decision saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Its status.
    pub status: EndpointStatus,
    /// Why it was no candidate for this question; `None` when it was.
    pub left_out: Option<&'static str>,
}

/// Most steps told: a deep tree of weighted profiles has more than anybody reads.
const MAX_STEPS: usize = 256;

/// The steps of a decision, the asked profile first, then the nested ones it leads to, in order. A
/// profile that is reached on several ways is told once.
pub fn steps(snapshot: &Snapshot, profile: ProfileId, asked: Asked, asker: &Asker) -> Vec<Step> {
    let oracle = Oracle::new(snapshot);
    let standing = stand(&snapshot.model, &snapshot.atlas, profile, asker);
    let mut steps = Vec::new();
    let mut ahead = std::collections::VecDeque::from([profile]);
    let mut told = vec![profile];
    while let Some(id) = ahead.pop_front() {
        if steps.len() == MAX_STEPS {
            break;
        }
        let found = snapshot.model.profile(id);
        let Verdict { what, why } = oracle.verdict(id, asked, standing.location);
        let name = |index: u32| match found.endpoints.get(index as usize) {
            Some(endpoint) => endpoint.name.as_str(),
            None => "?",
        };
        let mut because = why.to_string();
        let arithmetic = why
            .walked()
            .map(|order| dial::arithmetic(order, |index| name(index).to_owned()))
            .unwrap_or_default();
        let (chose, reached): (String, Vec<u32>) = match what {
            What::Nodata => ("NODATA".to_owned(), Vec::new()),
            What::One(index) => (name(index).to_owned(), vec![index]),
            What::Shares(shares) => (
                join(shares.iter().map(|(share, index)| format!("{} {share}", name(*index)))),
                shares.iter().map(|&(_, index)| index).collect(),
            ),
            What::Hashed(of) => {
                because += &format!(
                    "; {} are available there and share clients evenly by a hash of the client subnet",
                    of.len()
                );
                let at = hashed_index(&standing.client, oracle.salt(id), of.len());
                let index = at.and_then(|at| of.get(at)).copied();
                (
                    index.map_or_else(|| "NODATA".to_owned(), |index| name(index).to_owned()),
                    index.into_iter().collect(),
                )
            }
            What::Sets(sets) => {
                let text = match sets.as_slice() {
                    [_] => "all healthy addresses".to_owned(),
                    several => format!("one of {} sets of addresses, each equally often", several.len()),
                };
                (text, Vec::new())
            }
        };
        let candidates = (0..)
            .zip(&found.endpoints)
            .map(|(index, endpoint)| {
                let endpoint_id = EndpointId { profile: id, index };
                let status = oracle.statuses.endpoint(endpoint_id);
                let can_answer = oracle.statuses.can_answer(endpoint_id, asked);
                let pins = matches!(found.method, Method::Geographic | Method::Subnet);
                let served = reached.contains(&index);
                Candidate {
                    name: endpoint.name.clone(),
                    status,
                    left_out: left_out(status, can_answer, pins || served, found.all_down),
                }
            })
            .collect();
        steps.push(Step {
            profile: found.name.clone(),
            method: found.method.as_str(),
            chose,
            because,
            arithmetic,
            candidates,
        });
        for index in reached {
            if let Some(Target::Profile(child)) = found.endpoints.get(index as usize).map(|e| &e.target)
                && !told.contains(child)
            {
                told.push(*child);
                ahead.push_back(*child);
            }
        }
    }
    steps
}

/// Why an endpoint is no candidate. `whatever_health`: it can be chosen although Degraded.
fn left_out(
    status: EndpointStatus,
    can_answer: bool,
    whatever_health: bool,
    all_down: AllDown,
) -> Option<&'static str> {
    match status {
        EndpointStatus::Inactive => Some("its profile is disabled"),
        EndpointStatus::Disabled => Some("it is disabled"),
        EndpointStatus::Stopped => Some("it is stopped, or the profile it nests is off"),
        _ if !can_answer => Some("it cannot answer this type"),
        EndpointStatus::Degraded if !whatever_health => Some(match all_down {
            AllDown::ServeAll => "it is Degraded",
            AllDown::Nodata | AllDown::Fallback(_) => "it is Degraded, and not the fallback",
        }),
        _ => None,
    }
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(", ")
}
