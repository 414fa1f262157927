//! Every metric that is a number in the status report.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use router_common::abi::ABI_VERSION;

use super::answers;
use super::process::Process;
use crate::control::{
    EndpointReport, ListenerReport, ProbesReport, StatusReport, TraceReport, counts_beside,
};

/// See the module.
#[derive(Debug)]
pub(super) struct Exposition {
    pub report: StatusReport,
    pub process: Process,
}

/// Writes metrics, a family at a time.
pub(super) struct Page<'e, 'd>(&'e mut DescriptorEncoder<'d>);

impl Page<'_, '_> {
    /// A family of counters.
    pub(super) fn counters<'l, L: AsRef<[(&'l str, &'l str)]>>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in values {
            ConstCounter::new(value).encode(family.encode_family(&labels.as_ref())?)?;
        }
        Ok(())
    }

    /// A family of gauges.
    pub(super) fn gauges<'l, L: AsRef<[(&'l str, &'l str)]>>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, f64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            number(value, family.encode_family(&labels.as_ref())?)?;
        }
        Ok(())
    }

    /// A gauge without labels; nothing when there is no value.
    fn gauge(&mut self, name: &str, help: &str, value: Option<f64>) -> fmt::Result {
        let Some(value) = value else { return Ok(()) };
        self.0.encode_descriptor(name, help, None, MetricType::Gauge).and_then(|metric| number(value, metric))
    }

    /// A counter without labels.
    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.0
            .encode_descriptor(name, help, None, MetricType::Counter)
            .and_then(|metric| ConstCounter::new(value).encode(metric))
    }
}

/// A gauge's value; whole numbers without a point.
fn number(value: f64, encoder: MetricEncoder<'_>) -> fmt::Result {
    if value.fract() == 0.0 && value.abs() < 9e15 {
        ConstGauge::new(value as i64).encode(encoder)
    } else {
        ConstGauge::new(value).encode(encoder)
    }
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let mut page = Page(&mut encoder);
        let report = &self.report;
        agent(report, &mut page)?;
        queries(report, &mut page)?;
        server(report, &mut page)?;
        endpoints(report, &mut page)?;
        answers::encode(report, &mut page)?;
        probes(&report.probes, &mut page)?;
        fast_path(report, &mut page)?;
        trace(&report.trace, &mut page)?;
        api(&report.api, &mut page)?;
        process(&self.process, &mut page)
    }
}

/// The agent, its generations and its events.
fn agent(report: &StatusReport, page: &mut Page<'_, '_>) -> fmt::Result {
    let abi = ABI_VERSION.to_string();
    page.gauges(
        "xroute_build_info",
        "1; the version of the agent and of its tables' layout",
        [([("version", report.version.as_str()), ("abi", &abi)], 1.0)],
    )?;
    page.gauge("xroute_uptime_seconds", "Time since the agent started", Some(report.uptime_seconds as f64))?;
    page.gauge(
        "xroute_generation",
        "Serial number of the serving generation",
        Some(report.generation as f64),
    )?;
    page.gauge(
        "xroute_generation_age_seconds",
        "Time since the serving generation came into service",
        Some(report.generation_age_seconds as f64),
    )?;
    page.gauge(
        "xroute_config_load_timestamp_seconds",
        "When the serving generation came into service, since the Unix epoch",
        Some(report.loaded_at as f64),
    )?;
    page.gauge(
        "xroute_config_last_reload_successful",
        "Whether the last reload of the configuration came into service",
        Some(f64::from(u8::from(report.last_reload_error.is_none()))),
    )?;
    let reloads = &report.reloads;
    page.counters(
        "xroute_reloads",
        "Reloads of the configuration and of data files, by result",
        [
            ([("what", "configuration"), ("result", "ok")], reloads.configuration_ok),
            ([("what", "configuration"), ("result", "failed")], reloads.configuration_failed),
            ([("what", "data"), ("result", "ok")], reloads.data_ok),
            ([("what", "data"), ("result", "failed")], reloads.data_failed),
        ],
    )?;
    page.gauges(
        "xroute_data_file_age_seconds",
        "Time since what is in use of a data file was read",
        report.data.iter().map(|feed| ([("path", feed.path.as_str())], feed.age_seconds as f64)),
    )?;
    page.gauges(
        "xroute_data_file_broken",
        "Whether a data file as it is now cannot be used, and an older state of it is",
        report
            .data
            .iter()
            .map(|feed| ([("path", feed.path.as_str())], f64::from(u8::from(feed.error.is_some())))),
    )?;
    page.gauge("xroute_overrides", "Overrides in force", Some(report.overrides.len() as f64))?;
    page.counters(
        "xroute_events",
        "Events, by kind",
        report.events.told.iter().map(|(kind, count)| ([("kind", kind.as_str())], *count)),
    )?;
    page.gauge("xroute_event_readers", "Who reads the events", Some(report.events.readers as f64))?;
    page.counter(
        "xroute_events_missed",
        "Events that readers were too slow for, summed over readers",
        report.events.missed,
    )?;
    page.counter(
        "xroute_failover_unanswered",
        "Changes by probes after which nobody asked for a minute",
        report.failover.unanswered,
    )
}

