mod dashboard;

use std::collections::{BTreeMap, BTreeSet};

use router_common::abi::ABI_VERSION;

use super::*;
use crate::control::{
    DnstapReport, DrainReport, EndpointReport, FastPathReport, FeedReport, FillReport, InterfaceReport,
    LeaseReport, ListenerReport, MapReport, OverrideReport, ProbesReport, ProfileReport, ReloadCounts,
    TraceReport,
};
use crate::dns::{Counts, ServerReport};
use crate::events::Stream;
use crate::overrides::{Override, Setting};

/// A report in which everything that there can be is there.
fn full() -> StatusReport {
    let counts = Counts::default();
    StatusReport {
        version: String::from("1.2.3"),
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
            (String::from("answer_stale"), 1),
            (String::from("pass_type"), 2),
            (String::from("drop_response"), 4),
            (String::from("abort_reply"), 0),
            (String::from("server_nodata"), 3),
            (String::from("server_dropped"), 8),
            (String::from("server_rate_dropped"), 9),
        ]),
        interfaces: vec![InterfaceReport {
            name: String::from("eth0"),
            mode: String::from("native"),
            why_not_native: None,
            away: false,
        }],
        trace: TraceReport { dnstap: Some(DnstapReport::default()), ..TraceReport::default() },
        api: vec![ListenerReport {
            listener: String::from("http"),
            connections: 2,
            requests: 6,
            refused: BTreeMap::from([(String::from("idle"), 4)]),
            ..ListenerReport::default()
        }],
        fast_path: Some(FastPathReport {
            half: 1,
            lease: LeaseReport { left_ms: 13_500, late_renewals: 1 },
            fill: vec![
                FillReport { table: String::from("cells"), used: 4, capacity: 4104 },
                FillReport { table: String::from("locations"), used: 9, capacity: 1024 },
            ],
            maps: vec![MapReport { name: String::from("CELLS"), octets: 4096 }],
            client_subnet: BTreeMap::from([(String::from("ipv6"), 11)]),
        }),
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
                drain: Some(drain()),
                ..EndpointReport::default()
            }],
        }],
        overrides: vec![OverrideReport {
            held: Override {
                target: String::from("www/eu1"),
                setting: Setting::Weight(3),
                since: 0,
                until: None,
                by: String::from("root"),
                reason: None,
                drain: false,
            },
            age_seconds: 1,
            left_seconds: None,
            rests: false,
        }],
        probes: ProbesReport {
            targets: 4,
            answered: 9,
            failed: 3,
            local_faults: 1,
            lateness: vec![(Some(2), 8), (None, 1)],
            ..ProbesReport::default()
        },
        server: ServerReport {
            queries: BTreeMap::from([(String::from("udp"), BTreeMap::from([(String::from("MX"), 6)]))]),
            ..ServerReport::of(&counts)
        },
        events: Stream::new(std::time::Duration::ZERO).report(),
        ..StatusReport::default()
    }
}

fn drain() -> DrainReport {
    DrainReport {
        target: String::from("www/eu1"),
        by: String::from("root"),
        reason: None,
        ends_seconds: None,
        out_at: 1_700_000_000_000,
        last_answer: Some(1_700_000_000_500),
        answers: 75,
        safe_at: 1_700_000_030_500,
        left: 10,
        still_answered: false,
        notes: Vec::new(),
    }
}

fn scrape() -> Scrape {
    let figures = Arc::new(Figures::default());
    figures.step(Step::Decided, std::time::Duration::from_millis(3));
    Scrape { report: full(), figures, probes: probe_durations() }
}

