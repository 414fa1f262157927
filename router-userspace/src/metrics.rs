//! Metrics in the text format that Prometheus reads, rendered from one status report.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::control::{ListenerReport, ProbesReport, StatusReport, TraceReport};

mod answers;

/// Content type of [`render`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Renders a report.
pub fn render(report: &StatusReport) -> String {
    let mut registry = Registry::with_prefix("xroute");
    registry.register_collector(Box::new(Exposition(report.clone())));
    let mut text = String::new();
    // Writing into a String cannot fail; an encoder error would only cut the text short.
    if prometheus_client::encoding::text::encode(&mut text, &registry).is_err() {
        text.clear();
    }
    text
}

#[derive(Debug)]
struct Exposition(StatusReport);

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let report = &self.0;
        let endpoints = || {
            report.profiles.iter().flat_map(|profile| {
                profile.endpoints.iter().map(move |endpoint| (profile.name.as_str(), endpoint))
            })
        };
        let mut family = encoder.encode_descriptor(
            "outcomes",
            "Queries by path and outcome",
            None,
            MetricType::Counter,
        )?;
        for (outcome, count) in &report.counters {
            let path = if outcome.starts_with("server_") { "userspace" } else { "fast" };
            let labels = [("path", path), ("outcome", outcome.as_str())];
            ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "endpoint_status",
            "1 for the status each endpoint is in",
            None,
            MetricType::Gauge,
        )?;
        for profile in &report.profiles {
            for endpoint in &profile.endpoints {
                let labels = [
                    ("profile", profile.name.as_str()),
                    ("endpoint", endpoint.name.as_str()),
                    ("status", endpoint.status.as_str()),
                ];
                ConstGauge::new(1i64).encode(family.encode_family(&labels)?)?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "endpoint_latency_seconds",
            "Moving average of the probes' latency",
            None,
            MetricType::Gauge,
        )?;
        for profile in &report.profiles {
            for endpoint in &profile.endpoints {
                let Some(average) = endpoint.latency_average_ms else { continue };
                let labels = [("profile", profile.name.as_str()), ("endpoint", endpoint.name.as_str())];
                ConstGauge::new(average / 1000.0).encode(family.encode_family(&labels)?)?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "endpoint_latency_quantile_seconds",
            "Latency of the healthy ones among the last 64 probes",
            None,
            MetricType::Gauge,
        )?;
        for (profile, endpoint) in endpoints() {
            for (quantile, latency) in [
                ("0.5", endpoint.latency_p50_ms),
                ("0.9", endpoint.latency_p90_ms),
                ("0.99", endpoint.latency_p99_ms),
            ] {
                let Some(latency) = latency else { continue };
                let labels = [("profile", profile), ("endpoint", &*endpoint.name), ("quantile", quantile)];
                ConstGauge::new(latency / 1000.0).encode(family.encode_family(&labels)?)?;
            }
        }
        let mut family = encoder.encode_descriptor(
            "endpoint_flaps",
            "Changes of an endpoint between healthy and unhealthy",
            None,
            MetricType::Counter,
        )?;
        for (profile, endpoint) in endpoints().filter(|(_, endpoint)| endpoint.probe.is_some()) {
            let labels = [("profile", profile), ("endpoint", endpoint.name.as_str())];
            ConstCounter::new(endpoint.flaps).encode(family.encode_family(&labels)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "endpoint_probe_trouble",
            "1 when the newest probe says nothing about the endpoint",
            None,
            MetricType::Gauge,
        )?;
        for (profile, endpoint) in endpoints().filter(|(_, endpoint)| endpoint.probe.is_some()) {
            let labels = [("profile", profile), ("endpoint", endpoint.name.as_str())];
            ConstGauge::new(i64::from(endpoint.trouble.is_some())).encode(family.encode_family(&labels)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "interface_attached",
            "1 when the XDP program is on the interface, 0 when that is gone",
            None,
            MetricType::Gauge,
        )?;
        for interface in &report.interfaces {
            let labels = [("interface", interface.name.as_str()), ("mode", interface.mode.as_str())];
            ConstGauge::new(i64::from(!interface.away)).encode(family.encode_family(&labels)?)?;
        }
        probes(&report.probes, &mut encoder)?;
        trace(&report.trace, &mut encoder)?;
        answers::encode(report, &mut encoder)?;
        api(&report.api, &mut encoder)?;
        let mut family = encoder.encode_descriptor(
            "profile_serving_all",
            "1 when every endpoint is down and all are answered with",
            None,
            MetricType::Gauge,
        )?;
        for profile in &report.profiles {
            let labels = [("profile", profile.name.as_str())];
            ConstGauge::new(i64::from(profile.serving_all)).encode(family.encode_family(&labels)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "reloads",
            "Reloads of the configuration and of data files, by result",
            None,
            MetricType::Counter,
        )?;
        let reloads = &report.reloads;
        for (what, result, count) in [
            ("configuration", "ok", reloads.configuration_ok),
            ("configuration", "failed", reloads.configuration_failed),
            ("data", "ok", reloads.data_ok),
            ("data", "failed", reloads.data_failed),
        ] {
            let labels = [("what", what), ("result", result)];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "data_file_age_seconds",
            "Time since what is in use of a data file was read",
            None,
            MetricType::Gauge,
        )?;
        for feed in &report.data {
            let labels = [("path", feed.path.as_str())];
            ConstGauge::new(feed.age_seconds as i64).encode(family.encode_family(&labels)?)?;
        }
        let mut family = encoder.encode_descriptor(
            "data_file_broken",
            "1 when a data file as it is now cannot be used, and an older state of it is",
            None,
            MetricType::Gauge,
        )?;
        for feed in &report.data {
            let labels = [("path", feed.path.as_str())];
            ConstGauge::new(i64::from(feed.error.is_some())).encode(family.encode_family(&labels)?)?;
        }
        encoder
            .encode_descriptor(
                "generation_age_seconds",
                "Time since the serving generation came into service",
                None,
                MetricType::Gauge,
            )
            .and_then(|metric| ConstGauge::new(report.generation_age_seconds as i64).encode(metric))?;
        encoder
            .encode_descriptor(
                "generation",
                "Serial number of the serving generation",
                None,
                MetricType::Gauge,
            )
            .and_then(|metric| ConstGauge::new(report.generation as i64).encode(metric))
    }
}

/// Who reads queries along, and what they got.
fn trace(report: &TraceReport, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(
        "trace",
        "Queries for those who read along, by what came of them",
        None,
        MetricType::Counter,
    )?;
    let tally = &report.tally;
    for (result, count) in [("sampled", tally.sampled), ("withheld", tally.withheld), ("lost", tally.lost)] {
        ConstCounter::new(count).encode(family.encode_family(&[("result", result)])?)?;
    }
    let readers = i64::try_from(report.readers).unwrap_or(i64::MAX);
    let mut gauge = |name, help, value: i64| {
        ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
    };
    gauge("trace_readers", "Who reads queries along now", readers)?;
    let Some(dnstap) = &report.dnstap else { return Ok(()) };
    gauge("dnstap_open", "1 when dnstap is being written", i64::from(dnstap.open))?;
    let help = "Frames of dnstap that were written";
    let frames = encoder.encode_descriptor("dnstap_frames", help, None, MetricType::Counter)?;
    ConstCounter::new(dnstap.frames).encode(frames)
}

/// What the listeners of the API count.
fn api(listeners: &[ListenerReport], encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(
        "api_connections",
        "Open connections of the API",
        None,
        MetricType::Gauge,
    )?;
    for listener in listeners {
        let labels = [("listener", &*listener.listener)];
        ConstGauge::new(listener.connections as i64).encode(family.encode_family(&labels)?)?;
    }
    let mut family = encoder.encode_descriptor(
        "api_accepted",
        "Connections that the API took",
        None,
        MetricType::Counter,
    )?;
    for listener in listeners {
        let labels = [("listener", &*listener.listener)];
        ConstCounter::new(listener.accepted).encode(family.encode_family(&labels)?)?;
    }
    let mut family = encoder.encode_descriptor(
        "api_requests",
        "Requests that the API answered, refused ones included",
        None,
        MetricType::Counter,
    )?;
    for listener in listeners {
        let labels = [("listener", &*listener.listener)];
        ConstCounter::new(listener.requests).encode(family.encode_family(&labels)?)?;
    }
    let mut family = encoder.encode_descriptor(
        "api_refused",
        "What the API refused or broke off, by reason",
        None,
        MetricType::Counter,
    )?;
    for listener in listeners {
        for (reason, count) in &listener.refused {
            let labels = [("listener", &*listener.listener), ("reason", &**reason)];
            ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// What the probe engine counts.
fn probes(probes: &ProbesReport, encoder: &mut DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
    let mut family =
        encoder.encode_descriptor("probes", "Probes that ended, by result", None, MetricType::Counter)?;
    let others = probes.failed.saturating_sub(probes.local_faults);
    for (result, count) in
        [("answered", probes.answered), ("failed", others), ("local_fault", probes.local_faults)]
    {
        ConstCounter::new(count).encode(family.encode_family(&[("result", result)])?)?;
    }
    let mut family = encoder.encode_descriptor(
        "probes_late",
        "Repeated probes by how late they started, each in the first bound that holds it",
        None,
        MetricType::Counter,
    )?;
    for (bound, count) in &probes.lateness {
        let bound = bound.map_or_else(|| "more".to_owned(), |bound| bound.to_string());
        ConstCounter::new(*count).encode(family.encode_family(&[("milliseconds", &*bound)])?)?;
    }
    for (name, help, value) in [
        ("probe_targets", "Targets that are probed", probes.targets),
        ("probes_in_flight", "Probes under way", probes.in_flight),
        ("probes_waiting", "Probes that are due and that a limit keeps waiting", probes.waiting),
    ] {
        encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)
            .and_then(|metric| ConstGauge::new(value as i64).encode(metric))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::control::{EndpointReport, FeedReport, ProfileReport, ReloadCounts};

    #[test]
    fn outcomes_and_endpoints_are_labelled() {
        let report = StatusReport {
            generation: 7,
            generation_age_seconds: 40,
            reloads: ReloadCounts { configuration_failed: 2, data_ok: 3, ..ReloadCounts::default() },
            data: vec![FeedReport {
                kind: crate::feed::FeedKind::LatencyTable,
                path: String::from("latency.csv"),
                rows: 2,
                loaded_at: 0,
                age_seconds: 9,
                error: Some(String::from("latency.csv:1: broken")),
            }],
            counters: BTreeMap::from([
                (String::from("answer_records"), 5),
                (String::from("server_nodata"), 3),
            ]),
            profiles: vec![ProfileReport {
                name: String::from("www"),
                method: String::from("priority"),
                status: String::from("Degraded"),
                serving_all: true,
                names: Vec::new(),
                endpoints: vec![EndpointReport {
                    name: String::from("eu1"),
                    target: String::from("192.0.2.1"),
                    status: String::from("Degraded"),
                    probe: Some(String::from("TCP 192.0.2.1:80")),
                    latency_average_ms: Some(12.5),
                    latency_p99_ms: Some(250.0),
                    trouble: Some(String::from("no port")),
                    flaps: 3,
                    answers_fast: 70,
                    answers_userspace: 5,
                    last_answer: Some(1_700_000_000_500),
                    expected_share: Some(0.75),
                    ..EndpointReport::default()
                }],
            }],
            probes: ProbesReport {
                targets: 4,
                answered: 9,
                failed: 3,
                local_faults: 1,
                lateness: vec![(Some(2), 8), (None, 1)],
                ..ProbesReport::default()
            },
            api: vec![ListenerReport {
                listener: String::from("http"),
                connections: 2,
                requests: 6,
                refused: BTreeMap::from([(String::from("idle"), 4)]),
                ..ListenerReport::default()
            }],
            ..StatusReport::default()
        };
        let text = render(&report);
        for line in [
            r#"xroute_outcomes_total{path="fast",outcome="answer_records"} 5"#,
            r#"xroute_outcomes_total{path="userspace",outcome="server_nodata"} 3"#,
            r#"xroute_endpoint_status{profile="www",endpoint="eu1",status="Degraded"} 1"#,
            r#"xroute_endpoint_latency_seconds{profile="www",endpoint="eu1"} 0.0125"#,
            r#"xroute_profile_serving_all{profile="www"} 1"#,
            r#"xroute_endpoint_latency_quantile_seconds{profile="www",endpoint="eu1",quantile="0.99"} 0.25"#,
            r#"xroute_endpoint_flaps_total{profile="www",endpoint="eu1"} 3"#,
            r#"xroute_endpoint_probe_trouble{profile="www",endpoint="eu1"} 1"#,
            r#"xroute_probes_total{result="failed"} 2"#,
            r#"xroute_probes_late_total{milliseconds="more"} 1"#,
            "xroute_probe_targets 4",
            r#"xroute_api_connections{listener="http"} 2"#,
            r#"xroute_api_requests_total{listener="http"} 6"#,
            r#"xroute_api_refused_total{listener="http",reason="idle"} 4"#,
            "xroute_generation 7",
            r#"xroute_endpoint_answers_total{profile="www",endpoint="eu1",path="fast"} 70"#,
            r#"xroute_endpoint_answers_total{profile="www",endpoint="eu1",path="userspace"} 5"#,
            r#"xroute_endpoint_expected_share{profile="www",endpoint="eu1"} 0.75"#,
            r#"xroute_endpoint_last_answer_timestamp_seconds{profile="www",endpoint="eu1"} 1700000000.5"#,
            "xroute_generation_age_seconds 40",
            r#"xroute_reloads_total{what="configuration",result="failed"} 2"#,
            r#"xroute_reloads_total{what="data",result="ok"} 3"#,
            r#"xroute_data_file_age_seconds{path="latency.csv"} 9"#,
            r#"xroute_data_file_broken{path="latency.csv"} 1"#,
            "# EOF",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }
}