/// What became of queries, on both paths.
fn queries(report: &StatusReport, page: &mut Page<'_, '_>) -> fmt::Result {
    page.counters(
        "xroute_outcomes",
        "What became of packets and queries, by path, action and outcome",
        report.counters.iter().map(|(outcome, count)| {
            let path = if outcome.starts_with("server_") { "userspace" } else { "fast" };
            ([("path", path), ("action", action(outcome)), ("outcome", outcome)], *count)
        }),
    )
}

/// What was done. Those that count `beside` happen to queries that another outcome counts.
fn action(outcome: &str) -> &'static str {
    match outcome.split('_').next() {
        _ if outcome == "server_dropped" => "drop",
        _ if counts_beside(outcome) => "beside",
        Some("answer") => "answer",
        Some("pass") => "pass",
        Some("drop") => "drop",
        Some("abort") => "abort",
        _ => "answer",
    }
}

/// The userspace server.
fn server(report: &StatusReport, page: &mut Page<'_, '_>) -> fmt::Result {
    let server = &report.server;
    let queries = server.queries.iter().flat_map(|(transport, types)| {
        types.iter().map(move |(kind, count)| ([("transport", &**transport), ("type", &**kind)], *count))
    });
    page.counters(
        "xroute_server_queries",
        "Queries to the userspace server, by transport and type; zone transfers aside",
        queries,
    )?;
    page.counters(
        "xroute_client_subnet_queries",
        "Queries that were answered, by path and family of their client subnet",
        client_subnets(report),
    )?;
    let one = |label: &'static str| move |(value, count): (&'_ String, &u64)| (label, value.clone(), *count);
    let families = [
        (
            "xroute_server_responses",
            "Replies of the userspace server by RCODE, zone transfers aside",
            server.rcodes.iter().map(one("rcode")).collect::<Vec<_>>(),
        ),
        (
            "xroute_server_cookies",
            "Queries with a cookie, by what it was; only where cookies are configured",
            server.cookies.iter().map(one("cookie")).collect(),
        ),
        (
            "xroute_server_tcp_connections",
            "TCP connections, by what became of them: accepted counts all",
            server.connections.iter().map(one("result")).collect(),
        ),
    ];
    for (name, help, values) in families {
        page.counters(name, help, values.iter().map(|(label, value, count)| ([(*label, &**value)], *count)))?;
    }
    page.counter("xroute_server_ready_replies", "Replies that were at hand", server.ready)?;
    page.counter(
        "xroute_server_unsent_replies",
        "Replies over UDP that the system did not send",
        server.unsent,
    )?;
    page.gauge(
        "xroute_server_tcp_connections_open",
        "TCP connections that are open",
        Some(server.connections_open as f64),
    )
}

/// Queries by client subnet, of both paths.
fn client_subnets(report: &StatusReport) -> impl Iterator<Item = ([(&str, &str); 2], u64)> {
    let fast = report.fast_path.iter().flat_map(|fast| &fast.client_subnet).map(|one| ("fast", one));
    let server = report.server.client_subnet.iter().map(|one| ("userspace", one));
    fast.chain(server).map(|(path, (family, count))| ([("path", path), ("family", family.as_str())], *count))
}

