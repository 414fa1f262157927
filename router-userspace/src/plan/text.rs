//! A plan for people: short, sorted, with the figures first; long lists are cut unless all is wanted.

use std::fmt::{self, Write};

use super::{Counts, ItemReport, PlanReport, ShareReport, SteeredReport, Summary};

/// Lines of a list that are shown.
const LINES: usize = 20;
/// Endpoints of a profile that are shown.
const ENDPOINTS: usize = 8;

impl PlanReport {
    /// The text; with `all`, without leaving anything out.
    pub fn text(&self, all: bool) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut text, all);
        text
    }

    fn write(&self, to: &mut String, all: bool) -> fmt::Result {
        writeln!(to, "plan: {} in place of {}", self.after, self.before)?;
        if self.empty {
            writeln!(to, "no change")?;
        }
        for setting in &self.restart {
            writeln!(to, "  ! {} {} -> {}, needs a restart", setting.key, setting.before, setting.after)?;
        }
        for setting in &self.settings {
            writeln!(to, "  ~ {} {} -> {}", setting.key, setting.before, setting.after)?;
        }
        for (kind, title, counts) in [
            ("zone", "zones", self.summary.zones),
            ("name", "names", self.summary.names),
            ("profile", "profiles", self.summary.profiles),
            ("endpoint", "endpoints", self.summary.endpoints),
        ] {
            let items: Vec<&ItemReport> = self.changes.iter().filter(|item| item.kind == kind).collect();
            if !items.is_empty() {
                writeln!(to, "{title} {counts}")?;
            }
            cut(to, &items, if all { usize::MAX } else { LINES }, |to, item| write_item(to, item))?;
        }
        if !self.empty {
            self.write_traffic(to, all)?;
        }
        if self.overrides > 0 {
            writeln!(to, "{} overrides stay laid over it (`xroute override list`)", self.overrides)?;
        }
        for line in &self.exceeded {
            writeln!(to, "limit exceeded: {line}")?;
        }
        Ok(())
    }

    fn write_traffic(&self, to: &mut String, all: bool) -> fmt::Result {
        let traffic = &self.traffic;
        if traffic.profiles.is_empty() {
            return writeln!(to, "traffic: no answer changes");
        }
        writeln!(to, "traffic (by address space, every name alike): {} move", shown(&traffic.moved))?;
        if let Some(moved) = &traffic.moved_by_queries {
            writeln!(to, "  weighed by the queries counted for each profile: {} move", shown(moved))?;
        }
        if !is_zero(&traffic.nodata) {
            writeln!(to, "  {} become NODATA", shown(&traffic.nodata))?;
        }
        cut(
            to,
            &traffic.profiles.iter().collect::<Vec<_>>(),
            if all { usize::MAX } else { LINES },
            |to, one| write_steered(to, one, all),
        )
    }
}

/// Writes the first of a list, and how many more there are.
fn cut<T>(
    to: &mut String,
    list: &[T],
    most: usize,
    write: impl Fn(&mut String, &T) -> fmt::Result,
) -> fmt::Result {
    for item in list.iter().take(most) {
        write(to, item)?;
    }
    match list.len().checked_sub(most) {
        Some(more) if more > 0 => writeln!(to, "  … and {more} more (--all shows them)"),
        _ => Ok(()),
    }
}

fn write_item(to: &mut String, item: &ItemReport) -> fmt::Result {
    let sign = match item.change.as_str() {
        "added" => '+',
        "removed" => '-',
        _ => '~',
    };
    write!(to, "  {sign} {}", item.name)?;
    if let Some(about) = &item.about {
        write!(to, "  {about}")?;
    }
    for (at, setting) in item.settings.iter().enumerate() {
        let between = if at == 0 { " " } else { "," };
        write!(to, "{between} {} {} -> {}", setting.key, setting.before, setting.after)?;
    }
    writeln!(to)
}

