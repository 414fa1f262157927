//! The frame: a head, curves of the rates, endpoints and outcomes, events, and which keys there are. What there
//! is no room for is left out, the least needed first.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Row, Sparkline, Table};

use super::view::{EndpointOrder, EndpointRow, OutcomeOrder, OutcomeRow, Part, View};
use crate::control::{StatusReport, ago};

/// From so many columns on, outcomes stand beside the endpoints.
const WIDE: u16 = 100;
/// Columns of the outcomes there.
const OUTCOMES: u16 = 46;
const GREY: Style = Style::new().fg(Color::DarkGray);
const HEAD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Draws everything.
pub(super) fn draw(view: &View, frame: &mut Frame<'_>) {
    let area = frame.area();
    let wide = area.width >= WIDE;
    let rates = if area.height >= 16 { 4 } else { 0 };
    let events = if area.height >= 24 { (area.height / 4).min(14) } else { 0 };
    let keys = u16::from(area.height >= 6);
    let [head, curves, middle, last, foot] = Layout::vertical([
        Constraint::Length(area.height.min(2)),
        Constraint::Length(rates),
        Constraint::Min(0),
        Constraint::Length(events),
        Constraint::Length(keys),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(header(view)), head);
    draw_curves(view, frame, curves);
    let parts = if wide {
        Layout::horizontal([Constraint::Min(0), Constraint::Length(OUTCOMES)])
    } else {
        Layout::vertical([Constraint::Fill(3), Constraint::Fill(2)])
    };
    let [endpoints, outcomes] = if wide || middle.height >= 10 {
        parts.areas(middle)
    } else if view.focus == Part::Outcomes {
        [Rect::ZERO, middle]
    } else {
        [middle, Rect::ZERO]
    };
    draw_endpoints(view, frame, endpoints);
    draw_outcomes(view, frame, outcomes);
    draw_events(view, frame, last);
    frame.render_widget(Paragraph::new(footer(view)).style(GREY), foot);
}

/// Two lines about the agent.
fn header(view: &View) -> Vec<Line<'static>> {
    let Some(report) = &view.report else { return vec![Line::from("asking the agent…")] };
    let StatusReport { version, pid, uptime_seconds, generation, generation_age_seconds, .. } = report;
    let mut first = vec![
        Span::styled(format!("xroute {version}"), HEAD),
        Span::raw(format!(
            "  pid {pid}, up {}  generation {generation}, {} old",
            ago(*uptime_seconds),
            ago(*generation_age_seconds)
        )),
    ];
    if let Some(fast_path) = &report.fast_path {
        let left = fast_path.lease.left_ms as f64 / 1000.0;
        let style = if left < 8.0 { Style::new().fg(Color::Red) } else { Style::new() };
        first.push(Span::styled(format!("  lease {left:.0} s"), style));
    }
    if !report.overrides.is_empty() {
        let text = format!("  {} overrides", report.overrides.len());
        first.push(Span::styled(text, Style::new().fg(Color::Cyan)));
    }
    let second = match (&view.lost, &report.last_reload_error) {
        (Some(why), _) => Line::styled(format!("no news: {why}"), Style::new().fg(Color::Red)),
        (None, Some(why)) => {
            let why = why.lines().next().unwrap_or_default();
            Line::styled(format!("the last reload was refused: {why}"), Style::new().fg(Color::Yellow))
        }
        (None, None) => second_line(report),
    };
    vec![Line::from(first), second]
}

fn second_line(report: &StatusReport) -> Line<'static> {
    let mut parts: Vec<String> = report
        .interfaces
        .iter()
        .map(|interface| format!("{}: XDP {}", interface.name, interface.mode))
        .collect();
    if parts.is_empty() {
        parts.push(String::from("no XDP"));
    }
    parts.push(format!("{} probe targets, {} in flight", report.probes.targets, report.probes.in_flight));
    parts.push(format!("{} TCP connections", report.server.connections_open));
    if let Some(took) = report.failover.last_ms {
        parts.push(format!("last failover written in {took:.1} ms"));
    }
    Line::from(parts.join("  "))
}

/// Rates of both paths, newest at the right.
fn draw_curves(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let halves: [Rect; 2] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(1).areas(area);
    let rates = view.rates();
    for (i, (area, (name, color))) in
        halves.into_iter().zip([("fast path", Color::Green), ("userspace", Color::Yellow)]).enumerate()
    {
        let rate = rates.and_then(|rates| rates.get(i).copied());
        let peak = view.history.iter().filter_map(|rates| rates.get(i)).copied().fold(0.0, f64::max);
        let title = match rate {
            Some(rate) => format!("{name} {}/s, at most {}/s", short(rate), short(peak)),
            None => format!("{name} …"),
        };
        let block = Block::new().borders(Borders::TOP).title(Span::styled(title, HEAD)).border_style(GREY);
        let room = usize::from(area.width);
        let skipped = view.history.len().saturating_sub(room);
        let mut curve = vec![0; room.saturating_sub(view.history.len())];
        curve.extend(
            view.history.iter().skip(skipped).filter_map(|rates| rates.get(i)).map(|rate| *rate as u64),
        );
        let curve = Sparkline::default().block(block).data(curve).style(Style::new().fg(color));
        frame.render_widget(curve, area);
    }
}

/// A frame around a part; the one that has the arrow keys stands out.
fn block(view: &View, part: Part, title: String) -> Block<'static> {
    let style = if view.focus == part { Style::new().fg(Color::Cyan) } else { GREY };
    Block::new().borders(Borders::TOP).border_style(style).title(Span::styled(title, HEAD))
}