/// Endpoints and profiles.
fn endpoints(report: &StatusReport, page: &mut Page<'_, '_>) -> fmt::Result {
    let all = || {
        report.profiles.iter().flat_map(|profile| {
            profile.endpoints.iter().map(move |endpoint| (profile.name.as_str(), endpoint))
        })
    };
    let probed = || all().filter(|(_, endpoint)| endpoint.probe.is_some());
    page.gauges(
        "xroute_profile_status",
        "1 for the status each profile is in",
        report
            .profiles
            .iter()
            .map(|profile| ([("profile", &*profile.name), ("status", &*profile.status)], 1.0)),
    )?;
    page.gauges(
        "xroute_profile_serving_all",
        "Whether every endpoint is down and all are answered with",
        report
            .profiles
            .iter()
            .map(|profile| ([("profile", &*profile.name)], f64::from(u8::from(profile.serving_all)))),
    )?;
    page.gauges(
        "xroute_endpoint_status",
        "1 for the status each endpoint is in",
        all().map(|(profile, endpoint)| {
            let (name, status) = (endpoint.name.as_str(), endpoint.status.as_str());
            ([("profile", profile), ("endpoint", name), ("status", status)], 1.0)
        }),
    )?;
    page.gauges(
        "xroute_endpoint_latency_seconds",
        "Moving average of the probes' latency",
        all().filter_map(|(profile, endpoint)| {
            let average = endpoint.latency_average_ms?;
            Some(([("profile", profile), ("endpoint", &*endpoint.name)], average / 1000.0))
        }),
    )?;
    let percentiles = |endpoint: &EndpointReport| {
        [("50", endpoint.latency_p50_ms), ("90", endpoint.latency_p90_ms), ("99", endpoint.latency_p99_ms)]
    };
    page.gauges(
        "xroute_endpoint_latency_percentile_seconds",
        "Latency of the healthy ones among the last 64 probes",
        all().flat_map(|(profile, endpoint)| {
            percentiles(endpoint).into_iter().filter_map(move |(percentile, latency)| {
                let labels =
                    [("profile", profile), ("endpoint", &*endpoint.name), ("percentile", percentile)];
                Some((labels, latency? / 1000.0))
            })
        }),
    )?;
    page.counters(
        "xroute_endpoint_flaps",
        "Changes of an endpoint between healthy and unhealthy",
        probed().map(|(profile, endpoint)| {
            ([("profile", profile), ("endpoint", &*endpoint.name)], endpoint.flaps)
        }),
    )?;
    page.gauges(
        "xroute_endpoint_probe_trouble",
        "Whether the newest probe says nothing about the endpoint",
        probed().map(|(profile, endpoint)| {
            let trouble = f64::from(u8::from(endpoint.trouble.is_some()));
            ([("profile", profile), ("endpoint", &*endpoint.name)], trouble)
        }),
    )
}

/// What the probe engine counts.
fn probes(probes: &ProbesReport, page: &mut Page<'_, '_>) -> fmt::Result {
    let others = probes.failed.saturating_sub(probes.local_faults);
    page.counters(
        "xroute_probes",
        "Probes that ended, by result",
        [
            ([("result", "answered")], probes.answered),
            ([("result", "failed")], others),
            ([("result", "local_fault")], probes.local_faults),
        ],
    )?;
    page.counter("xroute_probes_started", "Probes that were started", probes.started)?;
    let late: Vec<(String, u64)> = probes
        .lateness
        .iter()
        .map(|(bound, count)| (bound.map_or_else(|| "more".to_owned(), |bound| bound.to_string()), *count))
        .collect();
    page.counters(
        "xroute_probes_late",
        "Repeated probes by how late they started, each in the first bound that holds it",
        late.iter().map(|(bound, count)| ([("milliseconds", bound.as_str())], *count)),
    )?;
    for (name, help, value) in [
        ("xroute_probe_targets", "Targets that are probed", probes.targets),
        ("xroute_probes_in_flight", "Probes under way", probes.in_flight),
        ("xroute_probes_waiting", "Probes that are due and that a limit keeps waiting", probes.waiting),
    ] {
        page.gauge(name, help, Some(value as f64))?;
    }
    Ok(())
}

