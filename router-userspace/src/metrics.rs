//! Metrics in the text formats that Prometheus reads, rendered from one status report and the distributions
//! that were measured meanwhile. `docs/metrics.md` lists every one.

use std::fmt::Write;
use std::sync::Arc;

use prometheus_client::registry::Registry;

use crate::control::StatusReport;

mod answers;
mod exposition;
mod figures;
mod process;

use exposition::Exposition;
pub use figures::{Distributions, FailoverReport, Figures, Step, probe_durations};
use process::Process;

/// Everything that metrics are rendered from.
pub struct Scrape {
    /// The status.
    pub report: StatusReport,
    /// What was measured.
    pub figures: Arc<Figures>,
    /// How long probes took.
    pub probes: Distributions,
}

/// How metrics are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// The text format of Prometheus, version 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// What fits an `Accept` header: OpenMetrics for those who name it, text for everybody else.
    pub fn accepted(accept: &str) -> Self {
        let named = accept.split(',').any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let refused = |part: &str| part.strip_prefix("q=").is_some_and(|q| q.parse() == Ok(0.0));
            kind.eq_ignore_ascii_case("application/openmetrics-text") && !parts.any(refused)
        });
        if named { Self::OpenMetrics } else { Self::Text }
    }

    /// Its media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Scrape {
    /// Renders everything.
    pub fn render(self, format: Format) -> String {
        let Self { report, figures, probes } = self;
        let mut registry = Registry::default();
        registry.register(
            "xroute_failover_step_seconds",
            "Time of each step from the end of a probe to the first answer after the change it made",
            figures.steps.clone(),
        );
        registry.register(
            "xroute_failover_seconds",
            "Time from the end of a probe until the tables show the change it made",
            figures.failover.clone(),
        );
        registry.register(
            "xroute_failover_answered_seconds",
            "Time from the end of a probe until the first answer after the change it made",
            figures.failover_answered.clone(),
        );
        registry.register(
            "xroute_generation_build_seconds",
            "Time to make a generation and put it into service",
            figures.generations.clone(),
        );
        registry.register("xroute_probe_duration_seconds", "Time that probes took", probes);
        registry.register_collector(Box::new(Exposition { report, process: Process::read() }));
        let mut text = String::new();
        // Writing into a String cannot fail; an encoder error would only cut the text short.
        if prometheus_client::encoding::text::encode(&mut text, &registry).is_err() {
            text.clear();
        }
        match format {
            Format::OpenMetrics => text,
            Format::Text => plain(&text),
        }
    }
}

/// OpenMetrics as the older text format: there, the name of a counter ends in `_total` in all of its lines, and
/// there are no units and no end mark.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut help: Option<(&str, &str)> = None;
    for line in text.lines() {
        let described = |mark| line.strip_prefix(mark).map(|rest| rest.split_once(' ').unwrap_or((rest, "")));
        let written = if let Some(description) = described("# HELP ") {
            help = Some(description);
            Ok(())
        } else if let Some((name, kind)) = described("# TYPE ") {
            let ending = if kind == "counter" { "_total" } else { "" };
            let help = help.take().filter(|(of, _)| *of == name);
            help.map_or(Ok(()), |(_, help)| writeln!(plain, "# HELP {name}{ending} {help}"))
                .and_then(|()| writeln!(plain, "# TYPE {name}{ending} {kind}"))
        } else if line.starts_with('#') {
            Ok(())
        } else {
            writeln!(plain, "{line}")
        };
        // Writing into a String cannot fail.
        if written.is_err() {
            break;
        }
    }
    plain
}

#[cfg(test)]
mod tests;