#[test]
fn everything_is_labelled() {
    let text = scrape().render(Format::OpenMetrics);
    let build = format!(r#"xroute_build_info{{version="1.2.3",abi="{ABI_VERSION}"}} 1"#);
    for line in [
        r#"xroute_client_subnet_queries_total{path="fast",family="ipv6"} 11"#,
        r#"xroute_endpoint_answers_total{profile="www",endpoint="eu1",path="fast"} 70"#,
        r#"xroute_endpoint_answers_total{profile="www",endpoint="eu1",path="userspace"} 5"#,
        r#"xroute_endpoint_expected_share{profile="www",endpoint="eu1"} 0.75"#,
        r#"xroute_endpoint_last_answer_timestamp_seconds{profile="www",endpoint="eu1"} 1700000000.5"#,
        r#"xroute_endpoint_drained_timestamp_seconds{profile="www",endpoint="eu1"} 1700000030.5"#,
        r#"xroute_outcomes_total{path="fast",action="answer",outcome="answer_records"} 5"#,
        r#"xroute_outcomes_total{path="fast",action="beside",outcome="answer_stale"} 1"#,
        r#"xroute_outcomes_total{path="fast",action="pass",outcome="pass_type"} 2"#,
        r#"xroute_outcomes_total{path="fast",action="drop",outcome="drop_response"} 4"#,
        r#"xroute_outcomes_total{path="fast",action="abort",outcome="abort_reply"} 0"#,
        r#"xroute_outcomes_total{path="userspace",action="answer",outcome="server_nodata"} 3"#,
        r#"xroute_outcomes_total{path="userspace",action="drop",outcome="server_dropped"} 8"#,
        r#"xroute_outcomes_total{path="userspace",action="beside",outcome="server_rate_dropped"} 9"#,
        r#"xroute_endpoint_status{profile="www",endpoint="eu1",status="Degraded"} 1"#,
        r#"xroute_endpoint_latency_seconds{profile="www",endpoint="eu1"} 0.0125"#,
        r#"xroute_profile_serving_all{profile="www"} 1"#,
        r#"xroute_endpoint_latency_percentile_seconds{profile="www",endpoint="eu1",percentile="99"} 0.25"#,
        r#"xroute_endpoint_flaps_total{profile="www",endpoint="eu1"} 3"#,
        r#"xroute_endpoint_probe_trouble{profile="www",endpoint="eu1"} 1"#,
        r#"xroute_probes_total{result="failed"} 2"#,
        r#"xroute_probes_late_total{milliseconds="more"} 1"#,
        &build,
        r#"xroute_server_queries_total{transport="udp",type="MX"} 6"#,
        r#"xroute_server_responses_total{rcode="NOERROR"} 0"#,
        r#"xroute_interface_mode{interface="eth0",mode="native"} 1"#,
        r#"xroute_table_capacity{table="cells"} 4104"#,
        r#"xroute_map_memory_bytes{map="CELLS"} 4096"#,
        r#"xroute_failover_step_seconds_bucket{le="0.005",step="decided"} 1"#,
        r#"xroute_failover_step_seconds_count{step="answered"} 0"#,
        r#"xroute_events_total{kind="verdict"} 0"#,
        "xroute_lease_remaining_seconds 13.5",
        "xroute_overrides 1",
        "xroute_probe_targets 4",
        "xroute_generation 7",
        "xroute_generation_age_seconds 40",
        r#"xroute_reloads_total{what="configuration",result="failed"} 2"#,
        r#"xroute_reloads_total{what="data",result="ok"} 3"#,
        r#"xroute_data_file_age_seconds{path="latency.csv"} 9"#,
        r#"xroute_data_file_broken{path="latency.csv"} 1"#,
        r#"xroute_api_connections{listener="http"} 2"#,
        r#"xroute_api_requests_total{listener="http"} 6"#,
        r#"xroute_api_refused_total{listener="http",reason="idle"} 4"#,
        r#"xroute_interface_attached{interface="eth0",mode="native"} 1"#,
        "# TYPE process_cpu_seconds counter",
        "# EOF",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[test]
fn the_older_format_has_whole_names_and_no_end_mark() {
    let text = scrape().render(Format::Text);
    for line in [
        "# HELP xroute_reloads_total Reloads of the configuration and of data files, by result",
        "# TYPE xroute_reloads_total counter",
        "# TYPE process_cpu_seconds_total counter",
        "# TYPE xroute_generation gauge",
        "# TYPE xroute_failover_seconds histogram",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    assert!(!text.contains("# EOF"), "{text}");
    let described = |mark: &str| text.lines().filter(|line| line.starts_with(mark)).count();
    assert_eq!(described("# HELP"), described("# TYPE"), "{text}");
}

#[test]
fn what_is_accepted() {
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";
    assert_eq!(Format::accepted(prometheus), Format::OpenMetrics);
    assert_eq!(Format::accepted("application/openmetrics-text;q=0, text/plain"), Format::Text);
    for accept in ["", "*/*", "text/plain", "text/html,application/xml", ";;,,;q=nonsense"] {
        assert_eq!(Format::accepted(accept), Format::Text, "{accept}");
    }
}

/// Names of the families, as the documentation has them.
fn rendered() -> BTreeSet<String> {
    let text = scrape().render(Format::Text);
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn every_metric_is_documented_and_every_documented_one_is_there() {
    let documented: BTreeSet<String> = documented().into_iter().collect();
    let rendered = rendered();
    let missing: Vec<&String> = rendered.difference(&documented).collect();
    assert!(missing.is_empty(), "docs/metrics.md does not have {missing:?}");
    let gone: Vec<&String> = documented.difference(&rendered).collect();
    assert!(gone.is_empty(), "docs/metrics.md has what is not rendered: {gone:?}");
}

/// Names in the first column of the tables of `docs/metrics.md`.
fn documented() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/metrics.md");
    let text = std::fs::read_to_string(path).expect("docs/metrics.md");
    text.lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| line.split('`').next())
        .filter(|name| name.starts_with("xroute_") || name.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}