/// Interfaces, lease and tables.
fn fast_path(report: &StatusReport, page: &mut Page<'_, '_>) -> fmt::Result {
    page.gauges(
        "xroute_interface_mode",
        "1 for the mode that XDP runs in on each interface",
        report
            .interfaces
            .iter()
            .map(|interface| ([("interface", &*interface.name), ("mode", &*interface.mode)], 1.0)),
    )?;
    page.gauges(
        "xroute_interface_attached",
        "Whether the XDP program is on the interface; not when that is gone",
        report.interfaces.iter().map(|interface| {
            let attached = f64::from(u8::from(!interface.away));
            ([("interface", &*interface.name), ("mode", &*interface.mode)], attached)
        }),
    )?;
    let Some(fast_path) = &report.fast_path else { return Ok(()) };
    page.gauge("xroute_active_half", "The half of the tables that answers", Some(f64::from(fast_path.half)))?;
    page.gauge(
        "xroute_lease_remaining_seconds",
        "Time that the lease still holds; afterwards answers are stale, or pass",
        Some(fast_path.lease.left_ms as f64 / 1000.0),
    )?;
    page.counter(
        "xroute_lease_late_renewals",
        "Renewals of the lease that came a second or more after their time",
        fast_path.lease.late_renewals,
    )?;
    let fill = || fast_path.fill.iter();
    page.gauges(
        "xroute_table_elements",
        "Elements of a table that are in use, in the serving half",
        fill().map(|fill| ([("table", &*fill.table)], fill.used as f64)),
    )?;
    page.gauges(
        "xroute_table_capacity",
        "Elements that a half of a table has room for",
        fill().map(|fill| ([("table", &*fill.table)], fill.capacity as f64)),
    )?;
    page.gauges(
        "xroute_map_memory_bytes",
        "Kernel memory of each BPF map, both halves",
        fast_path.maps.iter().map(|map| ([("map", &*map.name)], map.octets as f64)),
    )
}

/// Who reads queries along, and what they got.
fn trace(report: &TraceReport, page: &mut Page<'_, '_>) -> fmt::Result {
    let tally = &report.tally;
    page.counters(
        "xroute_trace",
        "Queries for those who read along, by what came of them",
        [
            ([("result", "sampled")], tally.sampled),
            ([("result", "withheld")], tally.withheld),
            ([("result", "lost")], tally.lost),
        ],
    )?;
    page.gauge("xroute_trace_readers", "Who reads queries along now", Some(report.readers as f64))?;
    let Some(dnstap) = &report.dnstap else { return Ok(()) };
    let open = f64::from(u8::from(dnstap.open));
    page.gauge("xroute_dnstap_open", "Whether dnstap is being written", Some(open))?;
    page.counter("xroute_dnstap_frames", "Frames of dnstap that were written", dnstap.frames)
}

/// What the listeners of the API count.
fn api(listeners: &[ListenerReport], page: &mut Page<'_, '_>) -> fmt::Result {
    let of = |what: fn(&ListenerReport) -> u64| {
        listeners.iter().map(move |listener| ([("listener", &*listener.listener)], what(listener)))
    };
    page.gauges(
        "xroute_api_connections",
        "Open connections of the API",
        listeners.iter().map(|listener| ([("listener", &*listener.listener)], listener.connections as f64)),
    )?;
    page.counters("xroute_api_accepted", "Connections that the API took", of(|listener| listener.accepted))?;
    page.counters(
        "xroute_api_requests",
        "Requests that the API answered, refused ones included",
        of(|listener| listener.requests),
    )?;
    page.counters(
        "xroute_api_refused",
        "What the API refused or broke off, by reason",
        listeners.iter().flat_map(|listener| {
            listener.refused.iter().map(move |(reason, count)| {
                ([("listener", &*listener.listener), ("reason", reason.as_str())], *count)
            })
        }),
    )
}

/// What every exporter says of its process.
fn process(process: &Process, page: &mut Page<'_, '_>) -> fmt::Result {
    if let Some(seconds) = process.cpu_seconds {
        page.0
            .encode_descriptor(
                "process_cpu_seconds",
                "User and system CPU time of the agent",
                None,
                MetricType::Counter,
            )
            .and_then(|metric| ConstCounter::new(seconds).encode(metric))?;
    }
    let whole = |value: Option<u64>| value.map(|value| value as f64);
    for (name, help, value) in [
        ("process_resident_memory_bytes", "Memory of the agent", whole(process.resident_bytes)),
        ("process_virtual_memory_bytes", "Address space of the agent", whole(process.virtual_bytes)),
        ("process_open_fds", "File descriptors that are open", whole(process.open_fds)),
        ("process_max_fds", "File descriptors that may be open", whole(process.max_fds)),
        ("process_threads", "Threads of the agent", whole(process.threads)),
        (
            "process_start_time_seconds",
            "When the agent started, since the Unix epoch",
            process.start_time_seconds,
        ),
    ] {
        page.gauge(name, help, value)?;
    }
    Ok(())
}