fn draw_endpoints(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let rows = view.endpoints();
    let room = usize::from(area.height.saturating_sub(2));
    let offset = view.offset(Part::Endpoints, rows.len(), room);
    let order = match view.endpoint_order {
        EndpointOrder::File => "as in the file",
        EndpointOrder::Status => "by status",
        EndpointOrder::Latency => "by latency",
        EndpointOrder::Flaps => "by flaps",
    };
    let title = format!("profiles and endpoints, {order}{}", place(offset, rows.len(), room));
    let all: [(&str, Constraint); 6] = [
        ("name", Constraint::Min(12)),
        ("status", Constraint::Length(if area.width < 64 { 11 } else { 16 })),
        ("latency", Constraint::Length(9)),
        ("p99", Constraint::Length(9)),
        ("flaps", Constraint::Length(6)),
        ("for", Constraint::Length(12)),
    ];
    let count = match area.width {
        0..40 => 2,
        40..64 => 3,
        _ => all.len(),
    };
    let columns = all.iter().take(count);
    let shown = rows.iter().skip(offset).take(room).map(|row| endpoint_row(view, row, count));
    let table = Table::new(shown, columns.clone().map(|(_, width)| *width))
        .header(Row::new(columns.map(|(name, _)| *name)).style(GREY))
        .block(block(view, Part::Endpoints, title));
    frame.render_widget(table, area);
}

fn endpoint_row<'v>(view: &View, row: &EndpointRow<'v>, count: usize) -> Row<'v> {
    let ms = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.1} ms"));
    let mut cells = match row.endpoint {
        None => {
            let status = if row.serving_all { "serving all" } else { row.status };
            vec![format!("{} ({})", row.profile, row.method), status.to_owned()]
        }
        Some(endpoint) => {
            let name = match view.endpoint_order {
                EndpointOrder::File => format!("  {}", endpoint.name),
                _ => format!("{}/{}", row.profile, endpoint.name),
            };
            vec![
                name,
                row.status.to_owned(),
                ms(endpoint.latency_average_ms),
                ms(endpoint.latency_p99_ms),
                if endpoint.probe.is_some() { endpoint.flaps.to_string() } else { String::new() },
                endpoint.since_seconds.map(ago).unwrap_or_default(),
            ]
        }
    };
    cells.truncate(count);
    let style = match row.status {
        _ if row.serving_all && row.endpoint.is_none() => Style::new().fg(Color::Red),
        "Degraded" => Style::new().fg(Color::Red),
        "Online" => Style::new().fg(Color::Green),
        "CheckingEndpoint" | "CheckingEndpoints" => Style::new().fg(Color::Yellow),
        "Disabled" | "Stopped" | "Inactive" => GREY,
        _ => Style::new(),
    };
    let style = if row.endpoint.is_none() { style.add_modifier(Modifier::BOLD) } else { style };
    Row::new(cells).style(style)
}

fn draw_outcomes(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let rows = view.outcomes();
    let room = usize::from(area.height.saturating_sub(2));
    let offset = view.offset(Part::Outcomes, rows.len(), room);
    let order = match view.outcome_order {
        OutcomeOrder::Rate => "by rate",
        OutcomeOrder::Count => "by count",
        OutcomeOrder::Name => "by name",
    };
    let title = format!("outcomes, {order}{}", place(offset, rows.len(), room));
    let shown = rows.iter().skip(offset).take(room).map(|OutcomeRow { name, count, rate }| {
        let rate = rate.map_or_else(String::new, short);
        Row::new([(*name).to_owned(), rate, count.to_string()]).style(match name.split('_').next() {
            Some("answer") => Style::new().fg(Color::Green),
            Some("drop" | "abort") => Style::new().fg(Color::Red),
            _ => Style::new(),
        })
    });
    let widths = [Constraint::Min(10), Constraint::Length(8), Constraint::Length(12)];
    let table = Table::new(shown, widths)
        .header(Row::new(["outcome", "per s", "count"]).style(GREY))
        .block(block(view, Part::Outcomes, title));
    frame.render_widget(table, area);
}

fn draw_events(view: &View, frame: &mut Frame<'_>, area: Rect) {
    let room = usize::from(area.height.saturating_sub(1));
    let back = view.offset(Part::Events, view.events.len(), room);
    let end = view.events.len().saturating_sub(back);
    let first = end.saturating_sub(room);
    let title = if back > 0 { format!("events, {back} newer ones below") } else { String::from("events") };
    let lines: Vec<Line<'_>> = view.events.range(first..end).map(|line| Line::from(line.as_str())).collect();
    frame.render_widget(Paragraph::new(lines).block(block(view, Part::Events, title)), area);
}

/// Which rows are shown, when that is not all.
fn place(offset: usize, rows: usize, room: usize) -> String {
    if rows <= room {
        return String::new();
    }
    format!(", {} to {} of {rows}", (offset + 1).min(rows), (offset + room).min(rows))
}

fn footer(view: &View) -> String {
    format!("q quit  Tab next part  ↑↓ scroll  s sort  every {:?}", view.interval)
}

/// A rate in few characters.
fn short(rate: f64) -> String {
    match rate {
        _ if rate < 10.0 => format!("{rate:.1}"),
        _ if rate < 10_000.0 => format!("{rate:.0}"),
        _ if rate < 10_000_000.0 => format!("{:.1}k", rate / 1000.0),
        _ => format!("{:.1}M", rate / 1_000_000.0),
    }
}
