//! What was handed out of each endpoint.

use std::fmt;

use super::exposition::Page;
use crate::control::{EndpointReport, StatusReport};

/// Answers, shares and drains.
pub(super) fn encode(report: &StatusReport, page: &mut Page<'_, '_>) -> fmt::Result {
    let endpoints = || {
        report.profiles.iter().flat_map(|profile| {
            profile.endpoints.iter().map(move |endpoint| (profile.name.as_str(), endpoint))
        })
    };
    page.counters(
        "xroute_endpoint_answers",
        "Answers that an endpoint was in, by path; those of a nested profile count for what nests it, too",
        endpoints().flat_map(|(profile, endpoint)| {
            let labels =
                move |path| [("profile", profile), ("endpoint", endpoint.name.as_str()), ("path", path)];
            [(labels("fast"), endpoint.answers_fast), (labels("userspace"), endpoint.answers_userspace)]
        }),
    )?;
    type Figure = fn(&EndpointReport) -> Option<f64>;
    let gauges: [(&str, &str, Figure); 3] = [
        (
            "xroute_endpoint_expected_share",
            "The part of its profile's answers that an endpoint is to have, where it is the same for all clients",
            |endpoint| endpoint.expected_share,
        ),
        (
            "xroute_endpoint_last_answer_timestamp_seconds",
            "When an endpoint was answered with last",
            |endpoint| endpoint.last_answer.map(|at| at as f64 / 1000.0),
        ),
        (
            "xroute_endpoint_drained_timestamp_seconds",
            "From when on no answer with an endpoint that is being drained is valid any more",
            |endpoint| endpoint.drain.as_ref().map(|drain| drain.safe_at as f64 / 1000.0),
        ),
    ];
    for (name, help, figure) in gauges {
        let values = endpoints().filter_map(|(profile, endpoint)| {
            Some(([("profile", profile), ("endpoint", endpoint.name.as_str())], figure(endpoint)?))
        });
        page.gauges(name, help, values)?;
    }
    Ok(())
}
