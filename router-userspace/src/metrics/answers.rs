//! What was handed out of each endpoint.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::control::{EndpointReport, StatusReport};

/// Answers, shares and drains.
pub(super) fn encode(report: &StatusReport, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let endpoints = || {
        report.profiles.iter().flat_map(|profile| {
            profile.endpoints.iter().map(move |endpoint| (profile.name.as_str(), endpoint))
        })
    };
    let mut family = encoder.encode_descriptor(
        "endpoint_answers",
        "Answers that an endpoint was in, by path; those of a nested profile count for what nests it, too",
        None,
        MetricType::Counter,
    )?;
    for (profile, endpoint) in endpoints() {
        for (path, count) in [("fast", endpoint.answers_fast), ("userspace", endpoint.answers_userspace)] {
            let labels = [("profile", profile), ("endpoint", endpoint.name.as_str()), ("path", path)];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
    }
    type Figure = fn(&EndpointReport) -> Option<f64>;
    let gauges: [(&str, &str, Figure); 3] = [
        (
            "endpoint_expected_share",
            "The part of its profile's answers that an endpoint is to have, where it is the same for all clients",
            |endpoint| endpoint.expected_share,
        ),
        ("endpoint_last_answer_timestamp_seconds", "When an endpoint was answered with last", |endpoint| {
            endpoint.last_answer.map(|at| at as f64 / 1000.0)
        }),
        (
            "endpoint_drained_timestamp_seconds",
            "From when on no answer with an endpoint that is being drained is valid any more",
            |endpoint| endpoint.drain.as_ref().map(|drain| drain.safe_at as f64 / 1000.0),
        ),
    ];
    for (name, help, figure) in gauges {
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (profile, endpoint) in endpoints() {
            let Some(value) = figure(endpoint) else { continue };
            let labels = [("profile", profile), ("endpoint", endpoint.name.as_str())];
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}
