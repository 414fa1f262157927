//! What of a plan the limits forbid.

use router_common::plan::{Kind, Plan};
use router_common::share::Share;

use super::text::percent;
use crate::settings::ChangeLimits;

/// Profiles named in one line.
const NAMED: usize = 5;

/// What is beyond the limits, one each, with the limit's key.
pub fn exceeded(limits: &ChangeLimits, plan: &Plan) -> Vec<String> {
    let mut exceeded = Vec::new();
    let traffic = &plan.traffic;
    let above = |share: &Share, most: f64| share.to_f64() > most;
    if let Some(most) = limits.moved_max {
        let moved = traffic.moved.largest();
        if above(&moved, most) {
            exceeded.push(format!(
                "moved_max = {most}: {} of all answers would be others",
                percent(moved.to_f64())
            ));
        }
    }
    if let Some(most) = limits.profile_moved_max {
        let beyond: Vec<String> = traffic
            .steered
            .iter()
            .map(|steered| (&steered.before, steered.moved.largest()))
            .filter(|(_, moved)| above(moved, most))
            .map(|(profile, moved)| format!("{profile} {}", percent(moved.to_f64())))
            .collect();
        if !beyond.is_empty() {
            exceeded.push(format!("profile_moved_max = {most}: {}", listed(&beyond)));
        }
    }
    if let Some(most) = limits.nodata_max {
        let nodata = traffic.nodata.largest();
        // 0 allows nobody, be it in private addresses, which count nothing.
        let anybody = traffic.steered.iter().any(|steered| !steered.nodata_examples.is_empty());
        if above(&nodata, most) || most <= 0.0 && anybody {
            let whom: Vec<String> = traffic
                .steered
                .iter()
                .flat_map(|steered| {
                    steered
                        .nodata_examples
                        .iter()
                        .map(move |each| format!("{} for {}", steered.before, each.prefix))
                })
                .collect();
            exceeded.push(format!(
                "nodata_max = {most}: {} of all answers would be NODATA, e.g. {}",
                percent(nodata.to_f64()),
                listed(&whom)
            ));
        }
    }
    let mut removed = |key: &str, most: Option<u32>, kind: Kind, what: &str| {
        let [_, count, _] = plan.count(kind);
        if let Some(most) = most
            && count > most as usize
        {
            exceeded.push(format!("{key} = {most}: {count} {what} would go"));
        }
    };
    removed("removed_names_max", limits.removed_names_max, Kind::Name, "names");
    removed("removed_endpoints_max", limits.removed_endpoints_max, Kind::Endpoint, "endpoints");
    exceeded
}

fn listed(all: &[String]) -> String {
    let mut text = all.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if all.len() > NAMED {
        text.push_str(&format!(" and {} more", all.len() - NAMED));
    }
    text
}