fn write_steered(to: &mut String, one: &SteeredReport, all: bool) -> fmt::Result {
    let profile = match one.before == one.after {
        true => one.before.clone(),
        false => format!("{} -> {}", one.before, one.after),
    };
    let names = match one.names.as_slice() {
        [only] => only.clone(),
        names => format!("{} names", names.len()),
    };
    writeln!(
        to,
        "  {profile} ({names}): {} move, for {} of clients",
        shown(&one.moved),
        percent(four(&one.clients).iter().map(|&(share, _)| share).fold(0.0, f64::max))
    )?;
    let mut endpoints: Vec<_> =
        one.endpoints.iter().map(|each| (each, furthest(&each.before, &each.after))).collect();
    endpoints.sort_by(|(_, one), (_, other)| (other.1 - other.0).abs().total_cmp(&(one.1 - one.0).abs()));
    cut(to, &endpoints, if all { usize::MAX } else { ENDPOINTS }, |to, (each, (before, after, whom))| {
        writeln!(to, "      {} {} -> {} ({whom})", each.path, percent(*before), percent(*after))
    })?;
    for example in &one.examples {
        writeln!(to, "      e.g. {}: {} -> {}", example.prefix, example.before, example.after)?;
    }
    let dark = one.nodata_examples.iter().filter(|example| !one.examples.contains(example));
    for example in dark {
        writeln!(to, "      e.g. {}: {} -> {}", example.prefix, example.before, example.after)?;
    }
    if !is_zero(&one.nodata) {
        writeln!(to, "      {} become NODATA", shown(&one.nodata))?;
    }
    Ok(())
}

/// The four shares with what they are of.
fn four(shares: &ShareReport) -> [(f64, &'static str); 4] {
    [
        (shares.a.ipv4, "A, IPv4 clients"),
        (shares.a.ipv6, "A, IPv6 clients"),
        (shares.aaaa.ipv4, "AAAA, IPv4 clients"),
        (shares.aaaa.ipv6, "AAAA, IPv6 clients"),
    ]
}

fn is_zero(shares: &ShareReport) -> bool {
    four(shares).iter().all(|&(share, _)| share == 0.0)
}

/// The pair of the four that is furthest apart.
fn furthest(before: &ShareReport, after: &ShareReport) -> (f64, f64, &'static str) {
    let pairs = four(before).into_iter().zip(four(after)).map(|((one, whom), (other, _))| (one, other, whom));
    let wider = |best: (f64, f64, &'static str), each: (f64, f64, &'static str)| {
        if (each.1 - each.0).abs() > (best.1 - best.0).abs() { each } else { best }
    };
    pairs.reduce(wider).unwrap_or((0.0, 0.0, ""))
}

/// Four shares as short as they can be told: a type or a family of which nothing is otherwise is not named.
fn shown(shares: &ShareReport) -> String {
    let both = |ipv4: f64, ipv6: f64| match (percent(ipv4), percent(ipv6)) {
        (one, other) if one == other => one,
        (one, _) if ipv6 == 0.0 => format!("{one} (IPv4 clients)"),
        (_, other) if ipv4 == 0.0 => format!("{other} (IPv6 clients)"),
        (one, other) => format!("{one} (IPv4) and {other} (IPv6 clients)"),
    };
    let (a, aaaa) = (both(shares.a.ipv4, shares.a.ipv6), both(shares.aaaa.ipv4, shares.aaaa.ipv6));
    match (a.as_str(), aaaa.as_str()) {
        _ if a == aaaa => format!("{a} of answers"),
        (_, "0 %") => format!("{a} of A answers"),
        ("0 %", _) => format!("{aaaa} of AAAA answers"),
        _ => format!("{a} of A answers and {aaaa} of AAAA answers"),
    }
}

/// A share in percent. What is above nothing is never shown as nothing, and what is not everything never as that.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        _ if share == 0.0 => String::from("0 %"),
        _ if share == 1.0 => String::from("100 %"),
        _ if percent < 0.1 => String::from("<0.1 %"),
        _ if percent > 99.9 => String::from(">99.9 %"),
        _ => format!("{percent:.1} %"),
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{} -{} ~{}", self.added, self.removed, self.changed)
    }
}

impl fmt::Display for Summary {
    /// One line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = false;
        for (what, counts) in [
            ("zones", self.zones),
            ("names", self.names),
            ("profiles", self.profiles),
            ("endpoints", self.endpoints),
        ] {
            if counts != Counts::default() {
                write!(f, "{}{what} {counts}", if said { ", " } else { "" })?;
                said = true;
            }
        }
        if self.settings > 0 {
            write!(f, "{}{} settings", if said { ", " } else { "" }, self.settings)?;
            said = true;
        }
        if self.moved > 0.0 {
            write!(f, "{}{} of answers move", if said { ", " } else { "" }, percent(self.moved))?;
            said = true;
        }
        if self.nodata > 0.0 {
            write!(f, ", {} become NODATA", percent(self.nodata))?;
        }
        if said { Ok(()) } else { f.write_str("no change") }
    }
}

impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(false))
    }
}
